//! The rules of a site for paths, with indexes of those that can apply: which of them admit a client, redirect or rewrite a request, name a file or
//! change an answer. The [handlers](crate::handler) and [`head_changes`](crate::head_changes) apply them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use flash_http::target::{BadPath, EncodedSlash, decode_path};

use crate::bandwidth::Bandwidth;
use crate::bounds::Concurrency;
use crate::path_pattern::PatternIndex;
use crate::path_rule::{AuthRule, PathRule, Redirect, Rewritten};
use crate::rates::Rates;
use crate::slab::SiteId;
use crate::users::Users;

/// A path with an extension that a rule names.
pub(crate) struct Extended {
    /// The place of the extension in the rule.
    pub(crate) number: u8,
    pub(crate) path: Vec<u8>,
}

/// The rules of which the first that fits a path applies.
#[derive(Clone, Debug, Default)]
struct FirstOf {
    /// The first rule of each single path.
    of_one: HashMap<Vec<u8>, usize>,
    /// The rules with patterns.
    of_many: PatternIndex,
}

impl FirstOf {
    fn is_empty(&self) -> bool {
        self.of_one.is_empty() && self.of_many.is_empty()
    }

    fn push(&mut self, number: usize, rule: &PathRule) {
        match rule.paths.exact() {
            Some(path) if rule.except.is_empty() && !rule.hashed => {
                self.of_one.entry(path.to_vec()).or_insert(number);
            }
            _ => self.of_many.push(number, &rule.paths),
        }
    }

    /// The first of the rules that fits a path, and the [parts](crate::PathPattern::parts) of the path.
    fn find<'p>(&self, rules: &[PathRule], path: &'p [u8]) -> Option<(usize, Vec<&'p [u8]>)> {
        let of_one = self.of_one.get(path).copied();
        let before = of_one.unwrap_or(usize::MAX);
        let of_many = self.of_many.first(path, before, |number| rules[number].parts(path));
        of_many.or_else(|| Some((of_one?, Vec::new())))
    }
}

/// The rules of a site, in their order, with indexes of those that can apply.
#[derive(Clone, Debug, Default)]
pub struct PathRules {
    rules: Vec<PathRule>,
    redirecting: FirstOf,
    rewriting: FirstOf,
    extending: FirstOf,
    falling_back: FirstOf,
    placing: FirstOf,
    asking: FirstOf,
    authorizing: FirstOf,
    /// The rules that change fields or the pages of errors.
    changing: Vec<usize>,
    /// The rules that do not admit every client.
    guarding: Vec<usize>,
    /// The rules that do not admit every number of requests.
    limiting: Vec<usize>,
    /// The rules that do not admit every number at once.
    bounding: Vec<usize>,
    /// The rules that do not let answers be sent at every rate.
    slowing: Vec<usize>,
}

impl PathRules {
    /// Rules in this order.
    #[must_use]
    pub fn new(rules: Vec<PathRule>) -> Self {
        let mut all = Self::default();
        for (number, rule) in rules.iter().enumerate() {
            let of_first = [
                (rule.users.is_some(), &mut all.asking),
                (rule.auth.is_some(), &mut all.authorizing),
                (rule.redirect.is_some(), &mut all.redirecting),
                (rule.rewrite.is_some(), &mut all.rewriting),
                (!rule.extensions.is_empty(), &mut all.extending),
                (rule.fallback.is_some(), &mut all.falling_back),
                (rule.alias.is_some(), &mut all.placing),
            ];
            of_first.into_iter().filter(|(is_one, _)| *is_one).for_each(|(_, all)| all.push(number, rule));
            if !rule.fields.is_empty() || rule.error_page.is_some() {
                all.changing.push(number);
            }
            if !rule.access.is_open() {
                all.guarding.push(number);
            }
            if rule.rates.are_there() {
                all.limiting.push(number);
            }
            if rule.concurrency.are_there() {
                all.bounding.push(number);
            }
            if rule.bandwidth.are_there() {
                all.slowing.push(number);
            }
        }
        Self { rules, ..all }
    }

    /// The rules themselves.
    #[must_use]
    pub fn rules(&self) -> &[PathRule] {
        &self.rules
    }

    /// The redirect of the first rule that has one for this path, and the [parts](crate::PathPattern::parts) of the path.
    #[must_use]
    pub fn redirect<'p>(&self, path: &'p [u8]) -> Option<(&Redirect, Vec<&'p [u8]>)> {
        let (number, parts) = self.redirecting.find(&self.rules, path)?;
        Some((self.rules[number].redirect.as_ref()?, parts))
    }

    /// The path and the query in place of a decoded path, by the first rule that has some for it. An error if they lead out of the root.
    #[must_use]
    pub fn rewrite(&self, path: &[u8]) -> Option<Result<Rewritten, BadPath>> {
        let (number, parts) = self.rewriting.find(&self.rules, path)?;
        let target = self.rules[number].rewrite.as_ref()?.of(&parts);
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (&target[..], None),
        };
        let path = decode_path(path.as_bytes(), EncodedSlash::Decode).map(Cow::into_owned);
        Some(path.map(|path| Rewritten { path, query }))
    }

    /// This path with an extension, by the first rule that has some for it: that of this number or the next one that is right, and that has no
    /// other conditions and bounds than the path. None of a directory.
    pub(crate) fn extended(
        &self,
        path: &[u8],
        number: u8,
        is_right: impl Fn(&[u8]) -> bool,
    ) -> Option<Extended> {
        if self.extending.is_empty() || path.ends_with(b"/") {
            return None;
        }
        let (rule, _) = self.extending.find(&self.rules, path)?;
        let all = (0..).zip(&self.rules[rule].extensions).skip(number.into());
        all.map(|(number, extension)| Extended { number, path: [path, b".", extension.as_bytes()].concat() })
            .find(|Extended { path: extended, .. }| {
                let is_bounded_anew = self.rates(extended, Some(path)).next().is_some()
                    || self.bounds(extended, Some(path)).next().is_some()
                    || self.bandwidths(extended, Some(path)).next().is_some();
                !is_bounded_anew && self.admit_all_of(extended, path) && is_right(extended)
            })
    }

    /// The path of the file that answers if this one is missing, by the first rule that has one for it.
    #[must_use]
    pub fn fallback(&self, path: &[u8]) -> Option<&[u8]> {
        let (number, _) = self.falling_back.find(&self.rules, path)?;
        self.rules[number].fallback.as_deref().filter(|fallback| *fallback != path)
    }

    /// The alias that has the file of a path, by the first rule with an alias, and the length of the path's beginning that the alias
    /// leaves out. The rest begins with a slash.
    #[inline]
    pub(crate) fn alias(&self, path: &[u8]) -> Option<(SiteId, usize)> {
        if self.placing.is_empty() {
            return None;
        }
        let (number, parts) = self.placing.find(&self.rules, path)?;
        let rest = parts.first()?;
        Some((self.rules[number].alias?, path.len() - rest.len() - 1))
    }

    /// Whether a path is that of an alias without its last slash.
    pub(crate) fn is_alias(&self, path: &[u8]) -> bool {
        !self.placing.is_empty()
            && self.alias(&[path, b"/"].concat()).is_some_and(|(_, prefix_bytes)| prefix_bytes == path.len())
    }

    /// The numbers of the rules that admit some clients to a path.
    #[inline]
    pub(crate) fn guards(&self, path: &[u8]) -> impl Iterator<Item = usize> {
        self.guarding.iter().copied().filter(|number| self.rules[*number].parts(path).is_some())
    }

    /// Whether a rule admits a client.
    #[inline]
    pub(crate) fn admits(&self, number: usize, client: IpAddr) -> bool {
        self.rules[number].access.admits(client)
    }

    /// Whether a rule admits only users.
    pub(crate) fn ask_for_passwords(&self) -> bool {
        !self.asking.is_empty()
    }

    /// The users who are admitted to a path, by the first rule that has some for it; None for everybody. None also if they are those
    /// of the path in place of which it came, since their password is known already.
    #[inline]
    pub(crate) fn users(&self, path: &[u8], former: Option<&[u8]>) -> Option<&Arc<Users>> {
        if self.asking.is_empty() {
            return None;
        }
        let of = |path| Some(self.asking.find(&self.rules, path)?.0);
        let rule = of(path).filter(|rule| former.and_then(of) != Some(*rule))?;
        self.rules[rule].users.as_ref()
    }

    /// The `auth` of the first rule with one that fits a path. None if that rule fits the path before the rewrite too, because then its
    /// server is asked already.
    #[inline]
    pub(crate) fn auth(&self, path: &[u8], former: Option<&[u8]>) -> Option<&AuthRule> {
        if self.authorizing.is_empty() {
            return None;
        }
        let of = |path| Some(self.authorizing.find(&self.rules, path)?.0);
        let rule = of(path).filter(|rule| former.and_then(of) != Some(*rule))?;
        self.rules[rule].auth.as_ref()
    }

    /// The rules that limit requests for a path, with their numbers. Not those that limit requests for the path in place of which it
    /// came, since they have counted already.
    #[inline]
    pub(crate) fn rates(&self, path: &[u8], former: Option<&[u8]>) -> impl Iterator<Item = (usize, Rates)> {
        self.anew(&self.limiting, path, former).map(|(number, rule)| (number, rule.rates))
    }

    /// The rules that limit how many requests for a path are answered at once, as [`PathRules::rates`].
    #[inline]
    pub(crate) fn bounds(
        &self,
        path: &[u8],
        former: Option<&[u8]>,
    ) -> impl Iterator<Item = (usize, Concurrency)> {
        self.anew(&self.bounding, path, former).map(|(number, rule)| (number, rule.concurrency))
    }

    /// The rules that limit how fast answers for a path are sent, as [`PathRules::rates`].
    #[inline]
    pub(crate) fn bandwidths(
        &self,
        path: &[u8],
        former: Option<&[u8]>,
    ) -> impl Iterator<Item = (usize, Bandwidth)> {
        self.anew(&self.slowing, path, former).map(|(number, rule)| (number, rule.bandwidth))
    }

    /// These rules, without those that do not fit a path, or that fit the path in place of which it came too.
    #[inline]
    fn anew<'s>(
        &'s self,
        numbers: &'s [usize],
        path: &[u8],
        former: Option<&[u8]>,
    ) -> impl Iterator<Item = (usize, &'s PathRule)> {
        let is_for = move |rule: &PathRule| {
            let has = |path| rule.parts(path).is_some();
            has(path) && !former.is_some_and(has)
        };
        let rules = numbers.iter().map(|number| (*number, &self.rules[*number]));
        rules.filter(move |(_, rule)| is_for(rule))
    }

    /// Whether the same clients are admitted to two paths.
    pub(crate) fn admit_alike(&self, one: &[u8], other: &[u8]) -> bool {
        let first = |of: &FirstOf, path| Some(of.find(&self.rules, path)?.0);
        let ask_alike = |of: &FirstOf| of.is_empty() || first(of, one) == first(of, other);
        ask_alike(&self.asking) && ask_alike(&self.authorizing) && self.guards(one).eq(self.guards(other))
    }

    /// Whether every client that is admitted to one path is admitted to another.
    fn admit_all_of(&self, other: &[u8], one: &[u8]) -> bool {
        let fits = |number: usize, path: &[u8]| self.rules[number].parts(path).is_some();
        let first = |of: &FirstOf, path| Some(of.find(&self.rules, path)?.0);
        let asks_the_same = |of: &FirstOf| first(of, other) == first(of, one);
        asks_the_same(&self.asking)
            && asks_the_same(&self.authorizing)
            && self.guarding.iter().all(|number| !fits(*number, other) || fits(*number, one))
    }

    /// Whether every client that is admitted to a directory gets the file of this path: it needs no admission of its own, and
    /// is neither redirected nor rewritten.
    pub(crate) fn are_as_open(&self, path: &[u8], directory: &[u8]) -> bool {
        self.admit_all_of(path, directory)
            && self.redirecting.find(&self.rules, path).is_none()
            && self.rewriting.find(&self.rules, path).is_none()
    }

    /// Whether a rule changes answers.
    pub(crate) fn change_answers(&self) -> bool {
        !self.changing.is_empty()
    }

    /// The origins whose pages may read the answers, by the last of these rules that has some.
    pub(crate) fn origins(&self, numbers: &[usize]) -> &[String] {
        let origins = numbers.iter().rev().map(|number| &self.rules[*number].fields.origins);
        origins.into_iter().find(|origins| !origins.is_empty()).map_or(&[], Vec::as_slice)
    }

    /// The numbers of the rules that change answers for this path. Those for names that hold a hash change the answers of files alone:
    /// a path of an application can look the same.
    pub(crate) fn changing(&self, path: &[u8], is_of_file: bool) -> Vec<usize> {
        let is_for = |number: &usize| {
            let rule = &self.rules[*number];
            (is_of_file || !rule.hashed) && rule.parts(path).is_some()
        };
        self.changing.iter().copied().filter(is_for).collect()
    }
}

#[cfg(test)]
mod tests {
    use flash_http::response::Status;

    use super::*;
    use crate::path_pattern::PathPattern;
    use crate::path_rule::{Access, Target};

    #[test]
    fn the_first_redirect_of_a_path_counts() {
        let rule = |pattern: &str, target: &str| PathRule {
            redirect: Some(Redirect { status: Status::FOUND, target: Target::new(target) }),
            ..PathRule::new(pattern)
        };
        let rules = PathRules::new(vec![
            rule("/a", "/1"),
            rule("/a*", "/2"),
            rule("/a", "/3"),
            rule("/b*", "/4"),
            rule("/b", "/5"),
            rule("/c", "/6"),
        ]);
        let target = |path: &str| Some(rules.redirect(path.as_bytes())?.0.location(&[], None));
        assert_eq!(target("/a").as_deref(), Some("/1"));
        assert_eq!(target("/ab").as_deref(), Some("/2"));
        assert_eq!(target("/b").as_deref(), Some("/4"));
        assert_eq!(target("/c").as_deref(), Some("/6"));
        assert_eq!(target("/d"), None);
    }

    #[test]
    fn a_rewritten_path_is_decoded_and_stays_beneath_the_root() {
        let rules = PathRules::new(vec![
            PathRule { rewrite: Some(Target::new("/new/$1")), ..PathRule::new("/old/*") },
            PathRule { rewrite: Some(Target::new("/.$1")), ..PathRule::new("/x*") },
            PathRule { rewrite: Some(Target::new("/all")), ..PathRule::new("/new/*") },
        ]);
        let rewritten = |path: &str| rules.rewrite(path.as_bytes());
        let new = |path: &str| Some(Ok(Rewritten { path: path.into(), query: None }));
        assert_eq!(rewritten("/old/a b%2f"), new("/new/a b%2f"), "encoded and decoded once, by one rule");
        assert_eq!(rewritten("/x./etc/passwd"), Some(Err(BadPath::AboveRoot)));
        assert_eq!(rewritten("/other"), None);
    }

    #[test]
    fn a_part_of_a_path_is_one_value_of_a_query() {
        let rewrite = Some(Target::new("/show.php?id=$1&of=$2"));
        let rules = PathRules::new(vec![PathRule { rewrite, ..PathRule::new("/item/*/*") }]);
        let rewritten = rules.rewrite(b"/item/1&admin=1#?/a+b c").unwrap().unwrap();
        assert_eq!(rewritten.path, b"/show.php");
        assert_eq!(rewritten.query.as_deref(), Some("id=1%26admin%3D1%23%3F&of=a%2Bb%20c"));
        let query_of = |query: Option<&str>| rewritten.query_of(query.map(str::as_bytes));
        assert_eq!(query_of(None).as_deref(), Some(&b"id=1%26admin%3D1%23%3F&of=a%2Bb%20c"[..]));
        assert!(query_of(Some("x=1")).is_some_and(|query| query.ends_with(b"a%2Bb%20c&x=1")));
        let redirect = Redirect { status: Status::FOUND, target: Target::new("/a=$1?b=$1") };
        assert_eq!(redirect.location(&[b"1&c=2"], None), "/a=1%26c=2?b=1%26c%3D2");
    }

    #[test]
    fn a_rule_is_not_for_what_it_excepts() {
        let except = vec![PathPattern::new("*.*"), PathPattern::new("/api/*")];
        let rules = PathRules::new(vec![
            PathRule { rewrite: Some(Target::new("/index.html")), except, ..PathRule::new("/*") },
            PathRule {
                rewrite: Some(Target::new("/other")),
                except: vec![PathPattern::new("/a.js")],
                ..PathRule::new("/a.js")
            },
        ]);
        let rewritten = |path: &str| rules.rewrite(path.as_bytes()).map(|it| it.unwrap().path);
        assert_eq!(rewritten("/items/7").as_deref(), Some(&b"/index.html"[..]));
        for path in ["/a.js", "/v1.2/items", "/api/items"] {
            assert_eq!(rewritten(path), None, "{path}");
        }
    }

    #[test]
    fn a_file_is_as_open_as_its_directory_without_rules_of_its_own() {
        let deny = || Access { deny: vec!["10.0.0.0/8".parse().unwrap()], ..Access::default() };
        let guarding = |pattern: &str| PathRule { access: deny(), ..PathRule::new(pattern) };
        let are_open = |rule: PathRule| PathRules::new(vec![rule]).are_as_open(b"/d/README.md", b"/d/");
        for pattern in ["/e/*", "/d/", "/d/*", "*"] {
            assert!(are_open(guarding(pattern)), "{pattern}");
        }
        for pattern in ["*.md", "/d/README.md", "/d/R*"] {
            assert!(!are_open(guarding(pattern)), "{pattern}");
        }
        let except = vec![PathPattern::new("/d/")];
        assert!(!are_open(PathRule { except, ..guarding("*") }));
        let redirect = Some(Redirect { status: Status::FOUND, target: Target::new("/x") });
        assert!(!are_open(PathRule { redirect, ..PathRule::new("*.md") }));
        assert!(!are_open(PathRule { rewrite: Some(Target::new("/x")), ..PathRule::new("*.md") }));
    }

    #[test]
    fn a_file_is_no_fallback_of_itself() {
        let rules = PathRules::new(vec![
            PathRule { fallback: Some(b"/app/index.html".to_vec()), ..PathRule::new("/app/*") },
            PathRule { fallback: Some(b"/none.html".to_vec()), ..PathRule::new("*") },
        ]);
        let fallback =
            |path: &str| rules.fallback(path.as_bytes()).map(|path| std::str::from_utf8(path).unwrap());
        assert_eq!(fallback("/app/users/7"), Some("/app/index.html"));
        assert_eq!(fallback("/app/index.html"), None);
        assert_eq!(fallback("/x"), Some("/none.html"));
    }
}
