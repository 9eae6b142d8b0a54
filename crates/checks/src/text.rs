//! Cutting up inputs and field values, for the other modules. It may not use what it helps to check.

/// The first line, and what follows it; inputs carry their parameters there to stay readable.
pub(crate) fn split_line(input: &[u8]) -> (&[u8], &[u8]) {
    match input.iter().position(|&byte| byte == b'\n') {
        Some(end) => (&input[..end], &input[end + 1..]),
        None => (input, &[]),
    }
}

/// A number in decimal digits, with a sign or without.
pub(crate) fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Without optional whitespace (RFC 9110 section 5.6.3) at both ends.
pub(crate) fn trim_blanks(text: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = text.iter().position(|byte| !is_blank(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
    &text[start..end]
}

/// The elements of a list, the empty ones too.
pub(crate) fn elements(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|&byte| byte == b',').map(trim_blanks)
}

/// Whether this could be a field's value (RFC 9110 section 5.5), which is all that the readers of
/// values are ever given.
pub(crate) fn is_field_value(text: &[u8]) -> bool {
    text == trim_blanks(text) && text.iter().all(|&byte| byte == b'\t' || !byte.is_ascii_control())
}

/// `tchar` of RFC 9110 section 5.6.2.
pub(crate) fn is_token(text: &[u8]) -> bool {
    !text.is_empty()
        && text.iter().all(|byte| match byte {
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`'
            | b'|' | b'~' => true,
            _ => byte.is_ascii_alphanumeric(),
        })
}

/// Where pieces of the input end, in order: places that follow from its bytes alone, so that a failure
/// repeats.
pub(crate) fn cuts(input: &[u8]) -> Vec<usize> {
    let mut state = input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let mut cuts = Vec::new();
    let mut at = 0;
    while at < input.len() {
        cuts.push(at);
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        at += 1 + (state % 9) as usize;
    }
    cuts.push(input.len());
    cuts
}
