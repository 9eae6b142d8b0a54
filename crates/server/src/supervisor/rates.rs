//! The file of buckets in which all workers count the requests of clients, for rules with a rate. It outlives configurations, so that
//! a reload gives no client a new allowance.

use std::io;
use std::sync::Arc;

use flash_prompt::buckets::{BUCKETS_FILE_BYTES, new_key};
use flash_waiting::store_file;

use super::outbox::Shared;

/// Creates the file. All of it is in memory, so that no access of a worker can fail.
pub(super) fn new_buckets() -> io::Result<Shared> {
    let file = store_file::create(c"flash-rates", BUCKETS_FILE_BYTES)?;
    store_file::write(&file, 0, &vec![0; BUCKETS_FILE_BYTES as usize])?;
    store_file::write(&file, 0, &new_key())?;
    Ok(Arc::new(file))
}
