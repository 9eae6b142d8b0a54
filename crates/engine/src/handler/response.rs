//! A response: status, fields and body. Handlers make it; the wire encodes it and adds the fields of the
//! connection.

use std::sync::Arc;

use flash_http::range::ByteRange;
use flash_http::range::multipart::content_range;
use flash_http::response::Status;

use crate::body::{Body, Source};
use crate::caches::{NameEntry, ReplyForm, Version};

/// A response.
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

/// The subject of a response's fields.
#[derive(Debug)]
pub(crate) enum About {
    /// A version of a file, or a listing.
    File(Arc<Version>, Extent),
    /// A version that the client already has.
    NotModified(Arc<Version>),
    /// A page made for this response.
    Page { content_type: &'static str, fields: Vec<(&'static str, String)> },
    /// The methods that are served.
    Methods,
}

/// How much of a file the body has.
#[derive(Debug)]
pub(crate) enum Extent {
    Whole,
    Range(ByteRange),
    /// Several ranges, separated by this boundary.
    Ranges(String),
}

/// The methods that are served, for `Allow`.
pub(super) const ALLOW: &str = "GET, HEAD, OPTIONS";

impl<F> Response<F> {
    /// 200 with the whole file.
    pub(crate) fn whole(version: &Arc<Version>, source: Source<F>) -> Self {
        let size_bytes = version.stat.size_bytes;
        Self {
            status: Status::OK,
            about: About::File(Arc::clone(version), Extent::Whole),
            length: Some(size_bytes),
            body: source.part(0..size_bytes),
            repeats: None,
            tries: 0,
        }
    }

    /// The answer to HEAD.
    pub(crate) fn head_only(version: &Arc<Version>) -> Self {
        Self {
            status: Status::OK,
            about: About::File(Arc::clone(version), Extent::Whole),
            length: Some(version.stat.size_bytes),
            body: Body::Empty,
            repeats: None,
            tries: 0,
        }
    }

    /// 304: the client already has this version.
    pub(crate) fn not_modified(version: &Arc<Version>) -> Self {
        Self {
            status: Status::NOT_MODIFIED,
            about: About::NotModified(Arc::clone(version)),
            length: None,
            body: Body::Empty,
            repeats: None,
            tries: 0,
        }
    }

    /// The answer to OPTIONS.
    pub(crate) fn methods() -> Self {
        Self {
            status: Status::NO_CONTENT,
            about: About::Methods,
            length: None,
            body: Body::Empty,
            repeats: None,
            tries: 0,
        }
    }
}

impl<F> Response<F> {
    /// Marks the response as one that can be repeated while the entry is fresh.
    pub(super) fn repeating(self, entry: Arc<NameEntry>, form: ReplyForm) -> Self {
        Self { repeats: Some((entry, form)), ..self }
    }
}

impl About {
    /// Calls `field` with each field before `Content-Length`.
    pub(crate) fn each_leading_field(&self, mut field: impl FnMut(&str, &[u8])) {
        match self {
            About::File(version, Extent::Whole) => field("Content-Type", version.content_type.as_bytes()),
            About::File(version, Extent::Range(range)) => {
                field("Content-Type", version.content_type.as_bytes());
                field("Content-Range", content_range(range, version.stat.size_bytes).as_bytes());
            }
            About::File(_, Extent::Ranges(boundary)) => {
                field("Content-Type", format!("multipart/byteranges; boundary={boundary}").as_bytes());
            }
            About::Page { content_type, .. } => field("Content-Type", content_type.as_bytes()),
            About::NotModified(_) | About::Methods => {}
        }
    }

    /// Calls `field` with each field after `Content-Length`. For a file, an HTTP/1 wire can use
    /// [`Version::lines`] instead.
    pub(crate) fn each_trailing_field(&self, mut field: impl FnMut(&str, &[u8])) {
        match self {
            About::File(version, _) => version.each_field(field),
            About::NotModified(version) => version.each_validator(field),
            About::Page { fields, .. } => {
                for (name, value) in fields {
                    field(name, value.as_bytes());
                }
            }
            About::Methods => field("Allow", ALLOW.as_bytes()),
        }
    }
}
