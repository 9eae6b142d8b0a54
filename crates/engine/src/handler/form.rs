//! Compressed forms of texts, which helpers make and the store keeps beside the files. A form is a block like any other, so a
//! hit costs what one of the plain file costs. No request waits for a form: until it is in memory, the plain file answers. Files
//! that are asked for only once are not compressed.
//! Called by [`files`](super::files).

use std::sync::Arc;

use flash_http::conditional::{PreconditionResult, evaluate};
use flash_http::negotiate::{Choice, Coding, accept_encoding};

use super::{FileRequest, content};
use crate::caches::{Content, ContentBytes, Forms, Version};
use crate::context::Context;
use crate::jobs::Wanted;
use crate::machine::{Machine, NO_FORM, block_of_form};

/// The form that answers a request in place of a file.
pub(super) enum Compressed {
    /// The file answers.
    None,
    /// The file answers until a helper has made the form.
    Coming,
    /// The client has the form, so its content is not needed.
    Known(Arc<Version>),
    /// A form in memory.
    Ready(Arc<Version>, Arc<Content>),
}

/// Chooses the form of a file that answers a request. If there should be one that is not in memory, a helper is asked for it,
/// unless the file `is_new`.
pub(super) fn choose<M: Machine>(
    context: &mut Context<'_, M>,
    asked: &FileRequest<'_>,
    file: &Arc<Version>,
    is_new: bool,
) -> Compressed {
    let request = asked.request;
    // A range of a form would be a range of bytes that nobody keeps.
    let Some(forms) = file.forms.as_deref().filter(|_| request.range.is_none() && file.is_storable()) else {
        return Compressed::None;
    };
    let accepted = accept_encoding(request.accept_encoding.as_deref());
    let Choice::Coded(coding) = accepted.choose(|coding| !forms.is_useless(coding)) else {
        return Compressed::None;
    };
    if let Some((form, content)) = find(context, (file, forms), coding) {
        return Compressed::Ready(form, content);
    }
    if forms.is_useless(coding) {
        return Compressed::None;
    }
    let now_ms = context.core.clock.ms();
    if !is_new && !file.is_passing && forms.needs_form(coding, now_ms) {
        let wanted = Wanted::warm(asked.site, &asked.path, block_of_form(coding));
        // Without room in the queue, a later request asks again.
        let _ = context.core.jobs.submit(wanted, None, now_ms);
    }
    if request.if_none_match.is_some() {
        // Its tag does not depend on its length.
        let form = context.core.caches.version_of_form(file, coding, 0);
        if evaluate(request, &form.validators()) == PreconditionResult::NotModified {
            return Compressed::Known(form);
        }
    }
    Compressed::Coming
}

/// Finds a form in memory.
fn find<M: Machine>(
    context: &mut Context<'_, M>,
    (file, forms): (&Version, &Forms),
    coding: Coding,
) -> Option<(Arc<Version>, Arc<Content>)> {
    let core = &mut *context.core;
    if let Some(form) = forms.get(coding).and_then(Option::as_ref)
        && let Some(content) = core.caches.contents.get(form.id)
    {
        return Some((Arc::clone(form), Arc::clone(content)));
    }
    let block = context.machine.block(&file.stat, block_of_form(coding))?;
    let size_bytes = block.bytes().len() as u64;
    let form = forms.learn(coding, || {
        (block.bytes() != NO_FORM).then(|| core.caches.version_of_form(file, coding, size_bytes))
    });
    // A form that was made again by another version of Flash can have another length.
    let form = Arc::clone(form.as_ref().filter(|form| form.stat.size_bytes == size_bytes)?);
    block.note_use();
    let content = content(core, &form, ContentBytes::Stored(block));
    core.caches.keep_content(&form, &content);
    Some((form, content))
}
