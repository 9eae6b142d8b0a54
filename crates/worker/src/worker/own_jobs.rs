//! The jobs of a worker without helpers, taken out and ended. Called by the architectures of the paper's comparisons.

use flash_engine::{JobId, Outcome, Task};

use super::Worker;
use crate::comparisons::OwnJob;
use crate::site_file::SiteFile;

impl Worker {
    /// Takes the job of the worker's own process that was started, if any.
    pub fn take_job(&mut self) -> Option<OwnJob> {
        match self.sys.own.as_mut()?.take()? {
            (id, Task::Close { number }) => {
                let file = self.sys.closing.take(number);
                if file.is_none() {
                    self.finish_own(id, Outcome::Lost);
                }
                file.map(|file| OwnJob::Close(id, file))
            }
            (id, task) => Some(OwnJob::Task(id, task)),
        }
    }

    /// Takes the outcome of a job of the worker's own process.
    pub fn finish_own(&mut self, id: JobId, outcome: Outcome<SiteFile>) {
        if self.sys.own.as_mut().is_some_and(|own| own.was_given_up(id)) {
            return self.engine.handle_helper_gone(&mut self.sys, id);
        }
        self.finish(id, outcome);
    }
}
