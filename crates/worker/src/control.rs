//! The messages between the supervisor and the other roles, over the channel that each role has as its
//! standard input. Called by both ends.

use std::convert::Infallible;
use std::fmt;
use std::io::{self, IoSlice};

use flash_engine::UpstreamId;
use flash_prompt::channel;
use flash_prompt::{AsFd, BorrowedFd, OwnedFd};
use serde::{Deserialize, Serialize};

use crate::codec::{decode, encode, send};

/// Buffer size of a control channel, in bytes.
pub const CHANNEL_BYTES: usize = 64 * 1024;
/// Longest order in bytes: a tag, the longest number, and a boolean.
const ORDER_BYTES_MAX: usize = 1 + 10 + 1;
/// Longest text of a report in bytes; the rest is cut.
const REPORT_BYTES_MAX: usize = 4 * 1024;
/// Longest text of counters or stalls in bytes: enough for every bucket of a worker's histograms, and for all
/// of its stalls.
pub const STATS_BYTES_MAX: usize = 60 * 1024;
/// The number of the counters that a worker reports at its end, which no order has asked for.
pub const LAST_QUESTION: u64 = 0;
/// Longest notice: its tag, a number, and a text with its length.
const NOTICE_BYTES_MAX: usize = 1 + 10 + 3 + STATS_BYTES_MAX;

const _: () = assert!(REPORT_BYTES_MAX < STATS_BYTES_MAX && NOTICE_BYTES_MAX < CHANNEL_BYTES);

/// A message from the supervisor to another role. Supervisors that send the same descriptor to several roles
/// can use a shared `Fd`.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order<Fd = OwnedFd> {
    /// The settings, as TOML in a memory file. Always the first order.
    Settings(Fd),
    /// A listening socket to accept from.
    Listener(Fd),
    /// A listening socket to accept encrypted connections from.
    TlsListener(Fd),
    /// For a worker: the certificates and keys of the sites, in a memory file.
    Certificates(Fd),
    /// For a worker: the secret of session tickets, in a memory file.
    Tickets(Fd),
    /// For a worker or the gateway: the servers of routes that are reached over TLS, in a memory file.
    Trust(Fd),
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
    /// The table of the names that all workers share.
    NamesTable(Fd),
    /// For a worker: the channel to the keeper. For the keeper: the channel to a worker.
    Keeper(Fd),
    /// For the keeper: its end of the channel to a watcher, which gets the other as [`Order::Keeper`].
    Watcher(Fd),
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
    /// For a worker: the buckets in which all workers count requests and bytes, for rules with a rate or a bandwidth.
    Buckets(Fd),
    /// For a worker: its place among those that share counts of requests, and the file of these.
    Counts(u64, Fd),
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
    /// Answer, to show that the event loop turns.
    Ping,
    /// For a watcher: a queue of the changes on the file systems of all roots (fanotify(7)). Without it, it uses inotify(7).
    Fanotify(Fd),
}

/// A message from a worker or a log writer to the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    Stats(u64, String),
    /// The last stalls as JSON ([`Stalls`](crate::stats::Stalls)), with the number of the order.
    Stalls(u64, String),
    /// The answer to a ping.
    Pong,
    /// For a log writer: its file has reached a limit, and another one must begin.
    WantRotation,
}

/// The sandbox of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

impl<Fd> Order<Fd> {
    /// The same order with another descriptor.
    ///
    /// Errors: those of `fd`, if the order has a descriptor.
    fn with_descriptor<'o, G, E>(&'o self, fd: impl FnOnce(&'o Fd) -> Result<G, E>) -> Result<Order<G>, E> {
        Ok(match self {
            Order::Settings(own) => Order::Settings(fd(own)?),
            Order::Listener(own) => Order::Listener(fd(own)?),
            Order::TlsListener(own) => Order::TlsListener(fd(own)?),
            Order::Certificates(own) => Order::Certificates(fd(own)?),
            Order::Tickets(own) => Order::Tickets(fd(own)?),
            Order::Trust(own) => Order::Trust(fd(own)?),
            Order::Log(own) => Order::Log(fd(own)?),
            &Order::Root { site, is_local, ref folder } => {
                Order::Root { site, is_local, folder: fd(folder)? }
            }
            &Order::StoreMemory { length_bytes, ref file } => {
                Order::StoreMemory { length_bytes, file: fd(file)? }
            }
            Order::StoreTable(own) => Order::StoreTable(fd(own)?),
            Order::NamesTable(own) => Order::NamesTable(fd(own)?),
            Order::Keeper(own) => Order::Keeper(fd(own)?),
            Order::Watcher(own) => Order::Watcher(fd(own)?),
            Order::Filler(own) => Order::Filler(fd(own)?),
            Order::Gateway(own) => Order::Gateway(fd(own)?),
            Order::Program(upstream, own) => Order::Program(*upstream, fd(own)?),
            Order::Spool(slots, own) => Order::Spool(*slots, fd(own)?),
            Order::Settled => Order::Settled,
            Order::BytesMax(bytes) => Order::BytesMax(*bytes),
            Order::Uplink(place, own) => Order::Uplink(*place, fd(own)?),
            Order::Buckets(own) => Order::Buckets(fd(own)?),
            Order::Counts(place, own) => Order::Counts(*place, fd(own)?),
            Order::HotList(own) => Order::HotList(fd(own)?),
            Order::Place(number) => Order::Place(*number),
            Order::Begin => Order::Begin,
            Order::Helper(number, own) => Order::Helper(*number, fd(own)?),
            Order::NoHelper => Order::NoHelper,
            Order::Drain => Order::Drain,
            Order::Stats(question) => Order::Stats(*question),
            Order::Stalls(question) => Order::Stalls(*question),
            Order::Ping => Order::Ping,
            Order::Fanotify(own) => Order::Fanotify(fd(own)?),
        })
    }
}

/// Sends an order. Errors: any of [`channel::send`].
pub fn send_order<Fd: AsFd>(channel: impl AsFd, order: &Order<Fd>) -> io::Result<()> {
    let (bytes, descriptor) = encode_order(order);
    channel::send(channel, &[IoSlice::new(&bytes)], descriptor.as_slice())
}

/// Encodes an order: the bytes, and the descriptor that is sent with them.
pub fn encode_order<Fd: AsFd>(order: &Order<Fd>) -> (Vec<u8>, Option<BorrowedFd<'_>>) {
    let mut descriptor = None;
    let Ok(order) = order.with_descriptor(|fd| {
        descriptor = Some(fd.as_fd());
        Ok::<_, Infallible>(())
    });
    (encode(&order), descriptor)
}

/// Receives an order.
///
/// Errors: `WouldBlock` if a non-blocking channel has no message, `UnexpectedEof` if the supervisor has gone,
/// `InvalidData` if the message is not an order.
pub fn receive_order(channel: impl AsFd) -> io::Result<Order> {
    let mut bytes = [0; ORDER_BYTES_MAX];
    let mut descriptors = Vec::new();
    let length = channel::recv(channel, &mut bytes, &mut descriptors)?;
    decode_order(&bytes[..length], descriptors)
}

/// Decodes an order. Errors as in [`receive_order`].
pub fn decode_order(bytes: &[u8], mut descriptors: Vec<OwnedFd>) -> io::Result<Order> {
    let order: Order<()> = decode_or_gone(bytes, "the message is not an order")?;
    let lacks = || io::Error::new(io::ErrorKind::InvalidData, "the order lacks its descriptor");
    order.with_descriptor(|()| descriptors.pop().ok_or_else(lacks))
}

/// Sends a notice. The end of a long report is cut, and a text of figures that is too long is left out.
///
/// Errors: any of [`channel::send`].
pub fn send_notice(channel: impl AsFd, notice: &Notice) -> io::Result<()> {
    let shorter = match notice {
        Notice::Report(text) if text.len() > REPORT_BYTES_MAX => Notice::Report(cut(text).to_owned()),
        Notice::Stats(question, json) if json.len() > STATS_BYTES_MAX => {
            Notice::Stats(*question, String::new())
        }
        Notice::Stalls(question, json) if json.len() > STATS_BYTES_MAX => {
            Notice::Stalls(*question, String::new())
        }
        _ => return send(channel, notice, &[]),
    };
    send(channel, &shorter, &[])
}

/// The part of a report that is sent.
fn cut(text: &str) -> &str {
    let is_end = |at: &usize| text.is_char_boundary(*at);
    (0..=REPORT_BYTES_MAX.min(text.len())).rev().find(is_end).map_or("", |end| &text[..end])
}

/// Receives a notice; errors as in [`receive_order`].
pub fn receive_notice(channel: impl AsFd) -> io::Result<Notice> {
    let mut bytes = [0; NOTICE_BYTES_MAX];
    let length = channel::recv(channel, &mut bytes, &mut Vec::new())?;
    decode_notice(&bytes[..length])
}

/// Decodes a notice. Errors as in [`receive_notice`].
pub fn decode_notice(bytes: &[u8]) -> io::Result<Notice> {
    let notice = decode_or_gone(bytes, "the message is not a notice")?;
    match notice {
        Notice::Report(text) => Ok(Notice::Report(cut(&text).to_owned())),
        notice => Ok(notice),
    }
}

fn decode_or_gone<'b, M: Deserialize<'b>>(bytes: &'b [u8], why_not: &'static str) -> io::Result<M> {
    if bytes.is_empty() {
        let why = "the other end of the control channel has closed";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
    }
    decode(bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, why_not))
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
        send_order(&kept, &Order::<OwnedFd>::Drain).expect("sent");
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
            Notice::WantRotation,
            Notice::EndHelper(3),
            Notice::Report("text".into()),
            Notice::Stats(u64::MAX, "x".repeat(STATS_BYTES_MAX)),
            Notice::Stalls(u64::MAX, "x".repeat(STATS_BYTES_MAX)),
        ] {
            send_notice(&a, &notice).expect("sent");
            assert_eq!(receive_notice(&b).expect("a notice"), notice);
        }
        send_notice(&a, &Notice::Report("x".repeat(100_000))).expect("sent");
        assert_eq!(receive_notice(&b).expect("a notice"), Notice::Report("x".repeat(REPORT_BYTES_MAX)));
        let umlauts = format!("x{}", "ä".repeat(REPORT_BYTES_MAX));
        send(&a, &Notice::Report(umlauts), &[]).expect("sent");
        let Notice::Report(kept) = receive_notice(&b).expect("a notice") else { panic!("another notice") };
        assert_eq!((kept.len(), kept.ends_with('ä')), (REPORT_BYTES_MAX - 1, true));
        send_notice(&a, &Notice::Stats(7, "x".repeat(STATS_BYTES_MAX + 1))).expect("sent");
        assert_eq!(receive_notice(&b).expect("a notice"), Notice::Stats(7, String::new()));
    }

    #[test]
    fn short_and_overlong_messages_are_invalid() {
        let folder = || std::fs::File::open("/").expect("a directory").into();
        let root = Order::Root::<OwnedFd> { site: usize::MAX, is_local: true, folder: folder() };
        let (bytes, descriptor) = encode_order(&root);
        assert!(descriptor.is_some() && bytes.len() == ORDER_BYTES_MAX);
        assert!(decode_order(&bytes, vec![folder()]).is_ok());
        let longer = [bytes.as_slice(), &[0]].concat();
        for wrong in [&bytes[..1], &bytes[..8], &longer] {
            let why = decode_order(wrong, vec![folder()]).expect_err("no order");
            assert_eq!(why.kind(), io::ErrorKind::InvalidData);
        }
        assert_eq!(
            decode_order(&bytes, Vec::new()).expect_err("no folder").kind(),
            io::ErrorKind::InvalidData
        );
        let bytes = encode(&Notice::EndHelper(3));
        for wrong in [&bytes[..1], &[bytes.as_slice(), &[0]].concat()] {
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
