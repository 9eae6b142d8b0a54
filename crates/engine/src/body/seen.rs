//! The state of a file at its last check while it is sent, with some bytes that it then had. A file that has grown since
//! is taken for one that only grows, as a log does, if it still has these bytes; so a copy over the file cuts the
//! transfer. Called by [`file`](super::file).

use crate::limits::SAMPLE_BYTES_MAX;
use crate::machine::FileStat;

/// The state of a file at its last check, and a sample of its bytes.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    stat: FileStat,
    /// Offset of the sample in the file.
    sample_at: u64,
    /// The first bytes of the piece that was read last; none before the first piece.
    sample: Vec<u8>,
}

/// How a later state of a file relates to the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    Unchanged,
    /// Only the sample tells whether the bytes are the same.
    Grown,
    Changed,
}

impl Seen {
    pub(super) fn new(stat: FileStat) -> Self {
        Self { stat, sample_at: 0, sample: Vec::new() }
    }

    pub(super) fn stat(&self) -> &FileStat {
        &self.stat
    }

    /// How the state `stat` relates to this one. Before the first piece a file that has grown counts as changed: the
    /// answer can begin again.
    pub(super) fn since(&self, stat: &FileStat) -> Since {
        if stat.same_content(&self.stat) {
            Since::Unchanged
        } else if stat.size_bytes > self.stat.size_bytes && !self.sample.is_empty() {
            Since::Grown
        } else {
            Since::Changed
        }
    }

    /// Offset and bytes of the sample.
    pub(super) fn sample(&self) -> (u64, &[u8]) {
        (self.sample_at, &self.sample)
    }

    /// Records a state, and the bytes of a piece at `offset` that belong to it.
    pub(super) fn note(&mut self, stat: FileStat, offset: u64, piece: &[u8]) {
        self.stat = stat;
        self.sample_at = offset;
        self.sample.clear();
        self.sample.extend_from_slice(&piece[..piece.len().min(SAMPLE_BYTES_MAX)]);
    }
}
