//! Lists of files: the manifests of `flash fileset`, and anyone's lists of paths.
//!
//! [`super::Workload`] reads them before a run, `flash fileset` writes the head that they have.
//!
//! A line is a path, then perhaps its length in bytes, then perhaps the path that a log has for
//! it, with spaces between; a space in a path is written `%20`. A method in capitals may stand before the path, and
//! the path may be a URL of the server. Empty lines and lines that begin with `#` are left out.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::catalogue::{Listed, Methods};
use super::lines::{Lines, excerpt};
use super::method;
use flash_kit::{Error, Result};

pub(crate) const FILES_MAX: usize = 16 << 20;

const HEAD: &str = "# flash fileset ";

/// The first line of the manifest of a set of that kind: "specweb99", "pareto" or "log".
pub fn manifest_head(kind: &str, seed: u64) -> String {
    let columns = if kind == "log" { "path, bytes, original path" } else { "path, bytes" };
    format!("{HEAD}{kind}, seed {seed}: {columns}")
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct List {
    /// The set that `flash fileset` made, when it made the list.
    pub(crate) generated: Option<Generated>,
    pub(crate) files: Vec<Listed>,
    /// The path that a log has for each file; empty, or as many as there are files.
    pub(crate) originals: Vec<Option<Box<str>>>,
    pub(crate) methods: Methods,
    /// The server of the URLs: scheme and authority.
    pub(crate) server: Option<Box<str>>,
}

/// The columns of a line.
struct Columns {
    method: Option<Box<str>>,
    server: Option<Box<str>>,
    listed: Listed,
    original: Option<Box<str>>,
}

/// The values in the head of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Generated {
    /// As in [`manifest_head`].
    pub(crate) kind: String,
    pub(crate) seed: u64,
}

impl List {
    /// Reads a list.
    ///
    /// Errors: run, for a file that cannot be read; usage, for a line that is none of a list, too many
    /// files, or none.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|why| Error::file("open", path, &why))?;
        Self::parse(BufReader::new(file), path)
    }

    fn parse(source: impl BufRead, path: &Path) -> Result<Self> {
        let mut list = Self::default();
        let mut lines = Lines::new(source);
        while let Some(line) = lines.next().map_err(|why| Error::file("read", path, &why))? {
            let usage =
                |why: String| Error::usage(format!("{}, line {}: {why}", path.display(), line.number));
            let bytes = line.bytes.ok_or_else(|| usage("too long for a path".to_owned()))?;
            if bytes.trim_ascii().is_empty() {
                continue;
            }
            if bytes.starts_with(b"#") {
                if line.number == 1 {
                    list.generated = Generated::parse(bytes);
                }
                continue;
            }
            if list.files.len() == FILES_MAX {
                return Err(usage(format!("more than {FILES_MAX} files")));
            }
            let Columns { method, server, listed, original } = list_line(bytes).map_err(usage)?;
            list.note_method(method).map_err(usage)?;
            if let Some(server) = server {
                let first = list.server.get_or_insert_with(|| server.clone());
                if *first != server {
                    return Err(usage(format!("{server} beside {first}: a run has one server")));
                }
            }
            if original.is_some() && list.originals.is_empty() {
                list.originals.resize(list.files.len(), None);
            }
            if original.is_some() || !list.originals.is_empty() {
                list.originals.push(original);
            }
            list.files.push(listed);
        }
        if list.files.is_empty() {
            return Err(Error::usage(format!("{} lists no files", path.display())));
        }
        Ok(list)
    }

    /// Notes the method of the next path.
    fn note_method(&mut self, method: Option<Box<str>>) -> std::result::Result<(), String> {
        let Methods { names, of_paths } = &mut self.methods;
        let number = match method {
            None if of_paths.is_empty() => return Ok(()),
            None => 0,
            Some(name) => {
                let known = names.iter().position(|known| *known == name);
                known.unwrap_or_else(|| {
                    names.push(name);
                    names.len() - 1
                }) + 1
            }
        };
        of_paths.resize(self.files.len(), 0);
        of_paths.push(u8::try_from(number).map_err(|_| "more than 255 methods".to_owned())?);
        Ok(())
    }
}

impl Generated {
    fn parse(head: &[u8]) -> Option<Self> {
        let (kind, rest) = std::str::from_utf8(head).ok()?.strip_prefix(HEAD)?.split_once(", seed ")?;
        let (seed, _) = rest.split_once(':')?;
        Some(Self { kind: kind.to_owned(), seed: seed.parse().ok()? })
    }
}

fn list_line(bytes: &[u8]) -> std::result::Result<Columns, String> {
    let mut columns = bytes.split(u8::is_ascii_whitespace).filter(|column| !column.is_empty()).peekable();
    let first = columns.next().unwrap_or_default();
    let is_place = |column: &&[u8]| column.starts_with(b"/") || column.starts_with(b"http");
    let second = columns.next_if(|second| first.iter().all(u8::is_ascii_uppercase) && is_place(second));
    let (method, place) = second.map_or((None, first), |place| (Some(first), place));
    let method = method.map(|name| String::from_utf8_lossy(name).into_owned().into_boxed_str());
    method.as_deref().map_or(Ok(()), method::check)?;
    let (server, path) = split_url(place);
    let path = escaped(path);
    let file_bytes = match columns.next() {
        Some(digits) => Some(
            std::str::from_utf8(digits)
                .ok()
                .and_then(|digits| digits.parse().ok())
                .ok_or_else(|| format!("'{}' is no length in bytes", excerpt(digits)))?,
        ),
        None => None,
    };
    let original = columns.next().map(escaped);
    match columns.next() {
        Some(more) => Err(format!(
            "'{}' is too much: a path, a length, an original path (write spaces as %20)",
            excerpt(more)
        )),
        None => Ok(Columns { method, server, listed: Listed { path, file_bytes }, original }),
    }
}

/// The server and the path of a URL; a path alone has no server.
fn split_url(place: &[u8]) -> (Option<Box<str>>, &[u8]) {
    let scheme = [&b"http://"[..], b"https://"].into_iter().find(|scheme| place.starts_with(scheme));
    let Some(scheme) = scheme else { return (None, place) };
    let end = place[scheme.len()..].iter().position(|byte| b"/?".contains(byte));
    let (server, path) = place.split_at(end.map_or(place.len(), |end| scheme.len() + end));
    (Some(String::from_utf8_lossy(server).to_ascii_lowercase().into_boxed_str()), path)
}

/// A path for a request: with a slash in front, and with all bytes percent-encoded that RFC 3986
/// (section 2) does not allow. Bytes that are encoded already stay as they are.
pub(crate) fn escaped(path: &[u8]) -> Box<str> {
    let mut text = String::with_capacity(path.len() + 1);
    if path.first() != Some(&b'/') {
        text.push('/');
    }
    for &byte in path {
        if byte.is_ascii_graphic() && !b"\"#<>[\\]^`{|}".contains(&byte) {
            text.push(char::from(byte));
        } else {
            const HEX: &[u8; 16] = b"0123456789ABCDEF";
            text.push('%');
            text.push(char::from(HEX[usize::from(byte >> 4)]));
            text.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    text.into_boxed_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<List> {
        List::parse(text.as_bytes(), Path::new("list"))
    }

    fn listed(path: &str, file_bytes: Option<u64>) -> Listed {
        Listed { path: path.into(), file_bytes }
    }

    #[test]
    fn paths_lengths_and_originals() {
        let list = parse("# mine\n/a 10\n\nb/c\r\n  d\t0 /wc98/7 \n").unwrap();
        assert_eq!(list.files, [listed("/a", Some(10)), listed("/b/c", None), listed("/d", Some(0))]);
        assert_eq!(list.originals, [None, None, Some("/wc98/7".into())]);
        assert_eq!(list.generated, None);
        assert_eq!(parse("/a 1\n/b 2").unwrap().originals, []);
    }

    #[test]
    fn methods_and_urls() {
        let list = parse("/a\nPOST /b 5\nGET /c\nGET\nPOST http://h:1/d?x\nhttp://H:1\nhttpd/e\n").unwrap();
        let paths: Vec<&str> = list.files.iter().map(|file| &*file.path).collect();
        assert_eq!(paths, ["/a", "/b", "/c", "/GET", "/d?x", "/", "/httpd/e"]);
        assert_eq!(list.files[1].file_bytes, Some(5));
        assert_eq!(list.methods.names, ["POST".into(), "GET".into()]);
        assert_eq!(list.methods.of_paths, [0, 1, 2, 0, 1, 0, 0]);
        assert_eq!(list.server.as_deref(), Some("http://h:1"));
        assert_eq!(parse("/a\n/b").unwrap().methods, Methods::default());
    }

    #[test]
    fn the_head_of_a_manifest_says_its_seed() {
        let text = manifest_head("specweb99", 77) + "\ndir00000/class0_1 102\n";
        assert_eq!(
            parse(&text).unwrap().generated,
            Some(Generated { kind: "specweb99".to_owned(), seed: 77 })
        );
        let text = manifest_head("log", u64::MAX) + "\nt/000/000000 5 /x\n";
        assert_eq!(
            parse(&text).unwrap().generated,
            Some(Generated { kind: "log".to_owned(), seed: u64::MAX })
        );
        for head in ["# flash fileset specweb99, seed x: path", "# flash fileset", "#"] {
            assert_eq!(parse(&format!("{head}\n/a\n")).unwrap().generated, None);
        }
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, part) in [
            ("/a\n/b ten\n", "list, line 2: 'ten' is no length"),
            ("/a -1\n", "line 1: '-1' is no length"),
            ("/a 1 /b c\n", "line 1: 'c' is too much"),
            ("http://a/x\nhttps://a/y\n", "line 2: https://a beside http://a"),
            ("CONNECT /\n", "line 1: CONNECT asks for a tunnel"),
            ("", "lists no files"),
            ("# only\n", "lists no files"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains(part), "{text}: {error}");
        }
        let long = "/".repeat(crate::workload::lines::LINE_BYTES_MAX + 1);
        assert!(parse(&long).unwrap_err().to_string().contains("line 1: too long"));
    }

    #[test]
    fn escapes_what_no_request_may_have() {
        let cases: [(&[u8], &str); 6] = [
            (b"/a/b.html?x=1&y=%20", "/a/b.html?x=1&y=%20"),
            (b"a", "/a"),
            (b"", "/"),
            (b"/a b#c", "/a%20b%23c"),
            (b"/\xc3\xa9\x00\"", "/%C3%A9%00%22"),
            (b"/~u/!$&'()*+,;=:@-._", "/~u/!$&'()*+,;=:@-._"),
        ];
        for (path, expected) in cases {
            assert_eq!(&*escaped(path), expected);
            assert_eq!(&*escaped(expected.as_bytes()), expected);
        }
    }
}
