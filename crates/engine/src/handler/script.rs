//! Finds the script of a request, which a server runs, in the way that files are found. Called by the relay before a server
//! gets the request.

use std::sync::Arc;

use super::FileRequest;
use super::error_page::{DENIED, NOT_FOUND, Refusal};
use super::look_up::{LookUp, look_up};
use crate::caches::{NameEntry, Resolved, Version};
use crate::desk::Desk;
use crate::jobs::Wanted;
use crate::machine::Machine;

/// The result of a search for a script.
pub(crate) enum ScriptFound<F> {
    /// It is a file beneath the root.
    Yes,
    /// A helper must look it up.
    Wait(Box<Wanted<F, Arc<Version>>>),
    /// No server is asked to run it.
    Refused(Refusal),
}

/// Looks up the path of a script.
pub(crate) fn find_script<M: Machine>(
    desk: &mut Desk<'_, M>,
    asked: &FileRequest<'_>,
) -> ScriptFound<M::File> {
    match look_up(desk, asked, false) {
        LookUp::Known(entry) | LookUp::Opened(entry) => script_of(&entry),
        // The server that runs it opens it again, so no request waits while a helper checks.
        LookUp::Wait(_, Some(stale)) => {
            desk.core.counters.name_hits += 1;
            script_of(&stale)
        }
        LookUp::Wait(wanted, None) => ScriptFound::Wait(wanted),
        LookUp::Refused(refusal) => ScriptFound::Refused(refusal),
    }
}

/// Whether the entry for the path of a script is that of a script.
pub(crate) fn script_of<F>(entry: &NameEntry) -> ScriptFound<F> {
    match entry.resolved {
        Resolved::Script => ScriptFound::Yes,
        Resolved::Denied => ScriptFound::Refused(DENIED),
        Resolved::File(_) | Resolved::Redirect | Resolved::Listing(_) | Resolved::Missing => {
            ScriptFound::Refused(NOT_FOUND)
        }
    }
}
