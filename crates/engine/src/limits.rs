//! Every bound of the engine that is not a setting, and how they relate.
//!
//! Each module takes its bounds from here; settings with bounds of their own are in
//! [`Rules`](crate::Rules).

/// Bytes of a request head, above which it is answered 431.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Header fields of a request, above which it is answered 431.
pub const FIELDS_MAX: usize = 100;
/// Bytes of a request target, above which it is answered 414.
pub const TARGET_BYTES_MAX: usize = 8 * 1024;
/// Bytes of a request body, framing included, that are read and discarded; a longer one is
/// answered 413.
pub const REQUEST_BODY_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes received at once, over all pipelined requests of a connection.
pub const RECEIVE_BYTES: usize = 64 * 1024;

/// Bytes of input, unfinished request heads above all, that a worker holds for all clients together; the connection that
/// goes beyond is
/// answered 503, if it asks for something, and closed.
pub const HEADS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The same for one client address (an IPv6 /64).
pub const HEADS_BYTES_PER_CLIENT_MAX: usize = 8 * 1024 * 1024;
/// Connections looked at, when there are as many as allowed, to find an idle one to close.
pub const EVICTION_LOOKS_MAX: usize = 256;

/// Bytes of one field of an access-log line, escapes included; a longer one is cut.
pub const LOG_FIELD_BYTES_MAX: usize = 6 * 1024;
/// Bytes of an access-log line: four fields, and what stands between them.
pub const LOG_LINE_BYTES_MAX: usize = 4 * LOG_FIELD_BYTES_MAX + 1024;

/// Requests that one connection may have answered in one turn of the loop.
pub const REQUESTS_PER_TURN_MAX: u32 = 16;
/// Bytes that one connection may send in one turn of the loop.
pub const SEND_BYTES_PER_TURN_MAX: usize = 128 * 1024;
/// Connections that continue in one turn because their last turn used up its bound, or because their job is done.
pub const CONTINUED_PER_TURN_MAX: usize = 256;
/// Deadlines of connections acted on in one turn, and idle connections closed in one turn of a drain.
pub const DEADLINES_PER_TURN_MAX: usize = 256;

/// Jobs given up in one turn because their deadlines have passed.
pub const OVERDUE_PER_TURN_MAX: usize = 64;

/// Heads are padded to a multiple of this where that is asked for (Flash 1999, section 5.5).
pub const HEAD_ALIGN_BYTES: usize = 32;
/// Files up to this size are kept in the content cache and sent from one buffer.
pub const SMALL_FILE_BYTES_MAX: u64 = 128 * 1024;
/// Bytes that one helper job brings into memory: a block of the file that begins at a multiple of
/// this. No read crosses from one block into the next.
pub const LOAD_BYTES: u64 = 512 * 1024;
/// Bytes read from the page cache at once, at most.
pub const READ_BYTES_MAX: usize = 128 * 1024;
/// Bytes read from the page cache at once while a client takes little.
pub const READ_BYTES_MIN: usize = 16 * 1024;
/// Bytes that a helper hands over itself in one message.
pub const HAND_OVER_BYTES_MAX: u64 = 128 * 1024;
/// Bytes handed over and not sent yet, of all connections, from which on helpers hand over
/// [`READ_BYTES_MIN`] at once.
pub const HANDED_OVER_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Blocks loaded ahead of a transfer that has met the disk.
pub const BLOCKS_AHEAD: u64 = 2;
/// Look-ups, fills or loads that an exchange may have repeated before another way is taken.
pub const TRIES_MAX: u8 = 3;

/// Jobs that wait for a helper, shared by the roots of the sites; one more is answered 503. Each
/// root may have one, also where the roots are more than this.
pub const JOBS_QUEUED_MAX: usize = 1024;
/// Those among them that the requests of one client address have made.
pub const JOBS_PER_CLIENT_MAX: usize = JOBS_QUEUED_MAX / 2;
/// A job whose clients have all closed their side is dropped if it has waited longer than this
/// when its turn comes.
pub const ABANDONED_MS: u64 = 1_000;
/// `Retry-After` of a 503, in seconds.
pub const RETRY_AFTER_S: u64 = 2;
/// Bound of the name cache, which holds what was found and what is missing.
pub const NAME_CACHE_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Weight of an entry of the name cache besides its path and its versions.
pub const NAME_ENTRY_BYTES: usize = 256;
/// Versions found again by their files where names are not kept: as many as fit the memory of names.
pub const VERSIONS_MAX: usize = NAME_CACHE_BYTES_MAX as usize / VERSION_BYTES;
/// Weight of a version of a file.
pub const VERSION_BYTES: usize = 768;
/// Names that the cache is prepared for at its start.
pub const NAMES_EXPECTED: usize = 4096;
/// Request heads known by their bytes.
pub const KNOWN_REQUESTS_MAX: usize = 4096;
/// A longer request head is always parsed.
pub const KNOWN_HEAD_BYTES_MAX: usize = 1024;
/// Files kept open for later requests.
pub const OPEN_FILES_MAX: usize = 1024;
/// Files that one name leads to: the plain one and one in each coding. This many are open besides those of
/// [`OPEN_FILES_MAX`].
pub const FILES_OF_NAME_MAX: usize = 1 + flash_http::negotiate::Coding::ALL.len();
/// A file that nobody has asked for in this time is closed.
pub const FILE_IDLE_MS: u64 = 30_000;
/// How often open files are looked at for that.
pub const FILE_SWEEP_MS: u64 = 1_000;
/// Files looked at each time.
pub const FILES_SWEPT_AT_ONCE: usize = 128;
/// Precompressed siblings that are not there are looked for no more often than this.
pub const SIBLINGS_MS: u64 = 10_000;
/// Listings in memory at once, counting those still being sent.
pub const LISTINGS_MAX: usize = 64;

/// How long a closing connection is read from, so that its last answer is not lost to a reset.
pub const LINGER_MS: u64 = 2_000;
/// Bytes discarded from a closing connection.
pub const LINGER_BYTES_MAX: usize = 256 * 1024;
/// Over how long a slow reader's rate is taken.
pub const RATE_WINDOW_MS: u64 = 10_000;
/// A file changed so shortly before it was read may change again without a new time stamp.
pub const RACY_NS: i128 = 20_000_000;

/// Resolution of timeouts.
pub const TICK_MS: u64 = 64;
/// Ticks ahead that a timer can be filed under; a later one is filed again.
pub const TICKS: usize = 1024;

const _: () = {
    assert!(TARGET_BYTES_MAX < HEAD_BYTES_MAX);
    // A whole head and what follows it fit the receive buffer.
    assert!(HEAD_BYTES_MAX <= RECEIVE_BYTES / 2);
    // A small file is filled from one block, by one read, and handed over in one message.
    assert!(SMALL_FILE_BYTES_MAX <= LOAD_BYTES);
    assert!(SMALL_FILE_BYTES_MAX as usize <= READ_BYTES_MAX);
    assert!(SMALL_FILE_BYTES_MAX <= HAND_OVER_BYTES_MAX);
    // No client fills the queue alone.
    assert!(JOBS_PER_CLIENT_MAX < JOBS_QUEUED_MAX);
    // An unused file is closed within a minute, even when as many are open as allowed.
    assert!(FILE_IDLE_MS + OPEN_FILES_MAX.div_ceil(FILES_SWEPT_AT_ONCE) as u64 * FILE_SWEEP_MS * 2 < 60_000);
    // One head always fits.
    assert!(HEAD_BYTES_MAX < HEADS_BYTES_PER_CLIENT_MAX && HEADS_BYTES_PER_CLIENT_MAX < HEADS_BYTES_MAX);
    // Reads and hand-overs divide blocks, so they never cross from one into the next.
    assert!(LOAD_BYTES.is_multiple_of(READ_BYTES_MAX as u64));
    assert!(LOAD_BYTES.is_multiple_of(HAND_OVER_BYTES_MAX));
    assert!(READ_BYTES_MIN <= READ_BYTES_MAX);
    // One turn can send at least one read.
    assert!(SEND_BYTES_PER_TURN_MAX >= READ_BYTES_MAX);
};
