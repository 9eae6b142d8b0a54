//! A response: status, fields and body. Handlers make it; the wire encodes it.

use std::sync::Arc;

use flash_http::error_page::HTML;
use flash_http::response::Status;

use super::{About, Extent};
use crate::body::{Body, Source};
use crate::caches::{NameEntry, ReplyForm, Version};
use crate::head_changes::HeadChanges;

#[derive(Debug)]
pub(crate) struct Response<F> {
    pub(crate) status: Status,
    /// The subject of its fields.
    pub(crate) about: About,
    /// `Content-Length`. For HEAD, the length of the body that is not sent; None if the field is absent.
    pub(crate) length: Option<u64>,
    pub(crate) body: Body<F>,
    /// The entry and form of an answer that identical request bytes can get again while the entry is fresh.
    pub(crate) repeats: Option<(Arc<NameEntry>, ReplyForm)>,
    /// The number of attempts so far. The request is answered again if the file turns out to differ from the
    /// head before anything was sent.
    pub(crate) tries: u8,
}

impl<F> Response<F> {
    pub(super) fn new(status: Status, about: About, length: Option<u64>, body: Body<F>) -> Self {
        Self { status, about, length, body, repeats: None, tries: 0 }
    }

    /// 200 with the whole file.
    pub(crate) fn whole(version: &Arc<Version>, source: Source<F>) -> Self {
        let size_bytes = version.stat.size_bytes;
        Self { body: source.part(0..size_bytes), ..Self::head_only(version) }
    }

    /// The answer to HEAD.
    pub(crate) fn head_only(version: &Arc<Version>) -> Self {
        let about = About::File(Arc::clone(version), Extent::Whole);
        Self::new(Status::OK, about, Some(version.stat.size_bytes), Body::Empty)
    }

    /// 304: the client already has this version.
    pub(crate) fn not_modified(version: &Arc<Version>) -> Self {
        Self::new(Status::NOT_MODIFIED, About::NotModified(Arc::clone(version)), None, Body::Empty)
    }

    /// The answer to OPTIONS.
    pub(crate) fn methods() -> Self {
        Self::new(Status::NO_CONTENT, About::Methods, None, Body::Empty)
    }

    /// Gives an error the page that the rules of the site have for it. A client that prefers JSON gets none.
    #[inline]
    pub(crate) fn follow_rules(&mut self, changes: Option<&HeadChanges>) {
        if let About::Page { content_type: HTML, .. } = self.about
            && let Some(html) = changes.and_then(|changes| changes.error_page(self.status))
        {
            self.length = Some(html.len() as u64);
            if !matches!(self.body, Body::Empty) {
                self.body = Body::Page(html.into(), 0);
            }
        }
    }

    /// Marks the response as one that can be repeated while the entry is fresh.
    pub(super) fn repeating(self, entry: Arc<NameEntry>, form: ReplyForm) -> Self {
        Self { repeats: Some((entry, form)), ..self }
    }
}
