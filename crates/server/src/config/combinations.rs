//! Options that make no sense together: refused with the reason, where somebody gave them.
//!
//! Called by `resolve` with what all sources said, defaults among it. May not look at anything else.

use super::error::{ConfigErrorKind, Problem};
use super::options::{self, Given, Origin, Overrides};
use super::settings::Architecture;
use super::values::Choice;

use Architecture::{Amped, Mp, Mt, Sped};

/// Adds a problem for each option that does nothing with the architecture that was chosen.
pub(super) fn check(given: &Overrides, problems: &mut Vec<Problem>) {
    let chosen = given.architecture.as_ref().map_or(Amped, |given| given.value);
    let mut only = |architectures: &[Architecture], key: &str, origin: Option<&Origin>, why: &str| {
        if !architectures.contains(&chosen)
            && let Some(origin) = origin.filter(|origin| **origin != Origin::Default)
        {
            let why = format!("the architecture is `{}`: {why}", word(chosen));
            problems.push(problem(key, origin, &why));
        }
    };
    only(&[Mp], "processes", origin(&given.processes), "only `mp` has a process for each connection");
    only(&[Mt], "threads", origin(&given.threads), "only `mt` has threads");
    let why = "its worker processes are set by `processes`";
    only(&[Amped, Sped, Mt], "workers", origin(&given.workers), why);
    let why = "it has no helpers, only `amped` does";
    only(&[Amped], "helpers", origin(&given.helpers), why);
    only(&[Amped], "helper_idle", origin(&given.helper_idle), why);
}

fn origin<T>(given: &Option<Given<T>>) -> Option<&Origin> {
    given.as_ref().map(|given| &given.origin)
}

/// The name of an architecture.
fn word(architecture: Architecture) -> &'static str {
    let words = Architecture::ALL.iter().zip(Architecture::WORDS);
    words.into_iter().find(|(other, _)| **other == architecture).map_or("", |(_, word)| word)
}

/// An option that makes no sense, by the name that whoever gave it used.
fn problem(key: &str, origin: &Origin, why: &str) -> Problem {
    let spec = options::find(key);
    let title = |name: &str| format!("`{name}` makes no sense here");
    let problem = match (origin, spec) {
        (Origin::File(span), _) => Problem::at(span.clone(), title(key), why),
        (Origin::Environment, Some(spec)) => Problem::plain(title(&spec.variable()), why),
        (_, Some(spec)) => Problem::plain(title(&format!("--{}", spec.flag())), why),
        _ => Problem::plain(title(key), why),
    };
    problem.of(ConfigErrorKind::Value).helped("leave it out, or choose another architecture")
}
