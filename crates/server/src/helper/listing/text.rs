//! Names as texts for people. Pure.

/// A character as it is shown: none can act on a page or a terminal, or change the direction of its neighbours (Unicode's
/// Bidi_Control, UAX #9), which makes a name look like another one.
pub(super) fn shown(character: char) -> char {
    let turns = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    if character.is_control() || turns { char::REPLACEMENT_CHARACTER } else { character }
}

/// A name as text. Invalid UTF-8 is replaced.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().map(shown).collect()
}

/// Text in HTML that may go on in the next line after a separator: browsers would otherwise break a long name inside
/// a word, or not at all. A character reference contains no separator.
pub(super) fn breakable(html: &str) -> String {
    let mut text = String::with_capacity(html.len() + 40);
    for part in html.split_inclusive(['.', '-', '_', '+', '~', '/']) {
        if !text.is_empty() {
            text.push_str("<wbr>");
        }
        text.push_str(part);
    }
    text
}

/// A size in the unit in which it is short.
pub(super) fn size_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_break_at_their_separators() {
        assert_eq!(
            breakable("libc6_2.36-9~x_&amp;.deb"),
            "libc6_<wbr>2.<wbr>36-<wbr>9~<wbr>x_<wbr>&amp;.<wbr>deb"
        );
        assert_eq!(breakable("/a/"), "/<wbr>a/");
        assert_eq!(breakable(""), "");
    }

    #[test]
    fn no_character_acts() {
        assert_eq!(text(b"a\tb\x7f\xff"), "a\u{fffd}b\u{fffd}\u{fffd}");
        assert_eq!(text("\u{202e}gpj.exe\u{200f}\u{2069}".as_bytes()), "\u{fffd}gpj.exe\u{fffd}\u{fffd}");
        assert_eq!(text("\u{5d0}\u{e9}\u{1f600}".as_bytes()), "\u{5d0}\u{e9}\u{1f600}");
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1 << 20, "1.0 MiB"),
            (3 << 30, "3.0 GiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(size_text(bytes), text);
        }
    }
}
