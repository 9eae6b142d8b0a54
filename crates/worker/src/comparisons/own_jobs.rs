//! The jobs of a worker without helpers. The architecture (SPED, MP or MT) takes them out and does them
//! itself.

use flash_engine::{JobId, Task};
use flash_prompt::OwnedFd;

use crate::site_file::SiteFile;

/// The jobs of a worker without helpers. The thread that has the engine's turn takes a job and does it after
/// the turn.
#[derive(Debug, Default)]
pub struct OwnJobs {
    /// Whether the thread that has the turn can do a job.
    pub has_room: bool,
    /// Whether a job was refused because there was no room for it.
    pub refused: bool,
    taken: Option<(JobId, Task<SiteFile>)>,
    given_up: Vec<JobId>,
}

/// A job that the worker's own process must do.
#[derive(Debug)]
pub enum OwnJob {
    /// A task that otherwise a helper would do.
    Task(JobId, Task<SiteFile>),
    /// Closing a deleted file, which blocks.
    Close(JobId, OwnedFd),
}

impl OwnJobs {
    pub(crate) fn start(&mut self, id: JobId, task: &Task<SiteFile>) -> bool {
        if self.has_room && self.taken.is_none() {
            self.taken = Some((id, task.clone()));
            return true;
        }
        self.refused = true;
        false
    }

    pub(crate) fn give_up(&mut self, id: JobId) {
        self.given_up.push(id);
    }

    pub(crate) fn has_one(&self) -> bool {
        self.taken.is_some()
    }

    /// Takes the job that was started, if any.
    pub(crate) fn take(&mut self) -> Option<(JobId, Task<SiteFile>)> {
        self.taken.take()
    }

    /// Whether a job that is now done had been given up before.
    pub(crate) fn was_given_up(&mut self, id: JobId) -> bool {
        let at = self.given_up.iter().position(|given_up| *given_up == id);
        at.map(|at| self.given_up.swap_remove(at)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use flash_engine::SiteId;

    use super::*;

    #[test]
    fn one_job_is_taken_at_a_time_and_only_with_room() {
        let task = Task::Find { site: SiteId(0), path: (*b"/x").into() };
        let [first, second] = [5, 6].map(JobId::from_u64);
        let mut own = OwnJobs::default();
        assert!(!own.start(first, &task) && own.refused && !own.has_one(), "no room");
        own = OwnJobs { has_room: true, ..OwnJobs::default() };
        assert!(own.start(first, &task) && !own.refused && own.has_one());
        assert!(!own.start(second, &task) && own.refused, "a job is already there");
        assert_eq!(own.take().map(|(id, _)| id), Some(first));
        assert!(own.take().is_none() && own.start(second, &task));
    }

    #[test]
    fn a_job_that_was_given_up_is_remembered_once() {
        let mut own = OwnJobs::default();
        let id = JobId::from_u64(5);
        assert!(!own.was_given_up(id));
        own.give_up(id);
        assert!(own.was_given_up(id) && !own.was_given_up(id));
    }
}
