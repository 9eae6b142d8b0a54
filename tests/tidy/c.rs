//! The house rules for the C of `modules/`: the length of files and functions, their parameters, the head of a file.
//!
//! Run by `cargo test -p flash --test tidy`; `words` reads the comments. It needs code in the style of nginx or Apache, where
//! the braces of a function stand in the first column.

use super::{Breach, FILE_LINES_MAX, FUNCTION_LINES_MAX, PARAMETERS_MAX, assert_kept, files, root};

/// A file of C.
#[derive(Debug)]
pub(crate) struct CSource {
    /// From the root of the workspace, with `/`.
    pub(crate) path: String,
    /// As it is.
    text: String,
    /// The text with comments blanked and quoted strings replaced by `~`. Its lines are numbered like those of the text.
    code: String,
    /// The comments: the lines of each, with their numbers and without their stars.
    pub(crate) comments: Vec<Vec<(usize, String)>>,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    /// The line of its opening brace, from 1.
    line: usize,
    /// Lines of code from its name to its closing brace.
    lines: usize,
    parameters: usize,
}

impl CSource {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let mut source =
            Self { path: path.to_owned(), text: text.to_owned(), code: String::new(), comments: Vec::new() };
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let length = if let Some(inner) = rest.strip_prefix("/*") {
                let length = inner.find("*/").map_or(rest.len(), |end| end + 4);
                source.comment(at, &rest[..length]);
                length
            } else if rest.starts_with("//") {
                let length = rest.find('\n').unwrap_or(rest.len());
                source.comment(at, &rest[..length]);
                length
            } else if rest.starts_with(['"', '\'']) {
                let length = quoted(rest);
                source.code.extend(rest[..length].chars().map(|c| if c == '\n' { c } else { '~' }));
                length
            } else {
                let c = rest.chars().next().unwrap_or(' ');
                source.code.push(c);
                c.len_utf8()
            };
            at += length;
        }
        source
    }

    /// Keeps a comment's lines, and blanks them in the code.
    fn comment(&mut self, at: usize, comment: &str) {
        let first = 1 + self.text[..at].matches('\n').count();
        let inner = comment.trim_start_matches('/').trim_end_matches("*/");
        let lines = inner.lines().enumerate();
        let bare = |line: &str| line.trim().trim_start_matches('*').trim().to_owned();
        self.comments.push(lines.map(|(number, line)| (first + number, bare(line))).collect());
        self.code.extend(comment.chars().map(|c| if c == '\n' { c } else { ' ' }));
    }

    fn is_test(&self) -> bool {
        self.path.split('/').any(|folder| folder == "tests" || folder == "fuzz")
    }

    fn functions(&self) -> Vec<Function> {
        let lines: Vec<&str> = self.code.lines().collect();
        let mut found = Vec::new();
        for (number, line) in lines.iter().enumerate() {
            let is_open =
                *line == "{" || line.ends_with('{') && line.contains(") ") && !line.starts_with(' ');
            if !is_open {
                continue;
            }
            // The head goes back to the end of the declaration before.
            let is_before =
                |line: &&&str| line.trim().is_empty() || line.ends_with([';', '}']) || line.starts_with('#');
            let head = lines[..number].iter().rev().take_while(|line| !is_before(line)).count();
            let text = lines[number - head..=number].join(" ");
            let Some((name, rest)) = text.split_once('(').filter(|(name, _)| !name.contains('=')) else {
                continue;
            };
            let length = lines[number..].iter().take_while(|line| **line != "}").count();
            let body = &lines[number - head..(number + length + 1).min(lines.len())];
            let is_part = |c: char| !(c.is_alphanumeric() || c == '_');
            found.push(Function {
                name: name.trim_end().rsplit(is_part).next().unwrap_or_default().to_owned(),
                line: number + 1,
                lines: body.iter().filter(|line| !line.trim().is_empty()).count(),
                parameters: parameters(rest),
            });
        }
        found
    }
}

/// The length of a text or character with its quotes.
fn quoted(rest: &str) -> usize {
    let quote = rest.chars().next().unwrap_or('"');
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The number of parameters, from behind the opening parenthesis. Those of a parameter's own type do not count.
fn parameters(rest: &str) -> usize {
    let mut depth = 0;
    let mut commas = 0;
    for (at, c) in rest.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => {
                return if matches!(rest[..at].trim(), "" | "void") { 0 } else { commas + 1 };
            }
            ')' => depth -= 1,
            ',' if depth == 0 => commas += 1,
            _ => {}
        }
    }
    0
}

/// The C of the project.
pub(crate) fn sources() -> Vec<CSource> {
    let is_c =
        |name: &String| name.starts_with("modules/") && [".c", ".h"].iter().any(|end| name.ends_with(end));
    let names = files().into_iter().filter(is_c);
    names.map(|name| CSource::new(&name, &std::fs::read_to_string(root().join(&name)).unwrap())).collect()
}

fn breaches(source: &CSource) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut add = |line, what: String| found.push(Breach::new(&source.path, line, what));
    if !source.text.trim_start().starts_with("/*") {
        add(1, "does not begin with a comment".to_owned());
    }
    if source.is_test() {
        return found;
    }
    let lines = source.code.lines().filter(|line| !line.trim().is_empty()).count();
    if lines > FILE_LINES_MAX {
        add(1, format!("{lines} lines of code"));
    }
    for Function { name, line, lines, parameters } in source.functions() {
        if lines > FUNCTION_LINES_MAX {
            add(line, format!("`{name}` has {lines} lines of code"));
        }
        if parameters > PARAMETERS_MAX {
            add(line, format!("`{name}` has {parameters} parameters"));
        }
    }
    found
}

#[test]
fn the_modules_keep_the_house_rules() {
    let sources = sources();
    assert!(!sources.is_empty(), "the modules were not found");
    let found: Vec<Breach> = sources.iter().flat_map(breaches).collect();
    assert_kept(
        "A file or function this long does two things. A file starts with what it is for and who calls it.",
        &found,
    );
}

#[test]
fn functions_of_c_are_found() {
    let text = "\
/* Head: { f( */
#include <a.h>

static const char *texts[] = { \"{\", \"\\\"(\" };
static ngx_command_t  commands[] = {
    { ngx_string(\"a\"), 0 },
};

ngx_int_t
one(ngx_http_request_t *r, void (*done)(int, int),
    char c)
{
    // }
    if (c == '{') {

        return f(a, b, c, d, e, f);
    }
}

static void none(void) {
    g();
}
";
    let source = CSource::new("modules/x/x.c", text);
    let functions = source.functions();
    let function =
        |name: &str, line, lines, parameters| Function { name: name.into(), line, lines, parameters };
    assert_eq!(functions, [function("one", 12, 8, 3), function("none", 20, 3, 0)]);
    assert_eq!(source.code.lines().count(), text.lines().count());
    assert_eq!(breaches(&source), []);
    assert_eq!(source.comments.len(), 2);
    assert_eq!(source.comments[1], [(13, "}".to_owned())]);
}

#[test]
fn breaches_of_c_are_found() {
    let found = |path: &str, text: &str| breaches(&CSource::new(path, text)).len();
    let long = |lines| format!("/* Head. */\nint\nf(void)\n{{\n{}}}\n", "    a();\n".repeat(lines));
    assert_eq!(found("modules/x/x.c", &long(66)), 0);
    assert_eq!(found("modules/x/x.c", &long(67)), 1);
    assert_eq!(found("modules/x/tests/x.c", &long(67)), 0);
    assert_eq!(found("modules/x/x.c", &format!("/* Head. */\n{}", "int a;\n\n/* b */\n".repeat(500))), 0);
    assert_eq!(found("modules/x/x.c", &format!("/* Head. */\n{}", "int a;\n".repeat(501))), 1);
    assert_eq!(found("modules/x/x.h", "int a;\n"), 1);
    assert_eq!(found("modules/x/x.c", "/* Head. */\nint f(int a, int b, int c, int d, int e)\n{\n}\n"), 0);
    assert_eq!(
        found("modules/x/x.c", "/* Head. */\nint f(int a, int b, int c, int d, int e, int g)\n{\n}\n"),
        1
    );
}
