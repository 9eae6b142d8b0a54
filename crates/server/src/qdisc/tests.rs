//! Tests of the pure parts: commands, the object file and the state of a device.

use super::object::{SECTION, base64, classifier};
use super::plan::{Classifier, Scheme, Step, removal, steps};
use super::present::{Present, parse};
use super::{Wanted, text};
use crate::documented;

/// The `tc` commands of a scheme on `eth0` at 10 Mbit/s.
fn commands(scheme: Scheme) -> Vec<String> {
    let steps = steps("eth0", 10_000_000, scheme);
    steps
        .iter()
        .filter_map(|step| match step {
            Step::Tc(words) => Some(words.clone()),
            Step::Object(_) => None,
        })
        .collect()
}

#[test]
fn the_document_shows_the_commands() {
    let wanted = Wanted { device: "eth0", rate_bits_per_s: 20_000_000, kind: None, applies: false };
    let steps = steps(wanted.device, wanted.rate_bits_per_s, Scheme::Prio);
    let text = text(&wanted, &Present::Default("noqueue".into()), (Scheme::Prio, false), &steps);
    let block = documented::block("docs/overload.md", "the_document_shows_the_commands");
    assert_eq!(block, format!("$ flash qdisc eth0 --rate 20Mbit\n{text}"));
}

#[test]
fn prio_sends_each_band_of_flash_after_those_before_it() {
    assert_eq!(
        commands(Scheme::Prio),
        [
            // 4 ms of 10 Mbit/s are 5000 bytes, fewer than four packets.
            "qdisc add dev eth0 root handle f1a5: tbf rate 10Mbit burst 6056 latency 50ms",
            // Priorities 0, 1, 2, 3 and 5 have bands; the packets of other programs have the first.
            "qdisc add dev eth0 parent f1a5:1 handle f1a6: prio bands 5 priomap 0 1 2 3 0 4 0 0 0 0 0 0 0 0 0 0",
        ]
    );
}

#[test]
fn fq_has_three_bands() {
    assert_eq!(
        commands(Scheme::Fq)[1],
        "qdisc add dev eth0 parent f1a5:1 handle f1a6: fq bands 3 priomap 0 1 1 1 0 2 0 0 0 0 0 0 0 0 0 0 \
         weights 1638400 163840 16384"
    );
}

#[test]
fn htb_has_a_class_for_each_band() {
    let with_flow = commands(Scheme::Htb(Classifier::Flow));
    assert_eq!(
        with_flow,
        [
            "qdisc add dev eth0 root handle f1a5: htb default 10",
            "class add dev eth0 parent f1a5: classid f1a5:1 htb rate 10Mbit burst 6056 cburst 6056",
            "class add dev eth0 parent f1a5:1 classid f1a5:10 htb rate 100kbit ceil 10Mbit prio 0 burst 6056 \
             cburst 6056 quantum 1514",
            "class add dev eth0 parent f1a5:1 classid f1a5:11 htb rate 100kbit ceil 10Mbit prio 1 burst 6056 \
             cburst 6056 quantum 1514",
            "class add dev eth0 parent f1a5:1 classid f1a5:12 htb rate 100kbit ceil 10Mbit prio 2 burst 6056 \
             cburst 6056 quantum 1514",
            "class add dev eth0 parent f1a5:1 classid f1a5:13 htb rate 100kbit ceil 10Mbit prio 3 burst 6056 \
             cburst 6056 quantum 1514",
            "class add dev eth0 parent f1a5:1 classid f1a5:15 htb rate 100kbit ceil 10Mbit prio 4 burst 6056 \
             cburst 6056 quantum 1514",
            "filter add dev eth0 parent f1a5: protocol all prio 1 handle 1 flow map key priority baseclass f1a5:10",
        ]
    );
    let with_bpf = commands(Scheme::Htb(Classifier::Bpf));
    assert_eq!(with_bpf[..7], with_flow[..7]);
    assert_eq!(
        with_bpf[7],
        "filter add dev eth0 parent f1a5: protocol all prio 1 bpf object-file /run/flash/qdisc.o section classifier"
    );
}

#[test]
fn a_fast_device_may_send_four_milliseconds_at_once() {
    let steps = steps("eth0", 1_000_000_000, Scheme::Prio);
    assert!(steps[0].shown().contains(" rate 1Gbit burst 500000 "), "{}", steps[0].shown());
    assert_eq!(removal("eth0").shown(), "tc qdisc del dev eth0 root handle f1a5:\n");
}

#[test]
fn the_object_file_is_one_that_tc_loads() {
    let file = classifier(0xf1a5_0010);
    let number = |at: usize, bytes: usize| {
        file[at..at + bytes].iter().rev().fold(0, |sum: usize, byte| sum << 8 | usize::from(*byte))
    };
    assert_eq!(&file[..6], b"\x7fELF\x02\x01");
    assert_eq!(number(18, 2), 247, "for the kernel");
    let (table, count, names) = (number(40, 8), number(60, 2), number(62, 2));
    assert_eq!(table + 64 * count, file.len(), "the headers of the sections end the file");
    let section = |index: usize| {
        let at = table + 64 * index;
        (number(at, 4), number(at + 24, 8), number(at + 32, 8))
    };
    let name = |index: usize| {
        let from = section(names).1 + section(index).0;
        file[from..].split(|byte| *byte == 0).next().map(|name| String::from_utf8_lossy(name).into_owned())
    };
    assert_eq!(name(1).as_deref(), Some(SECTION));
    assert_eq!(name(2).as_deref(), Some("license"));
    assert_eq!((name(3).as_deref(), name(4).as_deref()), (Some(".symtab"), Some(".strtab")));
    // Load 32 bits at 32 of r1 into r0, add the class, return (linux/bpf.h).
    let (_, from, length) = section(1);
    assert_eq!(
        file[from..from + length],
        [0x61, 0x10, 32, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0x10, 0, 0xa5, 0xf1, 0x95, 0, 0, 0, 0, 0, 0, 0]
    );
}

#[test]
fn base64_is_that_of_the_rfc() {
    // RFC 4648, section 10.
    for (text, expected) in
        [("", ""), ("f", "Zg==\n"), ("fo", "Zm8=\n"), ("foo", "Zm9v\n"), ("foobar", "Zm9vYmFy\n")]
    {
        assert_eq!(base64(text.as_bytes()), expected);
    }
    assert_eq!(base64(&[0; 58]).lines().map(str::len).collect::<Vec<_>>(), [76, 4]);
}

#[test]
fn the_handle_of_the_root_shows_who_set_it() {
    let of = |text: &str| parse(text.as_bytes());
    assert_eq!(
        of(
            r#"[{"kind":"mq","handle":"0:","root":true,"options":{}},{"kind":"fq_codel","handle":"0:","parent":":1"}]"#
        ),
        Ok(Present::Default("mq".to_owned()))
    );
    assert_eq!(
        of(
            r#"[{"kind":"prio","handle":"f1a6:","parent":"f1a5:1"},{"kind":"tbf","handle":"f1a5:","root":true}]"#
        ),
        Ok(Present::Ours("tbf".to_owned()))
    );
    assert_eq!(
        of(
            r#"[{"kind":"ingress","handle":"ffff:","parent":"ffff:fff1"},{"kind":"cake","handle":"8001:","root":true}]"#
        ),
        Ok(Present::Foreign("cake 8001:".to_owned()))
    );
    for nothing in ["", " \n", "[]", r#"[{"kind":"ingress","handle":"ffff:"}]"#] {
        assert_eq!(of(nothing), Ok(Present::Default("none".to_owned())), "{nothing}");
    }
    for strange in ["{", "{}", "qdisc noqueue 0: root", r#"[{"root":true}]"#, r#"[{"root":true,"kind":1}]"#] {
        assert!(of(strange).unwrap_err().contains("iproute2"), "{strange}");
    }
}
