//! How a slow reader takes an answer: in pieces, each of which takes its time at the reader's rate.
//!
//! A stream paces its connections by it. Pure.

/// A slow reader receives so much at once that it has 10 pieces a second, within these bounds.
const PIECES_PER_S: u64 = 10;
const PIECE_BYTES: std::ops::RangeInclusive<u64> = 512..=64 * 1024;

/// How many bytes a slow reader receives at once.
pub(crate) fn piece_bytes(rate_bytes_per_s: u64) -> usize {
    (rate_bytes_per_s / PIECES_PER_S).clamp(*PIECE_BYTES.start(), *PIECE_BYTES.end()) as usize
}

pub(crate) fn time_ns(bytes: u64, rate_bytes_per_s: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(rate_bytes_per_s.max(1))) as u64
}
