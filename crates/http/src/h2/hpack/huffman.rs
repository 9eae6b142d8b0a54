//! The Huffman code of HPACK (RFC 7541 section 5.2 and appendix B). Called by `decode` and `encode`.
//!
//! The code is canonical: codes of one length are consecutive, in the order of their symbols, so the lengths define it.

use super::BadBlock;

/// The symbol that ends no string; its code pads the last byte.
const END: usize = 256;
const LENGTH_MAX: usize = 30;

/// The length in bits of the code of each symbol.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The codes, in the order of their length.
struct Code {
    /// The symbols, the shortest codes first.
    symbols: [u16; 257],
    /// For each length, the first code that is too high for it, in the upper bits of 32.
    ends: [u64; LENGTH_MAX + 1],
    /// For each length, its first code.
    firsts: [u32; LENGTH_MAX + 1],
    /// For each length, the place of its first symbol.
    places: [u16; LENGTH_MAX + 1],
    /// The code of each symbol.
    codes: [u32; 257],
}

const CODE: Code = {
    let mut code = Code {
        symbols: [0; 257],
        ends: [0; LENGTH_MAX + 1],
        firsts: [0; LENGTH_MAX + 1],
        places: [0; LENGTH_MAX + 1],
        codes: [0; 257],
    };
    let (mut next, mut place, mut length) = (0_u32, 0, 1);
    while length <= LENGTH_MAX {
        next <<= 1;
        code.firsts[length] = next;
        code.places[length] = place as u16;
        let mut symbol = 0;
        while symbol <= END {
            if LENGTHS[symbol] as usize == length {
                code.codes[symbol] = next;
                code.symbols[place] = symbol as u16;
                place += 1;
                next += 1;
            }
            symbol += 1;
        }
        code.ends[length] = (next as u64) << (32 - length);
        length += 1;
    }
    code
};

/// The symbol and the length of the code at the front of eight bits; 0 if it is longer.
const SHORT: [(u8, u8); 256] = {
    let mut table = [(0, 0); 256];
    let mut symbol = 0;
    while symbol < END {
        let length = LENGTHS[symbol];
        if length <= 8 {
            let first = CODE.codes[symbol] << (8 - length);
            let mut rest = 0;
            while rest < 1 << (8 - length) {
                table[(first + rest) as usize] = (symbol as u8, length);
                rest += 1;
            }
        }
        symbol += 1;
    }
    table
};

static CODES: Code = CODE;
static SHORT_CODES: [(u8, u8); 256] = SHORT;

/// Appends the decoded string.
///
/// # Errors
/// The padding is longer than seven bits, has a bit that is not set, or the string has the symbol that ends none.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), BadBlock> {
    // The next bits, from the highest down; those behind the end are set, as padding is.
    let (mut bits, mut there, mut rest) = (u64::MAX, 0_u32, coded);
    loop {
        while there <= 56 {
            let Some((byte, behind)) = rest.split_first() else { break };
            rest = behind;
            bits = bits & !(0xff << (56 - there)) | u64::from(*byte) << (56 - there);
            there += 8;
        }
        let (symbol, length) = match SHORT_CODES[(bits >> 56) as usize] {
            (_, 0) => long(bits),
            (symbol, length) => (u16::from(symbol), u32::from(length)),
        };
        if length > there {
            // Only ones can be left: they begin no shorter code.
            let is_padding = there < 8 && bits == u64::MAX;
            return if is_padding { Ok(()) } else { Err(BadBlock("A string has invalid padding")) };
        }
        if usize::from(symbol) == END {
            return Err(BadBlock("A string has the symbol EOS"));
        }
        out.push(symbol as u8);
        bits = bits << length | ((1 << length) - 1);
        there -= length;
    }
}

/// The symbol of a code longer than eight bits, and its length.
fn long(bits: u64) -> (u16, u32) {
    let front = bits >> 32;
    let length = (9..LENGTH_MAX).find(|length| front < CODES.ends[*length]).unwrap_or(LENGTH_MAX);
    let code = (front >> (32 - length)) as u32;
    let place = usize::from(CODES.places[length]) + (code - CODES.firsts[length]) as usize;
    (CODES.symbols[place], length as u32)
}

/// The length of a coded string in bytes.
pub(super) fn coded_bytes(text: &[u8]) -> usize {
    text.iter().map(|byte| usize::from(LENGTHS[usize::from(*byte)])).sum::<usize>().div_ceil(8)
}

/// Appends the coded string.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut there) = (0_u64, 0);
    for byte in text {
        let length = LENGTHS[usize::from(*byte)];
        bits = bits << length | u64::from(CODES.codes[usize::from(*byte)]);
        there += length;
        while there >= 8 {
            there -= 8;
            out.push((bits >> there) as u8);
        }
    }
    if there > 0 {
        out.push((bits << (8 - there)) as u8 | 0xff >> there);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("a byte");
        (0..text.len()).step_by(2).map(digit).collect()
    }

    #[test]
    fn the_examples_of_the_rfc() {
        // RFC 7541, appendix C.4 and C.6.
        for (text, coded) in [
            ("www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
            ("no-cache", "a8eb10649cbf"),
            ("custom-value", "25a849e95bb8e8b4bf"),
            ("Mon, 21 Oct 2013 20:13:21 GMT", "d07abe941054d444a8200595040b8166e082a62d1bff"),
            (
                "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
                "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
            ),
        ] {
            let mut out = Vec::new();
            encode(text.as_bytes(), &mut out);
            assert_eq!(out, hex(coded), "{text}");
            assert_eq!(coded_bytes(text.as_bytes()), out.len());
            let mut plain = Vec::new();
            assert_eq!(decode(&out, &mut plain), Ok(()));
            assert_eq!(plain, text.as_bytes());
        }
    }

    #[test]
    fn every_byte_survives() {
        let text: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        let (mut coded, mut plain) = (Vec::new(), Vec::new());
        encode(&text, &mut coded);
        assert_eq!(decode(&coded, &mut plain), Ok(()));
        assert_eq!(plain, text);
    }

    #[test]
    fn padding_and_the_end_symbol_are_checked() {
        for coded in ["ff", "1fff", "fe", "18", "ffffffff", "fffffffc", "1fffffffff", "03fffffffc"] {
            assert!(decode(&hex(coded), &mut Vec::new()).is_err(), "{coded}");
        }
        for (coded, plain) in [("", ""), ("1f", "a"), ("07", "0")] {
            let mut out = Vec::new();
            assert_eq!(decode(&hex(coded), &mut out), Ok(()), "{coded}");
            assert_eq!(out, plain.as_bytes(), "{coded}");
        }
    }
}
