//! A decoded header list in one buffer. Made by [`Decoder`](super::Decoder).

use crate::hop::Field;

/// The bytes before each field: the lengths of its name and its value.
pub(super) const LENGTHS_BYTES: usize = 4;

/// A decoded header list. The buffer is kept from list to list.
#[derive(Clone, Debug, Default)]
pub struct FieldList {
    /// For each field: the lengths of name and value, name and value. So equal bytes are equal lists.
    pub(super) bytes: Vec<u8>,
    pub(super) fields: usize,
    /// The size of the list (RFC 9113 section 6.5.2), whether its fields were kept or not.
    pub(super) counted_bytes: usize,
    pub(super) is_too_large: bool,
}

impl FieldList {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// The names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = Field<'_>> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (lengths, behind) = rest.split_first_chunk::<LENGTHS_BYTES>()?;
            let [name_high, name_low, value_high, value_low] = *lengths;
            let name_bytes = usize::from(u16::from_be_bytes([name_high, name_low]));
            let value_bytes = usize::from(u16::from_be_bytes([value_high, value_low]));
            let (name, behind) = behind.split_at_checked(name_bytes)?;
            let (value, behind) = behind.split_at_checked(value_bytes)?;
            rest = behind;
            Some((name, value))
        })
    }

    /// Bytes that are the same only for the same list. They begin with a byte that begins no request of HTTP/1.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The number of fields that were kept.
    pub fn len(&self) -> usize {
        self.fields
    }

    /// Whether the list has no field.
    pub fn is_empty(&self) -> bool {
        self.fields == 0
    }

    /// Whether the list exceeds its limits; then it is not complete.
    pub fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    /// Empties the list, for the next block.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.fields = 0;
        self.counted_bytes = 0;
        self.is_too_large = false;
    }
}
