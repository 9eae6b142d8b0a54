//! Refuses options that have no effect or contradict each other, with the reason and where they were given.
//!
//! Called by `resolve` with the merged options of all sources, including the defaults. It must not look at anything else.

use flash_prompt::mechanism::SELECT_DESCRIPTORS_MAX;
use flash_prompt::net::InFlightCap;
use flash_units::{rate_text, size_text};

use super::architecture::connections_that_fit;
use super::choices::{Architecture, Choice, EventMechanism, HelperKind, SchedulePolicy, SendBy};
use super::error::Problem;
use super::options::{self, DefaultValue, Given, Origin, Overrides};
use super::settings::{Settings, Site};
use super::values::{AutoSize, Kind, PathOrOff};

use Architecture::{Amped, Mp, Mt, Sped};

/// Adds a problem for each option that cannot be used with the others.
pub(super) fn check(given: &Overrides, problems: &mut Vec<Problem>) {
    check_architecture(given, problems);
    check_others(given, problems);
    check_cap(given, problems);
    check_bands(given, problems);
}

/// Checks options that have no effect with the chosen architecture.
fn check_architecture(given: &Overrides, problems: &mut Vec<Problem>) {
    let chosen = given.architecture.as_ref().map_or(Amped, |given| given.value);
    let mut only = |architectures: &[Architecture], key: &str, origin: Option<&Origin>, why: &str| {
        if !architectures.contains(&chosen)
            && let Some(origin) = origin.filter(|origin| **origin != Origin::Default)
        {
            let why = format!("the architecture is `{}`: {why}", chosen.word());
            let help = "remove it, or choose another architecture";
            problems.push(problem(key, origin, SENSELESS, &why).helped(help));
        }
    };
    only(&[Mp], "processes", origin(&given.processes), "only `mp` has a process for each connection");
    only(&[Mt], "threads", origin(&given.threads), "only `mt` has threads");
    let why = "`processes` sets its number of worker processes";
    only(&[Amped, Sped, Mt], "workers", origin(&given.workers), why);
    let why = "only `amped` has helpers";
    only(&[Amped], "helpers", origin(&given.helpers), why);
    only(&[Amped], "helpers_max", origin(&given.helpers_max), why);
    only(&[Amped], "helper_idle", origin(&given.helper_idle), why);
    let why = "each of its processes has one connection at a time";
    only(&[Amped, Sped, Mt], "connections", origin(&given.connections), why);
    let why = "a connection that finds no free process or thread waits in the kernel's queue";
    only(&[Amped, Sped], "client_connections", origin(&given.client_connections), why);
    only(&[Amped, Sped], "client_exempt", origin(&given.client_exempt), why);
    only(&[Amped, Sped], "accept_wait", origin(&given.accept_wait), why);
    let why = "a process that waits for the disk itself cannot stop waiting";
    only(&[Amped, Mt], "job_deadline", origin(&given.job_deadline), why);
    let why = "only `amped` and `sped` have an event loop for many connections";
    only(&[Amped, Sped], "event_mechanism", origin(&given.event_mechanism), why);
    let why = "each of its connections has a process or thread of its own, and none of these sees the others";
    only(&[Amped, Sped], "egress", origin(&given.egress), why);
    let why = match chosen {
        Mt => "its threads share a lock, and must not wait for the disk while they hold it",
        _ => "it always does; only `amped` can choose",
    };
    only(&[Amped], "open_in_loop", origin(&given.open_in_loop), why);
    let why = match chosen {
        Mt => why,
        _ => "it never checks what is in memory; only `amped` can choose",
    };
    only(&[Amped], "residency_check", origin(&given.residency_check), why);
}

/// Checks options that depend on other options.
fn check_others(given: &Overrides, problems: &mut Vec<Problem>) {
    check_names(given, problems);
    if let (Some(kept), Some(memory @ Given { value: AutoSize::Bytes(0), .. })) =
        (&given.content_cache, &given.cache_memory)
        && kept.value
        && kept.origin != Origin::Default
    {
        let why = "--content-cache asks for the store, which needs memory";
        let help = "remove one of the two";
        problems.push(problem("cache_memory", &memory.origin, "cannot be 0 here", why).helped(help));
    }
    if let (Some(Given { value: false, .. }), Some(memory)) = (&given.content_cache, &given.cache_memory)
        && memory.origin != Origin::Default
        && memory.value != AutoSize::Bytes(0)
    {
        let why = "--no-content-cache turns the store off";
        problems.push(problem("cache_memory", &memory.origin, SENSELESS, why));
    }
    check_list(given, problems);
    if let (Some(check @ Given { value: false, .. }), Some(Given { value: SendBy::Mmap, .. })) =
        (&given.residency_check, &given.send)
    {
        let why = "--send mmap needs the check, by mincore(2); use --send read or --send sendfile";
        problems.push(problem("residency_check", &check.origin, SENSELESS, why));
    }
    if let (Some(Given { value: HelperKind::Threads, .. }), Some(idle)) = (&given.helpers, &given.helper_idle)
        && idle.origin != Origin::Default
    {
        let help = "remove it, or use --helpers processes";
        problems
            .push(problem("helper_idle", &idle.origin, SENSELESS, "helper threads never end").helped(help));
    }
}

/// Freshness has no effect without the name cache.
fn check_names(given: &Overrides, problems: &mut Vec<Problem>) {
    if given.name_cache.as_ref().is_none_or(|given| given.value) {
        return;
    }
    let why = "--no-name-cache turns the name cache off, so every request looks up its file";
    for (key, origin) in [("freshness", origin(&given.freshness)), ("stale", origin(&given.stale))] {
        if let Some(origin) = origin.filter(|origin| **origin != Origin::Default) {
            problems.push(problem(key, origin, SENSELESS, why));
        }
    }
}

/// Adds a problem if listings are bounded and no site has any.
pub(super) fn check_listings(given: &Overrides, sites: &[Site], problems: &mut Vec<Problem>) {
    let bounded = origin(&given.listing_entries).filter(|origin| **origin != Origin::Default);
    if let Some(origin) = bounded.filter(|_| !sites.iter().any(|site| site.browse)) {
        let why = "no site has listings";
        let help = "remove it, or turn listings on (--browse, or `browse` in the file)";
        problems.push(problem("listing_entries", origin, SENSELESS, why).helped(help));
    }
}

/// Checks that the list of hot files has a store and its own file.
fn check_list(given: &Overrides, problems: &mut Vec<Problem>) {
    let Some(Given { value: PathOrOff::At(path), origin }) = &given.cache_list else { return };
    let is_off = given.content_cache.as_ref().is_some_and(|given| !given.value);
    let is_zero = given.cache_memory.as_ref().is_some_and(|given| given.value == AutoSize::Bytes(0));
    if is_off || is_zero {
        let why = if is_off { "content_cache is false" } else { "cache_memory is 0" };
        let why = format!("there is no store whose files it could list, because {why}");
        problems.push(problem("cache_list", origin, SENSELESS, &why));
    }
    if given.log_file.as_ref().is_some_and(|log| log.value == *path) {
        let why = "log_file names the same file, and the list would overwrite the access log";
        problems.push(problem("cache_list", origin, "needs its own file", why));
    }
}

/// Returns a problem if select has no room for the given `connections`, or for any.
pub(super) fn check_room(
    settings: &Settings,
    mechanism: Option<&Origin>,
    connections: Option<&Origin>,
) -> Option<Problem> {
    if settings.event_mechanism != EventMechanism::Select {
        return None;
    }
    let fit = connections_that_fit(settings, SELECT_DESCRIPTORS_MAX);
    if fit == 0 {
        let why = format!(
            "select allows {SELECT_DESCRIPTORS_MAX} descriptors, and files, helpers and roots need all of them"
        );
        let help = "use --event-mechanism epoll, or fewer sites or helpers";
        return Some(problem("event_mechanism", mechanism?, "cannot be select", &why).helped(help));
    }
    let asked = connections.filter(|origin| **origin != Origin::Default)?;
    if settings.connections_max as u64 <= fit {
        return None;
    }
    let why = format!(
        "select allows {SELECT_DESCRIPTORS_MAX} descriptors, which leaves {fit} for connections: files, helpers and roots \
         need the others"
    );
    let help = "use --event-mechanism epoll, or fewer connections";
    Some(problem("connections", asked, "is too high", &why).helped(help))
}

/// Checks that the kernel can keep the cap.
fn check_cap(given: &Overrides, problems: &mut Vec<Problem>) {
    let Some(Given { value: cap @ 1.., origin }) = &given.cwnd_cap else { return };
    if *cap < InFlightCap::BYTES_MIN as u64 {
        let least = size_text(InFlightCap::BYTES_MIN as u64);
        let why = "the kernel's smallest send buffer would hold more";
        let help = format!("use at least {least}, or 0 for no cap");
        problems.push(problem("cwnd_cap", origin, "is too low", why).helped(help));
    }
    if given.send.as_ref().is_some_and(|send| send.value != SendBy::Read) {
        let why = "only `send = \"read\"` sends in pieces, without which the kernel does not keep the cap";
        problems.push(senseless("cwnd_cap", origin, why));
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
    Some(problem("egress", origin, "is too low", &why).helped(help))
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
            problems.push(senseless(key, origin, why).helped(help));
        }
    }
}

fn origin<T>(given: &Option<Given<T>>) -> Option<&Origin> {
    given.as_ref().map(|given| &given.origin)
}

/// The text for an option without effect.
const SENSELESS: &str = "cannot be used here";

/// A problem with an option that has no effect.
pub(super) fn senseless(key: &str, origin: &Origin, why: &str) -> Problem {
    problem(key, origin, SENSELESS, why)
}

/// A problem with an option, under the name that the user gave it.
pub(super) fn problem(key: &str, origin: &Origin, what: &str, why: &str) -> Problem {
    let title = |name: &str| format!("`{name}` {what}");
    match (origin, options::find(key)) {
        (Origin::File(span), _) => Problem::at(span.clone(), title(key), why),
        (Origin::Environment, Some(spec)) => Problem::plain(title(&spec.variable()), why),
        (Origin::Flag, Some(spec)) if spec.kind == Kind::Switch => {
            // A user never writes the default half of a switch.
            let no = if spec.default == DefaultValue::Text("true") { "no-" } else { "" };
            Problem::plain(title(&format!("--{no}{}", spec.flag())), why)
        }
        (_, Some(spec)) => Problem::plain(title(&format!("--{}", spec.flag())), why),
        _ => Problem::plain(title(key), why),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

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
