//! Clocks, read through the vDSO, without a system call on ordinary machines.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the monotonic clock, since an arbitrary start.
#[inline]
pub fn monotonic_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Milliseconds of the monotonic clock, since an arbitrary start.
pub fn monotonic_ms() -> u64 {
    monotonic_ns() / 1_000_000
}

/// Nanoseconds of wall time since 1970, UTC.
pub fn wall_ns() -> i128 {
    let t = clock_gettime(ClockId::Realtime);
    i128::from(t.tv_sec) * 1_000_000_000 + i128::from(t.tv_nsec)
}

/// CPU time of the calling thread, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
