//! The grammar of a Caddyfile: lines of words with quotes and comments, blocks, snippets and `import`.

use std::path::Path;
use std::sync::Arc;

use crate::directive::Directive;
use crate::files::Files;
use crate::notes::{Failure, Notes, Position};

/// How deep blocks and imports may be nested.
const DEPTH_MAX: usize = 32;
/// The most lines of all imports: snippets can import each other twice, and so on.
const LINES_MAX: usize = 100_000;

/// The lines of a file, with imports in their places.
///
/// # Errors
/// The file cannot be read or parsed.
pub(super) fn read(path: &Path, files: &mut Files, notes: &mut Notes) -> Result<Vec<Directive>, Failure> {
    let whole = Position { file: files.shown(path), line: 0 };
    let lines = files.with(path, &whole, |_, text, shown| parse(text, shown))?;
    let (snippets, lines): (Vec<Directive>, Vec<Directive>) =
        lines.into_iter().partition(|line| line.name.starts_with('(') && line.name.ends_with(')'));
    let mut importer = Importer { snippets, files, notes, count: 0 };
    importer.expand(lines, 0)
}

struct Importer<'i> {
    snippets: Vec<Directive>,
    files: &'i mut Files,
    notes: &'i mut Notes,
    count: usize,
}

impl Importer<'_> {
    fn expand(&mut self, lines: Vec<Directive>, depth: usize) -> Result<Vec<Directive>, Failure> {
        let mut all = Vec::with_capacity(lines.len());
        for mut line in lines {
            self.count += 1;
            if depth > DEPTH_MAX || self.count > LINES_MAX {
                return Err(Failure::new(&line.position, "too many imports: do they import each other?"));
            }
            if line.name == "import" {
                all.extend(self.import(&line, depth)?);
                continue;
            }
            line.block = line.block.take().map(|inner| self.expand(inner, depth + 1)).transpose()?;
            all.push(line);
        }
        Ok(all)
    }

    fn import(&mut self, line: &Directive, depth: usize) -> Result<Vec<Directive>, Failure> {
        let name = line.first();
        let snippet = self.snippets.iter().find(|snippet| snippet.name == format!("({name})"));
        if let Some(snippet) = snippet {
            if line.args.len() > 1 {
                self.notes.lost(line, "without its arguments");
            }
            let inner = snippet.inner().to_vec();
            return self.expand(inner, depth + 1);
        }
        let mut all = Vec::new();
        let found = self.files.matching(name, Path::new("/etc/caddy"));
        if found.is_empty() && !name.contains('*') {
            self.notes.lost(line, "there is no such file or snippet here");
        }
        for path in found {
            let inner = self.files.with(&path, &line.position, |_, text, shown| parse(text, shown))?;
            all.extend(self.expand(inner, depth + 1)?);
        }
        Ok(all)
    }
}

fn parse(text: &str, file: &Arc<str>) -> Result<Vec<Directive>, Failure> {
    let mut parser = Parser { rest: text, line: 1, file };
    let lines = parser.lines(0)?;
    if !parser.rest.is_empty() {
        return Err(Failure::new(&parser.position(), "a `}` without `{`"));
    }
    Ok(lines)
}

struct Parser<'p> {
    rest: &'p str,
    line: usize,
    file: &'p Arc<str>,
}

impl Parser<'_> {
    fn position(&self) -> Position {
        Position { file: Arc::clone(self.file), line: self.line }
    }

    /// The lines up to a `}` alone, which stays, or the end.
    fn lines(&mut self, depth: usize) -> Result<Vec<Directive>, Failure> {
        let mut lines = Vec::new();
        loop {
            let start = self.rest;
            let first = self.line;
            let position = self.position();
            let mut words = self.words(&position)?;
            // Addresses go on in the next line after a comma.
            while words.last().is_some_and(|word| word.ends_with(',')) && !self.rest.is_empty() {
                words.extend(self.words(&position)?);
            }
            let is_block = words.last().is_some_and(|word| word == "{");
            match &words[..] {
                [] if self.rest.is_empty() => return Ok(lines),
                [] => {}
                [end] if end == "}" => {
                    (self.rest, self.line) = (start, first);
                    return Ok(lines);
                }
                _ if is_block => {
                    if depth >= DEPTH_MAX {
                        return Err(Failure::new(
                            &position,
                            format!("blocks are nested more than {DEPTH_MAX} deep"),
                        ));
                    }
                    words.pop();
                    let inner = self.lines(depth + 1)?;
                    if self.words(&position)? != ["}"] {
                        return Err(Failure::new(&position, "a `{` without `}` in a line of its own"));
                    }
                    lines.push(Directive::new(words, Some(inner), &position));
                }
                _ => lines.push(Directive::new(words, None, &position)),
            }
        }
    }

    /// The words of a line, and its end.
    fn words(&mut self, position: &Position) -> Result<Vec<String>, Failure> {
        let mut words = Vec::new();
        loop {
            self.rest = self.rest.trim_start_matches([' ', '\t', '\r']);
            match self.rest.chars().next() {
                None => return Ok(words),
                Some('\n') => {
                    self.rest = &self.rest[1..];
                    self.line += 1;
                    return Ok(words);
                }
                Some('#') => self.rest = &self.rest[self.rest.find('\n').unwrap_or(self.rest.len())..],
                Some('\\') if self.rest[1..].starts_with('\n') => {
                    self.rest = &self.rest[2..];
                    self.line += 1;
                }
                Some(quote @ ('"' | '`')) => words.push(self.quoted(quote, position)?),
                Some(_) => {
                    let end = self.rest.find([' ', '\t', '\r', '\n']).unwrap_or(self.rest.len());
                    let word = self.rest[..end].to_owned();
                    if word.starts_with("<<") && word.len() > 2 {
                        return Err(Failure::new(
                            position,
                            "a text in several lines (`<<`) cannot be carried over",
                        ));
                    }
                    words.push(word);
                    self.rest = &self.rest[end..];
                }
            }
        }
    }

    fn quoted(&mut self, quote: char, position: &Position) -> Result<String, Failure> {
        let mut word = String::new();
        let mut chars = self.rest[1..].char_indices();
        while let Some((at, c)) = chars.next() {
            self.line += usize::from(c == '\n');
            match c {
                '\\' if quote == '"' => match chars.next() {
                    Some((_, '"')) => word.push('"'),
                    Some((_, other)) => {
                        self.line += usize::from(other == '\n');
                        word.extend(['\\', other]);
                    }
                    None => break,
                },
                c if c == quote => {
                    self.rest = &self.rest[at + 2..];
                    return Ok(word);
                }
                c => word.push(c),
            }
        }
        Err(Failure::new(position, "a quote without its end"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_words_and_blocks() {
        let lines = parse("a, \nb {\n  c \"d \\\" e\" `f` # g\n}\nh\n", &"Caddyfile".into()).unwrap();
        assert_eq!(lines[0].words(), ["a,", "b"]);
        assert_eq!(lines[0].inner()[0].words(), ["c", "d \" e", "f"]);
        assert_eq!((lines[0].inner()[0].position.line, lines[1].position.line), (3, 5));
    }

    #[test]
    fn errors_have_lines() {
        for (text, line) in [("a {\nb\n", 1), ("a\n}\n", 2), ("\n\"a", 2), ("a <<X\nb\nX\n", 1)] {
            assert_eq!(parse(text, &"Caddyfile".into()).unwrap_err().position.line, line, "{text}");
        }
        assert!(parse(&"a {\n".repeat(10_000), &"Caddyfile".into()).is_err());
    }
}
