//! Options that make no sense together: refused with the reason, where somebody gave them.
//!
//! Called by `resolve` with what all sources said, defaults among it. May not look at anything else.

use flash_prompt::mechanism::SELECT_DESCRIPTORS_MAX;

use super::error::Problem;
use super::optimizations::SendBy;
use super::options::{self, DefaultValue, Given, Origin, Overrides};
use super::settings::{Architecture, EventMechanism, HelperKind, Settings};
use super::values::{Choice, Kind};
use crate::convert::connections_that_fit;

use Architecture::{Amped, Mp, Mt, Sped};

/// Adds a problem for each option that makes no sense with the others.
pub(super) fn check(given: &Overrides, problems: &mut Vec<Problem>) {
    check_architecture(given, problems);
    check_others(given, problems);
}

/// Options that do nothing with the architecture that was chosen.
fn check_architecture(given: &Overrides, problems: &mut Vec<Problem>) {
    let chosen = given.architecture.as_ref().map_or(Amped, |given| given.value);
    let mut only = |architectures: &[Architecture], key: &str, origin: Option<&Origin>, why: &str| {
        if !architectures.contains(&chosen)
            && let Some(origin) = origin.filter(|origin| **origin != Origin::Default)
        {
            let why = format!("the architecture is `{}`: {why}", word(chosen));
            let help = "leave it out, or choose another architecture";
            problems.push(problem(key, origin, SENSELESS, &why).helped(help));
        }
    };
    only(&[Mp], "processes", origin(&given.processes), "only `mp` has a process for each connection");
    only(&[Mt], "threads", origin(&given.threads), "only `mt` has threads");
    let why = "its worker processes are set by `processes`";
    only(&[Amped, Sped, Mt], "workers", origin(&given.workers), why);
    let why = "it has no helpers, only `amped` does";
    only(&[Amped], "helpers", origin(&given.helpers), why);
    only(&[Amped], "helpers_max", origin(&given.helpers_max), why);
    only(&[Amped], "helper_idle", origin(&given.helper_idle), why);
    let why = "it has no loop over many connections that could wait by it";
    only(&[Amped, Sped], "event_mechanism", origin(&given.event_mechanism), why);
    let why = match chosen {
        Mt => "its threads share a lock, and nobody may wait for a disk who has it",
        _ => "it does so in any case, only `amped` has the choice",
    };
    only(&[Amped], "open_in_loop", origin(&given.open_in_loop), why);
    let why = match chosen {
        Mt => why,
        _ => "it never asks what is in memory, only `amped` has the choice",
    };
    only(&[Amped], "residency_check", origin(&given.residency_check), why);
}

/// Options that rest on others.
fn check_others(given: &Overrides, problems: &mut Vec<Problem>) {
    if let (Some(Given { value: false, .. }), Some(memory)) = (&given.content_cache, &given.cache_memory) {
        let why = "the content cache is switched off (--no-content-cache), so it has no use for memory";
        problems.push(problem("cache_memory", &memory.origin, SENSELESS, why));
    }
    if let (Some(check @ Given { value: false, .. }), Some(Given { value: SendBy::Mmap, .. })) =
        (&given.residency_check, &given.send)
    {
        let why =
            "mappings are sent only after mincore(2) was asked; switch it off with --send read or sendfile";
        problems.push(problem("residency_check", &check.origin, SENSELESS, why));
    }
    if let (Some(Given { value: HelperKind::Threads, .. }), Some(idle)) = (&given.helpers, &given.helper_idle)
        && idle.origin != Origin::Default
    {
        let help = "leave it out, or take --helpers processes";
        problems
            .push(problem("helper_idle", &idle.origin, SENSELESS, "threads are never ended").helped(help));
    }
}

/// Gives a problem where select has no room for the connections that somebody asked for by `connections`, or
/// for none.
pub(super) fn check_room(
    settings: &Settings,
    mechanism: Option<&Origin>,
    connections: Option<&Origin>,
) -> Option<Problem> {
    if settings.event_mechanism != EventMechanism::Select {
        return None;
    }
    let fit = connections_that_fit(settings, SELECT_DESCRIPTORS_MAX);
    let taken = "files, helpers and roots need some of them";
    if fit == 0 {
        let why =
            format!("of its {SELECT_DESCRIPTORS_MAX} descriptors none are left for connections: {taken}");
        let help = "take --event-mechanism epoll, or fewer sites or helpers";
        return Some(problem("event_mechanism", mechanism?, "cannot be select", &why).helped(help));
    }
    let asked = connections.filter(|origin| **origin != Origin::Default)?;
    if settings.connections_max as u64 <= fit {
        return None;
    }
    let why = format!(
        "select has room for {fit}: it takes descriptors below {SELECT_DESCRIPTORS_MAX}, and {taken}"
    );
    let help = "take --event-mechanism epoll, or fewer connections";
    Some(problem("connections", asked, "is too many", &why).helped(help))
}

fn origin<T>(given: &Option<Given<T>>) -> Option<&Origin> {
    given.as_ref().map(|given| &given.origin)
}

/// The name of an architecture.
fn word(architecture: Architecture) -> &'static str {
    let words = Architecture::ALL.iter().zip(Architecture::WORDS);
    words.into_iter().find(|(other, _)| **other == architecture).map_or("", |(_, word)| word)
}

/// What is wrong with an option that does nothing.
const SENSELESS: &str = "makes no sense here";

/// A problem with an option, by the name that whoever gave it used.
fn problem(key: &str, origin: &Origin, what: &str, why: &str) -> Problem {
    let title = |name: &str| format!("`{name}` {what}");
    match (origin, options::find(key)) {
        (Origin::File(span), _) => Problem::at(span.clone(), title(key), why),
        (Origin::Environment, Some(spec)) => Problem::plain(title(&spec.variable()), why),
        (Origin::Flag, Some(spec)) if spec.kind == Kind::Switch => {
            // Nobody says what is so already.
            let no = if spec.default == DefaultValue::Text("true") { "no-" } else { "" };
            Problem::plain(title(&format!("--{no}{}", spec.flag())), why)
        }
        (_, Some(spec)) => Problem::plain(title(&format!("--{}", spec.flag())), why),
        _ => Problem::plain(title(key), why),
    }
}
