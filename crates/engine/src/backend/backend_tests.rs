//! Tests of the state machine of a backend: files are numbers, helpers are in the tests' hands.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::protocol::{Range, Request, Status};
use super::*;
use crate::machine::FileKind;

const HELPERS_MAX: usize = 4;
const JOB_MS: u64 = 1_000;

/// A file of a client. It shows whether it was dropped.
type File = Arc<()>;

struct World {
    backend: Backend<File>,
    now_ms: u64,
    started: Vec<JobId>,
    abandoned: Vec<JobId>,
}

fn file_id(device: u64, inode: u64) -> FileId {
    FileId { device, inode, mount: 1 }
}

fn received(device: u64, inode: u64, kind: FileKind) -> ClientFile<File> {
    ClientFile { file: Arc::new(()), id: file_id(device, inode), kind }
}

fn hello(waiters_max: u32) -> Request<'static> {
    Request::Hello { waiters_max, group: 7, name: b"test" }
}

impl World {
    fn new() -> Self {
        Self::with(0, Vec::new())
    }

    fn with(delay_ms: u64, mounts: Vec<Mount>) -> Self {
        let own_root = Some(file_id(1, 2));
        let (job_ms, helpers_max) = (JOB_MS, HELPERS_MAX);
        let rules = BackendRules { job_ms, queue_wait_ms: 0, helpers_max, delay_ms, mounts, own_root };
        let backend = Backend::new(rules);
        Self { backend, now_ms: 0, started: Vec::new(), abandoned: Vec::new() }
    }

    /// A client that was accepted and has said nothing.
    fn ungreeted(&mut self) -> Key {
        self.backend.handle_accept(33, true).expect("room for a connection")
    }

    fn client(&mut self, waiters_max: u32) -> Key {
        let client = self.ungreeted();
        let root = received(1, 2, FileKind::Directory);
        assert_eq!(
            self.backend.handle_message(client, hello(waiters_max), Some(root)),
            ControlFlow::Continue(())
        );
        assert_eq!(self.replies(), [(client, Reply::Hello(Status::Welcome))]);
        client
    }

    fn name(&mut self, client: Key, id: u32, path: &str) -> ControlFlow<()> {
        self.name_within(client, (id, 0), path)
    }

    fn name_within(&mut self, client: Key, (id, deadline_ms): (u32, u32), path: &str) -> ControlFlow<()> {
        let request = Request::WarmName { id, deadline_ms, path: path.as_bytes() };
        self.backend.handle_message(client, request, None)
    }

    fn range(&mut self, client: Key, id: u32, (file, offset): (ClientFile<File>, u64)) -> ControlFlow<()> {
        let range = Range { offset, length_bytes: 1, remaining_bytes: 1 };
        self.backend.handle_message(client, Request::WarmRange { id, deadline_ms: 0, range }, Some(file))
    }

    /// Ends a turn: deadlines, then the start of jobs, all of which find a helper.
    fn turn(&mut self, now_ms: u64) -> Vec<(Key, Reply)> {
        self.now_ms = now_ms;
        self.backend.handle_turn(now_ms);
        let (abandoned, started) = (&mut self.abandoned, &mut self.started);
        self.backend.handle_timeouts(|job| abandoned.push(job));
        self.backend.start_jobs(|job, _, _| {
            started.push(job);
            true
        });
        self.replies()
    }

    /// The oldest started job has this outcome.
    fn done(&mut self, outcome: &Outcome<File>) -> Vec<(Key, Reply)> {
        let job = self.started.remove(0);
        self.backend.handle_job(job, outcome);
        self.replies()
    }

    fn replies(&mut self) -> Vec<(Key, Reply)> {
        std::iter::from_fn(|| self.backend.poll_reply()).collect()
    }
}

fn busy(id: u32) -> Reply {
    Reply::Busy { id, retry_after_ms: 0 }
}

fn late(id: u32) -> Reply {
    Reply::Errno { id, number: ETIMEDOUT }
}

#[test]
fn equal_requests_of_two_clients_are_one_job() {
    let mut world = World::new();
    let (a, b) = (world.client(0), world.client(0));
    for (client, id) in [(a, 1), (b, 9), (a, 2)] {
        assert_eq!(world.name(client, id, "/x"), ControlFlow::Continue(()));
    }
    assert_eq!(world.name(b, 3, "/y"), ControlFlow::Continue(()));
    assert_eq!(world.turn(0), []);
    assert_eq!(world.started.len(), 2);
    let mut replies = world.done(&Outcome::Loaded);
    replies.sort_by_key(|(_, reply)| format!("{reply:?}"));
    assert_eq!(
        replies,
        [(a, Reply::Ready { id: 1 }), (a, Reply::Ready { id: 2 }), (b, Reply::Ready { id: 9 })]
    );
    assert_eq!(world.done(&Outcome::Failed(13)), [(b, Reply::Errno { id: 3, number: 13 })]);
    let counters = world.backend.counters();
    assert_eq!((counters.joined, counters.ready, counters.errors, counters.pending), (2, 3, 1, 0));
}

#[test]
fn names_in_different_roots_and_ranges_of_different_files_are_different_jobs() {
    let mut world = World::new();
    let a = world.client(0);
    let other = world.ungreeted();
    let root = received(1, 99, FileKind::Directory);
    let _ = world.backend.handle_message(other, hello(0), Some(root));
    let _ = (world.name(a, 1, "/x"), world.name(other, 1, "/x"));
    for (id, (inode, offset)) in (2..).zip([(5, 0), (5, 1), (6, 0), (5, 0)]) {
        let _ = world.range(a, id, (received(1, inode, FileKind::Regular), offset));
    }
    world.replies();
    assert_eq!(world.backend.counters().jobs_queued, 5, "only the last range is equal to another");
}

#[test]
fn a_descriptor_of_one_user_answers_no_other() {
    let mut world = World::new();
    let a = world.client(0);
    let other = world.backend.handle_accept(34, true).expect("room for a connection");
    let _ = world.backend.handle_message(other, hello(0), Some(received(1, 2, FileKind::Directory)));
    world.replies();
    for client in [a, other] {
        // The first could be without the right to read.
        let _ = world.range(client, 1, (received(1, 5, FileKind::Regular), 0));
        let _ = world.name(client, 2, "/x");
    }
    world.turn(0);
    assert_eq!(world.started.len(), 4);
    assert_eq!(world.done(&Outcome::Failed(9)), [(a, Reply::Errno { id: 1, number: 9 })]);
}

#[test]
fn a_client_is_held_to_its_own_limit_over_all_its_connections() {
    let mut world = World::new();
    let (a, b) = (world.client(2), world.client(2));
    let other = world.ungreeted();
    let client = Request::Hello { waiters_max: 2, group: 8, name: b"test" };
    let _ = world.backend.handle_message(other, client, Some(received(1, 2, FileKind::Directory)));
    world.replies();
    let _ = (world.name(a, 1, "/1"), world.name(b, 1, "/2"), world.name(a, 2, "/1"));
    assert_eq!(world.replies(), [(a, busy(2))], "joining needs a place too: a thread waits for the reply");
    let _ = world.name(other, 1, "/3");
    assert_eq!(world.turn(0), [], "another group has its own limit");
    world.done(&Outcome::Loaded);
    let _ = world.name(b, 3, "/4");
    assert_eq!(world.replies(), [], "an answered request gives its place back");
    let c = world.client(0);
    for id in 0..10 {
        let _ = world.name(c, id, "/5");
    }
    assert_eq!(world.replies(), [], "the limit of the latest HELLO counts: none");
    assert_eq!(world.backend.counters().busy_quota, 1);
}

#[test]
fn a_request_ends_at_its_own_deadline_and_its_job_at_that_of_jobs() {
    let mut world = World::new();
    let a = world.client(0);
    let _ = (world.name_within(a, (1, 100), "/x"), world.name_within(a, (2, 0), "/x"));
    assert_eq!(world.turn(0), []);
    assert_eq!(world.backend.poll_next_ms(), Some(100));
    assert_eq!(world.turn(99), []);
    assert_eq!(world.turn(100), [(a, late(1))]);
    assert!(world.abandoned.is_empty(), "another request waits for the job");
    assert_eq!(world.turn(JOB_MS), [(a, late(2))]);
    assert_eq!(world.abandoned, world.started);
    assert_eq!(world.backend.counters().jobs_given_up, 1);
    world.backend.handle_helper_gone(world.abandoned[0]);
    assert_eq!(world.backend.counters().jobs_given_up, 0);
    // A deadline beyond the backend's own is cut.
    let _ = world.name_within(a, (3, u32::MAX), "/y");
    assert_eq!(world.backend.poll_next_ms(), Some(2 * JOB_MS));
}

#[test]
fn a_queued_job_ends_with_its_last_request() {
    let mut world = World::new();
    let (a, b) = (world.client(0), world.client(0));
    let _ = (world.name(a, 1, "/x"), world.name(b, 1, "/x"), world.name(b, 2, "/y"));
    assert_eq!(world.backend.handle_message(a, Request::Cancel { id: 1 }, None), ControlFlow::Continue(()));
    assert_eq!(world.backend.handle_message(a, Request::Cancel { id: 77 }, None), ControlFlow::Continue(()));
    assert_eq!(world.backend.counters().jobs_queued, 2);
    assert_eq!(world.name(a, 1, "/z"), ControlFlow::Continue(()), "a withdrawn number is free");
    world.backend.handle_gone(b);
    assert_eq!((world.backend.counters().jobs_queued, world.backend.counters().pending), (1, 1));
    world.turn(0);
    assert_eq!(world.done(&Outcome::Loaded), [(a, Reply::Ready { id: 1 })]);
    assert_eq!(world.backend.poll_next_ms(), None, "no timer is left");
}

#[test]
fn a_connection_that_breaks_the_protocol_ends() {
    let root = || Some(received(1, 2, FileKind::Directory));
    let mut world = World::new();
    let before = world.ungreeted();
    assert_eq!(world.name(before, 1, "/x"), ControlFlow::Break(()), "before HELLO");
    let file = Some(received(1, 2, FileKind::Regular));
    assert_eq!(
        world.backend.handle_message(before, hello(0), file),
        ControlFlow::Break(()),
        "a root that is a file"
    );
    let twice = world.client(0);
    assert_eq!(world.backend.handle_message(twice, hello(0), root()), ControlFlow::Break(()), "HELLO twice");
    let a = world.client(0);
    let _ = world.name(a, 5, "/x");
    assert_eq!(world.name(a, 5, "/y"), ControlFlow::Break(()), "an unanswered number");
    let b = world.client(0);
    let _ = world.name(b, 5, "/x");
    let folder = received(1, 2, FileKind::Directory);
    assert_eq!(
        world.range(b, 5, (folder, 0)),
        ControlFlow::Break(()),
        "an unanswered number of a wrong range"
    );
    assert_eq!(world.replies(), []);
}

#[test]
fn strangers_are_refused_with_a_reason() {
    let root = || Some(received(1, 2, FileKind::Directory));
    let mut world = World::new();
    let later = world.ungreeted();
    assert_eq!(world.backend.handle_message(later, Request::OtherVersion, root()), ControlFlow::Break(()));
    let other = world.backend.handle_accept(1000, false).expect("room");
    assert_eq!(world.backend.handle_message(other, hello(0), root()), ControlFlow::Break(()));
    let reply = Reply::Hello;
    assert_eq!(world.replies(), [(later, reply(Status::OtherVersion)), (other, reply(Status::WrongUser))]);
    world.turn(HELLO_MS - 1);
    assert_eq!(world.backend.poll_ended(), None);
    world.turn(HELLO_MS);
    assert_eq!(world.backend.poll_ended(), Some(later));
}

#[test]
fn the_number_of_connections_is_bounded() {
    let mut world = World::new();
    let clients: Vec<Key> = (0..CONNECTIONS_MAX).map(|_| world.client(0)).collect();
    let ungreeted: Vec<Key> = (0..UNGREETED_MAX).map(|_| world.ungreeted()).collect();
    assert_eq!(world.backend.handle_accept(33, true), None);
    let root = || Some(received(1, 2, FileKind::Directory));
    assert_eq!(world.backend.handle_message(ungreeted[0], hello(0), root()), ControlFlow::Break(()));
    assert_eq!(world.replies(), [(ungreeted[0], Reply::Hello(Status::NoRoom))]);
    world.backend.handle_gone(ungreeted[0]);
    world.backend.handle_gone(clients[0]);
    assert_eq!(world.backend.handle_message(ungreeted[1], hello(0), root()), ControlFlow::Continue(()));
}

#[test]
fn the_number_of_unanswered_requests_is_bounded() {
    let mut world = World::new();
    let a = world.client(0);
    for id in 0..REQUESTS_PER_CONNECTION_MAX as u32 {
        let _ = world.name(a, id, "/x");
    }
    assert_eq!(world.replies(), []);
    let _ = world.name(a, u32::MAX, "/x");
    assert_eq!(world.replies(), [(a, busy(u32::MAX))]);
    for _ in 1..REQUESTS_MAX / REQUESTS_PER_CONNECTION_MAX {
        let client = world.client(0);
        for id in 0..REQUESTS_PER_CONNECTION_MAX as u32 {
            let _ = world.name(client, id, "/x");
        }
    }
    let b = world.client(0);
    let _ = world.name(b, 1, "/x");
    assert_eq!(world.replies(), [(b, busy(1))]);
    assert_eq!((world.backend.counters().busy_bounds, world.backend.counters().pending), (2, REQUESTS_MAX));
    world.backend.handle_gone(a);
    let _ = world.name(b, 2, "/x");
    assert_eq!(world.replies(), [], "the end of a connection frees its requests");
}

#[test]
fn a_full_queue_refuses_new_jobs_and_joins_known_ones() {
    let mut world = World::new();
    let a = world.client(0);
    let refused = (0..1024).find(|id| {
        let _ = world.name(a, *id, &format!("/{id}"));
        !world.replies().is_empty()
    });
    assert!(refused.is_some_and(|id| id >= 256), "refused {refused:?}");
    let b = world.client(0);
    let _ = world.name(b, 1, "/0");
    assert_eq!(world.replies(), []);
    assert_eq!(world.backend.counters().busy_queue, 1);
}

#[test]
fn a_file_system_that_hangs_leaves_helpers_to_others() {
    let mount = |path: &str, device| Mount { path: path.as_bytes().into(), device };
    let mut world = World::with(0, vec![mount("/", 1), mount("/hung", 2)]);
    let a = world.client(0);
    let _ = world.name(a, 1000, "/fine");
    world.turn(0);
    world.done(&Outcome::Loaded);
    for id in 0..20 {
        let _ = world.name(a, id, &format!("/hung/{id}"));
    }
    world.turn(0);
    assert!(world.started.len() < HELPERS_MAX, "{} helpers of {HELPERS_MAX}", world.started.len());
    let hung = std::mem::take(&mut world.started);
    let _ = world.range(a, 2000, (received(1, 7, FileKind::Regular), 0));
    world.turn(0);
    assert_eq!(world.done(&Outcome::Loaded), [(a, Reply::Ready { id: 2000 })]);
    // Also while the helpers that were given up have not ended.
    world.turn(JOB_MS);
    assert!(hung.iter().all(|job| world.abandoned.contains(job)));
    let _ = world.name(a, 2001, "/fine");
    world.turn(JOB_MS);
    assert_eq!(world.done(&Outcome::Loaded), [(a, Reply::Ready { id: 2001 })]);
}

#[test]
fn ranges_that_no_file_can_have_are_refused_without_a_job() {
    let mut world = World::new();
    let a = world.client(0);
    let file = |kind| received(1, 5, kind);
    for (id, file, offset) in [
        (1, file(FileKind::Special), 0),
        (2, file(FileKind::Directory), 0),
        (3, file(FileKind::Regular), u64::MAX),
        (4, file(FileKind::Regular), i64::MAX as u64),
    ] {
        assert_eq!(world.range(a, id, (file, offset)), ControlFlow::Continue(()));
        assert_eq!(world.replies(), [(a, Reply::Errno { id, number: EINVAL })]);
    }
    assert_eq!(world.backend.counters().jobs_queued, 0);
}

#[test]
fn files_that_cannot_be_closed_stop_only_the_ranges_of_their_share() {
    let mut world = World::new();
    let a = world.client(0);
    let (fine, hung) = (world.backend.share_of(1), world.backend.share_of(2));
    assert_ne!(fine, hung);
    world.backend.handle_backlog(hung, UNCLOSED_MAX);
    world.backend.handle_backlog(fine, UNCLOSED_MAX - 1);
    let _ = world.range(a, 1, (received(2, 5, FileKind::Regular), 0));
    assert_eq!(world.replies(), [(a, busy(1))]);
    let _ = (world.range(a, 2, (received(1, 5, FileKind::Regular), 0)), world.name(a, 3, "/x"));
    world.backend.handle_backlog(hung, 0);
    let _ = world.range(a, 4, (received(2, 5, FileKind::Regular), 0));
    assert_eq!(world.replies(), []);
}

#[test]
fn a_file_is_kept_only_while_its_job_needs_it() {
    let mut world = World::new();
    let a = world.client(0);
    let file = received(1, 5, FileKind::Regular);
    let known = Arc::downgrade(&file.file);
    let _ = world.range(a, 1, (file, 0));
    assert!(known.upgrade().is_some());
    world.turn(0);
    world.done(&Outcome::Loaded);
    assert!(known.upgrade().is_none());
    let closed = received(1, 5, FileKind::Regular);
    let known = Arc::downgrade(&closed.file);
    assert_eq!(world.backend.handle_message(a, Request::Close, Some(closed)), ControlFlow::Continue(()));
    assert_eq!(world.backend.poll_next_ms(), Some(HELD_MS));
    world.turn(HELD_MS - 1);
    assert!(known.upgrade().is_some(), "the client closes its own descriptor first");
    world.turn(HELD_MS);
    assert!(known.upgrade().is_none());
    assert_eq!((world.replies(), world.backend.counters().closes), (Vec::new(), 1));
}

#[test]
fn files_to_be_closed_are_bounded() {
    let mut world = World::new();
    let a = world.client(0);
    let files: Vec<_> = (0..=HELD_MAX as u64).map(|inode| received(1, inode, FileKind::Regular)).collect();
    let known: Vec<_> = files.iter().map(|file| Arc::downgrade(&file.file)).collect();
    for file in files {
        assert_eq!(world.backend.handle_message(a, Request::Close, Some(file)), ControlFlow::Continue(()));
    }
    let held = known.iter().map(|file| file.upgrade().is_some());
    assert_eq!(held.collect::<Vec<_>>(), [vec![false], vec![true; HELD_MAX]].concat());
}

#[test]
fn a_range_whose_descriptor_was_lost_is_refused() {
    let mut world = World::new();
    let a = world.client(0);
    let range = Range { offset: 0, length_bytes: 1, remaining_bytes: 1 };
    let request = Request::WarmRange { id: 4, deadline_ms: 0, range };
    assert_eq!(world.backend.handle_cut_message(a, request), ControlFlow::Continue(()));
    assert_eq!(world.replies(), [(a, busy(4))]);
    assert_eq!(world.backend.handle_cut_message(a, Request::Close), ControlFlow::Continue(()));
    assert_eq!(world.backend.handle_cut_message(a, hello(0)), ControlFlow::Break(()));
    let client = world.ungreeted();
    assert_eq!(world.backend.handle_cut_message(client, request), ControlFlow::Break(()));
}

#[test]
fn a_file_loaded_a_moment_ago_is_not_asked_for_again() {
    let mut world = World::new();
    let endpoint = world.backend.handle_endpoint(0, received(1, 2, FileKind::Directory)).expect("room");
    world.replies();
    let ask = |path: &str| warm::WarmRequest { path: path.into(), part: warm::FileRange::FIRST };
    let unknown = || Residency::Unknown;
    assert!(!world.backend.answers_at_once(&ask("/a"), unknown));
    assert!(world.backend.answers_at_once(&ask("/a"), || Residency::InMemory));
    for (id, outcome, is_known) in [(1, Outcome::Failed(2), false), (2, Outcome::Loaded, true)] {
        assert_eq!(world.backend.handle_warm_request(endpoint, id, ask("/a")), ControlFlow::Continue(()));
        world.turn(0);
        world.done(&outcome);
        assert_eq!(world.backend.answers_at_once(&ask("/a"), unknown), is_known);
    }
    assert!(!world.backend.answers_at_once(&ask("/b"), unknown));
    let other = warm::WarmRequest { part: warm::FileRange::NOTHING, ..ask("/a") };
    assert!(!world.backend.answers_at_once(&other, unknown));
    world.turn(999);
    assert!(world.backend.answers_at_once(&ask("/a"), unknown));
    world.turn(1000);
    assert!(!world.backend.answers_at_once(&ask("/a"), unknown));
    assert_eq!(world.backend.counters().from_memory, 3);
}

#[test]
fn a_delayed_reply_counts_as_unanswered() {
    let mut world = World::with(50, Vec::new());
    let a = world.client(1);
    let _ = world.name(a, 1, "/x");
    world.turn(0);
    assert_eq!(world.done(&Outcome::Loaded), []);
    let _ = world.name(a, 2, "/x");
    assert_eq!(world.replies(), [(a, busy(2))]);
    assert!(!world.backend.is_idle(a));
    assert_eq!(world.turn(49), []);
    assert_eq!(world.turn(50), [(a, Reply::Ready { id: 1 })]);
    assert!(world.backend.is_idle(a));
    // A connection that ends meanwhile gets none.
    let _ = world.name(a, 3, "/x");
    world.turn(50);
    world.done(&Outcome::Loaded);
    world.backend.handle_gone(a);
    assert_eq!(world.turn(1_000), []);
}

#[test]
fn a_lost_helper_is_an_error_and_not_a_success() {
    let mut world = World::new();
    let a = world.client(0);
    for (id, (outcome, number)) in (1..).zip([
        (Outcome::Lost, EIO),
        (Outcome::Exhausted, ENOMEM),
        (Outcome::Failed(0), EIO),
        (Outcome::Closed, EIO),
    ]) {
        let _ = world.name(a, id, "/x");
        world.turn(0);
        assert_eq!(world.done(&outcome), [(a, Reply::Errno { id, number })]);
    }
}
