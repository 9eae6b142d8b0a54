//! The choices that a seed makes for a whole run.

use flash_engine::FileId;
use flash_engine::backend::{BackendRules, Mount};

use crate::rng::Rng;

/// The device of the backend's own root directory.
pub(crate) const OWN_DEVICE: u64 = 1;
/// The backend's own root directory.
pub(crate) const OWN_ROOT: FileId = FileId { device: OWN_DEVICE, inode: 2, mount: 1 };

/// The plan of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) job_ms: u64,
    pub(crate) queue_wait_ms: u64,
    pub(crate) helpers_max: usize,
    pub(crate) delay_ms: u64,
    /// File systems; the first has the backend's own root. All but the first are mounted at `/mN`.
    pub(crate) devices: u64,
    /// Clients that come.
    pub(crate) clients: usize,
    /// Actions of each client.
    pub(crate) actions: u64,
    /// Most milliseconds between two actions of a client.
    pub(crate) pause_ms: u64,
    /// Different names and offsets that clients ask for again and again.
    pub(crate) pool: u64,
    /// Most unanswered requests of a group, as its HELLO says; 0 for none.
    pub(crate) waiters_max: u32,
    pub(crate) endpoint: bool,
    /// Most milliseconds of a job.
    pub(crate) latency_ms: u64,
    /// Of 100 jobs, those that fail, and those whose helper dies.
    pub(crate) failures: u64,
    pub(crate) deaths: u64,
    /// Whether file systems hang for a while.
    pub(crate) hangs: bool,
    /// Whether the worker is told to drain.
    pub(crate) drains: bool,
    /// Whether a client floods the backend.
    pub(crate) flood: Option<Flood>,
}

/// A client that sends more than the rest together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flood {
    /// Many different names.
    Names,
    /// Many names, and it reads no replies.
    Deaf,
    /// Many files of a file system that hangs.
    Files,
    /// Many files to be closed.
    Closes,
}

impl Plan {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let job_ms = rng.pick(&[50, 1_000, 30_000]);
        let latency_ms = rng.pick(&[2, 50, job_ms / 2, 2 * job_ms]);
        let flood = [Flood::Names, Flood::Deaf, Flood::Files, Flood::Closes];
        Self {
            job_ms,
            queue_wait_ms: rng.pick(&[0, 0, 20, 500]),
            helpers_max: rng.pick(&[1, 2, 3, 4, 16]),
            delay_ms: rng.pick(&[0, 0, 0, 20]),
            devices: rng.pick(&[1, 2, 3, 12]),
            clients: rng.between(1, 12) as usize,
            actions: rng.between(5, 60),
            pause_ms: rng.pick(&[0, 1, 20, job_ms]),
            pool: rng.pick(&[2, 10, 100]),
            waiters_max: rng.pick(&[0, 1, 3, 20]),
            endpoint: rng.chance(40),
            latency_ms,
            failures: rng.pick(&[0, 5, 40]),
            deaths: rng.pick(&[0, 5, 30]),
            hangs: rng.chance(40),
            drains: rng.chance(20),
            flood: rng.chance(12).then(|| rng.pick(&flood)),
        }
    }

    pub(crate) fn rules(&self) -> BackendRules {
        let mounts = (1..=self.devices).map(|device| Mount { path: mount_path(device).into(), device });
        BackendRules {
            job_ms: self.job_ms,
            queue_wait_ms: self.queue_wait_ms,
            helpers_max: self.helpers_max,
            delay_ms: self.delay_ms,
            mounts: mounts.map(|mount| Mount { path: mount.path, device: mount.device }).collect(),
            own_root: Some(OWN_ROOT),
        }
    }

    /// The device that a path beneath a root leads to.
    pub(crate) fn device_of(&self, root: FileId, path: &[u8]) -> u64 {
        if (root.device, root.inode) != (OWN_ROOT.device, OWN_ROOT.inode) {
            return root.device;
        }
        let first = path.split(|byte| *byte == b'/').nth(1).and_then(|name| std::str::from_utf8(name).ok());
        let number = first.and_then(|name| name.strip_prefix('m')?.parse::<u64>().ok());
        number.filter(|device| (2..=self.devices).contains(device)).unwrap_or(OWN_DEVICE)
    }
}

/// Where a device is mounted.
pub(crate) fn mount_path(device: u64) -> Vec<u8> {
    if device == OWN_DEVICE { b"/".to_vec() } else { format!("/m{device}").into_bytes() }
}
