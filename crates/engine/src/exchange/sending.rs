//! An answer that is being sent: its body, the job that the body waits for, and what to do when it cannot go on.

use std::sync::Arc;

use flash_http::RequestBuf;
use flash_http::request::Request;

use super::{Parked, State, Wake};
use crate::body::Body;
use crate::desk::Desk;
use crate::handler::{BUSY, Found, READ_FAILED, Refusal};
use crate::jobs::{Jobs, Waiter, Wanted};
use crate::machine::{JobId, Machine};
use crate::slab::ExchangeKey;
use crate::store::Version;

/// An answer that is being sent.
#[derive(Debug)]
pub(crate) struct Sending<F> {
    pub(crate) body: Body<F>,
    /// The job that brings the next bytes.
    pub(crate) waits_for: Option<JobId>,
    /// Why the body cannot go on.
    pub(crate) halt: Option<Halt>,
    /// The request, where the body can turn out to be another than its head says, and how often it was tried.
    again: Option<(RequestBuf, u8)>,
}

/// Why a body cannot go on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Halt {
    /// The file is no longer the one that the head describes.
    Changed,
    Refused(Refusal),
}

impl Halt {
    pub(crate) const FAILED: Self = Halt::Refused(READ_FAILED);
}

impl<F> Sending<F> {
    /// An answer to a request that was tried `tries` times.
    pub(crate) fn new(body: Body<F>, request: RequestBuf, tries: u8) -> Self {
        let may_change = matches!(body, Body::File(_) | Body::Multipart(_));
        Self { body, waits_for: None, halt: None, again: may_change.then_some((request, tries)) }
    }

    /// An answer that cannot change, to bytes that are no request.
    pub(crate) fn page(body: Body<F>) -> Self {
        Self { body, waits_for: None, halt: None, again: None }
    }

    /// The request, where it is kept.
    pub(crate) fn request(&self) -> Option<Request<'_>> {
        self.again.as_ref().map(|(request, _)| request.request())
    }

    /// The state in which the request is answered anew, for an answer that halted before any of it was sent. None when the
    /// request was not kept.
    pub(crate) fn anew(self, halt: Halt) -> Option<State<F>> {
        let (request, tries) = self.again?;
        let found = Found { tries, ..Found::NOTHING };
        let wake = match halt {
            Halt::Changed => Wake::ForgetAndLook,
            Halt::Refused(refusal) => Wake::Refuse(refusal),
        };
        Some(State::Woken(Parked { request, found }, wake))
    }

    /// Waits for a job.
    pub(crate) fn wait<M: Machine<File = F>>(
        &mut self,
        desk: &mut Desk<'_, M>,
        waiter: Waiter,
        wanted: Wanted<F, Arc<Version>>,
    ) {
        match desk.core.jobs.submit(wanted, Some(waiter), desk.core.clock.ms()) {
            Some(job) => self.waits_for = Some(job),
            None => self.halt = Some(Halt::Refused(BUSY)),
        }
    }

    /// Queues loads of the blocks that follow while the answer goes on.
    pub(crate) fn load_ahead<M: Machine<File = F>>(&mut self, desk: &mut Desk<'_, M>, waiter: Waiter) {
        let Some(file) = self.body.file_mut() else { return };
        while let Some(wanted) = file.wanted_ahead() {
            match desk.core.jobs.submit(*wanted, Some(waiter), desk.core.clock.ms()) {
                Some(job) => file.loads_ahead(job),
                None => return,
            }
        }
    }

    /// The answer is over: it waits for no job any more.
    pub(crate) fn leave_jobs(&mut self, jobs: &mut Jobs<F, Arc<Version>>, key: ExchangeKey) {
        for job in self.body.take_jobs_ahead().into_iter().chain(self.waits_for.take()) {
            jobs.leave(job, key);
        }
    }
}
