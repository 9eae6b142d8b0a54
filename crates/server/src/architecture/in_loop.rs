//! The architectures whose event loop does all work itself, and waits for the disk.
//!
//! SPED, single-process event-driven: all connections of a worker wait with it (flash-1999, section 3.3).
//!
//! MP, multi-process: each process serves one connection at a time, from accept to close, and the others continue while it waits
//! (section 3.1). The processes share the listening sockets. With a socket for each (`SO_REUSEPORT`) the kernel would pass connections
//! to busy processes.

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

/// Runs a worker that does its jobs itself, one at a time. With one connection at a time it does not listen while it has one, so that
/// new ones wait in the kernel's queue, and no client is refused at a limit.
pub(super) fn run(
    mut begun: Begun,
    settings: &Settings,
    descriptors_max: u64,
    accepts: Accepts,
) -> io::Result<()> {
    let work = begun.disk_work(settings)?;
    let mut own = OwnJobs::default();
    own.has_room = true;
    let is_one_at_a_time = accepts == Accepts::OneAtATime;
    let worker = begun.worker(settings, descriptors_max, WAITING, Some(own), accepts)?;
    worker.ready(close(&worker, settings, Some(&work))?)?;
    worker.run(|worker| {
        do_job(worker, &work);
        let is_free = worker.engine.is_drained();
        if is_one_at_a_time { worker.listen(is_free) } else { Ok(()) }
    })
}

/// Does the job that the turn has left, if any: mostly a listing, or the close of a deleted file.
fn do_job(worker: &mut Worker, work: &DiskWork) {
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
