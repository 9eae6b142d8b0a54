//! Answers with a directory listing, which a helper makes and which is sent like a file. Called by
//! [`handler`](crate::handler).

use std::sync::Arc;

use flash_http::negotiate::{Choice, accept_encoding, prefers_json};
use flash_http::request::Method;

use super::error_page::BUSY;
use super::files::{Looked, Obtained, obtain};
use super::route::leads_to_server;
use super::{FileRequest, Found, Handled, Kept, Response, Step, Wait, refuse};
use crate::caches::{ListingForms, NameEntry};
use crate::context::Context;
use crate::counters::JobKind;
use crate::jobs::{JobKey, Urgency, Wanted};
use crate::machine::{ListingForm, ListingOrder, Machine, README_NAMES, Task};
use crate::rules::SiteRules;

/// Answers with a listing of the directory.
pub(super) fn answer<M: Machine>(
    context: &mut Context<'_, M>,
    asked: &FileRequest<'_>,
    forms: &ListingForms,
    looked: Looked<'_, M::File>,
) -> Handled<M::File> {
    let request = asked.request;
    let accepted = || accept_encoding(request.accept_encoding.as_deref()).choose(|_| true);
    let form = ListingForm {
        json: prefers_json(request.accept.as_deref()),
        order: ListingOrder::of_query(request.query),
        coding: match context.core.caches.compresses(asked.site).then(accepted) {
            Some(Choice::Coded(coding)) => Some(coding),
            _ => None,
        },
    };
    let (entry, tries) = (Arc::clone(looked.entry), looked.tries);
    let own = match &looked.kept {
        Kept::File(version, _) | Kept::Content(version, _) => Some(Arc::clone(version)),
        Kept::Nothing => None,
    };
    let Some(version) = own.or_else(|| forms.get(form)) else {
        return Handled::Step(request_listing(context, asked, (entry, tries), form));
    };
    if request.method == Method::Head {
        return Handled::Step(Step::Answer(Response::head_only(&version)));
    }
    match obtain(context, &version, looked) {
        Obtained::Source(source) => {
            let mut response = Response::whole(&version, source);
            response.tries = tries;
            Handled::Step(Step::Answer(response))
        }
        // Other forms of it can still be open.
        Obtained::Closed => {
            context.core.caches.forget_listing(asked.site, &asked.path, &version);
            Handled::Step(request_listing(context, asked, (entry, tries), form))
        }
        other => other.handled(request, entry, tries),
    }
}

/// Returns the job that makes a listing.
fn request_listing<M: Machine>(
    context: &mut Context<'_, M>,
    asked: &FileRequest<'_>,
    (entry, tries): (Arc<NameEntry>, u8),
    form: ListingForm,
) -> Step<M::File> {
    if !context.core.caches.has_room_for_listing(context.core.jobs.listings_len()) {
        context.core.jobs.count(JobKind::List).refused += 1;
        return refuse(asked.request, BUSY);
    }
    let (site, path) = (asked.site, asked.path.as_ref());
    let with_readme = !form.json && serves_readme(context.core.rules.site(site), path);
    let wanted = Wanted {
        key: JobKey::List(site, path.into(), form),
        task: Task::List { site, path: path.into(), form, with_readme },
        urgency: Urgency::Bounded,
        subject: None,
        remaining_bytes: 0,
    };
    let found = Found { entry: Some(entry), tries, ..Found::NOTHING };
    Step::Wait(Box::new(Wait { wanted, found }))
}

/// Whether a README in a directory is sent to every client that may see the listing. The listing must not show a text that a
/// rule or a route keeps from one of them. Helpers do not know the rules.
fn serves_readme(rules: &SiteRules, directory: &[u8]) -> bool {
    let directory = &*rules.public_path(directory);
    README_NAMES.iter().all(|name| {
        let path = [directory, name.as_bytes()].concat();
        !leads_to_server(rules, &path) && rules.paths.are_as_open(&path, directory)
    })
}
