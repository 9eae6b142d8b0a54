//! What a panic says: kept for the supervisor, since the default, a write to standard error, may wait.

use std::cell::RefCell;

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the text of every panic of this process from now on, in place of printing it. The worker
/// reports it to the supervisor.
pub fn keep_panics_quiet() {
    std::panic::set_hook(Box::new(|panic| LAST.with(|last| *last.borrow_mut() = panic.to_string())));
}

/// The text of the last panic of this thread; empty when there was none since.
pub(super) fn take_last() -> String {
    LAST.with(RefCell::take)
}
