//! A worker's start, before its loop: here it may still wait, for the supervisor's orders and for threads.

use std::io;

use flash_prompt::OwnedFd;
use flash_waiting::sandbox::calls::{CallList, More};
use flash_waiting::sandbox::paths::Rights;
use flash_worker::control::{InForce, Order, receive_order};
use flash_worker::{Accepts, Given, HelperRules, OwnJobs, Plan, Reach, Root, Worker, keep_panics_quiet};

use crate::config::{HelperKind, SendBy, Settings};
use crate::convert;
use crate::helper::{self, DiskWork};
use crate::sandbox::{self, Role};

/// What a worker was given before it began.
pub(crate) struct Begun {
    control: OwnedFd,
    /// Those that answered in time.
    roots: Vec<Option<Root>>,
    pub(crate) listeners: Vec<OwnedFd>,
    log: Option<OwnedFd>,
}

/// Takes the orders from `control` up to the one to begin.
pub(crate) fn begin(control: OwnedFd, settings: &Settings) -> io::Result<Begun> {
    let roots = settings.sites.iter().map(|_| None).collect();
    let mut begun = Begun { control, roots, listeners: Vec::new(), log: None };
    loop {
        match receive_order(&begun.control)? {
            Order::Root { site, is_local, folder } => {
                if let Some(root) = begun.roots.get_mut(site) {
                    *root = Some(Root { folder, is_local });
                }
            }
            Order::Listener(listener) => begun.listeners.push(listener),
            Order::Log(channel) => begun.log = Some(channel),
            Order::Begin => return Ok(begun),
            other => return Err(io::Error::new(io::ErrorKind::InvalidData, format!("unexpected {other:?}"))),
        }
    }
}

impl Begun {
    /// Gives the work that may wait the roots that there are.
    pub(crate) fn disk_work(&self, settings: &Settings) -> io::Result<DiskWork> {
        let mut work = DiskWork::new(settings);
        for (site, root) in self.roots.iter().enumerate() {
            if let Some(root) = root {
                work.set_root(site, root.folder.try_clone()?);
            }
        }
        Ok(work)
    }

    /// A worker that reaches files as `reach` says, with helpers or, if they are given, jobs of its own.
    pub(crate) fn worker(
        self,
        settings: &Settings,
        descriptors_max: u64,
        reach: Reach,
        own: Option<OwnJobs>,
        accepts: Accepts,
    ) -> io::Result<Worker> {
        // None yet, or all that there will be where they are threads.
        let helpers = match settings.helpers {
            HelperKind::Processes => Vec::new(),
            HelperKind::Threads => helper::start_threads(settings, self.disk_work(settings)?)?,
        };
        let Begun { control, roots, listeners, log } = self;
        let given = Given { control, roots, listeners, log, helpers };
        let plan = Plan {
            rules: convert::rules(settings, descriptors_max),
            mechanism: convert::mechanism(settings.event_mechanism),
            send: convert::send_by(settings, descriptors_max),
            helpers: HelperRules {
                kind: convert::helper_kind(settings.helpers),
                helpers_max: settings.helpers_max,
                idle_ms: settings.helper_idle_ms,
            },
            accepts,
        };
        Worker::new(given, plan, reach, own)
    }
}

/// Has the kernel hold the calling thread to a worker's part from now on. `work` is what it does
/// besides, if it does a helper's work, too.
pub(crate) fn close(worker: &Worker, settings: &Settings, work: Option<&DiskWork>) -> io::Result<InForce> {
    keep_panics_quiet();
    let (timer, more) = (worker.timer(), more(settings));
    match work {
        None => {
            let folders: Vec<_> = worker.sys.roots().map(|root| (root, Rights::Read)).collect();
            sandbox::close(Role::Worker, settings, &folders, CallList::Worker { timer, more })
        }
        Some(work) => {
            let folders: Vec<_> = work.roots().map(|root| (root, Rights::ReadAndList)).collect();
            sandbox::close(Role::Worker, settings, &folders, CallList::WaitingWorker { timer, more })
        }
    }
}

/// The system calls that it needs for what it was told to do otherwise.
fn more(settings: &Settings) -> More {
    More {
        sendfile: settings.optimizations.send == SendBy::Sendfile,
        map_files: settings.optimizations.send == SendBy::Mmap,
        pread: !settings.optimizations.residency_check,
        mechanism: convert::mechanism(settings.event_mechanism),
        has_threads: settings.helpers == HelperKind::Threads,
    }
}
