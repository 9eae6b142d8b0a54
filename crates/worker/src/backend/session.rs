//! One connection of the backend: its socket, and the replies that did not fit into it.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use flash_engine::backend::protocol::{Reply, encode};
use flash_prompt::{AsFd, BorrowedFd, OwnedFd, channel};

/// Maximum number of replies kept for a client that does not receive. A client has at most 1,024 unanswered
/// requests; refusals add to them. A client that leaves more replies unread is disconnected.
const REPLIES_MAX: usize = 4096;

/// A connection.
#[derive(Debug)]
pub(super) struct Session {
    socket: OwnedFd,
    replies: VecDeque<Reply>,
}

/// The result of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// All replies are in the socket.
    All,
    /// The socket is full: it will report when it has room.
    Some,
    /// The connection has ended, or its client receives nothing.
    Failed,
}

impl Session {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, replies: VecDeque::new() }
    }

    /// Sends a reply, or keeps it until there is room.
    pub(super) fn send(&mut self, reply: Reply) -> Sent {
        if self.replies.len() >= REPLIES_MAX {
            return Sent::Failed;
        }
        self.replies.push_back(reply);
        // Replies that wait already have found the socket full.
        if self.replies.len() > 1 { Sent::Some } else { self.go_on() }
    }

    /// Sends the replies that wait for room.
    pub(super) fn go_on(&mut self) -> Sent {
        while let Some(reply) = self.replies.front() {
            let (bytes, length) = encode(*reply);
            match channel::send(&self.socket, &[IoSlice::new(&bytes[..length])], &[]) {
                Ok(()) => drop(self.replies.pop_front()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Sent::Some,
                Err(_) => return Sent::Failed,
            }
        }
        Sent::All
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
