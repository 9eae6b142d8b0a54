//! Messages between the keeper of the store, the workers, the fillers and the watcher.

use flash_worker::store_protocol::{
    Answer, FromWatcher, FromWorker, Request, STORE_MESSAGE_BYTES_MAX, ToWorker,
};

use crate::messages::{again, message};

/// Checks `input`: a byte that selects the kind of message, and a message.
pub fn store(input: &[u8]) {
    let Some((first, bytes)) = input.split_first() else { return };
    let kinds =
        [again::<Request>, again::<Answer>, again::<FromWorker>, again::<ToWorker>, again::<FromWatcher>];
    let again = kinds[usize::from(*first) % kinds.len()];
    message(&bytes[..bytes.len().min(STORE_MESSAGE_BYTES_MAX)], again);
}
