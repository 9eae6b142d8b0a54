//! Handlers turn a request into a response, or into a wait for a job. The [`gate`] decides first, with [`admit`]: which
//! requests are answered at once, which a file answers, and which an upstream. [`answer`] is the heart of the engine: it
//! looks up the path of a file, and answers with the file, a listing or a page.
//!
//! A handler knows no connection and no exchange. The [`exchange`](crate::exchange) module calls it when a
//! request is complete, and again after each wait with everything already [`Found`].

mod content;
mod counting;
mod error_page;
mod file_request;
mod files;
mod form;
mod gate;
mod head;
mod hint;
mod https;
mod listing;
mod look_up;
mod password;
mod repeated;
mod response;
mod route;
mod script;

use std::borrow::Cow;
use std::sync::Arc;

use flash_http::request::Request;
use flash_http::target::is_hidden;

pub(crate) use content::content;
pub(crate) use error_page::{
    BAD_ANSWER, BUSY, DENIED, EXHAUSTED, LOST, NO_ANSWER, NO_LINK, NO_METHOD_OF_FILES, NOT_FOUND, PLAIN_HTTP,
    READ_FAILED, REQUEST_LATE, Refusal, SPOOL_FAILED, TOO_LARGE, UNSTEADY, UPSTREAM_BUSY, busy_page,
    error_page, malformed,
};
pub(crate) use file_request::{FileRequest, FileRequestBuf, Substitute};
pub(crate) use gate::{
    Admitted, NOT_A_FILE_OF_THE_SITE, admit, admit_application_file, admit_preferred_file, head_changes,
    head_changes_of_path,
};
pub(crate) use head::{
    About, CommonFields, Extent, HeadForm, RelayedHead, each_own_field, each_shared_field, persistence,
    write_head, write_relayed_head,
};
pub(crate) use password::{Password, PasswordCheck, verify};
pub(crate) use repeated::{is_valid, readmit, remember, repeat};
pub(crate) use response::Response;
pub(crate) use route::{Authorizer, Preferred, RouteTarget, Routed};
pub(crate) use script::{PathFound, check_script, find_path};

use crate::caches::{Content, NameEntry, Pass, Resolved, Version};
use crate::context::{Context, Core};
use crate::jobs::Wanted;
use crate::limits::TRIES_MAX;
use crate::machine::Machine;

/// A handler's decision on a request.
#[derive(Debug)]
pub(crate) enum Step<F> {
    Answer(Response<F>),
    /// The job must be done first. Then the handler is called again with everything found before.
    Wait(Box<Wait<F>>),
}

/// The job to wait for, and everything found before.
#[derive(Debug)]
pub(crate) struct Wait<F> {
    pub(crate) wanted: Wanted<F, Arc<Version>>,
    pub(crate) found: Found<F>,
}

/// The part of the answer that was found before a wait.
#[derive(Debug)]
pub(crate) struct Found<F> {
    /// The entry that the path leads to.
    pub(crate) entry: Option<Arc<NameEntry>>,
    /// A stale entry to be used if the job does not check it within a moment.
    pub(crate) stale: Option<Arc<NameEntry>>,
    pub(crate) kept: Kept<F>,
    /// How often the request had to wait, or found that an entry was no longer valid.
    pub(crate) tries: u8,
}

/// A file or content kept for a waiting request, because the caches may evict it.
#[derive(Debug)]
pub(crate) enum Kept<F> {
    Nothing,
    /// The open file of a version.
    File(Arc<Version>, Arc<F>),
    /// The content of a version.
    Content(Arc<Version>, Arc<Content>),
}

impl<F> Found<F> {
    pub(crate) const NOTHING: Self = Self { entry: None, stale: None, kept: Kept::Nothing, tries: 0 };

    /// The start of the next attempt, with nothing found.
    pub(crate) fn next_try(&self) -> Self {
        Self { tries: self.tries.saturating_add(1), ..Self::NOTHING }
    }
}

/// The result of the handler for one kind of target.
pub(crate) enum Handled<F> {
    Step(Step<F>),
    /// The entry is no longer valid.
    Stale,
    /// The file of the entry is no longer open.
    Closed,
    /// Another file answers.
    Elsewhere,
}

/// Answers a request for a file, or returns the job that it must wait for. If the file is missing and a rule names another, the
/// request is for that one from then on.
pub(crate) fn answer<M: Machine>(
    context: &mut Context<'_, M>,
    asked: &mut FileRequest<'_>,
    mut found: Found<M::File>,
) -> Step<M::File> {
    let request = asked.request;
    match verify(context, &mut asked.checks) {
        Password::Right => {}
        Password::Wait(wanted) => return Step::Wait(Box::new(Wait { wanted: *wanted, found })),
        Password::Refused(refusal) => return refuse(request, refusal),
    }
    let mut reopen = false;
    loop {
        let (entry, opened) = match found.entry.take() {
            Some(entry) => (entry, true),
            None => match look_up::look_up(context, asked, std::mem::take(&mut reopen)) {
                look_up::LookUp::Known(entry) => (entry, false),
                look_up::LookUp::Opened(entry) => (entry, true),
                look_up::LookUp::Wait(wanted, stale) => {
                    return Step::Wait(Box::new(Wait { wanted: *wanted, found: Found { stale, ..found } }));
                }
                look_up::LookUp::Refused(refusal) => return refuse(request, refusal),
            },
        };
        let tries = found.tries;
        let looked = files::Looked { entry: &entry, kept: found.kept, tries, opened, path: &asked.path };
        let handled = match &entry.resolved {
            Resolved::File(resource) => files::answer(context, asked, resource, looked),
            Resolved::Listing(forms) => listing::answer(context, asked, forms, looked),
            Resolved::Redirect | Resolved::Missing if extend(context.core, asked) => Handled::Elsewhere,
            Resolved::Redirect => return to_directory(context.core, asked),
            Resolved::Missing if is_alias(context.core, asked) => return to_directory(context.core, asked),
            Resolved::Missing if fall_back(context.core, asked) => Handled::Elsewhere,
            Resolved::Missing => return hint::missing(context, asked),
            Resolved::Script => return refuse(request, error_page::NOT_FOUND),
            Resolved::Denied => return refuse(request, error_page::DENIED),
        };
        match handled {
            Handled::Step(step) => return step,
            // The file was closed, but its stored siblings are still valid, so the entry is kept.
            Handled::Closed => reopen = true,
            Handled::Elsewhere => {
                found = Found { tries, ..Found::NOTHING };
                continue;
            }
            Handled::Stale => {
                context.core.caches.forget(asked.site, &asked.path, &entry);
                look_up::report_wrong(context, asked.site, &asked.path);
            }
        }
        // The number of attempts is bounded, in case the file keeps changing.
        found = Found { tries: tries.saturating_add(1), ..Found::NOTHING };
        if found.tries > 3 * TRIES_MAX {
            return refuse(request, UNSTEADY);
        }
    }
}

/// Makes a request for a missing file, or for a directory without its last slash, one for the same path with the next extension that a rule
/// names. After the last one it is for the path itself again.
fn extend<F>(core: &Core<F>, asked: &mut FileRequest<'_>) -> bool {
    let Substitute::Extended { number, ending_bytes } = asked.substitute else { return false };
    asked.substitute = Substitute::Fallback;
    let rules = core.rules.site(asked.site);
    let mut path = rules.public_path(&asked.path);
    let bytes = path.len() - usize::from(ending_bytes);
    // A route looks for the file of the path alone.
    if route::has_route(rules, &path[..bytes]) {
        return false;
    }
    let extended = rules
        .paths
        .extended(&path[..bytes], number, |path| !is_hidden(path) && !route::leads_to_server(rules, path));
    if let Some(extended) = extended {
        let ending_bytes = (extended.path.len() - bytes) as u8;
        asked.substitute = Substitute::Extended { number: extended.number + 1, ending_bytes };
        path = Cow::Owned(extended.path);
    } else if number > 0 {
        path.to_mut().truncate(bytes);
    } else {
        return false;
    }
    let path = Cow::Owned(path.into_owned());
    (asked.site, asked.path) = core.rules.place(core.rules.public_site(asked.site), path);
    asked.pass = Pass::Once;
    true
}

/// Makes a request for a missing file one for the file that answers in its place, if there is one.
fn fall_back<F>(core: &Core<F>, asked: &mut FileRequest<'_>) -> bool {
    if std::mem::replace(&mut asked.substitute, Substitute::None) == Substitute::None {
        return false;
    }
    let rules = core.rules.site(asked.site);
    let path = rules.public_path(&asked.path);
    let Some(fallback) = rules.paths.fallback(&path) else { return false };
    let public_site = core.rules.public_site(asked.site);
    (asked.site, asked.path) = core.rules.place(public_site, Cow::Owned(fallback.to_vec()));
    // The missing file can come to be while the other stays as it is.
    asked.pass = Pass::Once;
    true
}

/// Whether a missing path is that of an alias without its last slash.
fn is_alias<F>(core: &Core<F>, asked: &FileRequest<'_>) -> bool {
    let rules = core.rules.site(asked.site);
    rules.paths.is_alias(&rules.public_path(&asked.path))
}

/// Sends a client to the path with its slash.
fn to_directory<F>(core: &Core<F>, asked: &FileRequest<'_>) -> Step<F> {
    let path = core.rules.site(asked.site).public_path(&asked.path);
    Step::Answer(error_page::redirect(asked.request, &path))
}

/// Forgets the entry for a path, because its file has changed.
pub(crate) fn forget<M: Machine>(context: &mut Context<'_, M>, asked: &FileRequest<'_>) {
    let entry = context.core.caches.names.get(asked.site, &asked.path).map(Arc::clone);
    if let Some(entry) = entry {
        context.core.caches.forget(asked.site, &asked.path, &entry);
    }
    look_up::report_wrong(context, asked.site, &asked.path);
}

fn refuse<F>(request: &Request<'_>, refusal: Refusal) -> Step<F> {
    Step::Answer(error_page(request, refusal))
}
