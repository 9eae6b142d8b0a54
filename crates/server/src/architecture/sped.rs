//! SPED, single-process event-driven: the event loop does all work itself, so all its connections wait with it for the disk
//! (flash-1999, section 3.3).

use std::io;

use flash_engine::Outcome;
use flash_waiting::file;
use flash_worker::{Accepts, Call, OwnJob, OwnJobs, Reach, Worker, of_job, timed};

use crate::config::Settings;
use crate::helper::DiskWork;
use crate::start::{Begun, close};

/// Reaches files like any program. It does not check whether they are in memory, which is the saving of SPED (section
/// 6.1).
pub(super) const WAITING: Reach = Reach {
    look_up: |root, path, want| file::open_to_read(root, path, want),
    read: |file, offset, buffer| file::read_now(file, offset, buffer),
    stat: |file| file::stat(file),
    send_file: |socket, head, file, offset, length| file::send_now(socket, head, file, offset, length),
    under_all_roots: true,
};

/// The jobs of a loop that does one at a time itself.
pub(super) fn own_jobs() -> OwnJobs {
    let mut own = OwnJobs::default();
    own.has_room = true;
    own
}

/// Runs a worker.
pub(super) fn run(mut begun: Begun, settings: &Settings, descriptors_max: u64) -> io::Result<()> {
    let work = begun.disk_work(settings)?;
    let worker = begun.worker(settings, descriptors_max, WAITING, Some(own_jobs()), Accepts::All)?;
    worker.ready(close(&worker, settings, Some(&work))?)?;
    worker.run(|worker| {
        do_job(worker, &work);
        Ok(())
    })
}

/// Does the job that the turn has left, if any: mostly a listing, or the close of a deleted file.
pub(super) fn do_job(worker: &mut Worker, work: &DiskWork) {
    let Some(job) = worker.take_job() else { return };
    let (id, outcome) = match job {
        OwnJob::Task(id, task) => (id, timed(Call::Job, || of_job(&task), || work.do_task(&task))),
        OwnJob::Close(id, file) => {
            timed(Call::CloseFile, || None, || drop(file));
            (id, Outcome::Closed)
        }
    };
    worker.begin_turn(0);
    worker.finish_own(id, outcome);
    worker.go_on();
}
