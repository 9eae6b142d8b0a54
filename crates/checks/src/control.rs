//! Messages between the supervisor and the other processes: a message that decodes encodes to the same bytes,
//! within the bounds.

use std::fs::File;
use std::os::fd::OwnedFd;

use crate::messages::{notice_again, order_again};

/// The longest notice: the counters or stalls of a worker.
const NOTICE_BYTES_MAX: usize = 1 + 8 + 60 * 1024;

/// Checks `input`, a message in either direction.
pub fn control(input: &[u8]) {
    let descriptors = |count| -> Vec<OwnedFd> {
        (0..count).map(|_| File::open("/dev/null").expect("/dev/null opens").into()).collect()
    };
    if let Some((bytes, needed)) = order_again(input, descriptors(1)) {
        assert_eq!(bytes.first(), input.first(), "another order");
        assert_eq!(order_again(&bytes, descriptors(needed)), Some((bytes.clone(), needed)));
        for length in 0..bytes.len() {
            assert_eq!(order_again(&bytes[..length], descriptors(1)), None, "cut to {length}");
        }
        for fewer in 0..needed {
            assert_eq!(order_again(&bytes, descriptors(fewer)), None, "decoded without its descriptor");
        }
    }
    if let Some(bytes) = notice_again(input) {
        assert_eq!(bytes.first(), input.first(), "another notice");
        assert!(bytes.len() <= NOTICE_BYTES_MAX);
        // If a report is not valid UTF-8 or too long, only a part of it stays the same.
        if std::str::from_utf8(&bytes[1..]).is_ok() {
            assert_eq!(notice_again(&bytes).as_ref(), Some(&bytes));
        }
    }
}
