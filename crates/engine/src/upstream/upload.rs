//! The body of a request on its way to a server, whose framing it gets. Called by [`transaction`](super::transaction).

use flash_http::request::Body;
use flash_http::response::Status;

use crate::fastcgi::client::{write_stdin, write_stdin_end};

/// Why a request body is refused: the status, and a sentence for the page.
pub(crate) type BodyRefusal = (Status, &'static str);

const TOO_LARGE: BodyRefusal = (Status::PAYLOAD_TOO_LARGE, "The request body is too large.");

/// The rest of a request body.
#[derive(Debug)]
pub(crate) enum Upload {
    /// The client sends it, and this many bytes may still follow.
    Coming(u64),
    /// After an upgrade the client sends whatever it likes.
    Raw,
    /// The [spool](crate::spool) has this many bytes more.
    Spooled(u64),
    /// The server has all of it, or gets it with what was framed.
    Done,
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
    pub(crate) fn new(body: Body, bytes_max: u64) -> Self {
        if body.is_empty() { Upload::Done } else { Upload::Coming(bytes_max) }
    }

    /// Takes data that the client has sent.
    ///
    /// # Errors
    /// The body is too long.
    pub(crate) fn take(&mut self, bytes: usize, is_last: bool) -> Result<(), BodyRefusal> {
        if let Upload::Coming(left) = self {
            *left = left.checked_sub(bytes as u64).ok_or(TOO_LARGE)?;
            if is_last {
                *self = Upload::Done;
            }
        }
        Ok(())
    }

    /// Takes data from the spool. Returns how many bytes belonged to the body.
    pub(crate) fn give(&mut self, bytes: usize) -> usize {
        let Upload::Spooled(left) = self else { return 0 };
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
