//! The grammar of Apache: directives of one line, sections, continued lines, `Include`, `Define` and conditional sections.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::directive::Directive;
use crate::files::Files;
use crate::notes::{Failure, Notes, Position};

/// How deep sections may be nested.
const DEPTH_MAX: usize = 32;
/// The longest value of a variable, so that variables in variables stay short.
const VALUE_BYTES_MAX: usize = 4_096;
/// The folder of relative paths of Debian's Apache.
const PREFIX: &str = "/etc/apache2";

/// The directives of a file, with those of the files that it includes in their places.
///
/// # Errors
/// A file cannot be read or parsed.
pub(super) fn read(path: &Path, files: &mut Files, notes: &mut Notes) -> Result<Vec<Directive>, Failure> {
    let mut variables = BTreeMap::new();
    for (name, value) in [
        ("APACHE_LOG_DIR", "/var/log/apache2"),
        ("APACHE_RUN_USER", "www-data"),
        ("APACHE_RUN_GROUP", "www-data"),
    ] {
        variables.insert(name.to_owned(), value.to_owned());
    }
    let mut reader = Reader { variables, notes };
    let whole = Position { file: files.shown(path), line: 0 };
    files.with(path, &whole, |files, text, shown| reader.parse(text, shown, files))
}

struct Reader<'r> {
    variables: BTreeMap<String, String>,
    notes: &'r mut Notes,
}

impl Reader<'_> {
    fn parse(&mut self, text: &str, file: &Arc<str>, files: &mut Files) -> Result<Vec<Directive>, Failure> {
        // The sections that are open, the outermost first.
        let mut open: Vec<Directive> = Vec::new();
        let mut done: Vec<Directive> = Vec::new();
        let mut lines = text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            let position = Position { file: Arc::clone(file), line: number + 1 };
            let mut line = line.trim_end().to_owned();
            while line.ends_with('\\') {
                line.pop();
                let Some((_, next)) = lines.next() else { break };
                line.push_str(next.trim_end());
            }
            let line = self.substituted(line.trim());
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(name) = line.strip_prefix("</") {
                let name = name.trim_end_matches('>').trim().to_ascii_lowercase();
                let Some(section) = open.pop().filter(|section| section.name == name) else {
                    return Err(Failure::new(&position, format!("</{name}> without its beginning")));
                };
                close(section, innermost(&mut open, &mut done));
                continue;
            }
            let section = line.strip_prefix('<');
            let words = words(
                section.map_or(line.as_str(), |rest| rest.strip_suffix('>').unwrap_or(rest)),
                &position,
            )?;
            if words.is_empty() {
                continue;
            }
            let is_section = section.is_some();
            let mut directive = Directive::new(words, is_section.then(Vec::new), &position);
            directive.name.make_ascii_lowercase();
            directive.line = line;
            if is_section {
                if open.len() >= DEPTH_MAX {
                    return Err(Failure::new(
                        &position,
                        format!("sections are nested more than {DEPTH_MAX} deep"),
                    ));
                }
                open.push(directive);
                continue;
            }
            let found = self.directive(directive, files)?;
            innermost(&mut open, &mut done).extend(found);
        }
        match open.pop() {
            Some(section) => {
                Err(Failure::new(&section.position, format!("<{}> without its end", section.name)))
            }
            None => Ok(done),
        }
    }

    fn directive(&mut self, directive: Directive, files: &mut Files) -> Result<Vec<Directive>, Failure> {
        match directive.name.as_str() {
            "define" => {
                let value = directive.args.get(1).cloned().unwrap_or_default();
                if value.len() <= VALUE_BYTES_MAX {
                    self.variables.insert(directive.first().to_owned(), value);
                }
                Ok(Vec::new())
            }
            "include" | "includeoptional" => {
                let path = directive.first().to_owned();
                // Modules have no settings of sites.
                if path.contains("mods-enabled") {
                    return Ok(Vec::new());
                }
                let found = files.matching(&path, Path::new(PREFIX));
                if found.is_empty() && directive.name == "include" && !path.contains('*') {
                    self.notes.lost(&directive, "there is no such file here");
                }
                let mut all = Vec::new();
                for path in found {
                    all.extend(files.with(&path, &directive.position, |files, text, shown| {
                        self.parse(text, shown, files)
                    })?);
                }
                Ok(all)
            }
            _ => Ok(vec![directive]),
        }
    }

    /// The line with the values of its variables; unknown ones stay.
    fn substituted(&self, line: &str) -> String {
        let mut done = String::with_capacity(line.len());
        let mut rest = line;
        while let Some((before, after)) = rest.split_once("${") {
            done.push_str(before);
            let known = after.split_once('}').and_then(|(name, end)| Some((self.variables.get(name)?, end)));
            match known.filter(|_| done.len() < VALUE_BYTES_MAX) {
                Some((value, end)) => {
                    done.push_str(value);
                    rest = end;
                }
                None => {
                    done.push_str("${");
                    rest = after;
                }
            }
        }
        done.push_str(rest);
        done
    }
}

/// Where the next directive belongs: in the innermost open section, if there is one.
fn innermost<'d>(open: &'d mut [Directive], done: &'d mut Vec<Directive>) -> &'d mut Vec<Directive> {
    open.last_mut().and_then(|section| section.block.as_mut()).unwrap_or(done)
}

/// Adds a section to those of its outer one. Conditional sections hold, except those for what is not there.
fn close(section: Directive, outer: &mut Vec<Directive>) {
    match section.name.as_str() {
        "ifmodule" | "ifdefine" | "ifversion" | "iffile" if section.first().starts_with('!') => {}
        "ifmodule" | "ifversion" | "iffile" => outer.extend(section.block.unwrap_or_default()),
        "ifdefine" => {}
        _ => outer.push(section),
    }
}

fn words(line: &str, position: &Position) -> Result<Vec<String>, Failure> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        if first != '"' && first != '\'' {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            words.push(rest[..end].to_owned());
            rest = rest[end..].trim_start();
            continue;
        }
        let (mut word, mut is_escaped, mut end) = (String::new(), false, None);
        for (at, c) in rest.char_indices().skip(1) {
            match c {
                c if c == first && !is_escaped => {
                    end = Some(at + 1);
                    break;
                }
                '\\' if !is_escaped => is_escaped = true,
                c => {
                    if is_escaped && c != first {
                        word.push('\\');
                    }
                    word.push(c);
                    is_escaped = false;
                }
            }
        }
        let Some(end) = end else { return Err(Failure::new(position, "a quote without its end")) };
        words.push(word);
        rest = rest[end..].trim_start();
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Directive>, Failure> {
        let mut notes = Notes::default();
        let mut reader = Reader { variables: BTreeMap::new(), notes: &mut notes };
        reader.parse(text, &"apache2.conf".into(), &mut Files::new(Path::new("/nowhere/apache2.conf")))
    }

    #[test]
    fn lines_have_words_sections_and_variables() {
        let text = "Define a /srv\n<VirtualHost *:80>\n  DocumentRoot \"${a}/b c\" \\\n x\n <IfModule !x>\n y\n </IfModule>\n</VirtualHost>\n";
        let all = parsed(text).unwrap();
        assert_eq!((all[0].name.as_str(), all[0].first(), all[0].inner().len()), ("virtualhost", "*:80", 1));
        assert_eq!(all[0].inner()[0].args, ["/srv/b c", "x"]);
    }

    #[test]
    fn errors_have_lines() {
        for (text, line) in [("<A>\nb\n", 1), ("a\n</A>\n", 2), ("\na \"b\n", 2), ("<A>\n</B>\n", 2)] {
            assert_eq!(parsed(text).unwrap_err().position.line, line, "{text}");
        }
        assert!(parsed(&"<a>\n".repeat(10_000)).is_err());
    }
}
