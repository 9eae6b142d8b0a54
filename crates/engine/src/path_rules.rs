//! The rules of a site for paths: which clients are admitted and how often, which requests are redirected or rewritten, which file answers in
//! place of one that is missing, which page errors have, and which fields of answers change. The server builds them from the configuration; the
//! [handlers](crate::handler) and [`head_changes`](crate::head_changes) apply them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use flash_http::response::Status;
use flash_http::target::{BadPath, EncodedSlash, decode_path, encode_path};

use crate::admission::Network;
use crate::rates::Rates;
use crate::users::Users;

/// The mark in a pattern for any bytes.
const ANY: u8 = b'*';
/// The mark in a target before the number of a `*`.
const PART: char = '$';

/// A pattern of decoded paths: each `*` stands for any bytes, or for none, slashes included. It has no other marks, so no
/// match takes longer than the product of the lengths of path and pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    /// The texts between the marks.
    pieces: Vec<Vec<u8>>,
}

impl PathPattern {
    /// The pattern that this text describes.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self { pieces: text.as_bytes().split(|byte| *byte == ANY).map(<[u8]>::to_vec).collect() }
    }

    /// The only path that it has, if it has no `*`.
    fn exact(&self) -> Option<&[u8]> {
        if let [path] = &self.pieces[..] { Some(path) } else { None }
    }

    /// Whether it has every path that another pattern has.
    #[must_use]
    pub fn has_all_of(&self, other: &Self) -> bool {
        // No path of a config file has this character, so what fits it fits any other.
        self.parts(&other.pieces.join(&b"\x01"[..])).is_some()
    }

    /// The parts of a path for which each `*` stands, as short as can be; None if the path does not fit.
    #[must_use]
    pub fn parts<'p>(&self, path: &'p [u8]) -> Option<Vec<&'p [u8]>> {
        let (first, others) = self.pieces.split_first()?;
        let mut rest = path.strip_prefix(&first[..])?;
        let Some((last, middle)) = others.split_last() else { return rest.is_empty().then(Vec::new) };
        let mut parts = Vec::with_capacity(others.len());
        for piece in middle {
            let at = find(rest, piece)?;
            parts.push(&rest[..at]);
            rest = &rest[at + piece.len()..];
        }
        parts.push(rest.strip_suffix(&last[..])?);
        Some(parts)
    }
}

/// The first place of a piece in a path.
fn find(path: &[u8], piece: &[u8]) -> Option<usize> {
    if piece.is_empty() { Some(0) } else { path.windows(piece.len()).position(|part| part == piece) }
}

/// The clients that a rule admits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// If there are any, only clients of these networks.
    pub allow: Vec<Network>,
    /// No clients of these networks, even if they are among those allowed.
    pub deny: Vec<Network>,
}

impl Access {
    fn is_open(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    fn admits(&self, client: IpAddr) -> bool {
        let is_in = |networks: &[Network]| networks.iter().any(|network| network.contains(client));
        (self.allow.is_empty() || is_in(&self.allow)) && !is_in(&self.deny)
    }
}

/// How the fields of answers change. Names are compared without regard to case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldChanges {
    /// These fields replace others of their names.
    pub set: Vec<(String, String)>,
    /// These fields are added to others of their names.
    pub add: Vec<(String, String)>,
    /// Fields of these names are left out.
    pub remove: Vec<String>,
    /// Whether error answers change too.
    pub with_errors: bool,
}

impl FieldChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty() && self.remove.is_empty()
    }
}

/// The page that errors have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// The statuses of the errors.
    pub statuses: Vec<RangeInclusive<u16>>,
    /// The page, in HTML and UTF-8.
    pub html: Arc<str>,
}

/// A path or an address, in which `$1` stands for the part of a path that fits the first `*` of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target(String);

impl Target {
    /// The target that this text describes.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The target for a path with these parts, which are percent-encoded in it.
    fn of(&self, parts: &[&[u8]]) -> String {
        let mut target = String::with_capacity(self.0.len() + 64);
        let mut pieces = self.0.split(PART);
        target.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            let number = piece.chars().next().and_then(|digit| digit.to_digit(10)).unwrap_or(0) as usize;
            match number.checked_sub(1).and_then(|place| parts.get(place)) {
                Some(part) => {
                    target.push_str(&encode_path(part));
                    target.push_str(&piece[1..]);
                }
                None => {
                    target.push(PART);
                    target.push_str(piece);
                }
            }
        }
        if target.starts_with('/') {
            // A client would read a host after two slashes (RFC 3986, section 4.2).
            target.replace_range(..target.len() - target.trim_start_matches('/').len(), "/");
        }
        target
    }
}

/// Where a rule sends clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The status: 301, 302, 303, 307 or 308.
    pub status: Status,
    /// A path or an address.
    pub target: Target,
}

impl Redirect {
    /// The address to go to, for a path with these parts and this query. A query of the target takes the place of that of the
    /// request.
    #[must_use]
    pub fn location(&self, parts: &[&[u8]], query: Option<&[u8]>) -> String {
        let mut location = self.target.of(parts);
        if let Some(query) = query.filter(|_| !self.target.0.contains('?')) {
            location.push('?');
            location.push_str(&String::from_utf8_lossy(query));
        }
        location
    }
}

/// A rule of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRule {
    /// The paths that it is for.
    pub paths: PathPattern,
    /// No paths of these forms, even if they are among those.
    pub except: Vec<PathPattern>,
    /// The clients that are admitted.
    pub access: Access,
    /// How the fields of their answers change.
    pub fields: FieldChanges,
    /// Where their requests are redirected.
    pub redirect: Option<Redirect>,
    /// The path that takes the place of theirs. It has no query.
    pub rewrite: Option<Target>,
    /// The decoded path of the file that answers if theirs is missing.
    pub fallback: Option<Vec<u8>>,
    /// The page of their errors.
    pub error_page: Option<ErrorPage>,
    /// How many of their requests are admitted.
    pub rates: Rates,
    /// The users who are admitted; None for everybody.
    pub users: Option<Arc<Users>>,
}

impl PathRule {
    /// A rule without effect for paths of this form.
    #[must_use]
    pub fn new(pattern: &str) -> Self {
        Self {
            paths: PathPattern::new(pattern),
            except: Vec::new(),
            access: Access::default(),
            fields: FieldChanges::default(),
            redirect: None,
            rewrite: None,
            fallback: None,
            error_page: None,
            rates: Rates::default(),
            users: None,
        }
    }

    /// The [parts](PathPattern::parts) of a path that it is for.
    fn parts<'p>(&self, path: &'p [u8]) -> Option<Vec<&'p [u8]>> {
        let parts = self.paths.parts(path)?;
        self.except.iter().all(|paths| paths.parts(path).is_none()).then_some(parts)
    }
}

/// The rules of which the first that fits a path applies.
#[derive(Clone, Debug, Default)]
struct FirstOf {
    /// The first rule of each single path.
    of_one: HashMap<Vec<u8>, usize>,
    /// The rules with patterns.
    of_many: Vec<usize>,
}

impl FirstOf {
    fn is_empty(&self) -> bool {
        self.of_one.is_empty() && self.of_many.is_empty()
    }

    fn push(&mut self, number: usize, rule: &PathRule) {
        match rule.paths.exact() {
            Some(path) if rule.except.is_empty() => drop(self.of_one.entry(path.to_vec()).or_insert(number)),
            _ => self.of_many.push(number),
        }
    }

    /// The first of the rules that fits a path, and the [parts](PathPattern::parts) of the path.
    fn find<'p>(&self, rules: &[PathRule], path: &'p [u8]) -> Option<(usize, Vec<&'p [u8]>)> {
        let of_one = self.of_one.get(path).copied();
        let of_many = self
            .of_many
            .iter()
            .take_while(|number| of_one.is_none_or(|of_one| **number < of_one))
            .find_map(|number| Some((*number, rules[*number].parts(path)?)));
        of_many.or_else(|| Some((of_one?, Vec::new())))
    }
}

/// The rules of a site, in their order, with indexes of those that can apply.
#[derive(Clone, Debug, Default)]
pub struct PathRules {
    rules: Vec<PathRule>,
    redirecting: FirstOf,
    rewriting: FirstOf,
    falling_back: FirstOf,
    asking: FirstOf,
    /// The rules that change fields or the pages of errors.
    changing: Vec<usize>,
    /// The rules that do not admit every client.
    guarding: Vec<usize>,
    /// The rules that do not admit every number of requests.
    limiting: Vec<usize>,
}

impl PathRules {
    /// Rules in this order.
    #[must_use]
    pub fn new(rules: Vec<PathRule>) -> Self {
        let mut all = Self::default();
        for (number, rule) in rules.iter().enumerate() {
            let of_first = [
                (rule.users.is_some(), &mut all.asking),
                (rule.redirect.is_some(), &mut all.redirecting),
                (rule.rewrite.is_some(), &mut all.rewriting),
                (rule.fallback.is_some(), &mut all.falling_back),
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
        }
        Self { rules, ..all }
    }

    /// The rules themselves.
    #[must_use]
    pub fn rules(&self) -> &[PathRule] {
        &self.rules
    }

    /// The redirect of the first rule that has one for this path, and the [parts](PathPattern::parts) of the path.
    #[must_use]
    pub fn redirect<'p>(&self, path: &'p [u8]) -> Option<(&Redirect, Vec<&'p [u8]>)> {
        let (number, parts) = self.redirecting.find(&self.rules, path)?;
        Some((self.rules[number].redirect.as_ref()?, parts))
    }

    /// The decoded path that takes the place of this one, by the first rule that has one for it. An error if it leads out of
    /// the root.
    #[must_use]
    pub fn rewrite(&self, path: &[u8]) -> Option<Result<Vec<u8>, BadPath>> {
        let (number, parts) = self.rewriting.find(&self.rules, path)?;
        let target = self.rules[number].rewrite.as_ref()?.of(&parts);
        Some(decode_path(target.as_bytes(), EncodedSlash::Decode).map(Cow::into_owned))
    }

    /// The path of the file that answers if this one is missing, by the first rule that has one for it.
    #[must_use]
    pub fn fallback(&self, path: &[u8]) -> Option<&[u8]> {
        let (number, _) = self.falling_back.find(&self.rules, path)?;
        self.rules[number].fallback.as_deref().filter(|fallback| *fallback != path)
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

    /// The rules that limit requests for a path, with their numbers. Not those that limit requests for the path in place of which it
    /// came, since they have counted already.
    #[inline]
    pub(crate) fn rates(&self, path: &[u8], former: Option<&[u8]>) -> impl Iterator<Item = (usize, Rates)> {
        let is_for = move |rule: &PathRule| {
            let has = |path| rule.parts(path).is_some();
            has(path) && !former.is_some_and(has)
        };
        let rules = self.limiting.iter().map(|number| (*number, &self.rules[*number]));
        rules.filter(move |(_, rule)| is_for(rule)).map(|(number, rule)| (number, rule.rates))
    }

    /// Whether every client that is admitted to a directory gets the file of this path: it needs no admission of its own, and
    /// is neither redirected nor rewritten.
    pub(crate) fn are_as_open(&self, path: &[u8], directory: &[u8]) -> bool {
        let fits = |number: usize, path: &[u8]| self.rules[number].parts(path).is_some();
        let users = |path| Some(self.asking.find(&self.rules, path)?.0);
        users(path) == users(directory)
            && self.guarding.iter().all(|number| !fits(*number, path) || fits(*number, directory))
            && self.redirecting.find(&self.rules, path).is_none()
            && self.rewriting.find(&self.rules, path).is_none()
    }

    /// Whether a rule changes answers.
    pub(crate) fn change_answers(&self) -> bool {
        !self.changing.is_empty()
    }

    /// The numbers of the rules that change answers for this path.
    pub(crate) fn changing(&self, path: &[u8]) -> Vec<usize> {
        let is_for = |number: &usize| self.rules[*number].parts(path).is_some();
        self.changing.iter().copied().filter(is_for).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts<'p>(pattern: &str, path: &'p str) -> Option<Vec<&'p str>> {
        let parts = PathPattern::new(pattern).parts(path.as_bytes())?;
        Some(parts.into_iter().map(|part| std::str::from_utf8(part).unwrap()).collect())
    }

    #[test]
    fn a_pattern_fits_whole_paths() {
        assert_eq!(parts("/a", "/a"), Some(vec![]));
        assert_eq!(parts("/a", "/ab"), None);
        assert_eq!(parts("*", "/a/b"), Some(vec!["/a/b"]));
        assert_eq!(parts("/a/*", "/a/"), Some(vec![""]));
        assert_eq!(parts("/a/*", "/a"), None);
        assert_eq!(parts("*.html", "/x/y.html"), Some(vec!["/x/y"]));
        assert_eq!(parts("/a*a", "/a"), None, "no byte counts twice");
        assert_eq!(parts("/*/old/*.html", "/x/old/old/y.html"), Some(vec!["x", "old/y"]));
        assert_eq!(parts("/**", "/x"), Some(vec!["", "x"]));
        assert_eq!(parts("/*/x", "/a/b"), None);
    }

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
        let target = |path: &str| Some(rules.redirect(path.as_bytes())?.0.target.0.clone());
        assert_eq!(target("/a").as_deref(), Some("/1"));
        assert_eq!(target("/ab").as_deref(), Some("/2"));
        assert_eq!(target("/b").as_deref(), Some("/4"));
        assert_eq!(target("/c").as_deref(), Some("/6"));
        assert_eq!(target("/d"), None);
    }

    #[test]
    fn a_location_is_an_address_whatever_the_path() {
        let location = |target: &str, parts: &[&[u8]], query: Option<&[u8]>| {
            Redirect { status: Status::FOUND, target: Target::new(target) }.location(parts, query)
        };
        assert_eq!(location("/new/$1", &[b"a b"], None), "/new/a%20b");
        assert_eq!(location("/$2/$1", &[b"a", b"b"], Some(b"q=1")), "/b/a?q=1");
        assert_eq!(location("/x?y", &[], Some(b"q=1")), "/x?y");
        assert_eq!(location("/$1", &[b"/evil.example"], None), "/evil.example");
        assert_eq!(location("$1", &[b"//evil.example"], None), "/evil.example");
        assert_eq!(location("/$1", &[b"\\evil\r\nX: y"], None), "/%5Cevil%0D%0AX%3A%20y");
        assert_eq!(location("https://other.example/$1", &[b"a"], None), "https://other.example/a");
        assert_eq!(location("/price/$/$3$", &[b"a"], None), "/price/$/$3$");
    }

    #[test]
    fn a_rewritten_path_is_decoded_and_stays_beneath_the_root() {
        let rules = PathRules::new(vec![
            PathRule { rewrite: Some(Target::new("/new/$1")), ..PathRule::new("/old/*") },
            PathRule { rewrite: Some(Target::new("/.$1")), ..PathRule::new("/x*") },
            PathRule { rewrite: Some(Target::new("/all")), ..PathRule::new("/new/*") },
        ]);
        let rewritten = |path: &str| rules.rewrite(path.as_bytes());
        assert_eq!(
            rewritten("/old/a b%2f"),
            Some(Ok(b"/new/a b%2f".to_vec())),
            "encoded and decoded once, by one rule"
        );
        assert_eq!(rewritten("/x./etc/passwd"), Some(Err(BadPath::AboveRoot)));
        assert_eq!(rewritten("/other"), None);
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
        let rewritten = |path: &str| rules.rewrite(path.as_bytes()).map(Result::unwrap);
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
