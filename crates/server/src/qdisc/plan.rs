//! The commands of each scheme. Pure: it knows no device and runs nothing.
//!
//! Called by the parent module. Every discipline that it makes has a handle that no other program uses, so that a later run
//! recognizes it, even if this one was killed between two commands.

use flash_worker::PRIORITIES;

use super::{Kind, object};
use flash_units::rate_text;

/// The handle of the discipline at the root: "flas", as far as hexadecimal digits allow.
pub(super) const ROOT: u32 = 0xf1a5;
/// The handle of the discipline below it.
pub(super) const INNER: u32 = 0xf1a6;

/// The path of the program for the kernel, in the folder of root's control sockets.
pub(super) const OBJECT_PATH: &str = "/run/flash/qdisc.o";

/// The class of `htb` for a packet with priority 0; that of priority N is N above it.
const FIRST_CLASS: u32 = 0x10;
/// Priorities that a map of `prio` and `fq` has (tc-prio(8)).
const MAPPED: u8 = 16;
/// Longest Ethernet frame in bytes, as the kernel counts it.
const FRAME_BYTES: u64 = 1514;
/// Data that may go out at once beyond the rate, as time, in milliseconds. As `--egress` has it.
const BURST_MS: u64 = 4;
/// The share of the rate that each class of `htb` has in any case: the one of this many parts. It keeps the last band
/// from starving.
const LEAST_SHARE: u64 = 100;

/// A way to have bands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Prio,
    Htb(Classifier),
    Fq,
}

/// How `htb` learns the class of a packet. It cannot map priorities itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Classifier {
    /// The classifier `flow` (tc-flow(8)), which most distributions have as a module.
    Flow,
    /// A program of three instructions for the classifier `bpf` (tc-bpf(8)).
    Bpf,
}

impl Scheme {
    /// All, the preferred first.
    pub(super) fn all() -> Vec<Scheme> {
        let mut all = vec![Scheme::Prio, Scheme::Htb(Classifier::Flow)];
        // The bytes of the program are for this order of bytes alone.
        if cfg!(target_endian = "little") {
            all.push(Scheme::Htb(Classifier::Bpf));
        }
        all.push(Scheme::Fq);
        all
    }

    pub(super) fn kind(self) -> Kind {
        match self {
            Scheme::Prio => Kind::Prio,
            Scheme::Htb(_) => Kind::Htb,
            Scheme::Fq => Kind::Fq,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Scheme::Prio => "prio",
            Scheme::Htb(Classifier::Flow) => "htb with flow",
            Scheme::Htb(Classifier::Bpf) => "htb with bpf",
            Scheme::Fq => "fq",
        }
    }

    /// The order that it gives the bands, as a sentence.
    pub(super) fn remark(self) -> &'static str {
        match self {
            Scheme::Prio => "prio sends a band only while all bands before it are empty.",
            Scheme::Htb(_) => "htb sends the bands in order, and gives each at least 1 % of the rate.",
            Scheme::Fq => {
                "fq has three bands: 0, then 1 to 3, then 4. Each gets ten times the bytes of the next."
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Write the program for the kernel to [`OBJECT_PATH`].
    Object(Vec<u8>),
    /// Run `tc` with these words.
    Tc(String),
}

impl Step {
    /// The command for a shell, with its line end.
    pub(super) fn shown(&self) -> String {
        match self {
            Step::Tc(words) => format!("tc {words}\n"),
            Step::Object(bytes) => {
                let folder = OBJECT_PATH.rsplit_once('/').map_or("/", |(folder, _)| folder);
                let text = object::base64(bytes);
                format!("mkdir -p -m 700 {folder}\nbase64 -d >{OBJECT_PATH} <<END\n{text}END\n")
            }
        }
    }
}

/// Removes the discipline at the root of a device, and all below it. The kernel then sets its default.
pub(super) fn removal(device: &str) -> Step {
    Step::Tc(format!("qdisc del dev {device} root handle {ROOT:x}:"))
}

/// The steps that set a scheme on a device that has a default discipline.
pub(super) fn steps(device: &str, rate_bits_per_s: u64, scheme: Scheme) -> Vec<Step> {
    let rate = rate_text(rate_bits_per_s);
    let burst_bytes = (rate_bits_per_s / 8 * BURST_MS / 1000).max(4 * FRAME_BYTES);
    // The latency is for the queue that tbf begins with, which the second command replaces.
    let limit = format!(
        "qdisc add dev {device} root handle {ROOT:x}: tbf rate {rate} burst {burst_bytes} latency 50ms"
    );
    let inner = format!("qdisc add dev {device} parent {ROOT:x}:1 handle {INNER:x}:");
    match scheme {
        Scheme::Prio => {
            let bands = PRIORITIES.len();
            let map = map(|band| band);
            vec![Step::Tc(limit), Step::Tc(format!("{inner} prio bands {bands} priomap {map}"))]
        }
        Scheme::Fq => {
            // Most bytes are in the last band, most answers in the first.
            let map = map(|band| match band {
                0 => 0,
                last if last + 1 == PRIORITIES.len() => 2,
                _ => 1,
            });
            // In bytes per turn; the kernel takes none below 16384.
            let weights = "1638400 163840 16384";
            vec![Step::Tc(limit), Step::Tc(format!("{inner} fq bands 3 priomap {map} weights {weights}"))]
        }
        Scheme::Htb(classifier) => {
            let burst = format!("burst {burst_bytes} cburst {burst_bytes}");
            let least = rate_text(rate_bits_per_s / LEAST_SHARE);
            // Until a class is there, htb sends packets at once.
            let mut steps = vec![
                Step::Tc(format!("qdisc add dev {device} root handle {ROOT:x}: htb default {FIRST_CLASS:x}")),
                Step::Tc(format!(
                    "class add dev {device} parent {ROOT:x}: classid {ROOT:x}:1 htb rate {rate} {burst}"
                )),
            ];
            for (band, priority) in PRIORITIES.iter().enumerate() {
                let class = FIRST_CLASS + u32::from(*priority);
                steps.push(Step::Tc(format!(
                    "class add dev {device} parent {ROOT:x}:1 classid {ROOT:x}:{class:x} htb rate {least} ceil {rate} \
                     prio {band} {burst} quantum {FRAME_BYTES}"
                )));
            }
            steps.extend(filter(device, classifier));
            steps
        }
    }
}

/// The steps that let `htb` find the class of a packet.
fn filter(device: &str, classifier: Classifier) -> Vec<Step> {
    let add = format!("filter add dev {device} parent {ROOT:x}: protocol all prio 1");
    match classifier {
        Classifier::Flow => {
            vec![Step::Tc(format!("{add} handle 1 flow map key priority baseclass {ROOT:x}:{FIRST_CLASS:x}"))]
        }
        Classifier::Bpf => vec![
            Step::Object(object::classifier(ROOT << 16 | FIRST_CLASS)),
            Step::Tc(format!("{add} bpf object-file {OBJECT_PATH} section {}", object::SECTION)),
        ],
    }
}

/// The band of each priority, as a list of words. A priority that Flash does not use has the first band, as the packets
/// of other programs have.
fn map(band_of: impl Fn(usize) -> usize) -> String {
    let band = |priority: u8| PRIORITIES.iter().position(|used| *used == priority).unwrap_or(0);
    (0..MAPPED).map(|priority| band_of(band(priority)).to_string()).collect::<Vec<_>>().join(" ")
}
