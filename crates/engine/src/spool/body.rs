//! One body in the spool: its pieces, in memory, on their way to the file, or in the file. Called by [`spool`](super),
//! which counts them.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Slot;
use crate::handed_over::HandedOver;
use crate::limits::{SPOOL_EARLY_BYTES, SPOOL_PIECE_BYTES_MAX};
use crate::machine::JobId;
use crate::shares::Sharer;

/// A body. Places in it are counted in bytes from its begin.
#[derive(Debug)]
pub(super) struct SpooledBody {
    pub(super) sharer: Sharer,
    /// The pieces that are still needed, in order.
    pieces: VecDeque<SpooledPiece>,
    pub(super) length_bytes: u64,
    /// Bytes before this place are no longer needed.
    used: u64,
    /// Bytes of it in memory, those that are being written included.
    pub(super) memory_bytes: usize,
    /// The job that writes a piece.
    pub(super) writing: Option<JobId>,
    pub(super) reading: Option<SpoolRead>,
    /// A part of the file that was read, and its place in the body.
    read: Option<(u64, HandedOver)>,
    /// Whether a write has failed, so that nothing more of it goes to the file.
    pub(super) is_kept_in_memory: bool,
    /// How many reads in a row have failed.
    pub(super) failed_reads: u8,
}

/// A part of a body that a helper reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpoolRead {
    pub(super) job: JobId,
    pub(super) at: u64,
    pub(super) length_bytes: u64,
}

/// A piece of a body.
#[derive(Debug)]
struct SpooledPiece {
    start: u64,
    length_bytes: usize,
    place: PiecePlace,
}

#[derive(Debug)]
enum PiecePlace {
    Memory(Vec<u8>),
    /// A helper writes it to this slot.
    Writing(Slot, Arc<[u8]>),
    Filed(Slot),
}

/// The memory and the slot that are free when a piece is no longer needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freed {
    Memory(usize),
    /// Memory, and a slot to which a helper may write.
    Writing(usize, Slot),
    Slot(Slot),
}

impl SpooledPiece {
    fn end(&self) -> u64 {
        self.start + self.length_bytes as u64
    }
}

impl SpooledBody {
    pub(super) fn new(sharer: Sharer) -> Self {
        Self {
            sharer,
            pieces: VecDeque::new(),
            length_bytes: 0,
            used: 0,
            memory_bytes: 0,
            writing: None,
            reading: None,
            read: None,
            is_kept_in_memory: false,
            failed_reads: 0,
        }
    }

    /// Appends bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let start = self.length_bytes;
        self.length_bytes += bytes.len() as u64;
        self.memory_bytes += bytes.len();
        if let Some(SpooledPiece { length_bytes, place: PiecePlace::Memory(memory), .. }) =
            self.pieces.back_mut()
            && memory.len() + bytes.len() <= SPOOL_PIECE_BYTES_MAX
        {
            memory.extend_from_slice(bytes);
            *length_bytes = memory.len();
        } else if !bytes.is_empty() {
            let place = PiecePlace::Memory(bytes.to_vec());
            self.pieces.push_back(SpooledPiece { start, length_bytes: bytes.len(), place });
        }
    }

    /// Whether any of it is in the file.
    pub(super) fn is_filed(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece.place, PiecePlace::Filed(_)))
    }

    /// The piece in memory that is best written to the file: the longest, and of several that which is needed last.
    pub(super) fn longest_in_memory(&self) -> Option<usize> {
        let needed = |piece: &SpooledPiece| piece.end() - piece.start.max(self.used);
        let in_memory = self.pieces.iter().enumerate().filter(|(_, piece)| {
            matches!(piece.place, PiecePlace::Memory(_)) && needed(piece) >= SPOOL_EARLY_BYTES as u64
        });
        in_memory.max_by_key(|(_, piece)| needed(piece)).map(|(number, _)| number)
    }

    /// Begins to write a piece that is in memory. Returns its bytes, and how many bytes of memory that frees: those that
    /// are no longer needed.
    pub(super) fn begin_writing(&mut self, number: usize, slot: Slot) -> (Arc<[u8]>, usize) {
        let used = self.used;
        let Some(piece) = self.pieces.get_mut(number) else { return (Arc::from([]), 0) };
        let PiecePlace::Memory(memory) = &piece.place else { return (Arc::from([]), 0) };
        let needless =
            usize::try_from(used.saturating_sub(piece.start)).unwrap_or(usize::MAX).min(memory.len());
        let bytes: Arc<[u8]> = memory[needless..].into();
        piece.start += needless as u64;
        piece.length_bytes = bytes.len();
        piece.place = PiecePlace::Writing(slot, Arc::clone(&bytes));
        self.memory_bytes -= needless;
        (bytes, needless)
    }

    /// Ends the write to this slot, if there is one. Returns the length of the piece. If the write has failed, the piece
    /// is in memory again.
    pub(super) fn end_writing(&mut self, slot: Slot, is_written: bool) -> Option<usize> {
        let is_it =
            |piece: &&mut SpooledPiece| matches!(piece.place, PiecePlace::Writing(other, _) if other == slot);
        let piece = self.pieces.iter_mut().find(is_it)?;
        let PiecePlace::Writing(_, bytes) = &piece.place else { return None };
        let length_bytes = bytes.len();
        if is_written {
            piece.place = PiecePlace::Filed(slot);
            self.memory_bytes -= length_bytes;
        } else {
            piece.place = PiecePlace::Memory(bytes.to_vec());
        }
        self.writing = None;
        Some(length_bytes)
    }

    /// The piece that contains this place.
    fn piece(&self, at: u64) -> Option<&SpooledPiece> {
        let next = self.pieces.partition_point(|piece| piece.start <= at);
        self.pieces.get(next.checked_sub(1)?).filter(|piece| at < piece.end())
    }

    /// The bytes from a place on that are in memory; None if a helper has to read them first.
    pub(super) fn part(&self, at: u64) -> Option<&[u8]> {
        let Some(piece) = self.piece(at) else { return Some(&[]) };
        let from = (at - piece.start) as usize;
        match (&piece.place, &self.read) {
            (PiecePlace::Memory(bytes), _) => Some(&bytes[from..]),
            (PiecePlace::Writing(_, bytes), _) => Some(&bytes[from..]),
            (PiecePlace::Filed(_), Some((start, bytes)))
                if *start <= at && at - start < bytes.len() as u64 =>
            {
                Some(&bytes[(at - start) as usize..])
            }
            (PiecePlace::Filed(_), _) => None,
        }
    }

    /// The slot that has the byte at this place, where it is in the slot, and how many bytes the slot has from there on.
    pub(super) fn filed(&self, at: u64) -> Option<(Slot, u64, u64)> {
        let piece = self.piece(at)?;
        let PiecePlace::Filed(slot) = piece.place else { return None };
        Some((slot, at - piece.start, piece.end() - at))
    }

    /// Takes what was read for a place.
    pub(super) fn take_read(&mut self, at: u64, bytes: HandedOver) {
        (self.read, self.failed_reads) = (Some((at, bytes)), 0);
    }

    /// Removes the first piece if nothing from `to` on is in it. Returns what becomes free.
    pub(super) fn pop_used(&mut self, to: u64) -> Option<Freed> {
        self.used = self.used.max(to);
        if self.read.as_ref().is_some_and(|(start, bytes)| start + bytes.len() as u64 <= to) {
            self.read = None;
        }
        if self.pieces.front()?.end() > to {
            return None;
        }
        let piece = self.pieces.pop_front()?;
        Some(match piece.place {
            PiecePlace::Memory(bytes) => {
                self.memory_bytes -= bytes.len();
                Freed::Memory(bytes.len())
            }
            PiecePlace::Writing(slot, bytes) => {
                self.memory_bytes -= bytes.len();
                Freed::Writing(bytes.len(), slot)
            }
            PiecePlace::Filed(slot) => Freed::Slot(slot),
        })
    }
}
