//! A source file, taken apart just far enough for the house rules: code told from comments, text and
//! tests; functions found; `use` trees spelt out.
//!
//! A real parser would be exact, and cost more to build than all the rules to run. This one needs
//! code that rustc accepts and rustfmt has formatted.

/// A file of Rust.
#[derive(Debug)]
pub(crate) struct Source {
    /// From the root of the workspace, with `/`.
    pub(crate) path: String,
    /// As it is.
    pub(crate) text: String,
    /// With comments blanked and what stands between quotes replaced by `~`. As long as the text.
    pub(crate) code: String,
    /// The same without what is compiled for tests only.
    pub(crate) product: String,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// The line of its `fn`, from 1.
    pub(crate) line: usize,
    /// Lines of code from there to its closing brace.
    pub(crate) lines: usize,
}

/// A function with or without a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) name: String,
    /// The line of its `fn`, from 1.
    pub(crate) line: usize,
    /// Its parameters, `self` not among them.
    pub(crate) parameters: usize,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let code = blank_comments(text);
        let product = blank_tests(&code);
        Self { path: path.to_owned(), text: text.to_owned(), code, product }
    }

    /// Whether it is a test by its place or name, whole.
    pub(crate) fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        self.path.split('/').any(|folder| folder == "tests")
            || name == "tests.rs"
            || name.ends_with("_tests.rs")
    }

    /// Lines of the product that hold code.
    pub(crate) fn product_lines(&self) -> usize {
        code_lines(&self.product)
    }

    /// The functions of the product.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let bytes = self.product.as_bytes();
        let mut functions = Vec::new();
        for (at, name) in self.named("fn") {
            let Some(open) = body_start(bytes, at) else { continue };
            let end = closing(bytes, open);
            functions.push(Function {
                name,
                line: line_of(&self.product, at),
                lines: code_lines(&self.product[at..end]),
            });
        }
        functions
    }

    /// The functions of the product, also those without a body.
    pub(crate) fn signatures(&self) -> Vec<Signature> {
        let signature = |(at, name)| {
            let parameters = parameters(&self.product[at..]);
            Signature { name, line: line_of(&self.product, at), parameters }
        };
        self.named("fn").into_iter().map(signature).collect()
    }

    /// The structs, enums, unions and traits of the product, each with its line.
    pub(crate) fn types(&self) -> Vec<(usize, String)> {
        let named = ["struct", "enum", "union", "trait"].iter().flat_map(|word| self.named(word));
        named.map(|(at, name)| (line_of(&self.product, at), name)).collect()
    }

    /// Where this keyword stands in the product, and the name that follows it. A keyword without a name, as in a
    /// function's type, is passed over.
    fn named(&self, keyword: &str) -> Vec<(usize, String)> {
        let name = |at: usize| -> String {
            let rest = self.product[at + keyword.len()..].trim_start();
            rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
        };
        let found = words(&self.product, keyword).into_iter().map(|at| (at, name(at)));
        found.filter(|(_, name)| !name.is_empty()).collect()
    }

    /// Every path that the product names, by `use` or in place, with its line: `std::fs::File`.
    pub(crate) fn paths(&self) -> Vec<(usize, String)> {
        let mut paths = Vec::new();
        let mut rest = self.product.clone();
        for at in words(&self.product, "use") {
            let Some(length) = self.product[at..].find(';') else { continue };
            let tree = &self.product[at + 3..at + length];
            let line = line_of(&self.product, at);
            paths.extend(spell_out(tree).into_iter().map(|path| (line, path)));
            rest.replace_range(at..at + length, &" ".repeat(length));
        }
        let mut at = 0;
        while let Some(found) = rest[at..].find("::") {
            let middle = at + found;
            let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
            let start = rest[..middle].rfind(|c| !is_part(c)).map_or(0, |before| before + 1);
            let end = rest[middle..].find(|c| !is_part(c)).map_or(rest.len(), |length| middle + length);
            paths.push((line_of(&rest, start), rest[start..end].trim_matches(':').to_owned()));
            at = end;
        }
        paths
    }

    /// The lines of the product where a word stands.
    pub(crate) fn lines_with_word(&self, word: &str) -> Vec<usize> {
        words(&self.product, word).into_iter().map(|at| line_of(&self.product, at)).collect()
    }

    /// The lines of all code, tests too, where a text stands.
    pub(crate) fn lines_with(&self, text: &str) -> Vec<usize> {
        self.code.match_indices(text).map(|(at, _)| line_of(&self.code, at)).collect()
    }
}

/// Where a word stands by itself.
fn words(text: &str, word: &str) -> Vec<usize> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let found = text.match_indices(word).map(|(at, _)| at);
    found
        .filter(|at| !text[..*at].ends_with(is_part) && !text[*at + word.len()..].starts_with(is_part))
        .collect()
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

fn code_lines(text: &str) -> usize {
    text.lines().filter(|line| !line.trim().is_empty()).count()
}

/// Where the body of the function begins whose `fn` is at `at`, if it has one.
fn body_start(bytes: &[u8], at: usize) -> Option<usize> {
    let mut depth = 0;
    for (offset, byte) in bytes[at..].iter().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b';' if depth == 0 => return None,
            b'{' if depth == 0 => return Some(at + offset),
            _ => {}
        }
    }
    None
}

/// The parameters of the function whose `fn` the text begins with, `self` not counted.
fn parameters(text: &str) -> usize {
    let mut depth = 0;
    let mut is_inside = false;
    let mut current = String::new();
    let mut count = 0;
    let is_self = |parameter: &str| {
        let name = parameter.split(':').next().unwrap_or_default();
        name.split_whitespace().next_back().is_some_and(|word| word.trim_start_matches('&') == "self")
    };
    let mut before = ' ';
    for c in text.chars() {
        match c {
            '(' if depth == 0 && !is_inside => {
                is_inside = true;
                continue;
            }
            '(' | '[' | '{' | '<' => depth += 1,
            ')' if depth == 0 => break,
            ')' | ']' | '}' => depth -= 1,
            // Not the arrow of a closure's or function's type.
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if is_inside && c == ',' && depth == 0 {
            count += usize::from(!is_self(&current));
            current.clear();
        } else if is_inside {
            current.push(c);
        }
        before = c;
    }
    count + usize::from(!current.trim().is_empty() && !is_self(&current))
}

/// Just past the brace that closes the one at `open`.
fn closing(bytes: &[u8], open: usize) -> usize {
    let mut depth = 0;
    for (offset, byte) in bytes[open..].iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return open + offset + 1;
        }
    }
    bytes.len()
}

/// The paths of a `use` tree: of `a::{b, c::{self, d}}` `a::b`, `a::c` and `a::c::d`.
fn spell_out(tree: &str) -> Vec<String> {
    let tree: String = tree.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some(open) = tree.find('{') else {
        let path = tree.split(" as ").next().unwrap_or_default().trim();
        return vec![path.trim_start_matches("::").trim_end_matches("::self").to_owned()];
    };
    let prefix = tree[..open].trim().trim_start_matches("::");
    let inner = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())];
    let mut paths = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let branch = inner[start..at].trim();
                start = at + 1;
                if !branch.is_empty() {
                    paths.extend(spell_out(&format!("{prefix}{branch}").replace("::self", "")));
                }
            }
            _ => {}
        }
    }
    paths
}

/// Blanks items that are compiled for tests only.
fn blank_tests(code: &str) -> String {
    let mut out = code.as_bytes().to_vec();
    for (at, _) in code.match_indices("#[cfg(test)]") {
        let after = at + "#[cfg(test)]".len();
        let end = match body_start(code.as_bytes(), after) {
            Some(open) => closing(code.as_bytes(), open),
            None => code[after..].find(';').map_or(code.len(), |length| after + length + 1),
        };
        blank(&mut out, at, end, b' ');
    }
    String::from_utf8(out).unwrap_or_default()
}

/// Overwrites all but line ends.
fn blank(out: &mut [u8], from: usize, to: usize, with: u8) {
    for byte in &mut out[from..to] {
        if *byte != b'\n' {
            *byte = with;
        }
    }
}

/// Blanks comments, and replaces what stands between quotes.
fn blank_comments(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        if rest.starts_with("//") {
            let end = rest.find('\n').map_or(bytes.len(), |length| at + length);
            blank(&mut out, at, end, b' ');
            at = end;
        } else if rest.starts_with("/*") {
            let end = comment_end(rest).map_or(bytes.len(), |length| at + length);
            blank(&mut out, at, end, b' ');
            at = end;
        } else if let Some((open, length)) = quoted(rest, at > 0 && is_word(bytes[at - 1])) {
            let end = (at + length).min(bytes.len());
            blank(&mut out, at + open, end.saturating_sub(1).max(at + open), b'~');
            at = end;
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    String::from_utf8(out).unwrap_or_default()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The length of a block comment, which may hold others.
fn comment_end(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut at = 0;
    loop {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += rest.chars().next()?.len_utf8();
        }
    }
}

/// The length of what opens a text or character at the front of `text`, and of the whole of it.
fn quoted(text: &str, inside_word: bool) -> Option<(usize, usize)> {
    let marks = if inside_word {
        ""
    } else {
        &text[..text.bytes().take_while(|b| b"bcr".contains(b)).count().min(2)]
    };
    let rest = &text[marks.len()..];
    if marks.ends_with('r') {
        let hashes = rest.bytes().take_while(|byte| *byte == b'#').count();
        let inner = rest[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let open = marks.len() + hashes + 1;
        return Some((open, open + inner.find(&end)? + end.len()));
    }
    let open = marks.len() + 1;
    match rest.as_bytes().first()? {
        b'"' => Some((open, open + text_length(&text[open..], '"')?)),
        b'\'' => {
            let inner = &text[open..];
            let mut chars = inner.char_indices();
            match (chars.next()?.1, chars.next()) {
                ('\\', _) => Some((open, open + text_length(inner, '\'')?)),
                (_, Some((length, '\''))) => Some((open, open + length + 1)),
                // A lifetime.
                _ => None,
            }
        }
        _ => None,
    }
}

/// The length up to and with the quote that ends a text.
fn text_length(inner: &str, quote: char) -> Option<usize> {
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            c if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[test]
fn code_is_told_from_comments_and_text() {
    let text = r##"//! head { unsafe
let a = "un\"safe {"; // unsafe {
let b = r#"unsafe " {"#; /* unsafe /* { */ { */ let c = '{'; let d = '\''; let e: &'a str = b"{";
let f = br"{\"; let r#fn = '"'; let g = "a
{";
"##;
    let source = Source::new("x.rs", text);
    assert_eq!(source.code.len(), text.len());
    assert_eq!(source.code.matches('\n').count(), text.matches('\n').count());
    for word in ["unsafe", "{", "head"] {
        assert!(!source.code.contains(word), "{word}: {}", source.code);
    }
    for word in ["let a", "let b", "let c", "let d", "let e: &'a str", "let f", "let r#fn", "let g"] {
        assert!(source.code.contains(word), "{word}: {}", source.code);
    }
}

#[test]
fn tests_are_no_product() {
    let text = "fn a() {\n    b();\n}\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod more {\n    fn c() { d(); }\n}\nfn e() {}\n";
    let source = Source::new("crates/x/src/y.rs", text);
    assert_eq!(source.product_lines(), 4);
    let names: Vec<_> = source.functions().into_iter().map(|f| (f.name, f.line, f.lines)).collect();
    assert_eq!(names, [("a".to_owned(), 1, 3), ("e".to_owned(), 10, 1)]);
    assert!(Source::new("crates/x/tests/a.rs", "").is_test());
    assert!(Source::new("crates/x/src/tests.rs", "").is_test());
    assert!(!source.is_test());
}

#[test]
fn functions_end_at_their_brace() {
    let text = "\
fn one(a: [u8; 4], f: fn(u8) -> u8) -> u8
where
    u8: Copy,
{
    let s = \"}\";

    // }
    if a[0] == b'}' { 1 } else { f(2) }
}
trait T {
    fn none(&self);
}
";
    let found = Source::new("x.rs", text).functions();
    assert_eq!(found, [Function { name: "one".into(), line: 1, lines: 7 }]);
}

#[test]
fn parameters_are_counted() {
    let text = "\
fn none() {}
fn only_self(&'a mut self) {}
fn one(self: Arc<Self>, a: u8) {}
fn three<F: Fn(u8, u8) -> u8, const N: usize>(
    a: HashMap<u8, [u8; 3]>,
    (b, c): (u8, u8),
    d: impl Fn(u8, u8) -> Option<u8>,
) -> (u8, u8) {
    let f: fn(u8, u8) = g;
}
trait T {
    fn two(&mut self, a: u8, myself: u8);
}
";
    let found: Vec<_> =
        Source::new("x.rs", text).signatures().into_iter().map(|s| (s.name, s.line, s.parameters)).collect();
    let expected = [("none", 1, 0), ("only_self", 2, 0), ("one", 3, 1), ("three", 4, 3), ("two", 12, 2)];
    assert_eq!(found, expected.map(|(name, line, count)| (name.to_owned(), line, count)));
}

#[test]
fn use_trees_are_spelt_out() {
    let text = "use std::{fs, io::{self, Read as R}, net::{SocketAddr, TcpStream}};\nuse ::core::time;\nfn f() { std::thread::sleep(x); let y: Vec<std::fs::File> = a; }\n";
    let paths = Source::new("x.rs", text).paths();
    let names: Vec<&str> = paths.iter().map(|(_, path)| path.as_str()).collect();
    let expected = [
        "std::fs",
        "std::io",
        "std::io::Read",
        "std::net::SocketAddr",
        "std::net::TcpStream",
        "core::time",
        "std::thread::sleep",
        "std::fs::File",
    ];
    assert_eq!(names, expected);
    assert_eq!(paths.last().map(|(line, _)| *line), Some(3));
}
