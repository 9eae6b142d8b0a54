//! Decides which answers are allowed, from the history of the disk and the RFCs alone: nothing here calls the
//! code under test.
//!
//! An answer from a file must be one state of that file, head and every byte. The state must have been
//! current during the request or within the freshness interval before it. If a name had left memory, or a
//! check of it failed, an older state is allowed up to the stale limit plus the longest time of the job that
//! checks it. An error needs an excuse: an event since the request began that concerned this file, its path,
//! or all requests.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use flash_engine::limits::{RETRY_AFTER_S_MAX, SIBLINGS_MS};
use flash_engine::{FileStat, ListingForm, NO_FORM};
use flash_http::negotiate::Coding;

use crate::ask::{Ask, Condition, Method, date, seconds};
use crate::bounded::Bounds;
use crate::disk::{CODINGS, Disk, Lead};
use crate::machine::Content;
use crate::machine::helpers::listing;
use crate::machine::response::Response;
use crate::machine::store::compress;
use crate::plan::{RULE_FIELD, RULE_VALUES, RunRule};

/// An expected piece of a body.
#[derive(Debug)]
pub(crate) enum Piece {
    Text(Vec<u8>),
    /// A range of a file: content, start and end.
    File(Content, u64, u64),
    /// An error page: its status, its length, and the bytes received so far.
    Page(u16, usize, Vec<u8>),
    /// A listing, and the bytes received so far.
    Listing(Listing, Vec<u8>),
}

/// An expected listing.
#[derive(Debug)]
pub(crate) struct Listing {
    path: String,
    form: ListingForm,
    pub(crate) bytes: usize,
    /// The earliest and latest time at which it was made.
    made_ms: (u64, u64),
}

impl Listing {
    /// Whether these bytes are the listing.
    pub(crate) fn judge(&self, bytes: &[u8]) -> Result<(), String> {
        let says = String::from_utf8_lossy(bytes);
        let made_ms = says.split(" at ").nth(1).and_then(|rest| rest.get(..20)?.parse::<u64>().ok());
        let made_ms = made_ms.ok_or_else(|| format!("no listing: {}", bytes.escape_ascii()))?;
        let of_coding = self.form.coding.map_or(0, |coding| coding.token().len());
        if bytes != listing(&self.path, self.form, bytes.len().saturating_sub(of_coding) as u64, made_ms) {
            return Err("another listing".into());
        }
        let (first_ms, last_ms) = self.made_ms;
        let is_of_its_time = (first_ms..=last_ms).contains(&made_ms);
        if is_of_its_time {
            Ok(())
        } else {
            Err(format!("the listing was made at {made_ms}, not between {first_ms} and {last_ms}"))
        }
    }
}

/// The states of each name that clients were sent, with the turn in which each was first sent. Names are
/// indices of [`Disk::named`].
pub(crate) type Seen = RefCell<BTreeMap<usize, BTreeMap<usize, u64>>>;

/// Facts besides the history of the disk.
pub(crate) struct Facts<'a> {
    pub(crate) disk: &'a Disk,
    pub(crate) now_ms: u64,
    pub(crate) freshness_ms: u64,
    /// No state is allowed that ended longer than this before a request, whatever the disk does.
    pub(crate) old_ms: u64,
    pub(crate) head_ms: u64,
    /// When something last happened that concerns all requests.
    pub(crate) excuse_ms: u64,
    pub(crate) draining: bool,
    /// The multiple to which every head is padded.
    pub(crate) head_align_bytes: usize,
    pub(crate) rule: RunRule,
    pub(crate) bounds: Bounds,
    /// The readings of the wall clock, each with the time until which it was valid; the last one is current.
    pub(crate) walls: &'a [(u64, i64)],
    /// The earliest reading of the wall clock.
    pub(crate) wall_min_ns: i128,
    pub(crate) listing_bytes: u64,
    /// No listing is allowed that was made longer than this before its request.
    pub(crate) listing_old_ms: u64,
    pub(crate) turn: u64,
    /// None if names are not cached.
    pub(crate) seen: Option<&'a Seen>,
}

/// A state of a file that could be the answer.
struct Candidate<'a> {
    place: usize,
    /// The number of the state.
    number: usize,
    stat: &'a FileStat,
    content: &'a Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Failed,
    NotModified,
    Unsatisfiable,
    Whole,
    Parts(Vec<(u64, u64)>),
}

type Judged = Result<VecDeque<Piece>, String>;

impl Facts<'_> {
    /// The facts for a client of HTTP/2, whose heads are not padded.
    pub(crate) fn of_streams(&self) -> Self {
        Self { head_align_bytes: 1, rule: RunRule::None, ..*self }
    }

    /// Whether an error or a closed connection has an excuse.
    pub(crate) fn is_excused(&self, ask: &Ask) -> bool {
        self.excuse_ms >= ask.first_ms
            || ask.target.is_some_and(|target| self.disk.is_excused(target, ask.first_ms))
    }

    /// Whether the request began so long ago that it can be given up.
    pub(crate) fn is_late(&self, ask: &Ask) -> bool {
        self.now_ms.min(ask.whole_ms) - ask.first_ms >= self.head_ms || self.excuse_ms >= ask.first_ms
    }

    /// Returns the body that must follow this head.
    pub(crate) fn judge(&self, ask: &Ask, head: &Response) -> Judged {
        self.judge_date(ask, head)?;
        let retry_after_s = head.field("Retry-After").and_then(|text| text.parse().ok());
        if [429, 503].contains(&head.status)
            && !retry_after_s.is_some_and(|s| (1..=RETRY_AFTER_S_MAX).contains(&s))
        {
            return Err(format!("the {} has no Retry-After", head.status));
        }
        if !head.head.len().is_multiple_of(self.head_align_bytes) {
            return Err(format!("the head has {} bytes", head.head.len()));
        }
        let length = head.length();
        let page = || {
            let mut pieces = VecDeque::new();
            // If a request is incomplete, the server does not know that it is a HEAD.
            if ask.method != Method::Head || head.status == 408 {
                pieces.push_back(Piece::Page(head.status, length.unwrap_or(0), Vec::new()));
            }
            Ok(pieces)
        };
        let status = head.status;
        let Some(target) = ask.target else {
            let refused = [400, 408, 413, 414, 417, 431, 501, 505].contains(&status);
            let is_refused = (refused || (ask.hoards && status == 503)) && head.closes();
            return if is_refused { page() } else { Err(format!("{status} for a malformed request")) };
        };
        if status == 408 {
            let late = self.is_late(ask) && head.closes();
            return if late { page() } else { Err("408 before the timeout".into()) };
        }
        let site = self.disk.targets[target].site;
        let is_over_bound = !ask.astray && ask.beside.may_refuse(self.bounds, site, status);
        let refuses_body = ask.has_body && matches!(ask.method, Method::Post | Method::Unknown);
        // A 503 can have another reason, and then the body is read.
        let may_differ = self.draining || (ask.has_body && is_over_bound);
        if !may_differ && head.closes() != (ask.closes || refuses_body) {
            return Err(format!("the announcement of a close is wrong: {}", head.closes()));
        }
        if self.rule != RunRule::None && !ask.astray {
            self.judge_rule(head)?;
        }
        if [500, 503].contains(&status) && self.is_excused(ask) {
            return page();
        }
        if is_over_bound {
            return page();
        }
        let expected = match (ask.method, &self.disk.targets[target].lead) {
            (Method::Options, _) if status == 204 => return Ok(VecDeque::new()),
            (Method::Options, _) => 204,
            (Method::Post, _) => 405,
            (Method::Unknown, _) => 501,
            _ if ask.astray => 421,
            (_, Lead::Redirect) => {
                let location = format!("{}/", self.disk.targets[target].path);
                if head.field("Location") == Some(&location) { 301 } else { 0 }
            }
            (_, Lead::Denied) => 403,
            (_, Lead::Missing) => 404,
            (_, Lead::Error) if status == 500 => 500,
            (_, Lead::Error) => 503,
            (_, Lead::Listing) if status == 200 => {
                return self.listing(ask, head, &self.disk.targets[target].path);
            }
            (_, Lead::Listing) => 200,
            (_, Lead::File { plain, coded }) => return self.judge_file(ask, head, *plain, coded, page),
        };
        if status == expected { page() } else { Err(format!("{status} instead of {expected}")) }
    }

    fn judge_date(&self, ask: &Ask, head: &Response) -> Result<(), String> {
        let said = head.field("Date").ok_or("no date")?;
        let since = self.walls.iter().filter(|(until_ms, _)| *until_ms >= ask.first_ms);
        let ok = since.into_iter().any(|(_, wall_s)| date(*wall_s) == said);
        if ok { Ok(()) } else { Err(format!("the Date was not current: {said}")) }
    }

    /// The head is as the rule makes it, once.
    fn judge_rule(&self, head: &Response) -> Result<(), String> {
        let count = head.head.matches(&format!("\r\n{RULE_FIELD}: ")).count();
        let is_replaced = self.rule == RunRule::Adds || head.field("Accept-Ranges").is_none();
        let is_right =
            count == 1 && head.field(RULE_FIELD) == Some(self.rule_value(head.status)) && is_replaced;
        if is_right { Ok(()) } else { Err(format!("no rule was applied, or several were: {}", head.head)) }
    }

    fn rule_value(&self, status: u16) -> &'static str {
        if status < 400 { RULE_VALUES[0] } else { RULE_VALUES[1] }
    }

    /// The states under a name that this request can be answered from.
    fn candidates<'d>(&'d self, ask: &Ask, place: usize, strict: bool) -> Vec<Option<Candidate<'d>>> {
        self.candidates_since(ask, place, if strict { self.freshness_ms } else { self.old_ms })
    }

    /// The candidates that were current at most this long before the request.
    fn candidates_since<'d>(&'d self, ask: &Ask, place: usize, known_ms: u64) -> Vec<Option<Candidate<'d>>> {
        let since_ms = ask.first_ms.saturating_sub(known_ms);
        let states = self.disk.named[place].states.iter().enumerate();
        states
            .filter(|(_, state)| state.until_ms >= since_ms && state.until_ms > 0)
            .map(|(number, state)| {
                state.file.as_ref().map(|(stat, content)| Candidate { place, number, stat, content })
            })
            .collect()
    }

    fn judge_file(
        &self,
        ask: &Ask,
        head: &Response,
        plain: usize,
        coded: &[Option<usize>; 3],
        page: impl Fn() -> Judged,
    ) -> Judged {
        let places = [Some(plain)].into_iter().chain(*coded).flatten();
        let strict = places.into_iter().all(|place| self.disk.named[place].strict);
        let status = head.status;
        if status == 404 {
            let was_missing = self.candidates(ask, plain, strict).iter().any(Option::is_none);
            return if was_missing { page() } else { Err("404 for a file that exists".into()) };
        }
        let mut judged = Err(format!("{status} for a file that does not exist"));
        for there in self.siblings(ask, plain, coded, strict) {
            judged = self.judge_variant(ask, head, (plain, coded, there), strict, &page);
            if judged.is_ok() {
                break;
            }
        }
        judged
    }

    /// Which combinations of siblings the server can have found, given the states of the file and of each
    /// sibling.
    fn siblings(&self, ask: &Ask, plain: usize, coded: &[Option<usize>; 3], strict: bool) -> Vec<[bool; 3]> {
        let mut found = Vec::new();
        for plain in self.candidates(ask, plain, strict).iter().flatten() {
            let may_be = |place: Option<usize>, there: bool| {
                let Some(place) = place else { return !there };
                // A sibling that did not stand for its file is not looked up again for a while.
                let absent_ms = if there { 0 } else { SIBLINGS_MS };
                let known_ms = if strict { self.freshness_ms } else { self.old_ms };
                let states = self.candidates_since(ask, place, known_ms + absent_ms);
                states.iter().any(|s| s.as_ref().is_some_and(|s| stands_for(s.stat, plain.stat)) == there)
            };
            for bits in 0..8 {
                let there = [0, 1, 2].map(|place| bits >> place & 1 == 1);
                if coded.iter().zip(there).all(|(place, there)| may_be(*place, there))
                    && !found.contains(&there)
                {
                    found.push(there);
                }
            }
        }
        found
    }

    /// Judges an answer from a file with these siblings.
    fn judge_variant(
        &self,
        ask: &Ask,
        head: &Response,
        (plain, coded, there): (usize, &[Option<usize>; 3], [bool; 3]),
        strict: bool,
        page: &impl Fn() -> Judged,
    ) -> Judged {
        let status = head.status;
        let coding = ask.coding(there);
        if coding.is_none_or(|coding| coding == 3)
            && let Some(judged) = self.judge_form(ask, head, (plain, strict), page)
        {
            return judged;
        }
        let Some(coding) = coding else {
            return if status == 406 { page() } else { Err(format!("{status} instead of 406")) };
        };
        let place = coded.get(coding).copied().flatten().unwrap_or(plain);
        let candidates = self.candidates(ask, place, strict);
        let mut why = "no state of the file has this tag".to_owned();
        for candidate in candidates.iter().flatten() {
            let tag = self.disk.etag(candidate.stat, coding);
            // If the clock was behind the file's time, dates prove little.
            let fuzzy = candidate.stat.modified_ns + 2_000_000_000 > self.wall_min_ns;
            let verdict = verdict(ask, candidate.stat, &tag);
            match status {
                412 if fuzzy || verdict == Verdict::Failed => return page(),
                416 if fuzzy || verdict == Verdict::Unsatisfiable => {
                    let size = format!("bytes */{}", candidate.stat.size_bytes);
                    if head.field("Content-Range") == Some(&size) {
                        return page();
                    }
                    why = "the 416 has a wrong size".into();
                }
                200 | 206 | 304 if head.field("ETag") == Some(&tag) => {
                    self.judge_fields(ask, head, candidate.stat, coding, there, fuzzy)?;
                    self.judge_order(ask, head, candidate)?;
                    return self.judge_content(ask, head, candidate, &verdict, fuzzy);
                }
                _ => {}
            }
        }
        Err(format!("{status}: {why}"))
    }

    /// Judges an answer from a compressed form of a file. None if the answer does not claim to be one.
    fn judge_form(
        &self,
        ask: &Ask,
        head: &Response,
        (plain, strict): (usize, bool),
        page: &impl Fn() -> Judged,
    ) -> Option<Judged> {
        let target = ask.target?;
        let (_, takes) = ask.encoding.filter(|_| ask.ranges.is_empty())?;
        let candidates = self.candidates(ask, plain, strict);
        let candidates = candidates.iter().flatten();
        let candidates = candidates.filter(|candidate| self.disk.is_compressed(target, candidate.stat));
        for candidate in candidates {
            let has_forms = compress(candidate.content, Coding::Br) != NO_FORM;
            // A file without forms has none in any coding. The server finds that out one by one.
            let codings =
                takes.iter().copied().take_while(|coding| *coding < 3).take(if has_forms { 1 } else { 3 });
            for coding in codings {
                let tag = self.disk.etag(candidate.stat, coding);
                // Its tag is weak: it never matches strongly.
                let verdict = match &ask.condition {
                    Some(Condition::Match(tags)) if tags != "*" => Verdict::Failed,
                    _ => verdict(ask, candidate.stat, &tag),
                };
                if head.status == 412 && has_forms && verdict == Verdict::Failed {
                    return Some(page());
                }
                if head.field("ETag") == Some(&format!("W/{tag}")) {
                    return Some(self.judge_content_of_form(ask, head, candidate, (coding, &verdict)));
                }
            }
        }
        None
    }

    fn judge_content_of_form(
        &self,
        ask: &Ask,
        head: &Response,
        candidate: &Candidate<'_>,
        (coding, verdict): (usize, &Verdict),
    ) -> Judged {
        let fuzzy = candidate.stat.modified_ns + 2_000_000_000 > self.wall_min_ns;
        self.judge_fields(ask, head, candidate.stat, coding, [true; 3], fuzzy)?;
        self.judge_order(ask, head, candidate)?;
        let form = compress(candidate.content, Coding::ALL[coding]);
        match head.status {
            // A client can say that it has a form which the file does not have.
            304 if fuzzy || *verdict == Verdict::NotModified => Ok(VecDeque::new()),
            200 if (fuzzy || *verdict == Verdict::Whole)
                && form != NO_FORM
                && head.length() == Some(form.len()) =>
            {
                let is_sent = ask.method != Method::Head;
                Ok(is_sent.then_some(Piece::Text(form)).into_iter().collect())
            }
            status => Err(format!("{status} with {:?} bytes of a form, not {verdict:?}", head.length())),
        }
    }

    fn judge_fields(
        &self,
        ask: &Ask,
        head: &Response,
        stat: &FileStat,
        coding: usize,
        there: [bool; 3],
        fuzzy: bool,
    ) -> Result<(), String> {
        let modified = date(seconds(stat.modified_ns));
        if !fuzzy && head.field("Last-Modified") != Some(&modified) {
            return Err(format!("Last-Modified is not {modified}"));
        }
        let is_compressed = ask.target.is_some_and(|target| self.disk.is_compressed(target, stat));
        let varies = there != [false; 3] || is_compressed;
        if head.field("Vary") != varies.then_some("Accept-Encoding") {
            return Err("Vary".into());
        }
        if head.status == 304 {
            return Ok(());
        }
        if head.field("Content-Encoding") != CODINGS.get(coding).map(|(_, name)| *name) {
            return Err("Content-Encoding".into());
        }
        let wanted = ask.target.map_or("", |target| self.disk.targets[target].content_type);
        let said = head.field("Content-Type").unwrap_or_default();
        if said != wanted && !said.starts_with("multipart/byteranges; boundary=") {
            return Err(format!("Content-Type is not {wanted}"));
        }
        Ok(())
    }

    /// Checks that no request gets an older state than an earlier request got. A file written in place is
    /// exempt: its entry is dropped, and a state found by an older look-up can follow.
    fn judge_order(&self, ask: &Ask, head: &Response, candidate: &Candidate<'_>) -> Result<(), String> {
        let (Some(seen), Some(target), Some(whole_turn)) = (self.seen, ask.target, ask.whole_turn) else {
            return Ok(());
        };
        let written = self.disk.files_of(target).iter().any(|place| self.disk.named[*place].written);
        if written || ask.method != Method::Get || head.status == 304 {
            return Ok(());
        }
        let mut seen = seen.borrow_mut();
        let states = seen.entry(candidate.place).or_default();
        let newer = states.range(candidate.number + 1..).find(|(_, turn)| **turn < whole_turn);
        if let Some((number, turn)) = newer {
            let sent = candidate.number;
            return Err(format!("state {sent} of the file, although state {number} was sent in turn {turn}"));
        }
        states.entry(candidate.number).or_insert(self.turn);
        Ok(())
    }

    /// The body of a listing.
    fn listing(&self, ask: &Ask, head: &Response, path: &str) -> Judged {
        let is_compressed = ask.target.is_some_and(|target| self.disk.compresses_at(target));
        let taken = ask.encoding.filter(|_| is_compressed).and_then(|(_, takes)| takes.first().copied());
        let coding = taken.and_then(|place| Coding::ALL.get(place).copied());
        if head.field("Content-Encoding") != coding.map(Coding::token) {
            return Err(format!("the listing is not in {coding:?}"));
        }
        let form = ListingForm { json: ask.json, coding, ..ListingForm::default() };
        let bytes = listing(path, form, self.listing_bytes, 0).len();
        if head.length() != Some(bytes) {
            return Err(format!("Content-Length is not {bytes}"));
        }
        let made_ms = (ask.first_ms.saturating_sub(self.listing_old_ms), self.now_ms);
        let listing = Listing { path: path.to_owned(), form, bytes, made_ms };
        let is_sent = ask.method != Method::Head;
        Ok(is_sent.then(|| Piece::Listing(listing, Vec::new())).into_iter().collect())
    }

    fn judge_content(
        &self,
        ask: &Ask,
        head: &Response,
        candidate: &Candidate<'_>,
        verdict: &Verdict,
        fuzzy: bool,
    ) -> Judged {
        let size_bytes = candidate.stat.size_bytes;
        let ranges = ask.parts(size_bytes).unwrap_or_default();
        let allowed: &[Verdict] = &if fuzzy {
            vec![Verdict::NotModified, Verdict::Whole, Verdict::Parts(ranges)]
        } else {
            vec![verdict.clone()]
        };
        match head.status {
            304 if allowed.contains(&Verdict::NotModified) => return Ok(VecDeque::new()),
            200 if allowed.contains(&Verdict::Whole) => {
                return self.body(ask, head, candidate.content, &[(0, size_bytes)]);
            }
            206 => {
                if let Some(Verdict::Parts(parts)) =
                    allowed.iter().find(|verdict| matches!(verdict, Verdict::Parts(_)))
                {
                    return self.body(ask, head, candidate.content, parts);
                }
            }
            _ => {}
        }
        Err(format!("{} instead of one of {allowed:?}", head.status))
    }

    /// The pieces of a body. Its head must announce them.
    fn body(&self, ask: &Ask, head: &Response, content: &Content, parts: &[(u64, u64)]) -> Judged {
        let mut pieces = VecDeque::new();
        let size_bytes = content.len();
        let range = |(start, end): (u64, u64)| format!("bytes {start}-{}/{size_bytes}", end - 1);
        let mut length = 0;
        if let ([part], 206) = (parts, head.status)
            && head.field("Content-Range") != Some(&range(*part))
        {
            return Err(format!("Content-Range is not {}", range(*part)));
        }
        let boundary = (parts.len() > 1)
            .then(|| head.field("Content-Type")?.strip_prefix("multipart/byteranges; boundary="))
            .flatten();
        for (number, part) in parts.iter().enumerate() {
            if parts.len() > 1 {
                let boundary = boundary.ok_or("no boundary")?;
                let target = ask.target.ok_or("no target")?;
                let line_end = if number > 0 { "\r\n" } else { "" };
                let content_type = self.disk.targets[target].content_type;
                let text = format!(
                    "{line_end}--{boundary}\r\nContent-Type: {content_type}\r\nContent-Range: {}\r\n\r\n",
                    range(*part)
                );
                length += text.len() as u64;
                pieces.push_back(Piece::Text(text.into_bytes()));
            }
            length += part.1 - part.0;
            pieces.push_back(Piece::File(content.clone(), part.0, part.1));
        }
        if let Some(boundary) = boundary {
            let text = format!("\r\n--{boundary}--\r\n");
            length += text.len() as u64;
            pieces.push_back(Piece::Text(text.into_bytes()));
        }
        if head.length() != Some(length as usize) {
            return Err(format!("Content-Length is not {length}"));
        }
        if ask.method == Method::Head {
            pieces.clear();
        }
        Ok(pieces)
    }
}

/// Whether a sibling can be sent instead of its file: it is neither empty nor older.
pub(crate) fn stands_for(sibling: &FileStat, plain: &FileStat) -> bool {
    let is_older = sibling.modified_ns < plain.modified_ns;
    let whole_second = sibling.modified_ns % 1_000_000_000 == 0
        && seconds(sibling.modified_ns) == seconds(plain.modified_ns);
    (sibling.size_bytes > 0 || plain.size_bytes == 0) && (!is_older || whole_second)
}

/// The verdict by RFC 9110, sections 13.2.2 and 14.2.
fn verdict(ask: &Ask, stat: &FileStat, tag: &str) -> Verdict {
    let modified_s = seconds(stat.modified_ns);
    match &ask.condition {
        Some(Condition::Match(tags)) if tags != "*" && tags != tag => return Verdict::Failed,
        Some(Condition::UnmodifiedSince(date_s)) if modified_s > *date_s => return Verdict::Failed,
        Some(Condition::NoneMatch(tags)) if tags == "*" || tags == tag => return Verdict::NotModified,
        Some(Condition::ModifiedSince(date_s)) if modified_s <= *date_s => return Verdict::NotModified,
        _ => {}
    }
    let whole = match &ask.if_range {
        Some(Condition::Match(wanted)) => wanted != tag,
        Some(Condition::ModifiedSince(date_s)) => modified_s != *date_s,
        _ => false,
    };
    match ask.parts(stat.size_bytes) {
        Some(_) if whole => Verdict::Whole,
        None => Verdict::Whole,
        Some(parts) if parts.is_empty() => Verdict::Unsatisfiable,
        Some(parts) => Verdict::Parts(parts),
    }
}
