//! One request as it was measured, and how it is kept.
//!
//! The load fills records, [`crate::measure`] computes from them, `file` keeps them in a documented
//! binary form that anyone can read. Pure, except `file`.

pub mod file;

/// Nanoseconds that mean "did not happen".
pub const NEVER_NS: u64 = u64::MAX;

/// One request. Times are nanoseconds since the start of its phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it was meant to start; latency counts from here. In a closed loop, when its client was
    /// ready for it.
    pub intended_ns: u64,
    /// When the generator took it up: later than intended when the generator was late.
    pub begun_ns: u64,
    /// When it had a connection: a new one was established, or a free one was found.
    pub connected_ns: u64,
    /// When the first byte of the answer came; [`NEVER_NS`] if none did.
    pub first_byte_ns: u64,
    /// When the last byte came, or when the request failed or was given up.
    pub last_byte_ns: u64,
    pub body_bytes: u64,
    /// Its number in the catalogue.
    pub path_id: u32,
    /// The status code; 0 if no head came.
    pub status: u16,
    pub outcome: Outcome,
    /// [`REUSED`], [`QUEUED`].
    pub flags: u8,
    /// How often it was sent: 1, and one more for each retry.
    pub tries: u8,
    pub thread: u8,
}

/// Flag: it went over a connection that had carried another request before.
pub const REUSED: u8 = 1;
/// Flag: when it arrived, every connection was in use and none could be opened.
pub const QUEUED: u8 = 2;

/// How many connections the generator had open at a moment of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenConnections {
    /// Established, also without a request on them.
    pub established: u32,
    /// Not established yet: the server has not accepted the SYN, or its answer was lost.
    pub connecting: u32,
}

/// A TLS handshake, from its first byte sent until the client could send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    pub took_ns: u64,
    /// Whether it resumed a session; otherwise it was a full one.
    pub is_resumed: bool,
}

/// From one look at the open connections to the next, nanoseconds; the first is at the start of the phase.
pub const OPEN_STEP_NS: u64 = 100_000_000;

/// The outcome of a request. Files contain the numbers: never change one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// A proper answer: status 200, the right length, and the right content where that is checked. To a request other than a
    /// plain GET, any success.
    Answered = 0,
    /// The server did not take the connection.
    Refused = 1,
    /// This machine's limits did not allow the connection.
    LocalLimit = 2,
    Reset = 3,
    ClosedEarly = 4,
    /// The bytes were no HTTP response, or more than one.
    Garbage = 5,
    /// The body's length is not the one that the catalogue has.
    WrongLength = 6,
    /// A byte of the body is not the file's.
    WrongContent = 7,
    /// A whole response with a status that is not proper.
    Status = 8,
    /// The user gave up: no whole answer within the time it waits, at the last try.
    Aborted = 9,
    /// No whole answer until the generator stopped waiting, at the end of the run.
    Unanswered = 10,
    /// No TLS session came about, or none with the version of HTTP that was asked for.
    NoHandshake = 11,
}

impl Outcome {
    /// Every outcome, by its number, with its name in tables and in JSON.
    pub const ALL: [(Self, &str); 12] = [
        (Self::Answered, "answered"),
        (Self::Refused, "refused"),
        (Self::LocalLimit, "local limit"),
        (Self::Reset, "reset"),
        (Self::ClosedEarly, "closed early"),
        (Self::Garbage, "garbage"),
        (Self::WrongLength, "wrong length"),
        (Self::WrongContent, "wrong content"),
        (Self::Status, "status"),
        (Self::Aborted, "aborted"),
        (Self::Unanswered, "unanswered"),
        (Self::NoHandshake, "no handshake"),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

impl Record {
    pub fn latency_ns(&self) -> u64 {
        self.last_byte_ns.saturating_sub(self.intended_ns)
    }

    /// Whether its latency counts: it was answered properly, or it had waited so long in vain that
    /// leaving it out would flatter the server (its latency is then less than it would have been).
    pub fn counts(&self) -> bool {
        matches!(self.outcome, Outcome::Answered | Outcome::Aborted | Outcome::Unanswered)
    }
}
