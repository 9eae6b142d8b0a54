//! The rules that no request reaches, because other rules have their paths.
//!
//! Called by `config::warnings`. Pure.

use std::collections::HashMap;

use flash_engine::{PathPattern, PatternIndex};

use super::rule_options::Rule;

/// A rule that no request reaches.
pub(super) struct Unreached<'r> {
    /// The word for its effect.
    pub(super) verb: &'static str,
    pub(super) rule: &'r Rule,
    /// The rule that has all of its paths: an earlier one of its kind, or one that redirects.
    pub(super) other: &'r Rule,
}

impl Unreached<'_> {
    pub(super) fn why(&self) -> String {
        let path = &self.other.path;
        if self.other.redirect.is_some() && self.rule.redirect.is_none() {
            format!("the rule for {path} redirects its paths")
        } else {
            format!("an earlier rule, for {path}, has its paths")
        }
    }
}

/// The first rule of each kind that no request reaches.
pub(super) fn unreached(rules: &[Rule]) -> impl Iterator<Item = Unreached<'_>> {
    type IsOne = fn(&Rule) -> bool;
    let kinds: [(&str, IsOne); 7] = [
        ("asks for the users of", |rule| rule.users.is_some()),
        ("asks the server of `auth` about", |rule| rule.auth.is_some()),
        ("redirects", |rule| rule.redirect.is_some()),
        ("rewrites", |rule| rule.rewrite.is_some()),
        ("tries its extensions for", |rule| !rule.try_extensions.is_empty()),
        ("uses its fallback for", |rule| rule.fallback.is_some()),
        ("uses its alias for", |rule| rule.alias.is_some()),
    ];
    // Redirects come first. A rewritten path is not redirected, and can have a fallback or an alias.
    let rewrites = rules.iter().any(|rule| rule.rewrite.is_some());
    let redirects = || rules.iter().filter(|rule| rule.redirect.is_some() && has_plain_paths(rule));
    let of_paths: HashMap<&str, &Rule> = redirects().map(|rule| (&*rule.path, rule)).collect();
    let mut of_patterns = Patterns::default();
    redirects().filter(|rule| rule.path.contains('*')).for_each(|rule| of_patterns.push(rule));
    let redirecting = move |rule: &Rule| {
        of_paths.get(&*rule.path).copied().or_else(|| of_patterns.first_with_all_of(&rule.path))
    };
    kinds.into_iter().filter_map(move |(verb, is_one)| {
        let of_kind = || rules.iter().filter(|rule| is_one(rule));
        // Users and servers are asked before a redirect.
        let can_be_redirected = |rule: &&Rule| {
            let is_first = rule.redirect.is_some() || rule.users.is_some() || rule.auth.is_some();
            !is_first && (rule.rewrite.is_some() || !rewrites)
        };
        let redirected =
            || of_kind().filter(can_be_redirected).find_map(|rule| Some((rule, redirecting(rule)?)));
        let (rule, other) = unreached_of(of_kind()).or_else(redirected)?;
        Some(Unreached { verb, rule, other })
    })
}

#[derive(Default)]
struct Patterns<'r> {
    rules: Vec<(PathPattern, &'r Rule)>,
    index: PatternIndex,
}

impl<'r> Patterns<'r> {
    fn push(&mut self, rule: &'r Rule) {
        let pattern = PathPattern::new(&rule.path);
        self.index.push(self.rules.len(), &pattern);
        self.rules.push((pattern, rule));
    }

    /// The first rule that has all paths of a form.
    fn first_with_all_of(&self, path: &str) -> Option<&'r Rule> {
        let typical = PathPattern::new(path).typical();
        let has_all = |number: usize| self.rules[number].0.parts(&typical).map(drop);
        self.index.first(&typical, self.rules.len(), has_all).map(|(number, ())| self.rules[number].1)
    }
}

/// Whether a rule is for all paths of its form.
fn has_plain_paths(rule: &Rule) -> bool {
    rule.except.is_empty() && !rule.hashed
}

/// The first of the rules whose paths an earlier one has, and that one.
fn unreached_of<'r>(rules: impl Iterator<Item = &'r Rule>) -> Option<(&'r Rule, &'r Rule)> {
    let (mut of_paths, mut of_patterns) = (HashMap::new(), Patterns::default());
    for rule in rules {
        let of_pattern = of_patterns.first_with_all_of(&rule.path);
        if let Some(earlier) = of_paths.get(&rule.path).copied().or(of_pattern) {
            return Some((rule, earlier));
        }
        if !has_plain_paths(rule) {
            continue;
        }
        of_paths.insert(&rule.path, rule);
        if rule.path.contains('*') {
            of_patterns.push(rule);
        }
    }
    None
}
