//! Tests of the keeper's process in a thread: this test is the supervisor, the workers and the helpers.

use std::io::{IoSlice, Read};
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flash_prompt::names::{self, FileState, NamesWriter};
use flash_prompt::table::{TableReader, file_bytes};
use flash_worker::codec::encode;
use flash_worker::control::{CHANNEL_BYTES, receive_notice, send_order};
use flash_worker::store_protocol::ToWorker;

use flash_engine::limits::LOAD_BYTES;

use super::*;
use crate::config::{Overrides, SandboxMode, Sources};

const LENGTH_BYTES: u64 = 1 << 30;

/// A keeper in a thread, and the supervisor's end of its control channel.
struct Running {
    control: OwnedFd,
    table: TableReader,
    thread: JoinHandle<io::Result<()>>,
}

impl Running {
    fn start(bytes_max: u64) -> Self {
        Self::start_with(bytes_max, None)
    }

    /// With a file for the list of hot files.
    fn start_with(bytes_max: u64, list: Option<OwnedFd>) -> Self {
        let cwd = std::env::temp_dir();
        let sources = Sources { cli: Overrides::default(), env: Vec::new(), cwd };
        let mut settings = sources.load().expect("the defaults");
        settings.sandbox = SandboxMode::Off;
        settings.cache_memory = CacheMemory::Fixed { bytes: bytes_max, asked_bytes: bytes_max };
        let memory = store_file::create(c"flash-test", LENGTH_BYTES).expect("a memory file");
        let table =
            store_file::create(c"flash-test", file_bytes(100).expect("a length")).expect("a memory file");
        TableWriter::create(&table, 100).expect("a table");
        let to_read = TableReader::map(store_file::read_only(&table).expect("opened")).expect("mapped");
        let names = store_file::create(c"flash-test", names::file_bytes(100).expect("a length"))
            .expect("a memory file");
        NamesWriter::create(&names, 100).expect("a table of names");
        let (control, theirs) = channel::pair(CHANNEL_BYTES).expect("a pair");
        let running = Self { control, table: to_read, thread: thread::spawn(move || run(theirs, &settings)) };
        running.order(&Order::StoreMemory { length_bytes: LENGTH_BYTES, file: memory });
        running.order(&Order::StoreTable(table));
        running.order(&Order::NamesTable(names));
        list.into_iter().for_each(|file| running.order(&Order::HotList(file)));
        running.order(&Order::Begin);
        assert!(matches!(receive_notice(&running.control), Ok(ToSupervisor::Ready(_))));
        running
    }

    fn order(&self, order: &Order) {
        send_order(&self.control, order).expect("sent");
    }

    fn link(&self, order: fn(OwnedFd) -> Order) -> Peer {
        let (ours, theirs) = channel::pair(16 * STORE_MESSAGE_BYTES_MAX).expect("a pair");
        self.order(&order(theirs));
        Peer(ours)
    }

    /// The next report to the operator.
    fn report(&self) -> String {
        loop {
            if let ToSupervisor::Report(text) = receive_notice(&self.control).expect("a notice") {
                return text;
            }
        }
    }

    fn end(self) {
        drop(self.control);
        let ended = self.thread.join().expect("no panic").expect_err("the supervisor is gone");
        // The second, if it left a notice unread.
        let kinds = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
        assert!(kinds.contains(&ended.kind()), "{ended}");
    }
}

/// The end of a worker's or a helper's channel.
struct Peer(OwnedFd);

impl Peer {
    fn send(&self, message: &[u8]) {
        channel::send(&self.0, &[IoSlice::new(message)], &[]).expect("sent");
    }

    fn receive(&self) -> Vec<u8> {
        let mut bytes = [0; STORE_MESSAGE_BYTES_MAX];
        let length = channel::recv(&self.0, &mut bytes, &mut Vec::new()).expect("received");
        bytes[..length].to_vec()
    }

    fn ask(&self, request: &Request) -> protocol::Answer {
        self.send(&encode(request));
        self.answer()
    }

    fn answer(&self) -> protocol::Answer {
        decode(&self.receive()).expect("an answer")
    }
}

fn key(inode: u64) -> BlockKey {
    let file = FileState { device: 1, inode, size_bytes: LOAD_BYTES, modified_ns: 4, changed_ns: 5 };
    BlockKey { file, block: 0 }
}

fn want(inode: u64) -> Request {
    Request::Want(key(inode), LOAD_BYTES as u32)
}

#[test]
fn a_bad_message_ends_only_its_senders_channel_and_frees_nothing_that_it_can_write() {
    let keeper = Running::start(LOAD_BYTES * 3 / 2);
    let [bad, good] = [keeper.link(Order::Filler), keeper.link(Order::Filler)];
    assert!(matches!(bad.ask(&want(1)), protocol::Answer::Fill(_)));
    for message in [&b"\xff"[..], &[0; STORE_MESSAGE_BYTES_MAX + 1], &encode(&Request::Filled(None))] {
        bad.send(message);
    }
    assert!(keeper.report().contains("a helper sent its keeper an invalid message"));
    assert_eq!(bad.receive(), b"", "the end");
    assert_eq!(keeper.table.find(&key(1)), None, "its later messages do not count");
    assert_eq!(
        good.ask(&want(2)),
        protocol::Answer::Refused,
        "the other one may still write to the only place"
    );
    drop(bad);
    // Its end and this request race, and requests that find no room are refused in the meantime.
    while good.ask(&want(2)) == protocol::Answer::Refused {}
    assert_eq!(good.ask(&Request::Filled(None)), protocol::Answer::There);
    assert!(keeper.table.find(&key(2)).is_some());
    let worker = keeper.link(Order::Keeper);
    worker.send(b"\xff");
    assert!(keeper.report().contains("a worker sent its keeper an invalid message"));
    for too_large in [0, LOAD_BYTES as u32 + 1] {
        let helper = keeper.link(Order::Filler);
        helper.send(&encode(&Request::Want(key(3), too_large)));
        assert!(keeper.report().contains("a helper"), "{too_large}");
    }
    keeper.end();
}

#[test]
fn a_request_that_is_given_up_gets_a_last_answer_and_frees_its_place() {
    let keeper = Running::start(4 * LOAD_BYTES);
    let [one, other] = [keeper.link(Order::Filler), keeper.link(Order::Filler)];
    assert!(matches!(one.ask(&want(1)), protocol::Answer::Fill(_)));
    assert_eq!(other.ask(&want(1)), protocol::Answer::Joined);
    assert_eq!(one.ask(&Request::GiveUp), protocol::Answer::GivenUp);
    assert_eq!(other.answer(), protocol::Answer::Refused, "the load has ended");
    assert!(matches!(other.ask(&want(1)), protocol::Answer::Fill(_)));
    assert_eq!(one.ask(&want(1)), protocol::Answer::Joined);
    assert_eq!(one.ask(&Request::GiveUp), protocol::Answer::GivenUp);
    assert_eq!(other.ask(&Request::Filled(None)), protocol::Answer::There);
    assert_eq!(one.ask(&want(1)), protocol::Answer::There, "nothing came in between");
    keeper.end();
}

#[test]
fn a_worker_learns_first_that_it_is_known() {
    let keeper = Running::start(LOAD_BYTES * 3 / 2);
    let helper = keeper.link(Order::Filler);
    assert!(matches!(helper.ask(&want(1)), protocol::Answer::Fill(_)));
    assert_eq!(helper.ask(&Request::Filled(None)), protocol::Answer::There);
    let worker = keeper.link(Order::Keeper);
    assert_eq!(decode(&worker.receive()), Some(ToWorker::Registered));
    helper.send(&encode(&want(2)));
    assert_eq!(decode(&worker.receive()), Some(ToWorker::Leaving(vec![0])));
    assert_eq!(helper.answer(), protocol::Answer::Refused, "until the worker releases it");
    worker.send(&encode(&FromWorker::Notices(vec![Notice::Released(0)])));
    while helper.ask(&want(2)) == protocol::Answer::Refused {}
    keeper.end();
}

#[test]
fn descriptors_that_come_with_messages_are_closed() {
    // Fewer descriptors on their way than an unprivileged user may have (unix(7), ETOOMANYREFS).
    const MESSAGES: usize = 12;
    let keeper = Running::start(4 * LOAD_BYTES);
    let [helper, ignored] = [keeper.link(Order::Filler), keeper.link(Order::Filler)];
    let worker = keeper.link(Order::Keeper);
    ignored.send(b"\xff");
    assert!(keeper.report().contains("invalid message"));
    // The other end notices when the last copy of a descriptor is closed.
    let (ours, theirs) = channel::pair(STORE_MESSAGE_BYTES_MAX).expect("a pair");
    channel::set_receive_timeout(&ours, Duration::from_secs(60)).expect("set");
    let release = encode(&FromWorker::Notices(vec![Notice::Released(0)]));
    for _ in 0..MESSAGES {
        let descriptors = [theirs.as_fd(); channel::DESCRIPTORS_MAX];
        for (peer, message) in
            [(&helper, &encode(&Request::Failed)[..]), (&worker, &release[..]), (&ignored, &b"\xff"[..])]
        {
            channel::send(&peer.0, &[IoSlice::new(message)], &descriptors).expect("sent");
        }
    }
    drop(theirs);
    let ended = channel::recv(&ours, &mut [0], &mut Vec::new());
    assert_eq!(ended.expect("the end, not a timeout"), 0, "every copy is closed");
    assert!(matches!(helper.ask(&want(1)), protocol::Answer::Fill(_)), "its messages count");
    keeper.end();
}

#[test]
fn the_list_has_the_most_valuable_blocks_first_and_a_report_names_what_it_lacks() {
    let mut list = tempfile::tempfile().expect("a file");
    let keeper = Running::start_with(8 * LOAD_BYTES, Some(list.try_clone().expect("another").into()));
    let helper = keeper.link(Order::Filler);
    for inode in 0..4 {
        assert!(matches!(helper.ask(&want(inode)), protocol::Answer::Fill(_)));
        assert_eq!(helper.ask(&Request::Filled(None)), protocol::Answer::There);
    }
    let worker = keeper.link(Order::Keeper);
    let slot = |inode| keeper.table.find(&key(inode)).expect("a block").0;
    let used = [1, 3, 2].map(|inode| Notice::Used(slot(inode), 10 * inode as u32));
    worker.send(&encode(&FromWorker::Notices(used.to_vec())));
    for inode in 1..4 {
        let path = format!("/{inode}").into_bytes();
        helper.send(&encode(&Request::Named { file: key(inode).file, root: b"/srv".to_vec(), path }));
    }
    keeper.order(&Order::Drain);
    assert!(keeper.report().contains("the list of hot files has 3 of the 4 blocks in the store"));
    drop(keeper.control);
    keeper.thread.join().expect("no panic").expect("it was told to end");
    let mut text = String::new();
    list.read_to_string(&mut text).expect("a text");
    assert_eq!(text, "flash hot list 1\n0\t/srv\t/3\n0\t/srv\t/2\n0\t/srv\t/1\n");
}
