//! Errors in the configuration, for people and for code.
//!
//! Every part of `config` reports [`Problem`]s. `Sources::load` collects them in a [`ConfigError`], which the binary prints at
//! startup and the supervisor on a reload. It must not decide what happens next, and writes only in [`ConfigError::print`].

use std::fmt;
use std::io::{ErrorKind, IsTerminal, Write};
use std::ops::Range;
use std::path::PathBuf;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

/// Maximum problems shown. Each takes a pass over the file, so a log given as a config file would otherwise keep the
/// supervisor busy for minutes.
const SHOWN_MAX: usize = 100;

/// The configuration is invalid.
#[derive(Clone, Debug)]
pub struct ConfigError {
    problems: Vec<Problem>,
    file: Option<SourceFile>,
}

/// The kind of a problem, or of a [`ConfigError`], of which the first problem decides. For code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigErrorKind {
    /// The config file or the current directory cannot be read.
    Read,
    /// The config file is not TOML.
    Syntax,
    /// A key, or a part of a table, is unknown, missing or duplicate.
    Key,
    /// A value has the wrong form for its key.
    Value,
    /// A file or directory named by a value cannot be used.
    Path,
    /// Settings from another process have the wrong shape.
    Handover,
}

/// The reason why a value was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The index of the wrong value, from 0.
    pub item: usize,
    /// The error and the right form; completes "wrong value for X: ...".
    pub why: String,
    /// A further hint, if any.
    pub help: Option<String>,
}

impl Refusal {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Refusal { item: 0, why: why.into(), help: None }
    }

    pub(super) fn helped(self, help: impl Into<Option<String>>) -> Self {
        Refusal { help: help.into(), ..self }
    }
}

/// A path that is not UTF-8, which TOML cannot hold.
#[derive(Debug, PartialEq, Eq)]
pub struct NotUtf8(
    /// The path, as far as it can be shown.
    pub String,
);

/// The file that the spans of problems are in.
#[derive(Clone, Debug)]
pub(super) struct SourceFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) kind: ConfigErrorKind,
    /// The failed operation and its subject: `wrong value for `workers``.
    title: String,
    why: String,
    help: Option<String>,
    /// The place in the file, in bytes; `None` if it is not in the file.
    span: Option<Range<usize>>,
    /// Another place in the file that belongs to the error, and its label.
    other: Option<(Range<usize>, String)>,
}

impl Problem {
    /// A problem that is not in the config file.
    pub(super) fn plain(title: impl Into<String>, why: impl Into<String>) -> Self {
        Problem {
            kind: ConfigErrorKind::Value,
            title: title.into(),
            why: why.into(),
            help: None,
            span: None,
            other: None,
        }
    }

    /// A problem at a place in the config file.
    pub(super) fn at(span: Range<usize>, title: impl Into<String>, why: impl Into<String>) -> Self {
        Problem { span: Some(span), ..Problem::plain(title, why) }
    }

    pub(super) fn of(self, kind: ConfigErrorKind) -> Self {
        Problem { kind, ..self }
    }

    pub(super) fn helped(self, help: impl Into<String>) -> Self {
        Problem { help: Some(help.into()), ..self }
    }

    pub(super) fn maybe_helped(self, help: Option<String>) -> Self {
        Problem { help: help.or(self.help), ..self }
    }

    pub(super) fn with_other(self, span: Range<usize>, label: impl Into<String>) -> Self {
        Problem { other: Some((span, label.into())), ..self }
    }

    /// The order in which problems are shown: those outside the file first, then by line.
    pub(super) fn position(&self) -> usize {
        self.span.as_ref().map_or(0, |span| span.start + 1)
    }

    fn render(&self, renderer: &Renderer, file: Option<&SourceFile>) -> String {
        let (title, why) = (inert(&self.title), inert(&self.why));
        let at = file.zip(self.span.clone());
        let path = file.map(|file| inert(&file.path.to_string_lossy())).unwrap_or_default();
        let mut group = match at {
            None => Group::with_title(Level::ERROR.primary_title(format!("{title}: {why}"))),
            Some((file, span)) => {
                let primary = AnnotationKind::Primary.span(span).label(why);
                let other = self
                    .other
                    .iter()
                    .map(|(span, label)| AnnotationKind::Context.span(span.clone()).label(inert(label)));
                let snippet = Snippet::source(&file.text).path(path).annotation(primary).annotations(other);
                Level::ERROR.primary_title(title).element(snippet)
            }
        };
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(inert(help)));
        }
        // The renderer replaces the control characters of ASCII in the lines of the file. It leaves those that follow
        // it, which terminals obey too.
        renderer.render(&[group]).replace(|c| ('\u{80}'..='\u{9f}').contains(&c), "\u{fffd}")
    }
}

/// `text`, which can quote the file, without the characters that act on a terminal.
fn inert(text: &str) -> String {
    text.replace('\t', " ").replace(|c: char| c.is_control() && c != '\n', "\u{fffd}")
}

impl ConfigError {
    /// All problems found; there must be at least one.
    pub(super) fn of_problems(mut problems: Vec<Problem>, file: Option<SourceFile>) -> Self {
        problems.sort_by_key(Problem::position);
        ConfigError { problems, file }
    }

    /// The kind of the error, for code.
    #[must_use]
    pub fn kind(&self) -> ConfigErrorKind {
        self.problems.first().map_or(ConfigErrorKind::Value, |problem| problem.kind)
    }

    /// The number of errors; the first hundred are shown.
    #[must_use]
    pub fn count(&self) -> usize {
        self.problems.len()
    }

    /// Every place in the file that the problems name, in bytes.
    #[cfg(feature = "fuzzing")]
    #[doc(hidden)]
    #[must_use]
    pub fn spans(&self) -> Vec<Range<usize>> {
        let others = self.problems.iter().filter_map(|problem| Some(problem.other.as_ref()?.0.clone()));
        self.problems.iter().filter_map(|problem| problem.span.clone()).chain(others).collect()
    }

    /// The text for users: several lines without a final newline, with colours if asked.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let shown = self.problems.iter().take(SHOWN_MAX);
        let mut texts: Vec<String> =
            shown.map(|problem| problem.render(&renderer, self.file.as_ref())).collect();
        if let Some(more @ 1..) = self.problems.len().checked_sub(SHOWN_MAX) {
            texts.push(format!("and {more} more"));
        }
        texts.join("\n\n")
    }

    /// The text for standard error, with colours if that is a terminal and `NO_COLOR` is not set.
    pub(crate) fn text_for_stderr(&self) -> String {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        self.render(std::io::stderr().is_terminal() && !no_colour)
    }

    /// Prints the text to standard error.
    pub fn print(&self) {
        // Without standard error there is no place to report to; `eprintln!` would panic.
        let _ = writeln!(std::io::stderr().lock(), "{}", self.text_for_stderr());
    }
}

/// The text of [`ConfigError::render`] without colours.
impl fmt::Display for ConfigError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.render(false))
    }
}

impl std::error::Error for ConfigError {}

/// Why the system refused a path, without its error number.
pub(super) fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such file or directory".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        ErrorKind::NotADirectory => "a part of the path is not a directory".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_only_when_asked() {
        let file = SourceFile { path: "flash.toml".into(), text: "a = 1\n".into() };
        let problem = Problem::at(4..5, "wrong value for `a`", "must be 2").helped("write 2");
        let error = ConfigError::of_problems(vec![problem], Some(file));
        assert!(!error.to_string().contains('\x1b'));
        assert!(error.render(true).contains('\x1b'));
    }

    #[test]
    fn no_more_than_a_hundred_are_shown() {
        let titles = |count| {
            let problems = vec![Problem::plain("t", "x"); count];
            let text = ConfigError::of_problems(problems, None).to_string();
            (
                text.lines().filter(|line| *line == "error: t: x").count(),
                text.lines().last().map(str::to_owned),
            )
        };
        assert_eq!(titles(SHOWN_MAX), (SHOWN_MAX, Some("error: t: x".to_owned())));
        assert_eq!(titles(SHOWN_MAX + 7), (SHOWN_MAX, Some("and 7 more".to_owned())));
    }

    #[test]
    fn problems_outside_the_file_come_first_then_by_line() {
        let file = SourceFile { path: "flash.toml".into(), text: "a = 1\nb = 2\n".into() };
        let problems = vec![
            Problem::at(10..11, "second", "x").of(ConfigErrorKind::Key),
            Problem::at(4..5, "first", "x").of(ConfigErrorKind::Path),
            Problem::plain("zeroth", "x").of(ConfigErrorKind::Read),
        ];
        let error = ConfigError::of_problems(problems, Some(file));
        assert_eq!((error.kind(), error.count()), (ConfigErrorKind::Read, 3));
        let text = error.to_string();
        let titles: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
        assert_eq!(titles, ["zeroth: x", "first", "second"]);
    }
}
