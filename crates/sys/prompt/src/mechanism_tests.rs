//! The same tests for each mechanism.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use rustix::fd::OwnedFd;

use super::*;

const ALL: [MechanismKind; 3] = [MechanismKind::Epoll, MechanismKind::Poll, MechanismKind::Select];
/// How long to wait for events that must come.
const LONG_MS: u64 = 15_000;

/// A mechanism and its owner's knowledge: as in the engine, an event stays known until a call comes short. A
/// token that is not in the table is closed.
struct Loop {
    kind: MechanismKind,
    mechanism: Mechanism,
    awaited: HashMap<u64, Awaited>,
}

impl Loop {
    fn new(kind: MechanismKind) -> Self {
        Loop { kind, mechanism: Mechanism::new(kind, 64).expect("a mechanism"), awaited: HashMap::new() }
    }

    /// Watches as the engine does: a new connection is known to have room.
    fn add(&mut self, fd: impl AsFd, token: u64) {
        self.mechanism.add(fd, token, Watch::Connection).expect("watched");
        self.awaited.insert(token, Awaited { readable: true, writable: false, hung_up: true });
    }

    /// Waits. The reported events are known from then on.
    fn wait(&mut self, timeout_ms: u64) -> Vec<Ready> {
        let mut batch = Vec::new();
        let awaited = &self.awaited;
        self.mechanism
            .wait(Some(timeout_ms), |token| awaited.get(&token).copied(), &mut batch)
            .expect("a wait");
        for ready in &batch {
            let awaited = self.awaited.get_mut(&ready.token).expect("a closed token must not be reported");
            awaited.readable &= !ready.readable;
            awaited.writable &= !ready.writable;
            awaited.hung_up &= !ready.hung_up;
        }
        batch
    }

    /// Waits for an event of one token. Events of other tokens are recorded as known.
    #[track_caller]
    fn until(&mut self, what: &str, token: u64, is_it: impl Fn(&Ready) -> bool) {
        let kind = self.kind;
        for _ in 0..100 {
            let batch = self.wait(LONG_MS);
            assert!(!batch.is_empty(), "{kind:?}: {what}: nothing came");
            if batch.iter().any(|ready| ready.token == token && is_it(ready)) {
                return;
            }
        }
        panic!("{kind:?}: {what}: only other events came");
    }

    /// epoll also reports the room at the start.
    fn settle(&mut self) {
        while !self.wait(0).is_empty() {}
    }

    #[track_caller]
    fn assert_quiet(&mut self, what: &str) {
        let batch = self.wait(0);
        assert!(batch.is_empty(), "{:?}: {what}: {batch:?}", self.kind);
    }
}

fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    ours.set_nonblocking(true).expect("a flag set");
    (ours, theirs)
}

/// Reads until there is no more input, so that input is unknown again.
fn drain(events: &mut Loop, token: u64, mut from: impl Read) -> usize {
    let mut bytes = 0;
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        bytes += n;
    }
    events.awaited.get_mut(&token).expect("open").readable = true;
    bytes
}

#[test]
fn input_is_reported_once_until_it_is_used_up() {
    for kind in ALL {
        let mut events = Loop::new(kind);
        let (ours, mut theirs) = pair();
        events.add(&ours, 7);
        events.settle();
        for _ in 0..3 {
            theirs.write_all(b"12345").expect("sent");
            events.until("input", 7, |ready| ready.readable && !ready.hung_up && !ready.broken);
            events.assert_quiet("it is known");
            assert_eq!(drain(&mut events, 7, &ours), 5);
            events.assert_quiet("it is used up");
        }
    }
}

#[test]
fn a_listener_is_reported_until_no_client_waits() {
    for kind in ALL {
        let mut mechanism = Mechanism::new(kind, 8).expect("a mechanism");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        mechanism.add(&listener, 3, Watch::Input).expect("watched");
        let clients: Vec<_> =
            (0..2).map(|_| TcpStream::connect(listener.local_addr().expect("an address"))).collect();
        let mut batch = Vec::new();
        for _ in &clients {
            for _ in 0..2 {
                batch.clear();
                mechanism.wait(Some(LONG_MS), |_| Some(Awaited::INPUT), &mut batch).expect("a wait");
                assert!(matches!(batch[..], [Ready { token: 3, readable: true, .. }]), "{kind:?}: {batch:?}");
            }
            listener.accept().expect("a client");
        }
        batch.clear();
        mechanism.wait(Some(0), |_| Some(Awaited::INPUT), &mut batch).expect("a wait");
        assert!(batch.is_empty(), "{kind:?}: {batch:?}");
        mechanism.remove(&listener).expect("removed");
        let _late = TcpStream::connect(listener.local_addr().expect("an address")).expect("a client");
        mechanism.wait(Some(0), |_| Some(Awaited::INPUT), &mut batch).expect("a wait");
        assert!(batch.is_empty(), "{kind:?}: {batch:?}");
    }
}

#[test]
fn room_is_reported_after_it_ran_out() {
    for kind in ALL {
        let mut events = Loop::new(kind);
        let (mut ours, mut theirs) = pair();
        theirs.set_nonblocking(true).expect("a flag set");
        events.add(&ours, 7);
        events.settle();
        for _ in 0..3 {
            while ours.write(&[0; 4096]).is_ok() {}
            events.awaited.get_mut(&7).expect("open").writable = true;
            events.assert_quiet("there is no room");
            while theirs.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {}
            events.until("room", 7, |ready| ready.writable);
            events.assert_quiet("it is known");
        }
    }
}

#[test]
fn a_half_close_is_reported_as_input_and_except_by_select_also_as_half_close() {
    for kind in ALL {
        let mut events = Loop::new(kind);
        let (mut ours, mut theirs) = pair();
        events.add(&ours, 7);
        events.settle();
        theirs.write_all(b"last").expect("sent");
        theirs.shutdown(Shutdown::Write).expect("closed");
        events.until("the half-close", 7, |ready| {
            ready.readable && ready.hung_up == (kind != MechanismKind::Select)
        });
        assert_eq!(drain(&mut events, 7, &ours), 4);
        if kind != MechanismKind::Epoll {
            events.until("the end of input", 7, |ready| ready.readable);
        }
        assert_eq!(ours.read(&mut [0; 8]).expect("the end"), 0);
        ours.write_all(b"an answer").expect("the peer can still read");
    }
}

#[test]
fn a_reset_is_reported_even_if_no_event_is_awaited() {
    for kind in ALL {
        let mut events = Loop::new(kind);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let theirs = TcpStream::connect(listener.local_addr().expect("an address")).expect("a client");
        let (mut ours, _) = listener.accept().expect("the client");
        ours.set_nonblocking(true).expect("a flag set");
        events.add(&ours, 7);
        events.settle();
        // Closing with unread input resets the connection.
        ours.write_all(b"unread").expect("sent");
        while theirs.peek(&mut [0; 8]).expect("a look") < 6 {}
        if kind == MechanismKind::Poll {
            events.awaited.insert(7, Awaited::default());
        }
        drop(theirs);
        let is_told =
            |ready: &Ready| if kind == MechanismKind::Select { ready.readable } else { ready.broken };
        events.until("the reset", 7, is_told);
    }
}

#[test]
fn a_closed_descriptor_is_forgotten_and_its_number_can_be_reused() {
    for kind in ALL {
        let mut events = Loop::new(kind);
        let (first, _first_peer) = pair();
        let (other, mut other_peer) = pair();
        events.add(&first, 1);
        events.add(&other, 2);
        drop(first);
        events.awaited.remove(&1);
        // The same number in this turn. Numbers belong to the whole process, so another thread may have it.
        let (again, mut again_peer) = pair();
        events.add(&again, 3);
        again_peer.write_all(b"x").expect("sent");
        events.until("the successor", 3, |ready| ready.readable);
        drop(again);
        events.awaited.remove(&3);
        events.assert_quiet("the successor is closed too");
        other_peer.write_all(b"x").expect("sent");
        events.until("the other", 2, |ready| ready.readable);
    }
}

#[test]
fn each_of_many_is_reported_by_its_token_when_others_close() {
    for kind in ALL {
        let mut events = Loop::new(kind);
        let mut pairs: HashMap<u64, (UnixStream, UnixStream)> = (0..200).map(|n| (n, pair())).collect();
        for (token, (ours, _)) in &pairs {
            events.add(ours, *token);
        }
        for token in (0..200).filter(|n| n % 3 == 0) {
            let (ours, _) = pairs.remove(&token).expect("a pair");
            if token % 2 == 0 {
                events.mechanism.remove(&ours).expect("removed");
            }
            events.awaited.remove(&token);
        }
        events.settle();
        for chosen in [1, 2, 100, 199, 77] {
            let (_, theirs) = pairs.get_mut(&chosen).expect("a pair");
            theirs.write_all(b"x").expect("sent");
            events.until("one of many", chosen, |ready| ready.readable);
            events.assert_quiet("no other event");
        }
    }
}

#[test]
fn select_refuses_descriptors_beyond_its_set() {
    let (ours, _theirs) = pair();
    let beyond: OwnedFd = match rustix::io::fcntl_dupfd_cloexec(&ours, SELECT_DESCRIPTORS_MAX as i32) {
        Ok(fd) => fd,
        Err(e) => return crate::skipping::skip(&format!("cannot get a descriptor with a high number: {e}")),
    };
    for kind in ALL {
        let added = Mechanism::new(kind, 8).expect("a mechanism").add(&beyond, 1, Watch::Connection);
        match kind {
            MechanismKind::Select => {
                let why = added.expect_err("refused").to_string();
                assert!(why.contains("select takes descriptors below 1024"), "{why}");
            }
            _ => added.expect("taken"),
        }
    }
}
