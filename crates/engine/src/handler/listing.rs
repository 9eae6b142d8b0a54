//! Answers with a directory listing, which a helper makes and which is sent like a file. Called by
//! [`handler`](crate::handler).

use std::sync::Arc;

use flash_http::negotiate::prefers_json;
use flash_http::request::Method;

use super::error_page::BUSY;
use super::files::{Looked, Obtained, obtain};
use super::{FileRequest, Found, Handled, Held, Response, Step, Wait, refuse};
use crate::caches::ListingForms;
use crate::counters::JobKind;
use crate::desk::Desk;
use crate::jobs::{JobKey, Urgency, Wanted};
use crate::machine::{Machine, Task};

/// Answers with a listing of the directory.
pub(super) fn answer<M: Machine>(
    desk: &mut Desk<'_, M>,
    asked: &FileRequest<'_>,
    forms: &ListingForms,
    looked: Looked<'_, M::File>,
) -> Handled<M::File> {
    let json = prefers_json(asked.request.accept.as_deref());
    let entry = Arc::clone(looked.entry);
    let own = match &looked.held {
        Held::File(version, _) | Held::Content(version, _) => Some(Arc::clone(version)),
        Held::Nothing => None,
    };
    let Some(version) = own.or_else(|| forms.of(json).get()) else {
        return Handled::Step(request_listing(desk, asked, &looked, json));
    };
    if asked.request.method == Method::Head {
        return Handled::Step(Step::Answer(Response::head_only(&version)));
    }
    let tries = looked.tries;
    match obtain(desk, &version, looked) {
        Obtained::Source(source) => {
            let mut response = Response::whole(&version, source);
            response.tries = tries;
            Handled::Step(Step::Answer(response))
        }
        // The listing was closed, so it must be made again.
        Obtained::Closed => Handled::Stale,
        other => other.handled(asked.request, entry, tries),
    }
}

/// Returns the job that makes a listing.
fn request_listing<M: Machine>(
    desk: &mut Desk<'_, M>,
    asked: &FileRequest<'_>,
    looked: &Looked<'_, M::File>,
    json: bool,
) -> Step<M::File> {
    if !desk.core.caches.has_room_for_listing(desk.core.jobs.listings_len()) {
        desk.core.jobs.count(JobKind::List).refused += 1;
        return refuse(asked.request, BUSY);
    }
    let (site, path) = (asked.site, asked.path.as_ref());
    let wanted = Wanted {
        key: JobKey::List(site, path.into(), json),
        task: Task::List { site, path: path.into(), json },
        urgency: Urgency::Bounded,
        subject: None,
        remaining_bytes: 0,
    };
    let entry = Some(Arc::clone(looked.entry));
    let found = Found { entry, tries: looked.tries, ..Found::NOTHING };
    Step::Wait(Box::new(Wait { wanted, found }))
}
