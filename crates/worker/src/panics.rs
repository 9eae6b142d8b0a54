//! Keeps the text of a panic for the supervisor, because the default, a write to standard error, can block.

use std::cell::RefCell;

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on, stores the text of every panic of this process instead of printing it. The worker reports it
/// to the supervisor.
pub fn keep_panics_quiet() {
    std::panic::set_hook(Box::new(|panic| LAST.with(|last| *last.borrow_mut() = panic.to_string())));
}

/// The text of this thread's last panic; empty if there was none since the last call.
pub(super) fn take_last() -> String {
    LAST.with(RefCell::take)
}
