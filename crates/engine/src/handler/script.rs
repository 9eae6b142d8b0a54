//! Finds the script of a request, which a server runs, and the file that answers in its place, in the way that files are found.
//! Called by the relay before a server gets the request.

use std::sync::Arc;

use super::FileRequest;
use super::error_page::{DENIED, NOT_FOUND, Refusal};
use super::look_up::{LookUp, look_up};
use crate::caches::{NameEntry, Resolved, Version};
use crate::context::Context;
use crate::jobs::Wanted;
use crate::machine::Machine;

/// The result of a look-up of a path.
pub(crate) enum PathFound<F> {
    /// It has this entry.
    Entry(Arc<NameEntry>),
    /// A helper must look it up.
    Wait(Box<Wanted<F, Arc<Version>>>),
    /// It could not be looked up.
    Refused(Refusal),
}

/// Looks up a path for a request that a server answers.
pub(crate) fn find_path<M: Machine>(
    context: &mut Context<'_, M>,
    asked: &FileRequest<'_>,
) -> PathFound<M::File> {
    match look_up(context, asked, false) {
        LookUp::Known(entry) | LookUp::Opened(entry) => PathFound::Entry(entry),
        // Whoever answers opens the file again, so no request waits while a helper checks.
        LookUp::Wait(_, Some(stale)) => {
            context.core.counters.name_hits += 1;
            PathFound::Entry(stale)
        }
        LookUp::Wait(wanted, None) => PathFound::Wait(wanted),
        LookUp::Refused(refusal) => PathFound::Refused(refusal),
    }
}

/// Whether the entry for the path of a script is that of a script.
///
/// # Errors
/// Why no server is asked to run it.
pub(crate) fn check_script(entry: &NameEntry) -> Result<(), Refusal> {
    match entry.resolved {
        Resolved::Script => Ok(()),
        Resolved::Denied => Err(DENIED),
        Resolved::File(_) | Resolved::Redirect | Resolved::Listing(_) | Resolved::Missing => Err(NOT_FOUND),
    }
}
