//! The rules of a site for paths: which clients are admitted, which requests are redirected, and which fields of answers
//! change. The server builds them from the configuration; the [gate](crate::handler) and [`head_changes`](crate::head_changes)
//! apply them.

use std::collections::HashMap;
use std::net::IpAddr;

use flash_http::response::Status;
use flash_http::target::encode_path;

use crate::admission::Network;

/// The mark in a pattern for any bytes.
const ANY: u8 = b'*';
/// The mark in a redirect's target before the number of a `*`.
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

/// The answer to whether a client is admitted to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Every client is.
    Open,
    /// This client is, but others can be refused.
    Admitted,
    /// It is not.
    Refused,
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

/// Where a rule sends clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The status: 301, 302, 303, 307 or 308.
    pub status: Status,
    /// A path or an address, in which `$1` stands for the part of the path that fits the first `*` of the pattern.
    pub target: String,
}

impl Redirect {
    /// The address to go to, for a path with these parts and this query. Parts are percent-encoded; a query of the target
    /// takes the place of that of the request.
    #[must_use]
    pub fn location(&self, parts: &[&[u8]], query: Option<&[u8]>) -> String {
        let mut location = String::with_capacity(self.target.len() + 64);
        let mut pieces = self.target.split(PART);
        location.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            let number = piece.chars().next().and_then(|digit| digit.to_digit(10)).unwrap_or(0) as usize;
            match number.checked_sub(1).and_then(|place| parts.get(place)) {
                Some(part) => {
                    location.push_str(&encode_path(part));
                    location.push_str(&piece[1..]);
                }
                None => {
                    location.push(PART);
                    location.push_str(piece);
                }
            }
        }
        if location.starts_with('/') {
            // A client would read a host after two slashes (RFC 3986, section 4.2).
            location.replace_range(..location.len() - location.trim_start_matches('/').len(), "/");
        }
        if let Some(query) = query.filter(|_| !self.target.contains('?')) {
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
    /// The clients that are admitted.
    pub access: Access,
    /// How the fields of their answers change.
    pub fields: FieldChanges,
    /// Where their requests are redirected.
    pub redirect: Option<Redirect>,
}

/// The rules of a site, in their order, with indexes of those that can apply.
#[derive(Clone, Debug, Default)]
pub struct PathRules {
    rules: Vec<PathRule>,
    /// The first redirect of each single path.
    redirects_of_one: HashMap<Vec<u8>, usize>,
    /// The redirects of patterns.
    redirects_of_many: Vec<usize>,
    /// The rules that change fields.
    changing: Vec<usize>,
    /// The rules that do not admit every client.
    guarding: Vec<usize>,
}

impl PathRules {
    /// Rules in this order.
    #[must_use]
    pub fn new(rules: Vec<PathRule>) -> Self {
        let mut all = Self::default();
        for (number, rule) in rules.iter().enumerate() {
            match (&rule.redirect, rule.paths.exact()) {
                (Some(_), Some(path)) => drop(all.redirects_of_one.entry(path.to_vec()).or_insert(number)),
                (Some(_), None) => all.redirects_of_many.push(number),
                (None, _) => {}
            }
            if !rule.fields.is_empty() {
                all.changing.push(number);
            }
            if !rule.access.is_open() {
                all.guarding.push(number);
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
        let of_one = self.redirects_of_one.get(path).copied();
        let of_many = self
            .redirects_of_many
            .iter()
            .take_while(|number| of_one.is_none_or(|of_one| **number < of_one))
            .find_map(|number| Some((*number, self.rules[*number].paths.parts(path)?)));
        let (number, parts) = of_many.or_else(|| Some((of_one?, Vec::new())))?;
        Some((self.rules[number].redirect.as_ref()?, parts))
    }

    /// Whether all rules for this path admit a client.
    #[inline]
    pub(crate) fn entry(&self, path: &[u8], client: IpAddr) -> Entry {
        let mut entry = Entry::Open;
        for rule in self.guarding.iter().map(|number| &self.rules[*number]) {
            if rule.paths.parts(path).is_some() {
                if !rule.access.admits(client) {
                    return Entry::Refused;
                }
                entry = Entry::Admitted;
            }
        }
        entry
    }

    /// Whether a rule changes fields.
    pub(crate) fn change_fields(&self) -> bool {
        !self.changing.is_empty()
    }

    /// The numbers of the rules that change fields of answers for this path.
    pub(crate) fn changing(&self, path: &[u8]) -> Vec<usize> {
        let is_for = |number: &usize| self.rules[*number].paths.parts(path).is_some();
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
            paths: PathPattern::new(pattern),
            access: Access::default(),
            fields: FieldChanges::default(),
            redirect: Some(Redirect { status: Status::FOUND, target: target.to_owned() }),
        };
        let rules = PathRules::new(vec![
            rule("/a", "/1"),
            rule("/a*", "/2"),
            rule("/a", "/3"),
            rule("/b*", "/4"),
            rule("/b", "/5"),
            rule("/c", "/6"),
        ]);
        let target = |path: &str| Some(rules.redirect(path.as_bytes())?.0.target.clone());
        assert_eq!(target("/a").as_deref(), Some("/1"));
        assert_eq!(target("/ab").as_deref(), Some("/2"));
        assert_eq!(target("/b").as_deref(), Some("/4"));
        assert_eq!(target("/c").as_deref(), Some("/6"));
        assert_eq!(target("/d"), None);
    }

    #[test]
    fn a_location_is_an_address_whatever_the_path() {
        let location = |target: &str, parts: &[&[u8]], query: Option<&[u8]>| {
            Redirect { status: Status::FOUND, target: target.to_owned() }.location(parts, query)
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
}
