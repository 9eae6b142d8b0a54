//! Tests of FastCGI from the side of a web server.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::Pairs;
use super::*;
use crate::backend::fastcgi::FastCgi;
use crate::backend::warm::{FileRange, Next, WarmRequest, WarmResult};

/// A record: type, id, content, bytes of padding.
type Record = (u8, u16, Vec<u8>, u8);

const END: [u8; 8] = [0, 0, 0, 0, COMPLETE, 0, 0, 0];
const DONE: RequestEnd = RequestEnd::Complete { app_status: 0 };

fn record(kind: u8, id: u16, content: &[u8], padding_bytes: u8) -> Vec<u8> {
    let [id, length] = [id, content.len() as u16].map(u16::to_be_bytes);
    let header = [&[1, kind][..], &id, &length, &[padding_bytes, 0]].concat();
    [&header[..], content, &vec![b'P'; padding_bytes.into()]].concat()
}

fn bytes_of(records: &[Record]) -> Vec<u8> {
    records.iter().flat_map(|(kind, id, content, padding)| record(*kind, *id, content, *padding)).collect()
}

/// The records in these bytes, which must be whole.
fn records_of(mut bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    while let [1, kind, id_high, id_low, high, low, padding, _, rest @ ..] = bytes {
        let (content, rest) = rest.split_at(u16::from_be_bytes([*high, *low]).into());
        records.push((*kind, u16::from_be_bytes([*id_high, *id_low]), content.to_vec(), *padding));
        bytes = &rest[usize::from(*padding)..];
    }
    assert_eq!(bytes, b"");
    records
}

/// The contents of records that are all of this type and of the request. None of them ends the stream.
fn stream_of(records: &[Record], wanted: u8) -> Vec<u8> {
    for (kind, id, content, padding) in records {
        assert_eq!((*kind, *id), (wanted, ID));
        assert!((1..=65_528).contains(&content.len()) && *padding < 8);
        assert!((content.len() + usize::from(*padding)).is_multiple_of(8));
    }
    records.iter().flat_map(|(_, _, content, _)| content.clone()).collect()
}

// Requests.

fn begin_with(out: &mut Vec<u8>, params: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]))) {
    write_begin(out);
    write_params(out, params);
    end_params(out);
}

#[test]
fn parameters_of_any_length() {
    let lengths = [0, 1, 127, 128, 8_000, 65_528, 70_000, 200_000];
    let mut out = b"before".to_vec();
    begin_with(&mut out, |push| {
        lengths.iter().for_each(|length| push(b"NAME", &vec![b'v'; *length]));
        push(&[b'n'; 300], b"");
    });
    let records = records_of(out.strip_prefix(b"before").unwrap());
    let [begin, params @ .., end] = records.as_slice() else { panic!("{} records", records.len()) };
    assert_eq!(*begin, (kind::BEGIN_REQUEST, ID, vec![0, 1, 1, 0, 0, 0, 0, 0], 0));
    assert_eq!(*end, (kind::PARAMS, ID, Vec::new(), 0));
    assert!(params.len() > 5);
    let params = stream_of(params, kind::PARAMS);
    let mut pairs = Pairs(&params);
    for length in lengths {
        assert_eq!(pairs.next(), Some((&b"NAME"[..], &vec![b'v'; length][..])));
    }
    assert_eq!(pairs.next(), Some((&[b'n'; 300][..], &b""[..])));
    assert_eq!((pairs.next(), pairs.0), (None, &b""[..]));
}

#[test]
fn pairs_are_not_divided() {
    let lengths = [30_000, 35_510, 1, 65_519, 65_519, 100, 70_000, 9];
    let mut out = Vec::new();
    begin_with(&mut out, |push| lengths.iter().for_each(|length| push(b"NAME", &vec![b'v'; *length])));
    let records = records_of(&out);
    let contents: Vec<&[u8]> = records[1..].iter().map(|(_, _, content, _)| content.as_slice()).collect();
    let values = |content: &[u8]| Pairs(content).map(|(_, value)| value.len()).collect::<Vec<_>>();
    // These fill a record to the last byte: the first two together, and two others alone.
    assert_eq!(values(contents[0]), [30_000, 35_510]);
    assert_eq!([0, 2, 3].map(|record| contents[record].len()), [65_528; 3]);
    assert_eq!(
        [1, 2, 3, 4].map(|record| values(contents[record])),
        [vec![1], vec![65_519], vec![65_519], vec![100]]
    );
    assert_eq!(values(&[contents[5], contents[6]].concat()), [70_000]);
    assert_eq!(values(contents[7]), [9]);
    assert_eq!(contents[8..], [b""]);
}

#[test]
fn a_request_without_parameters() {
    let mut out = Vec::new();
    begin_with(&mut out, |_| {});
    let kinds: Vec<u8> = records_of(&out).into_iter().map(|(kind, ..)| kind).collect();
    assert_eq!(kinds, [kind::BEGIN_REQUEST, kind::PARAMS]);
}

#[test]
fn bodies_of_any_length() {
    for length in [0, 1, 8, 65_528, 65_529, 65_535, 65_536, 200_000] {
        let data: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let mut out = Vec::new();
        write_stdin(&mut out, &data);
        let records = records_of(&out);
        assert_eq!(records.len(), data.len().div_ceil(65_528));
        assert_eq!(stream_of(&records, kind::STDIN), data);
    }
    let mut out = Vec::new();
    write_stdin_end(&mut out);
    assert_eq!(out, record(kind::STDIN, ID, b"", 0));
}

#[test]
fn the_warm_endpoint_answers_one_request_after_another() {
    let mut endpoint = FastCgi::default();
    for number in 0..3 {
        let mut out = Vec::new();
        begin_with(&mut out, |push| {
            push(b"REQUEST_METHOD", b"GET");
            push(b"SCRIPT_FILENAME", format!("/{}{number}", "a".repeat(200)).as_bytes());
        });
        write_stdin(&mut out, &[b'x'; 70_000]);
        write_stdin_end(&mut out);
        let mut answer = Vec::new();
        endpoint.handle_bytes(&out, &mut answer);
        let path = format!("/{}{number}", "a".repeat(200)).into_bytes();
        assert_eq!(endpoint.poll(), Next::Request(WarmRequest { path, part: FileRange::of_range(None) }));
        endpoint.handle_answer(WarmResult::Done, &mut answer);
        assert_eq!(endpoint.poll(), Next::Input, "the connection stays open");
        let taken = ResponseReader::default().take(&mut answer, &mut Vec::new()).unwrap();
        assert_eq!(taken.ended, Some(DONE));
        assert_eq!(answer[..taken.data_bytes], *b"Status: 200 OK\r\n\r\n");
    }
}

// Responses.

/// Data, errors and end of a response, or why it was refused.
type Read = Result<(Vec<u8>, Vec<u8>, Option<RequestEnd>), BadRecord>;

/// Reads a response whose bytes come in pieces that end at `ends`.
fn read(bytes: &[u8], ends: impl IntoIterator<Item = usize>) -> Read {
    let (mut reader, mut data, mut errors) = (ResponseReader::default(), Vec::new(), Vec::new());
    let (mut start, mut ended) = (0, None);
    for end in ends.into_iter().chain([bytes.len()]) {
        let mut piece = bytes[start..end].to_vec();
        let taken = match reader.take(&mut piece, &mut errors) {
            Ok(taken) => taken,
            Err(bad) => {
                assert_eq!(reader.take(&mut [], &mut errors), Err(bad), "an error stays");
                return Err(bad);
            }
        };
        data.extend_from_slice(&piece[..taken.data_bytes]);
        ended = taken.ended;
        start = end;
    }
    Ok((data, errors, ended))
}

/// Reads it whole, byte by byte, and cut into two pieces at each place; all have the same result.
fn read_all_ways(bytes: &[u8]) -> Read {
    let whole = read(bytes, []);
    assert_eq!(read(bytes, 1..bytes.len()), whole, "byte by byte");
    assert_eq!(read(bytes, (1..bytes.len()).flat_map(|end| [end, end])), whole, "with empty pieces");
    for end in 0..=bytes.len() {
        assert_eq!(read(bytes, [end]), whole, "cut at {end}");
    }
    whole
}

#[test]
fn a_response_with_padding_and_errors() {
    let sample = [
        record(kind::STDERR, ID, b"PHP Notice: ", 4),
        record(kind::STDOUT, ID, b"Status: 200 OK\r\n", 0),
        record(kind::STDOUT, ID, b"\r\nHello", 255),
        record(kind::UNKNOWN_TYPE, 0, &[77, 0, 0, 0, 0, 0, 0, 0], 0),
        record(kind::STDERR, ID, b"a", 0),
        record(kind::STDOUT, ID, b", world", 1),
        record(kind::GET_VALUES_RESULT, 0, b"", 3),
        record(kind::STDOUT, ID, b"", 9),
        record(kind::STDERR, ID, b"b", 7),
        record(kind::STDERR, ID, b"", 0),
        record(kind::END_REQUEST, ID, &[0x81, 2, 3, 4, COMPLETE, 9, 9, 9, 9], 7),
    ]
    .concat();
    let data = b"Status: 200 OK\r\n\r\nHello, world".to_vec();
    let end = RequestEnd::Complete { app_status: 0x8102_0304 };
    assert_eq!(read_all_ways(&sample), Ok((data, b"PHP Notice: ab".to_vec(), Some(end))));
    for length in 0..sample.len() {
        let (.., ended) = read(&sample[..length], []).unwrap();
        assert_eq!(ended, None, "cut short at {length}");
    }
}

#[test]
fn data_is_moved_to_the_front() {
    let mut bytes = [
        record(kind::STDERR, ID, &[b'e'; 100], 0),
        record(kind::STDOUT, ID, b"abc", 5),
        record(kind::STDOUT, ID, b"defgh", 0),
        record(kind::STDOUT, ID, b"ij", 0)[..9].to_vec(),
    ]
    .concat();
    let mut reader = ResponseReader::default();
    let taken = reader.take(&mut bytes, &mut Vec::new());
    assert_eq!(taken, Ok(Taken { data_bytes: 9, ended: None }));
    assert_eq!(bytes[..9], *b"abcdefghi");
    let mut bytes = *b"j\x01\x06";
    let taken = reader.take(&mut bytes, &mut Vec::new());
    assert_eq!((taken, bytes[0]), (Ok(Taken { data_bytes: 1, ended: None }), b'j'));
}

#[test]
fn the_end_of_data_may_be_missing_or_repeated() {
    let end = record(kind::END_REQUEST, ID, &END, 0);
    let data = record(kind::STDOUT, ID, b"x", 0);
    let empty = record(kind::STDOUT, ID, b"", 0);
    for middle in [Vec::new(), empty.clone(), [empty.clone(), empty].concat()] {
        let bytes = [&data[..], &middle, &end].concat();
        assert_eq!(read_all_ways(&bytes), Ok((b"x".to_vec(), Vec::new(), Some(DONE))));
    }
    assert_eq!(read_all_ways(&end), Ok((Vec::new(), Vec::new(), Some(DONE))));
}

#[test]
fn an_end_is_reported_until_the_next_byte() {
    let mut reader = ResponseReader::default();
    let mut bytes = record(kind::END_REQUEST, ID, &END, 2);
    let last = bytes.len() - 1;
    let errors = &mut Vec::new();
    assert_eq!(reader.take(&mut bytes[..last], errors), Ok(Taken { data_bytes: 0, ended: None }));
    for piece in [last..last + 1, 0..0, 0..0] {
        assert_eq!(reader.take(&mut bytes[piece], errors), Ok(Taken { data_bytes: 0, ended: Some(DONE) }));
    }
    for _ in 0..2 {
        assert_eq!(reader.take(&mut [1], errors), Err(BadRecord::AfterEnd));
    }
}

#[test]
fn refusals_of_the_application() {
    for status in 1..=255 {
        let bytes = record(kind::END_REQUEST, ID, &[0, 0, 0, 7, status, 0, 0, 0], 0);
        assert_eq!(read(&bytes, []), Ok((Vec::new(), Vec::new(), Some(RequestEnd::Refused(status)))));
    }
}

#[test]
fn errors_are_kept_up_to_a_bound() {
    let piece = record(kind::STDERR, ID, &[b'e'; 3000], 0);
    let (mut reader, mut errors) = (ResponseReader::default(), Vec::new());
    for kept in [3000, APPLICATION_ERRORS_BYTES_MAX, APPLICATION_ERRORS_BYTES_MAX] {
        reader.take(&mut piece.clone(), &mut errors).unwrap();
        assert_eq!(errors.len(), kept);
    }
    let mut more = vec![b'm'; APPLICATION_ERRORS_BYTES_MAX + 1];
    reader.take(&mut piece.clone(), &mut more).unwrap();
    assert_eq!(more.len(), APPLICATION_ERRORS_BYTES_MAX + 1);
}

#[test]
fn bad_records() {
    let data = record(kind::STDOUT, ID, b"x", 0);
    let no_data = record(kind::STDOUT, ID, b"", 0);
    let end = record(kind::END_REQUEST, ID, &END, 1);
    let version = |version| [&[version], &data[1..]].concat();
    let cases = [
        (version(0), BadRecord::Version),
        (version(2), BadRecord::Version),
        (b"HTTP/1.1 200 OK\r\n".to_vec(), BadRecord::Version),
        (record(kind::STDOUT, 2, b"x", 0), BadRecord::OtherRequest),
        (record(kind::STDOUT, 0, b"x", 0), BadRecord::OtherRequest),
        (record(kind::STDERR, 0x101, b"x", 0), BadRecord::OtherRequest),
        (record(kind::END_REQUEST, 0, &END, 0), BadRecord::OtherRequest),
        (record(kind::UNKNOWN_TYPE, ID, &[0; 8], 0), BadRecord::OtherRequest),
        (record(kind::GET_VALUES, 0, b"", 0), BadRecord::Type),
        (record(kind::BEGIN_REQUEST, ID, &[0; 8], 0), BadRecord::Type),
        (record(kind::STDIN, ID, b"x", 0), BadRecord::Type),
        (record(0, ID, b"", 0), BadRecord::Type),
        (record(12, 0, b"", 0), BadRecord::Type),
        ([&no_data[..], &data].concat(), BadRecord::DataAfterEnd),
        (record(kind::END_REQUEST, ID, &END[..7], 1), BadRecord::ShortEnd),
        (record(kind::END_REQUEST, ID, b"", 0), BadRecord::ShortEnd),
        ([&end[..], b"\x01"].concat(), BadRecord::AfterEnd),
        ([&end[..], &end].concat(), BadRecord::AfterEnd),
    ];
    for (bytes, bad) in cases {
        let bytes = [&data[..], &bytes].concat();
        assert_eq!(read_all_ways(&bytes), Err(bad), "{}", bytes.escape_ascii());
        assert!(bad.reason().starts_with("The application sent ") && !bad.reason().ends_with('.'));
    }
}

/// A record that an application can send: mostly short, sometimes as long as possible.
fn sent() -> impl Strategy<Value = Record> {
    let content =
        prop_oneof![8 => vec(any::<u8>(), 0..40), 1 => any::<u8>().prop_map(|byte| vec![byte; 65_535])];
    let kind = select(vec![kind::STDOUT, kind::STDOUT, kind::STDERR, kind::UNKNOWN_TYPE]);
    (kind, content, any::<u8>()).prop_map(|(kind, mut content, padding)| {
        // An empty one would end the data.
        if kind == kind::STDOUT && content.is_empty() {
            content.push(b'x');
        }
        (kind, if kind == kind::UNKNOWN_TYPE { 0 } else { ID }, content, padding)
    })
}

proptest! {
    #[test]
    fn data_does_not_depend_on_the_cuts(
        records in vec(sent(), 0..20),
        is_ended in any::<bool>(),
        cuts in vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let mut bytes = bytes_of(&records);
        if is_ended {
            bytes.extend(record(kind::END_REQUEST, ID, &END, 3));
        }
        let of = |wanted: u8| -> Vec<u8> {
            let these = records.iter().filter(|(kind, ..)| *kind == wanted);
            these.flat_map(|(_, _, content, _)| content.clone()).collect()
        };
        let mut errors = of(kind::STDERR);
        errors.truncate(APPLICATION_ERRORS_BYTES_MAX);
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        ends.sort_unstable();
        let expected = Ok((of(kind::STDOUT), errors, is_ended.then_some(DONE)));
        prop_assert!(read(&bytes, ends) == expected);
    }

    #[test]
    fn garbage_has_one_result(
        records in vec((0u8..13, 0u16..3, vec(any::<u8>(), 0..12), 0u8..4), 0..4),
        changed in vec((any::<prop::sample::Index>(), 0u8..13), 0..3),
    ) {
        let mut bytes = bytes_of(&records);
        for (at, byte) in changed {
            let at = at.index(bytes.len() + 1);
            bytes.get_mut(at).into_iter().for_each(|place| *place = byte);
        }
        let _ = read_all_ways(&bytes);
    }
}
