//! Tests of the decoder: the examples of RFC 7541 appendix C, and hostile blocks.

use super::*;

const LIMITS: ListLimits = ListLimits { bytes: 32 * 1024, fields: 100 };

fn hex(text: &str) -> Vec<u8> {
    let text: String = text.split_whitespace().collect();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("a byte")).collect()
}

fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<String, BadBlock> {
    let mut list = FieldList::new();
    decoder.decode(block, LIMITS, &mut list)?;
    let lines =
        list.iter().map(|(name, value)| format!("{}: {}\n", name.escape_ascii(), value.escape_ascii()));
    Ok(lines.collect())
}

#[test]
fn the_requests_of_the_rfc() {
    for blocks in [
        // Appendix C.3, and C.4 with the Huffman code.
        [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ],
        [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ],
    ] {
        let mut decoder = Decoder::new();
        let texts = blocks.map(|block| decoded(&mut decoder, &hex(block)).expect("a valid block"));
        assert_eq!(texts[0], ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n");
        assert_eq!(
            texts[1],
            ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache\n"
        );
        assert_eq!(
            texts[2],
            ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value\n"
        );
        assert_eq!(decoder.table_bytes(), 164);
    }
}

#[test]
fn malformed_blocks_are_refused() {
    for (block, why) in [
        ("80", "index 0"),
        ("be", "an index behind the table"),
        ("ff ff ff ff ff 7f", "a long number"),
        ("ff ff ff ff ff ff ff ff ff 01", "a longer number"),
        ("41", "a literal without a value"),
        ("40 01", "a name that is cut"),
        ("40 01 61 05 61", "a value that is cut"),
        ("00 81", "a coded name that is cut"),
        ("82 20", "a resize after a field"),
        ("20 20 20", "too many resizes"),
        ("3f e2 1f", "a table of more than 4,096 bytes"),
        ("00 01 61 81 ff", "bad padding"),
    ] {
        assert!(decoded(&mut Decoder::new(), &hex(block)).is_err(), "{why}");
    }
    assert!(decoded(&mut Decoder::new(), &hex("3f e1 1f 82")).is_ok());
}

#[test]
fn a_bomb_expands_to_no_more_than_the_limit() {
    let mut decoder = Decoder::new();
    // One large field, then 16,000 references to it: 64 MB as a list.
    let mut block = hex("40 01 61 7f 80 1e");
    block.extend_from_slice(&[b'x'; 127 + 30 * 128]);
    block.extend_from_slice(&[0xbe; 16_000]);
    let mut list = FieldList::new();
    assert_eq!(decoder.decode(&block, LIMITS, &mut list), Ok(()));
    assert!(list.is_too_large());
    assert!(list.as_bytes().len() <= LIMITS.bytes);
    assert!(decoder.table_bytes() <= TABLE_BYTES);
    // The table is still that of the client.
    assert!(decoded(&mut decoder, &[0xbe]).is_ok_and(|text| text.len() > 3900));
}

#[test]
fn a_list_has_a_bounded_number_of_fields() {
    let mut list = FieldList::new();
    let block = [0x82; 101];
    assert_eq!(Decoder::new().decode(&block[..100], LIMITS, &mut list), Ok(()));
    assert!(!list.is_too_large());
    assert_eq!(list.len(), 100);
    assert_eq!(Decoder::new().decode(&block, LIMITS, &mut list), Ok(()));
    assert!(list.is_too_large());
}

#[test]
fn an_entry_larger_than_the_table_empties_it() {
    let mut decoder = Decoder::new();
    let mut block = hex("41 01 61 40 01 61 7f 81 1f");
    block.extend_from_slice(&[b'x'; 4096]);
    assert!(decoded(&mut decoder, &block).is_ok());
    assert_eq!(decoder.table_bytes(), 0);
    assert!(decoded(&mut decoder, &[0xbe]).is_err());
}
