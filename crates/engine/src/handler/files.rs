//! Answers with a file. Conditions, ranges and variants decide between 200, 206, 304, 406, 412 and 416. The
//! bytes of a one-block file come from the store; other bytes come from the file itself. Called by
//! [`handler`](crate::handler) for files and listings.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;

use flash_http::conditional::{PreconditionResult, evaluate, range_applies};
use flash_http::negotiate::{Choice, Coding, accept_encoding};
use flash_http::range::multipart::{boundary, part_end, part_head};
use flash_http::range::{ByteRange, Ranges, parse_range};
use flash_http::request::{Method, Request};
use flash_http::response::Status;

use super::error_page::{NOT_ACCEPTABLE, PRECONDITION_FAILED, READ_FAILED, Refusal, UNSTEADY, unsatisfiable};
use super::form::{self, Compressed};
use super::{About, Extent, FileRequest, Found, Handled, Kept, Response, Step, Wait, content, refuse};
use crate::body::{Body, Source, fill, load, multipart, queue_fill, read_by_helper, with_name};
use crate::caches::{Content, ContentBytes, NameEntry, ReplyForm, Resource, Version};
use crate::context::{Context, Core};
use crate::jobs::{Urgency, Wanted};
use crate::limits::{FILLS_MAX, LOAD_BYTES, SMALL_FILE_BYTES_MAX, TRIES_MAX};
use crate::machine::{Machine, NameOfFile, Resident};

/// The entry that a request is answered from, and anything already found for its file.
pub(super) struct Looked<'e, F> {
    pub(super) entry: &'e Arc<NameEntry>,
    pub(super) kept: Kept<F>,
    pub(super) tries: u8,
    /// Whether the file was opened for this request, by the worker or by a helper.
    pub(super) opened: bool,
    /// The path of the request.
    pub(super) path: &'e [u8],
}

/// The source of a version's bytes.
pub(super) enum Obtained<F> {
    Source(Source<F>),
    /// A job must bring the bytes first.
    Wait(Box<Wanted<F, Arc<Version>>>, Kept<F>),
    Refused(Refusal),
    /// The file is no longer in the state that its version describes.
    Changed,
    /// The file is no longer open.
    Closed,
}

pub(super) fn answer<M: Machine>(
    context: &mut Context<'_, M>,
    asked: &FileRequest<'_>,
    resource: &Resource,
    looked: Looked<'_, M::File>,
) -> Handled<M::File> {
    let request = asked.request;
    let entry = Arc::clone(looked.entry);
    let variant = choose(context, asked, resource, looked.opened);
    let is_final = !matches!(variant, Variant::ForNow(_));
    let (version, looked) = match variant {
        Variant::None => return Handled::Step(refuse(request, NOT_ACCEPTABLE)),
        Variant::Final(version) | Variant::ForNow(version) => (version, looked),
        Variant::Made(version, kept) => (version, Looked { kept, ..looked }),
    };
    let version = &version;
    let repeating = |response: Response<M::File>, form| {
        if is_final { response.repeating(entry.clone(), form) } else { response }
    };
    let validators = version.validators();
    match evaluate(request, &validators) {
        PreconditionResult::Proceed => {}
        PreconditionResult::NotModified => {
            let response = repeating(Response::not_modified(version), ReplyForm::NotModified);
            return Handled::Step(Step::Answer(response));
        }
        PreconditionResult::PreconditionFailed => return Handled::Step(refuse(request, PRECONDITION_FAILED)),
    }
    if request.method == Method::Head {
        let response = repeating(Response::head_only(version), ReplyForm::HeadOnly);
        return Handled::Step(Step::Answer(response));
    }
    let size_bytes = version.stat.size_bytes;
    let ranges = match request.range {
        Some(field) if range_applies(request, &validators, context.core.clock.wall_s) => {
            parse_range(field, size_bytes, &version.content_type)
        }
        _ => Ranges::Whole,
    };
    if ranges == Ranges::Unsatisfiable {
        return Handled::Step(Step::Answer(unsatisfiable(request, size_bytes)));
    }
    let tries = looked.tries;
    let source = match obtain(context, version, looked) {
        Obtained::Source(source) => source,
        other => return other.handled(request, entry, tries),
    };
    let mut response = match ranges {
        Ranges::One(range) => one_range(version, source, range),
        Ranges::Many(ranges) => many_ranges(context.core, version, source, &ranges),
        Ranges::Whole | Ranges::Unsatisfiable => {
            let whole = Response::whole(version, source);
            let repeats = matches!(whole.body, Body::Content(..)) && request.range.is_none();
            if repeats { repeating(whole, ReplyForm::Whole) } else { whole }
        }
    };
    if let Body::Content(content, range) = &response.body
        && content.is_stored()
    {
        context.core.counters.stored_bytes += range.len() as u64;
    }
    response.tries = tries;
    Handled::Step(Step::Answer(response))
}

impl<F> Obtained<F> {
    /// The handler's result when there is no source.
    pub(super) fn handled(self, request: &Request<'_>, entry: Arc<NameEntry>, tries: u8) -> Handled<F> {
        match self {
            Obtained::Wait(wanted, kept) => {
                let found = Found { entry: Some(entry), kept, tries, ..Found::NOTHING };
                Handled::Step(Step::Wait(Box::new(Wait { wanted: *wanted, found })))
            }
            Obtained::Refused(refusal) => Handled::Step(refuse(request, refusal)),
            Obtained::Closed => Handled::Closed,
            Obtained::Changed | Obtained::Source(_) => Handled::Stale,
        }
    }
}

/// The variant to answer with.
enum Variant<F> {
    /// The client accepts none.
    None,
    /// This one answers equal requests too.
    Final(Arc<Version>),
    /// The same, whose content is at hand.
    Made(Arc<Version>, Kept<F>),
    /// Another one will soon answer equal requests.
    ForNow(Arc<Version>),
}

/// Chooses the variant to answer with.
fn choose<M: Machine>(
    context: &mut Context<'_, M>,
    asked: &FileRequest<'_>,
    resource: &Resource,
    is_new: bool,
) -> Variant<M::File> {
    let found = choose_file(resource, asked.request);
    if let Some(sibling) = found.filter(|found| found.coding.is_some()) {
        return Variant::Final(Arc::clone(sibling));
    }
    let file = |variant: fn(Arc<Version>) -> Variant<M::File>| {
        found.map_or(Variant::None, |file| variant(Arc::clone(file)))
    };
    match form::choose(context, asked, &resource.plain, is_new) {
        Compressed::None => file(Variant::Final),
        Compressed::Coming => file(Variant::ForNow),
        Compressed::Known(form) => Variant::Final(form),
        Compressed::Ready(form, content) => Variant::Made(Arc::clone(&form), Kept::Content(form, content)),
    }
}

/// Chooses among a file and its siblings; None if the client accepts none of them.
fn choose_file<'r>(resource: &'r Resource, request: &Request<'_>) -> Option<&'r Arc<Version>> {
    if resource.coded.iter().all(Option::is_none) {
        return Some(&resource.plain);
    }
    let variant = |coding: Coding| resource.coded[coding.place()].as_ref();
    match accept_encoding(request.accept_encoding.as_deref()).choose(|coding| variant(coding).is_some()) {
        Choice::Identity => Some(&resource.plain),
        Choice::Coded(coding) => variant(coding),
        Choice::NotAcceptable => None,
    }
}

fn one_range<F>(version: &Arc<Version>, source: Source<F>, range: ByteRange) -> Response<F> {
    let about = About::File(Arc::clone(version), Extent::Range(range));
    let body = source.part(range.start..range.end);
    Response::new(Status::PARTIAL_CONTENT, about, Some(range.len()), body)
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
    let about = About::File(Arc::clone(version), Extent::Ranges(boundary));
    Response::new(Status::PARTIAL_CONTENT, about, Some(body.len()), body)
}

/// Finds the source of a version's bytes: memory for a one-block file, otherwise the file.
pub(super) fn obtain<M: Machine>(
    context: &mut Context<'_, M>,
    version: &Arc<Version>,
    looked: Looked<'_, M::File>,
) -> Obtained<M::File> {
    if let Some(content) = stored(context, version) {
        // After a wait, a helper has brought the block: a miss. A request that holds its file was counted
        // when it found the file.
        match looked.kept {
            Kept::Nothing if looked.tries == 0 => context.core.counters.content_hits += 1,
            Kept::Nothing => context.core.counters.content_misses += 1,
            Kept::File(..) | Kept::Content(..) => {}
        }
        return Obtained::Source(Source::Memory(content));
    }
    let kept = match looked.kept {
        Kept::Content(of, content) if of.id == version.id => {
            return Obtained::Source(Source::Memory(content));
        }
        Kept::File(of, file) if of.id == version.id => Some(file),
        Kept::Content(..) | Kept::File(..) | Kept::Nothing => None,
    };
    let is_first_look = kept.is_none();
    // The entry was confirmed without opening its file, which may have been closed at the limit of open
    // files.
    let Some(file) = kept.or_else(|| context.core.caches.files.get(version.id)) else {
        return Obtained::Closed;
    };
    if is_first_look {
        count_file(context.core, looked.opened, version.stat.size_bytes);
    }
    let name = NameOfFile { site: version.site, path: looked.path.into() };
    match read(context, version, &file, looked.tries, &name) {
        Obtained::Wait(..) if looked.tries > 3 * TRIES_MAX => Obtained::Refused(UNSTEADY),
        Obtained::Wait(wanted, kept) => wait(with_name(*wanted, Some(name)), kept),
        other => other,
    }
}

/// The content of a one-block file, if its block is in the store.
fn stored<M: Machine>(context: &mut Context<'_, M>, version: &Arc<Version>) -> Option<Arc<Content>> {
    let core = &mut *context.core;
    if let Some(content) = core.caches.contents.get(version.id) {
        return Some(Arc::clone(content));
    }
    if version.stat.size_bytes > LOAD_BYTES || !core.rules.has_store || !version.is_storable() {
        return None;
    }
    let block = context.machine.block(&version.stat, 0)?;
    block.note_use();
    let content = content(core, version, ContentBytes::Stored(block));
    core.caches.keep_content(version, &content);
    Some(content)
}

/// Counts a request that needed its file because the content was not in memory.
fn count_file<F>(core: &mut Core<F>, opened: bool, size_bytes: u64) {
    let files = if opened { &mut core.counters.file_misses } else { &mut core.counters.file_hits };
    *files += 1;
    core.counters.content_misses += u64::from(core.rules.has_store && size_bytes <= LOAD_BYTES);
}

/// Reads a small file from the page cache; a large file is read while it is sent. A helper loads a missing
/// part, or hands it over after too many loads in vain.
fn read<M: Machine>(
    context: &mut Context<'_, M>,
    version: &Arc<Version>,
    file: &Arc<M::File>,
    tries: u8,
    name: &NameOfFile,
) -> Obtained<M::File> {
    let size_bytes = version.stat.size_bytes;
    let core = &mut *context.core;
    let is_small = size_bytes <= SMALL_FILE_BYTES_MAX && core.rules.has_store;
    let mut filled = 0;
    while is_small && filled < size_bytes {
        let room = &mut core.file_buffer[filled as usize..size_bytes as usize];
        match context.machine.read_resident(file, filled, room) {
            Ok(Resident::Bytes(0)) => return Obtained::Changed,
            Ok(Resident::Bytes(n)) => filled += n as u64,
            Ok(found @ (Resident::Absent | Resident::Unknown)) => {
                core.counters.loads_in_vain += u64::from(tries > 0 && found == Resident::Absent);
                let kept = Kept::File(Arc::clone(version), Arc::clone(file));
                return wait(wanted_whole(version, file, found, tries), kept);
            }
            Err(_) => return Obtained::Refused(READ_FAILED),
        }
    }
    // The file is checked after the read, so that a change during the read shows in its times.
    let unchanged = match context.machine.stat(file) {
        Ok(stat) => stat.same_content(&version.stat),
        // Bytes that a helper hands over come with the file's state. An empty file has no bytes, so it needs
        // no check.
        Err(e) => e.kind() == ErrorKind::WouldBlock,
    };
    if !unchanged {
        return Obtained::Changed;
    }
    if !is_small {
        return Obtained::Source(Source::File(Arc::clone(version), Arc::clone(file), name.clone()));
    }
    queue_fill(core, version, file, 0, Some(name.clone()));
    let bytes = core.file_buffer[..size_bytes as usize].into();
    Obtained::Source(Source::Memory(content(core, version, ContentBytes::Own(bytes))))
}

/// The job that brings all of a small file.
fn wanted_whole<F>(
    version: &Arc<Version>,
    file: &Arc<F>,
    found: Resident,
    tries: u8,
) -> Wanted<F, Arc<Version>> {
    if version.is_storable() && tries < FILLS_MAX {
        fill(version, file, 0, Urgency::Bounded)
    } else if found == Resident::Absent && tries < TRIES_MAX {
        load(version, file, 0, Urgency::Bounded)
    } else {
        read_by_helper(version, file, 0..version.stat.size_bytes, Urgency::Bounded)
    }
}

fn wait<F>(wanted: Wanted<F, Arc<Version>>, kept: Kept<F>) -> Obtained<F> {
    Obtained::Wait(Box::new(wanted), kept)
}
