//! The body of a request on its way to a server: taken from the client's framing, put into the server's.
//! Called by [`talk`](super::talk).

use flash_http::body::Chunked;
use flash_http::request::Body;
use flash_http::response::Status;

use crate::fastcgi::client::{write_stdin, write_stdin_end};
use crate::rules::UpstreamProtocol;

/// Why a request body is refused: the status, and a sentence for the page.
pub(crate) type BodyRefusal = (Status, &'static str);

const TOO_LARGE: BodyRefusal = (Status::PAYLOAD_TOO_LARGE, "The request body is too large.");

/// The rest of a request body, in the client's framing.
#[derive(Debug)]
pub(crate) enum Upload {
    /// This many bytes remain.
    Length(u64),
    /// Chunks, and how many bytes of data may still follow.
    Chunked(Chunked, u64),
    /// After an upgrade: whatever comes.
    Raw,
    /// All of it was taken.
    Done,
}

impl Upload {
    /// The body that a request head announces.
    ///
    /// # Errors
    /// It is longer than `bytes_max`.
    pub(crate) fn new(body: Body, bytes_max: u64) -> Result<Self, BodyRefusal> {
        match body {
            Body::None | Body::Length(0) => Ok(Upload::Done),
            Body::Length(bytes) if bytes > bytes_max => Err(TOO_LARGE),
            Body::Length(bytes) => Ok(Upload::Length(bytes)),
            Body::Chunked => Ok(Upload::Chunked(Chunked::new(), bytes_max)),
        }
    }

    /// Takes received bytes of the client, and appends what the server gets to `out`. Returns how many of them
    /// belonged to the body; the rest is the next request.
    ///
    /// # Errors
    /// The body is malformed or too long.
    pub(crate) fn take(
        &mut self,
        bytes: &mut [u8],
        protocol: UpstreamProtocol,
        out: &mut Vec<u8>,
    ) -> Result<usize, BodyRefusal> {
        match self {
            Upload::Done => Ok(0),
            Upload::Raw => {
                out.extend_from_slice(bytes);
                Ok(bytes.len())
            }
            Upload::Length(left) => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                let is_done = *left == 0;
                match protocol {
                    UpstreamProtocol::Http => out.extend_from_slice(&bytes[..taken]),
                    UpstreamProtocol::FastCgi => write_stdin(out, &bytes[..taken]),
                }
                if is_done {
                    *self = Upload::Done;
                    if protocol == UpstreamProtocol::FastCgi {
                        write_stdin_end(out);
                    }
                }
                Ok(taken)
            }
            Upload::Chunked(chunks, left) => {
                let progress = chunks.decode(bytes).map_err(|bad| (bad.status(), bad.reason()))?;
                *left = left.checked_sub(progress.data_bytes as u64).ok_or(TOO_LARGE)?;
                let data = &bytes[..progress.data_bytes];
                if !data.is_empty() {
                    out.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
                    out.extend_from_slice(data);
                    out.extend_from_slice(b"\r\n");
                }
                if progress.done {
                    out.extend_from_slice(b"0\r\n\r\n");
                    *self = Upload::Done;
                }
                Ok(progress.consumed)
            }
        }
    }
}
