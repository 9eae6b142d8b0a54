//! Records of the World Cup 98 logs.
//!
//! Only [`super`] calls it. Pure.
//!
//! A record has 20 bytes, big-endian: the time (Unix seconds, UTC), the client, the object, the
//! size (4 bytes each), the method, the status, the type, the server (1 byte each). The two upper bits of
//! the status are the HTTP version, the others an index. Source: the Internet Traffic Archive's page
//! "WorldCup98", and `request.h` and `definitions.h` of its tools.

use super::{Entry, What, what_of};

pub(crate) const RECORD_BYTES: usize = 20;

/// Methods by their numbers; 8 stands for any other.
const METHODS: u8 = 9;
const GET: u8 = 0;
/// Types of files by their numbers.
const TYPES: u8 = 13;
/// A size that is not known.
const NO_SIZE: u32 = u32::MAX;
/// Statuses by their numbers, all that HTTP/1.1 had then; 37 stands for any other.
const STATUSES: [u16; 38] = [
    100, 101, 200, 201, 202, 203, 204, 205, 206, 300, 301, 302, 303, 304, 305, 400, 401, 402, 403, 404, 405,
    406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 500, 501, 502, 503, 504, 505, 0,
];

/// Reads a record.
///
/// Errors: what in it is beyond the format.
pub(super) fn parse(record: &[u8; RECORD_BYTES]) -> Result<Entry, &'static str> {
    let word = |at: usize| u32::from_be_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
    let [method, status, kind] = [record[16], record[17], record[18]];
    if method >= METHODS {
        return Err("no such method");
    }
    if kind >= TYPES {
        return Err("no such type of file");
    }
    let status = *STATUSES.get(usize::from(status & 0x3f)).ok_or("no such status")?;
    let file_bytes = match word(12) {
        NO_SIZE => 0,
        size => u64::from(size),
    };
    let what = if method == GET {
        what_of(status, file_bytes, || Some(format!("/wc98/{}", word(8)).into_boxed_str()))
    } else {
        What::OtherMethod
    };
    Ok(Entry { at_s: word(0), what })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time 894,000,000, client 9, object 7, then size, method, status, type 1, server 0x63.
    fn record(size: u32, method: u8, status: u8) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        record[..12].copy_from_slice(&[0x35, 0x49, 0x5b, 0x80, 0, 0, 0, 9, 0, 0, 0, 7]);
        record[12..16].copy_from_slice(&size.to_be_bytes());
        record[16..].copy_from_slice(&[method, status, 1, 0x63]);
        record
    }

    #[test]
    fn records_by_hand() {
        let get = |file_bytes| What::Get { path: "/wc98/7".into(), file_bytes };
        // HTTP/1.0 (0x40) and status 2, which is 200.
        for (record, what) in [
            (record(1234, 0, 0x42), get(Some(1234))),
            (record(5, 0, 0x80 | 8), get(Some(5))),
            (record(NO_SIZE, 0, 0x42), get(Some(0))),
            (record(0, 0, 0x40 | 13), get(None)),
            (record(99, 0, 0x40 | 19), What::OtherStatus),
            (record(99, 0, 37), What::OtherStatus),
            (record(99, 1, 0x42), What::OtherMethod),
            (record(99, 8, 0x42), What::OtherMethod),
        ] {
            assert_eq!(parse(&record), Ok(Entry { at_s: 894_000_000, what }));
        }
    }

    #[test]
    fn what_is_beyond_the_format_is_refused() {
        assert_eq!(parse(&record(1, 9, 2)), Err("no such method"));
        assert_eq!(parse(&record(1, 0, 38)), Err("no such status"));
        assert_eq!(parse(b"127.0.0.1 - - [10/Oc"), Err("no such method"));
        let mut kind = record(1, 0, 2);
        kind[18] = 13;
        assert_eq!(parse(&kind), Err("no such type of file"));
    }

    #[test]
    fn the_table_of_statuses() {
        // The numbers of `definitions.h`: SC_200, SC_206, SC_304, SC_400, SC_404, SC_500, SC_505.
        for (number, status) in [(2, 200), (8, 206), (13, 304), (15, 400), (19, 404), (31, 500), (36, 505)] {
            assert_eq!(STATUSES[number], status);
        }
    }
}
