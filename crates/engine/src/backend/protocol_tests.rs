//! The messages of the protocol, against the vectors that the C client is tested with too.

use super::*;

const VECTORS: &str = include_str!("../../../../modules/client/vectors.txt");

/// A line of the vectors.
struct Vector<'v> {
    message: &'v str,
    descriptors: usize,
    bytes: Vec<u8>,
    fields: &'v str,
}

fn vectors() -> impl Iterator<Item = Vector<'static>> {
    VECTORS.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (message, descriptors, hexadecimal) = (word(), word().parse().expect("a number"), word());
        let digits = if hexadecimal == "-" { "" } else { hexadecimal };
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits");
        let bytes = (0..digits.len()).step_by(2).map(byte).collect();
        Vector { message, descriptors, bytes, fields: word() }
    })
}

impl<'v> Vector<'v> {
    fn text(&self, field: &str) -> &'v str {
        let (_, from) = self.fields.split_once(&format!("{field}=")).expect("the field");
        if matches!(field, "name" | "path") { from } else { from.split(' ').next().expect("a word") }
    }

    fn number<N: std::str::FromStr>(&self, field: &str) -> N {
        self.text(field).parse().unwrap_or_else(|_| panic!("{field} of {}", self.fields))
    }

    fn request(&self) -> Request<'v> {
        match self.message {
            "HELLO" => Request::Hello {
                waiters_max: self.number("waiters_max"),
                group: self.number("group"),
                name: self.text("name").as_bytes(),
            },
            "WARM_NAME" => Request::WarmName {
                id: self.number("id"),
                deadline_ms: self.number("deadline_ms"),
                path: self.text("path").as_bytes(),
            },
            "WARM_RANGE" => Request::WarmRange {
                id: self.number("id"),
                deadline_ms: self.number("deadline_ms"),
                range: Range {
                    offset: self.number("offset"),
                    length_bytes: self.number("length"),
                    remaining_bytes: self.number("remaining"),
                },
            },
            "CLOSE" => Request::Close,
            "CANCEL" => Request::Cancel { id: self.number("id") },
            other => panic!("unknown message {other}"),
        }
    }

    fn reply(&self) -> Option<Reply> {
        Some(match self.message {
            "HELLO_REPLY" => match self.number::<u32>("status") {
                0 => Reply::Hello(Status::Welcome),
                1 => Reply::Hello(Status::OtherVersion),
                other => panic!("no vector has the status {other}"),
            },
            "READY" => Reply::Ready { id: self.number("id") },
            "ERRNO" => Reply::Errno { id: self.number("id"), number: self.number("errno") },
            "BUSY" => Reply::Busy { id: self.number("id"), retry_after_ms: self.number("retry_after_ms") },
            _ => return None,
        })
    }
}

#[test]
fn the_vectors_have_one_meaning() {
    let mut seen = 0;
    for vector in vectors() {
        let Vector { message, descriptors, bytes, .. } = &vector;
        if *message == "INVALID" {
            assert_eq!(decode(bytes, *descriptors), Err(Malformed), "{bytes:x?}");
        } else if let Some(reply) = vector.reply() {
            let (encoded, length) = encode(reply);
            assert_eq!(&encoded[..length], bytes, "{reply:?}");
        } else {
            assert_eq!(decode(bytes, *descriptors), Ok(vector.request()));
            assert_eq!(decode(bytes, descriptors + 1), Err(Malformed), "one descriptor more: {message}");
            assert_eq!(decode(bytes, 1 - descriptors), Err(Malformed), "a wrong number: {message}");
        }
        seen += 1;
    }
    assert!(seen > 20, "only {seen} vectors");
}

#[test]
fn a_cut_or_longer_message_is_malformed_or_another() {
    for vector in vectors().filter(|vector| vector.reply().is_none() && vector.message != "INVALID") {
        let whole = decode(&vector.bytes, vector.descriptors);
        for length in 0..vector.bytes.len() {
            assert_ne!(decode(&vector.bytes[..length], vector.descriptors), whole, "{length} bytes");
        }
        let longer = [&vector.bytes[..], &[0]].concat();
        assert_eq!(decode(&longer, vector.descriptors), Err(Malformed), "{}", vector.message);
    }
}

#[test]
fn the_longest_path_fits_and_a_longer_one_does_not() {
    let mut bytes = [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].to_vec();
    bytes.resize(MESSAGE_BYTES_MAX, b'/');
    assert!(matches!(decode(&bytes, 0), Ok(Request::WarmName { path, .. }) if path.len() == PATH_BYTES_MAX));
    bytes.push(b'/');
    assert_eq!(decode(&bytes, 0), Err(Malformed));
}

#[test]
fn another_version_is_seen_before_its_other_fields() {
    for rest in [&[][..], &[1; 20], b"a later version's fields"] {
        let bytes = [&[1, 9, 9, 9, 7, 7, 7, 7, 2, 0, 0, 0], rest].concat();
        for descriptors in 0..3 {
            assert_eq!(decode(&bytes, descriptors), Ok(Request::OtherVersion));
        }
    }
}
