//! Options that make no sense together, refused with the reason. Only what somebody gave counts: a default
//! that has no meaning beside another option is passed over.
//!
//! Called by `config::resolve`. May not touch the system.

use flash_sys::prompt::mechanism::SELECT_DESCRIPTORS_MAX;

use super::error::Problem;
use super::options::{self, Given, Origin, Overrides};
use super::settings::{Architecture, EventMechanism, HelperKind};
use crate::convert::connections_that_fit;

/// Finds what makes no sense in `given`, which has the defaults, too, for a server of so many sites by name.
pub(super) fn check(given: &Overrides, named_sites: usize, problems: &mut Vec<Problem>) {
    let architecture = given.architecture.as_ref().map_or(Architecture::Amped, |given| given.value);
    if matches!(architecture, Architecture::Mp | Architecture::Mt) {
        problems.extend(without_meaning(
            "event_mechanism",
            given.event_mechanism.as_ref(),
            "mp and mt have no loop over many connections that could wait by it",
            "leave it out, or change --architecture",
        ));
    }
    if architecture != Architecture::Amped {
        let help = "leave it out, or change --architecture";
        problems.extend(without_meaning("helpers", given.helpers.as_ref(), "only amped has helpers", help));
    }
    if given.helpers.as_ref().is_some_and(|given| given.value == HelperKind::Threads) {
        let help = "leave it out, or take --helpers processes";
        let why = "threads are never ended";
        problems.extend(without_meaning("helper_idle", given.helper_idle.as_ref(), why, help));
    }
    problems.extend(beyond_select(given, named_sites));
}

/// A problem if somebody gave this option.
fn without_meaning<T>(key: &str, given: Option<&Given<T>>, why: &str, help: &str) -> Option<Problem> {
    let given = given.filter(|given| given.origin != Origin::Default)?;
    Some(problem(key, given, "has no meaning here", why).helped(help))
}

/// Connections that select has no room for.
fn beyond_select(given: &Overrides, named_sites: usize) -> Option<Problem> {
    let mechanism = given.event_mechanism.as_ref().filter(|given| given.value == EventMechanism::Select)?;
    let helpers = given.helpers.as_ref().map_or(HelperKind::Processes, |given| given.value);
    let helpers_max = given.helpers_max.as_ref().map_or(0, |given| given.value);
    let fit = connections_that_fit(SELECT_DESCRIPTORS_MAX, helpers, helpers_max, named_sites as u64 + 1);
    let taken = "files, helpers and roots need some of them";
    if fit == 0 {
        let why =
            format!("of its {SELECT_DESCRIPTORS_MAX} descriptors none are left for connections: {taken}");
        let help = "take --event-mechanism epoll, or fewer sites or helpers";
        return Some(problem("event_mechanism", mechanism, "cannot be select", &why).helped(help));
    }
    let connections = given.connections.as_ref().filter(|given| given.origin != Origin::Default)?;
    if connections.value <= fit {
        return None;
    }
    let why = format!(
        "select has room for {fit}: it takes descriptors below {SELECT_DESCRIPTORS_MAX}, and {taken}"
    );
    let help = "take --event-mechanism epoll, or fewer connections";
    Some(problem("connections", connections, "is too many", &why).helped(help))
}

/// A problem with an option that somebody gave, named as they gave it.
fn problem<T>(key: &str, given: &Given<T>, what: &str, why: &str) -> Problem {
    let name = match (&given.origin, options::find(key)) {
        (Origin::Flag, Some(spec)) => format!("--{}", spec.flag()),
        (Origin::Environment, Some(spec)) => spec.variable(),
        _ => format!("`{key}`"),
    };
    let title = format!("{name} {what}");
    match &given.origin {
        Origin::File(span) => Problem::at(span.clone(), title, why),
        _ => Problem::plain(title, why),
    }
}
