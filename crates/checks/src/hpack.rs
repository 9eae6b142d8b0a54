//! Header compression: `flash_http::h2::hpack` agrees with a plain decoder (RFC 7541), stays within its limits, and
//! encodes what it decodes.

use flash_http::h2::{Decoder, Encoder, FieldList, Indexing, ListLimits};

const LIMITS: ListLimits = ListLimits { bytes: 8 * 1024, fields: 50 };
const TIGHT: ListLimits = ListLimits { bytes: 100, fields: 3 };
const TABLE_BYTES: usize = 4096;

type Field = (Vec<u8>, Vec<u8>);

/// Checks `input`: blocks of one connection, each with its length in two bytes before it.
pub fn hpack(input: &[u8]) {
    let (mut decoder, mut tight, mut list) = (Decoder::new(), Decoder::new(), FieldList::new());
    let (mut encoder, mut again) = (Encoder::new(), Decoder::new());
    let mut plain = Plain::default();
    let mut rest = input;
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(behind.len());
        let (block, behind) = behind.split_at(length);
        rest = behind;
        let decoded = decoder.decode(block, LIMITS, &mut list);
        let expected = plain.decode(block);
        assert_eq!(decoded.is_ok(), expected.is_some(), "{decoded:?}");
        assert!(decoder.table_bytes() <= TABLE_BYTES);
        assert_eq!(tight.decode(block, TIGHT, &mut FieldList::new()), decoded);
        assert_eq!(tight.table_bytes(), decoder.table_bytes(), "limits of lists do not change the table");
        let Some(expected) = expected else { return };
        let fields = owned(&list);
        if list.is_too_large() {
            assert!(counted_bytes(&expected) > LIMITS.bytes || expected.len() > LIMITS.fields);
            assert!(expected.starts_with(&fields) && fields.len() <= LIMITS.fields);
            assert!(counted_bytes(&fields) <= LIMITS.bytes);
            continue;
        }
        assert_eq!(fields, expected);
        check_encoding(&mut encoder, &mut again, &fields);
    }
}

/// Encodes the fields for the same client that got those before.
fn check_encoding(encoder: &mut Encoder, decoder: &mut Decoder, fields: &[Field]) {
    let mut block = Vec::new();
    encoder.begin(&mut block, 200);
    for (at, (name, value)) in fields.iter().enumerate() {
        let indexing = [Indexing::Shared, Indexing::Own, Indexing::Never][at % 3];
        encoder.field(&mut block, name, value, indexing);
    }
    if let Some((name, _)) = fields.first() {
        encoder.resize(name.len() * 50);
    }
    let mut list = FieldList::new();
    let limits = ListLimits { bytes: 65_535, fields: 100 };
    decoder.decode(&block, limits, &mut list).expect("an encoded block is valid");
    let mut expected = vec![(b":status".to_vec(), b"200".to_vec())];
    expected.extend_from_slice(fields);
    assert_eq!(owned(&list), expected);
}

fn owned(list: &FieldList) -> Vec<Field> {
    list.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

fn counted_bytes(fields: &[Field]) -> usize {
    fields.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
}

/// A plain decoder, which takes its static table and the Huffman code from single fields that the other one decodes.
#[derive(Default)]
struct Plain {
    /// The newest first.
    table: Vec<Field>,
    resized_bytes: Option<usize>,
}

impl Plain {
    fn decode(&mut self, block: &[u8]) -> Option<Vec<Field>> {
        let (mut bytes, mut fields, mut resizes) = (block.iter().copied().peekable(), Vec::new(), 0);
        while let Some(&first) = bytes.peek() {
            if first >= 128 {
                let index = number(&mut bytes, 7)?;
                fields.push(self.field(index)?);
            } else if (32..64).contains(&first) {
                let size = number(&mut bytes, 5)?;
                resizes += 1;
                if !fields.is_empty() || size > TABLE_BYTES || resizes > 2 {
                    return None;
                }
                self.resized_bytes = Some(size);
                self.shrink();
            } else {
                let is_added = first >= 64;
                let name = match number(&mut bytes, if is_added { 6 } else { 4 })? {
                    0 => string(&mut bytes)?,
                    index => self.field(index)?.0,
                };
                let field = (name, string(&mut bytes)?);
                fields.push(field.clone());
                if is_added {
                    self.table.insert(0, field);
                    self.shrink();
                }
            }
        }
        Some(fields)
    }

    fn shrink(&mut self) {
        while counted_bytes(&self.table) > self.resized_bytes.unwrap_or(TABLE_BYTES) {
            self.table.pop();
        }
    }

    fn field(&self, index: usize) -> Option<Field> {
        match index {
            0 => None,
            1..=61 => one_field(&[0x80 | index as u8]),
            _ => self.table.get(index - 62).cloned(),
        }
    }
}

fn one_field(block: &[u8]) -> Option<Field> {
    let mut list = FieldList::new();
    let limits = ListLimits { bytes: 65_535, fields: 1 };
    Decoder::new().decode(block, limits, &mut list).ok()?;
    owned(&list).pop()
}

fn number(bytes: &mut impl Iterator<Item = u8>, prefix_bits: u32) -> Option<usize> {
    let most = 2_usize.pow(prefix_bits) - 1;
    let mut number = usize::from(bytes.next()?) % (most + 1);
    if number < most {
        return Some(number);
    }
    let mut factor = 1;
    // Flash refuses numbers of more than five bytes.
    for _ in 0..4 {
        let byte = usize::from(bytes.next()?);
        number += byte % 128 * factor;
        factor *= 128;
        if byte < 128 {
            return Some(number);
        }
    }
    None
}

fn string(bytes: &mut std::iter::Peekable<impl Iterator<Item = u8>>) -> Option<Vec<u8>> {
    let is_coded = *bytes.peek()? >= 128;
    let length = number(bytes, 7)?;
    let mut text = Vec::new();
    for _ in 0..length {
        text.push(bytes.next()?);
    }
    if !is_coded {
        return Some(text);
    }
    let mut block = vec![0, 1, b'a'];
    let length = text.len();
    if length < 127 {
        block.push(0x80 | length as u8);
    } else {
        block.push(0xff);
        let mut rest = length - 127;
        while rest >= 128 {
            block.push(rest as u8 | 0x80);
            rest /= 128;
        }
        block.push(rest as u8);
    }
    block.extend_from_slice(&text);
    Some(one_field(&block)?.1)
}
