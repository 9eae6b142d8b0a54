//! A request for a file that the [gate](super::gate) has let in. The handlers answer it, at once or after waits.

use std::borrow::Cow;
use std::sync::Arc;

use flash_http::RequestBuf;
use flash_http::request::Request;

use super::password::PasswordCheck;
use crate::caches::Pass;
use crate::conditions::Conditions;
use crate::in_flight::Holds;
use crate::slab::SiteId;

/// The next file that may answer if the one of the path is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Substitute {
    /// The file with the extension of this number, of those that a rule names for the path, and its fallback after them. The path ends with
    /// the extension before, which has this many bytes with its dot.
    Extended {
        number: u8,
        ending_bytes: u8,
    },
    /// The fallback of the path.
    Fallback,
    None,
}

impl Substitute {
    /// All that the rules name.
    pub(crate) const FIRST: Self = Self::Extended { number: 0, ending_bytes: 0 };
}

/// A request for a file of a site.
#[derive(Debug)]
pub(crate) struct FileRequest<'r> {
    pub(crate) request: &'r Request<'r>,
    pub(crate) site: SiteId,
    /// The decoded path; it begins with a slash.
    pub(crate) path: Cow<'r, [u8]>,
    pub(crate) pass: Pass,
    /// The conditions of that pass besides the head.
    pub(crate) conditions: Option<Arc<Conditions>>,
    pub(crate) substitute: Substitute,
    /// As [`RequestClient::is_local`](crate::requester::RequestClient::is_local).
    pub(crate) is_local: bool,
    /// The passwords that must be right.
    pub(crate) checks: Vec<PasswordCheck>,
    /// The bounds that rules set for the request.
    pub(crate) holds: Option<Arc<Holds>>,
}

/// A [`FileRequest`] that owns its bytes.
#[derive(Clone, Debug)]
pub(crate) struct FileRequestBuf {
    pub(super) request: RequestBuf,
    pub(crate) site: SiteId,
    pub(crate) path: Box<[u8]>,
    pub(crate) substitute: Substitute,
    pub(super) is_local: bool,
    pub(crate) checks: Vec<PasswordCheck>,
    pub(crate) holds: Option<Arc<Holds>>,
}

impl FileRequestBuf {
    /// Copies a request.
    pub(crate) fn new(file: &FileRequest<'_>) -> Self {
        let &FileRequest { site, substitute, is_local, .. } = file;
        let (request, path) = (RequestBuf::new(file.request), file.path.as_ref().into());
        let (checks, holds) = (file.checks.clone(), file.holds.clone());
        Self { request, site, path, substitute, is_local, checks, holds }
    }

    /// The request of a relay for the file of this decoded path.
    pub(super) fn of_relay(request: RequestBuf, site: SiteId, path: &[u8]) -> Self {
        let (substitute, is_local, checks, holds) = (Substitute::None, false, Vec::new(), None);
        Self { request, site, path: path.into(), substitute, is_local, checks, holds }
    }

    /// Copies a request after its passwords are compared. Its connection closes if it has a body, because nothing reads that.
    pub(super) fn let_in(file: &FileRequest<'_>) -> Self {
        let copy = Self { checks: Vec::new(), ..Self::new(file) };
        let request = copy.request.persisting(file.request.body.is_empty());
        Self { request, ..copy }
    }

    pub(crate) fn request(&self) -> Request<'_> {
        self.request.request()
    }

    /// The request for the file, which borrows this buffer and what [`FileRequestBuf::request`] has returned.
    pub(crate) fn lent<'r>(&'r self, request: &'r Request<'r>) -> FileRequest<'r> {
        let &Self { site, ref path, substitute, is_local, .. } = self;
        let (path, pass, conditions) = (Cow::Borrowed(&path[..]), Pass::Once, None);
        let (checks, holds) = (self.checks.clone(), self.holds.clone());
        FileRequest { request, site, path, pass, conditions, substitute, is_local, checks, holds }
    }
}
