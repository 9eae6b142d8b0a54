//! Completion of jobs: results go into the store, and to every exchange that waits. A helper's death arrives
//! here as [`Outcome::Lost`].

use std::sync::Arc;

use super::{Exchange, Exchanges, Halt, Opener, State, Wake};
use crate::desk::Core;
use crate::handed_over::HandedOver;
use crate::handler::{DENIED, EXHAUSTED, Held, LOST, NOT_FOUND, READ_FAILED, Refusal, content};
use crate::jobs::{Job, JobKey};
use crate::machine::{Finding, JobId, Outcome};
use crate::slab::ExchangeKey;
use crate::store::{Content, LookedUp, MadeListing, NameEntry, Version};

/// The news for every exchange that waits for a job.
enum News<F> {
    Entry(Arc<NameEntry>),
    Listing(Arc<Version>, Arc<F>),
    /// The part was loaded; look again.
    Loaded,
    /// A small file, whole.
    Content(Arc<Version>, Arc<Content>),
    /// A part of a file, beginning at an offset.
    Bytes(u64, HandedOver),
    /// The file is no longer what its version says.
    Changed,
    Refused(Refusal),
}

/// Takes the result of a job, and tells the exchanges that wait for it; `wake` is given the opener of each that can go on.
pub(crate) fn finish_job<F>(
    core: &mut Core<F>,
    exchanges: &mut Exchanges<F>,
    id: JobId,
    outcome: Outcome<F>,
    mut wake: impl FnMut(Opener),
) {
    let Some(mut job) = core.jobs.take(id) else { return };
    let waiters = std::mem::take(&mut job.waiters);
    let news = keep_result(core, job, outcome);
    for waiter in waiters {
        if let Some(opener) = exchanges.tell(waiter, id, &news) {
            wake(opener);
        }
    }
}

/// Puts what is of lasting use into the store.
fn keep_result<F>(core: &mut Core<F>, job: Job<F, Arc<Version>>, outcome: Outcome<F>) -> News<F> {
    let now = core.clock.now;
    match (job.key, outcome) {
        (JobKey::Find(site, path), Outcome::Found(finding)) => {
            let name = LookedUp { site, path: &path, as_of_ms: job.since_ms };
            News::Entry(core.store.learn(name, finding, now))
        }
        (JobKey::List(site, path, json), Outcome::Listed(file, stat)) => {
            let listing = MadeListing { site, path: &path, json, file, stat };
            let (version, file) = core.store.keep_listing(listing, now.monotonic_ms);
            News::Listing(version, file)
        }
        // A directory that the server lacks the permission to list, or that went away before it was listed.
        (JobKey::List(..), Outcome::Found(Finding::Denied)) => News::Refused(DENIED),
        (JobKey::List(..), Outcome::Found(Finding::Missing)) => News::Refused(NOT_FOUND),
        (JobKey::Load(..), Outcome::Loaded) | (JobKey::Close(..), Outcome::Closed) => News::Loaded,
        (JobKey::Read(_, _, offset, length), Outcome::Bytes(bytes, stat)) => {
            let Some(version) = job.subject else { return News::Refused(READ_FAILED) };
            let is_whole = length == version.stat.size_bytes && core.store.contents.is_on();
            let is_true =
                if is_whole { stat.same_content(&version.stat) } else { stat.continues(&version.stat) };
            // Fewer than asked for mean that the file ended early.
            if bytes.len() as u64 != length || !is_true {
                return News::Changed;
            }
            if !is_whole {
                return News::Bytes(offset, core.handed_over.hold(bytes));
            }
            let content = content(core, &version, &bytes);
            core.store.keep_content(&version, &content);
            News::Content(version, content)
        }
        (_, Outcome::Exhausted) => News::Refused(EXHAUSTED),
        (key, Outcome::Lost) => {
            core.jobs.count(key.kind()).lost += 1;
            News::Refused(LOST)
        }
        // A failed file system, or an answer that does not fit its question.
        _ => News::Refused(READ_FAILED),
    }
}

impl<F> Exchanges<F> {
    /// Tells an exchange of a job that it waits for, or that loads ahead for it. Gives its opener if it can go on.
    fn tell(&mut self, key: ExchangeKey, id: JobId, news: &News<F>) -> Option<Opener> {
        let exchange = self.0.lend(key.0)?;
        let opener = exchange.opener;
        let (exchange, woken) = exchange.told(id, news);
        self.put_back(key, exchange);
        woken.then_some(opener)
    }
}

impl<F> Exchange<F> {
    /// The exchange after a job, and whether it can go on.
    fn told(mut self, id: JobId, news: &News<F>) -> (Self, bool) {
        match self.state {
            State::Waiting(job, mut parked) if job == id => {
                let wake = match news {
                    News::Entry(entry) => {
                        parked.found.entry = Some(Arc::clone(entry));
                        Wake::LookAgain
                    }
                    News::Listing(version, file) => {
                        parked.found.held = Held::File(Arc::clone(version), Arc::clone(file));
                        Wake::LookAgain
                    }
                    News::Content(version, content) => {
                        parked.found.held = Held::Content(Arc::clone(version), Arc::clone(content));
                        Wake::LookAgain
                    }
                    News::Loaded | News::Bytes(..) => Wake::LookAgain,
                    News::Changed => Wake::ForgetAndLook,
                    News::Refused(refusal) => Wake::Refuse(*refusal),
                };
                self.state = State::Woken(parked, wake);
                (self, true)
            }
            State::Sending(mut sending) => {
                sending.body.forget_ahead(id);
                let woken = sending.waits_for == Some(id);
                if woken {
                    sending.waits_for = None;
                    match news {
                        News::Bytes(offset, bytes) => {
                            if let Some(file) = sending.body.file_mut() {
                                file.take_bytes(*offset, bytes);
                            }
                        }
                        News::Changed => sending.halt = Some(Halt::Changed),
                        News::Refused(refusal) => sending.halt = Some(Halt::Refused(*refusal)),
                        News::Entry(_) | News::Listing(..) | News::Loaded | News::Content(..) => {}
                    }
                }
                self.state = State::Sending(sending);
                (self, woken)
            }
            state => {
                self.state = state;
                (self, false)
            }
        }
    }
}
