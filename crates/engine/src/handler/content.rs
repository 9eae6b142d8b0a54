//! Contents in memory, each with the head of its answer. Made by the handlers, and for bytes that a helper has handed over.

use std::sync::Arc;

use flash_http::response::Status;

use super::head::{HeadForm, write_head};
use super::{About, Extent};
use crate::caches::{Content, ContentBytes, Persistence, Version};
use crate::context::Core;

/// The content of a one-block file, together with its response head if heads are cached.
pub(crate) fn content<F>(core: &Core<F>, version: &Arc<Version>, body: ContentBytes) -> Arc<Content> {
    let mut head = Vec::with_capacity(512);
    let mut date_at = 0;
    if core.rules.optimizations.head_cache {
        let about = About::File(Arc::clone(version), Extent::Whole);
        let length = Some(version.stat.size_bytes);
        date_at =
            write_head(&mut head, HeadForm::of(core), (Status::OK, length), &about, Persistence::Persists);
    }
    Arc::new(Content::new(&head, date_at, body, core.clock.wall_s))
}
