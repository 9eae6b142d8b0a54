//! Heads in HTTP/2: the header block of a request, and the fields of an answer that matter to a client. Pure.

use flash_http::h2::FieldList;

use crate::generator::response::digits;

/// The first bits of a field with an index, and of literal fields that the table keeps and does not keep (RFC 7541 section 6).
const INDEXED: u8 = 0x80;
const KEPT: u8 = 0x40;
const NOT_KEPT: u8 = 0x00;
/// Places in the static table (RFC 7541 appendix A).
const AUTHORITY: u8 = 1;
const METHOD_GET: u8 = 2;
const METHOD_POST: u8 = 3;
const PATH: u8 = 4;
const SCHEME_HTTP: u8 = 6;
const SCHEME_HTTPS: u8 = 7;
/// The latest field that the table keeps.
const LATEST: u8 = 62;
/// The size of a table without a setting, and of one that this client uses.
const TABLE_BYTES: u32 = 4096;

/// Whether the table of the server's decoder has the authority, and what the next block must begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Empty,
    HasAuthority,
    /// The server wants a smaller table: the next block says that there is none from now on.
    Refused,
    None,
}

impl Table {
    /// Follows a `SETTINGS_HEADER_TABLE_SIZE`.
    pub(crate) fn resize(&mut self, bytes: u32) {
        if bytes < TABLE_BYTES && *self != Self::None {
            *self = Self::Refused;
        }
    }

    /// Appends the header block of a request, as browsers write it: the authority is in the table after the first request, a path
    /// never is. Fields beyond these are not either, so that the table has room for the authority. Strings are not compressed.
    pub(crate) fn push_request(&mut self, out: &mut Vec<u8>, request: &RequestHead<'_>) {
        let RequestHead { method, is_https, authority, path, fields } = *request;
        if *self == Self::Refused {
            // A table of 0 bytes (RFC 7541 section 6.3).
            out.push(0x20);
            *self = Self::None;
        }
        out.extend_from_slice(method);
        out.push(INDEXED | if is_https { SCHEME_HTTPS } else { SCHEME_HTTP });
        match self {
            Self::HasAuthority => out.push(INDEXED | LATEST),
            Self::Empty => {
                out.push(KEPT | AUTHORITY);
                push_string(out, authority);
                *self = Self::HasAuthority;
            }
            Self::None | Self::Refused => {
                out.push(NOT_KEPT | AUTHORITY);
                push_string(out, authority);
            }
        }
        out.push(NOT_KEPT | PATH);
        push_string(out, path);
        out.extend_from_slice(fields);
    }
}

/// The parts of the head of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestHead<'a> {
    /// As [`method_block`] gives it.
    pub(crate) method: &'a [u8],
    pub(crate) is_https: bool,
    pub(crate) authority: &'a [u8],
    pub(crate) path: &'a [u8],
    /// As [`push_field`] appends them.
    pub(crate) fields: &'a [u8],
}

/// The field of a method in a header block.
pub(crate) fn method_block(name: &str) -> Vec<u8> {
    match name {
        "GET" => vec![INDEXED | METHOD_GET],
        "POST" => vec![INDEXED | METHOD_POST],
        _ => {
            let mut block = vec![NOT_KEPT | METHOD_GET];
            push_string(&mut block, name.as_bytes());
            block
        }
    }
}

/// Appends a field to a header block: its name in lower case (RFC 9113 section 8.2).
pub(crate) fn push_field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.push(NOT_KEPT);
    push_string(out, name.to_ascii_lowercase().as_bytes());
    push_string(out, value.as_bytes());
}

/// Appends a string as it is (RFC 7541 section 5.2).
fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    const PREFIX: usize = 0x7f;
    if text.len() < PREFIX {
        out.push(text.len() as u8);
    } else {
        out.push(PREFIX as u8);
        let mut rest = text.len() - PREFIX;
        while rest >= 0x80 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(text);
}

/// The part of the head of an answer that a client needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerHead {
    pub(crate) status: u16,
    pub(crate) length_bytes: Option<u64>,
}

impl AnswerHead {
    /// None for a list that is no head of an answer (RFC 9113 section 8.3.2).
    pub(crate) fn read(list: &FieldList) -> Option<Self> {
        let mut fields = list.iter();
        let (b":status", status @ [_, _, _]) = fields.next()? else { return None };
        let status = u16::try_from(digits(status)?).ok()?;
        let mut length_bytes = None;
        for (name, value) in fields {
            if name.starts_with(b":") || name.iter().any(u8::is_ascii_uppercase) {
                return None;
            }
            if name == b"content-length" {
                let length = digits(value)?;
                if length_bytes.replace(length).is_some_and(|before| before != length) {
                    return None;
                }
            }
        }
        Some(Self { status, length_bytes })
    }
}

#[cfg(test)]
mod tests {
    use flash_http::h2::{Decoder, Encoder, Indexing, ListLimits};

    use super::*;

    const LIMITS: ListLimits = ListLimits { bytes: 10_000, fields: 100 };

    fn read(decoder: &mut Decoder, block: &[u8]) -> Vec<(String, String)> {
        let mut list = FieldList::new();
        decoder.decode(block, LIMITS, &mut list).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        list.iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn a_server_reads_the_same_request_each_time() {
        let long = format!("/{}", "x".repeat(300));
        let mut table = Table::Empty;
        let mut decoder = Decoder::new();
        let mut sizes = Vec::new();
        for (at, path) in ["/a", "/b", &long, "/c"].into_iter().enumerate() {
            if at == 3 {
                table.resize(100);
            }
            let mut block = Vec::new();
            let method = method_block(["GET", "POST", "PATCH", "GET"][at]);
            let mut fields = Vec::new();
            if at == 2 {
                push_field(&mut fields, "X-Long", &"v".repeat(500));
            }
            let head = RequestHead {
                method: &method,
                is_https: true,
                authority: b"h:1",
                path: path.as_bytes(),
                fields: &fields,
            };
            table.push_request(&mut block, &head);
            sizes.push(block.len());
            let method = ["GET", "POST", "PATCH", "GET"][at];
            let value = "v".repeat(500);
            let mut expected =
                vec![(":method", method), (":scheme", "https"), (":authority", "h:1"), (":path", path)];
            expected.extend((at == 2).then_some(("x-long", value.as_str())));
            let expected: Vec<_> = expected.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            assert_eq!(read(&mut decoder, &block), expected);
        }
        assert!(sizes[1] < sizes[0] && sizes[3] > sizes[1], "{sizes:?}");
        assert_eq!((table, decoder.table_bytes()), (Table::None, 0));
    }

    #[test]
    fn an_answer_has_one_status_and_one_length() {
        let head = |status: u16, fields: &[(&str, &str)]| {
            let (mut encoder, mut block, mut list) = (Encoder::new(), Vec::new(), FieldList::new());
            encoder.begin(&mut block, status);
            for (name, value) in fields {
                encoder.field(&mut block, name.as_bytes(), value.as_bytes(), Indexing::Own);
            }
            Decoder::new().decode(&block, LIMITS, &mut list).unwrap();
            AnswerHead::read(&list)
        };
        let of = |status, length_bytes| Some(AnswerHead { status, length_bytes });
        assert_eq!(head(200, &[("content-length", "5"), ("etag", "x")]), of(200, Some(5)));
        assert_eq!(head(404, &[]), of(404, None));
        assert_eq!(head(200, &[("content-length", "5"), ("content-length", "5")]), of(200, Some(5)));
        for wrong in [
            &[("content-length", "5"), ("content-length", "6")][..],
            &[("content-length", "+5")],
            &[("Etag", "x")],
            &[(":status", "200")],
        ] {
            assert_eq!(head(200, wrong), None, "{wrong:?}");
        }
        assert_eq!(AnswerHead::read(&FieldList::new()), None);
    }
}
