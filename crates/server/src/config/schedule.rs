//! The order in which connections' bytes go to the network: the settings of the schedule (docs/overload.md).
//!
//! `config::resolve` fills them, `config::combinations` checks them, and `convert` passes them to the engine and the worker.

use flash_engine::CUTOFFS_MAX;
use flash_prompt::net::InFlightCap;
use flash_units::{rate_text, size_text};
use serde::{Deserialize, Serialize};

use super::combinations;
use super::error::Problem;
use super::optimizations::SendBy;
use super::options::{Given, Origin, Overrides};
use super::values::{Choice, FromItems, Kind, Refusal};

/// The settings of the schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// The schedule: which connection's bytes go first.
    pub policy: SchedulePolicy,
    /// Fixed cutoffs in bytes, ascending; empty to learn them.
    pub cutoffs: Vec<u64>,
    /// Whether packets also carry the band as a code point (DSCP).
    pub dscp: bool,
    /// Maximum bytes that one connection has in flight; 0 for no maximum.
    pub cwnd_cap_bytes: u64,
    /// The rate of the uplink in bits per second, for all workers together; 0 if the kernel decides.
    pub egress_bits_per_s: u64,
}

/// The schedule: which connection's bytes go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchedulePolicy {
    /// The kernel shares the link.
    Fair,
    /// Responses with few bytes left.
    Srpt,
}

impl SchedulePolicy {
    /// The names in the file, on the command line and in the environment.
    pub(super) const WORDS: &'static [&'static str] = &["fair", "srpt"];
}

impl Choice for SchedulePolicy {
    const ALL: &'static [Self] = &[SchedulePolicy::Fair, SchedulePolicy::Srpt];
}

/// The sizes that separate the bands, in bytes, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cutoffs(pub Vec<u64>);

impl FromItems for Cutoffs {
    fn from_items(items: &[&std::ffi::OsStr], kind: Kind) -> Result<Self, Vec<Refusal>> {
        let mut sizes: Vec<u64> = Vec::with_capacity(CUTOFFS_MAX);
        let mut refusals = Vec::new();
        let mut refuse = |item, why: String| refusals.push(Refusal { item, why, help: None });
        for (item, text) in items.iter().enumerate() {
            if item >= CUTOFFS_MAX {
                refuse(item, format!("too many cutoffs: at most {CUTOFFS_MAX}"));
                break;
            }
            match u64::from_items(&[text], kind) {
                Ok(size) if sizes.last().is_some_and(|last| *last >= size) => {
                    refuse(item, "must be larger than the cutoff before it".to_owned());
                }
                Ok(size) => sizes.push(size),
                Err(wrong) => wrong.into_iter().for_each(|wrong| refuse(item, wrong.why)),
            }
        }
        if items.is_empty() {
            refuse(0, "name at least one size, or remove the key to learn the cutoffs".to_owned());
        }
        if refusals.is_empty() { Ok(Cutoffs(sizes)) } else { Err(refusals) }
    }
}

impl Schedule {
    /// The settings of `given`, in which every option with a default has a value.
    pub(super) fn of(given: &Overrides) -> Self {
        Self {
            policy: given.schedule.as_ref().map_or(SchedulePolicy::Fair, |given| given.value),
            cutoffs: given.srpt_cutoffs.as_ref().map_or_else(Vec::new, |given| given.value.0.clone()),
            dscp: given.srpt_dscp.as_ref().is_some_and(|given| given.value),
            egress_bits_per_s: given.egress.as_ref().map_or(0, |given| given.value),
            cwnd_cap_bytes: given.cwnd_cap.as_ref().map_or(0, |given| given.value),
        }
    }
}

/// Adds a problem for each setting that has no effect or cannot be kept.
pub(super) fn check(given: &Overrides, problems: &mut Vec<Problem>) {
    check_cap(given, problems);
    check_bands(given, problems);
}

/// Checks that the kernel can keep the cap.
fn check_cap(given: &Overrides, problems: &mut Vec<Problem>) {
    let Some(Given { value: cap @ 1.., origin }) = &given.cwnd_cap else { return };
    if *cap < InFlightCap::BYTES_MIN as u64 {
        let least = size_text(InFlightCap::BYTES_MIN as u64);
        let why = "the kernel's smallest send buffer would hold more";
        let help = format!("use at least {least}, or 0 for no cap");
        problems.push(combinations::problem("cwnd_cap", origin, "is too low", why).helped(help));
    }
    if given.send.as_ref().is_some_and(|send| send.value != SendBy::Read) {
        let why = "only `send = \"read\"` sends in pieces, without which the kernel does not keep the cap";
        problems.push(combinations::senseless("cwnd_cap", origin, why));
    }
}

/// The lowest rate of an uplink for each worker: at this rate a packet takes a fifth of a second.
const EGRESS_BITS_PER_S_MIN: u64 = 64_000;

/// Returns a problem if each worker's share of the rate is lower than it can keep.
pub(super) fn check_egress(egress: Option<&Given<u64>>, workers: usize) -> Option<Problem> {
    let Given { value: rate @ 1.., origin } = egress? else { return None };
    let workers = workers as u64;
    if rate / workers >= EGRESS_BITS_PER_S_MIN {
        return None;
    }
    let of_each =
        if workers > 1 { format!("each of {workers} workers has") } else { "the worker has".into() };
    let share = rate_text(rate / workers);
    let why = format!("{of_each} {share} of it, at which a single packet takes a fifth of a second or more");
    let least = rate_text(EGRESS_BITS_PER_S_MIN * workers);
    let help = format!("use at least {least}, or 0 to let the kernel decide");
    Some(combinations::problem("egress", origin, "is too low", &why).helped(help))
}

/// Checks settings that have no effect with a fair schedule.
fn check_bands(given: &Overrides, problems: &mut Vec<Problem>) {
    if given.schedule.as_ref().is_some_and(|given| given.value == SchedulePolicy::Srpt) {
        return;
    }
    let cutoffs = given.srpt_cutoffs.as_ref().map(|given| &given.origin);
    let dscp = given.srpt_dscp.as_ref().map(|given| &given.origin);
    for (key, origin) in [("srpt_cutoffs", cutoffs), ("srpt_dscp", dscp)] {
        if let Some(origin) = origin.filter(|origin| **origin != Origin::Default) {
            let why = "the schedule is `fair`: only `srpt` puts responses into bands";
            let help = "remove it, or use --schedule srpt";
            problems.push(combinations::senseless(key, origin, why).helped(help));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::super::options;
    use super::*;

    fn cutoffs(texts: &[&str]) -> Result<Vec<u64>, Vec<(usize, String)>> {
        let items: Vec<&OsStr> = texts.iter().map(OsStr::new).collect();
        let kind = options::find("srpt_cutoffs").expect("an option").kind;
        let read = Cutoffs::from_items(&items, kind);
        read.map(|cutoffs| cutoffs.0)
            .map_err(|refusals| refusals.into_iter().map(|refusal| (refusal.item, refusal.why)).collect())
    }

    #[test]
    fn cutoffs_are_sizes_in_order() {
        assert_eq!(cutoffs(&["1kB", "2000", "5kB", "50kB"]), Ok(vec![1_000, 2_000, 5_000, 50_000]));
        assert_eq!(cutoffs(&["8KiB"]), Ok(vec![8_192]));
        let larger = "must be larger than the cutoff before it";
        assert_eq!(cutoffs(&["2", "1", "3", "3"]), Err(vec![(1, larger.into()), (3, larger.into())]));
        assert_eq!(cutoffs(&["0"]), Err(vec![(0, "must be from 1B to 1TiB".into())]));
        assert_eq!(cutoffs(&["1", "2", "3", "4", "5"]), Err(vec![(4, "too many cutoffs: at most 4".into())]));
        assert!(cutoffs(&[]).is_err() && cutoffs(&["x"]).is_err());
    }

    #[test]
    fn settings_without_effect_or_beyond_the_kernel_are_refused() {
        let refused = |given: &[(&str, &str)]| {
            let mut overrides = Overrides::default();
            for (key, text) in given {
                let option = options::find(key).expect("an option");
                option.set(&mut overrides, &[OsStr::new(text)], Origin::Flag).expect("a value");
            }
            let mut problems = Vec::new();
            check(&overrides.or(Overrides::defaults()), &mut problems);
            problems.len()
        };
        assert_eq!(refused(&[]), 0);
        assert_eq!(refused(&[("srpt_dscp", "true"), ("srpt_cutoffs", "1kB")]), 2);
        assert_eq!(refused(&[("schedule", "srpt"), ("srpt_dscp", "true"), ("srpt_cutoffs", "1kB")]), 0);
        assert_eq!(refused(&[("cwnd_cap", "12KiB")]), 0);
        assert_eq!(refused(&[("cwnd_cap", "12287")]), 1);
        assert_eq!(refused(&[("cwnd_cap", "64KiB"), ("send", "sendfile")]), 1);
    }

    #[test]
    fn each_worker_needs_a_share_of_the_uplink() {
        let refused =
            |value, workers| check_egress(Some(&Given { value, origin: Origin::Flag }), workers).is_some();
        assert!(!refused(64_000, 1) && refused(63_999, 1) && refused(64_000, 2) && !refused(128_000, 2));
        assert!(!refused(0, 8) && check_egress(None, 8).is_none());
    }
}
