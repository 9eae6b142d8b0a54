//! The messages between `flash backend` and its clients, as bytes: version 1 of docs/backend-protocol.md.
//!
//! Pure, and strict: a client that sends anything else is disconnected. Called by the worker's loop, which
//! receives and sends packets, and by [`backend`](crate::backend). `modules/client/vectors.txt` has the
//! messages that this module and the C client must agree on.

/// The version of the protocol.
pub const VERSION: u32 = 1;
/// The longest message in bytes: a name.
pub const MESSAGE_BYTES_MAX: usize = HEADER_BYTES + 8 + PATH_BYTES_MAX;
/// The longest path in bytes.
pub const PATH_BYTES_MAX: usize = 4095;
/// The longest range in bytes.
pub const RANGE_BYTES_MAX: u64 = 1024 * 1024;
/// The longest name of a client in bytes.
pub const NAME_BYTES_MAX: usize = 32;

const HEADER_BYTES: usize = 8;

mod kind {
    pub(super) const HELLO: u8 = 1;
    pub(super) const WARM_NAME: u8 = 2;
    pub(super) const WARM_RANGE: u8 = 3;
    pub(super) const CLOSE: u8 = 4;
    pub(super) const CANCEL: u8 = 5;

    pub(super) const HELLO_REPLY: u8 = 129;
    pub(super) const READY: u8 = 130;
    pub(super) const ERRNO: u8 = 131;
    pub(super) const BUSY: u8 = 132;
}

/// A message from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'b> {
    /// The first message. Its descriptor is the client's root directory.
    Hello {
        /// The most unanswered requests of all connections with the same user, group and name; 0 for no
        /// limit.
        waiters_max: u32,
        /// The same number for all processes of one server.
        group: u64,
        /// The name of the server, printable ASCII.
        name: &'b [u8],
    },
    /// A first message of another version, whose other fields are unknown.
    OtherVersion,
    /// Open this path as a server would.
    WarmName {
        /// The number of the request.
        id: u32,
        /// The time until the backend gives up, in milliseconds; 0 for the backend's own limit.
        deadline_ms: u32,
        /// The path beneath the client's root, beginning with a slash.
        path: &'b [u8],
    },
    /// Read this range of the file that comes as its descriptor.
    WarmRange {
        /// The number of the request.
        id: u32,
        /// The time until the backend gives up, in milliseconds; 0 for the backend's own limit.
        deadline_ms: u32,
        /// The range.
        range: Range,
    },
    /// Close the file that comes as its descriptor.
    Close,
    /// Withdraw a request.
    Cancel {
        /// The number of the request.
        id: u32,
    },
}

/// A range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes, 1 to [`RANGE_BYTES_MAX`].
    pub length_bytes: u64,
    /// Bytes of the answer that are still to be sent, this range included.
    pub remaining_bytes: u64,
}

/// A message to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The answer to [`Request::Hello`].
    Hello(Status),
    /// The name or the range was brought into memory.
    Ready {
        /// The number of the request.
        id: u32,
    },
    /// The file system failed.
    Errno {
        /// The number of the request.
        id: u32,
        /// The error number.
        number: u32,
    },
    /// The request was not begun.
    Busy {
        /// The number of the request.
        id: u32,
        /// The expected wait in milliseconds; 0 if it is unknown.
        retry_after_ms: u32,
    },
}

/// Whether a client is welcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// It can send requests.
    Welcome = 0,
    /// The backend does not support its version.
    OtherVersion = 1,
    /// Its user is not allowed.
    WrongUser = 2,
    /// There are too many connections.
    NoRoom = 3,
}

/// A message that does not follow the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Decodes a message that came with this number of descriptors.
///
/// # Errors
///
/// The message is not one of version 1, except that a HELLO of another version is recognized.
pub fn decode(bytes: &[u8], descriptors: usize) -> Result<Request<'_>, Malformed> {
    let mut fields = Fields(bytes);
    let [kind, reserved @ ..] = fields.array::<4>()?;
    let id = fields.u32()?;
    if kind == kind::HELLO && Fields(fields.0).u32()? != VERSION {
        return Ok(Request::OtherVersion);
    }
    require(reserved == [0; 3])?;
    let descriptors_wanted = usize::from(matches!(kind, kind::HELLO | kind::WARM_RANGE | kind::CLOSE));
    require(descriptors == descriptors_wanted)?;
    let request = match kind {
        kind::HELLO => {
            require(id == 0)?;
            fields.u32()?;
            let (waiters_max, group, name) = (fields.u32()?, fields.u64()?, fields.rest());
            require((1..=NAME_BYTES_MAX).contains(&name.len()))?;
            require(name.iter().all(|byte| (b' '..=b'~').contains(byte)))?;
            Request::Hello { waiters_max, group, name }
        }
        kind::WARM_NAME => {
            let deadline_ms = fields.u32()?;
            require(fields.u32()? == 0)?;
            let path = fields.rest();
            require(path.first() == Some(&b'/') && path.len() <= PATH_BYTES_MAX && !path.contains(&0))?;
            Request::WarmName { id, deadline_ms, path }
        }
        kind::WARM_RANGE => {
            let deadline_ms = fields.u32()?;
            require(fields.u32()? == 0)?;
            let (offset, length_bytes, remaining_bytes) = (fields.u64()?, fields.u64()?, fields.u64()?);
            require((1..=RANGE_BYTES_MAX).contains(&length_bytes))?;
            let range = Range { offset, length_bytes, remaining_bytes };
            Request::WarmRange { id, deadline_ms, range }
        }
        kind::CLOSE => {
            require(id == 0)?;
            Request::Close
        }
        kind::CANCEL => Request::Cancel { id },
        _ => return Err(Malformed),
    };
    require(fields.0.is_empty())?;
    Ok(request)
}

/// Encodes a message: the bytes, and how many of them are used.
#[must_use]
pub fn encode(reply: Reply) -> ([u8; 16], usize) {
    let (kind, id, values, length): (u8, u32, [u32; 2], usize) = match reply {
        Reply::Hello(status) => (kind::HELLO_REPLY, 0, [VERSION, status as u32], 16),
        Reply::Ready { id } => (kind::READY, id, [0; 2], 8),
        Reply::Errno { id, number } => (kind::ERRNO, id, [number, 0], 12),
        Reply::Busy { id, retry_after_ms } => (kind::BUSY, id, [retry_after_ms, 0], 12),
    };
    let mut bytes = [0; 16];
    bytes[0] = kind;
    bytes[4..8].copy_from_slice(&id.to_le_bytes());
    bytes[8..12].copy_from_slice(&values[0].to_le_bytes());
    bytes[12..].copy_from_slice(&values[1].to_le_bytes());
    (bytes, length)
}

fn require(holds: bool) -> Result<(), Malformed> {
    if holds { Ok(()) } else { Err(Malformed) }
}

/// Takes fields from the front of a message.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (front, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*front)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    fn rest(&mut self) -> &'b [u8] {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
