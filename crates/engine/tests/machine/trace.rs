//! Records a run as one hash and, if wanted, as text. Two identical runs have the same hash.

/// Bytes of a long text that are hashed: this many at both ends, and one in every `STRIDE_BYTES` between.
const ENDS_BYTES: usize = 24;
const STRIDE_BYTES: usize = 4_093;

/// Every event and every call of the engine so far.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    /// Print each event as it happens.
    pub(crate) print: bool,
}

impl Trace {
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Records an event and its numbers.
    pub(crate) fn note(&mut self, what: &str, numbers: &[u64]) {
        self.mix(what.len() as u64);
        numbers.iter().for_each(|number| self.mix(*number));
        if self.print {
            println!("    {what} {numbers:?}");
        }
    }

    fn mix(&mut self, number: u64) {
        self.hash = (self.hash.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

/// A hash of the length and a part of the bytes.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let ends = bytes.iter().take(ENDS_BYTES).chain(bytes.iter().rev().take(ENDS_BYTES));
    let mut hash = bytes.len() as u64;
    for byte in ends.chain(bytes.iter().step_by(STRIDE_BYTES)) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash
}
