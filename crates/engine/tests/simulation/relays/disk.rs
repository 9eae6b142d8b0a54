//! The helpers of a world with routes: they look up scripts, and write and read request bodies, late, wrongly or never.

use std::collections::BTreeMap;

use flash_engine::{JobId, Outcome, Task};

use super::Relays;
use crate::machine::FileHandle;

/// ENOSPC.
const NO_SPACE: i32 = 28;

/// The end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Ends,
    Fails,
    Dies,
    /// It ends long after it was given up.
    Hangs,
}

/// A running job.
#[derive(Debug)]
struct Job {
    id: JobId,
    task: Task<FileHandle>,
    fate: Fate,
    due_ms: u64,
}

/// The jobs of the helpers.
#[derive(Debug, Default)]
pub(super) struct Disk {
    jobs: BTreeMap<u64, Job>,
    /// Percentage of jobs with some trouble.
    troubles: u64,
}

impl Disk {
    pub(super) fn with(troubles: u64) -> Self {
        Self { troubles, ..Self::default() }
    }
}

impl Relays {
    /// The helpers work. Returns whether anything happened.
    pub(super) fn tend_helpers(&mut self) -> bool {
        let now_ms = self.now_ms();
        self.begin_jobs(now_ms);
        if self.disk.jobs.values().any(|job| job.fate == Fate::Hangs) {
            // The jobs of others wait for its helper.
            self.ledger.troubles.iter_mut().for_each(|troubles| troubles.disk_ms = now_ms);
        }
        let ended = self.end_given_up();
        let is_due = |job: &&Job| job.due_ms <= now_ms && job.fate != Fate::Hangs;
        let due: Vec<u64> = self.disk.jobs.values().filter(is_due).map(|job| job.id.to_u64()).collect();
        for number in &due {
            // One that was given up ends with its helper. Its time can have begun at the latest turn, which was before.
            let running = &self.world.machine.helpers.running;
            if !running.iter().any(|(id, _)| id.to_u64() == *number) {
                if let Some(job) = self.disk.jobs.get_mut(number) {
                    job.fate = Fate::Hangs;
                }
                continue;
            }
            let Some(job) = self.disk.jobs.remove(number) else { continue };
            if job.fate != Fate::Ends && !matches!(&job.task, Task::Deflate { .. }) {
                // A request that came later can have joined it.
                self.ledger.troubles.iter_mut().for_each(|troubles| troubles.disk_ms = now_ms);
            }
            match job.fate {
                Fate::Ends => self.world.finish(job.id),
                Fate::Fails => {
                    drop(self.world.machine.helpers.finish(job.id));
                    self.world.deliver(job.id, Outcome::Failed(NO_SPACE));
                }
                Fate::Dies | Fate::Hangs => self.world.lose(job.id),
            }
        }
        ended || !due.is_empty()
    }

    fn begin_jobs(&mut self, now_ms: u64) {
        let running: Vec<JobId> = self.world.machine.helpers.running.iter().map(|(id, _)| *id).collect();
        for id in running {
            if self.disk.jobs.contains_key(&id.to_u64()) {
                continue;
            }
            let Some(task) = self.world.machine.helpers.task(id) else { continue };
            // A piece that no helper compresses is sent all the same.
            let compresses = matches!(&task, Task::Deflate { .. });
            let is_of_request =
                compresses || matches!(&task, Task::Write { .. } | Task::Read { .. } | Task::Find { .. });
            let gives_back = matches!(&task, Task::GiveBack { .. });
            let fate = match self.rng.below(100) {
                n if self.is_over || n >= self.disk.troubles => Fate::Ends,
                _ if gives_back => self.rng.pick(&[Fate::Dies, Fate::Hangs, Fate::Hangs]),
                _ if !is_of_request => Fate::Ends,
                _ => self.rng.pick(&[Fate::Fails, Fate::Dies, Fate::Hangs, Fate::Hangs]),
            };
            if fate != Fate::Ends && !compresses {
                self.ledger.troubles.iter_mut().for_each(|troubles| troubles.disk_ms = now_ms);
            }
            let in_ms = if is_of_request || gives_back { self.rng.pick(&[0, 1, 30, 200]) } else { 0 };
            // After all troubles, the disk is fast.
            let in_ms = if self.is_over { 0 } else { in_ms };
            self.disk.jobs.insert(id.to_u64(), Job { id, task, fate, due_ms: now_ms + in_ms });
        }
    }

    /// Helpers whose jobs were given up end. One may write until then.
    fn end_given_up(&mut self) -> bool {
        self.world.machine.helpers.abandoned.clear();
        if !self.is_over && self.rng.chance(97) {
            return false;
        }
        self.world.machine.helpers.uninterruptible = false;
        let gone = self.world.machine.helpers.take_gone();
        self.world.machine.helpers.uninterruptible = true;
        for id in &gone {
            let job = self.disk.jobs.remove(&id.to_u64());
            if let Some(task @ (Task::Write { .. } | Task::GiveBack { .. })) = job.map(|job| job.task)
                && self.rng.chance(70)
            {
                self.world.write_late(&task);
            }
            self.world.helper_gone(*id);
        }
        !gone.is_empty()
    }
}
