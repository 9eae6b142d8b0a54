//! `flash qdisc` on a device of its own namespace: it says what it would do, does it, packets of the bands come into their
//! classes, and undoing leaves what was there.

use std::net::UdpSocket;
use std::process::Command;

use flash_prompt::net::set_priority;
use flash_waiting::network::Namespace;

use crate::harness::{is_root, skip};

/// A namespace with the device `q0`, behind which 198.18.0.2 seems to be.
struct Bench(Namespace);

/// The exit code and output of a command.
struct Done {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Bench {
    /// None, with a skip, where the machine has no such namespaces or no iproute2.
    fn make() -> Option<Self> {
        if !is_root() || Command::new("tc").arg("-Version").output().is_err() {
            skip("needs root and iproute2, for a network device");
            return None;
        }
        let Ok(namespace) = Namespace::make() else {
            skip("needs CAP_SYS_ADMIN and CAP_NET_ADMIN, for a network namespace");
            return None;
        };
        let bench = Self(namespace);
        for words in [
            "link add q0 type veth peer name q1",
            "link set q0 up",
            "link set q1 up",
            "address add 198.18.0.1/30 dev q0",
            "neighbour add 198.18.0.2 lladdr 02:00:00:00:00:02 dev q0",
        ] {
            let done = bench.run("ip", words);
            if done.code != Some(0) {
                skip(&format!("no veth device: {}", done.err));
                return None;
            }
        }
        Some(bench)
    }

    fn run(&self, program: &str, words: &str) -> Done {
        let output = self.0.run(|| Command::new(program).args(words.split_whitespace()).output());
        let output = output.unwrap().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Done { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    fn qdisc(&self, words: &str) -> Done {
        self.run(env!("CARGO_BIN_EXE_flash"), &format!("qdisc {words}"))
    }

    /// The disciplines, classes and filters of the device, without counters.
    fn shown(&self) -> String {
        ["qdisc", "class", "filter"].map(|what| self.run("tc", &format!("{what} show dev q0")).out).concat()
    }

    /// Sends datagrams with this priority, towards the device.
    fn send(&self, priority: u8, count: usize) {
        let send = || {
            let socket = UdpSocket::bind(("198.18.0.1", 0)).unwrap();
            set_priority(&socket, priority).unwrap();
            (0..count).for_each(|_| assert_eq!(socket.send_to(b"x", ("198.18.0.2", 9)).unwrap(), 1));
        };
        self.0.run(send).unwrap();
    }

    /// The packets that each class has sent, by its number.
    fn counts(&self, classes: &[&str]) -> Vec<u64> {
        // Not as JSON: an older tc prints classes as text even so.
        let all = self.run("tc", "-s class show dev q0").out;
        let count = |class: &&str| {
            let rest =
                all.split_once(&format!("class htb f1a5:{class} ")).unwrap_or_else(|| panic!("{all}")).1;
            // " Sent 284 bytes 2 pkt (dropped 0, ..."
            let line = rest.lines().nth(1).unwrap();
            line.split_whitespace().nth(3).unwrap().parse().unwrap()
        };
        classes.iter().map(count).collect()
    }
}

/// The kinds that a machine may lack. Whether it lacks all.
fn has_none(done: &Done) -> bool {
    let lacks = done.code == Some(1) && done.err.contains("has no such queueing discipline");
    if lacks {
        skip(&format!("this kernel has no htb with a classifier: {}", done.err));
    }
    lacks
}

#[test]
fn packets_of_each_band_come_into_their_class_and_undo_leaves_what_was_there() {
    let Some(bench) = Bench::make() else { return };
    let before = bench.shown();
    let planned = bench.qdisc("q0 --rate 10Mbit --kind htb");
    if has_none(&planned) {
        return;
    }
    assert_eq!((planned.code, planned.err.as_str()), (Some(0), ""));
    assert!(
        planned.out.contains("\ntc qdisc add dev q0 root handle f1a5: htb default 10\n"),
        "{}",
        planned.out
    );
    assert_eq!(bench.shown(), before, "without --apply it only prints");

    let done = bench.qdisc("q0 --rate 10Mbit --kind htb --apply");
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{}", done.out);
    let commands = |text: &str| {
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(commands(&done.out), commands(&planned.out), "the commands that it printed before");
    let classes = ["10", "11", "12", "13", "15"];
    let at_first = bench.counts(&classes);
    // The last two are priorities of other programs: they count as the first band.
    for (priority, count) in [(0, 1), (1, 2), (2, 4), (3, 8), (5, 16), (4, 32), (6, 64)] {
        bench.send(priority, count);
    }
    let new: Vec<_> = bench.counts(&classes).iter().zip(&at_first).map(|(now, then)| now - then).collect();
    assert_eq!(new, [1 + 32 + 64, 2, 4, 8, 16]);

    // A second run replaces the first, and says so.
    let again = bench.qdisc("q0 --rate 20Mbit --kind htb --apply");
    assert_eq!((again.code, again.err.as_str()), (Some(0), ""));
    assert!(again.out.contains("\ntc qdisc del dev q0 root handle f1a5:\n"), "{}", again.out);
    assert!(bench.shown().contains("rate 20Mbit"), "{}", bench.shown());

    let undone = bench.qdisc("q0 --undo");
    assert_eq!((undone.code, undone.err.as_str()), (Some(0), ""));
    assert_eq!(bench.shown(), before);
    let nothing = bench.qdisc("q0 --undo");
    assert!(nothing.code == Some(0) && nothing.out.contains("Nothing to undo"), "{}", nothing.out);
}

#[test]
fn the_rest_of_a_run_that_was_killed_is_removed() {
    let Some(bench) = Bench::make() else { return };
    let before = bench.shown();
    // The first command of a run.
    let first = bench.run("tc", "qdisc add dev q0 root handle f1a5: htb default 10");
    if first.code != Some(0) {
        return skip(&format!("this kernel has no htb: {}", first.err));
    }
    let planned = bench.qdisc("q0 --rate 10Mbit --kind htb");
    if has_none(&planned) {
        return;
    }
    assert!(planned.out.contains("complete or not"), "it says what is there: {}", planned.out);
    assert_eq!(bench.qdisc("q0 --undo").code, Some(0));
    assert_eq!(bench.shown(), before);
}

#[test]
fn a_discipline_of_somebody_else_stays() {
    let Some(bench) = Bench::make() else { return };
    assert_eq!(bench.run("tc", "qdisc add dev q0 root handle 7: pfifo limit 50").code, Some(0));
    let before = bench.shown();
    for words in ["--rate 10Mbit", "--rate 10Mbit --apply", "--undo"] {
        let done = bench.qdisc(&format!("q0 {words}"));
        assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{words}");
        assert!(done.err.contains("pfifo 7:, which Flash did not set"), "{}", done.err);
    }
    assert_eq!(bench.shown(), before);
}

#[test]
fn bad_devices_and_rates_are_refused_with_the_reason() {
    let flash = |words: &str| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_flash")).arg("qdisc").args(words.split_whitespace()).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, why) = flash("none0 --rate 10Mbit");
    assert_eq!(code, Some(1));
    assert!(why.starts_with("error: there is no network device `none0`; there are: "), "{why}");
    for (words, reason) in [
        ("lo", "--rate <RATE>"),
        ("lo --rate 10", "the unit is missing"),
        ("lo --rate 10Mbit --undo", "cannot be used with"),
        ("lo --rate 10Mbit --kind cake", "[possible values: prio, htb, fq]"),
    ] {
        let (code, why) = flash(words);
        assert_eq!(code, Some(2), "{words}");
        assert!(why.contains(reason), "{words}: {why}");
    }
}

#[test]
fn without_the_privilege_it_says_so_and_changes_nothing() {
    let Some(bench) = Bench::make() else { return };
    let before = bench.shown();
    let through = |words: &str| {
        let flash = env!("CARGO_BIN_EXE_flash");
        bench.run("setpriv", &format!("--inh-caps=-all --bounding-set=-all {flash} qdisc q0 {words}"))
    };
    let printed = through("--rate 10Mbit");
    assert_eq!((printed.code, printed.err.as_str()), (Some(0), ""));
    assert!(printed.out.contains("Not tried on this kernel"), "{}", printed.out);
    assert!(printed.out.contains(" prio bands 5 priomap "), "{}", printed.out);
    let refused = through("--rate 10Mbit --apply");
    assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""));
    assert!(refused.err.starts_with("error: needs CAP_NET_ADMIN: "), "{}", refused.err);
    assert_eq!(bench.shown(), before);
}
