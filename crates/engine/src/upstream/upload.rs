//! The body of a request on its way to a server: taken from the client's framing, put into the server's.
//! Called by [`talk`](super::talk).

use flash_http::body::Chunked;
use flash_http::request::Body;
use flash_http::response::Status;

use crate::fastcgi::client::{write_stdin, write_stdin_end};

/// Why a request body is refused: the status, and a sentence for the page.
pub(crate) type BodyRefusal = (Status, &'static str);

const TOO_LARGE: BodyRefusal = (Status::PAYLOAD_TOO_LARGE, "The request body is too large.");

/// The rest of a request body.
#[derive(Debug)]
pub(crate) enum Upload {
    /// The client sends this many bytes more.
    Length(u64),
    /// The client sends chunks, and this many bytes of data may still follow.
    Chunked(Chunked, u64),
    /// After an upgrade the client sends whatever it likes.
    Raw,
    /// The [spool](crate::spool) has this many bytes more.
    Held(u64),
    /// The server has all of it, or gets it with what was framed.
    Done,
}

/// The work on bytes of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decoded {
    /// How many of the bytes belonged to the body; the rest is the next request.
    pub(crate) consumed: usize,
    /// How many bytes of data are now at the front.
    pub(crate) data_bytes: usize,
}

/// The framing of a body for its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// The bytes as they are.
    Plain,
    /// Chunks of HTTP/1.1.
    Chunks,
    /// Records of FastCGI.
    Records,
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

    /// Takes bytes that the client has sent. The data among them is moved to the front.
    ///
    /// # Errors
    /// The body is malformed or too long.
    pub(crate) fn decode(&mut self, bytes: &mut [u8]) -> Result<Decoded, BodyRefusal> {
        match self {
            Upload::Done | Upload::Held(_) => Ok(Decoded { consumed: 0, data_bytes: 0 }),
            Upload::Raw => Ok(Decoded { consumed: bytes.len(), data_bytes: bytes.len() }),
            Upload::Length(left) => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                if *left == 0 {
                    *self = Upload::Done;
                }
                Ok(Decoded { consumed: taken, data_bytes: taken })
            }
            Upload::Chunked(chunks, left) => {
                let progress = chunks.decode(bytes).map_err(|bad| (bad.status(), bad.reason()))?;
                *left = left.checked_sub(progress.data_bytes as u64).ok_or(TOO_LARGE)?;
                if progress.done {
                    *self = Upload::Done;
                }
                Ok(Decoded { consumed: progress.consumed, data_bytes: progress.data_bytes })
            }
        }
    }

    /// Takes data from the spool. Returns how many bytes belonged to the body.
    pub(crate) fn give(&mut self, bytes: usize) -> usize {
        let Upload::Held(left) = self else { return 0 };
        let taken = bytes.min(usize::try_from(*left).unwrap_or(usize::MAX));
        *left -= taken as u64;
        if *left == 0 {
            *self = Upload::Done;
        }
        taken
    }
}

impl Framing {
    /// Appends data to `out`, and the end of the body after its last data.
    pub(crate) fn frame(self, out: &mut Vec<u8>, data: &[u8], is_last: bool) {
        match self {
            Framing::Plain => out.extend_from_slice(data),
            Framing::Chunks => {
                if !data.is_empty() {
                    out.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
                    out.extend_from_slice(data);
                    out.extend_from_slice(b"\r\n");
                }
                if is_last {
                    out.extend_from_slice(b"0\r\n\r\n");
                }
            }
            Framing::Records => {
                write_stdin(out, data);
                if is_last {
                    write_stdin_end(out);
                }
            }
        }
    }
}
