//! Reads `[[site.rule]]` and `[[rule]]`.

use super::super::error::{ConfigErrorKind, Problem};
use super::super::rule_options::RuleOverrides;
use super::super::table;
use super::{Reader, RuleDraft, Value, unknown};

/// The keys of which each rule has one.
const EFFECTS: &[&str] = &[
    "allow",
    "deny",
    "users",
    "auth",
    "rate",
    "total_rate",
    "concurrency",
    "total_concurrency",
    "bandwidth",
    "total_bandwidth",
    "set",
    "add",
    "remove",
    "cors",
    "redirect",
    "rewrite",
    "fallback",
    "alias",
    "error_page",
];
/// Maximum rules of a site.
const RULES_MAX: usize = 100_000;

impl Reader {
    pub(super) fn rules(&mut self, value: &Value<'_>) -> Vec<RuleDraft> {
        let tables = self.tables("rule", value, RULES_MAX);
        let mut rules = Vec::with_capacity(tables.len());
        for (span, table) in tables {
            let mut given = RuleOverrides::default();
            for (key, value) in table {
                match table::find::<RuleOverrides>(key.get_ref()) {
                    Some(spec) => self.option(&mut given, spec, value),
                    None => self.problems.push(unknown::of_rule(key)),
                }
            }
            if EFFECTS.iter().all(|key| !table.contains_key(*key)) {
                let why = "it does nothing";
                let problem = Problem::at(span.clone(), "incomplete rule", why);
                let problem =
                    problem.helped("add a line such as `set = { \"Cache-Control\" = \"no-cache\" }`");
                self.problems.push(problem.of(ConfigErrorKind::Key));
            }
            rules.push(RuleDraft { given, span });
        }
        rules
    }
}
