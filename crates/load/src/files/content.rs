//! The contents of the files of a set, and whether some bytes are the right ones.
//!
//! Each file is a sequence of 64-byte lines that name the file, the line's offset and a hash of both
//! and the seed, so a wrong byte, a shifted range and a mix of two files all show. The file set
//! writes it; every check of replies compares with it. Pure.

use std::ops::Range;

#[cfg(test)]
use super::layout::File;

/// Bytes of a line, with its line feed.
pub const LINE_BYTES: u64 = 64;

/// Writes the 64-byte line at `line_index` of file `path_id` in the set made with `seed`.
fn line(seed: u64, path_id: u32, line_index: u64) -> [u8; LINE_BYTES as usize] {
    let mut line = *b"flash-lab file=00000000 at=000000000000 hash=0000000000000000 .\n";
    hex(&mut line[15..23], u64::from(path_id));
    hex(&mut line[27..39], line_index * LINE_BYTES);
    let hash = mix(mix(seed ^ (u64::from(path_id) << 32)) ^ line_index);
    hex(&mut line[45..61], hash);
    line
}

/// Puts the lower digits of `value` into `place`.
fn hex(place: &mut [u8], mut value: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(value & 15) as usize];
        value >>= 4;
    }
}

/// One step of SplitMix64 (Steele, Lea and Flood, *Fast Splittable Pseudorandom Number Generators*, 2014): a bijection,
/// so sequences that differ in one number have different seeds.
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
pub fn fill(seed: u64, path_id: u32, into: &mut Vec<u8>) {
    fill_part(seed, path_id, 0..File::from_path_id(path_id).file_bytes(), into);
}

/// Fills `into` with a part of file `path_id`, from the beginning of a line to a byte in the file.
pub(crate) fn fill_part(seed: u64, path_id: u32, part_bytes: Range<u64>, into: &mut Vec<u8>) {
    into.clear();
    for line_index in part_bytes.start / LINE_BYTES..part_bytes.end.div_ceil(LINE_BYTES) {
        into.extend_from_slice(&line(seed, path_id, line_index));
    }
    into.truncate((part_bytes.end - part_bytes.start) as usize);
}

#[cfg(test)]
pub fn content_matches(seed: u64, path_id: u32, offset_bytes: u64, bytes: &[u8]) -> bool {
    part_matches(seed, path_id, File::from_path_id(path_id).file_bytes(), offset_bytes, bytes)
}

/// Whether `bytes` are what stands at `offset_bytes` of file `path_id` of a set made with `seed`. Bytes past the end of the
/// file are wrong.
pub fn part_matches(seed: u64, path_id: u32, file_bytes: u64, offset_bytes: u64, bytes: &[u8]) -> bool {
    let Some(end) = offset_bytes.checked_add(bytes.len() as u64) else {
        return false;
    };
    if end > file_bytes {
        return false;
    }
    let (mut at, mut rest) = (offset_bytes, bytes);
    while !rest.is_empty() {
        let expected = line(seed, path_id, at / LINE_BYTES);
        let expected = &expected[(at % LINE_BYTES) as usize..];
        let length = expected.len().min(rest.len());
        if rest[..length] != expected[..length] {
            return false;
        }
        rest = &rest[length..];
        at += length as u64;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 7;

    fn content(path_id: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        fill(SEED, path_id, &mut bytes);
        bytes
    }

    #[test]
    fn right_bytes_match_at_every_offset() {
        let bytes = content(9);
        assert_eq!(bytes.len(), 1024);
        assert!(bytes.starts_with(b"flash-lab file=00000009 at=000000000000 hash="));
        for start in 0..130 {
            for end in start..200 {
                assert!(content_matches(SEED, 9, start as u64, &bytes[start..end]));
            }
        }
    }

    #[test]
    fn any_wrong_byte_shows() {
        let mut bytes = content(1);
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert!(!content_matches(SEED, 1, 0, &bytes), "byte {at}");
            bytes[at] ^= 1;
        }
        assert!(content_matches(SEED, 1, 0, &bytes));
    }

    #[test]
    fn other_files_other_offsets_other_seeds_and_longer_files_show() {
        let bytes = content(45);
        assert!(!content_matches(SEED, 46, 0, &bytes[..1024]));
        assert!(!content_matches(SEED, 45, 64, &bytes[..512]));
        assert!(!content_matches(SEED, 45, 1, &bytes[..512]));
        assert!(!content_matches(SEED + 1, 45, 0, &bytes[..512]));
        let mut longer = bytes.clone();
        longer.push(b'\n');
        assert!(!content_matches(SEED, 45, 0, &longer));
        assert!(!content_matches(SEED, 45, u64::MAX, b"x"));
    }

    #[test]
    fn files_of_any_length_are_made_and_checked_in_parts() {
        let (mut whole, mut first, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        fill_part(SEED, 3, 0..1000, &mut whole);
        fill_part(SEED, 3, 0..640, &mut first);
        fill_part(SEED, 3, 640..1000, &mut rest);
        assert_eq!(whole, [first, rest.clone()].concat());
        assert!(part_matches(SEED, 3, 1000, 640, &rest));
        assert!(!part_matches(SEED, 3, 999, 640, &rest), "past the end");
        assert!(!part_matches(SEED, 4, 1000, 640, &rest));
        assert!(part_matches(SEED, 3, 0, 0, b"") && !part_matches(SEED, 3, 0, 0, b"f"));
    }

    #[test]
    fn no_two_lines_of_a_directory_are_alike() {
        let mut seen = std::collections::HashSet::new();
        for path_id in 0..27 {
            for line_index in 0..16 {
                assert!(seen.insert(line(SEED, path_id, line_index)));
            }
        }
    }
}
