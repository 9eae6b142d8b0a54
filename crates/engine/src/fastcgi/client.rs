//! FastCGI from the side of a web server: a request becomes records, and records become a response.
//!
//! A connection has one request at a time, with the id 1 and the role of a responder. It stays open after a request
//! that ended as it should (`FCGI_KEEP_CONN`), and each request has a [`ResponseReader`] of its own. Pure: it neither
//! knows what the parameters mean (RFC 3875) nor reads the head of the response. It bounds no request and no response.

use super::{
    COMPLETE, CONTENT_BYTES_MAX, Header, KEEP_CONNECTION, OtherVersion, RESPONDER, RecordReader, RecordStep,
    kind, push_padded, push_pair, push_record,
};
use crate::limits::APPLICATION_ERRORS_BYTES_MAX;

/// The id of every request.
const ID: u16 = 1;
/// The alignment of records that the specification recommends (section 3.3).
const ALIGN_BYTES: usize = 8;
/// Maximum bytes of a stream in one record, so that a full record needs no padding.
const STREAM_BYTES_MAX: usize = CONTENT_BYTES_MAX / ALIGN_BYTES * ALIGN_BYTES;
/// Room for the parameters of most requests.
const USUAL_PARAMS_BYTES: usize = 1024;
/// Bytes of the content of the record that ends a request (section 5.5).
const END_BYTES: usize = 8;

/// Writes the beginning of a request.
pub(crate) fn write_begin(out: &mut Vec<u8>) {
    let [role_high, role_low] = RESPONDER.to_be_bytes();
    push_record(out, kind::BEGIN_REQUEST, ID, &[role_high, role_low, KEEP_CONNECTION, 0, 0, 0, 0, 0]);
}

/// Writes parameters: `params` passes each name and value to the function that it is given. Only a pair longer than a
/// record is divided.
pub(crate) fn write_params(out: &mut Vec<u8>, params: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]))) {
    let mut pairs = Vec::with_capacity(USUAL_PARAMS_BYTES);
    params(&mut |name, value| {
        let start = pairs.len();
        push_pair(&mut pairs, name, value);
        if pairs.len() > STREAM_BYTES_MAX {
            // PHP refuses a pair that begins in one record and ends in another.
            push_stream(out, kind::PARAMS, &pairs[..start]);
            pairs.drain(..start);
        }
    });
    push_stream(out, kind::PARAMS, &pairs);
}

/// Writes the end of the parameters.
pub(crate) fn end_params(out: &mut Vec<u8>) {
    push_record(out, kind::PARAMS, ID, &[]);
}

/// Writes a part of the body, of any length.
pub(crate) fn write_stdin(out: &mut Vec<u8>, data: &[u8]) {
    push_stream(out, kind::STDIN, data);
}

/// Writes the end of the body. A request without a body needs it too.
pub(crate) fn write_stdin_end(out: &mut Vec<u8>) {
    push_record(out, kind::STDIN, ID, &[]);
}

/// Appends bytes of a stream as records. No bytes are no record, because an empty record would end the stream.
fn push_stream(out: &mut Vec<u8>, kind: u8, data: &[u8]) {
    for content in data.chunks(STREAM_BYTES_MAX) {
        let padding_bytes = content.len().next_multiple_of(ALIGN_BYTES) - content.len();
        push_padded(out, kind, ID, content, padding_bytes as u8);
    }
}

/// The end of a request (section 5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestEnd {
    /// The application is done with the request.
    Complete {
        /// The status with which a CGI program would have exited.
        app_status: u32,
    },
    /// The application does not accept the request. This is the `protocolStatus`.
    Refused(u8),
}

/// A record that an application must not send. The connection must be closed, because the start of the next record is
/// unknown or means something else to the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadRecord {
    /// Its version is not 1.
    Version,
    /// It belongs to another request.
    OtherRequest,
    /// Its type is unknown, or one that only a web server sends.
    Type,
    /// It has data although the stream of data has ended.
    DataAfterEnd,
    /// It ends the request, but is shorter than 8 bytes.
    ShortEnd,
    /// It follows the end of the request.
    AfterEnd,
}

impl BadRecord {
    /// A short text for the log.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Version => "The application sent a record that is not of FastCGI version 1",
            Self::OtherRequest => "The application sent a record of a request that does not exist",
            Self::Type => "The application sent a record of a type that applications do not send",
            Self::DataAfterEnd => "The application sent data after the end of its output",
            Self::ShortEnd => "The application sent an FCGI_END_REQUEST record that is too short",
            Self::AfterEnd => "The application sent bytes after the end of the request",
        }
    }
}

/// The result of one call of [`ResponseReader::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Bytes of the response that now are at the front of the input.
    pub(crate) data_bytes: usize,
    /// The end of the request, once its record and the record's padding have come. No byte may follow.
    pub(crate) ended: Option<RequestEnd>,
}

/// Reads the response to one request.
#[derive(Debug, Default)]
pub(crate) struct ResponseReader {
    records: RecordReader,
    has_data_ended: bool,
    /// The first bytes of the content that ends the request.
    end: [u8; END_BYTES],
    end_bytes: usize,
    ended: Option<RequestEnd>,
    failed: Option<BadRecord>,
}

impl ResponseReader {
    /// Takes all received bytes. The data among them is moved to the front of `bytes`; the bytes behind it mean nothing
    /// any more. Appends to `errors` what the application writes to its standard error, until `errors` has
    /// [`APPLICATION_ERRORS_BYTES_MAX`] bytes; the rest is dropped.
    ///
    /// # Errors
    ///
    /// A record that an application must not send. The data before it in `bytes` is lost, and each later call fails too.
    pub(crate) fn take(&mut self, bytes: &mut [u8], errors: &mut Vec<u8>) -> Result<Taken, BadRecord> {
        if self.failed.is_none() {
            match self.take_records(bytes, errors) {
                Ok(data_bytes) => return Ok(Taken { data_bytes, ended: self.ended }),
                Err(bad) => self.failed = Some(bad),
            }
        }
        Err(self.failed.unwrap_or(BadRecord::AfterEnd))
    }

    /// Returns how many bytes of data there are.
    fn take_records(&mut self, bytes: &mut [u8], errors: &mut Vec<u8>) -> Result<usize, BadRecord> {
        let (mut at, mut data_bytes) = (0, 0);
        while self.ended.is_none() {
            match self.records.next(bytes, &mut at).map_err(|OtherVersion| BadRecord::Version)? {
                None => return Ok(data_bytes),
                Some(RecordStep::Begin(header)) => self.check(header)?,
                Some(RecordStep::Content(header, content)) => match header.kind {
                    kind::STDOUT => {
                        let count = content.len();
                        bytes.copy_within(content, data_bytes);
                        data_bytes += count;
                    }
                    kind::STDERR => keep_errors(&bytes[content], errors),
                    kind::END_REQUEST => self.keep_end(&bytes[content]),
                    // Section 4: answers to questions about the application itself, of which it got none.
                    _ => {}
                },
                Some(RecordStep::End(header)) if header.kind == kind::END_REQUEST => {
                    self.ended = Some(end_of(self.end));
                }
                Some(RecordStep::End(_)) => {}
            }
        }
        if at == bytes.len() { Ok(data_bytes) } else { Err(BadRecord::AfterEnd) }
    }

    fn keep_end(&mut self, content: &[u8]) {
        let count = content.len().min(END_BYTES - self.end_bytes);
        self.end[self.end_bytes..self.end_bytes + count].copy_from_slice(&content[..count]);
        self.end_bytes += count;
    }

    /// Whether the application may send such a record now.
    fn check(&mut self, header: Header) -> Result<(), BadRecord> {
        let id = match header.kind {
            kind::STDOUT | kind::STDERR | kind::END_REQUEST => ID,
            kind::GET_VALUES_RESULT | kind::UNKNOWN_TYPE => 0,
            _ => return Err(BadRecord::Type),
        };
        if header.id != id {
            return Err(BadRecord::OtherRequest);
        }
        match header.kind {
            kind::STDOUT if header.content_bytes == 0 => self.has_data_ended = true,
            kind::STDOUT if self.has_data_ended => return Err(BadRecord::DataAfterEnd),
            kind::END_REQUEST if header.content_bytes < END_BYTES => return Err(BadRecord::ShortEnd),
            _ => {}
        }
        Ok(())
    }
}

fn end_of([a, b, c, d, status, ..]: [u8; END_BYTES]) -> RequestEnd {
    match status {
        COMPLETE => RequestEnd::Complete { app_status: u32::from_be_bytes([a, b, c, d]) },
        status => RequestEnd::Refused(status),
    }
}

fn keep_errors(bytes: &[u8], errors: &mut Vec<u8>) {
    let room = APPLICATION_ERRORS_BYTES_MAX.saturating_sub(errors.len());
    errors.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
