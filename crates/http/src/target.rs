//! Paths: from the request target to a safe path, and back (RFC 3986).
//!
//! Called by the engine, and by code that writes links or `Location`. It must not touch a file: `sys` keeps
//! paths from leaving the root through a symbolic link.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

use crate::refusal::refusals;

refusals! {
    /// Why a path was refused.
    BadPath {
        NotAbsolute BAD_REQUEST "The path does not begin with a slash";
        Escape BAD_REQUEST "The path has a malformed percent-escape";
        EncodedSlash BAD_REQUEST "The path has an encoded slash";
        Nul BAD_REQUEST "The path has a NUL";
        AboveRoot BAD_REQUEST "The path leads above the root";
    }
}

/// The meaning of an encoded slash (`%2F`) in a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EncodedSlash {
    /// A slash like any other, as in nginx. Mirrors of npm need it: `/@scope%2Fname`.
    #[default]
    Decode,
    /// An error. By RFC 3986 section 2.2 it can stand for data within a segment, which no file name can
    /// contain; and a proxy that guards paths might not have treated it as a separator.
    Refuse,
}

/// Decodes and normalises the path of a request target, strictly and only once.
///
/// Repeated slashes become one, `.` segments are removed, and `..` removes the segment before it (RFC 3986
/// section 5.2.4, applied after decoding, so that neither `%2e%2e` nor `..%2f` gets around it). The result
/// begins with `/`, and ends with `/` if the path named a directory by a final `/`, `/.` or `/..`. It borrows
/// `raw` if nothing had to change.
///
/// The result can contain every byte that a file name can, including control characters and invalid UTF-8.
/// Code that shows it must escape it; in a head or a link, [`encode_path`] does that.
///
/// # Errors
/// [`BadPath`], which is a 400.
pub fn decode_path(raw: &[u8], encoded_slash: EncodedSlash) -> Result<Cow<'_, [u8]>, BadPath> {
    let [b'/', segments @ ..] = raw else {
        return Err(BadPath::NotAbsolute);
    };
    // Without an early exit and over pairs of neighbours, so that the compiler can process many bytes at a
    // time.
    let special = raw.iter().zip(segments).fold(false, |special, (&before, &byte)| {
        special | (byte == b'%') | (byte == 0) | ((before == b'/') & ((byte == b'/') | (byte == b'.')))
    });
    if special {
        return decode_segments(segments, encoded_slash).map(Cow::Owned);
    }
    Ok(Cow::Borrowed(raw))
}

/// Whether every server reads a path in the same way, as most paths: then [`has_dot_segment`] is false, and there are no
/// [`readings`].
pub fn is_plain(path: &[u8]) -> bool {
    let is_pair = |pair: &[u8]| matches!(pair, b"//" | b"/.");
    !path.iter().any(|byte| matches!(byte, b'%' | b'\\')) && !path.windows(2).any(is_pair)
}

/// Whether a server could take a segment of a path for `.` or `..`: as it is, encoded, between encoded slashes or
/// backslashes, or followed by parameters (`..;x`), which some servers remove first. `path` is one that [`decode_path`]
/// accepts.
pub fn has_dot_segment(path: &[u8]) -> bool {
    let decoded: Vec<u8> = percent_decode(path).collect();
    decoded.split(|byte| matches!(byte, b'/' | b'\\')).any(|segment| {
        let name = segment.split(|byte| *byte == b';').next();
        matches!(name, Some(b"." | b".."))
    })
}

/// Other ways than that of [`decode_path`] in which a server could read a path without dot segments: with an encoded slash
/// as data and repeated slashes kept, and with backslashes as slashes. None if all read it in the same way. `path` is one
/// that [`decode_path`] accepts.
pub fn readings(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let has_data = path.contains(&b'%') || path.windows(2).any(|pair| pair == b"//");
    let as_data = || {
        let mut pieces = path.split(|byte| *byte == b'%');
        let mut reading = pieces.next().unwrap_or_default().to_vec();
        for piece in pieces {
            match piece {
                [b'2', b'f' | b'F', ..] => reading.extend([&b"%"[..], piece].concat()),
                _ => reading.extend(percent_decode(&[&b"%"[..], piece].concat())),
            }
        }
        reading
    };
    let decoded: Vec<u8> = percent_decode(path).collect();
    let has_backslash = decoded.contains(&b'\\');
    let as_slashes = || decoded.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect();
    let readings = [has_data.then(as_data), has_backslash.then(as_slashes)];
    readings.into_iter().flatten()
}

/// The general case of [`decode_path`], after the first slash.
fn decode_segments(segments: &[u8], encoded_slash: EncodedSlash) -> Result<Vec<u8>, BadPath> {
    let mut path = Vec::with_capacity(segments.len() + 1);
    path.push(b'/');
    let mut segment_start = path.len();
    let mut rest = segments;
    while let Some((byte, is_encoded)) = decode_next(&mut rest)? {
        match byte {
            0 => return Err(BadPath::Nul),
            b'/' if is_encoded && encoded_slash == EncodedSlash::Refuse => return Err(BadPath::EncodedSlash),
            b'/' => {
                end_segment(&mut path, segment_start, false)?;
                segment_start = path.len();
            }
            _ => path.push(byte),
        }
    }
    end_segment(&mut path, segment_start, true)?;
    Ok(path)
}

/// Decodes every escape of a path, once and strictly.
///
/// # Errors
/// An escape without two hexadecimal digits.
pub fn unescape(raw: &[u8]) -> Result<Vec<u8>, BadPath> {
    let mut path = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((byte, _)) = decode_next(&mut rest)? {
        path.push(byte);
    }
    Ok(path)
}

/// Takes the next byte of a path, and whether it was escaped; None at the end.
fn decode_next(rest: &mut &[u8]) -> Result<Option<(u8, bool)>, BadPath> {
    let (byte, is_encoded, after) = match **rest {
        [] => return Ok(None),
        [b'%', high, low, ref after @ ..] => ((hex_value(high)? << 4) | hex_value(low)?, true, after),
        [b'%', ..] => return Err(BadPath::Escape),
        [byte, ref after @ ..] => (byte, false, after),
    };
    *rest = after;
    Ok(Some((byte, is_encoded)))
}

/// Removes the decoded segment that begins at `start` if it is empty, `.` or `..`. Before and after the call,
/// `path` is normalised and ends with a slash, except after the last name (`is_last`).
fn end_segment(path: &mut Vec<u8>, start: usize, is_last: bool) -> Result<(), BadPath> {
    match &path[start..] {
        b"" => {}
        b"." => path.truncate(start),
        b".." => {
            path.truncate(start - 1);
            let parent = memchr::memrchr(b'/', path).ok_or(BadPath::AboveRoot)?;
            path.truncate(parent + 1);
        }
        _ if is_last => {}
        _ => path.push(b'/'),
    }
    Ok(())
}

fn hex_value(digit: u8) -> Result<u8, BadPath> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(BadPath::Escape),
    }
}

/// Whether a path from [`decode_path`] is hidden: a segment begins with `.`, except `.well-known` (RFC 8615)
/// directly under the root.
pub fn is_hidden(path: &[u8]) -> bool {
    let mut segments = path.strip_prefix(b"/").unwrap_or(path).split(|&byte| byte == b'/');
    let first = segments.next().unwrap_or_default();
    (first.starts_with(b".") && first != b".well-known") || segments.any(|segment| segment.starts_with(b"."))
}

/// Characters that are not encoded in a link: unreserved ones, `/`, and delimiters without a meaning in a
/// path or in HTML. `:` is encoded, so that the start of a relative link cannot look like a scheme.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/')
    .remove(b'!')
    .remove(b'$')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b'=')
    .remove(b'@');

/// Percent-encodes a decoded path, or a part of one, for `Location` and for links.
///
/// The result is ASCII without quotes. It never begins with `//`, which a client would read as a host (RFC
/// 3986 section 4.2): leading slashes become one.
pub fn encode_path(path: &[u8]) -> String {
    let slashes = path.iter().take_while(|&&byte| byte == b'/').count();
    percent_encode(&path[slashes.saturating_sub(1)..], KEPT).collect()
}

/// Characters that are not encoded in the value of a parameter: none of them separates parameters, or stands for a space.
const KEPT_IN_VALUES: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Percent-encodes a text as the value of a parameter of a query.
pub fn encode_value(text: &[u8]) -> String {
    percent_encode(text, KEPT_IN_VALUES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_value_adds_no_parameter() {
        assert_eq!(encode_value(b"a/b-c.d_e~1"), "a/b-c.d_e~1");
        assert_eq!(encode_value(b"1&a=b;c+d #?%\xff"), "1%26a%3Db%3Bc%2Bd%20%23%3F%25%FF");
    }

    fn decoded(raw: &str) -> Result<String, BadPath> {
        decoded_with(raw, EncodedSlash::Decode)
    }

    fn decoded_with(raw: &str, encoded_slash: EncodedSlash) -> Result<String, BadPath> {
        let path = decode_path(raw.as_bytes(), encoded_slash);
        path.map(|path| String::from_utf8(path.into_owned()).unwrap())
    }

    #[test]
    fn plain_paths_are_borrowed() {
        for raw in ["/", "/a", "/a/", "/a.b/c..d/e.", "/a/b-c_d~e!$&'()*+,;=:@"] {
            let path = decode_path(raw.as_bytes(), EncodedSlash::Decode);
            assert!(matches!(path, Ok(Cow::Borrowed(path)) if path == raw.as_bytes()));
        }
    }

    #[test]
    fn paths_are_decoded_once_and_normalised() {
        for (raw, expected) in [
            ("/a%20b", "/a b"),
            ("/%61%2e%2E", "/a.."),
            ("/%252e%252e/", "/%2e%2e/"),
            ("//a///b//", "/a/b/"),
            ("/./a/./b/.", "/a/b/"),
            ("/a/b/..", "/a/"),
            ("/a/b/../", "/a/"),
            ("/a/../b", "/b"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/.%2e", "/"),
            ("/a/%2e", "/a/"),
            ("/a//../b", "/b"),
            ("/a/.../b", "/a/.../b"),
            ("/.hidden", "/.hidden"),
            ("/..a/b", "/..a/b"),
            ("/%C3%A9", "/é"),
            ("/a%3Fb%23c%5C", "/a?b#c\\"),
            ("/%01a", "/\u{1}a"),
            ("/a%0Ab", "/a\nb"),
            ("/%0D%0AX:y", "/\r\nX:y"),
            ("/%7f/%1B[2J", "/\u{7f}/\u{1b}[2J"),
            ("/.", "/"),
            ("//", "/"),
        ] {
            assert_eq!(decoded(raw).as_deref(), Ok(expected), "{raw}");
        }
    }

    #[test]
    fn bad_paths_are_refused() {
        use BadPath::*;
        for (raw, expected) in [
            ("", NotAbsolute),
            ("*", NotAbsolute),
            ("a/b", NotAbsolute),
            ("/..", AboveRoot),
            ("/../", AboveRoot),
            ("/a/../..", AboveRoot),
            ("/a/../../a", AboveRoot),
            ("/a/%2e%2e/%2e%2e/etc/passwd", AboveRoot),
            ("/./..", AboveRoot),
            ("//..", AboveRoot),
            ("/..%2f..%2fetc", AboveRoot),
            ("/a/..%2F..", AboveRoot),
            ("/%2E%2E%2Fetc", AboveRoot),
            ("/a%2F%2e%2e%2F%2E./b", AboveRoot),
            ("/%2F..", AboveRoot),
            ("/a%00", Nul),
            ("/%00/..", Nul),
            ("/a\0", Nul),
            ("/./\0", Nul),
            ("/%", Escape),
            ("/%2", Escape),
            ("/%/a", Escape),
            ("/%2/a", Escape),
            ("/%zz", Escape),
            ("/%+1", Escape),
            ("/%u0041", Escape),
        ] {
            assert_eq!(decoded(raw), Err(expected), "{raw:?}");
        }
    }

    #[test]
    fn an_encoded_slash_separates_or_is_refused() {
        for (raw, expected) in [
            ("/a%2Fb", "/a/b"),
            ("/@scope%2fname", "/@scope/name"),
            ("/%2F", "/"),
            ("/a%2F", "/a/"),
            ("/a%2F/%2f%2Fb", "/a/b"),
            ("/a%2F.", "/a/"),
            ("/a%2F.%2Fb", "/a/b"),
            ("/a%2F..%2Fb", "/b"),
            ("/a/b%2F%2e%2E", "/a/"),
            ("/a%2F.hidden", "/a/.hidden"),
            // Decoded only once.
            ("/a%252Fb", "/a%2Fb"),
        ] {
            assert_eq!(decoded(raw).as_deref(), Ok(expected), "{raw}");
            let refused = (!raw.contains("%25")).then_some(BadPath::EncodedSlash);
            assert_eq!(decoded_with(raw, EncodedSlash::Refuse).err(), refused, "{raw}");
        }
        assert_eq!(decoded_with("/a/./b", EncodedSlash::Refuse).as_deref(), Ok("/a/b"));
        assert_eq!(decoded_with("/..%2Fetc", EncodedSlash::Refuse), Err(BadPath::EncodedSlash));
        assert!(is_hidden(decoded("/a%2F.hidden").unwrap().as_bytes()));
        assert!(is_hidden(decoded("/%2F%2Ehidden%2Fx").unwrap().as_bytes()));
        assert!(is_hidden(decoded("/.well-known%2F.x").unwrap().as_bytes()));
    }

    #[test]
    fn paths_that_servers_can_read_differently() {
        for path in ["/a/./b", "/..", "/a/%2e%2E", "/a%2f..", "/a\\..\\b", "/a%5C.%2Fb", "/a/..;x=1/b", "/.;"]
        {
            assert!(has_dot_segment(path.as_bytes()) && !is_plain(path.as_bytes()), "{path}");
        }
        for (path, others) in [
            ("/a/b.c", &[][..]),
            ("/a/...", &[]),
            ("/a%2Fb%20c", &["/a%2Fb c"]),
            ("/a%2fb%252Fc", &["/a%2fb%2Fc"]),
            ("//a//b", &["//a//b"]),
            ("/a\\b", &["/a/b"]),
            ("/a%5Cb%2F", &["/a\\b%2F", "/a/b/"]),
        ] {
            assert!(!has_dot_segment(path.as_bytes()), "{path}");
            let found: Vec<String> =
                readings(path.as_bytes()).map(|path| String::from_utf8(path).unwrap()).collect();
            assert_eq!(found, others, "{path}");
            assert!(!others.is_empty() <= !is_plain(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn names_need_not_be_text() {
        let decoded = |raw| decode_path(raw, EncodedSlash::Decode).map(Cow::into_owned);
        assert_eq!(decoded(b"/%FF").as_deref(), Ok(&b"/\xff"[..]));
        assert_eq!(decoded(b"/%80/%c0%af").as_deref(), Ok(&b"/\x80/\xc0\xaf"[..]));
    }

    #[test]
    fn hidden_paths() {
        for path in ["/.a", "/a/.b/c", "/a/.well-known", "/.well-known2", "/.well-known/.x", "/.Well-known"] {
            assert!(is_hidden(path.as_bytes()), "{path}");
        }
        for path in ["/", "/a", "/a./b.c", "/.well-known", "/.well-known/acme", ""] {
            assert!(!is_hidden(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn encoded_paths() {
        assert_eq!(
            encode_path(b"/a b/\xc3\xa9?#%\"'<>&:;\\"),
            "/a%20b/%C3%A9%3F%23%25%22%27%3C%3E%26%3A%3B%5C"
        );
        assert_eq!(encode_path(b"/a-b_c~d.e/"), "/a-b_c~d.e/");
        assert_eq!(encode_path(b"//evil.example/"), "/evil.example/");
        assert_eq!(encode_path(b"///"), "/");
        assert_eq!(encode_path(b"/\\evil"), "/%5Cevil");
        assert_eq!(encode_path(b"a b"), "a%20b");
        assert_eq!(encode_path(b"/\r\nX: y\0\x7f\x80\xff"), "/%0D%0AX%3A%20y%00%7F%80%FF");
        assert_eq!(encode_path(b""), "");
    }

    /// Generates text with many of the characters that `decode_path` treats specially.
    fn tricky() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"/".to_vec()),
            Just(b".".to_vec()),
            Just(b"..".to_vec()),
            Just(b"%2e".to_vec()),
            Just(b"%2F".to_vec()),
            Just(b"a".to_vec()),
            Just(b"%".to_vec()),
            Just(b"%41".to_vec()),
            proptest::collection::vec(any::<u8>(), 0..3),
        ];
        proptest::collection::vec(piece, 0..24)
            .prop_map(|pieces| [b"/".as_slice(), &pieces.concat()].concat())
    }

    proptest! {
        #[test]
        fn decoded_paths_are_safe(raw in tricky(), refuse: bool) {
            let encoded_slash = if refuse { EncodedSlash::Refuse } else { EncodedSlash::Decode };
            if let Ok(path) = decode_path(&raw, encoded_slash) {
                prop_assert!(path.starts_with(b"/"));
                prop_assert!(!path.windows(2).any(|pair| pair == b"//"));
                prop_assert!(!path.contains(&0));
                prop_assert!(path.len() <= raw.len());
                for segment in path.split(|&byte| byte == b'/') {
                    prop_assert!(segment != b"." && segment != b"..");
                }
            }
        }

        #[test]
        fn encoding_is_undone_by_decoding(raw in tricky()) {
            if let Ok(path) = decode_path(&raw, EncodedSlash::Decode) {
                let encoded = encode_path(&path);
                prop_assert!(encoded.is_ascii() && !encoded.contains(['"', '\'', '<', '&', ' ']));
                let again = decode_path(encoded.as_bytes(), EncodedSlash::Refuse);
                prop_assert_eq!(again.as_deref(), Ok(path.as_ref()));
            }
        }

        #[test]
        fn no_link_leads_to_a_host(path in proptest::collection::vec(any::<u8>(), 0..20)) {
            let encoded = encode_path(&path);
            prop_assert!(!encoded.starts_with("//"));
            let _ = decode_path(&path, EncodedSlash::Decode);
            let _ = is_hidden(&path);
        }
    }
}
