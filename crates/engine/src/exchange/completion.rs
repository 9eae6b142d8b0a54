//! Completion of jobs: stores the result and passes it to every exchange that waits for it. The death of a
//! helper arrives here as [`Outcome::Lost`]. Called by [`Engine`](crate::Engine).

use std::sync::Arc;

use super::relay::Search;
use super::{Exchange, Exchanges, Halt, Opener, Relay, State, Wake};
use crate::caches::{Content, ContentBytes, LookedUp, MadeListing, NameEntry, Version};
use crate::context::Core;
use crate::handed_over::HandedOver;
use crate::handler::{DENIED, EXHAUSTED, Kept, LOST, NOT_FOUND, READ_FAILED, Refusal, SPOOL_FAILED, content};
use crate::jobs::{Job, JobKey};
use crate::machine::{FileStat, Finding, JobId, Outcome};
use crate::slab::{ExchangeKey, SpooledKey};

/// The result of a job as the waiting exchanges see it.
enum JobResult<F> {
    Entry(Arc<NameEntry>),
    Listing(Arc<Version>, Arc<F>),
    /// The part was loaded; look again.
    Loaded,
    /// A piece of an answer, compressed.
    Deflated(Arc<[u8]>),
    /// All of a small file.
    Content(Arc<Version>, Arc<Content>),
    /// A part of a file, starting at this offset, and the file's state after it was read.
    Bytes(u64, HandedOver, FileStat),
    /// The file is no longer in the state that its version describes.
    Changed,
    Refused(Refusal),
}

/// Takes the result of a job and passes it to the exchanges that wait for it. Calls `wake` with the opener of
/// each exchange that can continue.
pub(crate) fn finish_job<F>(
    core: &mut Core<F>,
    exchanges: &mut Exchanges<F>,
    id: JobId,
    outcome: Outcome<F>,
    mut wake: impl FnMut(Opener),
) {
    let now_ms = core.clock.ms();
    let Some(mut job) = core.jobs.finish(id, now_ms) else { return };
    let waits_ms = job.waits_ms(now_ms);
    let waiters = std::mem::take(&mut job.waiters);
    let result = keep_result(core, (id, job), outcome);
    for waiter in waiters {
        if let Some(opener) = exchanges.deliver(waiter, (id, waits_ms), &result) {
            wake(opener);
        }
    }
}

/// Ends the short waits whose jobs are not done in time: these requests are answered from their stale entries. Calls
/// `wake` with the opener of each.
pub(crate) fn end_short_waits<F>(
    core: &mut Core<F>,
    exchanges: &mut Exchanges<F>,
    mut wake: impl FnMut(Opener),
) {
    let now_ms = core.clock.ms();
    while let Some(key) = core.jobs.end_short_wait(now_ms) {
        let Some(mut exchange) = exchanges.0.lend(key.0) else { continue };
        if let State::Waiting(_, mut parked) = exchange.state {
            parked.found.entry = parked.found.stale.take();
            exchange.state = State::Woken(parked, Wake::LookAgain);
            wake(exchange.opener);
        }
        exchanges.put_back(key, exchange);
    }
}

/// Stores a result that later requests can use, and turns it into result for the exchanges.
fn keep_result<F>(
    core: &mut Core<F>,
    (id, job): (JobId, Job<F, Arc<Version>>),
    outcome: Outcome<F>,
) -> JobResult<F> {
    let now = core.clock.now;
    match (job.key, outcome) {
        (JobKey::Find(site, path), Outcome::Found(finding)) => {
            let name = LookedUp { site, path: &path, as_of_ms: job.since_ms, is_own: false };
            JobResult::Entry(core.caches.learn(name, finding, now))
        }
        (JobKey::List(site, path, form), Outcome::Listed(file, stat, read_ms)) => {
            let listing = MadeListing { site, path: &path, form, file, stat, read_ms };
            let (version, file) = core.caches.keep_listing(listing, now.monotonic_ms());
            JobResult::Listing(version, file)
        }
        // The server lacks permission to list the directory, or the directory went away before it was listed.
        (JobKey::List(..), Outcome::Found(Finding::Denied)) => JobResult::Refused(DENIED),
        (JobKey::List(..), Outcome::Found(Finding::Missing)) => JobResult::Refused(NOT_FOUND),
        (JobKey::Fill(..) | JobKey::Warm(..) | JobKey::Load(..), Outcome::Loaded)
        | (JobKey::Close(..), Outcome::Closed) => JobResult::Loaded,
        (JobKey::Read(_, _, offset, length), Outcome::Bytes(bytes, stat)) => {
            let Some(version) = job.subject else { return JobResult::Refused(READ_FAILED) };
            let is_whole = length == version.stat.size_bytes && core.rules.has_store;
            let is_true =
                if is_whole { stat.same_content(&version.stat) } else { stat.may_continue(&version.stat) };
            // Fewer bytes than requested mean that the file ended early.
            if bytes.len() as u64 != length || !is_true {
                return JobResult::Changed;
            }
            if !is_whole {
                return JobResult::Bytes(offset, core.handed_over.hold(bytes), stat);
            }
            let content = content(core, &version, ContentBytes::Own(bytes.into()));
            JobResult::Content(version, content)
        }
        (JobKey::SpoolWrite(_, body, slot), outcome) => {
            let late = core.jobs.is_given_up(id).then_some(id);
            let is_written = matches!(outcome, Outcome::Written);
            core.spool.wrote(body, slot, is_written, late);
            // An answer that cannot go to the file slows its server down.
            let continues = is_written || matches!(body, SpooledKey::Answer(_));
            if continues { JobResult::Loaded } else { JobResult::Refused(SPOOL_FAILED) }
        }
        (JobKey::SpoolRead(_, body, _), outcome) => {
            let bytes = match outcome {
                Outcome::Bytes(bytes, _) => Some(core.handed_over.hold(bytes)),
                _ => None,
            };
            if core.spool.took(body, id, bytes) {
                JobResult::Loaded
            } else {
                JobResult::Refused(SPOOL_FAILED)
            }
        }
        (JobKey::SpoolGiveBack(_), outcome) => {
            let late = core.jobs.is_given_up(id).then_some(id);
            core.spool.gave_back(&outcome, late);
            JobResult::Loaded
        }
        (JobKey::Verify(_, pair), Outcome::Verified(is_right)) => {
            core.caches.password_results.put(pair, is_right, now.monotonic_ms());
            JobResult::Loaded
        }
        (JobKey::Deflate(..), Outcome::Deflated(bytes)) => JobResult::Deflated(bytes.into()),
        (_, Outcome::Exhausted) => JobResult::Refused(EXHAUSTED),
        (key, Outcome::Lost) => {
            core.jobs.count(key.kind()).lost += 1;
            JobResult::Refused(LOST)
        }
        // The file system failed, or the result does not match the job.
        _ => JobResult::Refused(READ_FAILED),
    }
}

impl<F> Exchanges<F> {
    /// Passes the result of a job to an exchange that waits for it, or for which it loaded ahead. Returns its
    /// opener if it can continue. `waits_ms` is how long the job was queued, and how long a helper worked on it.
    fn deliver(
        &mut self,
        key: ExchangeKey,
        (id, (queued_ms, helped_ms)): (JobId, (u64, u64)),
        result: &JobResult<F>,
    ) -> Option<Opener> {
        let exchange = self.0.lend(key.0)?;
        let opener = exchange.opener;
        let (mut exchange, woken) = exchange.with_result(id, result);
        if woken {
            exchange.log_entry.timing.note_job(queued_ms, helped_ms);
        }
        self.put_back(key, exchange);
        woken.then_some(opener)
    }
}

impl<F> Exchange<F> {
    /// Returns the exchange after the job, and whether it can continue.
    fn with_result(mut self, id: JobId, result: &JobResult<F>) -> (Self, bool) {
        match self.state {
            State::Waiting(job, mut parked) if job == id => {
                let wake = match result {
                    JobResult::Entry(entry) => {
                        parked.found.entry = Some(Arc::clone(entry));
                        Wake::LookAgain
                    }
                    JobResult::Listing(version, file) => {
                        parked.found.kept = Kept::File(Arc::clone(version), Arc::clone(file));
                        Wake::LookAgain
                    }
                    JobResult::Content(version, content) => {
                        parked.found.kept = Kept::Content(Arc::clone(version), Arc::clone(content));
                        Wake::LookAgain
                    }
                    JobResult::Loaded | JobResult::Deflated(_) | JobResult::Bytes(..) => Wake::LookAgain,
                    JobResult::Changed => Wake::ForgetAndLook,
                    // The stale entry needs no check after all.
                    JobResult::Refused(_) if parked.found.stale.is_some() => Wake::LookAgain,
                    JobResult::Refused(refusal) => Wake::Refuse(*refusal),
                };
                let stale = parked.found.stale.take();
                parked.found.entry = parked.found.entry.or(stale);
                self.state = State::Woken(parked, wake);
                (self, true)
            }
            State::Sending(mut sending) => {
                sending.body.forget_ahead(id);
                let woken = sending.waits_for == Some(id);
                if woken {
                    sending.waits_for = None;
                    match result {
                        JobResult::Bytes(offset, bytes, stat) => {
                            let file = sending.body.file_mut();
                            if file.is_some_and(|file| !file.take_bytes(*offset, bytes, *stat)) {
                                sending.halt = Some(Halt::Changed);
                            }
                        }
                        JobResult::Changed => sending.halt = Some(Halt::Changed),
                        JobResult::Refused(refusal) => sending.halt = Some(Halt::Refused(*refusal)),
                        JobResult::Entry(_)
                        | JobResult::Listing(..)
                        | JobResult::Loaded
                        | JobResult::Deflated(_)
                        | JobResult::Content(..) => {}
                    }
                }
                self.state = State::Sending(sending);
                (self, woken)
            }
            State::Relaying(mut relay) => {
                take_result(&mut relay, id, result);
                self.state = State::Relaying(relay);
                (self, true)
            }
            state => {
                self.state = state;
                (self, false)
            }
        }
    }
}

/// Gives a relay the result of a job.
fn take_result<F>(relay: &mut Relay, id: JobId, result: &JobResult<F>) {
    if relay.verifying == Some(id) && !matches!(result, JobResult::Refused(_)) {
        relay.verifying = None;
    }
    let gzip = relay.reply.as_mut().and_then(|reply| reply.gzip.as_mut());
    let gzip = gzip.filter(|gzip| gzip.job() == Some(id));
    match (result, gzip) {
        (JobResult::Deflated(bytes), Some(gzip)) => gzip.finish(Some(Arc::clone(bytes))),
        (_, Some(gzip)) => gzip.finish(None),
        (JobResult::Refused(refusal), None) => relay.refused = Some(*refusal),
        (JobResult::Entry(entry), None) => relay.current.search = Search::Found(Arc::clone(entry)),
        _ => {}
    }
}
