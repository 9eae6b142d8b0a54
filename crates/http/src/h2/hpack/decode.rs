//! Decodes header blocks (RFC 7541 sections 3, 5 and 6).

use super::list::LENGTHS_BYTES;
use super::table::Table;
use super::{BadBlock, FIELD_OVERHEAD_BYTES, FieldList, TABLE_BYTES, huffman};

const CUT: BadBlock = BadBlock("The block ends within a field");
const NO_ENTRY: BadBlock = BadBlock("An index has no entry");
const LONG_NUMBER: BadBlock = BadBlock("A number is too large");
const BAD_RESIZE: BadBlock = BadBlock("The table is resized at the wrong place, or beyond its limit");

/// Maximum number of bytes of a number after its first one: enough for 28 bits.
const NUMBER_BYTES_MAX: usize = 4;
/// Maximum number of table sizes at the front of a block: the smallest since the last block, and the last (RFC 7541 section
/// 4.2).
const RESIZES_MAX: usize = 2;

/// The limits of a decoded list.
#[derive(Clone, Copy, Debug)]
pub struct ListLimits {
    /// Bytes, as RFC 9113 section 6.5.2 counts: 32 for each field besides name and value. At most 65,535.
    pub bytes: usize,
    /// Fields.
    pub fields: usize,
}

/// Decodes the header blocks of a connection.
#[derive(Clone, Debug)]
pub struct Decoder {
    table: Table,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder whose table has [`TABLE_BYTES`].
    pub fn new() -> Self {
        Self { table: Table::new(TABLE_BYTES) }
    }

    /// Bytes of the dynamic table, as RFC 7541 section 4.1 counts.
    pub fn table_bytes(&self) -> usize {
        self.table.bytes()
    }

    /// Decodes a whole block into `list`, which is cleared first. A list that exceeds `limits` keeps the fields until then, and
    /// the rest of the block only changes the table.
    ///
    /// # Errors
    /// The block is malformed. The connection cannot continue.
    pub fn decode(&mut self, block: &[u8], limits: ListLimits, list: &mut FieldList) -> Result<(), BadBlock> {
        list.clear();
        let mut rest = block;
        let mut resizes = 0;
        while let Some(&first) = rest.first() {
            match first {
                // RFC 7541 section 6.1.
                0x80.. => {
                    let index = number(&mut rest, 7)?;
                    let (name, value) = self.table.field(index).ok_or(NO_ENTRY)?;
                    if list.admits(name.len() + value.len(), limits) {
                        list.push(name, value);
                    }
                }
                // Section 6.3.
                0x20..=0x3f => {
                    let bytes = number(&mut rest, 5)?;
                    resizes += 1;
                    if list.counted_bytes > 0 || resizes > RESIZES_MAX || bytes > TABLE_BYTES {
                        return Err(BAD_RESIZE);
                    }
                    self.table.resize(bytes);
                }
                // Section 6.2.1.
                0x40..=0x7f => self.literal(&mut rest, 6, limits, list)?,
                // Sections 6.2.2 and 6.2.3.
                0x00..=0x1f => self.literal(&mut rest, 4, limits, list)?,
            }
        }
        Ok(())
    }

    /// Decodes a literal field. Its bytes go to the end of the list, where the table copies them from.
    fn literal(
        &mut self,
        rest: &mut &[u8],
        prefix_bits: u32,
        limits: ListLimits,
        list: &mut FieldList,
    ) -> Result<(), BadBlock> {
        let index = number(rest, prefix_bits)?;
        let start = list.bytes.len();
        list.bytes.extend_from_slice(&[0; LENGTHS_BYTES]);
        if index == 0 {
            string(rest, &mut list.bytes)?;
        } else {
            let (name, _) = self.table.field(index).ok_or(NO_ENTRY)?;
            list.bytes.extend_from_slice(name);
        }
        let name_end = list.bytes.len();
        string(rest, &mut list.bytes)?;
        let (name, value) = list.bytes[start + LENGTHS_BYTES..].split_at(name_end - start - LENGTHS_BYTES);
        let is_indexed = prefix_bits == 6;
        if is_indexed {
            self.table.insert(name, value);
        }
        let (name_bytes, value_bytes) = (name.len(), value.len());
        if list.admits(name_bytes + value_bytes, limits) {
            list.fields += 1;
            list.set_lengths(start, name_bytes, value_bytes);
        } else {
            list.bytes.truncate(start);
        }
        Ok(())
    }
}

impl FieldList {
    /// Counts a field. Returns whether it is to be kept.
    fn admits(&mut self, field_bytes: usize, limits: ListLimits) -> bool {
        self.counted_bytes = self.counted_bytes.saturating_add(field_bytes + FIELD_OVERHEAD_BYTES);
        let bytes_max = limits.bytes.min(usize::from(u16::MAX));
        self.is_too_large |= self.counted_bytes > bytes_max || self.fields >= limits.fields;
        !self.is_too_large
    }

    fn push(&mut self, name: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; LENGTHS_BYTES]);
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.fields += 1;
        self.set_lengths(start, name.len(), value.len());
    }

    fn set_lengths(&mut self, start: usize, name_bytes: usize, value_bytes: usize) {
        // An admitted field is shorter than 64 KiB.
        self.bytes[start..start + 2].copy_from_slice(&(name_bytes as u16).to_be_bytes());
        self.bytes[start + 2..start + LENGTHS_BYTES].copy_from_slice(&(value_bytes as u16).to_be_bytes());
    }
}

/// A number with a prefix of this many bits (RFC 7541 section 5.1).
#[inline]
fn number(rest: &mut &[u8], prefix_bits: u32) -> Result<usize, BadBlock> {
    let (&first, behind) = rest.split_first().ok_or(CUT)?;
    *rest = behind;
    let mask = (1_usize << prefix_bits) - 1;
    let prefix = usize::from(first) & mask;
    if prefix < mask {
        return Ok(prefix);
    }
    let mut number = prefix;
    for at in 0..NUMBER_BYTES_MAX {
        let (&byte, behind) = rest.split_first().ok_or(CUT)?;
        *rest = behind;
        number += usize::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(LONG_NUMBER)
}

/// Appends a string (RFC 7541 section 5.2).
fn string(rest: &mut &[u8], out: &mut Vec<u8>) -> Result<(), BadBlock> {
    let is_coded = rest.first().is_some_and(|byte| byte & 0x80 != 0);
    let length = number(rest, 7)?;
    let (bytes, behind) = rest.split_at_checked(length).ok_or(CUT)?;
    *rest = behind;
    if is_coded {
        return huffman::decode(bytes, out);
    }
    out.extend_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
