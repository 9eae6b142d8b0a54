//! One request and its answer on a link, without the link: bytes of the client and of the server in, bytes for the
//! server, a head and data out. Called by [`relay`](crate::exchange::relay); pure, so that tests can cut the bytes anywhere.

use std::ops::Range;

use flash_http::body::Chunked;
use flash_http::forward::{cgi_length, end_proxy_head};
use flash_http::granted::each_granted_variable;
use flash_http::request::Body;
use flash_http::upstream_response::{
    HeadSyntax, ParsedHead, ResponseBody, ResponseHead, ResponseTo, parse_response,
};

use super::upload::{BodyRefusal, Framing, Upload};
use crate::fastcgi::client::{RequestEnd, ResponseReader, end_params, write_params, write_stdin_end};
use crate::limits::ANSWER_HEAD_BYTES_MAX;
use crate::rules::UpstreamProtocol;

/// Why an answer is not passed on, in words for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadAnswer(pub(crate) &'static str);

/// The result of [`Transaction::receive`].
#[derive(Debug, Default)]
pub(crate) struct ReceivedAnswer {
    /// The head of the answer, if it has become complete.
    pub(crate) head: Option<Box<ResponseHead>>,
    /// How many bytes of the body are now at the front of the buffer.
    pub(crate) data_bytes: usize,
}

/// One request and its answer.
#[derive(Debug)]
pub(crate) struct Transaction {
    protocol: UpstreamProtocol,
    asking: ResponseTo,
    upload: Upload,
    framing: Framing,
    /// The length of a body that the spool has.
    spooled_bytes: Option<u64>,
    /// Whether the server got any of the body from the client, so that it cannot get all of it again.
    has_taken: bool,
    /// The bytes with which the request begins, and how many of them were sent.
    opening: (Vec<u8>, usize),
    /// The part of them with the fields that other servers give.
    granted: Range<usize>,
    /// Bytes of the body for the server, and how many of them were sent.
    out: (Vec<u8>, usize),
    records: ResponseReader,
    stage: Stage,
    /// The length of the interim answers so far.
    interim_bytes: usize,
    /// Whether the server has sent anything.
    has_received: bool,
    /// Whether another request can follow on the link.
    is_reusable: bool,
    /// The standard error of a FastCGI application.
    pub(crate) stderr: Vec<u8>,
}

/// How far the answer has come.
#[derive(Debug)]
enum Stage {
    /// These bytes of its head.
    Head(Vec<u8>),
    /// This many bytes of the body remain.
    Length(u64),
    Chunked(Chunked),
    /// The body ends with the stream.
    UntilEnd,
    /// It is complete.
    Over,
}

impl Transaction {
    /// Begins a request with these bytes, up to the framing of its body ([`Transaction::announce`]).
    pub(crate) fn new(
        protocol: UpstreamProtocol,
        asking: ResponseTo,
        upload: Upload,
        opening: Vec<u8>,
    ) -> Self {
        Self {
            protocol,
            asking,
            upload,
            framing: Framing::Plain,
            spooled_bytes: None,
            has_taken: false,
            granted: opening.len()..opening.len(),
            opening: (opening, 0),
            out: (Vec::new(), 0),
            records: ResponseReader::default(),
            stage: Stage::Head(Vec::new()),
            interim_bytes: 0,
            has_received: false,
            is_reusable: true,
            stderr: Vec::new(),
        }
    }

    /// Ends the opening with the framing of the body.
    pub(crate) fn announce(&mut self, body: Body) {
        let out = &mut self.opening.0;
        self.framing = match self.protocol {
            UpstreamProtocol::Http => {
                end_proxy_head(out, body);
                if body == Body::Chunked { Framing::Chunks } else { Framing::Plain }
            }
            UpstreamProtocol::FastCgi => {
                write_params(out, |param| cgi_length(body, param));
                end_params(out);
                if body.is_empty() {
                    write_stdin_end(out);
                }
                Framing::Records
            }
        };
    }

    /// Gives these fields to a request that has not begun, in place of those that it was given before: lines that end in CRLF.
    pub(crate) fn grant(&mut self, lines: &[u8]) {
        let mut fields = Vec::new();
        match self.protocol {
            UpstreamProtocol::Http => fields.extend_from_slice(lines),
            UpstreamProtocol::FastCgi => {
                write_params(&mut fields, |param| each_granted_variable(lines, param));
            }
        }
        let Range { start, end } = self.granted;
        self.granted.end = start + fields.len();
        self.opening.0.splice(start..end, fields);
    }

    /// Continues with a body that the spool has.
    pub(crate) fn hold(&mut self, length_bytes: u64) {
        self.spooled_bytes = Some(length_bytes);
        self.upload = if length_bytes == 0 { Upload::Done } else { Upload::Spooled(length_bytes) };
    }

    /// Begins again, on another link. False if that cannot be done, because a part of the body is gone.
    pub(crate) fn begin_again(&mut self) -> bool {
        let can = !self.has_taken && matches!(&self.stage, Stage::Head(_));
        if can {
            self.opening.1 = 0;
            self.out = (Vec::new(), 0);
            if let Some(length_bytes) = self.spooled_bytes {
                self.hold(length_bytes);
            }
            self.records = ResponseReader::default();
            self.stage = Stage::Head(Vec::new());
            self.interim_bytes = 0;
            self.has_received = false;
        }
        can
    }

    /// Whether any of the request was sent.
    pub(crate) fn has_begun(&self) -> bool {
        self.opening.1 > 0
    }

    /// The bytes for the server that were not sent yet, in two parts.
    pub(crate) fn unsent(&self) -> (&[u8], &[u8]) {
        (&self.opening.0[self.opening.1..], &self.out.0[self.out.1..])
    }

    /// Whether all bytes for the server, as far as they are known, were sent.
    pub(crate) fn is_all_sent(&self) -> bool {
        self.opening.1 == self.opening.0.len() && self.out.1 == self.out.0.len()
    }

    /// Notes that the server has accepted this many bytes.
    pub(crate) fn sent(&mut self, bytes: usize) {
        let of_opening = bytes.min(self.opening.0.len() - self.opening.1);
        self.opening.1 += of_opening;
        self.out.1 += bytes - of_opening;
        if self.out.1 == self.out.0.len() {
            self.out = (Vec::new(), 0);
        }
    }

    /// Whether bytes of the client belong to this request.
    pub(crate) fn wants_body(&self) -> bool {
        !matches!(self.upload, Upload::Done | Upload::Spooled(_))
    }

    /// Where the next byte of the body is that the spool has to give; None if it has none.
    pub(crate) fn spooled_at(&self) -> Option<u64> {
        match (self.spooled_bytes, &self.upload) {
            (Some(length_bytes), Upload::Spooled(left)) => Some(length_bytes - left),
            _ => None,
        }
    }

    /// Notes data of the client that the spool takes, and whether it is the last.
    ///
    /// # Errors
    /// The body is too long.
    pub(crate) fn pass_body(&mut self, bytes: usize, is_last: bool) -> Result<(), BodyRefusal> {
        self.upload.take(bytes, is_last)
    }

    /// Takes data of the client for the server.
    ///
    /// # Errors
    /// The body is too long.
    pub(crate) fn take_body(&mut self, data: &[u8], is_last: bool) -> Result<(), BodyRefusal> {
        self.has_taken = true;
        self.upload.take(data.len(), is_last)?;
        self.framing.frame(&mut self.out.0, data, is_last);
        Ok(())
    }

    /// Takes data of the spool for the server.
    pub(crate) fn give(&mut self, data: &[u8]) {
        let taken = self.upload.give(data.len());
        let is_last = matches!(self.upload, Upload::Done);
        self.framing.frame(&mut self.out.0, &data[..taken], is_last);
    }

    /// Whether the server has not sent anything yet.
    pub(crate) fn has_received_nothing(&self) -> bool {
        !self.has_received
    }

    /// Whether the connection has changed its protocol.
    pub(crate) fn is_upgraded(&self) -> bool {
        matches!(self.upload, Upload::Raw)
    }

    /// Whether the answer is complete.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Whether the link can carry another request.
    pub(crate) fn leaves_link_usable(&self) -> bool {
        self.is_over() && self.is_reusable && matches!(self.upload, Upload::Done) && self.is_all_sent()
    }

    /// Takes received bytes of the server. The data of the body among them is moved to the front.
    ///
    /// # Errors
    /// It is no valid answer, or the application refuses the request.
    pub(crate) fn receive(&mut self, bytes: &mut [u8]) -> Result<ReceivedAnswer, BadAnswer> {
        self.has_received = true;
        let mut length = bytes.len();
        let mut ending = None;
        if self.protocol == UpstreamProtocol::FastCgi {
            let taken = self.records.take(bytes, &mut self.stderr).map_err(|bad| BadAnswer(bad.reason()))?;
            length = taken.data_bytes;
            ending = taken.ended;
        }
        let mut part = ReceivedAnswer::default();
        if let Stage::Head(head) = &mut self.stage {
            let before = head.len();
            head.extend_from_slice(&bytes[..length]);
            part.head = self.find_head()?;
            length = match &part.head {
                Some(answer) => {
                    // The head was not complete before, so what follows it came with these bytes.
                    let from = answer.head_len.saturating_sub(before);
                    bytes.copy_within(from..length, 0);
                    length - from
                }
                None => 0,
            };
        }
        part.data_bytes = self.take_data(&mut bytes[..length])?;
        if let Some(ending) = ending {
            self.end_request(ending)?;
        }
        Ok(part)
    }

    /// Parses the head. Interim answers are left out (RFC 9110, section 15.2); together they have the length of one
    /// head at most.
    fn find_head(&mut self) -> Result<Option<Box<ResponseHead>>, BadAnswer> {
        let Stage::Head(head) = &mut self.stage else { return Ok(None) };
        let syntax = match self.protocol {
            UpstreamProtocol::Http => HeadSyntax::Http,
            UpstreamProtocol::FastCgi => HeadSyntax::Cgi,
        };
        let mut left_out_bytes = 0;
        loop {
            let parsed = parse_response(&head[left_out_bytes..], syntax, self.asking, ANSWER_HEAD_BYTES_MAX)
                .map_err(|bad| BadAnswer(bad.reason()))?;
            match parsed {
                ParsedHead::Interim { head_len } => {
                    left_out_bytes += head_len;
                    self.interim_bytes += head_len;
                    if self.interim_bytes > ANSWER_HEAD_BYTES_MAX {
                        return Err(BadAnswer("The server sends too many interim answers"));
                    }
                }
                ParsedHead::Partial => {
                    head.drain(..left_out_bytes);
                    return Ok(None);
                }
                ParsedHead::Complete(mut answer) => {
                    answer.head_len += left_out_bytes;
                    self.begin_body(&answer);
                    return Ok(Some(answer));
                }
            }
        }
    }

    fn begin_body(&mut self, answer: &ResponseHead) {
        self.is_reusable = answer.keep_alive;
        self.stage = match answer.body {
            // The end of the records still follows.
            ResponseBody::None | ResponseBody::Length(0) if self.protocol == UpstreamProtocol::FastCgi => {
                Stage::Length(0)
            }
            ResponseBody::None | ResponseBody::Length(0) => Stage::Over,
            ResponseBody::Length(bytes) => Stage::Length(bytes),
            ResponseBody::Chunked => Stage::Chunked(Chunked::new()),
            ResponseBody::UntilEnd => Stage::UntilEnd,
            ResponseBody::Upgraded => {
                (self.upload, self.framing) = (Upload::Raw, Framing::Plain);
                Stage::UntilEnd
            }
        };
        // The answer to a request that was not read to its end is the last one.
        self.is_reusable &= self.opening.1 == self.opening.0.len();
    }

    /// Takes bytes of the body. Returns how many bytes of data are now at the front.
    fn take_data(&mut self, bytes: &mut [u8]) -> Result<usize, BadAnswer> {
        match &mut self.stage {
            Stage::Head(_) => Ok(0),
            Stage::UntilEnd => Ok(bytes.len()),
            Stage::Length(left) => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                // More bytes are no answer to this request. An application may well answer HEAD with a body.
                self.is_reusable &= taken == bytes.len() || self.protocol == UpstreamProtocol::FastCgi;
                if *left == 0 && self.protocol == UpstreamProtocol::Http {
                    self.stage = Stage::Over;
                }
                Ok(taken)
            }
            Stage::Chunked(chunks) => {
                let progress = chunks.decode(bytes).map_err(|bad| BadAnswer(bad.reason()))?;
                if progress.done {
                    self.is_reusable &= progress.consumed == bytes.len();
                    self.stage = Stage::Over;
                }
                Ok(progress.data_bytes)
            }
            Stage::Over => {
                self.is_reusable &= bytes.is_empty();
                Ok(0)
            }
        }
    }

    /// Handles the end of a FastCGI request.
    fn end_request(&mut self, ending: RequestEnd) -> Result<(), BadAnswer> {
        match (ending, &self.stage) {
            (RequestEnd::Refused(_), _) => Err(BadAnswer("The application refuses the request")),
            (_, Stage::Head(_)) => Err(BadAnswer("The application ended before the head of its answer")),
            (_, Stage::Length(left)) if *left > 0 => Err(CUT),
            _ => {
                self.stage = Stage::Over;
                Ok(())
            }
        }
    }

    /// Handles that the server sends nothing more. An end that is not announced ([`Transport::is_end_announced`]) completes no
    /// answer.
    ///
    /// # Errors
    /// The answer is not complete.
    ///
    /// [`Transport::is_end_announced`]: crate::transport::Transport::is_end_announced
    pub(crate) fn receive_end(&mut self, is_announced: bool) -> Result<(), BadAnswer> {
        self.is_reusable = false;
        match (&self.stage, self.protocol) {
            (Stage::Over, _) => Ok(()),
            (Stage::UntilEnd, UpstreamProtocol::Http) if is_announced => {
                self.stage = Stage::Over;
                Ok(())
            }
            (Stage::UntilEnd, UpstreamProtocol::Http) => Err(UNANNOUNCED),
            (Stage::Head(head), _) if head.is_empty() => {
                Err(BadAnswer("The server closed the connection without an answer"))
            }
            (Stage::Head(_), _) => {
                Err(BadAnswer("The server closed the connection within the head of its answer"))
            }
            _ => Err(CUT),
        }
    }
}

const UNANNOUNCED: BadAnswer =
    BadAnswer("The connection ended without the end of TLS (close_notify), so the answer may be cut");
const CUT: BadAnswer = BadAnswer("The answer ended early");
