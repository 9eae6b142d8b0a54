//! The messages between the supervisor and the other roles, over the channel that each role has as its
//! standard input. Called by both ends.

use std::fmt;
use std::io::{self, IoSlice};

use flash_engine::UpstreamId;
use flash_prompt::channel;
use flash_prompt::{AsFd, BorrowedFd, OwnedFd};

/// Buffer size of a control channel, in bytes.
pub const CHANNEL_BYTES: usize = 64 * 1024;
/// The length of every order.
const ORDER_BYTES: usize = 9;
/// Longest text of a report in bytes; the rest is cut.
const REPORT_BYTES_MAX: usize = 4 * 1024;
/// Longest text of counters or stalls in bytes: enough for every bucket of a worker's histograms, and for all
/// of its stalls.
pub const STATS_BYTES_MAX: usize = 60 * 1024;
/// The number of the counters that a worker reports at its end, which no order has asked for.
pub const LAST_QUESTION: u64 = 0;
/// Longest notice: its tag, a number, and a text.
const NOTICE_BYTES_MAX: usize = 1 + 8 + STATS_BYTES_MAX;

const _: () = assert!(REPORT_BYTES_MAX < STATS_BYTES_MAX && NOTICE_BYTES_MAX < CHANNEL_BYTES);

/// A message from the supervisor to another role. Supervisors that send the same descriptor to several roles
/// can use a shared `Fd`.
#[derive(Debug)]
pub enum Order<Fd = OwnedFd> {
    /// The settings, as TOML in a memory file. Always the first order.
    Settings(Fd),
    /// A listening socket to accept from.
    Listener(Fd),
    /// For a worker: where to write access-log lines. For a log writer: where to read them.
    Log(Fd),
    /// The root of a site.
    Root {
        /// The index of the site.
        site: usize,
        /// Whether its file system is local, so that look-ups there never wait for another process or host.
        is_local: bool,
        /// The directory, usable for look-ups only.
        folder: Fd,
    },
    /// The memory file of the store.
    StoreMemory {
        /// Its length in bytes.
        length_bytes: u64,
        /// The memory file: read-only for workers, writable for other roles.
        file: Fd,
    },
    /// The table of the store.
    StoreTable(Fd),
    /// For a worker: the channel to the keeper. For the keeper: the channel to a worker.
    Keeper(Fd),
    /// For a process that fills the store: a channel to the keeper. For the keeper: its end of such a
    /// channel.
    Filler(Fd),
    /// For a worker: the channel to the gateway. For the gateway: the channel to a worker.
    Gateway(Fd),
    /// For a process of the program of a route: the socket on which it listens. For the gateway: the place of that socket.
    Program(UpstreamId, Fd),
    /// For a worker: the file for request bodies, and how many slots it may have.
    Spool(u32, Fd),
    /// For the keeper: every process that filled the store for an earlier keeper has ended.
    Settled,
    /// For the keeper: the most bytes of memory that can be in use.
    BytesMax(u64),
    /// For a worker: its place among those that share the uplink, and the file in which they announce its use.
    Uplink(u64, Fd),
    /// For a worker: the list of hot files to load. For the keeper: the file in which to save the list.
    HotList(Fd),
    /// For a worker: its number among the workers.
    Place(u64),
    /// Setup is complete: begin to work.
    Begin,
    /// For a worker: a helper, by number.
    Helper(u64, Fd),
    /// For a worker: the helper that it wanted could not be started.
    NoHelper,
    /// Finish requests (or, for a log writer, the lines of the present workers) and end.
    Drain,
    /// For a worker: report the counters, with this number.
    Stats(u64),
    /// For a worker: report the last stalls, with this number.
    Stalls(u64),
    /// For a keeper or a gateway: answer, to show that its event loop turns.
    Ping,
}

/// A message from a worker or a log writer to the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The role has begun, under these restrictions.
    Ready(InForce),
    /// A worker wants another helper.
    WantHelper,
    /// A helper has passed its deadline and was given up.
    EndHelper(u64),
    /// A message for the operator.
    Report(String),
    /// The counters as JSON ([`Counters`](crate::stats::Counters)), with the number of the order.
    Stats(u64, Vec<u8>),
    /// The last stalls as JSON ([`Stalls`](crate::stats::Stalls)), with the number of the order.
    Stalls(u64, Vec<u8>),
    /// The answer to a ping.
    Pong,
}

/// The sandbox of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InForce {
    /// The version of Landlock, if it is active.
    pub landlock: Option<u8>,
    /// Whether a seccomp filter is active.
    pub seccomp: bool,
}

impl fmt::Display for InForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.landlock {
            Some(version) => write!(f, "Landlock {version}")?,
            None => f.write_str("no Landlock")?,
        }
        f.write_str(if self.seccomp { ", seccomp" } else { ", no seccomp" })
    }
}

mod tag {
    pub(super) const SETTINGS: u8 = 1;
    pub(super) const LISTENER: u8 = 2;
    pub(super) const LOG: u8 = 3;
    pub(super) const BEGIN: u8 = 4;
    pub(super) const HELPER: u8 = 5;
    pub(super) const NO_HELPER: u8 = 6;
    pub(super) const DRAIN: u8 = 7;
    pub(super) const LOCAL_ROOT: u8 = 9;
    pub(super) const OTHER_ROOT: u8 = 10;
    pub(super) const STATS: u8 = 11;
    pub(super) const STALLS: u8 = 12;
    pub(super) const STORE_MEMORY: u8 = 13;
    pub(super) const STORE_TABLE: u8 = 14;
    pub(super) const KEEPER: u8 = 15;
    pub(super) const FILLER: u8 = 16;
    pub(super) const SETTLED: u8 = 17;
    pub(super) const BYTES_MAX: u8 = 18;
    pub(super) const HOT_LIST: u8 = 19;
    pub(super) const UPLINK: u8 = 27;
    pub(super) const GATEWAY: u8 = 28;
    pub(super) const PROGRAM: u8 = 29;
    pub(super) const SPOOL: u8 = 30;
    pub(super) const PLACE: u8 = 40;
    pub(super) const PING: u8 = 42;

    pub(super) const READY: u8 = 20;
    pub(super) const WANT_HELPER: u8 = 21;
    pub(super) const END_HELPER: u8 = 22;
    pub(super) const REPORT: u8 = 23;
    pub(super) const COUNTED: u8 = 24;
    pub(super) const STALLED: u8 = 25;
    pub(super) const PONG: u8 = 41;
}

/// Sends an order.
pub fn send_order(channel: impl AsFd, order: &Order) -> io::Result<()> {
    encode_order(order).send(channel)
}

/// An encoded order.
#[derive(Debug)]
pub struct Encoded<'fd> {
    /// A tag and a number.
    pub bytes: [u8; ORDER_BYTES],
    /// The descriptor that is sent with it.
    pub descriptor: Option<BorrowedFd<'fd>>,
}

impl Encoded<'_> {
    /// Sends it. Errors: any of [`channel::send`].
    pub fn send(&self, channel: impl AsFd) -> io::Result<()> {
        channel::send(channel, &[IoSlice::new(&self.bytes)], self.descriptor.as_slice())
    }
}

/// Encodes an order.
pub fn encode_order<Fd: AsFd>(order: &Order<Fd>) -> Encoded<'_> {
    let (tag, number, descriptor): (u8, u64, Option<BorrowedFd<'_>>) = match order {
        Order::Settings(fd) => (tag::SETTINGS, 0, Some(fd.as_fd())),
        Order::Listener(fd) => (tag::LISTENER, 0, Some(fd.as_fd())),
        Order::Log(fd) => (tag::LOG, 0, Some(fd.as_fd())),
        Order::Root { site, is_local: true, folder } => (tag::LOCAL_ROOT, *site as u64, Some(folder.as_fd())),
        Order::Root { site, folder, .. } => (tag::OTHER_ROOT, *site as u64, Some(folder.as_fd())),
        Order::StoreMemory { length_bytes, file } => (tag::STORE_MEMORY, *length_bytes, Some(file.as_fd())),
        Order::StoreTable(fd) => (tag::STORE_TABLE, 0, Some(fd.as_fd())),
        Order::Keeper(fd) => (tag::KEEPER, 0, Some(fd.as_fd())),
        Order::Filler(fd) => (tag::FILLER, 0, Some(fd.as_fd())),
        Order::Gateway(fd) => (tag::GATEWAY, 0, Some(fd.as_fd())),
        Order::Program(upstream, fd) => (tag::PROGRAM, upstream.0.into(), Some(fd.as_fd())),
        Order::Spool(slots, fd) => (tag::SPOOL, u64::from(*slots), Some(fd.as_fd())),
        Order::Settled => (tag::SETTLED, 0, None),
        Order::BytesMax(bytes) => (tag::BYTES_MAX, *bytes, None),
        Order::Uplink(place, fd) => (tag::UPLINK, *place, Some(fd.as_fd())),
        Order::HotList(fd) => (tag::HOT_LIST, 0, Some(fd.as_fd())),
        Order::Place(number) => (tag::PLACE, *number, None),
        Order::Begin => (tag::BEGIN, 0, None),
        Order::Helper(number, fd) => (tag::HELPER, *number, Some(fd.as_fd())),
        Order::NoHelper => (tag::NO_HELPER, 0, None),
        Order::Drain => (tag::DRAIN, 0, None),
        Order::Stats(question) => (tag::STATS, *question, None),
        Order::Stalls(question) => (tag::STALLS, *question, None),
        Order::Ping => (tag::PING, 0, None),
    };
    let mut bytes = [tag; ORDER_BYTES];
    bytes[1..].copy_from_slice(&number.to_le_bytes());
    Encoded { bytes, descriptor }
}

/// Receives an order.
///
/// Errors: `WouldBlock` if a non-blocking channel has no message, `UnexpectedEof` if the supervisor has gone,
/// `InvalidData` if the message is not an order.
pub fn receive_order(channel: impl AsFd) -> io::Result<Order> {
    let mut bytes = [0; ORDER_BYTES];
    let mut descriptors = Vec::new();
    let length = channel::recv(channel, &mut bytes, &mut descriptors)?;
    decode_order(&bytes[..length], descriptors)
}

/// Decodes an order. Errors as in [`receive_order`].
pub fn decode_order(bytes: &[u8], mut descriptors: Vec<OwnedFd>) -> io::Result<Order> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the message is not an order");
    let Some((tag, rest)) = bytes.split_first() else { return Err(gone()) };
    let number = number(rest).ok_or_else(invalid)?;
    let mut descriptor = || descriptors.pop().ok_or_else(invalid);
    Ok(match *tag {
        tag::SETTINGS => Order::Settings(descriptor()?),
        tag::LISTENER => Order::Listener(descriptor()?),
        tag::LOG => Order::Log(descriptor()?),
        tag::LOCAL_ROOT | tag::OTHER_ROOT => Order::Root {
            site: usize::try_from(number).map_err(|_| invalid())?,
            is_local: *tag == tag::LOCAL_ROOT,
            folder: descriptor()?,
        },
        tag::STORE_MEMORY => Order::StoreMemory { length_bytes: number, file: descriptor()? },
        tag::STORE_TABLE => Order::StoreTable(descriptor()?),
        tag::KEEPER => Order::Keeper(descriptor()?),
        tag::FILLER => Order::Filler(descriptor()?),
        tag::GATEWAY => Order::Gateway(descriptor()?),
        tag::PROGRAM => {
            let upstream = UpstreamId(u16::try_from(number).map_err(|_| invalid())?);
            Order::Program(upstream, descriptor()?)
        }
        tag::SPOOL => Order::Spool(u32::try_from(number).map_err(|_| invalid())?, descriptor()?),
        tag::SETTLED => Order::Settled,
        tag::BYTES_MAX => Order::BytesMax(number),
        tag::UPLINK => Order::Uplink(number, descriptor()?),
        tag::HOT_LIST => Order::HotList(descriptor()?),
        tag::PLACE => Order::Place(number),
        tag::BEGIN => Order::Begin,
        tag::HELPER => Order::Helper(number, descriptor()?),
        tag::NO_HELPER => Order::NoHelper,
        tag::DRAIN => Order::Drain,
        tag::STATS => Order::Stats(number),
        tag::STALLS => Order::Stalls(number),
        tag::PING => Order::Ping,
        _ => return Err(invalid()),
    })
}

/// Sends a notice.
pub fn send_notice(channel: impl AsFd, notice: &Notice) -> io::Result<()> {
    channel::send(channel, &[IoSlice::new(&encode_notice(notice))], &[])
}

/// Encodes a notice.
pub fn encode_notice(notice: &Notice) -> Vec<u8> {
    match notice {
        Notice::Ready(in_force) => {
            vec![tag::READY, in_force.landlock.unwrap_or(0), in_force.seccomp.into()]
        }
        Notice::WantHelper => vec![tag::WANT_HELPER],
        Notice::Pong => vec![tag::PONG],
        Notice::EndHelper(helper) => [&[tag::END_HELPER], &helper.to_le_bytes()[..]].concat(),
        Notice::Report(text) => {
            [&[tag::REPORT], &text.as_bytes()[..text.len().min(REPORT_BYTES_MAX)]].concat()
        }
        Notice::Stats(question, json) => told(tag::COUNTED, *question, json),
        Notice::Stalls(question, json) => told(tag::STALLED, *question, json),
    }
}

fn told(tag: u8, question: u64, json: &[u8]) -> Vec<u8> {
    [&[tag], &question.to_le_bytes()[..], &json[..json.len().min(STATS_BYTES_MAX)]].concat()
}

/// Receives a notice; errors as in [`receive_order`].
pub fn receive_notice(channel: impl AsFd) -> io::Result<Notice> {
    let mut bytes = [0; NOTICE_BYTES_MAX];
    let length = channel::recv(channel, &mut bytes, &mut Vec::new())?;
    decode_notice(&bytes[..length])
}

/// Decodes a notice. Errors as in [`receive_notice`].
pub fn decode_notice(bytes: &[u8]) -> io::Result<Notice> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the message is not a notice");
    let Some((tag, rest)) = bytes.split_first() else { return Err(gone()) };
    Ok(match *tag {
        tag::READY => {
            let [landlock, seccomp @ (0 | 1)] = *rest else { return Err(invalid()) };
            Notice::Ready(InForce { landlock: (landlock > 0).then_some(landlock), seccomp: seccomp == 1 })
        }
        tag::WANT_HELPER => Notice::WantHelper,
        tag::PONG => Notice::Pong,
        tag::END_HELPER => Notice::EndHelper(number(rest).ok_or_else(invalid)?),
        tag::REPORT => {
            let text = &rest[..rest.len().min(REPORT_BYTES_MAX)];
            Notice::Report(String::from_utf8_lossy(text).into_owned())
        }
        tag @ (tag::COUNTED | tag::STALLED) => {
            let (question, json) = rest.split_first_chunk().ok_or_else(invalid)?;
            let (question, json) = (u64::from_le_bytes(*question), json.to_vec());
            if tag == tag::COUNTED { Notice::Stats(question, json) } else { Notice::Stalls(question, json) }
        }
        _ => return Err(invalid()),
    })
}

fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the other end of the control channel has closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_arrive_with_their_descriptors() {
        let (a, b) = channel::pair(CHANNEL_BYTES).expect("a pair");
        let (passed, kept) = channel::pair(CHANNEL_BYTES).expect("a pair");
        send_order(&a, &Order::Helper(42, passed)).expect("sent");
        let Order::Helper(42, received) = receive_order(&b).expect("an order") else {
            panic!("another order")
        };
        send_order(&kept, &Order::Drain).expect("sent");
        assert!(matches!(receive_order(&received), Ok(Order::Drain)));
    }

    #[test]
    fn notices_arrive_and_long_reports_are_cut() {
        let (a, b) = channel::pair(CHANNEL_BYTES).expect("a pair");
        let in_force = InForce { landlock: Some(7), seccomp: true };
        for notice in [
            Notice::Ready(in_force),
            Notice::WantHelper,
            Notice::Pong,
            Notice::EndHelper(3),
            Notice::Report("text".into()),
            Notice::Stats(4, vec![b'x'; STATS_BYTES_MAX]),
            Notice::Stalls(4, vec![b'x'; STATS_BYTES_MAX]),
        ] {
            send_notice(&a, &notice).expect("sent");
            assert_eq!(receive_notice(&b).expect("a notice"), notice);
        }
        send_notice(&a, &Notice::Report("x".repeat(100_000))).expect("sent");
        assert_eq!(receive_notice(&b).expect("a notice"), Notice::Report("x".repeat(REPORT_BYTES_MAX)));
    }

    #[test]
    fn short_and_overlong_messages_are_invalid() {
        let bytes = encode_order::<OwnedFd>(&Order::Drain).bytes;
        for wrong in [&bytes[..1], &bytes[..8], &[bytes.as_slice(), &[0]].concat()] {
            assert_eq!(
                decode_order(wrong, Vec::new()).expect_err("no order").kind(),
                io::ErrorKind::InvalidData
            );
        }
        let bytes = encode_notice(&Notice::EndHelper(3));
        for wrong in [&bytes[..1], &bytes[..8], &[bytes.as_slice(), &[0]].concat()] {
            assert_eq!(decode_notice(wrong).expect_err("no notice").kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn the_end_of_the_channel_is_reported() {
        let (a, b) = channel::pair(CHANNEL_BYTES).expect("a pair");
        drop(a);
        assert_eq!(receive_order(&b).expect_err("gone").kind(), io::ErrorKind::UnexpectedEof);
    }
}
