//! Compressed forms of files. The store keeps each as one block beside the blocks of its file, so it belongs to the same
//! state of the file. Used by the handlers, and by the machine, which makes and finds such blocks.

use flash_http::negotiate::Coding;

use crate::limits::COMPRESSED_BYTES_MAX;

/// The block of a form that would be no shorter than its file. It has no form: every form has more bytes.
pub const NO_FORM: &[u8] = &[0];

/// The number of the block that holds a file compressed in this coding.
#[must_use]
pub fn block_of_form(coding: Coding) -> u64 {
    u64::from(u32::MAX) - coding.place() as u64
}

/// The coding in which a block holds a file of this length. None for a block of the file itself.
#[must_use]
pub fn form_of_block(size_bytes: u64, block: u64) -> Option<Coding> {
    let is_compressed = size_bytes <= COMPRESSED_BYTES_MAX;
    Coding::ALL.into_iter().find(|coding| is_compressed && block_of_form(*coding) == block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LOAD_BYTES;

    #[test]
    fn a_form_has_a_block_of_its_own() {
        for coding in Coding::ALL {
            let block = block_of_form(coding);
            assert_eq!(form_of_block(COMPRESSED_BYTES_MAX, block), Some(coding));
            assert_eq!(form_of_block(COMPRESSED_BYTES_MAX + 1, block), None, "a block of a very long file");
            assert!(u32::try_from(block).is_ok(), "the table of blocks has room for the number");
        }
        assert_eq!(form_of_block(COMPRESSED_BYTES_MAX, COMPRESSED_BYTES_MAX / LOAD_BYTES - 1), None);
    }
}
