//! Every bound of the engine that is not a setting, and how the bounds relate.
//!
//! All modules of the engine take their bounds from here. Settings with bounds of their own are in
//! [`Rules`](crate::Rules).

use std::ops::RangeInclusive;

/// Longest request head in bytes; a longer head is answered 431.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Maximum number of header fields in a request; more are answered 431.
pub const FIELDS_MAX: usize = 100;
/// Longest request target in bytes; a longer target is answered 414.
pub const TARGET_BYTES_MAX: usize = 8 * 1024;
/// Longest request body that is read and discarded, in bytes, framing included; a longer body is answered
/// 413.
pub const REQUEST_BODY_BYTES_MAX: u64 = 1024 * 1024;
/// Maximum number of bytes received at once from a connection, pipelined requests included.
pub const RECEIVE_BYTES: usize = 64 * 1024;

/// Maximum number of bytes of unread input (mostly unfinished request heads) that a worker holds for all
/// clients together. A connection that exceeds it gets a 503 if it has sent a request, and is closed.
pub const HEADS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The same bound for one client address (an IPv6 /64).
pub const HEADS_BYTES_PER_CLIENT_MAX: usize = 8 * 1024 * 1024;
/// When the limit of connections or a client's share of them is reached, how many connections are searched for
/// an idle one to close.
pub const EVICTION_LOOKS_MAX: usize = 256;
/// How long a new connection does not count as idle, so that those accepted together do not take each other's
/// place before any of them was read.
pub const NEWCOMER_GRACE_MS: u64 = 100;
/// Maximum number of connections accepted from one listener in one turn.
pub const ACCEPTS_PER_TURN_MAX: usize = 32;
/// The same while new connections wait too long and connections in service fill the turn: some, so that a
/// client that tries again is served in the end.
pub const ACCEPTS_IN_OVERLOAD_MAX: usize = 4;
/// Maximum number of connections refused in one turn because new connections wait too long. A refusal takes
/// time from answers.
pub const REFUSALS_PER_TURN_MAX: usize = 4;

/// Longest plaintext of a record (RFC 8446, section 5.1).
pub const RECORD_BYTES_MAX: usize = 16 * 1024;
/// Longest plaintext of a record at the start of an answer. A client can use the bytes of a record only once it has all of
/// them, and at the start, or after a pause, they arrive a few packets at a time.
pub const RECORD_BYTES_EARLY: usize = 4 * 1024;
/// Bytes of an answer that are sent in such short records.
pub const EARLY_BYTES: usize = 64 * 1024;
/// Maximum number of bytes that are encrypted before they are sent, so also the most that wait for a slow client.
pub const ENCRYPTED_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of connections of clients whose handshake is continued in one turn, after all others had theirs, and of
/// connections to servers. One step can take a millisecond, for a signature with RSA, and other requests wait meanwhile.
pub const HANDSHAKES_PER_TURN_MAX: usize = 1;
/// Maximum number of unfinished handshakes of one client address (an IPv6 /64).
pub const HANDSHAKES_PER_CLIENT_MAX: usize = 128;

/// Longest field of an access-log line in bytes, escapes included; a longer field is cut.
pub const LOG_FIELD_BYTES_MAX: usize = 6 * 1024;
/// Longest access-log line in bytes: four fields, the name of a user, and the text between them.
pub const LOG_LINE_BYTES_MAX: usize = 4 * LOG_FIELD_BYTES_MAX + 4096;

/// Maximum number of requests of one connection answered in one turn of the event loop.
pub const REQUESTS_PER_TURN_MAX: u32 = 16;
/// The same for HTTP/2, whose requests come together and whose answers leave together.
pub const H2_REQUESTS_PER_TURN_MAX: u32 = 128;
/// Maximum number of bytes that one connection sends in one turn of the event loop.
pub const SEND_BYTES_PER_TURN_MAX: usize = 128 * 1024;
/// Maximum number of connections continued in one turn: those that used up their last turn, and those whose
/// job is done.
pub const CONTINUED_PER_TURN_MAX: usize = 256;
/// Maximum number of connection deadlines handled in one turn, and of idle connections closed in one turn of
/// a drain. A client that seems too slow is sent as much as the kernel takes, which delays all other requests.
pub const DEADLINES_PER_TURN_MAX: usize = 16;

/// Maximum number of jobs given up in one turn because their deadlines have passed.
pub const OVERDUE_PER_TURN_MAX: usize = 64;

/// Heads are padded to a multiple of this if `align_heads` is on (Flash 1999, section 5.5).
pub const HEAD_ALIGN_BYTES: usize = 32;
/// Largest file that is read completely from the page cache before it is sent.
pub const SMALL_FILE_BYTES_MAX: u64 = 128 * 1024;
/// Bytes that one helper job brings into the store or the page cache: one block of the file, starting at a
/// multiple of this size. No read crosses a block boundary.
pub const LOAD_BYTES: u64 = 512 * 1024;
/// Maximum number of bytes read from the page cache at once.
pub const READ_BYTES_MAX: usize = 128 * 1024;
/// Bytes read from the page cache at once for a slow client.
pub const READ_BYTES_MIN: usize = 16 * 1024;
/// Maximum number of bytes that a helper hands over in one message.
pub const HAND_OVER_BYTES_MAX: u64 = 128 * 1024;
/// Total of bytes handed over and not sent yet, over all connections, above which helpers hand over only
/// [`READ_BYTES_MIN`] at once.
pub const HANDED_OVER_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes of the last piece that a transfer compares with the file if it has grown since.
pub const SAMPLE_BYTES_MAX: usize = 1024;
/// Blocks loaded ahead of a transfer that has waited for the disk.
pub const BLOCKS_AHEAD: u64 = 2;
/// How often an exchange repeats a look-up, fill or load before it takes another way.
pub const TRIES_MAX: u8 = 3;

/// Maximum number of jobs that wait for a helper, shared by the roots of the sites; further requests are
/// answered 503. Each root can have at least one, even if there are more roots than this.
pub const JOBS_QUEUED_MAX: usize = 1024;
/// Maximum number of queued jobs that no request waited for when they were queued, shared likewise; further ones are
/// dropped. The files that one client's requests look up at once can all be copied into the store.
pub const JOBS_AHEAD_MAX: usize = 2 * JOBS_PER_CLIENT_MAX;
/// Maximum number of queued jobs created by the requests of one client address.
pub const JOBS_PER_CLIENT_MAX: usize = JOBS_QUEUED_MAX / 2;
/// A job is dropped when its turn comes if it has waited longer than this and all its clients have closed
/// their side.
pub const ABANDONED_MS: u64 = 1_000;
/// The furthest that the remaining bytes of an answer move its job back in the queue. Only jobs that come
/// within this penalty can pass a job, so this and [`QUEUE_UNASKED_MS`] bound how long it is passed.
pub const QUEUE_PENALTY_MS_MAX: u64 = 2_000;
/// How far a job that no request waits for is moved back.
pub const QUEUE_UNASKED_MS: u64 = 2_000;
/// After this many finished jobs, all earlier ones count half in the service rate of a queue.
pub const PACE_JOBS: u64 = 64;
/// The longest time that a single gap between finished jobs counts in the service rate.
pub const PACE_GAP_MS_MAX: u64 = 2_000;
/// `Retry-After` of a 503 whose wait is unknown, in seconds.
pub const RETRY_AFTER_S: u64 = 2;
/// Largest `Retry-After`, in seconds.
pub const RETRY_AFTER_S_MAX: u64 = 120;
/// Size of the name cache of a worker with a small store: about 31,000 files.
pub const NAMES_BYTES: u64 = 32 * 1024 * 1024;
/// Size of a name cache entry without its path and its versions.
pub const NAME_ENTRY_BYTES: usize = 256;
/// Maximum number of versions in the table by file that replaces a disabled name cache: as many as fit in the
/// memory of names.
pub const VERSIONS_MAX: usize = NAMES_BYTES as usize / VERSION_BYTES;
/// Estimated size of a version of a file.
pub const VERSION_BYTES: usize = 768;
/// Maximum sets of rules whose changes of heads are kept compiled.
pub const HEAD_CHANGES_MAX: usize = 4_096;
/// A name whose changes are reported is compared with those that all workers share no more often than this.
pub const WATCHED_MS: u64 = 50;
/// The same for other names, so that a change is reported soon after a site or a name is watched.
pub const UNWATCHED_MS: u64 = 250;
/// A name in use whose changes could be reported is looked up by a helper again, at first after this pause, then after twice the
/// last one, up to the second.
pub const SECOND_LOOK_UP_MS: u64 = 1_000;
/// The longest such pause.
pub const SECOND_LOOK_UP_MS_MAX: u64 = 3_600_000;
/// The watcher reports changes of a new name after this time at the latest. Until then the name is checked every [`WATCHED_MS`].
pub const UNREPORTED_MS: u64 = 2 * SECOND_LOOK_UP_MS;
/// A listing whose changes are reported is still made again this often while it is in use.
pub const LISTING_MS: u64 = 60_000;
/// A name whose changes are reported is still looked up this often while it is in use, if the kernel answers at once.
pub const WATCHED_PROOF_MS: u64 = 60_000;
/// Maximum number of names that a worker has looked up itself and whose older findings by others it does not take over.
pub const OWN_LOOK_UPS_MAX: usize = 16 * 1024;
/// Expected number of names, for which the cache is sized at its start.
pub const NAMES_EXPECTED: usize = 4096;
/// How long a password that a helper found right counts as right.
pub const RIGHT_PASSWORD_MS: u64 = 300_000;
/// The same for a wrong one.
pub const WRONG_PASSWORD_MS: u64 = 10_000;
/// Maximum number of right passwords that are remembered, and of wrong ones.
pub const PASSWORD_RESULTS_MAX: usize = 4_096;
/// For each of these bytes of the memory of names, one content of a one-block file is kept with its head: as many as there are names.
pub const NAMES_BYTES_OF_CONTENT: u64 = 1024;
/// Shortest file that is compressed, in bytes: a shorter one leaves with its head in one packet.
pub const COMPRESSED_FROM_BYTES: u64 = 1024;
/// Longest file that is compressed, in bytes. The result must fit one block of the store.
pub const COMPRESSED_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// A block found in the page cache is requested for the store no more often than this, nor is a compressed form of a file.
pub const FILL_AGAIN_MS: u64 = 1_000;
/// The pauses between requests for a compressed form that does not come into the store double up to this.
pub const FORM_AGAIN_MS_MAX: u64 = 60_000;
/// How often one answer requests a fill in vain before it reads the file instead.
pub const FILLS_MAX: u8 = 2;
/// The part of the memory of names, beside them, that request heads known by their bytes may have.
pub const REPEATED_SHARE: u64 = 4;
/// One such head has a place for each of these bytes of the memory of names, so that few heads of the hottest names drive out one another.
pub const NAMES_BYTES_OF_REPEATED: u64 = 512;
/// Longest request head known by its bytes; a longer head is always parsed.
pub const REPEATED_HEAD_BYTES_MAX: usize = 1024;
/// Maximum number of files kept open for later requests.
pub const OPEN_FILES_MAX: usize = 1024;
/// Files that one name leads to: the plain file and one per coding. This many are open in addition to
/// [`OPEN_FILES_MAX`].
pub const FILES_OF_NAME_MAX: usize = 1 + flash_http::negotiate::Coding::ALL.len();
/// A file that no request used for this long is closed.
pub const FILE_IDLE_MS: u64 = 30_000;
/// How often open files are checked for that.
pub const FILE_SWEEP_MS: u64 = 1_000;
/// Files checked each time.
pub const FILES_SWEPT_AT_ONCE: usize = 128;
/// How long a request waits for a helper to check an entry that nothing in memory confirms, before it is answered from
/// the old entry.
pub const SHORT_WAIT_MS: u64 = 50;
/// Maximum number of requests that wait like that.
pub const SHORT_WAITS_MAX: usize = 1024;
/// After such a wait was in vain, no request waits like that for the same root for this long.
pub const WAITED_IN_VAIN_MS: u64 = 10_000;
/// Absent precompressed siblings are looked up no more often than this.
pub const SIBLINGS_MS: u64 = 10_000;
/// Maximum number of listings in memory, counting those still being sent.
pub const LISTINGS_MAX: usize = 64;

/// Longest head of an upstream's answer in bytes.
pub const ANSWER_HEAD_BYTES_MAX: usize = 32 * 1024;
/// Pieces of an upstream's answer up to this length are copied, to be sent together with what precedes them.
pub const PASSED_ON_BYTES: usize = 16 * 1024;
/// A server of an upstream that failed this many times in a row gets no requests for a while.
pub const SERVER_FAILURES_MAX: u32 = 3;
/// How long that is.
pub const SERVER_DOWN_MS: u64 = 10_000;
/// A connection to a server closes after it has been idle for this long: common servers close theirs after 60 or 75 s,
/// and a request on its way could be lost.
pub const LINK_IDLE_MS: u64 = 55_000;
/// Idle connections to servers are looked through no more often than this.
pub const LINK_LOOK_MS: u64 = 1_000;
/// A server whose connections are not kept has a process for each connection. A connection to it closes after this time even if
/// there are further requests for it, because connections of other workers wait for the same process.
pub const LINK_AGE_MAX_MS: u64 = 50;
/// Until then, such a connection waits this long for the next request.
pub const LINK_PAUSE_MS: u64 = 2;
/// How long after the deadline of a connection in the making the gateway may still report it.
pub const GATEWAY_LATE_MS: u64 = 250;
/// Failures of one server are reported no more often than this.
pub const REPORT_MS: u64 = 10_000;

/// Longest piece of an answer that a helper compresses at once: the window of deflate (RFC 1951, section 2).
pub const DEFLATE_BYTES_MAX: usize = 32 * 1024;

/// Longest piece of a body in the spool: up to this much of a request body stays in memory, and one slot of the file has
/// room for it.
pub const SPOOL_PIECE_BYTES_MAX: usize = HAND_OVER_BYTES_MAX as usize;
/// Maximum number of bytes of an answer that wait in memory for its client: a piece that the client needs soon, one that
/// is being written to the file, and one that the server sends meanwhile.
pub const SPOOL_ANSWER_MEMORY_BYTES_MAX: usize = 3 * SPOOL_PIECE_BYTES_MAX;
/// Maximum number of bytes of such bodies that a worker has in memory.
pub const SPOOL_MEMORY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The same bound for one client address.
pub const SPOOL_MEMORY_BYTES_PER_CLIENT_MAX: usize = 16 * 1024 * 1024;
/// When memory is short, shorter pieces are written to the file, but none shorter than this.
pub const SPOOL_EARLY_BYTES: usize = 8 * 1024;

/// A client gets at most one slot of the file for each of this many that it leaves free. So one client alone gets a fifth of
/// all.
pub const SPOOL_SHARE_ONE_IN: usize = 4;

/// Slots that no body has used for this long, or up to twice as long, are given back to the file system.
pub const SPOOL_IDLE_MS: u64 = 5_000;
/// Maximum number of idle slots that are looked at to find those.
pub const SPOOL_IDLE_LOOKS_MAX: usize = 1024;
/// Maximum number of slots that are given back at once: 128 MiB.
pub const SPOOL_GIVEN_BACK_MAX: usize = 1024;
/// Slots that stay in use while the file is cut off behind them, if its file system cannot have holes.
pub const SPOOL_KEPT_SLOTS: u32 = 8;

/// The lowest cutoff of a learned schedule: a smaller answer fits in one packet with its head, so there is
/// nothing left to distinguish.
pub const CUTOFF_BYTES_MIN: u64 = 1_000;
/// Cutoffs are learned after this many answers: then about ten are above the highest cutoff.
pub const CUTOFFS_LEARNED_FROM_MIN: u32 = 1_024;
/// After this many further answers the cutoffs are computed again, and all earlier answers count half.
pub const CUTOFFS_RENEWED_AFTER: u32 = 8_192;

/// The part of an uplink's rate that the engine uses, in percent. The rest is for retransmissions, and enough for a loss
/// of up to 5 %. If the queue of the uplink fills, its order is no longer that of the engine.
pub const EGRESS_RATE_PERCENT: u64 = 94;
/// The bytes of a packet on the uplink besides its payload: headers of IPv4 and of TCP with timestamps (52 bytes), and
/// header, checksum, preamble and gap of Ethernet (38 bytes).
pub const EGRESS_PACKET_OVERHEAD_BYTES: u64 = 52 + 38;
/// The payload of a packet of 1,500 bytes.
pub const EGRESS_PACKET_PAYLOAD_BYTES: u64 = 1448;
/// Packets without payload that the server sends for each connection: to accept it, to acknowledge a request, and to
/// close it.
pub const EGRESS_CONNECTION_PACKETS: u64 = 3;
/// How much the engine sends at once to an uplink that was idle, in milliseconds of its rate. A timer of the
/// loop can come about this late without leaving the uplink idle.
pub const EGRESS_BURST_MS: u64 = 4;
/// The same for slow uplinks, in bytes: a few packets.
pub const EGRESS_BURST_BYTES_MIN: u64 = 4 * (EGRESS_PACKET_PAYLOAD_BYTES + EGRESS_PACKET_OVERHEAD_BYTES);
/// No connection sends to the uplink before it has room for this many bytes: one packet.
pub const EGRESS_GRANT_BYTES_MIN: i64 = (EGRESS_PACKET_PAYLOAD_BYTES + EGRESS_PACKET_OVERHEAD_BYTES) as i64;
/// A connection that has waited for the uplink this long gets a share of it, whatever its answer has left.
pub const EGRESS_AGED_MS: u64 = 1_000;
/// One of this many grants goes to the connection that has waited longest, if that is long enough.
pub const EGRESS_AGED_ONE_IN: u32 = 8;

/// Maximum number of streams of a connection of HTTP/2 that are open at once; a further one is refused.
pub const H2_STREAMS_MAX: usize = 128;
/// How many bytes of a request body a client of HTTP/2 may send before the server has taken any of them.
pub const H2_STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// The same for all streams of a connection together, until the bytes have arrived.
pub const H2_CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// After this many framed bytes, they are sent before any more are framed. The last frame can exceed it.
pub const H2_OUT_BYTES: usize = 64 * 1024;
/// Maximum number of CONTINUATION frames of a header block. A block has at most [`HEAD_BYTES_MAX`].
pub const H2_CONTINUATIONS_MAX: usize = 32;
/// Maximum number of parameters in one SETTINGS frame.
pub const H2_SETTINGS_PARAMETERS_MAX: usize = 64;
/// How long a client may take to acknowledge the settings.
pub const H2_SETTINGS_ACK_MS: u64 = 10_000;
/// How long a client may take to notice the first GOAWAY of a drain, and to send its first request before one.
pub const H2_DRAIN_MS: u64 = 1_000;
/// Streams whose end is remembered, because frames of their clients can still be on the way.
pub const H2_CLOSED_STREAMS_MAX: usize = 2 * H2_STREAMS_MAX;
/// Priorities that are remembered for streams that have not begun.
pub const H2_EARLY_PRIORITIES_MAX: usize = 16;
/// How many frames that ask for nothing a client may send at once: PING, SETTINGS, WINDOW_UPDATE, empty DATA, priorities, and
/// frames of unknown types.
pub const H2_FRAMES_MAX: u32 = 4_096;
/// How many more it may send for each second.
pub const H2_FRAMES_PER_S: u32 = 256;
/// How many more it may send for each frame of an answer: updates of two windows, and a PING.
pub const H2_FRAMES_PER_ANSWER: u32 = 3;
/// How many streams a client may reset, or lose to an error, at once.
pub const H2_RESETS_MAX: u32 = 256;
/// How many more for each second.
pub const H2_RESETS_PER_S: u32 = 16;

/// How long a closing connection is still read, so that a reset does not destroy its last answer.
pub const LINGER_MS: u64 = 2_000;
/// Maximum number of bytes discarded from a closing connection.
pub const LINGER_BYTES_MAX: usize = 256 * 1024;
/// How long a request body may fall short of the lowest rate before its client is late: longer than the usual
/// interruptions of a mobile link.
pub const BODY_GRACE_MS: u64 = 30_000;
/// The period over which a slow reader's rate is measured.
pub const RATE_WINDOW_MS: u64 = 30_000;
/// A file changed less than this before it was read can change again without a new time stamp.
pub const RACY_NS: i128 = 20_000_000;
/// The same where times are coarse, up to the two seconds of vfat, or come from the clock of another host.
pub const RACY_COARSE_NS: i128 = 2_000_000_000 + RACY_NS;

/// Maximum number of bytes kept of the errors that a FastCGI application reports with one response; the rest is
/// dropped.
pub const APPLICATION_ERRORS_BYTES_MAX: usize = 4 * 1024;

/// How much an answer takes at once from a throttle: what is sent in this time, within these bounds in bytes. So all answers that wait
/// make progress.
pub const THROTTLE_GRANT_US: u64 = 20_000;
/// See [`THROTTLE_GRANT_US`]. The slowest throttle sends the least in [`THROTTLE_BURST_US`].
pub const THROTTLE_GRANT_BYTES: RangeInclusive<u64> = 2 * 1024..=64 * 1024;
/// How much a throttle sends at once after a pause: what is sent in this time otherwise.
pub const THROTTLE_BURST_US: u64 = 256_000;
/// Answers that get bytes from throttles in one turn.
pub const THROTTLE_GRANTS_PER_TURN_MAX: usize = 256;

/// Resolution of timeouts.
pub const TICK_MS: u64 = 64;
/// How many ticks ahead a timer can be filed; a later timer is filed again when it comes up.
pub const TICKS: usize = 1024;

const _: () = {
    assert!(TARGET_BYTES_MAX < HEAD_BYTES_MAX);
    // A whole head and the bytes after it fit in the receive buffer.
    assert!(HEAD_BYTES_MAX <= RECEIVE_BYTES / 2);
    // A small file is part of one block and fits in one read and in one message of a helper.
    assert!(SMALL_FILE_BYTES_MAX <= LOAD_BYTES);
    assert!(SMALL_FILE_BYTES_MAX as usize <= READ_BYTES_MAX);
    assert!(SMALL_FILE_BYTES_MAX <= HAND_OVER_BYTES_MAX);
    // The numbers of blocks with compressed forms are those of no block of such a file.
    assert!(COMPRESSED_BYTES_MAX / LOAD_BYTES < u32::MAX as u64 - 8);
    // No client can fill the queue alone.
    assert!(JOBS_PER_CLIENT_MAX < JOBS_QUEUED_MAX);
    // Half of the jobs in a service rate are more than one round of the usual number of helpers.
    assert!(PACE_JOBS >= 2 * 16);
    assert!(RETRY_AFTER_S <= RETRY_AFTER_S_MAX);
    // An unused file is closed within a minute, even if the limit of open files is reached.
    assert!(FILE_IDLE_MS + OPEN_FILES_MAX.div_ceil(FILES_SWEPT_AT_ONCE) as u64 * FILE_SWEEP_MS * 2 < 60_000);
    // Refusals take a small part of a turn, even if it only accepts.
    assert!(REFUSALS_PER_TURN_MAX * 8 <= ACCEPTS_PER_TURN_MAX && ACCEPTS_IN_OVERLOAD_MAX > 0);
    // A piece of a request body takes at least one receive, and one client cannot take all memory.
    assert!(2 * RECEIVE_BYTES <= SPOOL_PIECE_BYTES_MAX && SPOOL_EARLY_BYTES <= RECEIVE_BYTES);
    assert!(SPOOL_MEMORY_BYTES_PER_CLIENT_MAX < SPOOL_MEMORY_BYTES_MAX);
    // One connection cannot take all the room of its client for request bodies.
    assert!(H2_STREAMS_MAX * H2_STREAM_WINDOW_BYTES as usize <= HEADS_BYTES_PER_CLIENT_MAX);
    assert!(H2_STREAM_WINDOW_BYTES <= H2_CONNECTION_WINDOW_BYTES / 2);
    // A client always has room for one head.
    assert!(HEAD_BYTES_MAX < HEADS_BYTES_PER_CLIENT_MAX && HEADS_BYTES_PER_CLIENT_MAX < HEADS_BYTES_MAX);
    // Reads and hand-overs divide blocks evenly, so they never cross a block boundary.
    assert!(LOAD_BYTES.is_multiple_of(READ_BYTES_MAX as u64));
    assert!(LOAD_BYTES.is_multiple_of(HAND_OVER_BYTES_MAX));
    assert!(READ_BYTES_MIN <= READ_BYTES_MAX);
    // A burst is enough for a grant.
    assert!(EGRESS_BURST_BYTES_MIN as i64 >= EGRESS_GRANT_BYTES_MIN);
    assert!(RECORD_BYTES_EARLY < RECORD_BYTES_MAX && RECORD_BYTES_MAX <= ENCRYPTED_BYTES_MAX);
    // One turn can send at least one full read.
    assert!(SEND_BYTES_PER_TURN_MAX >= READ_BYTES_MAX);
};
