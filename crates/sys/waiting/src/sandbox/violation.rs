//! Handles a system call that is not on the role's list: the process names the call on standard error and
//! ends. No other process is affected.

use std::cell::Cell;
use std::ffi::c_void;
use std::io;

use flash_prompt::call::check;
use syscalls::Sysno;

/// The exit code of a process that was ended for a forbidden call: the code that a shell shows for SIGSYS.
pub const EXIT_CODE: i32 = 128 + libc::SIGSYS;

thread_local! {
    /// The beginning of the message. It is made ahead, because a signal handler must not allocate, and never
    /// freed. It belongs to the thread, because the signal goes to the thread that made the call.
    static PREFIX: Cell<&'static str> = const { Cell::new("") };
}

const SUFFIX: &[u8] = b", which its sandbox forbids: it was ended. This is a bug in flash, or an intruder\n";

/// Offset of `si_syscall` in `siginfo_t` (sigaction(2)): after three ints, padding and a pointer.
#[cfg(target_pointer_width = "64")]
const SI_SYSCALL_OFFSET: usize = 24;

/// Makes messages about forbidden calls of this thread name `who`. Must be called once in each thread.
pub(super) fn report_as(who: &str) -> io::Result<()> {
    PREFIX.set(format!("flash: {who} called ").leak());
    // SAFETY: all fields are set; the handler calls only functions that signal-safety(7) allows.
    check(unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_violation as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut())
    })
    .map(drop)
}

extern "C" fn on_violation(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes a complete siginfo_t, whose fields for SIGSYS have the number of the call at
    // this offset; it may be unaligned for a byte pointer.
    let number = unsafe { info.cast::<u8>().add(SI_SYSCALL_OFFSET).cast::<i32>().read_unaligned() };
    let name =
        usize::try_from(number).ok().and_then(Sysno::new).map_or("an unknown system call", |c| c.name());
    let mut message = [0; 256];
    let mut length = 0;
    for part in [PREFIX.get().as_bytes(), name.as_bytes(), SUFFIX] {
        let n = part.len().min(message.len() - length);
        message[length..length + n].copy_from_slice(&part[..n]);
        length += n;
    }
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: poll, write and _exit are safe in a signal handler; all pointers are to live values.
    unsafe {
        // If no process reads standard error, ending at once is more important than the message.
        if libc::poll(&raw mut stderr, 1, 0) == 1 {
            libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), length);
        }
        libc::_exit(EXIT_CODE);
    }
}
