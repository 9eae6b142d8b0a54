//! Changes of the head of an answer, and the pages of errors: by the rules of a site for its paths, and by
//! `Strict-Transport-Security` over HTTPS (RFC 6797). Rules that apply together are compiled once.
//! [`handler`](crate::handler) looks the changes up for each request; the wires apply them.

use std::collections::HashMap;
use std::sync::Arc;

use flash_http::response::Status;

use crate::limits::HEAD_CHANGES_MAX;
use crate::path_rule::ErrorPage;
use crate::rules::{Rules, SiteRules};
use crate::slab::SiteId;

/// The end of a head.
const END: &[u8] = b"\r\n";
const STRICT: &str = "Strict-Transport-Security";
/// Answers to the question whether a script may send a request that is not simple (Fetch standard, "CORS-preflight fetch").
const PREFLIGHT: [(&str, &str); 3] = [
    ("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS"),
    // `*` does not stand for it.
    ("Access-Control-Allow-Headers", "*, Authorization"),
    ("Access-Control-Max-Age", "86400"),
];
const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";

/// How the head of an answer changes.
#[derive(Debug)]
pub(crate) struct HeadChanges {
    of_success: Changes,
    /// The changes of an answer to OPTIONS, whose status is 204.
    of_methods: Changes,
    of_error: Changes,
    /// The first that fits applies.
    error_pages: Vec<ErrorPage>,
}

/// How the fields of one answer change.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Fields of these names are left out.
    left_out: Vec<String>,
    /// These fields are added.
    added: Vec<(String, String)>,
    /// The lines of the added fields in a head of HTTP/1.
    lines: Vec<u8>,
    /// The value of `Strict-Transport-Security` in an answer that has none.
    hsts: Option<Arc<str>>,
    /// Whether the head of a file only gets further lines.
    extends_files: bool,
}

/// The fields of files.
const OF_FILES: [&str; 8] = [
    "accept-ranges",
    "content-encoding",
    "content-type",
    "etag",
    "last-modified",
    "server",
    "vary",
    "x-content-type-options",
];

/// The changes that were compiled, for each set of rules that apply together.
#[derive(Debug)]
pub(crate) struct HeadRules {
    are_there: bool,
    compiled: HashMap<Applied, Arc<HeadChanges>>,
}

/// The rules that apply to an answer, and its client's origin.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Applied {
    site: SiteId,
    is_https: bool,
    /// The numbers of the rules.
    rules: Vec<usize>,
    /// The place of the client's origin among those whose pages may read the answer.
    origin: Option<usize>,
}

impl HeadRules {
    pub(crate) fn new(rules: &Rules) -> Self {
        let has_rules = |site: &SiteRules| site.hsts.is_some() || site.paths.change_answers();
        Self { are_there: rules.sites.iter().any(has_rules), compiled: HashMap::new() }
    }

    /// Whether any site has rules for heads.
    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        self.are_there
    }

    /// The changes to the answer for a decoded path of a site, by a file or by others; without a path those that all of its answers
    /// have. `origin` is that of the page whose script asks.
    pub(crate) fn changes(
        &mut self,
        (site, rules): (SiteId, &SiteRules),
        is_https: bool,
        (path, is_of_file): (&[u8], bool),
        origin: Option<&[u8]>,
    ) -> Option<Arc<HeadChanges>> {
        // Over plain HTTP no answer is strict (RFC 6797, section 7.2).
        if !(rules.paths.change_answers() || is_https && rules.hsts.is_some()) {
            return None;
        }
        let numbers = rules.paths.changing(path, is_of_file);
        let is_origin = |allowed: &String| allowed == "*" || origin == Some(allowed.as_bytes());
        let origin = rules.paths.origins(&numbers).iter().position(is_origin);
        let applied = Applied { site, is_https, rules: numbers, origin };
        if let Some(compiled) = self.compiled.get(&applied) {
            return Some(Arc::clone(compiled));
        }
        let compiled = Arc::new(compile(rules, &applied));
        // Beyond the bound they are compiled each time.
        if self.compiled.len() < HEAD_CHANGES_MAX {
            self.compiled.insert(applied, Arc::clone(&compiled));
        }
        Some(compiled)
    }
}

impl HeadChanges {
    /// The page of an error with this status, if there is one.
    pub(crate) fn error_page(&self, status: Status) -> Option<&str> {
        let is_for = |page: &&ErrorPage| page.statuses.iter().any(|statuses| statuses.contains(&status.0));
        Some(&self.error_pages.iter().find(is_for)?.html)
    }

    /// The changes of an answer with this status, if there are any.
    pub(crate) fn of(&self, status: Status) -> Option<&Changes> {
        let changes = match status.0 {
            // Informational, or a change of the protocol.
            ..200 => return None,
            204 => &self.of_methods,
            200..400 => &self.of_success,
            400.. => &self.of_error,
        };
        let is_empty = changes.left_out.is_empty() && changes.added.is_empty() && changes.hsts.is_none();
        (!is_empty).then_some(changes)
    }
}

impl Changes {
    /// Whether a field of this name stays.
    pub(crate) fn keep(&self, name: &[u8]) -> bool {
        !self.left_out.iter().any(|left_out| left_out.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Calls `field` with each added field. `has_hsts` tells whether the answer has `Strict-Transport-Security`.
    pub(crate) fn each_added(&self, has_hsts: bool, mut field: impl FnMut(&str, &[u8])) {
        self.added.iter().for_each(|(name, value)| field(name, value.as_bytes()));
        if let Some(value) = self.hsts.as_ref().filter(|_| !has_hsts) {
            field(STRICT, value.as_bytes());
        }
    }

    /// Whether the head of a file only gets further fields.
    #[inline]
    pub(crate) fn extend_files(&self) -> bool {
        self.extends_files
    }

    /// Copies the complete head of a file in HTTP/1 into `out`, changed.
    pub(crate) fn copy_file_head(&self, out: &mut Vec<u8>, head: &[u8]) {
        if self.extends_files {
            out.extend_from_slice(head.strip_suffix(END).unwrap_or(head));
            self.end(out, false);
        } else {
            self.copy(out, head, false);
        }
    }

    /// Copies a complete head of HTTP/1 into `out`, changed.
    pub(crate) fn copy(&self, out: &mut Vec<u8>, head: &[u8], has_hsts: bool) {
        let lines = head.strip_suffix(END).unwrap_or(head);
        if self.left_out.is_empty() {
            out.extend_from_slice(lines);
        } else {
            let stays =
                |line: &&[u8]| line.split(|byte| *byte == b':').next().is_some_and(|name| self.keep(name));
            lines
                .split_inclusive(|byte| *byte == b'\n')
                .filter(stays)
                .for_each(|line| out.extend_from_slice(line));
        }
        self.end(out, has_hsts);
    }

    /// Appends the added lines and the end of the head.
    fn end(&self, out: &mut Vec<u8>, has_hsts: bool) {
        out.extend_from_slice(&self.lines);
        if let Some(value) = self.hsts.as_ref().filter(|_| !has_hsts) {
            [STRICT, ": ", value, "\r\n"].iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
        }
        out.extend_from_slice(END);
    }

    /// Lets pages with one of these origins read the answer, if there are some; `place` is that of the page that asks.
    fn allow(&mut self, origins: &[String], place: Option<usize>, of: Answer) {
        if origins.is_empty() {
            return;
        }
        self.leave_out_all(ALLOW_ORIGIN);
        let mut add = |name: &str, value: &str| self.added.push((name.to_owned(), value.to_owned()));
        if origins != ["*"] {
            add("Vary", "Origin");
        }
        if let Some(place) = place {
            add(ALLOW_ORIGIN, &origins[place]);
            PREFLIGHT.iter().filter(|_| of == Answer::Methods).for_each(|(name, value)| add(name, value));
        }
    }

    fn leave_out_all(&mut self, name: &str) {
        if self.keep(name.as_bytes()) {
            self.left_out.push(name.to_owned());
        }
        self.added.retain(|(added, _)| !added.eq_ignore_ascii_case(name));
    }
}

/// Whether lines of fields have `Strict-Transport-Security`.
pub(crate) fn has_hsts(fields: &[u8]) -> bool {
    let is_hsts =
        |line: &[u8]| line.get(..STRICT.len()).is_some_and(|it| it.eq_ignore_ascii_case(STRICT.as_bytes()));
    fields.split(|byte| *byte == b'\n').any(is_hsts)
}

/// The kind of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Success,
    Methods,
    Error,
}

fn compile(rules: &SiteRules, applied: &Applied) -> HeadChanges {
    let changes = |of: Answer| {
        let hsts = rules.hsts.clone().filter(|_| applied.is_https);
        let mut changes = Changes { hsts, ..Changes::default() };
        for number in &applied.rules {
            let fields = &rules.paths.rules()[*number].fields;
            if of == Answer::Error && !fields.with_errors {
                continue;
            }
            let set = fields.set.iter().map(|(name, _)| name);
            set.chain(&fields.remove).for_each(|name| changes.leave_out_all(name));
            changes.added.extend(fields.set.iter().chain(&fields.add).cloned());
        }
        changes.allow(rules.paths.origins(&applied.rules), applied.origin, of);
        let line = |(name, value): &(String, String)| format!("{name}: {value}\r\n").into_bytes();
        let extends_files = OF_FILES.iter().all(|name| changes.keep(name.as_bytes()));
        Changes { lines: changes.added.iter().flat_map(line).collect(), extends_files, ..changes }
    };
    let error_page = |number: &usize| rules.paths.rules()[*number].error_page.clone();
    HeadChanges {
        of_success: changes(Answer::Success),
        of_methods: changes(Answer::Methods),
        of_error: changes(Answer::Error),
        error_pages: applied.rules.iter().filter_map(error_page).collect(),
    }
}
