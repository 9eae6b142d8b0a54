//! Frames (RFC 9113 sections 4 and 6): from bytes to a [`Frame`] that borrows them, and from values to bytes.

use super::{ErrorCode, Violation};

/// The first bytes of a client (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The length of the head of a frame.
pub const FRAME_HEAD_BYTES: usize = 9;
/// The largest payload of a frame unless SETTINGS change it, and the smallest that they can set it to.
pub const FRAME_BYTES: usize = 16_384;

const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const PRIORITY: u8 = 0x2;
const RST_STREAM: u8 = 0x3;
const SETTINGS: u8 = 0x4;
const PUSH_PROMISE: u8 = 0x5;
const PING: u8 = 0x6;
const GOAWAY: u8 = 0x7;
const WINDOW_UPDATE: u8 = 0x8;
const CONTINUATION: u8 = 0x9;
/// RFC 9218 section 7.1.
const PRIORITY_UPDATE: u8 = 0x10;

const ACK: u8 = 0x1;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const HAS_PRIORITY: u8 = 0x20;

/// A frame of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'b> {
    /// DATA.
    Data {
        /// Its stream.
        stream: u32,
        /// The data, without padding.
        data: &'b [u8],
        /// The bytes that count for flow control: with padding.
        flow_bytes: usize,
        /// Whether the client sends nothing more.
        ends_stream: bool,
    },
    /// HEADERS.
    Headers {
        /// Its stream.
        stream: u32,
        /// The first part of the header block.
        fragment: &'b [u8],
        /// Whether the client sends nothing more.
        ends_stream: bool,
        /// Whether the block is complete.
        ends_headers: bool,
        /// Whether the stream depends on itself by the priorities of RFC 7540, which are otherwise ignored.
        depends_on_itself: bool,
    },
    /// CONTINUATION.
    Continuation {
        /// Its stream.
        stream: u32,
        /// The next part of the header block.
        fragment: &'b [u8],
        /// Whether the block is complete.
        ends_headers: bool,
    },
    /// PRIORITY, which RFC 9113 section 5.3.2 deprecates.
    Priority {
        /// Its stream.
        stream: u32,
    },
    /// RST_STREAM.
    Reset {
        /// Its stream.
        stream: u32,
        /// The reason.
        code: ErrorCode,
    },
    /// SETTINGS; [`settings`](super::settings::each_setting) reads the payload.
    Settings {
        /// The parameters.
        payload: &'b [u8],
    },
    /// The acknowledgement of SETTINGS.
    SettingsAck,
    /// PING.
    Ping {
        /// Whether it answers a PING of this server.
        is_ack: bool,
        /// The bytes that the answer repeats.
        data: [u8; 8],
    },
    /// GOAWAY: the client opens no more streams.
    GoAway,
    /// WINDOW_UPDATE.
    WindowUpdate {
        /// Its stream; 0 for the connection.
        stream: u32,
        /// By how much the window grows; not 0.
        increment: u32,
    },
    /// PRIORITY_UPDATE.
    PriorityUpdate {
        /// The stream whose priority changes.
        prioritized: u32,
        /// A priority field value.
        value: &'b [u8],
    },
    /// A frame of an unknown type, which is ignored (RFC 9113 section 5.5).
    Unknown,
}

/// The frame at the front of `bytes`, and its length with its head. None if it is not complete.
///
/// # Errors
/// [`Violation`]. One of a stream comes with the length of its frame, which must be skipped.
pub fn next_frame(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, (Violation, usize)> {
    let Some((head, rest)) = bytes.split_first_chunk::<FRAME_HEAD_BYTES>() else { return Ok(None) };
    let [high, middle, low, kind, flags, stream @ ..] = *head;
    let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
    if length > FRAME_BYTES {
        return Err((Violation::connection(ErrorCode::FRAME_SIZE_ERROR, "A frame is too large"), 0));
    }
    let Some(payload) = rest.get(..length) else { return Ok(None) };
    let stream = u32::from_be_bytes(stream) & STREAM_MASK;
    let taken = FRAME_HEAD_BYTES + length;
    match read(kind, flags, stream, payload) {
        Ok(frame) => Ok(Some((frame, taken))),
        Err(violation) => Err((violation, taken)),
    }
}

/// A stream number has 31 bits.
const STREAM_MASK: u32 = 0x7fff_ffff;

const SIZE: Violation = Violation::connection(ErrorCode::FRAME_SIZE_ERROR, "A frame has the wrong length");
const PADDING: Violation =
    Violation::connection(ErrorCode::PROTOCOL_ERROR, "The padding is longer than its frame");
const NO_STREAM: Violation = Violation::connection(ErrorCode::PROTOCOL_ERROR, "A frame needs a stream");
const A_STREAM: Violation =
    Violation::connection(ErrorCode::PROTOCOL_ERROR, "A frame must not have a stream");

fn read(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<Frame<'_>, Violation> {
    let is_set = |flag: u8| flags & flag != 0;
    let has_stream = stream != 0;
    match kind {
        DATA | HEADERS | PRIORITY | RST_STREAM | CONTINUATION if !has_stream => Err(NO_STREAM),
        SETTINGS | PING | GOAWAY | PRIORITY_UPDATE if has_stream => Err(A_STREAM),
        DATA => Ok(Frame::Data {
            stream,
            data: if is_set(PADDED) { without_padding(payload)? } else { payload },
            flow_bytes: payload.len(),
            ends_stream: is_set(END_STREAM),
        }),
        HEADERS => {
            let block = if is_set(PADDED) { without_padding(payload)? } else { payload };
            let (depends_on, fragment) = match block.split_first_chunk::<5>() {
                _ if !is_set(HAS_PRIORITY) => (0, block),
                Some(([a, b, c, d, _], rest)) => (u32::from_be_bytes([*a, *b, *c, *d]) & STREAM_MASK, rest),
                None => return Err(SIZE),
            };
            Ok(Frame::Headers {
                stream,
                fragment,
                ends_stream: is_set(END_STREAM),
                ends_headers: is_set(END_HEADERS),
                depends_on_itself: depends_on == stream,
            })
        }
        CONTINUATION => {
            Ok(Frame::Continuation { stream, fragment: payload, ends_headers: is_set(END_HEADERS) })
        }
        PRIORITY => match payload {
            [a, b, c, d, _] if u32::from_be_bytes([*a, *b, *c, *d]) & STREAM_MASK == stream => {
                Err(Violation::stream(stream, ErrorCode::PROTOCOL_ERROR, "A stream depends on itself"))
            }
            [_, _, _, _, _] => Ok(Frame::Priority { stream }),
            _ => Err(Violation::stream(stream, ErrorCode::FRAME_SIZE_ERROR, SIZE.reason)),
        },
        RST_STREAM => Ok(Frame::Reset { stream, code: ErrorCode(number(payload)?) }),
        SETTINGS if is_set(ACK) => payload.is_empty().then_some(Frame::SettingsAck).ok_or(SIZE),
        SETTINGS => payload.len().is_multiple_of(6).then_some(Frame::Settings { payload }).ok_or(SIZE),
        // RFC 9113 section 8.4: a client cannot push.
        PUSH_PROMISE => Err(Violation::connection(ErrorCode::PROTOCOL_ERROR, "A client must not push")),
        PING => {
            let data = *payload.first_chunk().filter(|_| payload.len() == 8).ok_or(SIZE)?;
            Ok(Frame::Ping { is_ack: is_set(ACK), data })
        }
        GOAWAY => {
            if payload.len() >= 8 {
                Ok(Frame::GoAway)
            } else {
                Err(SIZE)
            }
        }
        WINDOW_UPDATE => match number(payload)? & STREAM_MASK {
            0 => Err(Violation::stream(stream, ErrorCode::PROTOCOL_ERROR, "A window grows by nothing")),
            increment => Ok(Frame::WindowUpdate { stream, increment }),
        },
        PRIORITY_UPDATE => {
            let Some((prioritized, value)) = payload.split_first_chunk() else { return Err(SIZE) };
            match u32::from_be_bytes(*prioritized) & STREAM_MASK {
                0 => Err(NO_STREAM),
                prioritized => Ok(Frame::PriorityUpdate { prioritized, value }),
            }
        }
        _ => Ok(Frame::Unknown),
    }
}

fn without_padding(payload: &[u8]) -> Result<&[u8], Violation> {
    let (padding, rest) = payload.split_first().ok_or(SIZE)?;
    rest.len().checked_sub(usize::from(*padding)).map(|length| &rest[..length]).ok_or(PADDING)
}

fn number(payload: &[u8]) -> Result<u32, Violation> {
    payload.try_into().map(u32::from_be_bytes).map_err(|_| SIZE)
}

#[inline]
fn push_head(out: &mut Vec<u8>, length: usize, (kind, flags): (u8, u8), stream: u32) {
    debug_assert!(length <= FRAME_BYTES);
    let [_, high, middle, low] = (length as u32).to_be_bytes();
    let [a, b, c, d] = stream.to_be_bytes();
    out.extend_from_slice(&[high, middle, low, kind, flags, a, b, c, d]);
}

/// Appends DATA of at most [`FRAME_BYTES`].
#[inline]
pub fn push_data(out: &mut Vec<u8>, stream: u32, data: &[u8], ends_stream: bool) {
    push_head(out, data.len(), (DATA, if ends_stream { END_STREAM } else { 0 }), stream);
    out.extend_from_slice(data);
}

/// Appends the frames of a header block that `write` appends: HEADERS, and CONTINUATION as often as it takes.
pub fn push_headers(out: &mut Vec<u8>, stream: u32, ends_stream: bool, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    push_head(out, 0, (HEADERS, 0), stream);
    write(out);
    let block_at = start + FRAME_HEAD_BYTES;
    let block_bytes = out.len() - block_at;
    let end_stream = if ends_stream { END_STREAM } else { 0 };
    if block_bytes <= FRAME_BYTES {
        let [_, high, middle, low] = (block_bytes as u32).to_be_bytes();
        out[start..start + 3].copy_from_slice(&[high, middle, low]);
        out[start + 4] = END_HEADERS | end_stream;
        return;
    }
    let block = out.split_off(block_at);
    out.truncate(start);
    let mut pieces = block.chunks(FRAME_BYTES).enumerate().peekable();
    while let Some((at, piece)) = pieces.next() {
        let end_headers = if pieces.peek().is_none() { END_HEADERS } else { 0 };
        let form = if at == 0 { (HEADERS, end_headers | end_stream) } else { (CONTINUATION, end_headers) };
        push_head(out, piece.len(), form, stream);
        out.extend_from_slice(piece);
    }
}

/// Appends RST_STREAM.
pub fn push_reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    push_head(out, 4, (RST_STREAM, 0), stream);
    out.extend_from_slice(&code.0.to_be_bytes());
}

/// Appends SETTINGS with these identifiers and values.
pub fn push_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    push_head(out, settings.len() * 6, (SETTINGS, 0), 0);
    for (identifier, value) in settings {
        out.extend_from_slice(&identifier.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends the acknowledgement of SETTINGS.
pub fn push_settings_ack(out: &mut Vec<u8>) {
    push_head(out, 0, (SETTINGS, ACK), 0);
}

/// Appends PING, or the answer to one.
pub fn push_ping(out: &mut Vec<u8>, is_ack: bool, data: [u8; 8]) {
    push_head(out, 8, (PING, if is_ack { ACK } else { 0 }), 0);
    out.extend_from_slice(&data);
}

/// Appends GOAWAY. The text is for people.
pub fn push_goaway(out: &mut Vec<u8>, last_stream: u32, code: ErrorCode, text: &str) {
    push_head(out, 8 + text.len(), (GOAWAY, 0), 0);
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Appends WINDOW_UPDATE.
pub fn push_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    push_head(out, 4, (WINDOW_UPDATE, 0), stream);
    out.extend_from_slice(&increment.to_be_bytes());
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
