//! Files: conditions, ranges and variants of a file decide between 200, 206, 304, 406, 412 and 416; and the bytes come
//! from memory for a small file, else from the file itself.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;

use flash_http::conditional::{Validators, Verdict, evaluate, range_applies};
use flash_http::multipart::{boundary, part_end, part_head};
use flash_http::negotiate::{Choice, Coding, accept_encoding};
use flash_http::range::{ByteRange, Ranges, parse_range};
use flash_http::request::{Method, Request};
use flash_http::response::Status;

use super::error_page::{NOT_ACCEPTABLE, PRECONDITION_FAILED, READ_FAILED, Refusal, UNSTEADY, unsatisfiable};
use super::{About, Asked, Extent, Found, Handled, Held, Response, Step, Wait, refuse};
use crate::body::{Body, Source, hand_over, load, multipart};
use crate::desk::{Core, Desk};
use crate::jobs::{Urgency, Wanted};
use crate::limits::{SMALL_FILE_BYTES_MAX, TRIES_MAX};
use crate::machine::{Machine, Resident};
use crate::store::{Content, NameEntry, ReplyForm, Resource, Version, write_head};

/// An entry that a request is answered from, and what was found of its file before.
pub(super) struct Looked<'e, F> {
    pub(super) entry: &'e Arc<NameEntry>,
    pub(super) held: Held<F>,
    pub(super) tries: u8,
    /// The file was opened for this request, by the worker or by a helper.
    pub(super) opened: bool,
}

/// Where the bytes of a version come from.
pub(super) enum Obtained<F> {
    Source(Source<F>),
    /// A job has to bring them first.
    Wait(Box<Wanted<F, Arc<Version>>>, Held<F>),
    Refused(Refusal),
    /// The file is no longer what its version says.
    Changed,
    /// The file is not open any more.
    Closed,
}

/// Answers with a file.
pub(super) fn answer<M: Machine>(
    desk: &mut Desk<'_, M>,
    asked: &Asked<'_, '_>,
    resource: &Resource,
    looked: Looked<'_, M::File>,
) -> Handled<M::File> {
    let request = asked.request;
    let entry = Arc::clone(looked.entry);
    let Some(version) = choose(resource, request) else {
        return Handled::Step(refuse(request, NOT_ACCEPTABLE));
    };
    let validators = Validators { etag: version.etag.as_bytes(), modified_s: version.modified_s };
    match evaluate(request, &validators) {
        Verdict::Proceed => {}
        Verdict::NotModified => {
            let response = Response::not_modified(version).repeating(entry, ReplyForm::NotModified);
            return Handled::Step(Step::Answer(response));
        }
        Verdict::PreconditionFailed => return Handled::Step(refuse(request, PRECONDITION_FAILED)),
    }
    if request.method == Method::Head {
        let response = Response::head_only(version).repeating(entry, ReplyForm::HeadOnly);
        return Handled::Step(Step::Answer(response));
    }
    let size_bytes = version.stat.size_bytes;
    let ranges = match request.range {
        Some(field) if range_applies(request, &validators, desk.core.clock.wall_s) => {
            parse_range(field, size_bytes, &version.content_type)
        }
        _ => Ranges::Whole,
    };
    if ranges == Ranges::Unsatisfiable {
        return Handled::Step(Step::Answer(unsatisfiable(request, size_bytes)));
    }
    let tries = looked.tries;
    let source = match obtain(desk, version, looked) {
        Obtained::Source(source) => source,
        other => return other.handled(request, entry, tries),
    };
    let mut response = match ranges {
        Ranges::One(range) => one_range(version, source, range),
        Ranges::Many(ranges) => many_ranges(desk.core, version, source, &ranges),
        Ranges::Whole | Ranges::Unsatisfiable => {
            let whole = Response::whole(version, source);
            let repeats = matches!(whole.body, Body::Content(..)) && request.range.is_none();
            if repeats { whole.repeating(entry, ReplyForm::Whole) } else { whole }
        }
    };
    response.tries = tries;
    Handled::Step(Step::Answer(response))
}

impl<F> Obtained<F> {
    /// The handler's step when there is no source.
    pub(super) fn handled(self, request: &Request<'_>, entry: Arc<NameEntry>, tries: u8) -> Handled<F> {
        match self {
            Obtained::Wait(wanted, held) => {
                let found = Found { entry: Some(entry), held, tries };
                Handled::Step(Step::Wait(Box::new(Wait { wanted: *wanted, found })))
            }
            Obtained::Refused(refusal) => Handled::Step(refuse(request, refusal)),
            Obtained::Closed => Handled::Closed,
            Obtained::Changed | Obtained::Source(_) => Handled::Stale,
        }
    }
}

/// The variant to answer with; None when the client rules all of them out.
fn choose<'r>(resource: &'r Resource, request: &Request<'_>) -> Option<&'r Arc<Version>> {
    if !resource.plain.varies {
        return Some(&resource.plain);
    }
    let variant = |coding: Coding| {
        let place = Coding::ALL.iter().position(|c| *c == coding)?;
        resource.coded[place].as_ref()
    };
    match accept_encoding(request.accept_encoding.as_deref()).choose(|coding| variant(coding).is_some()) {
        Choice::Identity => Some(&resource.plain),
        Choice::Coded(coding) => variant(coding),
        Choice::NotAcceptable => None,
    }
}

fn one_range<F>(version: &Arc<Version>, source: Source<F>, range: ByteRange) -> Response<F> {
    Response {
        status: Status::PARTIAL_CONTENT,
        length: Some(range.len()),
        body: source.part(range.start..range.end),
        about: About::File(Arc::clone(version), Extent::Range(range)),
        repeats: None,
        tries: 0,
    }
}

fn many_ranges<F>(
    core: &mut Core<F>,
    version: &Arc<Version>,
    source: Source<F>,
    ranges: &[ByteRange],
) -> Response<F> {
    core.boundaries += 1;
    let boundary = boundary(core.boundaries ^ core.clock.now.wall_ns as u64);
    let size_bytes = version.stat.size_bytes;
    let parts: VecDeque<_> = ranges
        .iter()
        .enumerate()
        .map(|(number, range)| {
            let text = part_head(&boundary, &version.content_type, range, size_bytes, number == 0);
            (text, range.start..range.end)
        })
        .collect();
    let body = multipart(source, parts, part_end(&boundary));
    Response {
        status: Status::PARTIAL_CONTENT,
        length: Some(body.len()),
        body,
        about: About::File(Arc::clone(version), Extent::Ranges(boundary)),
        repeats: None,
        tries: 0,
    }
}

/// Where the bytes of a version come from: memory for a small file, else the file.
pub(super) fn obtain<M: Machine>(
    desk: &mut Desk<'_, M>,
    version: &Arc<Version>,
    looked: Looked<'_, M::File>,
) -> Obtained<M::File> {
    if let Some(content) = desk.core.store.contents.get(version.id) {
        desk.core.counters.content_hits += 1;
        return Obtained::Source(Source::Memory(Arc::clone(content)));
    }
    let held = match looked.held {
        Held::Content(of, content) if of.id == version.id => {
            return Obtained::Source(Source::Memory(content));
        }
        Held::File(of, file) if of.id == version.id => Some(file),
        Held::Content(..) | Held::File(..) | Held::Nothing => None,
    };
    let is_first_look = held.is_none();
    // An entry that was confirmed without opening may have lost its file to the bound.
    let Some(file) = held.or_else(|| desk.core.store.files.get(version.id)) else { return Obtained::Closed };
    if is_first_look {
        count_file(desk.core, looked.opened, version.stat.size_bytes);
    }
    let obtained = read(desk, version, &file, looked.tries);
    match obtained {
        Obtained::Wait(..) if looked.tries > 3 * TRIES_MAX => Obtained::Refused(UNSTEADY),
        other => other,
    }
}

/// A file is needed for a request: its content was not in memory.
fn count_file<F>(core: &mut Core<F>, opened: bool, size_bytes: u64) {
    let files = if opened { &mut core.counters.file_misses } else { &mut core.counters.file_hits };
    *files += 1;
    core.counters.content_misses +=
        u64::from(core.store.contents.is_on() && size_bytes <= SMALL_FILE_BYTES_MAX);
}

/// Reads a small file into memory; a large one is read while it is sent.
fn read<M: Machine>(
    desk: &mut Desk<'_, M>,
    version: &Arc<Version>,
    file: &Arc<M::File>,
    tries: u8,
) -> Obtained<M::File> {
    let size_bytes = version.stat.size_bytes;
    let core = &mut *desk.core;
    let is_small = size_bytes <= SMALL_FILE_BYTES_MAX && core.store.contents.is_on();
    let mut filled = 0;
    while is_small && filled < size_bytes {
        let room = &mut core.file_buffer[filled as usize..size_bytes as usize];
        match desk.machine.read_resident(file, filled, room) {
            Ok(Resident::Bytes(0)) => return Obtained::Changed,
            Ok(Resident::Bytes(n)) => filled += n as u64,
            Ok(Resident::Absent) if tries < TRIES_MAX => {
                core.counters.loads_in_vain += u64::from(tries > 0);
                let wanted = load(version, file, 0, Urgency::Bounded);
                return wait(wanted, Held::File(Arc::clone(version), Arc::clone(file)));
            }
            Ok(Resident::Absent | Resident::Unknown) => {
                let wanted = hand_over(version, file, 0..size_bytes, Urgency::Bounded);
                return wait(wanted, Held::File(Arc::clone(version), Arc::clone(file)));
            }
            Err(_) => return Obtained::Refused(READ_FAILED),
        }
    }
    // After the read: a change made while it went on shows in the times.
    let unchanged = match desk.machine.stat(file) {
        Ok(stat) => stat.same_content(&version.stat),
        // The bytes that a helper hands over come with the file's state; an empty file has none.
        Err(e) => e.kind() == ErrorKind::WouldBlock,
    };
    if !unchanged {
        return Obtained::Changed;
    }
    if !is_small {
        return Obtained::Source(Source::File(Arc::clone(version), Arc::clone(file)));
    }
    let content = content(core, version, &core.file_buffer[..size_bytes as usize]);
    core.store.keep_content(version, &content);
    Obtained::Source(Source::Memory(content))
}

fn wait<F>(wanted: Wanted<F, Arc<Version>>, held: Held<F>) -> Obtained<F> {
    Obtained::Wait(Box::new(wanted), held)
}

/// A small file's content, behind its head where heads are kept.
pub(crate) fn content<F>(core: &Core<F>, version: &Version, body: &[u8]) -> Arc<Content> {
    let mut head = Vec::with_capacity(512);
    let mut date_at = 0;
    if core.rules.optimizations.head_cache {
        let align_bytes = core.rules.optimizations.head_align_bytes();
        date_at = write_head(&mut head, version, &core.clock.date, align_bytes);
    }
    Arc::new(Content::new(&head, date_at, body, core.clock.wall_s))
}
