//! The start of the loop of `flash backend`, and the threads that close its clients' files.
//!
//! Called by `role`, in a worker's process. Before the loop it may wait.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use flash_engine::backend::warm::resolve;
use flash_engine::backend::{BackendRules, Mount, SHARES_MAX};
use flash_engine::{FileId, SiteId};
use flash_prompt::mechanism::MechanismKind;
use flash_prompt::{OwnedFd, file};
use flash_waiting::sandbox::calls::{CallList, More};
use flash_waiting::sandbox::memory;
use flash_waiting::sandbox::paths::Rights;
use flash_waiting::{
    file::open_folder,
    process,
    root::{Root, Unopened, open_roots},
    watched,
};
use flash_worker::backend::{
    BackendGiven, BackendLoop, Closes, EndpointGiven, EndpointListener, EndpointProtocol, WarmRoot,
};
use flash_worker::{HelperRules, keep_panics_quiet};

use crate::config::{BackendSettings, Settings};
use crate::sandbox::{self, Role};
use crate::threads::{self, Confined};
use crate::{names, start};

/// Descriptors that the process makes room for at its start, because its threads share them.
const ROOM_DESCRIPTORS: u64 = 1 << 14;
const MOUNTS_MAX: usize = 4096;

pub(crate) fn run(control: OwnedFd, settings: &Settings, own: &BackendSettings) -> io::Result<()> {
    let (control, listeners) = start::begin(control, settings)?.into_channels();
    let missing = || io::Error::new(io::ErrorKind::InvalidData, "the supervisor did not send all sockets");
    let (listener, listeners) = of_endpoint(listeners, settings, own).ok_or_else(missing)?;
    process::make_room_for_descriptors(ROOM_DESCRIPTORS)?;
    // Before there are threads: a child process opens each root, because one can hang.
    let roots = warm_roots(own);
    let closer = Closers::start(settings)?;
    let looked_up = names::start(settings, own.names.iter().map(|root| root.to_path_buf()).collect())?;
    let identity = open_folder("/".as_ref()).and_then(file::identity).ok();
    let own_root =
        identity.map(|found| FileId { device: found.device, inode: found.inode, mount: found.mount });
    let endpoint = match listeners.is_empty() {
        true => None,
        false => Some(EndpointGiven { listeners, roots, own_root: open_folder("/".as_ref())? }),
    };
    let given = BackendGiven {
        control,
        listener,
        endpoint,
        rules: BackendRules {
            job_ms: settings.job_deadline_ms,
            queue_wait_ms: settings.queue_wait_ms,
            helpers_max: settings.helpers_max,
            delay_ms: own.delay_ms,
            mounts: mounts(),
            own_root,
        },
        helpers: HelperRules {
            kind: settings.helpers,
            helpers_max: settings.helpers_max,
            idle_ms: settings.helper_idle_ms,
        },
        users: users(settings, own),
        closer: Box::new(closer),
        names: looked_up,
    };
    let folders = given.endpoint.iter().flat_map(|endpoint| &endpoint.roots).filter_map(WarmRoot::folder);
    let folders: Vec<OwnedFd> = folders.map(OwnedFd::try_clone).collect::<io::Result<_>>()?;
    let backend = BackendLoop::new(given)?;
    keep_panics_quiet();
    let more = More {
        sendfile: false,
        map_files: true,
        pread: false,
        mechanism: MechanismKind::Epoll,
        has_threads: true,
        wakes: false,
        has_local_clients: true,
        priorities: false,
        code_points: false,
    };
    let calls = CallList::Worker(more);
    let rights: Vec<_> = folders.iter().map(|folder| (folder, Rights::Read)).collect();
    let in_force = sandbox::close(Role::Worker, settings, &rights, calls)?;
    drop(folders);
    backend.ready(in_force)?;
    backend.run()
}

/// How long the directories of the warm endpoint may take to open. The loop looks at files only beneath those
/// that answered, and helpers look at all. The machine of a test may be busy.
const ROOTS_PATIENCE: Duration = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 });

/// The directories of the warm endpoint. The loop looks at files only on a local file system.
fn warm_roots(own: &BackendSettings) -> Vec<WarmRoot> {
    let paths: Vec<&Path> = own.endpoint.roots.iter().map(|root| &**root).collect();
    let folders = open_roots(&paths, ROOTS_PATIENCE);
    let root = |(path, folder): (&&Path, Result<Root, Unopened>)| {
        let path = resolve(b"", path.as_os_str().as_bytes()).ok()?;
        let folder = folder.ok().filter(|root| root.is_local).map(|root| root.folder);
        Some(WarmRoot::new(path.into(), folder))
    };
    paths.iter().zip(folders).filter_map(root).collect()
}

/// The backend's own listener, and those of the endpoint: first all of TCP, in this order from the supervisor.
fn of_endpoint(
    listeners: Vec<OwnedFd>,
    settings: &Settings,
    own: &BackendSettings,
) -> Option<(OwnedFd, Vec<EndpointListener>)> {
    if listeners.len() != settings.listen.len() + 1 + own.endpoint.sockets.len() {
        return None;
    }
    let mut given = listeners.into_iter();
    let of_tcp = |listener| EndpointListener { listener, protocol: EndpointProtocol::Http, is_local: false };
    let mut listeners: Vec<_> = given.by_ref().take(settings.listen.len()).map(of_tcp).collect();
    let listener = given.next()?;
    let sockets = given.zip(&own.endpoint.sockets);
    listeners.extend(sockets.map(|(listener, socket)| {
        let protocol = socket.protocol;
        EndpointListener { listener, protocol, is_local: true }
    }));
    Some((listener, listeners))
}

fn users(settings: &Settings, own: &BackendSettings) -> Vec<u32> {
    let user = settings.run_as.as_ref().map_or_else(flash_waiting::sandbox::privileges::user, |as_| as_.uid);
    own.users.iter().copied().chain([0, user]).collect()
}

/// The mounted file systems; none if the kernel does not list them.
fn mounts() -> Vec<Mount> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|byte| *byte == b'\n').take(MOUNTS_MAX).filter_map(mount).collect()
}

/// A line of /proc/PID/mountinfo (proc(5)): its third field is the device, its fifth the path.
fn mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let (major, minor): (u64, u64) = (major.parse().ok()?, minor.parse().ok()?);
    let path = watched::unescape(fields.nth(1)?);
    Some(Mount { path: path.into(), device: major << 32 | minor })
}

/// A thread for each share, so that a file system that hangs delays only the closing of its own files.
#[derive(Debug)]
struct Closers(Vec<Closer>);

#[derive(Debug)]
struct Closer {
    files: Sender<OwnedFd>,
    backlog: Arc<AtomicUsize>,
}

impl Closers {
    fn start(settings: &Settings) -> io::Result<Self> {
        memory::separate_arenas(SHARES_MAX + 2);
        let (mut closers, mut closing) = (Vec::with_capacity(SHARES_MAX), Vec::with_capacity(SHARES_MAX));
        for _ in 0..SHARES_MAX {
            let (files, received) = mpsc::channel();
            let backlog = Arc::new(AtomicUsize::new(0));
            let (settings, count) = (settings.clone(), Arc::clone(&backlog));
            closing.push(Confined {
                confine: move || {
                    sandbox::close(Role::Worker, &settings, &[], CallList::HelperThread).map(drop)
                },
                work: move || {
                    for file in received {
                        drop(file);
                        count.fetch_sub(1, Ordering::Relaxed);
                    }
                },
            });
            closers.push(Closer { files, backlog });
        }
        threads::start("closer", Some(STACK_BYTES), closing)?;
        Ok(Self(closers))
    }

    fn of(&self, share: SiteId) -> Option<&Closer> {
        self.0.get(usize::from(share.0)).or(self.0.last())
    }
}

/// Stack of a thread that only closes files.
const STACK_BYTES: usize = 256 << 10;

impl Closes for Closers {
    fn close(&self, share: SiteId, file: OwnedFd) {
        let Some(closer) = self.of(share) else { return };
        closer.backlog.fetch_add(1, Ordering::Relaxed);
        // A thread ends only with the process.
        let _ = closer.files.send(file);
    }

    fn backlog(&self, share: SiteId) -> usize {
        self.of(share).map_or(0, |closer| closer.backlog.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_their_escapes() {
        let line = br"36 35 98:0 /mnt1 /mnt/a\040b\134c rw,noatime master:1 - ext3 /dev/root rw";
        let expected = Mount { path: (*b"/mnt/a b\\c").into(), device: 98 << 32 };
        assert_eq!(mount(line), Some(expected));
        for wrong in [&b""[..], b"36 35 98 / /mnt", b"36 35 98:x / /mnt", b"36 35 98:0 /"] {
            assert_eq!(mount(wrong), None);
        }
        let own = mounts();
        assert!(own.iter().any(|mount| *mount.path == *b"/"), "{own:?}");
    }
}
