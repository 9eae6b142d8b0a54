//! What becomes of finished jobs: results go into the caches and to everyone who waits.

use std::sync::Arc;

use crate::answer::{DENIED, EXHAUSTED, LOST, NOT_FOUND, READ_FAILED};
use crate::cache::{Content, NameEntry, NameKind, Version};
use crate::engine::Engine;
use crate::exchange::{Exchange, Refusal};
use crate::find::Finding;
use crate::jobs::{Job, JobId, JobKey, Outcome};
use crate::rules::SiteId;
use crate::slab::Key;
use crate::system::{FileStat, System};

/// What those who wait for a job are given.
enum Result<F> {
    Entry(Arc<NameEntry>),
    Listing(Arc<Version>, Arc<F>),
    /// The place was loaded; look again.
    Loaded,
    /// A small file, whole.
    Content(Arc<Content>),
    /// A part of a file, beginning at an offset.
    Bytes(u64, Vec<u8>),
    /// The file is no longer what its version says.
    Changed,
    Refused(Refusal),
}

impl<S: System> Engine<S> {
    pub(crate) fn finish_job(&mut self, id: JobId, outcome: Outcome<S::File>) {
        let Some(job) = self.jobs.take(id) else { return };
        let result = self.keep_result(&job, outcome);
        for waiter in job.waiters {
            self.give(waiter, id, &result);
        }
    }

    /// Puts what is of lasting use into the caches.
    fn keep_result(&mut self, job: &Job<S::File>, outcome: Outcome<S::File>) -> Result<S::File> {
        match (&job.key, outcome) {
            (JobKey::Find(site, path), Outcome::Found(finding)) => {
                Result::Entry(self.learn(*site, path, finding, job.since_ms))
            }
            (JobKey::List(site, path, json), Outcome::Listed(file, stat)) => {
                self.keep_listing(*site, path, *json, file, stat)
            }
            // A directory that may not be listed, or that went away before it was.
            (JobKey::List(..), Outcome::Found(Finding::Denied)) => Result::Refused(DENIED),
            (JobKey::List(..), Outcome::Found(Finding::Missing)) => Result::Refused(NOT_FOUND),
            (JobKey::Load(..), Outcome::Loaded) => Result::Loaded,
            (JobKey::Read(_, _, offset, length), Outcome::Bytes(bytes, stat)) => {
                let Some(version) = &job.version else { return Result::Refused(READ_FAILED) };
                // Less than was asked for means that the file ended early.
                if bytes.len() as u64 != *length || !stat.same_content(&version.stat) {
                    return Result::Changed;
                }
                if *length < version.stat.size_bytes || !self.contents.is_on() {
                    return Result::Bytes(*offset, bytes);
                }
                let content = self.content(version, &bytes);
                self.keep_content(version, &content);
                Result::Content(content)
            }
            (_, Outcome::Exhausted) => Result::Refused(EXHAUSTED),
            (key, Outcome::Lost) => {
                self.jobs.count(key.kind()).lost += 1;
                Result::Refused(LOST)
            }
            // A failed file system, or an answer that does not fit its question.
            _ => Result::Refused(READ_FAILED),
        }
    }

    fn keep_listing(
        &mut self,
        site: SiteId,
        path: &[u8],
        json: bool,
        file: S::File,
        stat: FileStat,
    ) -> Result<S::File> {
        let version = Version::of_listing(self.next_version(), site, stat, json);
        let version = Arc::new(version.keeping_fields(self.rules.optimizations.head_cache));
        let file = Arc::new(file);
        self.listings.push_back((site, path.into(), Arc::downgrade(&version)));
        if let Some(NameKind::Listing(listings)) = self.names.get(site, path).map(|entry| &entry.kind) {
            let place = if json { &listings.json } else { &listings.html };
            place.set(Arc::clone(&version));
            self.files.insert(version.id, Arc::clone(&file));
        }
        Result::Listing(version, file)
    }

    fn give(&mut self, waiter: Key, id: JobId, result: &Result<S::File>) {
        let Some(connection) = self.connections.get_mut(waiter) else { return };
        let Some(exchange) = &mut connection.exchange else { return };
        exchange.ahead.retain(|job| *job != id);
        if exchange.waiting != Some(id) {
            return;
        }
        exchange.waiting = None;
        exchange.take(result);
        self.continue_later(waiter);
    }
}

impl<F> Exchange<F> {
    fn take(&mut self, result: &Result<F>) {
        match result {
            Result::Entry(entry) => self.entry = Some(Arc::clone(entry)),
            Result::Listing(version, file) => {
                self.listing = Some(Arc::clone(version));
                self.file = Some((version.id, Arc::clone(file)));
            }
            Result::Loaded => {}
            Result::Content(content) => self.content = Some(Arc::clone(content)),
            Result::Bytes(offset, bytes) if *offset == self.at && self.has_begun() => {
                // Behind a head that is still to be sent.
                self.out.extend_from_slice(bytes);
                self.at += bytes.len() as u64;
                self.loads = 0;
            }
            // Handed over before its answer has begun: the next look will find its own way.
            Result::Bytes(..) => {}
            Result::Changed => self.changed = true,
            Result::Refused(refusal) => self.refused = Some(*refusal),
        }
    }
}
