//! Every form in which an experiment starts Flash: its name in tables, and its arguments. The one place where
//! they stand.
//!
//! [`super::rounds`] makes servers of them. Pure.

use super::plan::{Kind, Scale, Variant};

/// The four architectures, by the papers' names (flash-1999, section 3).
pub(super) const AMPED: &str = "AMPED";
pub(super) const SPED: &str = "SPED";
pub(super) const MP: &str = "MP";
pub(super) const MT: &str = "MT";

const ARCHITECTURES: [(&str, &[&str]); 4] = [
    (AMPED, &[]),
    (SPED, &["--architecture", "sped"]),
    (MP, &["--architecture", "mp"]),
    (MT, &["--architecture", "mt"]),
];

/// The steps from old to new Flash (blocking-induced-latency, section 5, Table 5), and today's default.
pub(super) const OLD: &str = "old Flash";
pub(super) const FD_PASS: &str = "fd pass";
pub(super) const NO_MMAP: &str = "no mmap";
pub(super) const NEW: &str = "New-Flash";
pub(super) const TODAY: &str = "today's default";

const STEPS: [(&str, &[&str]); 5] = [
    (OLD, &["--send", "mmap", "--open-in-loop", "--no-content-cache"]),
    (FD_PASS, &["--send", "mmap", "--no-content-cache"]),
    (NO_MMAP, &["--send", "sendfile", "--no-residency-check", "--no-content-cache"]),
    (NEW, &["--send", "sendfile", "--no-content-cache"]),
    (TODAY, &[]),
];

/// The three caches of the first Flash, and the option that switches each off (flash-1999, section 5.2 to 5.4). "Mapped
/// files" were then what contents in memory are now.
pub(super) const CACHES: [(&str, &str); 3] =
    [("names", "--no-name-cache"), ("heads", "--no-head-cache"), ("contents", "--no-content-cache")];

/// Servers that Flash's backend warms names and files for: the name in findings, and the ready-made servers without and
/// with the module.
pub(super) const GATED: [(&str, &str, &str); 2] =
    [("apache", "apache-event", "apache-flashpache"), ("nginx", NGINX, "nginx-gate")];
const NGINX: &str = "nginx";
/// Today's default, beside them.
const FLASH: &str = "Flash";

/// The schedules of an uplink (overload-and-srpt): shared equally, by bands that the uplink's queue honours, and by Flash
/// itself, which knows the uplink's rate.
pub(super) const FAIR: &str = "Flash FAIR";
pub(super) const SRPT: &str = "Flash SRPT";
pub(super) const EGRESS: &str = "Flash --egress";
/// Flash without a cap on what a connection has in flight.
pub(super) const NO_CAP: &str = "no cap";

/// The most processes and threads that `flash serve` can be told to have, one for each client.
const PROCESSES_MAX: u32 = 1_024;
const THREADS_MAX: u32 = 1_024;

fn flash(name: &str, arguments: &[&str]) -> Variant {
    let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
    Variant {
        name: name.to_owned(),
        kind: Kind::Flash(arguments),
        clients_max: None,
        load_of: None,
        has_bands: false,
    }
}

/// The four architectures.
pub(super) fn architectures() -> Vec<Variant> {
    ARCHITECTURES.iter().map(|(name, arguments)| flash(name, arguments)).collect()
}

/// The four, with a process or thread for each client (flash-1999, section 6.4).
pub(super) fn architectures_for_clients() -> Vec<Variant> {
    let mut variants = architectures();
    for (name, option, most) in [(MP, "--processes", PROCESSES_MAX), (MT, "--threads", THREADS_MAX)] {
        for variant in variants.iter_mut().filter(|variant| variant.name == name) {
            variant.clients_max = Some(most);
            if let Kind::Flash(arguments) = &mut variant.kind {
                arguments.extend([option.to_owned(), "{clients}".to_owned()]);
            }
        }
    }
    variants
}

/// MP with this many processes.
pub(super) fn mp(processes: u32) -> Variant {
    flash(&format!("{MP} {processes}"), &["--architecture", "mp", "--processes", &processes.to_string()])
}

/// The steps from old to new Flash.
pub(super) fn steps() -> Vec<Variant> {
    STEPS.iter().map(|(name, arguments)| flash(name, arguments)).collect()
}

/// One of the steps.
pub(super) fn step(name: &str) -> Vec<Variant> {
    steps().into_iter().filter(|variant| variant.name == name).collect()
}

/// All clients of an experiment have one address. Refusals would change whom the schedule orders.
const REFUSE_NOBODY: [&str; 4] = ["--client-connections", "0", "--accept-wait", "0s"];

fn refusing_nobody(name: &str, arguments: &[&str]) -> Variant {
    flash(name, &[arguments, &REFUSE_NOBODY].concat())
}

/// The schedules of an uplink that carries IP packets at this rate. `--egress` counts Ethernet frames, of which 1,538 bytes
/// carry such a packet of 1,500 bytes.
pub(super) fn schedules(rate_bits_per_s: u64) -> Vec<Variant> {
    let rate = format!("{}kbit", rate_bits_per_s * 1538 / 1500 / 1000);
    vec![
        refusing_nobody(FAIR, &["--schedule", "fair"]),
        Variant { has_bands: true, ..refusing_nobody(SRPT, &["--schedule", "srpt"]) },
        refusing_nobody(EGRESS, &["--egress", &rate]),
    ]
}

/// The name of a cap in bytes.
pub(super) fn cap_name(cap_bytes: u64) -> String {
    format!("{} KiB", cap_bytes / 1024)
}

/// Flash with each of these caps, and without one.
pub(super) fn caps(caps_bytes: &[u64]) -> Vec<Variant> {
    let capped =
        caps_bytes.iter().map(|cap| refusing_nobody(&cap_name(*cap), &["--cwnd-cap", &cap.to_string()]));
    capped.chain([refusing_nobody(NO_CAP, &[])]).collect()
}

/// The name of a combination of caches: those that are on.
pub(super) fn caches_name(is_on: [bool; 3]) -> String {
    let on: Vec<&str> = CACHES.iter().zip(is_on).filter(|(_, on)| *on).map(|((name, _), _)| *name).collect();
    match on.len() {
        0 => "no caches".to_owned(),
        3 => "all caches".to_owned(),
        _ => format!("{} only", on.join(" and ")),
    }
}

/// The eight combinations of three caches, all of them first.
pub(super) fn combinations() -> Vec<Variant> {
    let is_on = |number: u8| [0, 1, 2].map(|cache| number >> cache & 1 == 0);
    let variant = |number| {
        let off = CACHES.iter().zip(is_on(number)).filter(|(_, on)| !on).map(|((_, option), _)| *option);
        flash(&caches_name(is_on(number)), &off.collect::<Vec<_>>())
    };
    (0..8).map(variant).collect()
}

/// The servers beside Flash.
pub(super) fn peers(scale: &Scale) -> Vec<Variant> {
    scale.peers.iter().map(|name| peer(name)).collect()
}

fn peer(name: &str) -> Variant {
    let kind = Kind::Peer(name.to_owned());
    Variant { name: name.to_owned(), kind, clients_max: None, load_of: None, has_bands: false }
}

/// The servers of [`GATED`], each as it is and then gated, under the same load; and Flash under that of nginx.
pub(super) fn gated() -> Vec<Variant> {
    let under_load_of = |variant, other: &str| Variant { load_of: Some(other.to_owned()), ..variant };
    let pairs = GATED.iter().flat_map(|(_, stock, gated)| [peer(stock), under_load_of(peer(gated), stock)]);
    pairs.chain([under_load_of(flash(FLASH, &[]), NGINX)]).collect()
}

impl Variant {
    /// The options among its arguments, which this program may lack.
    pub(super) fn options(&self) -> Vec<&str> {
        match &self.kind {
            Kind::Flash(arguments) => {
                arguments.iter().map(String::as_str).filter(|word| word.starts_with("--")).collect()
            }
            Kind::Peer(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn there_are_eight_combinations_each_with_its_own_name_and_arguments() {
        let all = combinations();
        assert_eq!(all[0], flash("all caches", &[]));
        assert_eq!(all[1], flash("heads and contents only", &["--no-name-cache"]));
        assert_eq!(all[7].options().len(), 3);
        let names: BTreeSet<_> = all.iter().map(|variant| variant.name.clone()).collect();
        let arguments: BTreeSet<_> = all.iter().map(|variant| variant.options().join(" ")).collect();
        assert_eq!((names.len(), arguments.len()), (8, 8));
    }

    #[test]
    fn servers_with_a_process_or_thread_for_each_client_are_told_how_many() {
        let all = architectures_for_clients();
        assert_eq!(all[2].kind, flash(MP, &["--architecture", "mp", "--processes", "{clients}"]).kind);
        assert_eq!(
            all.iter().map(|variant| variant.clients_max.is_some()).collect::<Vec<_>>(),
            [false, false, true, true]
        );
    }
}
