//! One request on its way through a generator.
//!
//! A stream makes it, a connection fills its record in, and the stream passes that on. Pure.

use crate::record::{NEVER_NS, Outcome, Record};

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

/// The bytes of requests: what they have in common is written once.
#[derive(Debug)]
pub(crate) struct Wire {
    bytes: Vec<u8>,
    prefix_bytes: usize,
    suffix: Vec<u8>,
}

impl Wire {
    /// Requests to `host` whose paths start with `base`.
    pub(crate) fn new(host: &str, base: &str) -> Self {
        let bytes = format!("GET {base}").into_bytes();
        let suffix = format!(" HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
        Self { prefix_bytes: bytes.len(), bytes, suffix }
    }

    /// A GET of what `write_path` appends, with the fields that every server wants.
    pub(crate) fn get(&mut self, write_path: impl FnOnce(&mut Vec<u8>)) -> &[u8] {
        self.bytes.truncate(self.prefix_bytes);
        write_path(&mut self.bytes);
        self.bytes.extend_from_slice(&self.suffix);
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::layout::File;
    use crate::workload::Catalogue;

    #[test]
    fn asks_for_the_paths_of_the_catalogue() {
        let catalogue = Catalogue::specweb99(200, None);
        let mut wire = Wire::new("h:1", "/set");
        for path_id in [36 * 123 + 20, 7] {
            let path = File::from_path_id(path_id).path();
            let expected = format!("GET /set/{path} HTTP/1.1\r\nHost: h:1\r\n\r\n");
            assert_eq!(wire.get(|into| catalogue.write_path(path_id, into)), expected.as_bytes());
        }
    }
}
