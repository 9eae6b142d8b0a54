//! Decides what a request is answered with. Called when a request is whole, and again when
//! what it had to wait for is there.

use std::sync::Arc;

use flash_http::conditional::{Validators, Verdict, evaluate, range_applies};
use flash_http::negotiate::{Choice, Coding, accept_encoding, prefers_json};
use flash_http::range::{Ranges, parse_range};
use flash_http::request::{Body, Method, Request};
use flash_http::response::Status;
use flash_http::target::decode_path;

use crate::cache::{Content, Known, Listings, NameEntry, NameKind, Resource, Version};
use crate::connection::{Budget, Next};
use crate::counters::JobKind;
use crate::engine::Engine;
use crate::exchange::{Asked, Exchange, Refusal, Source};
use crate::jobs::{JobKey, Task, Urgency};
use crate::limits::{LISTINGS_MAX, SMALL_FILE_BYTES_MAX, TRIES_MAX};
use crate::rules::SiteId;
use crate::slab::Key;
use crate::steps::find_file::Search;
use crate::steps::read_file::Obtained;
use crate::system::System;

pub(crate) const METHOD_REFUSED: &str = "This server answers GET, HEAD and OPTIONS.";
pub(crate) const METHOD_UNKNOWN: &str = "The method is not known here.";
pub(crate) const NOT_FOUND: Refusal = (Status::NOT_FOUND, "There is nothing under this address.");
pub(crate) const DENIED: Refusal = (Status::FORBIDDEN, "This may not be read.");
const NO_SITE: Refusal = (Status::MISDIRECTED, "No site is configured for this host.");
const NOT_ACCEPTABLE: Refusal =
    (Status::NOT_ACCEPTABLE, "No coding of this file is acceptable to the client.");
pub(crate) const BUSY: Refusal = (Status::UNAVAILABLE, "The disk is too busy. Try again soon.");
pub(crate) const LOST: Refusal = (Status::UNAVAILABLE, "The disk did not answer in time. Try again soon.");
pub(crate) const EXHAUSTED: Refusal = (Status::UNAVAILABLE, "The server is at a limit. Try again soon.");
pub(crate) const READ_FAILED: Refusal = (Status::INTERNAL, "The file could not be read.");
pub(crate) const UNSTEADY: Refusal = (Status::UNAVAILABLE, "The file keeps changing. Try again soon.");

/// How an exchange comes by what it needs, or why not.
pub(crate) enum Step<T> {
    Ready(T),
    /// The exchange was parked or answered: its turn goes on like this.
    Over(Next),
}

/// What an answer is made from while it is decided on.
pub(crate) struct Deciding<'a, 'b, F> {
    pub(crate) key: Key,
    pub(crate) asked: &'a Asked<'b>,
    pub(crate) exchange: Option<Box<Exchange<F>>>,
    pub(crate) site: SiteId,
    pub(crate) path: &'a [u8],
    /// The file of a known name is not open any more: it is looked up, known or not.
    pub(crate) unopened: bool,
    /// Its file was opened for this request, by the worker or by a helper.
    pub(crate) opened: bool,
}

impl<S: System> Engine<S> {
    /// Answers a request, or parks it until a job is done.
    pub(crate) fn answer(
        &mut self,
        sys: &mut S,
        key: Key,
        asked: &Asked<'_>,
        mut exchange: Option<Box<Exchange<S::File>>>,
        budget: &mut Budget,
    ) -> Next {
        let request = &asked.request;
        if let Some(refusal) = exchange.as_mut().and_then(|e| e.refused.take()) {
            return self.refuse(key, request, exchange, refusal);
        }
        match request.method {
            Method::Get | Method::Head => {}
            Method::Options => return self.reply_options(key, request, exchange),
            Method::Known => {
                return self.refuse(key, request, exchange, (Status::METHOD_NOT_ALLOWED, METHOD_REFUSED));
            }
            Method::Unknown => {
                return self.refuse(key, request, exchange, (Status::NOT_IMPLEMENTED, METHOD_UNKNOWN));
            }
        }
        let Some(site) = self.router.route(request.host) else {
            return self.refuse(key, request, exchange, NO_SITE);
        };
        let encoded_slash = self.rules.sites[usize::from(site.0)].encoded_slash;
        let path = match decode_path(request.path, encoded_slash) {
            Ok(path) => path,
            Err(bad) => return self.refuse(key, request, exchange, (bad.status(), bad.reason())),
        };
        let mut changed = exchange.as_mut().is_some_and(|e| std::mem::take(&mut e.changed));
        let mut deciding =
            Deciding { key, asked, exchange, site, path: &path, unopened: false, opened: false };
        loop {
            let entry = match self.entry(sys, &mut deciding) {
                Step::Ready(entry) => entry,
                Step::Over(next) => return next,
            };
            let over = match &entry.kind {
                _ if std::mem::take(&mut changed) => None,
                NameKind::File(resource) => self.answer_file(sys, &mut deciding, &entry, resource, budget),
                NameKind::Missing => Some(self.refuse(key, request, deciding.exchange.take(), NOT_FOUND)),
                NameKind::Denied => Some(self.refuse(key, request, deciding.exchange.take(), DENIED)),
                NameKind::Redirect => {
                    Some(self.reply_redirect(key, request, deciding.exchange.take(), deciding.path))
                }
                NameKind::Listing(listings) => {
                    self.answer_listing(sys, &mut deciding, &entry, listings, budget)
                }
            };
            match over {
                Some(next) => return next,
                None => {
                    // What the entry says is no longer so: look again, but not for ever. A file that
                    // is only not open any more says nothing of its siblings in memory.
                    if !deciding.unopened {
                        self.forget(site, deciding.path, &entry);
                    }
                    let mut exchange = self.boxed(deciding.exchange.take());
                    exchange.entry = None;
                    exchange.listing = None;
                    exchange.file = None;
                    exchange.content = None;
                    exchange.tries = exchange.tries.saturating_add(1);
                    if exchange.tries > 3 * TRIES_MAX {
                        return self.refuse(key, request, Some(exchange), UNSTEADY);
                    }
                    deciding.exchange = Some(exchange);
                }
            }
        }
    }

    /// Answers a request that is known by the bytes of its head. None when it is not, or when
    /// what is known is no longer sure.
    #[inline]
    pub(crate) fn answer_known(
        &mut self,
        sys: &mut S,
        key: Key,
        head: &[u8],
        budget: &mut Budget,
    ) -> Option<Next> {
        let Some((known, content)) = self.find_known(head) else {
            self.counters.known_misses += 1;
            return None;
        };
        self.counters.known_hits += 1;
        self.counters.content_hits += 1;
        self.repeat_record(&known.record);
        budget.requests -= 1;
        Some(self.send_content(sys, key, &content, None, budget))
    }

    /// What is known of a head and is sure, with its content.
    #[inline]
    fn find_known(&self, head: &[u8]) -> Option<(Arc<Known>, Arc<Content>)> {
        let known = self.known.get(head)?;
        if !self.is_fresh(&known.entry) || self.draining {
            return None;
        }
        let content = Arc::clone(self.contents.get(known.version)?);
        Some((known, content))
    }

    /// What the path leads to.
    fn entry(&mut self, sys: &mut S, deciding: &mut Deciding<'_, '_, S::File>) -> Step<Arc<NameEntry>> {
        if let Some(entry) = deciding.exchange.as_ref().and_then(|e| e.entry.clone()) {
            deciding.opened = true;
            return Step::Ready(entry);
        }
        let unopened = std::mem::take(&mut deciding.unopened);
        let refusal = match self.find_file(sys, deciding.key, deciding.site, deciding.path, unopened) {
            Search::Entry(entry) => return Step::Ready(entry),
            Search::Opened(entry) => {
                deciding.opened = true;
                return Step::Ready(entry);
            }
            Search::Wait(job) => {
                let exchange = deciding.exchange.take();
                return Step::Over(self.park(deciding.key, deciding.asked, exchange, job));
            }
            Search::Hidden => NOT_FOUND,
            Search::Full => BUSY,
            Search::Exhausted => EXHAUSTED,
            Search::Failed => READ_FAILED,
        };
        let exchange = deciding.exchange.take();
        Step::Over(self.refuse(deciding.key, &deciding.asked.request, exchange, refusal))
    }

    /// Answers with a file. None when it has changed since its entry was made.
    fn answer_file(
        &mut self,
        sys: &mut S,
        deciding: &mut Deciding<'_, '_, S::File>,
        entry: &Arc<NameEntry>,
        resource: &Resource,
        budget: &mut Budget,
    ) -> Option<Next> {
        let request = &deciding.asked.request;
        let key = deciding.key;
        let Some(version) = choose(resource, request) else {
            return Some(self.refuse(key, request, deciding.exchange.take(), NOT_ACCEPTABLE));
        };
        let validators = Validators { etag: version.etag.as_bytes(), modified_s: version.modified_s };
        match evaluate(request, &validators) {
            Verdict::Proceed => {}
            Verdict::NotModified => {
                return Some(self.reply_not_modified(key, request, deciding.exchange.take(), version));
            }
            Verdict::PreconditionFailed => {
                let refusal =
                    (Status::PRECONDITION_FAILED, "The file is not in the state that was asked for.");
                return Some(self.refuse(key, request, deciding.exchange.take(), refusal));
            }
        }
        if request.method == Method::Head {
            return Some(self.reply_head_only(key, request, deciding.exchange.take(), version));
        }
        let ranges = match request.range {
            Some(field) if range_applies(request, &validators, self.wall_s()) => {
                parse_range(field, version.stat.size_bytes, &version.content_type)
            }
            _ => Ranges::Whole,
        };
        if ranges == Ranges::Unsatisfiable {
            let bytes = version.stat.size_bytes;
            return Some(self.reply_unsatisfiable(key, request, deciding.exchange.take(), bytes));
        }
        let source = match self.source(sys, deciding, entry, version)? {
            Step::Ready(source) => source,
            Step::Over(next) => return Some(next),
        };
        let exchange = self.with_head(deciding, &source);
        Some(match (ranges, source) {
            (Ranges::One(range), source) => self.reply_range(key, request, exchange, version, source, range),
            (Ranges::Many(ranges), source) => {
                self.reply_ranges(key, request, exchange, version, source, &ranges)
            }
            (_, Source::Memory(content)) if self.takes_kept_head(request) => {
                if content.head_bytes() == 0 {
                    return Some(self.send_headless(sys, key, version, &content, exchange, budget));
                }
                if exchange.is_none() && request.body == Body::None {
                    self.known.put(deciding.asked.head, entry, version.id, &self.record);
                }
                self.send_content(sys, key, &content, exchange, budget)
            }
            (_, source) => self.reply_whole(key, request, exchange, version, source),
        })
    }

    /// Answers with a listing of the directory. None when it has to be made anew.
    fn answer_listing(
        &mut self,
        sys: &mut S,
        deciding: &mut Deciding<'_, '_, S::File>,
        entry: &Arc<NameEntry>,
        listings: &Listings,
        budget: &mut Budget,
    ) -> Option<Next> {
        let (key, request) = (deciding.key, &deciding.asked.request);
        let json = prefers_json(request.accept.as_deref());
        let kept = if json { &listings.json } else { &listings.html };
        let own = deciding.exchange.as_ref().and_then(|e| e.listing.clone());
        let Some(version) = own.or_else(|| kept.get()) else {
            return Some(self.request_listing(deciding, entry, json));
        };
        if request.method == Method::Head {
            return Some(self.reply_head_only(key, request, deciding.exchange.take(), &version));
        }
        let source = match self.source(sys, deciding, entry, &version)? {
            Step::Ready(source) => source,
            Step::Over(next) => return Some(next),
        };
        let exchange = self.with_head(deciding, &source);
        Some(match source {
            Source::Memory(content) if self.takes_kept_head(request) && content.head_bytes() > 0 => {
                self.send_content(sys, key, &content, exchange, budget)
            }
            source => self.reply_whole(key, request, exchange, &version, source),
        })
    }

    /// The exchange for an answer from `source`. One from a file keeps its request's head: if the
    /// file turns out to have changed before anything was sent, it is answered anew.
    fn with_head(
        &mut self,
        deciding: &mut Deciding<'_, '_, S::File>,
        source: &Source<S::File>,
    ) -> Option<Box<Exchange<S::File>>> {
        let exchange = deciding.exchange.take();
        if !matches!(source, Source::File(..)) {
            return exchange;
        }
        let mut exchange = self.boxed(exchange);
        exchange.head = deciding.asked.head.to_vec();
        Some(exchange)
    }

    /// Has a helper make a listing.
    fn request_listing(
        &mut self,
        deciding: &mut Deciding<'_, '_, S::File>,
        entry: &Arc<NameEntry>,
        json: bool,
    ) -> Next {
        let key = deciding.key;
        let (site, path) = (deciding.site, deciding.path);
        let job = if self.has_room_for_listing() {
            let task = || Task::List { site, path: path.into(), json };
            let (job_key, now_ms) = (JobKey::List(site, path.into(), json), self.now.monotonic_ms);
            self.jobs.submit(job_key, Some(key), Urgency::Bounded, now_ms, None, task)
        } else {
            self.jobs.count(JobKind::List).refused += 1;
            None
        };
        let mut exchange = self.boxed(deciding.exchange.take());
        let Some(job) = job else {
            return self.refuse(key, &deciding.asked.request, Some(exchange), BUSY);
        };
        exchange.entry = Some(Arc::clone(entry));
        self.park(key, deciding.asked, Some(exchange), job)
    }

    /// Whether one more listing may be made: old ones that nobody is being sent are let go.
    fn has_room_for_listing(&mut self) -> bool {
        for _ in 0..self.listings.len() {
            self.listings.retain(|(_, _, listing)| listing.strong_count() > 0);
            if self.listings.len() + self.jobs.listings_len() < LISTINGS_MAX {
                return true;
            }
            let Some((site, path, listing)) = self.listings.pop_front() else { break };
            if let Some(entry) = self.names.get(site, &path).map(Arc::clone) {
                self.forget(site, &path, &entry);
            }
            if listing.strong_count() > 0 {
                self.listings.push_back((site, path, listing));
            }
        }
        self.listings.len() + self.jobs.listings_len() < LISTINGS_MAX
    }

    /// Where the body comes from: memory for a small file, else the file. None when it has
    /// changed, or is not open any more.
    fn source(
        &mut self,
        sys: &mut S,
        deciding: &mut Deciding<'_, '_, S::File>,
        entry: &Arc<NameEntry>,
        version: &Arc<Version>,
    ) -> Option<Step<Source<S::File>>> {
        if let Some(content) = self.contents.get(version.id) {
            self.counters.content_hits += 1;
            return Some(Step::Ready(Source::Memory(Arc::clone(content))));
        }
        if let Some(content) = deciding.exchange.as_ref().and_then(|e| e.content.clone()) {
            return Some(Step::Ready(Source::Memory(content)));
        }
        let tries = deciding.exchange.as_ref().map_or(0, |e| e.tries);
        let held =
            deciding.exchange.as_ref().and_then(|e| e.file.as_ref()).filter(|(id, _)| *id == version.id);
        let is_first_look = held.is_none();
        // An entry that was confirmed without opening may have lost its file to the bound.
        let Some(file) = held.map(|(_, file)| Arc::clone(file)).or_else(|| self.files.get(version.id)) else {
            deciding.unopened = matches!(entry.kind, NameKind::File(_));
            return None;
        };
        if is_first_look {
            self.count_file(deciding.opened, version.stat.size_bytes);
        }
        let refusal = match self.obtain(sys, deciding.key, version, &file, tries) {
            Obtained::Source(source) => return Some(Step::Ready(source)),
            Obtained::Changed => return None,
            Obtained::Wait(job) if tries <= 3 * TRIES_MAX => {
                let mut exchange = self.boxed(deciding.exchange.take());
                exchange.entry = Some(Arc::clone(entry));
                exchange.file = Some((version.id, file));
                return Some(Step::Over(self.park(deciding.key, deciding.asked, Some(exchange), job)));
            }
            Obtained::Wait(job) => {
                self.jobs.leave(job, deciding.key);
                UNSTEADY
            }
            Obtained::Full => BUSY,
            Obtained::Failed => READ_FAILED,
        };
        let exchange = deciding.exchange.take();
        Some(Step::Over(self.refuse(deciding.key, &deciding.asked.request, exchange, refusal)))
    }

    /// A file is needed for a request: its content was not in memory.
    fn count_file(&mut self, opened: bool, size_bytes: u64) {
        let files = if opened { &mut self.counters.file_misses } else { &mut self.counters.file_hits };
        *files += 1;
        self.counters.content_misses +=
            u64::from(self.contents.is_on() && size_bytes <= SMALL_FILE_BYTES_MAX);
    }

    /// Whether the head that lies in front of a content fits this request.
    fn takes_kept_head(&self, request: &Request<'_>) -> bool {
        request.keep_alive && request.version == flash_http::request::Version::Http11 && !self.draining
    }
}

/// The variant to answer with; None when the client rules all of them out.
fn choose<'r>(resource: &'r Resource, request: &Request<'_>) -> Option<&'r Arc<Version>> {
    if !resource.plain.varies {
        return Some(&resource.plain);
    }
    let variant = |coding: Coding| {
        let place = Coding::ALL.iter().position(|c| *c == coding)?;
        resource.coded[place].as_ref()
    };
    match accept_encoding(request.accept_encoding.as_deref()).choose(|coding| variant(coding).is_some()) {
        Choice::Identity => Some(&resource.plain),
        Choice::Coded(coding) => variant(coding),
        Choice::NotAcceptable => None,
    }
}
