//! Media types by file name (RFC 9110 section 8.3).
//!
//! Called by the engine when it describes a file that it has opened. It must not look into the file.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// The type of a file whose name is unknown.
const UNKNOWN: &str = "application/octet-stream";
/// The character set of text; RFC 9110 section 8.3.2 recommends UTF-8.
const CHARSET: &str = "; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
/// Names of text files without an extension, up to the first hyphen: of source packages, and of package archives.
const NAMES_OF_TEXT: &[&str] = &[
    "AUTHORS",
    "CHANGELOG",
    "CHANGES",
    "CONTRIBUTING",
    "COPYING",
    "COPYRIGHT",
    "CREDITS",
    "Contents",
    "Dockerfile",
    "HISTORY",
    "INSTALL",
    "InRelease",
    "LICENCE",
    "LICENSE",
    "MAINTAINERS",
    "Makefile",
    "NEWS",
    "NOTICE",
    "Packages",
    "README",
    "Release",
    "SHA256",
    "SHA512",
    "Sources",
    "THANKS",
    "TODO",
    "VERSION",
];
/// No registered extension is longer, so longer ones are not looked up.
const EXTENSION_BYTES_MAX: usize = 32;

/// Types that are missing or outdated in `mime_guess`, and common types with their charset. Sorted, for
/// binary search.
const KNOWN: &[(&str, &str)] = &[
    ("7z", "application/x-7z-compressed"),
    ("apk", "application/vnd.android.package-archive"),
    ("apng", "image/apng"),
    ("appimage", "application/vnd.appimage"),
    ("asc", "text/plain; charset=utf-8"),
    ("avif", "image/avif"),
    ("br", "application/x-brotli"),
    ("bz2", "application/x-bzip2"),
    ("c", "text/plain; charset=utf-8"),
    ("cbor", "application/cbor"),
    ("cjs", "text/javascript; charset=utf-8"),
    ("conf", "text/plain; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("deb", "application/vnd.debian.binary-package"),
    ("dmg", "application/x-apple-diskimage"),
    ("fgb", "application/vnd.flatgeobuf"),
    ("flac", "audio/flac"),
    ("geojson", "application/geo+json"),
    ("glb", "model/gltf-binary"),
    ("gltf", "model/gltf+json"),
    ("gpkg", "application/geopackage+sqlite3"),
    ("gpx", "application/gpx+xml"),
    ("gz", "application/gzip"),
    ("h", "text/plain; charset=utf-8"),
    ("heic", "image/heic"),
    ("heif", "image/heif"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("ics", "text/calendar; charset=utf-8"),
    ("img", "application/octet-stream"),
    ("iso", "application/x-iso9660-image"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonl", "application/jsonl"),
    ("jsonld", "application/ld+json"),
    ("jxl", "image/jxl"),
    ("kml", "application/vnd.google-earth.kml+xml"),
    ("kmz", "application/vnd.google-earth.kmz"),
    ("lock", "text/plain; charset=utf-8"),
    ("log", "text/plain; charset=utf-8"),
    ("lz4", "application/x-lz4"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4s", "video/iso.segment"),
    ("map", "application/json"),
    ("md", "text/markdown; charset=utf-8"),
    ("md5", "text/plain; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mkv", "video/matroska"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpd", "application/dash+xml"),
    ("mvt", "application/vnd.mapbox-vector-tile"),
    ("ndjson", "application/x-ndjson"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("parquet", "application/vnd.apache.parquet"),
    ("pbf", "application/x-protobuf"),
    ("pdf", "application/pdf"),
    ("pmtiles", "application/vnd.pmtiles"),
    ("png", "image/png"),
    ("py", "text/x-python; charset=utf-8"),
    ("rpm", "application/x-rpm"),
    ("rs", "text/plain; charset=utf-8"),
    ("sh", "text/x-shellscript; charset=utf-8"),
    ("sha1", "text/plain; charset=utf-8"),
    ("sha256", "text/plain; charset=utf-8"),
    ("sha512", "text/plain; charset=utf-8"),
    ("sum", "text/plain; charset=utf-8"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tgz", "application/gzip"),
    ("toml", "application/toml"),
    ("topojson", "application/json"),
    ("ts", "video/mp2t"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml"),
    ("xml", "application/xml"),
    ("xz", "application/x-xz"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

/// The media types of names: first the given ones, then the built-in ones, then those of `mime_guess`.
#[derive(Clone, Debug)]
pub struct TypeTable {
    extra: HashMap<String, String>,
    /// The end of the text types that do not say their charset.
    charset: String,
}

impl Default for TypeTable {
    fn default() -> Self {
        Self::new([])
    }
}

impl TypeTable {
    /// Makes a table with `extra` types, in which text is UTF-8.
    pub fn new(extra: impl IntoIterator<Item = (String, String)>) -> Self {
        Self::with_charset(extra, Some("utf-8"))
    }

    /// Makes a table with `extra` types: pairs of an extension (with or without its dot, in any case), or of a slash and a whole
    /// name, and a media type. A text type without a charset gets this one, if there is one.
    pub fn with_charset(extra: impl IntoIterator<Item = (String, String)>, charset: Option<&str>) -> Self {
        let charset = charset.map_or_else(String::new, |name| format!("; charset={name}"));
        let extra = extra
            .into_iter()
            .map(|(name, media_type)| {
                let is_whole = name.starts_with('/');
                let name = if is_whole { name } else { name.trim_start_matches('.').to_ascii_lowercase() };
                (name, completed(Cow::Owned(media_type), &charset).into_owned())
            })
            .collect();
        Self { extra, charset }
    }

    /// The types that were given for extensions and names, in the order of these.
    pub fn own(&self) -> BTreeMap<&str, &str> {
        self.extra.iter().map(|(name, media_type)| (name.as_str(), media_type.as_str())).collect()
    }

    /// The value of `Content-Type` for the file with this path, by its last segment or the extension of that. A name
    /// without an extension, or whose only dot is its first character, is `application/octet-stream`, except names that
    /// text files always have.
    pub fn lookup(&self, path: &[u8]) -> Cow<'_, str> {
        let extension = extension(path);
        let of_name = || self.extra.get(last_segment(path)?);
        let of_extension = || self.extra.get(extension.as_ref()?);
        if let Some(media_type) = of_name().or_else(of_extension) {
            return Cow::Borrowed(media_type);
        }
        let found = match extension {
            Some(extension) => built_in(&extension),
            None => Cow::Borrowed(if is_name_of_text(path) { TEXT } else { UNKNOWN }),
        };
        match found.strip_suffix(CHARSET) {
            Some(essence) if self.charset != CHARSET => Cow::Owned(format!("{essence}{}", self.charset)),
            _ => found,
        }
    }
}

/// The type of an extension; all texts are UTF-8.
fn built_in(extension: &str) -> Cow<'static, str> {
    if let Ok(at) = KNOWN.binary_search_by(|(known, _)| (*known).cmp(extension)) {
        return Cow::Borrowed(KNOWN[at].1);
    }
    match mime_guess::from_ext(extension).first_raw() {
        Some(media_type) => completed(Cow::Borrowed(media_type), CHARSET),
        None => Cow::Borrowed(UNKNOWN),
    }
}

/// Whether the last segment of a path, which has no extension, is a name that text files have: `LICENSE`, `LICENSE-MIT`,
/// `SHA256SUMS`.
fn is_name_of_text(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let word = name.split(|&byte| byte == b'-').next().unwrap_or_default();
    name.ends_with(b"SUMS") || NAMES_OF_TEXT.iter().any(|known| known.as_bytes() == word)
}

/// The last segment of a path, with the slash before it.
fn last_segment(path: &[u8]) -> Option<&str> {
    std::str::from_utf8(&path[memchr::memrchr(b'/', path)?..]).ok()
}

/// The extension of a path's last segment in lower case, without its dot.
fn extension(path: &[u8]) -> Option<String> {
    let name = path.rsplit(|&byte| byte == b'/').next()?;
    let dot = memchr::memrchr(b'.', name).filter(|&dot| dot > 0)?;
    let extension = &name[dot + 1..];
    if extension.is_empty() || extension.len() > EXTENSION_BYTES_MAX {
        return None;
    }
    Some(std::str::from_utf8(extension).ok()?.to_ascii_lowercase())
}

/// A text type without a charset gets this one.
fn completed<'t>(media_type: Cow<'t, str>, charset: &str) -> Cow<'t, str> {
    let lower = media_type.to_ascii_lowercase();
    if !lower.starts_with("text/") || lower.contains("charset=") {
        return media_type;
    }
    Cow::Owned(media_type.into_owned() + charset)
}

/// Whether content of this type is worth compressing: text in any form, and the few binary formats that are
/// not compressed themselves.
pub fn compressible(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.starts_with("text/")
        || essence.ends_with("+xml")
        || essence.ends_with("+json")
        || matches!(
            essence.as_str(),
            "application/javascript"
                | "application/json"
                | "application/jsonl"
                | "application/x-ndjson"
                | "application/xml"
                | "application/xml-dtd"
                | "application/toml"
                | "application/yaml"
                | "application/wasm"
                | "application/rtf"
                | "application/sql"
                | "application/x-tar"
                | "application/vnd.mapbox-vector-tile"
                | "application/vnd.ms-fontobject"
                | "application/x-sh"
                | "font/ttf"
                | "font/otf"
                | "font/collection"
                | "image/bmp"
                | "image/x-icon"
                | "image/vnd.microsoft.icon"
                | "model/gltf-binary"
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_whole_name_counts_before_its_extension() {
        let types =
            [("/PKGBUILD", "text/plain"), ("/map.bin", "application/x-map"), ("bin", "application/x-bin")];
        let table = TypeTable::new(types.map(|(name, media_type)| (name.to_owned(), media_type.to_owned())));
        for (path, media_type) in [
            ("/a/PKGBUILD", "text/plain; charset=utf-8"),
            ("/PKGBUILD", "text/plain; charset=utf-8"),
            ("/pkgbuild", UNKNOWN),
            ("/PKGBUILD/a", UNKNOWN),
            ("/a/map.bin", "application/x-map"),
            ("/a/a.bin", "application/x-bin"),
        ] {
            assert_eq!(table.lookup(path.as_bytes()), media_type, "{path}");
        }
    }

    #[test]
    fn text_has_the_charset_of_the_table() {
        let types = [("note", "text/plain"), ("old", "text/plain; charset=koi8-r"), ("csv", "text/csv")];
        let types = || types.map(|(extension, media_type)| (extension.to_owned(), media_type.to_owned()));
        for (charset, end) in [(None, ""), (Some("iso-8859-1"), "; charset=iso-8859-1")] {
            let table = TypeTable::with_charset(types(), charset);
            for name in ["a.txt", "a.note", "LICENSE"] {
                assert_eq!(table.lookup(name.as_bytes()), format!("text/plain{end}"), "{name}");
            }
            assert_eq!(table.lookup(b"a.csv"), format!("text/csv{end}"));
            assert_eq!(table.lookup(b"a.old"), "text/plain; charset=koi8-r");
            assert_eq!(table.lookup(b"a.png"), "image/png");
        }
    }

    fn plain(path: &str) -> String {
        TypeTable::default().lookup(path.as_bytes()).into_owned()
    }

    #[test]
    fn the_table_can_be_searched() {
        for pair in KNOWN.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{} before {}", pair[0].0, pair[1].0);
        }
        for (extension, media_type) in KNOWN {
            assert_eq!(extension.to_ascii_lowercase(), *extension);
            assert_eq!(completed(Cow::Borrowed(media_type), CHARSET), *media_type, "{extension}");
        }
    }

    #[test]
    fn text_files_without_an_extension_are_text() {
        let names =
            ["LICENSE", "d.d/LICENSE-MIT", "/README", "SHA256SUMS", "v1_SHA512SUMS", "Makefile", "Release"];
        for name in names.into_iter().chain(["Cargo.lock", "go.sum", "a.iso.sha256", "KEYS.asc"]) {
            assert_eq!(plain(name), TEXT, "{name}");
        }
        for name in ["LICENSES", "-README", "README/x", "flash", ".README"] {
            assert_eq!(plain(name), UNKNOWN, "{name}");
        }
    }

    #[test]
    fn usual_types() {
        for (path, expected) in [
            ("/index.html", "text/html; charset=utf-8"),
            ("/A/B.HTML", "text/html; charset=utf-8"),
            ("/a.js", "text/javascript; charset=utf-8"),
            ("/a.mjs", "text/javascript; charset=utf-8"),
            ("/a.json", "application/json"),
            ("/a.xml", "application/xml"),
            ("/a.svg", "image/svg+xml"),
            ("/a.gpx", "application/gpx+xml"),
            ("/a.pmtiles", "application/vnd.pmtiles"),
            ("/a.mvt", "application/vnd.mapbox-vector-tile"),
            ("/a.geojson", "application/geo+json"),
            ("/a.wasm", "application/wasm"),
            ("/a.avif", "image/avif"),
            ("/a.webp", "image/webp"),
            ("/a.jxl", "image/jxl"),
            ("/a.tar.zst", "application/zstd"),
            ("/a.xz", "application/x-xz"),
            ("/a.deb", "application/vnd.debian.binary-package"),
            ("/a.iso", "application/x-iso9660-image"),
            // From mime_guess.
            ("/a.epub", "application/epub+zip"),
            ("/a.rtx", "text/richtext; charset=utf-8"),
            ("/a", "application/octet-stream"),
            ("/a.", "application/octet-stream"),
            ("/a.unheard-of", "application/octet-stream"),
            ("/.html", "application/octet-stream"),
            ("/dir.html/file", "application/octet-stream"),
            ("", "application/octet-stream"),
        ] {
            assert_eq!(plain(path), expected, "{path}");
        }
    }

    #[test]
    fn the_given_types_come_first() {
        let table = TypeTable::new([
            (".HTML".into(), "text/x-mine".into()),
            ("foo".into(), "application/x-foo".into()),
            ("bar".into(), "text/plain; Charset=latin1".into()),
        ]);
        assert_eq!(table.lookup(b"/a.html"), "text/x-mine; charset=utf-8");
        assert_eq!(table.lookup(b"/a.FOO"), "application/x-foo");
        assert_eq!(table.lookup(b"/a.bar"), "text/plain; Charset=latin1");
        assert_eq!(table.lookup(b"/a.css"), "text/css; charset=utf-8");
    }

    #[test]
    fn compressible_types() {
        for yes in [
            "text/html; charset=utf-8",
            "TEXT/css",
            "image/svg+xml",
            "application/json",
            "application/geo+json",
            "application/wasm",
            "font/ttf",
            "text/javascript",
        ] {
            assert!(compressible(yes), "{yes}");
        }
        for no in ["image/png", "application/zip", "font/woff2", "video/mp4", "", UNKNOWN] {
            assert!(!compressible(no), "{no}");
        }
    }

    proptest! {
        #[test]
        fn any_name_has_a_type(path in proptest::collection::vec(any::<u8>(), 0..60)) {
            let table = TypeTable::default();
            let media_type = table.lookup(&path);
            prop_assert!(media_type.contains('/'));
            prop_assert!(!media_type.starts_with("text/") || media_type.contains("charset="));
            let _ = compressible(&String::from_utf8_lossy(&path));
        }
    }
}
