//! The static table of HPACK (RFC 7541 appendix A) and the dynamic table of a decoder (section 2.3.2). Called by `decode` and
//! `encode`.

use std::collections::VecDeque;

use super::FIELD_OVERHEAD_BYTES;
use crate::hop::Field;

/// The fields of the static table; the first has index 1.
pub(super) const STATIC: [(&[u8], &[u8]); 61] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

/// A field of a dynamic table.
#[derive(Clone, Debug)]
struct Entry {
    bytes: Box<[u8]>,
    name_bytes: usize,
}

/// The dynamic table of a decoder.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// The newest first.
    entries: VecDeque<Entry>,
    bytes: usize,
    bytes_max: usize,
}

impl Table {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// The field with this index, of either table (RFC 7541 section 2.3.3).
    pub(super) fn field(&self, index: usize) -> Option<Field<'_>> {
        let index = index.checked_sub(1)?;
        if let Some(field) = STATIC.get(index) {
            return Some(*field);
        }
        let entry = self.entries.get(index - STATIC.len())?;
        Some(entry.bytes.split_at(entry.name_bytes))
    }

    /// Adds a field, and evicts as many as it takes (RFC 7541 section 4.4). One that is larger than the table empties it.
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) {
        let bytes = name.len() + value.len() + FIELD_OVERHEAD_BYTES;
        self.evict(self.bytes_max.saturating_sub(bytes));
        if bytes <= self.bytes_max {
            self.bytes += bytes;
            self.entries.push_front(Entry { bytes: [name, value].concat().into(), name_bytes: name.len() });
        }
    }

    /// Changes the size.
    pub(super) fn resize(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.evict(bytes_max);
    }

    fn evict(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some(entry) = self.entries.pop_back() else { return };
            self.bytes -= entry.bytes.len() + FIELD_OVERHEAD_BYTES;
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
