//! Encodes header blocks (RFC 7541 section 6) for response heads: most of their fields are the same for many answers, and then
//! one byte each.

use std::collections::VecDeque;

use super::table::STATIC;
use super::{FIELD_OVERHEAD_BYTES, TABLE_BYTES, huffman};

/// Places in which a field of the table is looked for: a power of two, and more than the table has fields of an answer.
const PLACES: usize = 64;

/// Whether a field is worth a place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// Other answers have the same field.
    Shared,
    /// Hardly any other answer has it.
    Own,
    /// It is secret, so no later field may be compared with it (RFC 7541 section 7.1.3).
    Never,
}

/// The place of a field of the table.
#[derive(Clone, Debug, Default)]
struct Known {
    name: Box<[u8]>,
    value: Box<[u8]>,
    /// How many fields were added before this one.
    number: u64,
}

/// Encodes the header blocks of a connection.
#[derive(Clone, Debug)]
pub struct Encoder {
    /// The sizes of the fields of the table, the oldest first.
    sizes: VecDeque<u32>,
    bytes: usize,
    bytes_max: usize,
    /// How many fields were added.
    added: u64,
    places: Vec<Option<Known>>,
    /// The lowest size since the last block, if the size was changed, which the next block must begin with.
    resized: Option<usize>,
    /// Shorter strings of fields that are not added to the table are not coded.
    coded_bytes_min: usize,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An encoder whose table has [`TABLE_BYTES`].
    pub fn new() -> Self {
        Self {
            sizes: VecDeque::new(),
            bytes: 0,
            bytes_max: TABLE_BYTES,
            added: 0,
            places: Vec::new(),
            resized: None,
            coded_bytes_min: CODED_BYTES_MIN,
        }
    }

    /// An encoder of fields that are encoded once and sent many times, for which each byte that the code spares is worth its
    /// time.
    pub fn for_kept_fields() -> Self {
        Self { coded_bytes_min: 0, ..Self::new() }
    }

    /// Follows the `SETTINGS_HEADER_TABLE_SIZE` of the client. A larger table than [`TABLE_BYTES`] is not used.
    pub fn resize(&mut self, bytes: usize) {
        let bytes = bytes.min(TABLE_BYTES);
        if bytes == self.bytes_max && self.resized.is_none() {
            return;
        }
        self.resized = Some(self.resized.unwrap_or(bytes).min(bytes));
        self.bytes_max = bytes;
        self.evict(bytes);
    }

    /// Begins a block with a status.
    pub fn begin(&mut self, out: &mut Vec<u8>, status: u16) {
        if let Some(lowest) = self.resized.take() {
            if lowest < self.bytes_max {
                push_number(out, 0x20, 5, lowest);
            }
            push_number(out, 0x20, 5, self.bytes_max);
        }
        match status {
            200 => out.push(0x88),
            204 => out.push(0x89),
            206 => out.push(0x8a),
            304 => out.push(0x8b),
            400 => out.push(0x8c),
            404 => out.push(0x8d),
            500 => out.push(0x8e),
            other => {
                let digits = [
                    b'0' + (other / 100 % 10) as u8,
                    b'0' + (other / 10 % 10) as u8,
                    b'0' + (other % 10) as u8,
                ];
                self.field(out, b":status", &digits, Indexing::Shared);
            }
        }
    }

    /// Appends a field. Its name must be in lower case.
    pub fn field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8], indexing: Indexing) {
        let (pattern, prefix_bits, coded_bytes_min) = match indexing {
            Indexing::Shared => {
                let place = place(name, value);
                if let Some(index) = self.find(place, name, value) {
                    return push_number(out, 0x80, 7, index);
                }
                if self.add(place, name, value) { (0x40, 6, 0) } else { (0x00, 4, self.coded_bytes_min) }
            }
            Indexing::Own => (0x00, 4, self.coded_bytes_min),
            Indexing::Never => (0x10, 4, self.coded_bytes_min),
        };
        match static_name(name) {
            Some(index) => push_number(out, pattern, prefix_bits, index),
            None => {
                out.push(pattern);
                push_string(out, name, coded_bytes_min);
            }
        }
        push_string(out, value, coded_bytes_min);
    }

    /// The index of a field of the table.
    #[inline]
    fn find(&self, place: usize, name: &[u8], value: &[u8]) -> Option<usize> {
        let known = self.places.get(place)?.as_ref()?;
        let age = (self.added - known.number) as usize;
        let is_same = age <= self.sizes.len() && *known.value == *value && *known.name == *name;
        is_same.then_some(STATIC.len() + age)
    }

    /// Adds a field to the table. Returns false if it is too large.
    fn add(&mut self, place: usize, name: &[u8], value: &[u8]) -> bool {
        let bytes = name.len() + value.len() + FIELD_OVERHEAD_BYTES;
        // A large field would evict all others.
        if bytes > self.bytes_max / 4 {
            return false;
        }
        self.evict(self.bytes_max - bytes);
        self.sizes.push_back(bytes as u32);
        self.bytes += bytes;
        if self.places.is_empty() {
            self.places.resize_with(PLACES, || None);
        }
        self.places[place] = Some(Known { name: name.into(), value: value.into(), number: self.added });
        self.added += 1;
        true
    }

    fn evict(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some(bytes) = self.sizes.pop_front() else { return };
            self.bytes -= bytes as usize;
        }
    }
}

/// The place where a field is looked for.
#[inline]
fn place(name: &[u8], value: &[u8]) -> usize {
    let ends = |text: &[u8]| match text {
        [] => 0,
        [first, .., last] => u64::from(*first) << 16 | u64::from(*last) << 8 | text.len() as u64,
        [only] => u64::from(*only),
    };
    let middle = value.get(value.len() / 2).map_or(0, |byte| u64::from(*byte));
    let mixed = (ends(name) << 32 ^ ends(value) << 8 ^ middle).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 58) as usize % PLACES
}

/// The index of a name in the static table.
fn static_name(name: &[u8]) -> Option<usize> {
    Some(match name {
        b":status" => 8,
        b"accept-ranges" => 18,
        b"access-control-allow-origin" => 20,
        b"age" => 21,
        b"allow" => 22,
        b"cache-control" => 24,
        b"content-disposition" => 25,
        b"content-encoding" => 26,
        b"content-language" => 27,
        b"content-length" => 28,
        b"content-location" => 29,
        b"content-range" => 30,
        b"content-type" => 31,
        b"date" => 33,
        b"etag" => 34,
        b"expires" => 36,
        b"last-modified" => 44,
        b"link" => 45,
        b"location" => 46,
        b"retry-after" => 53,
        b"server" => 54,
        b"set-cookie" => 55,
        b"strict-transport-security" => 56,
        b"vary" => 59,
        b"via" => 60,
        b"www-authenticate" => 61,
        _ => return None,
    })
}

/// Appends a number with a prefix of this many bits (RFC 7541 section 5.1).
#[inline]
fn push_number(out: &mut Vec<u8>, pattern: u8, prefix_bits: u32, number: usize) {
    let mask = (1_usize << prefix_bits) - 1;
    if number < mask {
        return out.push(pattern | number as u8);
    }
    out.push(pattern | mask as u8);
    let mut rest = number - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Shorter strings of a field that is sent once are not coded: the bytes that it spares are not worth the time.
const CODED_BYTES_MIN: usize = 64;

/// Appends a string (RFC 7541 section 5.2), by the Huffman code if it has at least this many bytes and the code spares any.
#[inline]
fn push_string(out: &mut Vec<u8>, text: &[u8], coded_bytes_min: usize) {
    if text.len() >= coded_bytes_min {
        let coded_bytes = huffman::coded_bytes(text);
        if coded_bytes < text.len() {
            push_number(out, 0x80, 7, coded_bytes);
            return huffman::encode(text, out);
        }
    }
    push_number(out, 0x00, 7, text.len());
    out.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::super::{Decoder, FieldList, ListLimits};
    use super::*;

    const LIMITS: ListLimits = ListLimits { bytes: 32 * 1024, fields: 100 };

    #[test]
    fn the_names_of_the_static_table_are_where_it_has_them() {
        for (at, (name, _)) in STATIC.iter().enumerate().filter(|(_, (name, _))| *name != b":status") {
            assert!(static_name(name).is_none_or(|index| index == at + 1), "{}", name.escape_ascii());
        }
    }

    #[test]
    fn kept_and_shared_fields_are_coded_and_others_only_if_they_are_long() {
        let bytes = |mut encoder: Encoder, indexing: Indexing| {
            let (mut out, mut list) = (Vec::new(), FieldList::new());
            encoder.field(&mut out, b"last-modified", b"Mon, 21 Oct 2013 20:13:21 GMT", indexing);
            Decoder::new().decode(&out, LIMITS, &mut list).expect("a valid block");
            assert_eq!(list.iter().next().expect("a field").1, b"Mon, 21 Oct 2013 20:13:21 GMT");
            out.len()
        };
        // The index of the name and the length; 22 bytes are the example of RFC 7541, appendix C.6.
        assert_eq!(bytes(Encoder::for_kept_fields(), Indexing::Own), 2 + 1 + 22);
        assert_eq!(bytes(Encoder::new(), Indexing::Shared), 1 + 1 + 22);
        assert_eq!(bytes(Encoder::new(), Indexing::Own), 2 + 1 + 29);
    }

    #[test]
    fn a_shared_field_takes_one_byte_the_second_time() {
        let (mut encoder, mut decoder, mut list) = (Encoder::new(), Decoder::new(), FieldList::new());
        for round in 0..200 {
            let mut out = Vec::new();
            encoder.begin(&mut out, if round % 2 == 0 { 200 } else { 421 });
            let date = format!("date {}", round / 10);
            encoder.field(&mut out, b"server", b"flash", Indexing::Shared);
            encoder.field(&mut out, b"date", date.as_bytes(), Indexing::Shared);
            encoder.field(&mut out, b"etag", b"\"x\"", Indexing::Own);
            encoder.field(&mut out, b"set-cookie", &[b'c'; 100], Indexing::Never);
            if round == 13 {
                encoder.resize(100);
                encoder.resize(4096);
            } else if round == 15 {
                // The size went down in between, so the table is empty.
                assert!(out.len() > 60);
            }
            decoder.decode(&out, LIMITS, &mut list).expect("a valid block");
            let fields: Vec<_> = list.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            assert_eq!(fields[1], (b"server".to_vec(), b"flash".to_vec()), "round {round}");
            assert_eq!(fields[2], (b"date".to_vec(), date.into_bytes()), "round {round}");
            assert_eq!(fields[3].1, b"\"x\"");
            assert_eq!(fields[4].1, [b'c'; 100]);
        }
        let mut out = Vec::new();
        encoder.field(&mut out, b"server", b"flash", Indexing::Shared);
        assert_eq!(out.len(), 1);
    }
}
