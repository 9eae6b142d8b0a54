//! One request on its way through a generator, and the bytes of requests.
//!
//! A stream makes it, a connection fills its record in, and the stream passes that on. Pure.

use std::sync::Arc;

use super::Setup;
use super::h2::head::{method_block, push_field};
use crate::record::{NEVER_NS, Outcome, Record};
use crate::workload::method;

/// The client of a request in an open loop: none.
pub(crate) const NO_CLIENT: u32 = u32::MAX;

/// A request and what is known of it. Times are nanoseconds since the start of the phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) record: Record,
    /// Who asked in a closed loop, else [`NO_CLIENT`].
    pub(crate) client: u32,
    /// When the user began the present try.
    pub(crate) tried_ns: u64,
}

impl Request {
    pub(crate) fn new(path_id: u32, client: u32, intended_ns: u64, now_ns: u64, thread: u8) -> Self {
        let record = Record {
            intended_ns,
            begun_ns: now_ns,
            connected_ns: NEVER_NS,
            first_byte_ns: NEVER_NS,
            last_byte_ns: NEVER_NS,
            body_bytes: 0,
            path_id,
            status: 0,
            outcome: Outcome::Unanswered,
            flags: 0,
            tries: 1,
            thread,
        };
        Self { record, client, tried_ns: intended_ns }
    }

    /// Forgets what came of the present try.
    pub(crate) fn start_over(&mut self) {
        self.record.connected_ns = NEVER_NS;
        self.record.first_byte_ns = NEVER_NS;
        self.record.body_bytes = 0;
        self.record.status = 0;
    }
}

/// A body up to this size is sent with the head, in one call.
const BODY_WITH_HEAD_BYTES_MAX: usize = 16 * 1024;

/// The requests of one method: the bytes that they have in common.
#[derive(Debug)]
pub(crate) struct Kind {
    /// The bytes before and after the path in HTTP/1.1, a short body included.
    prefix: Vec<u8>,
    suffix: Vec<u8>,
    /// The same in HTTP/2, where the path is between them.
    pub(crate) h2_method: Vec<u8>,
    pub(crate) h2_fields: Vec<u8>,
    /// The body; in HTTP/1.1 it is behind the bytes if it is long.
    pub(crate) body: Option<Arc<[u8]>>,
    pub(crate) is_idempotent: bool,
    pub(crate) expected: Expected,
}

/// The answer that a request is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    /// It ends with its head, as the answer to HEAD does.
    pub(crate) is_head: bool,
    /// A status of 200 means that it has the whole file.
    pub(crate) is_file: bool,
    /// Any success is proper: 2xx, and 304 for a request with conditions.
    pub(crate) is_any_success: bool,
}

impl Kind {
    /// The requests of a stream: those without a method of their own, then those of each method of its catalogue.
    pub(crate) fn all(setup: &Setup) -> Vec<Self> {
        let of_paths = setup.catalogue.methods().iter().map(AsRef::as_ref);
        std::iter::once(setup.message.method())
            .chain(of_paths)
            .map(|method| Self::new(method, setup))
            .collect()
    }

    fn new(name: &str, setup: &Setup) -> Self {
        let (message, target) = (&setup.message, &setup.target);
        let body = message.body(name).filter(|body| !body.is_empty()).cloned();
        let has_content = method::has_content(name) || message.body(name).is_some();
        let length = has_content.then(|| body.as_ref().map_or(0, |body| body.len()).to_string());
        let mut suffix = format!(" HTTP/1.1\r\nHost: {}\r\n", authority(setup)).into_bytes();
        let mut h2_fields = Vec::new();
        let fields = message.fields.iter().map(|field| (field.name(), field.value()));
        for (name, value) in fields.chain(length.iter().map(|length| ("Content-Length", length.as_str()))) {
            suffix.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
            push_field(&mut h2_fields, name, value);
        }
        suffix.extend_from_slice(b"\r\n");
        if let Some(body) = body.as_ref().filter(|body| body.len() <= BODY_WITH_HEAD_BYTES_MAX) {
            suffix.extend_from_slice(body);
        }
        Self {
            prefix: format!("{name} {}", target.base).into_bytes(),
            suffix,
            h2_method: method_block(name),
            h2_fields,
            body,
            is_idempotent: method::is_idempotent(name),
            expected: Expected {
                is_head: name == "HEAD",
                is_file: name == "GET",
                is_any_success: !message.is_plain(name),
            },
        }
    }

    /// The body that is to be sent behind the bytes of HTTP/1.1.
    pub(crate) fn body_apart(&self) -> Option<&Arc<[u8]>> {
        self.body.as_ref().filter(|body| body.len() > BODY_WITH_HEAD_BYTES_MAX)
    }
}

/// The server's name in requests.
pub(crate) fn authority(setup: &Setup) -> &str {
    setup.message.host.as_deref().unwrap_or(&setup.target.host)
}

/// The bytes of requests of HTTP/1.1.
#[derive(Debug)]
pub(crate) struct Wire {
    kinds: Vec<Kind>,
    /// The number of the kind whose prefix `bytes` begins with.
    current: usize,
    bytes: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(setup: &Setup) -> Self {
        let kinds = Kind::all(setup);
        let bytes = kinds.first().map_or(Vec::new(), |kind| kind.prefix.clone());
        Self { kinds, current: 0, bytes }
    }

    pub(crate) fn kind(&self, number: usize) -> &Kind {
        &self.kinds[number]
    }

    /// A request of a kind for the path that `write_path` appends.
    pub(crate) fn request(&mut self, number: usize, write_path: impl FnOnce(&mut Vec<u8>)) -> (&[u8], &Kind) {
        let kind = &self.kinds[number];
        if number == self.current {
            self.bytes.truncate(kind.prefix.len());
        } else {
            self.bytes.clone_from(&kind.prefix);
            self.current = number;
        }
        write_path(&mut self.bytes);
        self.bytes.extend_from_slice(&kind.suffix);
        (&self.bytes, kind)
    }
}

impl Expected {
    /// The outcome of a whole answer with this status.
    pub(crate) fn judge(
        self,
        status: u16,
        length_wrong: impl FnOnce() -> bool,
        content_wrong: bool,
    ) -> Outcome {
        match status {
            200 if self.is_file && length_wrong() => Outcome::WrongLength,
            200 if content_wrong => Outcome::WrongContent,
            200 => Outcome::Answered,
            201..300 | 304 if self.is_any_success => Outcome::Answered,
            _ => Outcome::Status,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::layout::File;
    use crate::generator::message::{Message, Options};
    use crate::generator::tests::setup;
    use crate::target::Target;
    use crate::workload::Catalogue;
    use crate::workload::catalogue::{Listed, Methods};

    fn target() -> Target {
        Target::parse("http://127.0.0.1:1/set", false).unwrap()
    }

    #[test]
    fn asks_for_the_paths_of_the_catalogue() {
        let setup = setup(target());
        let mut wire = Wire::new(&setup);
        for path_id in [36 * 123 + 20, 7] {
            let path = File::from_path_id(path_id).path();
            let expected = format!("GET /set/{path} HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n");
            let (bytes, kind) = wire.request(0, |into| setup.catalogue.write_path(path_id, into));
            assert_eq!(bytes, expected.as_bytes());
            assert!(kind.expected.is_file && !kind.expected.is_any_success && kind.is_idempotent);
        }
    }

    #[test]
    fn each_method_has_its_own_head_and_only_content_has_a_body() {
        let listed = |path: &str| Listed { path: path.into(), file_bytes: None };
        let methods = Methods {
            names: ["GET", "PUT", "HEAD", "PATCH"].map(Into::into).into(),
            of_paths: vec![0, 1, 2, 3, 4],
        };
        let paths = ["/0", "/1", "/2", "/3", "/4"].map(listed).into();
        let body = Options { body: Some("text".to_owned()), ..Options::default() };
        let with = |options: &Options| Setup {
            catalogue: Arc::new(Catalogue::listed(paths).with_methods(methods)),
            message: Arc::new(Message::new(options).unwrap()),
            ..setup(target())
        };
        let setup = with(&body);
        let mut wire = Wire::new(&setup);
        let lengths = ["Content-Length: 4\r\n\r\ntext", "\r\n", "Content-Length: 4\r\n\r\ntext", "\r\n"];
        let methods = ["POST", "GET", "PUT", "HEAD"];
        for round in [[0, 1, 2, 3], [3, 1, 0, 2]] {
            for id in round {
                let number = setup.catalogue.method_number(id);
                let (bytes, kind) = wire.request(number, |into| setup.catalogue.write_path(id, into));
                let (method, end) = (methods[id as usize], lengths[id as usize]);
                let expected = format!("{method} /set/{id} HTTP/1.1\r\nHost: 127.0.0.1:1\r\n{end}");
                assert_eq!(String::from_utf8_lossy(bytes), expected);
                assert_eq!((kind.expected.is_head, kind.is_idempotent), (id == 3, id > 0));
            }
        }
        let long = "x".repeat(BODY_WITH_HEAD_BYTES_MAX + 1);
        let setup = Setup {
            message: Arc::new(Message::new(&Options { body: Some(long), ..body }).unwrap()),
            ..setup
        };
        let mut wire = Wire::new(&setup);
        let (bytes, kind) = wire.request(0, |_| ());
        assert!(bytes.ends_with(b"Content-Length: 16385\r\n\r\n") && kind.body_apart().is_some());
    }

    #[test]
    fn success_is_proper_where_no_file_is_asked_for() {
        let file = Expected { is_head: false, is_file: true, is_any_success: false };
        let other = Expected { is_head: false, is_file: false, is_any_success: true };
        let judge = |expected: Expected, status| expected.judge(status, || true, false);
        assert_eq!(
            [200, 204, 304].map(|status| judge(file, status)),
            [Outcome::WrongLength, Outcome::Status, Outcome::Status]
        );
        for (status, outcome) in [
            (200, Outcome::Answered),
            (201, Outcome::Answered),
            (304, Outcome::Answered),
            (302, Outcome::Status),
        ] {
            assert_eq!(judge(other, status), outcome, "{status}");
        }
    }
}
