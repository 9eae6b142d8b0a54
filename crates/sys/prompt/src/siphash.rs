//! SipHash-2-4 with 128 bits (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012, and its
//! reference implementation), which the standard library lacks. Used by [`super::names`].

/// The hash of the parts, one after the other.
#[must_use]
pub(crate) fn siphash(key: &[u64; 2], parts: &[&[u8]]) -> [u64; 2] {
    let mut state = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d ^ 0xee,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let (mut word, mut length) = (0, 0_u64);
    for part in parts {
        let begun = (length.wrapping_neg() % 8) as usize;
        let (first, rest) = part.split_at(begun.min(part.len()));
        let words = rest.chunks_exact(8);
        let last = words.remainder();
        word |= bytes_at(first, length);
        if first.len() == begun && begun > 0 {
            mix(&mut state, std::mem::take(&mut word));
        }
        words.for_each(|eight| mix(&mut state, bytes_at(eight, 0)));
        word |= bytes_at(last, 0);
        length += part.len() as u64;
    }
    mix(&mut state, word | length << 56);
    state[2] ^= 0xee;
    (0..4).for_each(|_| round(&mut state));
    let first = state.iter().fold(0, |all, word| all ^ word);
    state[1] ^= 0xdd;
    (0..4).for_each(|_| round(&mut state));
    [first, state.iter().fold(0, |all, word| all ^ word)]
}

/// Up to eight bytes of a word, from the place after this many bytes.
#[inline]
fn bytes_at(bytes: &[u8], after: u64) -> u64 {
    let place = |(number, byte): (u64, &u8)| u64::from(*byte) << ((after + number) % 8 * 8);
    (0..).zip(bytes).map(place).fold(0, |all, byte| all | byte)
}

#[inline]
fn mix(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    round(state);
    state[0] ^= word;
}

#[inline]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_the_reference() {
        // The first vectors of the reference implementation (vectors.h, siphash_128): the key is 00 to 0f,
        // and the inputs are empty and 00.
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let bytes = |hash: [u64; 2]| hash.map(u64::to_le_bytes).concat();
        let of_none =
            [0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93];
        let of_one =
            [0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45];
        assert_eq!(bytes(siphash(&key, &[])), of_none);
        assert_eq!(bytes(siphash(&key, &[b"", &[0]])), of_one);
    }

    #[test]
    fn parts_are_one_input() {
        let key = [1, 2];
        let whole = b"a path of more than sixteen bytes";
        for at in 0..whole.len() {
            assert_eq!(siphash(&key, &[&whole[..at], &whole[at..]]), siphash(&key, &[whole]));
        }
        assert_ne!(siphash(&key, &[b"ab"]), siphash(&[1, 3], &[b"ab"]));
    }
}
