//! A response as a client sees it: where it ends, and whether it is what was asked for.
//!
//! A connection feeds it what it receives. Pure; strict, because a server that is measured is
//! also checked.

use super::tally::Fault;

/// The longest head that is taken for one.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// The most fields of a head.
const FIELDS_MAX: usize = 100;

/// One response on its way in.
#[derive(Debug, Default)]
pub(crate) struct Response {
    /// What came of a head that is not complete yet.
    partial_head: Vec<u8>,
    head: Option<Head>,
    body_read_bytes: u64,
}

/// What the head said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The status code.
    pub(crate) status: u16,
    /// The length of the body.
    pub(crate) body_bytes: u64,
    /// Whether another request may follow on the connection.
    pub(crate) keep_alive: bool,
}

impl Response {
    /// Makes it ready for the next response; keeps its buffer.
    pub(crate) fn clear(&mut self) {
        self.partial_head.clear();
        self.head = None;
        self.body_read_bytes = 0;
    }

    /// Whether any byte of it has come.
    pub(crate) fn has_begun(&self) -> bool {
        self.head.is_some() || !self.partial_head.is_empty()
    }

    /// Takes `bytes` in. Calls `on_body` with the status, the offset and the bytes of each piece
    /// of the body. Gives the head when the response is complete.
    ///
    /// Errors: [`Fault::Garbage`] and [`Fault::NoLength`], and then nothing more can be read.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        mut on_body: impl FnMut(&Head, u64, &[u8]),
    ) -> Result<Option<Head>, Fault> {
        let (head, body) = match self.head {
            Some(head) => (head, bytes),
            None => match self.take_head(bytes)? {
                Some((head, used_bytes)) => (head, &bytes[used_bytes..]),
                None => return Ok(None),
            },
        };
        self.head = Some(head);
        if body.len() as u64 > head.body_bytes - self.body_read_bytes {
            return Err(Fault::Garbage);
        }
        if !body.is_empty() {
            on_body(&head, self.body_read_bytes, body);
            self.body_read_bytes += body.len() as u64;
        }
        Ok((self.body_read_bytes == head.body_bytes).then_some(head))
    }

    /// Reads the head; gives how many of `bytes` belong to it.
    fn take_head(&mut self, bytes: &[u8]) -> Result<Option<(Head, usize)>, Fault> {
        if self.partial_head.is_empty() {
            let parsed = parse_head(bytes)?;
            if parsed.is_none() {
                self.partial_head.extend_from_slice(bytes);
            }
            return Ok(parsed);
        }
        let before = self.partial_head.len();
        self.partial_head.extend_from_slice(bytes);
        match parse_head(&self.partial_head)? {
            Some((head, length)) => Ok(Some((head, length - before))),
            None if self.partial_head.len() > HEAD_BYTES_MAX => Err(Fault::Garbage),
            None => Ok(None),
        }
    }
}

/// Parses a head at the start of `bytes`; gives it and its length in bytes, or nothing when it
/// is not complete.
fn parse_head(bytes: &[u8]) -> Result<Option<(Head, usize)>, Fault> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(length) = parsed.parse(bytes).map_err(|_| Fault::Garbage)? else {
        return Ok(None);
    };
    let status = parsed.code.unwrap_or(0);
    let mut keep_alive = parsed.version == Some(1);
    // RFC 9112 §6.3: these have no body, whatever their fields say.
    let mut body_bytes = matches!(status, 204 | 304).then_some(0);
    for field in parsed.headers.iter() {
        if field.name.eq_ignore_ascii_case("content-length") {
            let said = std::str::from_utf8(field.value).ok().and_then(|text| text.parse().ok());
            body_bytes = body_bytes.or(Some(said.ok_or(Fault::Garbage)?));
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(Fault::NoLength);
        } else if field.name.eq_ignore_ascii_case("connection") && field.value.eq_ignore_ascii_case(b"close")
        {
            keep_alive = false;
        }
    }
    let body_bytes = body_bytes.ok_or(Fault::NoLength)?;
    Ok(Some((Head { status, body_bytes, keep_alive }, length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

    #[test]
    fn reads_a_response_in_any_pieces() {
        for first in 1..OK.len() {
            for second in first..OK.len() {
                let (mut response, mut body) = (Response::default(), Vec::new());
                let mut end = None;
                for piece in [&OK[..first], &OK[first..second], &OK[second..]] {
                    assert_eq!(end, None);
                    end = response
                        .feed(piece, |_, offset, bytes| {
                            assert_eq!(offset, body.len() as u64);
                            body.extend_from_slice(bytes);
                        })
                        .unwrap();
                }
                assert_eq!(end, Some(Head { status: 200, body_bytes: 5, keep_alive: true }));
                assert_eq!(body, b"hello");
            }
        }
    }

    #[test]
    fn knows_when_the_connection_ends() {
        let cases: [(&[u8], bool); 4] = [
            (b"HTTP/1.1 503 x\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n", false),
            (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", false),
            (b"HTTP/1.1 304 x\r\nContent-Length: 7\r\n\r\n", true),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nConnection: keep-alive\r\n\r\n", true),
        ];
        for (bytes, keep_alive) in cases {
            let head = Response::default().feed(bytes, |_, _, _| panic!("no body")).unwrap().unwrap();
            assert_eq!(head.keep_alive, keep_alive);
        }
    }

    #[test]
    fn refuses_what_is_no_response() {
        let cases: [(&[u8], Fault); 6] = [
            (b"SSH-2.0-OpenSSH\r\n", Fault::Garbage),
            (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", Fault::Garbage),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", Fault::Garbage),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", Fault::Garbage),
            (b"HTTP/1.1 200 OK\r\n\r\n", Fault::NoLength),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Fault::NoLength),
        ];
        for (bytes, fault) in cases {
            assert_eq!(Response::default().feed(bytes, |_, _, _| ()), Err(fault));
        }
        let mut endless = Response::default();
        assert_eq!(endless.feed(b"HTTP/1.1 200 OK\r\n", |_, _, _| ()), Ok(None));
        let faults =
            (0..2000).any(|_| endless.feed(b"x: aaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", |_, _, _| ()).is_err());
        assert!(faults, "an endless head must end");
    }
}
