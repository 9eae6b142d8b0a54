//! The reasons for which a thread is blocked.

use serde::{Deserialize, Serialize};

/// The reason why a call blocked, from the kernel's stack when it left the core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reason {
    DiskRead,
    /// A name, an inode, an extent, a directory: what the file system needs before it gets to contents.
    Metadata,
    /// Data on its way to the disk, or the journal.
    Writeback,
    /// The journal, to note that a file was read: its access time.
    AccessTime,
    /// Room in the queue of the disk.
    DiskQueue,
    Lock,
    /// Every core, to have left what it does in the kernel (RCU), as when several threads share a table of descriptors
    /// and it grows.
    GracePeriod,
    MemoryReclaim,
    /// A peer on the network: data, or room in a socket.
    Network,
    Pipe,
    Futex,
    Sleep,
    Child,
    RemoteFileSystem,
    /// Events: what an event loop is there for.
    Events,
    #[default]
    Unknown,
}

impl Reason {
    /// In words, to stand after "waited for".
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::DiskRead => "a read from the disk",
            Self::Metadata => "file system metadata",
            Self::Writeback => "writeback",
            Self::AccessTime => "the journal, to record the access time",
            Self::DiskQueue => "room in the disk's queue",
            Self::Lock => "a kernel lock",
            Self::GracePeriod => "an RCU grace period",
            Self::MemoryReclaim => "memory reclaim",
            Self::Network => "the network",
            Self::Pipe => "a pipe",
            Self::Futex => "a lock of the program (futex)",
            Self::Sleep => "a timer (sleep)",
            Self::Child => "a child process",
            Self::RemoteFileSystem => "a file server (FUSE, NFS)",
            Self::Events => "events",
            Self::Unknown => "an unknown reason",
        }
    }

    /// Whether threads wait for it that have nothing to do.
    pub(crate) fn may_be_idle(self) -> bool {
        matches!(
            self,
            Self::Network
                | Self::Pipe
                | Self::Futex
                | Self::Sleep
                | Self::Child
                | Self::Events
                | Self::Unknown
        )
    }

    /// Whether it is a read from the disk, of content or of metadata.
    pub(crate) fn is_disk_read(self) -> bool {
        matches!(self, Self::DiskRead | Self::Metadata | Self::DiskQueue | Self::RemoteFileSystem)
    }

    /// Whether it is the disk, what stands before it, or who serves files in its place.
    pub(crate) fn is_disk(self) -> bool {
        matches!(
            self,
            Self::DiskRead
                | Self::Metadata
                | Self::Writeback
                | Self::AccessTime
                | Self::DiskQueue
                | Self::RemoteFileSystem
        )
    }
}
