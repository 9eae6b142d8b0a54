//! The terms of the warm endpoint: a question about a file by its name, and its answer. `http` and `fastcgi`
//! turn bytes into questions and answers into bytes; this module has what they share.
//!
//! Pure. Called by the two parsers and by the sessions of [`backend`](crate::backend).

use flash_http::BadPath;
use flash_http::range::number;

use super::protocol::RANGE_BYTES_MAX;
pub use crate::machine::FileRange;

/// Bytes of a file that are brought into memory for one question, at most.
pub const PART_BYTES_MAX: u64 = RANGE_BYTES_MAX;
/// The longest path in bytes (`PATH_MAX` without its NUL).
pub const WARM_PATH_BYTES_MAX: usize = 4095;
/// The longest time that `Retry-After` asks for, in seconds.
const RETRY_AFTER_S_MAX: u32 = 120;

/// A file to bring into memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmRequest {
    /// The absolute path, resolved: without `.`, `..` and empty segments, except for a slash at the end.
    pub path: Vec<u8>,
    /// The part of its content.
    pub part: FileRange,
}

impl FileRange {
    /// No content, only the name.
    pub const NOTHING: Self = Self::From { offset: 0, length_bytes: 0 };
    /// The part without a `Range`.
    pub const FIRST: Self = Self::From { offset: 0, length_bytes: PART_BYTES_MAX };

    /// The first part of the answer to a request with this `Range` field. If it lists several ranges, only the first
    /// counts. A field that the server will ignore is treated as absent (RFC 9110 section 14.2).
    pub fn of_range(field: Option<&[u8]>) -> Self {
        field.and_then(parse_range).unwrap_or(Self::FIRST)
    }
}

fn parse_range(field: &[u8]) -> Option<FileRange> {
    let (unit, set) = field.split_at_checked(b"bytes=".len())?;
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return None;
    }
    let spec = set.split(|byte| *byte == b',').next()?.trim_ascii();
    let dash = spec.iter().position(|byte| *byte == b'-')?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        return Some(FileRange::Last { length_bytes: number(last)?.min(PART_BYTES_MAX) });
    }
    let offset = number(first)?;
    let length_bytes = match last {
        [] => PART_BYTES_MAX,
        last => number(last)?.checked_sub(offset)?.saturating_add(1).min(PART_BYTES_MAX),
    };
    Some(FileRange::From { offset, length_bytes })
}

/// The answer to a [`WarmRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmResult {
    /// The file is in memory, or the file system failed in a way that the server will find too.
    Done,
    /// The file is not beneath a warm root, so nothing was done.
    Refused,
    /// The file is not in memory, because too much is waiting or the deadline has passed.
    Busy {
        /// The expected wait in milliseconds, 0 if unknown.
        retry_after_ms: u32,
    },
}

/// The next step of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// It needs more bytes.
    Input,
    /// This question waits for its answer.
    Request(WarmRequest),
    /// It ends when its output has been sent.
    End,
}

/// Whole seconds for `Retry-After`: at least 1.
pub(super) fn retry_after_s(retry_after_ms: u32) -> u32 {
    retry_after_ms.div_ceil(1000).clamp(1, RETRY_AFTER_S_MAX)
}

/// The absolute path of `path` beneath `root`: `.`, `..` and empty segments are resolved, and `..` at the root
/// has no effect, as in h2o and lighttpd. So the result is always beneath the resolved root. A slash at the end
/// stays.
///
/// # Errors
/// A relative path or root, or a NUL.
pub fn resolve(root: &[u8], path: &[u8]) -> Result<Vec<u8>, BadPath> {
    if path.contains(&0) || root.contains(&0) {
        return Err(BadPath::Nul);
    }
    if !path.starts_with(b"/") || !(root.is_empty() || root.starts_with(b"/")) {
        return Err(BadPath::NotAbsolute);
    }
    let mut resolved = Vec::with_capacity(root.len() + path.len() + 1);
    push_segments(&mut resolved, root);
    push_segments(&mut resolved, path);
    if matches!(path.rsplit(|byte| *byte == b'/').next(), Some(b"" | b"." | b"..")) {
        resolved.push(b'/');
    }
    Ok(resolved)
}

/// Appends the segments of a path, each behind a slash. `..` removes one of those that it has appended.
fn push_segments(resolved: &mut Vec<u8>, path: &[u8]) {
    let mut starts = Vec::new();
    for segment in path.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => {
                if let Some(start) = starts.pop() {
                    resolved.truncate(start);
                }
            }
            name => {
                starts.push(resolved.len());
                resolved.push(b'/');
                resolved.extend_from_slice(name);
            }
        }
    }
}

/// Whether a resolved path is `root` or beneath it.
pub fn is_beneath(path: &[u8], root: &[u8]) -> bool {
    let root = root.strip_suffix(b"/").unwrap_or(root);
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use flash_http::target::unescape;

    use super::*;

    #[test]
    fn ranges() {
        let part = |offset, length_bytes| FileRange::From { offset, length_bytes };
        for (field, expected) in [
            ("bytes=0-3", part(0, 4)),
            ("bytes=5-5", part(5, 1)),
            ("Bytes= 7-8 , 9-", part(7, 2)),
            ("bytes=100-", part(100, PART_BYTES_MAX)),
            ("bytes=0-99999999", part(0, PART_BYTES_MAX)),
            ("bytes=0-18446744073709551615", part(0, PART_BYTES_MAX)),
            ("bytes=99999999999999999999-", part(u64::MAX, PART_BYTES_MAX)),
            ("bytes=-5", FileRange::Last { length_bytes: 5 }),
            ("bytes=-99999999999", FileRange::Last { length_bytes: PART_BYTES_MAX }),
            ("bytes=5-4", FileRange::FIRST),
            ("bytes=-", FileRange::FIRST),
            ("bytes=", FileRange::FIRST),
            ("bytes=a-b", FileRange::FIRST),
            ("lines=1-2", FileRange::FIRST),
            ("b", FileRange::FIRST),
        ] {
            assert_eq!(FileRange::of_range(Some(field.as_bytes())), expected, "{field}");
        }
        assert_eq!(FileRange::of_range(None), FileRange::FIRST);
    }

    #[test]
    fn paths_are_resolved_beneath_their_root() {
        let resolved = |root: &str, path: &str| {
            resolve(root.as_bytes(), path.as_bytes()).map(|path| String::from_utf8(path).unwrap())
        };
        for (root, path, expected) in [
            ("", "/a/b", "/a/b"),
            ("", "/", "/"),
            ("", "//a/./b//", "/a/b/"),
            ("", "/a/../../b", "/b"),
            ("", "/a/..", "/"),
            ("/srv/www", "/a", "/srv/www/a"),
            ("/srv//www/", "/", "/srv/www/"),
            ("/srv/www", "/../../etc/passwd", "/srv/www/etc/passwd"),
            ("/srv/www", "/a/b/../../../c/.", "/srv/www/c/"),
            ("/srv/www", "/..a/b..", "/srv/www/..a/b.."),
            ("/", "/..", "/"),
            ("/srv/../etc/.", "/../a", "/etc/a"),
            ("/..", "/a", "/a"),
        ] {
            assert_eq!(resolved(root, path).as_deref(), Ok(expected), "{root} {path}");
        }
        for (root, path) in [("", "a"), ("srv", "/a"), ("", ""), ("", "/a\0"), ("/\0", "/a")] {
            assert!(resolved(root, path).is_err(), "{root:?} {path:?}");
        }
    }

    #[test]
    fn escapes_are_decoded_once() {
        assert_eq!(unescape(b"/a%20b%2f%2525+%C3").unwrap(), b"/a b/%25+\xc3");
        for raw in ["%", "%2", "%2x", "%+1", "a%-1"] {
            assert_eq!(unescape(raw.as_bytes()), Err(BadPath::Escape), "{raw}");
        }
    }

    #[test]
    fn beneath_means_whole_segments() {
        for (path, root, expected) in [
            ("/srv/www/a", "/srv/www", true),
            ("/srv/www", "/srv/www/", true),
            ("/srv/www2", "/srv/www", false),
            ("/srv", "/srv/www", false),
            ("/anything", "/", true),
        ] {
            assert_eq!(is_beneath(path.as_bytes(), root.as_bytes()), expected, "{path} {root}");
        }
    }

    #[test]
    fn a_part_ends_with_its_file() {
        for (part, within) in [
            (FileRange::From { offset: 9_999, length_bytes: 5 }, (9_999, 1)),
            (FileRange::From { offset: u64::MAX, length_bytes: u64::MAX }, (u64::MAX, 0)),
            (FileRange::From { offset: 0, length_bytes: 0 }, (0, 0)),
            (FileRange::Last { length_bytes: 20_000 }, (0, 10_000)),
            (FileRange::Last { length_bytes: 5 }, (9_995, 5)),
            (FileRange::Last { length_bytes: 0 }, (10_000, 0)),
        ] {
            assert_eq!(part.within(10_000), within, "{part:?}");
        }
    }
}
