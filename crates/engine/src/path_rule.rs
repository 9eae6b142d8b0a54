//! One rule of a site for paths: which clients are admitted and how often, where their requests lead, and how their answers change. The server
//! builds rules from the configuration; [`path_rules`](crate::path_rules) finds those that fit a path.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use flash_http::response::Status;
use flash_http::target::{encode_path, encode_value};

use crate::admission::Network;
use crate::bandwidth::Bandwidth;
use crate::bounds::Concurrency;
use crate::path_pattern::PathPattern;
use crate::rates::Rates;
use crate::slab::SiteId;
use crate::users::Users;

/// The mark in a target before the number of a `*`.
const PART: char = '$';

/// The clients that a rule admits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// If there are any, only clients of these networks.
    pub allow: Vec<Network>,
    /// No clients of these networks, even if they are among those allowed.
    pub deny: Vec<Network>,
}

impl Access {
    pub(crate) fn is_open(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    pub(crate) fn admits(&self, client: IpAddr) -> bool {
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
    /// Scripts of pages with these origins may read the answers, also errors: `*` alone stands for all (the CORS protocol of the
    /// Fetch standard).
    pub origins: Vec<String>,
    /// Whether error answers change too.
    pub with_errors: bool,
}

impl FieldChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty() && self.remove.is_empty() && self.origins.is_empty()
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

    /// The target for a path with these parts, which are percent-encoded in it. In its query they are values.
    pub(crate) fn of(&self, parts: &[&[u8]]) -> String {
        let mut target = String::with_capacity(self.0.len() + 64);
        let mut pieces = self.0.split(PART);
        target.push_str(pieces.next().unwrap_or_default());
        let mut is_query = target.contains('?');
        for piece in pieces {
            let number = piece.chars().next().and_then(|digit| digit.to_digit(10)).unwrap_or(0) as usize;
            match number.checked_sub(1).and_then(|place| parts.get(place)) {
                Some(part) => {
                    target.push_str(&if is_query { encode_value(part) } else { encode_path(part) });
                    target.push_str(&piece[1..]);
                }
                None => {
                    target.push(PART);
                    target.push_str(piece);
                }
            }
            is_query |= piece.contains('?');
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

/// The path and the query in place of those of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// The decoded path.
    pub path: Vec<u8>,
    /// The beginning of the query, before that of the client.
    pub query: Option<String>,
}

impl Rewritten {
    /// The whole query of a request with this one.
    pub(crate) fn query_of(&self, query: Option<&[u8]>) -> Option<Vec<u8>> {
        let own = self.query.as_deref()?.as_bytes();
        Some([own, query.map_or(&[][..], |_| b"&"), query.unwrap_or_default()].concat())
    }
}

/// A server that must agree to requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthRule {
    /// The decoded path of a route.
    pub path: Vec<u8>,
    /// The names of the fields of its answer that requests get, in place of those of the client. They have letters, digits and `-`.
    pub fields: Arc<[String]>,
}

/// A rule of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRule {
    /// The paths that it is for.
    pub paths: PathPattern,
    /// Whether it is only for names that hold a hash of the content, such as `app.3f2a9c1b.js`.
    pub hashed: bool,
    /// No paths of these forms, even if they are among those.
    pub except: Vec<PathPattern>,
    /// The clients that are admitted.
    pub access: Access,
    /// How the fields of their answers change.
    pub fields: FieldChanges,
    /// Where their requests are redirected.
    pub redirect: Option<Redirect>,
    /// The path that takes the place of theirs, with or without a query.
    pub rewrite: Option<Target>,
    /// The extensions of files that answer if theirs is missing, in this order: with `html`, the file of `/a.html` for `/a`.
    pub extensions: Vec<Box<str>>,
    /// The decoded path of the file that answers if theirs is missing.
    pub fallback: Option<Vec<u8>>,
    /// The alias that has their files. Its pattern must end with a slash and the only `*`.
    pub alias: Option<SiteId>,
    /// The page of their errors.
    pub error_page: Option<ErrorPage>,
    /// How many of their requests are admitted.
    pub rates: Rates,
    /// How many of their requests are admitted at once.
    pub concurrency: Concurrency,
    /// How fast their answers are sent.
    pub bandwidth: Bandwidth,
    /// The users who are admitted; None for everybody.
    pub users: Option<Arc<Users>>,
    /// The server that is asked about each request, and must agree.
    pub auth: Option<AuthRule>,
}

impl PathRule {
    /// A rule without effect for paths of this form.
    #[must_use]
    pub fn new(pattern: &str) -> Self {
        Self {
            paths: PathPattern::new(pattern),
            hashed: false,
            except: Vec::new(),
            access: Access::default(),
            fields: FieldChanges::default(),
            redirect: None,
            rewrite: None,
            extensions: Vec::new(),
            fallback: None,
            alias: None,
            error_page: None,
            rates: Rates::default(),
            concurrency: Concurrency::default(),
            bandwidth: Bandwidth::default(),
            users: None,
            auth: None,
        }
    }

    /// The [parts](PathPattern::parts) of a path that it is for.
    pub(crate) fn parts<'p>(&self, path: &'p [u8]) -> Option<Vec<&'p [u8]>> {
        let parts = self.paths.parts(path)?;
        let fits = self.except.iter().all(|paths| paths.parts(path).is_none());
        (fits && (!self.hashed || has_hash(path))).then_some(parts)
    }
}

/// Whether the name at the end of a path holds a hash, as tools that build sites write it: a part of 8 to 128 letters and digits, in which a
/// letter follows a digit twice or more. It is hexadecimal (`app.3f2a9c1b.js`), has no small letters (`main-7QX2B4DA.js`), or has letters of
/// both cases (`index-BhX3k2Qa.js`). Names that people choose, such as `DSC01234.JPG` and `jquery360min.js`, hardly look so.
fn has_hash(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let is_hash = |part: &[u8]| {
        let has = |is: fn(&u8) -> bool| part.iter().any(is);
        let letters_after_digits =
            part.windows(2).filter(|pair| pair[0].is_ascii_digit() && pair[1].is_ascii_alphabetic()).count();
        (8..=128).contains(&part.len())
            && letters_after_digits >= 2
            && (has(u8::is_ascii_uppercase) || part.iter().all(u8::is_ascii_hexdigit))
    };
    name.split(|byte| !byte.is_ascii_alphanumeric()).any(is_hash)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn names_that_hold_a_hash() {
        for name in [
            "app.3f2a9c1b.js",
            "main-7QX2B4DA.css",
            "/assets/index-BhX3k2Qa.js",
            "chunk_5ab0d1a9.mjs",
            "d41d8cd98f00b204e9800998ecf8427e",
            "/d/a.b.e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855.png",
        ] {
            assert!(has_hash(name.as_bytes()), "{name}");
        }
        for name in [
            "",
            "/",
            "jquery360min.js",
            "report-20261126.pdf",
            "MainPageView.js",
            "defacade.txt",
            "IMG20261126.jpg",
            "DSC01234.JPG",
            "Http2Server.js",
            "x86and64bits4me.iso",
            "app.3f2a9c1.js",
            "/3f2a9c1b/app.js",
            "README2026",
        ] {
            assert!(!has_hash(name.as_bytes()), "{name}");
        }
        let hashed = PathRule { hashed: true, ..PathRule::new("/assets/*") };
        assert!(hashed.parts(b"/assets/app.3f2a9c1b.js").is_some());
        assert!(hashed.parts(b"/assets/app.js").is_none() && hashed.parts(b"/app.3f2a9c1b.js").is_none());
    }
}
