//! The timeline of one thread, in bounded memory: what is short is put together as the trace grows.
//!
//! `thread` appends to it. It computes nothing but where time went.

use crate::calls;
use crate::model::{Reason, STALL_NS, Segment, Shares, State};

/// Stretches that a timeline has at most.
const PIECES_MAX: usize = 16_384;
/// The finest resolution, once there is one.
const RESOLUTION_LEAST_NS: u64 = 1_000;
/// Up to this resolution, what was blocked for long is never put together with anything.
const RESOLUTION_OF_STALLS_NS: u64 = 64_000_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) state: State,
    /// The number of the call, in `Call`, `Blocked` and `Waiting`.
    pub(super) call: Option<u64>,
    /// In `Blocked`.
    pub(super) reason: Option<Reason>,
    /// When the call began, in `Blocked`.
    pub(super) call_start_ns: u64,
}

#[derive(Clone, Debug)]
struct Piece {
    start_ns: u64,
    end_ns: u64,
    kind: Kind,
    shares: Option<Shares>,
}

impl Piece {
    fn length_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }

    fn shares(&self) -> Shares {
        self.shares.unwrap_or_else(|| Shares::of(self.kind.state, self.length_ns()))
    }

    fn is_stall(&self) -> bool {
        self.kind.state == State::Blocked && self.shares.is_none() && self.length_ns() > STALL_NS
    }

    /// Takes in what follows it.
    fn absorb(&mut self, next: &Piece) {
        let sum = self.shares() + next.shares();
        let state =
            sum.each().into_iter().max_by_key(|(_, ns)| *ns).map_or(State::Waiting, |(state, _)| state);
        if next.kind.state == state && (self.kind.state != state || next.length_ns() > self.length_ns()) {
            self.kind = next.kind;
        } else if self.kind.state != state {
            self.kind = Kind { state, ..Kind::default() };
        }
        self.shares = Some(sum);
        self.end_ns = next.end_ns;
    }
}

/// Stretches, by start and without overlaps.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    pieces: Vec<Piece>,
    resolution_ns: u64,
}

impl Timeline {
    /// Appends a stretch; it begins where the last one ended, or later.
    pub(super) fn push(&mut self, start_ns: u64, end_ns: u64, kind: Kind) {
        if end_ns <= start_ns {
            return;
        }
        let piece = Piece { start_ns, end_ns, kind, shares: None };
        Self::append(&mut self.pieces, piece, self.resolution_ns);
        while self.pieces.len() > PIECES_MAX {
            self.resolution_ns = (2 * self.resolution_ns).max(RESOLUTION_LEAST_NS);
            let mut coarser = Vec::with_capacity(PIECES_MAX);
            for piece in self.pieces.drain(..) {
                Self::append(&mut coarser, piece, self.resolution_ns);
            }
            self.pieces = coarser;
        }
    }

    fn append(pieces: &mut Vec<Piece>, piece: Piece, resolution_ns: u64) {
        let Some(last) = pieces.last_mut().filter(|last| last.end_ns == piece.start_ns) else {
            pieces.push(piece);
            return;
        };
        let is_plain = last.shares.is_none() && piece.shares.is_none();
        if is_plain && last.kind == piece.kind {
            last.end_ns = piece.end_ns;
            return;
        }
        let keeps_stalls = resolution_ns <= RESOLUTION_OF_STALLS_NS && (last.is_stall() || piece.is_stall());
        if last.length_ns() + piece.length_ns() <= resolution_ns && !keeps_stalls {
            last.absorb(&piece);
        } else {
            pieces.push(piece);
        }
    }

    pub(super) fn resolution_ns(&self) -> u64 {
        self.resolution_ns
    }

    /// As data, with times from `start_ns` on; `blocked` says where the blocked call is that began then.
    pub(super) fn segments(&self, start_ns: u64, blocked: impl Fn(u64) -> Option<u32>) -> Vec<Segment> {
        let segment = |piece: &Piece| Segment {
            start_ns: piece.start_ns.saturating_sub(start_ns),
            duration_ns: piece.length_ns(),
            state: piece.kind.state,
            call: piece.kind.call.map(calls::name),
            reason: piece.kind.reason,
            blocked: match piece.kind.state {
                State::Blocked if piece.shares.is_none() => blocked(piece.kind.call_start_ns),
                _ => None,
            },
            shares: piece.shares,
        };
        self.pieces.iter().map(segment).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(state: State) -> Kind {
        Kind { state, ..Kind::default() }
    }

    #[test]
    fn equal_neighbours_are_one() {
        let mut timeline = Timeline::default();
        timeline.push(10, 20, kind(State::User));
        timeline.push(20, 20, kind(State::Call));
        timeline.push(20, 30, kind(State::User));
        timeline.push(40, 50, kind(State::User));
        let segments = timeline.segments(10, |_| None);
        let ends: Vec<_> = segments.iter().map(|s| (s.start_ns, s.duration_ns)).collect();
        assert_eq!(ends, [(0, 20), (30, 10)], "the gap stays");
    }

    #[test]
    fn a_long_timeline_stays_bounded_and_keeps_its_time_and_its_stalls() {
        let mut timeline = Timeline::default();
        let (mut at, mut stalls, mut blocked_ns) = (0, 0, 0);
        for round in 0..200_000_u64 {
            timeline.push(at, at + 3_000, kind(State::User));
            timeline.push(at + 3_000, at + 5_000, kind(State::Call));
            at += 5_000;
            if round % 1000 == 0 {
                timeline.push(at, at + 2_000_000, kind(State::Blocked));
                (at, stalls, blocked_ns) = (at + 2_000_000, stalls + 1, blocked_ns + 2_000_000);
            }
        }
        let segments = timeline.segments(0, |_| None);
        assert!(segments.len() <= PIECES_MAX);
        assert!(timeline.resolution_ns() > 0);
        let whole: Vec<_> = segments.iter().filter(|s| s.state == State::Blocked).collect();
        assert_eq!(whole.len(), stalls);
        assert!(whole.iter().all(|s| s.duration_ns == 2_000_000 && s.shares.is_none()));
        assert_eq!(segments.iter().map(|s| s.duration_ns).sum::<u64>(), at);
        let user: u64 = segments
            .iter()
            .map(|s| s.shares.map_or(if s.state == State::User { s.duration_ns } else { 0 }, |s| s.user_ns))
            .sum();
        assert_eq!(user, 200_000 * 3_000);
        assert_eq!(at, 200_000 * 5_000 + blocked_ns);
        assert!(segments.windows(2).all(|two| two[0].start_ns + two[0].duration_ns <= two[1].start_ns));
    }
}
