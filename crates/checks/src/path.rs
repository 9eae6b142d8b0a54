//! Paths: `flash_http::target` agrees with RFC 3986 section 5.2.4 taken segment by segment; what it
//! gives stays under the root, and survives being a link.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use flash_http::decode_path;
use flash_http::target::{encode_path, is_hidden};

/// `input` is the path of a request target, still encoded.
pub fn path(input: &[u8]) {
    link(input);
    let found = decode_path(input);
    assert_eq!(found.as_deref().ok(), expected(input).as_deref(), "{found:?}");
    let Ok(path) = found else { return };
    assert!(path.len() <= input.len());
    let is_plain = !input.contains(&b'%') && !input.windows(2).any(|two| two == b"//" || two == b"/.");
    assert!(matches!(path, Cow::Borrowed(_)) || !is_plain, "copied where nothing could change");

    // As the file system will read it: only names, each of them under the root.
    let relative = path.strip_prefix(b"/").expect("an absolute path");
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
    assert_eq!(spelt, *path, "a slash too many");

    let hides =
        |(at, name): (usize, &&[u8])| name.starts_with(b".") && !(at == 0 && **name == *b".well-known");
    assert_eq!(is_hidden(&path), names.iter().enumerate().any(hides));
    assert_eq!(decode_path(encode_path(&path).as_bytes()).as_deref(), Ok(&*path), "as a link");
}

/// A link leads nowhere but to a path of this server, and stays one in HTML and in a head.
fn link(path: &[u8]) {
    let link = encode_path(path);
    assert!(!link.starts_with("//"));
    assert!(link.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"%-._~/!$()*+,=@".contains(&byte)));
}

fn expected(raw: &[u8]) -> Option<Vec<u8>> {
    let mut segments = raw.strip_prefix(b"/")?.split(|&byte| byte == b'/').peekable();
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut directory = true;
    while let Some(segment) = segments.next() {
        let name = unescape(segment)?;
        directory = segments.peek().is_none() && matches!(&name[..], b"" | b"." | b"..");
        match &name[..] {
            b"" | b"." => {}
            b".." => drop(names.pop()?),
            _ => names.push(name),
        }
    }
    let slash: &[u8] = if directory && !names.is_empty() { b"/" } else { b"" };
    Some([b"/", names.join(&b"/"[..]).as_slice(), slash].concat())
}

/// Without its escapes; None where one is malformed, or stands for what no name holds.
fn unescape(segment: &[u8]) -> Option<Vec<u8>> {
    let mut parts = segment.split(|&byte| byte == b'%');
    let mut name = parts.next()?.to_vec();
    for part in parts {
        let digits = std::str::from_utf8(part.get(..2)?).ok()?;
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        name.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
        name.extend_from_slice(&part[2..]);
    }
    name.iter().all(|byte| *byte != b'/' && *byte != 0).then_some(name)
}
