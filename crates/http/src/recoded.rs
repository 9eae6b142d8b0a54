//! The head of an upstream's answer that gets a content coding on its way (RFC 9110, section 8.4). Called by the engine for routes that
//! compress.

use crate::hop::elements;
use crate::negotiate::Coding;
use crate::response::Status;
use crate::types::compressible;
use crate::upstream_response::{ResponseBody, ResponseHead};

impl ResponseHead {
    /// Whether a coding would make the body shorter and no field forbids it, as far as the head tells: a text of this length at least, which is
    /// complete, has no coding, and may be changed (RFC 9110, section 7.7).
    #[must_use]
    pub fn can_be_coded(&self, least_bytes: u64) -> bool {
        let is_long = match self.body {
            ResponseBody::Length(bytes) => bytes >= least_bytes,
            // An answer to HEAD says the same as that to GET.
            ResponseBody::None => self.length_bytes.is_none_or(|bytes| bytes >= least_bytes),
            ResponseBody::Chunked | ResponseBody::UntilEnd => true,
            ResponseBody::Upgraded => false,
        };
        let is_complete = matches!(self.status, Status(200 | 203 | 400..=599)) && !self.is_stream;
        let is_text = |value: &[u8]| std::str::from_utf8(value).is_ok_and(compressible);
        let is_fixed = |value: &[u8]| elements(value).any(|it| it.eq_ignore_ascii_case(b"no-transform"));
        is_long
            && is_complete
            && self.values(b"content-type").any(is_text)
            && !self.values(b"cache-control").any(is_fixed)
            && [&b"content-encoding"[..], b"content-range"]
                .into_iter()
                .all(|name| self.values(name).next().is_none())
    }

    /// The same head for a body in this coding, whose length is not known.
    #[must_use]
    pub fn coded(&self, coding: Coding) -> Self {
        let Self { mut fields, .. } = self.weakened();
        fields.extend_from_slice(format!("Content-Encoding: {}\r\n", coding.token()).as_bytes());
        let body = if self.body == ResponseBody::None { ResponseBody::None } else { ResponseBody::Chunked };
        Self { body, length_bytes: None, fields, ..self.clone() }
    }

    /// The same head without the fields that hold for the bytes of the body as it is.
    #[must_use]
    pub fn weakened(&self) -> Self {
        const OF_BYTES: [&[u8]; 5] =
            [b"accept-ranges", b"content-digest", b"content-md5", b"digest", b"repr-digest"];
        let mut fields = Vec::with_capacity(self.fields.len() + 64);
        for line in self.fields.split_inclusive(|byte| *byte == b'\n') {
            match split(line) {
                Some((name, _)) if OF_BYTES.iter().any(|it| name.eq_ignore_ascii_case(it)) => {}
                // The tag of the other body is at most a weak one of this (RFC 9110, section 8.8.3.3).
                Some((name, tag)) if name.eq_ignore_ascii_case(b"etag") && tag.starts_with(b"\"") => {
                    [&b"ETag: W/"[..], tag, b"\r\n"].iter().for_each(|part| fields.extend_from_slice(part));
                }
                _ => fields.extend_from_slice(line),
            }
        }
        Self { fields, ..self.clone() }
    }

    /// The same head, which says that the coding depends on the request.
    #[must_use]
    pub fn varying(&self) -> Self {
        let fields = [&self.fields[..], b"Vary: Accept-Encoding\r\n"].concat();
        Self { fields, ..self.clone() }
    }

    /// The values of the fields with this name in lower case.
    fn values<'h>(&'h self, name: &'h [u8]) -> impl Iterator<Item = &'h [u8]> {
        let lines = self.fields.split(|byte| *byte == b'\n').filter_map(split);
        lines.filter(move |(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// The name and the value of a line.
fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    Some((&line[..colon], line[colon + 1..].trim_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream_response::{HeadSyntax, ParsedHead, ResponseTo, parse_response};

    fn head(status: u16, fields: &str) -> ResponseHead {
        let text = format!("HTTP/1.1 {status} x\r\n{fields}\r\n");
        let asked = ResponseTo { is_head: false, upgrades: false };
        match parse_response(text.as_bytes(), HeadSyntax::Http, asked, 32_768) {
            Ok(ParsedHead::Complete(head)) => *head,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn long_texts_without_a_coding_can_be_coded() {
        for (status, fields, can) in [
            (200, "Content-Type: text/html; charset=utf-8\r\nContent-Length: 1024\r\n", true),
            (200, "Content-Type: text/html\r\nContent-Length: 1023\r\n", false),
            (200, "content-type: application/json\r\nTransfer-Encoding: chunked\r\n", true),
            (404, "Content-Type: application/problem+json\r\n", true),
            (200, "Content-Type: image/png\r\n", false),
            (200, "Content-Type: text/event-stream\r\n", false),
            (200, "X-Accel-Buffering: no\r\nContent-Type: text/html\r\n", false),
            (200, "", false),
            (204, "Content-Type: text/html\r\n", false),
            (206, "Content-Type: text/html\r\nContent-Range: bytes 0-1/2\r\n", false),
            (304, "Content-Type: text/html\r\n", false),
            (200, "Content-Type: text/html\r\nContent-Encoding: gzip\r\n", false),
            (200, "Content-Type: text/html\r\nCache-Control: public, No-Transform\r\n", false),
            (200, "Content-Type: text/html\r\nCache-Control: public, max-age=1\r\n", true),
        ] {
            assert_eq!(head(status, fields).can_be_coded(1024), can, "{status} {fields}");
        }
    }

    #[test]
    fn fields_about_the_other_body_change() {
        let plain = head(
            200,
            "Content-Type: text/html\r\nContent-Length: 2000\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\nX-A: 1\r\n",
        );
        let coded = plain.coded(Coding::Gzip).varying();
        assert_eq!((coded.body, coded.length_bytes), (ResponseBody::Chunked, None));
        assert_eq!(
            String::from_utf8_lossy(&coded.fields),
            "Content-Type: text/html\r\nETag: W/\"a\"\r\nX-A: 1\r\nContent-Encoding: gzip\r\nVary: Accept-Encoding\r\n"
        );
        assert!(plain.varying().fields.ends_with(b"X-A: 1\r\nVary: Accept-Encoding\r\n"));
        let digests = head(200, "Digest: a\r\nRepr-Digest: b\r\nWant-Digest: c\r\n").weakened();
        assert_eq!(digests.fields, b"Want-Digest: c\r\n");
        let weak = head(200, "ETag: W/\"a\"\r\n").coded(Coding::Gzip);
        assert!(weak.fields.starts_with(b"ETag: W/\"a\"\r\n"));
    }
}
