//! Reads `[[site.rule]]` and `[[rule]]`.

use super::super::rule_options::{HeadField, RuleOverrides};
use super::super::table::{self, Given};
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
    "try_extensions",
    "fallback",
    "alias",
    "error_page",
];
/// `Cache-Control` of files whose names hold a hash of their contents (RFC 8246), if their rule says nothing else.
const FOREVER: &str = "public, max-age=31536000, immutable";
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
            if EFFECTS.iter().any(|key| table.contains_key(*key)) {
                // It says itself what it does.
            } else if let Some(Given { value: true, origin }) = &given.hashed {
                let value = vec![HeadField { name: "Cache-Control".to_owned(), value: FOREVER.to_owned() }];
                given.set = Some(Given { value, origin: origin.clone() });
            } else {
                let help = "add a line such as `set = { \"Cache-Control\" = \"no-cache\" }`";
                self.refuse(&span, "incomplete rule", "it does nothing", help);
            }
            rules.push(RuleDraft { given, span });
        }
        rules
    }
}
