//! Refuses options that have no effect or contradict each other, with the reason and where they were given.
//!
//! Called by `resolve` with the merged options of all sources, including the defaults. It must not look at anything else.

use std::path::Path;

use flash_prompt::mechanism::{MechanismKind, SELECT_DESCRIPTORS_MAX};
use flash_prompt::net::InFlightCap;
use flash_units::{rate_text, size_text};
use flash_worker::{HelperKind, SendBy};

use super::architecture::{self, connections_that_fit};
use super::choices::{Choice, HttpsRedirect, SchedulePolicy};
use super::error::{ConfigErrorKind, Problem};
use super::kind::Kind;
use super::listen::https_port;
use super::options::{self, OPTIONS, Overrides, Settings, Site};
use super::rule_options::Rule;
use super::table::{DefaultValue, Given, Origin};
use super::values::{Auto, OFF, PathOrWord};

/// Adds a problem for each option that cannot be used with the others.
pub(super) fn check(given: &Overrides, problems: &mut Vec<Problem>) {
    let chosen = given.architecture.as_ref().map(|given| given.value).unwrap_or_default();
    for spec in OPTIONS {
        if let Some(why) = architecture::refuses(chosen, spec.key) {
            let why = format!("the architecture is `{}`: {why}", chosen.word());
            let problem = no_effect(given, spec.key, &why);
            problems.extend(problem.map(|it| it.helped("remove it, or choose another architecture")));
        }
    }
    let is_off = |switch: &Option<Given<bool>>| switch.as_ref().is_some_and(|given| !given.value);
    if is_off(&given.name_cache) {
        let why = "--no-name-cache turns the name cache off, so every request looks up its file";
        problems.extend(["freshness", "stale"].iter().filter_map(|key| no_effect(given, key, why)));
    }
    check_store(given, problems);
    check_list(given, problems);
    if is_off(&given.residency_check) && given.send.as_ref().is_some_and(|send| send.value == SendBy::Mmap) {
        let why = "--send mmap needs the check, by mincore(2); use --send read or --send sendfile";
        problems.extend(no_effect(given, "residency_check", why));
    }
    if given.helpers.as_ref().is_some_and(|given| given.value == HelperKind::Threads) {
        let problem = no_effect(given, "helper_idle", "helper threads never end");
        problems.extend(problem.map(|it| it.helped("remove it, or use --helpers processes")));
    }
    if is_off(&given.server_field) && given.align_heads.as_ref().is_some_and(|given| given.value) {
        problems.extend(no_effect(given, "align_heads", "the field Server is off, and has the padding"));
    }
    check_cap(given, problems);
    check_connection_rate(given, problems);
    if given.trusted_proxies.as_ref().is_none_or(|given| given.value.is_empty()) {
        let problem = no_effect(given, "proxy_field", "no proxy is trusted");
        problems.extend(problem.map(|it| it.helped("name the proxies in `trusted_proxies`, or remove it")));
    }
    if given.schedule.as_ref().is_none_or(|given| given.value != SchedulePolicy::Srpt) {
        let why = "the schedule is `fair`: only `srpt` puts responses into bands";
        let found = ["srpt_cutoffs", "srpt_dscp"].iter().filter_map(|key| no_effect(given, key, why));
        problems.extend(found.map(|problem| problem.helped("remove it, or use --schedule srpt")));
    }
}

/// The size of the store and the switch of the store must agree.
fn check_store(given: &Overrides, problems: &mut Vec<Problem>) {
    let (Some(kept), Some(memory)) = (&given.content_cache, &given.cache_memory) else { return };
    let is_zero = memory.value == Auto::Given(0);
    if kept.value && kept.origin != Origin::Default && is_zero {
        let why = "--content-cache asks for the store, which needs memory";
        let help = "remove one of the two";
        problems.push(problem("cache_memory", &memory.origin, "cannot be 0 here", why).helped(help));
    }
    if !kept.value && !is_zero {
        problems.extend(no_effect(given, "cache_memory", "--no-content-cache turns the store off"));
    }
}

/// Adds a problem if more processes would count requests than can.
pub(super) fn check_counts(given: &Overrides, sites: &[Site], problems: &mut Vec<Problem>) {
    let counts = sites.iter().flat_map(|site| &site.rules).any(Rule::needs_counts);
    if let Some(processes) = given.processes.as_ref().filter(|given| counts && given.value > COUNTING_MAX) {
        let why = format!(
            "at most {COUNTING_MAX} count requests together, for `concurrency` and `total_concurrency`"
        );
        problems.push(problem("processes", &processes.origin, "is too high", &why));
    }
}

/// Adds a problem if listings are bounded and no site has any.
pub(super) fn check_listings(given: &Overrides, sites: &[Site], problems: &mut Vec<Problem>) {
    if !sites.iter().any(|site| site.browse) {
        let problem = no_effect(given, "listing_entries", "no site has listings");
        let help = "remove it, or turn listings on (--browse, or `browse` in the file)";
        problems.extend(problem.map(|problem| problem.helped(help)));
    }
}

/// Checks that HTTPS, which the server or a site asks clients to use, has an address.
pub(super) fn check_https(given: &Overrides, of_sites: &[&Overrides], problems: &mut Vec<Problem>) {
    let listen = given.listen_tls.as_ref().map_or(&[][..], |given| &given.value);
    let port = https_port(listen);
    for given in [given].into_iter().chain(of_sites.iter().copied()) {
        let hsts = given.hsts.as_ref().filter(|given| given.value != OFF).map(|given| &given.origin);
        let redirect = given.https_redirect.as_ref().filter(|given| given.value != HttpsRedirect::Off);
        let redirect = redirect.map(|given| &given.origin);
        if port.is_none() {
            let why = "there is no HTTPS: listen_tls has no address";
            problems.extend(hsts.map(|origin| senseless("hsts", origin, why)));
            problems.extend(redirect.map(|origin| senseless("https_redirect", origin, why)));
        } else if port == Some(0) {
            let why =
                "the first address of listen_tls takes any free port, and a redirect must name the port";
            problems.extend(redirect.map(|origin| senseless("https_redirect", origin, why)));
        }
    }
}

/// Why there is no store; None if there is one.
fn why_no_store(given: &Overrides) -> Option<&'static str> {
    let is_off = given.content_cache.as_ref().is_some_and(|given| !given.value);
    let is_zero = given.cache_memory.as_ref().is_some_and(|given| given.value == Auto::Given(0));
    let is_zero = is_zero.then_some("cache_memory is 0");
    if is_off { Some("content_cache is false") } else { is_zero }
}

/// Checks that texts which are to be compressed have a store for the results.
pub(super) fn check_compression(given: &Overrides, of_sites: &[&Overrides], problems: &mut Vec<Problem>) {
    let Some(why) = why_no_store(given) else { return };
    for given in [given].into_iter().chain(of_sites.iter().copied()) {
        if let Some(compress) = given.compress.as_ref().filter(|compress| compress.value) {
            let why = format!("there is no store for compressed texts, because {why}");
            problems.push(problem("compress", &compress.origin, SENSELESS, &why));
        }
    }
}

/// Checks that the list of hot files has a store and its own file.
fn check_list(given: &Overrides, problems: &mut Vec<Problem>) {
    let Some(Given { value: PathOrWord::At(path), origin }) = &given.cache_list else { return };
    if let Some(why) = why_no_store(given) {
        let why = format!("there is no store whose files it could list, because {why}");
        problems.push(problem("cache_list", origin, SENSELESS, &why));
    }
    if given.log_file.as_ref().is_some_and(|log| log.value == PathOrWord::At(path.clone())) {
        let why = "log_file names the same file, and the list would overwrite the access log";
        problems.push(problem("cache_list", origin, "needs its own file", why));
    }
}

/// Checks that a client can read fast enough at the rate of a connection.
fn check_connection_rate(given: &Overrides, problems: &mut Vec<Problem>) {
    let Some(Given { value: rate @ 1.., origin }) = &given.connection_rate else { return };
    let least = given.least_rate.as_ref().map_or(0, |least| least.value);
    let bounds = [
        (CONNECTION_BITS_PER_S_MIN, "a head of 16 KiB would take more than two seconds"),
        (least.saturating_mul(16), "it must be twice `least_rate`, for clients that lose packets"),
    ];
    let bound = bounds.into_iter().filter(|(bits_per_s_min, _)| rate < bits_per_s_min).max();
    if let Some((bits_per_s_min, why)) = bound {
        let help = format!("use at least {}, or 0 for no bound", rate_text(bits_per_s_min));
        problems.push(problem("connection_rate", origin, "is too low", why).helped(help));
    }
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

/// The lowest rate of a connection: a head of 16 KiB takes two seconds.
const CONNECTION_BITS_PER_S_MIN: u64 = 64_000;
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

/// Returns a problem if select has no room for the given `connections`, or for any.
pub(super) fn check_room(
    settings: &Settings,
    mechanism: Option<&Origin>,
    connections: Option<&Origin>,
) -> Option<Problem> {
    if settings.event_mechanism != MechanismKind::Select {
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

/// The most processes that count requests together: as many have places in the file of the counts.
const COUNTING_MAX: u64 = 256;

const SENSELESS: &str = "cannot be used here";

/// A problem with an option that has no effect, if it was given.
pub(super) fn no_effect(given: &Overrides, key: &str, why: &str) -> Option<Problem> {
    options::find(key)?.given_by(given).map(|origin| senseless(key, origin, why))
}

/// A problem with an option that has no effect.
pub(super) fn senseless(key: &str, origin: &Origin, why: &str) -> Problem {
    problem(key, origin, SENSELESS, why)
}

/// A path of an option cannot be used: the operation, the path, the source and the reason.
pub(super) fn path_problem(action: &str, key: &str, (path, origin): (&Path, &Origin), why: &str) -> Problem {
    let source = match (origin, options::find(key)) {
        (Origin::Environment, Some(spec)) => format!(" (from {})", spec.variable()),
        (Origin::Flag, Some(spec)) if !spec.is_operand() => format!(" (from --{})", spec.flag()),
        _ => String::new(),
    };
    let title = format!("cannot {action} `{}`{source}", path.display());
    Problem::given(origin, title, why).of(ConfigErrorKind::Path)
}

/// A problem with an option, under the name that the user gave it.
pub(super) fn problem(key: &str, origin: &Origin, what: &str, why: &str) -> Problem {
    let name = match (origin, options::find(key)) {
        (Origin::Environment, Some(spec)) => spec.variable(),
        (Origin::Flag, Some(spec)) if spec.kind == Kind::Switch => {
            // A user never writes the default half of a switch.
            let no = if spec.default == DefaultValue::Text("true") { "no-" } else { "" };
            format!("--{no}{}", spec.flag())
        }
        (Origin::Flag | Origin::Default, Some(spec)) => format!("--{}", spec.flag()),
        _ => key.to_owned(),
    };
    Problem::given(origin, format!("`{name}` {what}"), why)
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
        assert_eq!(refused(&[("proxy_field", "forwarded")]), 1);
        assert_eq!(refused(&[("proxy_field", "forwarded"), ("trusted_proxies", "loopback")]), 0);
        assert_eq!(refused(&[("cwnd_cap", "12KiB")]), 0);
        assert_eq!(refused(&[("cwnd_cap", "12287")]), 1);
        assert_eq!(refused(&[("cwnd_cap", "64KiB"), ("send", "sendfile")]), 1);
        assert_eq!(refused(&[("connection_rate", "64kbit")]), 0);
        assert_eq!(refused(&[("connection_rate", "63kbit")]), 1);
        assert_eq!(refused(&[("connection_rate", "0"), ("least_rate", "1GiB")]), 0);
        assert_eq!(refused(&[("connection_rate", "159kbit"), ("least_rate", "10kB")]), 1);
        assert_eq!(refused(&[("connection_rate", "160kbit"), ("least_rate", "10kB")]), 0);
    }

    /// How many problems a check of settings of the server and of a site finds.
    fn problems_of(
        check: fn(&Overrides, &[&Overrides], &mut Vec<Problem>),
        given: [&[(&str, &str)]; 2],
    ) -> usize {
        let [given, of_site] = given.map(|given| {
            let mut overrides = Overrides::default();
            for (key, text) in given {
                let option = options::find(key).expect("an option");
                option.set(&mut overrides, &[OsStr::new(text)], Origin::Flag).expect("a value");
            }
            overrides
        });
        let mut problems = Vec::new();
        check(&given.or(Overrides::defaults()), &[&of_site], &mut problems);
        problems.len()
    }

    #[test]
    fn compression_needs_a_store() {
        let refused = |given: &[(&str, &str)], of_site: &[(&str, &str)]| {
            problems_of(check_compression, [given, of_site])
        };
        let (compress, none, off) = (("compress", "true"), ("cache_memory", "0"), ("content_cache", "false"));
        assert_eq!(refused(&[compress], &[compress]), 0);
        assert_eq!(refused(&[none], &[("compress", "false")]), 0);
        assert_eq!(refused(&[compress, none], &[compress]), 2);
        assert_eq!(refused(&[off], &[compress]), 1);
    }

    #[test]
    fn https_needs_an_address_and_a_redirect_its_port() {
        let refused =
            |given: &[(&str, &str)], of_site: &[(&str, &str)]| problems_of(check_https, [given, of_site]);
        let (hsts, redirect) = (("hsts", "max-age=1"), ("https_redirect", "308"));
        assert_eq!(refused(&[], &[]), 0);
        assert_eq!(refused(&[("hsts", "off"), ("https_redirect", "off")], &[]), 0);
        assert_eq!(refused(&[hsts, redirect], &[]), 2);
        assert_eq!(refused(&[], &[hsts, redirect]), 2);
        assert_eq!(refused(&[hsts, redirect, ("listen_tls", "127.0.0.1:443")], &[redirect]), 0);
        assert_eq!(refused(&[hsts, redirect, ("listen_tls", "127.0.0.1:0")], &[redirect]), 2);
    }

    #[test]
    fn each_worker_needs_a_share_of_the_uplink() {
        let refused =
            |value, workers| check_egress(Some(&Given { value, origin: Origin::Flag }), workers).is_some();
        assert!(!refused(64_000, 1) && refused(63_999, 1) && refused(64_000, 2) && !refused(128_000, 2));
        assert!(!refused(0, 8) && check_egress(None, 8).is_none());
    }
}
