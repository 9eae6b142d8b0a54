//! Splits inputs and field values, for the other modules. It must not use the code that it helps to check.

/// Splits off the first line, in which inputs have their parameters so that they stay readable.
pub(crate) fn split_line(input: &[u8]) -> (&[u8], &[u8]) {
    match input.iter().position(|&byte| byte == b'\n') {
        Some(end) => (&input[..end], &input[end + 1..]),
        None => (input, &[]),
    }
}

/// Parses a decimal number, with or without a sign.
pub(crate) fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Removes optional whitespace (RFC 9110 section 5.6.3) at both ends.
pub(crate) fn trim_blanks(text: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = text.iter().position(|byte| !is_blank(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
    &text[start..end]
}

/// The elements of a list, including empty ones.
pub(crate) fn elements(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|&byte| byte == b',').map(trim_blanks)
}

/// Whether this can be the value of a field (RFC 9110 section 5.5). Parsers of values get only such bytes.
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

/// The name and the value of a field line.
pub(crate) fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let (name, value) = (&line[..colon], trim_blanks(&line[colon + 1..]));
    (is_token(name) && is_field_value(value)).then_some((name, value))
}

/// Lengths of prefixes to try: some all over the input, and those around `end`. Their number is bounded, and so are their bytes
/// in total.
pub(crate) fn prefixes(input: &[u8], end: usize) -> impl Iterator<Item = usize> {
    const PREFIXES_MAX: usize = 48;
    const PREFIX_BYTES_MAX: usize = 64 * 1024;
    let count = (PREFIX_BYTES_MAX / (input.len() + 1)).min(PREFIXES_MAX);
    let step = input.len() / (count + 1) + 1;
    let around_end = end.saturating_sub(8).min(input.len())..(end + 8).min(input.len());
    (0..input.len()).step_by(step).chain(around_end)
}

/// Where pieces of the input end, in order. The places depend only on the bytes, so that a failure can be
/// repeated.
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
