//! An answer that is being sent: its body, the job that the body waits for, and the reason if it cannot
//! continue. Called by [`exchange`](crate::exchange) and the wires.

use std::sync::Arc;

use flash_http::request::Request;

use super::{Pace, Parked, State, Wake};
use crate::body::Body;
use crate::caches::Version;
use crate::context::Context;
use crate::handler::{BUSY, FileRequestBuf, Found, READ_FAILED, Refusal};
use crate::jobs::{Waiter, Wanted};
use crate::limits::TRIES_MAX;
use crate::machine::{JobId, Machine};
use crate::slab::ExchangeKey;

/// An answer that is being sent.
#[derive(Debug)]
pub(crate) struct Sending<F> {
    pub(crate) body: Body<F>,
    /// The job that brings the next bytes.
    pub(crate) waits_for: Option<JobId>,
    /// Why the body cannot continue.
    pub(crate) halt: Option<Halt>,
    /// The request and its number of attempts, kept if the file can still turn out to differ from the
    /// response head.
    again: Option<(FileRequestBuf, u8)>,
    pub(crate) pace: Pace,
}

/// Why a body cannot continue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Halt {
    /// The file is no longer the file that the response head describes.
    Changed,
    Refused(Refusal),
}

impl Halt {
    pub(crate) const FAILED: Self = Halt::Refused(READ_FAILED);
}

impl<F> Sending<F> {
    /// An answer after `tries` attempts. `file` is the request for a file, which is answered again if that changes.
    pub(crate) fn new(body: Body<F>, file: Option<FileRequestBuf>, tries: u8) -> Self {
        let may_change = matches!(body, Body::File(_) | Body::Multipart(_));
        let holds = file.as_ref().and_then(|file| file.holds.clone());
        let again = file.filter(|_| may_change).map(|file| (file, tries));
        Self { body, waits_for: None, halt: None, again, pace: Pace::of(holds) }
    }

    /// The request, if it was kept.
    pub(crate) fn request(&self) -> Option<Request<'_>> {
        self.again.as_ref().map(|(file, _)| file.request())
    }

    /// The state in which the request is answered again, if the answer stopped before any of it was sent.
    /// None if the request was not kept.
    pub(crate) fn retry(self, halt: Halt) -> Option<State<F>> {
        let (file, tries) = self.again?;
        let found = Found { tries, ..Found::NOTHING };
        let wake = match halt {
            Halt::Changed => Wake::ForgetAndLook,
            Halt::Refused(refusal) => Wake::Refuse(refusal),
        };
        Some(State::Woken(Parked { file, found, waits_since_ms: None }, wake))
    }

    /// Waits for a job, and loads the following blocks meanwhile.
    pub(crate) fn wait<M: Machine<File = F>>(
        &mut self,
        context: &mut Context<'_, M>,
        waiter: Waiter,
        wanted: Wanted<F, Arc<Version>>,
    ) {
        match context.core.jobs.submit(wanted, Some(waiter), context.core.clock.ms()) {
            Ok(job) => self.waits_for = Some(job),
            Err(_) => self.halt = Some(Halt::Refused(BUSY)),
        }
        self.load_ahead(context, waiter);
    }

    /// Queues a job for the next part of the file, which is not in memory, or of which that cannot be known.
    pub(crate) fn bring<M: Machine<File = F>>(
        &mut self,
        context: &mut Context<'_, M>,
        waiter: Waiter,
        is_absent: bool,
    ) {
        let held_bytes = context.core.handed_over.bytes();
        let Some(file) = self.body.file_mut() else {
            self.halt = Some(Halt::FAILED);
            return;
        };
        let wanted = if is_absent {
            context.core.counters.loads_in_vain += u64::from((1..TRIES_MAX).contains(&file.loads()));
            file.bring_absent(held_bytes)
        } else {
            file.read_by_helper(held_bytes)
        };
        self.wait(context, waiter, *wanted);
    }

    /// Queues jobs that load the following blocks while the answer is sent.
    pub(crate) fn load_ahead<M: Machine<File = F>>(&mut self, context: &mut Context<'_, M>, waiter: Waiter) {
        let Some(file) = self.body.file_mut() else { return };
        while let Some(wanted) = file.wanted_ahead(context.core) {
            match context.core.jobs.submit(*wanted, Some(waiter), context.core.clock.ms()) {
                Ok(job) => file.loads_ahead(job),
                Err(_) => return,
            }
        }
    }

    /// Leaves all jobs and gives back what is reserved, because the answer has ended.
    pub(crate) fn leave<M: Machine<File = F>>(&mut self, context: &mut Context<'_, M>, key: ExchangeKey) {
        for job in self.body.take_jobs_ahead().into_iter().chain(self.waits_for.take()) {
            context.core.jobs.leave(job, key);
        }
        self.pace.leave(context);
    }
}
