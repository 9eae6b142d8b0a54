//! A client of `flash backend` that sends any bytes it likes.

use std::fs::File;
use std::io::{self, IoSlice};
use std::path::Path;
use std::time::Duration;

use flash_prompt::epoll::{Epoll, Watch};
use flash_prompt::{AsFd, BorrowedFd, OwnedFd, channel};
use flash_waiting::local;

use crate::harness::PATIENCE;

/// A reply of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Hello {
        status: u32,
    },
    Ready {
        id: u32,
    },
    Errno {
        id: u32,
        number: u32,
    },
    Busy {
        id: u32,
    },
    /// The backend has closed the connection.
    End,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Packets(OwnedFd);

impl Packets {
    /// A connection that has sent nothing.
    pub(crate) fn stranger(socket: &Path) -> io::Result<Self> {
        local::connect_packets(socket).map(Self)
    }

    /// A welcome connection of group 1, without a limit.
    #[track_caller]
    pub(crate) fn to(socket: &Path) -> Self {
        Self::limited(socket, 0)
    }

    /// A welcome connection whose group may wait for this many requests.
    #[track_caller]
    pub(crate) fn limited(socket: &Path, waiters_max: u32) -> Self {
        let client = Self::stranger(socket).unwrap();
        client.hello(1, waiters_max);
        assert_eq!(client.reply(), Reply::Hello { status: 0 });
        client
    }

    /// Says hello with the root directory.
    pub(crate) fn hello(&self, version: u32, waiters_max: u32) {
        let root = File::open("/").unwrap();
        let fields = [&version.to_le_bytes()[..], &waiters_max.to_le_bytes(), &1_u64.to_le_bytes(), b"test"];
        self.send(&message(1, 0, &fields.concat()), &[root.as_fd()]);
    }

    pub(crate) fn name(&self, id: u32, path: impl AsRef<Path>) {
        self.name_within(id, path, 0);
    }

    pub(crate) fn name_within(&self, id: u32, path: impl AsRef<Path>, deadline_ms: u32) {
        let path = path.as_ref().as_os_str().as_encoded_bytes();
        let fields = [&deadline_ms.to_le_bytes()[..], &[0; 4], path].concat();
        self.send(&message(2, id, &fields), &[]);
    }

    pub(crate) fn range(&self, id: u32, file: &File, (offset, length): (u64, u64)) {
        let numbers = [0, offset, length, length].map(u64::to_le_bytes).concat();
        self.send(&message(3, id, &numbers), &[file.as_fd()]);
    }

    pub(crate) fn close(&self, file: &File) {
        self.send(&message(4, 0, &[]), &[file.as_fd()]);
    }

    pub(crate) fn cancel(&self, id: u32) {
        self.send(&message(5, id, &[]), &[]);
    }

    /// Sends any bytes. A connection that the backend has closed takes none.
    pub(crate) fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let _ = channel::send(&self.0, &[IoSlice::new(bytes)], descriptors);
    }

    /// The next reply.
    #[track_caller]
    pub(crate) fn reply(&self) -> Reply {
        self.reply_within(PATIENCE).expect("no reply came")
    }

    /// The next reply, if it comes within this time.
    #[track_caller]
    pub(crate) fn reply_within(&self, time: Duration) -> Option<Reply> {
        let mut epoll = Epoll::new(1).unwrap();
        epoll.add(&self.0, 0, Watch::Input).unwrap();
        let has_input = epoll.wait(Some(time.as_millis() as u64)).unwrap().count() > 0;
        has_input.then(|| self.receive())
    }

    fn receive(&self) -> Reply {
        let mut bytes = [0; 100];
        let mut descriptors = Vec::new();
        let length = match channel::recv(&self.0, &mut bytes, &mut descriptors) {
            // A connection with unread messages ends with a reset.
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => 0,
            received => received.unwrap(),
        };
        assert!(descriptors.is_empty(), "the backend gives no descriptors");
        if length == 0 {
            return Reply::End;
        }
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let id = number(4);
        let (reply, whole) = match bytes[0] {
            129 => (Reply::Hello { status: number(12) }, 16),
            130 => (Reply::Ready { id }, 8),
            131 => (Reply::Errno { id, number: number(8) }, 12),
            132 => (Reply::Busy { id }, 12),
            other => panic!("unknown reply {other}"),
        };
        assert_eq!(length, whole);
        reply
    }
}

/// A message with its header.
pub(crate) fn message(kind: u8, id: u32, fields: &[u8]) -> Vec<u8> {
    [&[kind, 0, 0, 0], &id.to_le_bytes()[..], fields].concat()
}
