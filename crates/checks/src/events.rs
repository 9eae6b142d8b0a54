//! Events of the kernel about changes in directories: what holds for each kind of them.

/// Checks `input`, which `decode` reads as `describe` does: bytes that are cut off have the same events as far as they go.
pub(crate) fn events(
    input: &[u8],
    decode: impl Fn(&[u8]) -> Vec<String>,
    describe: impl Fn(&[u8]) -> Vec<String>,
) {
    let whole = decode(input);
    assert_eq!(whole, describe(input));
    for length in [0, input.len() / 2, input.len().saturating_sub(1)] {
        let begun = decode(&input[..length]);
        assert_eq!(begun[..], whole[..begun.len()], "cut off after {length} bytes");
    }
}
