//! Messages between the supervisor and the other processes: what decodes says the same when it is
//! encoded, and is encoded within the bounds.

use std::fs::File;
use std::os::fd::OwnedFd;

use crate::messages::{notice_again, order_again};

/// The longest notice: what a worker has counted or kept.
const NOTICE_BYTES_MAX: usize = 1 + 8 + 60 * 1024;

/// `input` is a message in either direction.
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
            assert_eq!(order_again(&bytes, descriptors(fewer)), None, "without its descriptor");
        }
    }
    if let Some(bytes) = notice_again(input) {
        assert_eq!(bytes.first(), input.first(), "another notice");
        assert!(bytes.len() <= NOTICE_BYTES_MAX);
        // Of a report that is no text, or too long, only a part may be the same.
        if std::str::from_utf8(&bytes[1..]).is_ok() {
            assert_eq!(notice_again(&bytes).as_ref(), Some(&bytes));
        }
    }
}
