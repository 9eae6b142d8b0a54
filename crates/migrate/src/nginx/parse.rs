//! The grammar of nginx: words with quotes and escapes, `;`, blocks, comments and `include`.

use std::path::Path;
use std::sync::Arc;

use crate::directive::Directive;
use crate::files::Files;
use crate::notes::{Failure, Notes, Position};

/// How deep blocks may be nested.
const DEPTH_MAX: usize = 32;
/// The folder of relative paths, if they are not beneath the first file's.
const PREFIX: &str = "/etc/nginx";
/// Files of every installation whose contents Flash has itself.
const KNOWN_FILES: &[&str] =
    &["mime.types", "fastcgi_params", "fastcgi.conf", "fastcgi-php.conf", "uwsgi_params", "scgi_params"];

/// The directives of a file, with those of the files that it includes in their places.
///
/// # Errors
/// The file cannot be read or parsed, or one that it includes cannot be parsed.
pub(super) fn read(path: &Path, files: &mut Files, notes: &mut Notes) -> Result<Vec<Directive>, Failure> {
    let whole = Position { file: files.shown(path), line: 0 };
    files.with(path, &whole, |files, text, shown| parse(text, shown, files, notes))
}

fn parse(
    text: &str,
    file: &Arc<str>,
    files: &mut Files,
    notes: &mut Notes,
) -> Result<Vec<Directive>, Failure> {
    let mut parser = Parser { text, at: 0, line: 1, file, files, notes };
    let directives = parser.block(0)?;
    if parser.text.as_bytes().get(parser.at) == Some(&b'}') {
        return Err(Failure::new(&parser.position(), "a `}` without `{`"));
    }
    Ok(directives)
}

/// A part of the text.
enum Token {
    Word(String),
    /// `;`, `{` or `}`.
    Mark(u8),
    End,
}

struct Parser<'p> {
    text: &'p str,
    at: usize,
    line: usize,
    file: &'p Arc<str>,
    files: &'p mut Files,
    notes: &'p mut Notes,
}

impl Parser<'_> {
    fn position(&self) -> Position {
        Position { file: Arc::clone(self.file), line: self.line }
    }

    fn fail<T>(&self, position: &Position, why: &str) -> Result<T, Failure> {
        Err(Failure::new(position, why))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b'\n' => self.line += 1,
                b' ' | b'\t' | b'\r' => {}
                b'#' => {
                    let rest = &self.text[self.at..];
                    self.at += rest.find('\n').unwrap_or(rest.len());
                    continue;
                }
                _ => return,
            }
            self.at += 1;
        }
    }

    fn token(&mut self) -> Result<Token, Failure> {
        self.skip_space();
        match self.peek() {
            None => Ok(Token::End),
            Some(mark @ (b';' | b'{' | b'}')) => {
                self.at += 1;
                Ok(Token::Mark(mark))
            }
            Some(quote @ (b'"' | b'\'')) => {
                let position = self.position();
                self.at += 1;
                let word = self.word(|byte, _| byte == quote);
                if self.peek().is_none() {
                    return self.fail(&position, "a quote without its end");
                }
                self.at += 1;
                Ok(Token::Word(word))
            }
            Some(_) => Ok(Token::Word(self.word(|byte, before| match byte {
                b' ' | b'\t' | b'\r' | b'\n' | b';' => true,
                // `${name}` is a part of a word.
                b'{' => before != b'$',
                _ => false,
            }))),
        }
    }

    /// The characters up to the end of a word, with escapes replaced.
    fn word(&mut self, is_end: impl Fn(u8, u8) -> bool) -> String {
        let mut word = String::new();
        let mut before = 0;
        while let Some(c) = self.text[self.at..].chars().next() {
            let byte = c.try_into().unwrap_or(u8::MAX);
            if is_end(byte, before) {
                break;
            }
            self.at += c.len_utf8();
            self.line += usize::from(c == '\n');
            before = byte;
            if c != '\\' {
                word.push(c);
                continue;
            }
            let Some(escaped) = self.text[self.at..].chars().next() else { break };
            self.at += escaped.len_utf8();
            self.line += usize::from(escaped == '\n');
            match escaped {
                '"' | '\'' | '\\' => word.push(escaped),
                't' => word.push('\t'),
                'n' => word.push('\n'),
                'r' => word.push('\r'),
                other => word.extend(['\\', other]),
            }
            before = 0;
        }
        word
    }

    /// The directives up to a `}`, which stays, or the end.
    fn block(&mut self, depth: usize) -> Result<Vec<Directive>, Failure> {
        let mut directives = Vec::new();
        loop {
            self.skip_space();
            if matches!(self.peek(), None | Some(b'}')) {
                return Ok(directives);
            }
            let position = self.position();
            let directive = self.directive(&position, depth)?;
            if directive.name == "include" && directive.block.is_none() {
                directives.extend(self.include(&directive)?);
            } else {
                directives.push(directive);
            }
        }
    }

    fn directive(&mut self, position: &Position, depth: usize) -> Result<Directive, Failure> {
        let mut words = Vec::new();
        loop {
            match self.token()? {
                Token::Word(word) => words.push(word),
                Token::Mark(_) if words.is_empty() => {
                    return self.fail(position, "a `;` or `{` without a directive");
                }
                Token::Mark(b';') => return Ok(Directive::new(words, None, position)),
                Token::Mark(b'{') if depth >= DEPTH_MAX => {
                    return self.fail(position, &format!("blocks are nested more than {DEPTH_MAX} deep"));
                }
                Token::Mark(b'{') if words[0].ends_with("_by_lua_block") => {
                    self.skip_lua(position)?;
                    return Ok(Directive::new(words, Some(Vec::new()), position));
                }
                Token::Mark(b'{') => {
                    let inner = self.block(depth + 1)?;
                    let Token::Mark(b'}') = self.token()? else {
                        return self.fail(position, &format!("`{}` has a `{{` without `}}`", words[0]));
                    };
                    return Ok(Directive::new(words, Some(inner), position));
                }
                Token::Mark(_) | Token::End => {
                    return self.fail(position, &format!("`{}` ends without `;`", words.join(" ")));
                }
            }
        }
    }

    /// Passes over a block in another language.
    fn skip_lua(&mut self, position: &Position) -> Result<(), Failure> {
        let mut open = 1;
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                b'\n' => self.line += 1,
                b'{' => open += 1,
                b'}' => open -= 1,
                _ => {}
            }
            if open == 0 {
                return Ok(());
            }
        }
        self.fail(position, "a `{` without `}`")
    }

    fn include(&mut self, directive: &Directive) -> Result<Vec<Directive>, Failure> {
        let path = directive.first();
        let name = path.rsplit('/').next().unwrap_or_default();
        if KNOWN_FILES.contains(&name) {
            return Ok(Vec::new());
        }
        let found = self.files.matching(path, Path::new(PREFIX));
        if found.is_empty() && !path.contains(['*', '?']) {
            self.notes.lost(directive, "there is no such file here");
        }
        let mut directives = Vec::new();
        for path in found {
            let notes = &mut *self.notes;
            directives.extend(
                self.files.with(&path, &directive.position, |files, text, shown| {
                    parse(text, shown, files, notes)
                })?,
            );
        }
        Ok(directives)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Directive>, Failure> {
        let mut files = Files::new(Path::new("/nowhere/nginx.conf"));
        parse(text, &"nginx.conf".into(), &mut files, &mut Notes::default())
    }

    #[test]
    fn words_have_quotes_escapes_and_variables() {
        let all = parsed("a 'b c' \"d\\\"e\" ${x}y \\.z; # end\nb { c; }").unwrap();
        assert_eq!(all[0].args, ["b c", "d\"e", "${x}y", "\\.z"]);
        assert_eq!((all[1].inner()[0].name.as_str(), all[1].position.line), ("c", 2));
    }

    #[test]
    fn what_is_wrong_has_its_line() {
        for (text, line, part) in [
            ("a;\nb {\nc;", 2, "without `}`"),
            ("a;\n}", 2, "without `{`"),
            ("a\n", 1, "without `;`"),
            ("a {\n b\n}", 2, "without `;`"),
            ("\n'x", 2, "quote"),
            (";", 1, "without a directive"),
        ] {
            let failure = parsed(text).unwrap_err();
            assert!(failure.position.line == line && failure.why.contains(part), "{text}: {failure}");
        }
        let failure = parsed(&"a{".repeat(100_000)).unwrap_err();
        assert!(failure.why.contains("nested"), "{failure}");
        assert!(parsed("a_by_lua_block { if x then { } end } b;").is_ok());
    }
}
