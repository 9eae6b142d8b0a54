//! Paths: `flash_http::target` agrees with RFC 3986 section 5.2.4 applied segment by segment. Its results
//! stay under the root and survive conversion to a link.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use flash_http::target::{encode_path, is_hidden};
use flash_http::{EncodedSlash, decode_path};

/// Checks `input`, the path of a request target, still encoded.
pub fn path(input: &[u8]) {
    link(input);
    for encoded_slash in [EncodedSlash::Decode, EncodedSlash::Refuse] {
        let found = decode_path(input, encoded_slash);
        assert_eq!(found.as_deref().ok(), expected(input, encoded_slash).as_deref(), "{found:?}");
        if let Ok(path) = found {
            let is_plain =
                !input.contains(&b'%') && !input.windows(2).any(|two| two == b"//" || two == b"/.");
            assert!(matches!(path, Cow::Borrowed(_)) || !is_plain, "a path without changes was copied");
            safe(input, &path);
        }
    }
}

/// The properties of every decoded path.
fn safe(input: &[u8], path: &[u8]) {
    assert!(path.len() <= input.len());

    // The file system must see only names, each of them under the root.
    let relative = path.strip_prefix(b"/").expect("a decoded path is absolute");
    assert!(!path.contains(&0));
    let names: Vec<&[u8]> = Path::new(OsStr::from_bytes(relative))
        .components()
        .map(|component| match component {
            Component::Normal(name) => name.as_bytes(),
            other => panic!("{other:?} in a path"),
        })
        .collect();
    let mut spelt = [b"/", names.join(&b"/"[..]).as_slice()].concat();
    if path.ends_with(b"/") && path.len() > 1 {
        spelt.push(b'/');
    }
    assert_eq!(spelt, path, "the path has an extra slash");

    let hides =
        |(at, name): (usize, &&[u8])| name.starts_with(b".") && !(at == 0 && **name == *b".well-known");
    assert_eq!(is_hidden(path), names.iter().enumerate().any(hides));
    let link = encode_path(path);
    assert_eq!(decode_path(link.as_bytes(), EncodedSlash::Refuse).as_deref(), Ok(path), "as a link");
}

/// A link leads only to a path of this server, and needs no escapes in HTML or in a head.
fn link(path: &[u8]) {
    let link = encode_path(path);
    assert!(!link.starts_with("//"));
    assert!(link.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"%-._~/!$()*+,=@".contains(&byte)));
}

fn expected(raw: &[u8], encoded_slash: EncodedSlash) -> Option<Vec<u8>> {
    let holds_slash = |segment: &[u8]| unescape(segment).is_none_or(|name| name.contains(&b'/'));
    if encoded_slash == EncodedSlash::Refuse && raw.split(|&byte| byte == b'/').any(holds_slash) {
        return None;
    }
    let unescaped = unescape(raw.strip_prefix(b"/")?)?;
    let mut segments = unescaped.split(|&byte| byte == b'/').peekable();
    let mut names: Vec<&[u8]> = Vec::new();
    let mut directory = true;
    while let Some(name) = segments.next() {
        directory = segments.peek().is_none() && matches!(name, b"" | b"." | b"..");
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()?),
            _ => names.push(name),
        }
    }
    let slash: &[u8] = if directory && !names.is_empty() { b"/" } else { b"" };
    Some([b"/", names.join(&b"/"[..]).as_slice(), slash].concat())
}

/// Decodes the escapes. None if one is malformed, or if it stands for a byte that no path can have.
fn unescape(raw: &[u8]) -> Option<Vec<u8>> {
    let mut parts = raw.split(|&byte| byte == b'%');
    let mut name = parts.next()?.to_vec();
    for part in parts {
        let digits = std::str::from_utf8(part.get(..2)?).ok()?;
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        name.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
        name.extend_from_slice(&part[2..]);
    }
    (!name.contains(&0)).then_some(name)
}
