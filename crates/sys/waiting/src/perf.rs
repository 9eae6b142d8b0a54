//! Events of other processes, as the kernel records them: perf_event_open(2) and its ring buffers.
//!
//! The lab's `trace` uses it: tracepoints for a thread and its children, on one core each, with one ring per
//! core. It decodes nothing: records are returned as bytes. The kernel closes an event with its descriptor,
//! so a tracer that is killed leaves no trace in the traced process.
//!
//! This is our own code and not `perf-event2`, because two calls, five ioctls and reading a ring are enough,
//! and that crate has no ring shared by many events.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use flash_prompt::call::check;
use flash_prompt::mapped::Mapped;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::param::page_size;

/// The contents of a sample (`PERF_SAMPLE_*`), in this order in a record: identifier, thread, time, then the
/// stack if requested, then the fields of the tracepoint.
const SAMPLE: u64 = SAMPLE_IDENTIFIER | SAMPLE_TID | SAMPLE_TIME | SAMPLE_RAW;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_CALLCHAIN: u64 = 1 << 5;
const SAMPLE_RAW: u64 = 1 << 10;
const SAMPLE_IDENTIFIER: u64 = 1 << 16;

const TYPE_SOFTWARE: u32 = 1;
const TYPE_TRACEPOINT: u32 = 2;
const COUNT_SW_DUMMY: u64 = 9;
const FORMAT_LOST: u64 = 1 << 4;
const FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

// The bits of `Attributes::flags`.
const DISABLED: u64 = 1 << 0;
const INHERIT: u64 = 1 << 1;
const COMM: u64 = 1 << 9;
const ENABLE_ON_EXEC: u64 = 1 << 12;
const TASK: u64 = 1 << 13;
const WATERMARK: u64 = 1 << 14;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
const COMM_EXEC: u64 = 1 << 24;
const USE_CLOCKID: u64 = 1 << 25;
const CONTEXT_SWITCH: u64 = 1 << 26;

// ioctl(2) numbers: `_IO('$', n)`, and those that take a pointer, for all machines except mips, powerpc and
// sparc.
const IOC_ENABLE: u64 = 0x2400;
const IOC_SET_OUTPUT: u64 = 0x2405;
const IOC_SET_FILTER: u64 = 0x4008_2406;
const IOC_ID: u64 = 0x8008_2407;

/// Maximum number of kernel frames in a stack; enough for those of the file system and of the disk.
const STACK_FRAMES_MAX: u16 = 48;

/// `struct perf_event_attr` with the size `PERF_ATTR_SIZE_VER5` (Linux 4.1).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const _: () = assert!(size_of::<Attributes>() == 112);

/// A tracepoint, and the additional contents of its records.
#[derive(Clone, Copy, Debug)]
pub struct Tracepoint<'a> {
    /// The tracepoint's number (`events/GROUP/NAME/id` in tracefs).
    pub id: u64,
    /// Records only events for which this condition holds, such as `prev_state & 2` (the kernel's
    /// trace/events.rst).
    pub filter: Option<&'a str>,
    /// Adds the kernel's stack.
    pub stack: bool,
    /// Wakes the reader after each record, not only when the ring fills up.
    pub wakes: bool,
    /// Also records context switches, new and ended threads, and their names.
    pub tasks: bool,
    /// Begins when the thread executes a program, not when it is enabled.
    pub from_exec: bool,
}

/// One tracepoint of a thread, and of the threads and processes that it starts, on one core. Disabled at
/// first.
#[derive(Debug)]
pub struct Event {
    fd: OwnedFd,
    id: u64,
    tells_lost: bool,
}

impl Event {
    /// Opens a tracepoint of the thread `tid` on `core`, which records into `ring`. The ring must belong to
    /// the same core.
    ///
    /// Errors: `EACCES` or `EPERM` without the right to (`CAP_PERFMON`), `ESRCH` if the thread has ended,
    /// `EMFILE`, `EINVAL` for a filter that the kernel does not accept.
    pub fn open(tracepoint: Tracepoint<'_>, tid: u32, core: u32, ring: &Ring) -> io::Result<Self> {
        let flag = |wanted, flags| if wanted { flags } else { 0 };
        let mut attributes = Attributes {
            kind: TYPE_TRACEPOINT,
            config: tracepoint.id,
            sample_period: 1,
            sample_type: SAMPLE | flag(tracepoint.stack, SAMPLE_CALLCHAIN),
            read_format: FORMAT_LOST,
            flags: DISABLED
                | INHERIT
                | SAMPLE_ID_ALL
                | flag(tracepoint.tasks, COMM | COMM_EXEC | TASK | CONTEXT_SWITCH)
                | flag(tracepoint.stack, EXCLUDE_CALLCHAIN_USER)
                | flag(tracepoint.from_exec, ENABLE_ON_EXEC)
                | flag(!tracepoint.wakes, WATERMARK),
            wakeup: if tracepoint.wakes { 1 } else { ring.watermark_bytes() },
            sample_max_stack: if tracepoint.stack { STACK_FRAMES_MAX } else { 0 },
            ..Attributes::default()
        };
        let tid = i32::try_from(tid).map_err(|_| io::Error::from(rustix::io::Errno::SRCH))?;
        let mut opened = open(attributes, tid, core);
        let tells_lost = !matches!(&opened, Err(e) if e.raw_os_error() == Some(libc::EINVAL));
        if !tells_lost {
            // Before Linux 6.0.
            attributes.read_format = 0;
            opened = open(attributes, tid, core);
        }
        let fd = opened?;
        if let Some(filter) = tracepoint.filter {
            let text = std::ffi::CString::new(filter)?;
            // SAFETY: the kernel reads the text, which outlives the call.
            check(unsafe { libc::ioctl(fd.as_raw_fd(), IOC_SET_FILTER as _, text.as_ptr()) })?;
        }
        // SAFETY: both descriptors are open events; no memory is read or written.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), IOC_SET_OUTPUT as _, ring.fd.as_raw_fd()) })?;
        let mut id = 0_u64;
        // SAFETY: the kernel writes the number to `id`, which outlives the call.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), IOC_ID as _, &raw mut id) })?;
        Ok(Self { fd, id, tells_lost })
    }

    /// The identifier in its records, and in those of the events inherited from it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Begins to record, also for the events inherited from it.
    pub fn enable(&self) -> io::Result<()> {
        // SAFETY: an ioctl on an open event that takes no pointer.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_ENABLE as _, 0) }).map(drop)
    }

    /// How many of its records the kernel has dropped because the ring was full. None if the kernel does not
    /// report it (before Linux 6.0).
    pub fn lost(&self) -> Option<u64> {
        let mut answer = [0_u8; 16];
        let whole = matches!(rustix::io::read(&self.fd, &mut answer), Ok(16));
        (self.tells_lost && whole).then(|| u64::from_ne_bytes(answer[8..].try_into().unwrap_or_default()))
    }
}

fn open(mut attributes: Attributes, tid: i32, core: u32) -> io::Result<OwnedFd> {
    attributes.size = size_of::<Attributes>() as u32;
    attributes.flags |= USE_CLOCKID;
    attributes.clockid = libc::CLOCK_MONOTONIC;
    let (no_group, core) = (-1, core as libc::c_int);
    // SAFETY: the kernel reads the attributes, which have the stated length and outlive the call. No other
    // code owns the descriptor that it returns.
    unsafe {
        let number = libc::SYS_perf_event_open;
        let fd = libc::syscall(number, &raw const attributes, tid, core, no_group, FLAG_FD_CLOEXEC);
        Ok(OwnedFd::from_raw_fd(check(fd)? as i32))
    }
}

/// The buffer in which the kernel puts the records of one core until they are read. A record without room is
/// lost, and the kernel counts it.
#[derive(Debug)]
pub struct Ring {
    fd: OwnedFd,
    /// One page with the positions, which the kernel and the reader share, followed by the records.
    mapped: Mapped,
    data_bytes: usize,
}

/// Offsets of fields in `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

impl Ring {
    /// Makes a ring for `core` with `bytes` bytes: a power of two, and at least a page.
    ///
    /// Errors: any of [`Event::open`]; `EPERM` for more memory than may be locked
    /// (`/proc/sys/kernel/perf_event_mlock_kb`, `CAP_IPC_LOCK`), `EINVAL` for another size.
    pub fn new(core: u32, bytes: usize) -> io::Result<Self> {
        if !bytes.is_power_of_two() || bytes < page_size() || bytes > 1 << 30 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let every_thread = -1;
        let attributes = Attributes {
            kind: TYPE_SOFTWARE,
            config: COUNT_SW_DUMMY,
            sample_type: SAMPLE,
            flags: WATERMARK | SAMPLE_ID_ALL,
            wakeup: (bytes / 4) as u32,
            ..Attributes::default()
        };
        let fd = open(attributes, every_thread, core)?;
        let length = page_size() + bytes;
        let mapped = Mapped::new(&fd, 0, length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::empty())?;
        Ok(Self { fd, mapped, data_bytes: bytes })
    }

    fn watermark_bytes(&self) -> u32 {
        (self.data_bytes / 4) as u32
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page of the mapping is `struct perf_event_mmap_page`, with an aligned u64 at this
        // offset, which the kernel writes atomically; it stays mapped as long as `self`.
        unsafe { &*self.mapped.address().as_ptr().byte_add(offset).cast::<AtomicU64>() }
    }

    /// Moves the present records to the end of `into` without changes (`struct perf_event_header` first), and
    /// makes room for new ones.
    pub fn take(&mut self, into: &mut Vec<u8>) {
        let head = self.position(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.position(DATA_TAIL).load(Ordering::Relaxed);
        let length = head.wrapping_sub(tail).min(self.data_bytes as u64) as usize;
        let start = (tail % self.data_bytes as u64) as usize;
        let first = length.min(self.data_bytes - start);
        into.reserve(length);
        // SAFETY: both parts lie in the mapping and between tail and head, where the kernel does not write
        // until the tail moves; they are copied before it does.
        unsafe {
            let data = self.mapped.address().as_ptr().cast::<u8>().add(page_size());
            into.extend_from_slice(std::slice::from_raw_parts(data.add(start), first));
            into.extend_from_slice(std::slice::from_raw_parts(data, length - first));
        }
        fence(Ordering::SeqCst);
        self.position(DATA_TAIL).store(head, Ordering::Release);
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Waits until a ring must be read, at most for `timeout`.
///
/// Errors: any of ppoll(2), except an interruption by a signal.
pub fn wait<'a>(rings: impl Iterator<Item = &'a Ring>, timeout: Duration) -> io::Result<()> {
    let mut fds: Vec<PollFd<'_>> = rings.map(|ring| PollFd::new(ring, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: timeout.as_secs() as _, tv_nsec: timeout.subsec_nanos().into() };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// A mount of tracefs, where the kernel describes its tracepoints, that is attached to no folder: no process sees
/// it, and it is gone when the descriptor is closed (fsopen(2), fsmount(2)). Its files are below
/// `/proc/self/fd/FD`.
///
/// Errors: `EPERM` without `CAP_SYS_ADMIN`, `ENODEV` if the kernel has no tracefs, `ENOSYS` before Linux 5.2.
pub fn private_tracefs() -> io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// The clock of the times in records, in nanoseconds.
pub use flash_prompt::clock::monotonic_ns as now_ns;

/// The name of a system call of this machine, given its number.
pub fn call_name(number: u64) -> Option<&'static str> {
    let number = usize::try_from(number).ok()?;
    Some(syscalls::Sysno::new(number)?.name())
}
