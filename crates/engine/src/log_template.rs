//! Forms of log lines: a text with fields in braces, such as `{client} {status}`. The formats that have a name are such texts too.
//! The rules have them; the [access log](crate::access_log) fills them in.

use serde::{Deserialize, Serialize};

/// Longest template in bytes.
const TEMPLATE_BYTES_MAX: usize = 1_000;

const COMBINED: &str = r#"{client} - {user} [{time}] "{request}" {status} {bytes} "{referer}" "{agent}""#;
const COMBINED_HOST: &str =
    r#"{client} - {user} [{time}] "{request}" {status} {bytes} "{referer}" "{agent}" "{host}""#;
const JSON: &str = concat!(
    r#"{{"time":"{time_iso}","peer":"{client}","host":"{host}"{json_user},"request":"{request}","#,
    r#""status":{status},"bytes":{bytes},"whole":{whole},"duration_ms":{duration_ms},"#,
    r#""referer":"{referer}","agent":"{agent}","scheme":"{scheme}","tls":"{tls}","cache":"{cache}","#,
    r#""first_ms":{first_ms},"queue_ms":{queue_ms},"helper_ms":{helper_ms}}}"#,
);

/// The format of access-log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Apache's and nginx's combined format.
    Combined,
    /// The same with the host of the request at the end, in quotes.
    CombinedHost,
    /// One JSON object per line.
    Json,
    /// The form of a [`LogTemplate`].
    Template,
    /// No lines.
    #[default]
    Off,
}

/// A form of lines that the operator has written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LogTemplate(String);

impl LogTemplate {
    /// The text of the template.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for LogTemplate {
    type Error = String;

    /// Errors: the field that does not exist or the brace without another one, for a message.
    fn try_from(text: String) -> Result<Self, String> {
        if text.len() > TEMPLATE_BYTES_MAX {
            return Err(format!("longer than {TEMPLATE_BYTES_MAX} bytes"));
        }
        if text.chars().any(char::is_control) {
            return Err("it contains a control character".to_owned());
        }
        let fields = parse(&text, Escape::Text)?.iter().flat_map(FormRun::fields).collect::<Vec<_>>();
        let twice = fields.iter().enumerate().find(|(at, field)| fields[..*at].contains(field));
        if let Some((_, twice)) = twice {
            return Err(format!("`{{{twice}}}` is in it twice"));
        }
        if fields.contains(&"request") && fields.contains(&"target") {
            return Err("`{request}` contains `{target}`: use one of them".to_owned());
        }
        if fields.is_empty() {
            return Err("it has no field, such as `{request}`".to_owned());
        }
        Ok(Self(text))
    }
}

impl From<LogTemplate> for String {
    fn from(template: LogTemplate) -> Self {
        template.0
    }
}

/// How the texts of clients are made harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escape {
    /// As Apache and nginx do.
    Text,
    Json,
}

/// The form of lines, ready to be filled in: runs of fields of the request, which are made once for each repeated request, and runs
/// of fields of its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogForm {
    pub(crate) escape: Escape,
    pub(crate) runs: Vec<FormRun>,
}

impl LogForm {
    /// None if nothing is logged. Without a template, [`LogFormat::Template`] is the same as [`LogFormat::Combined`].
    pub fn new(format: LogFormat, template: Option<&LogTemplate>) -> Option<Self> {
        let (text, escape) = match (format, template) {
            (LogFormat::Off, _) => return None,
            (LogFormat::Json, _) => (JSON, Escape::Json),
            (LogFormat::CombinedHost, _) => (COMBINED_HOST, Escape::Text),
            (LogFormat::Template, Some(template)) => (template.as_str(), Escape::Text),
            (LogFormat::Combined | LogFormat::Template, _) => (COMBINED, Escape::Text),
        };
        // Templates are checked when they are made, and the tests parse the others.
        let runs = parse(text, escape).unwrap_or_default();
        Some(Self { escape, runs })
    }
}

/// Which lines are written, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRules {
    /// None if nothing is logged.
    pub form: Option<LogForm>,
    /// One in this many lines is written of whole answers with a status below 400; 0 and 1 write all of them.
    pub sample: u64,
    /// The number of the log of each site, if its requests are logged.
    pub of_sites: Vec<Option<u16>>,
    /// The number of the log of requests without a site.
    pub of_others: Option<u16>,
}

impl LogRules {
    /// All lines in a format with a name, in one log.
    pub fn of(format: LogFormat) -> Self {
        Self { form: LogForm::new(format, None), sample: 1, of_sites: Vec::new(), of_others: Some(0) }
    }
}

/// Pieces of a line that come from one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FormRun {
    Request(Vec<FormPiece<RequestField>>),
    Answer(Vec<FormPiece<AnswerField>>),
}

impl FormRun {
    fn fields(&self) -> Vec<&'static str> {
        match self {
            FormRun::Request(pieces) => {
                pieces.iter().filter_map(|piece| piece.name(REQUEST_FIELDS)).collect()
            }
            FormRun::Answer(pieces) => pieces.iter().filter_map(|piece| piece.name(ANSWER_FIELDS)).collect(),
        }
    }
}

/// A piece of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FormPiece<F> {
    Text(FormText),
    Field(F),
}

/// A text between fields, of which most are short: their bytes are in a place whose size the compiler knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FormText {
    first: [u8; 16],
    first_bytes: usize,
    rest: Box<[u8]>,
}

impl FormText {
    fn new(text: &[u8]) -> Self {
        let mut first = [0; 16];
        let first_bytes = text.len().min(first.len());
        first[..first_bytes].copy_from_slice(&text[..first_bytes]);
        Self { first, first_bytes, rest: text[first_bytes..].into() }
    }

    pub(crate) fn push(&self, out: &mut Vec<u8>) {
        push_start(out, self.first, self.first_bytes);
        if !self.rest.is_empty() {
            out.extend_from_slice(&self.rest);
        }
    }
}

/// Appends the first bytes of an array. Copying all of it costs a few instructions, copying some a call.
#[inline]
pub(crate) fn push_start<const N: usize>(out: &mut Vec<u8>, bytes: [u8; N], length: usize) {
    let end = out.len() + length;
    out.extend_from_slice(&bytes);
    out.truncate(end);
}

impl<F: PartialEq> FormPiece<F> {
    fn name(&self, names: &[(&'static str, F)]) -> Option<&'static str> {
        let FormPiece::Field(field) = self else { return None };
        names.iter().find(|(_, named)| named == field).map(|(name, _)| *name)
    }
}

/// A field that the request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestField {
    User,
    /// The same as a member of an object, with the comma before it, if there is one.
    JsonUser,
    Request,
    Method,
    Target,
    Protocol,
    Host,
    Referer,
    Agent,
}

const REQUEST_FIELDS: &[(&str, RequestField)] = &[
    ("user", RequestField::User),
    ("json_user", RequestField::JsonUser),
    ("request", RequestField::Request),
    ("method", RequestField::Method),
    ("target", RequestField::Target),
    ("protocol", RequestField::Protocol),
    ("host", RequestField::Host),
    ("referer", RequestField::Referer),
    ("agent", RequestField::Agent),
];

/// A field that is known when the answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerField {
    Client,
    Time,
    TimeIso,
    Status,
    Bytes,
    Whole,
    Duration,
    First,
    Queue,
    Helper,
    Cache,
    Scheme,
    Tls,
}

const ANSWER_FIELDS: &[(&str, AnswerField)] = &[
    ("client", AnswerField::Client),
    ("time", AnswerField::Time),
    ("time_iso", AnswerField::TimeIso),
    ("status", AnswerField::Status),
    ("bytes", AnswerField::Bytes),
    ("whole", AnswerField::Whole),
    ("duration_ms", AnswerField::Duration),
    ("first_ms", AnswerField::First),
    ("queue_ms", AnswerField::Queue),
    ("helper_ms", AnswerField::Helper),
    ("cache", AnswerField::Cache),
    ("scheme", AnswerField::Scheme),
    ("tls", AnswerField::Tls),
];

/// Reads a template: `{{` and `}}` stand for braces.
fn parse(template: &str, escape: Escape) -> Result<Vec<FormRun>, String> {
    let mut runs = Vec::new();
    let mut text = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        text.extend_from_slice(&rest.as_bytes()[..at]);
        let (brace, after) = rest[at..].split_at(1);
        if let Some(after) = after.strip_prefix(brace) {
            text.extend_from_slice(brace.as_bytes());
            rest = after;
            continue;
        }
        let field = after.split_once('}').filter(|_| brace == "{");
        let (name, after) =
            field.ok_or("a brace has no counterpart; write `{{` or `}}` for a brace itself")?;
        push_field(&mut runs, &mut text, name, escape)?;
        rest = after;
    }
    text.extend_from_slice(rest.as_bytes());
    match runs.last_mut() {
        _ if text.is_empty() => {}
        Some(FormRun::Request(pieces)) => pieces.push(FormPiece::Text(FormText::new(&text))),
        Some(FormRun::Answer(pieces)) => pieces.push(FormPiece::Text(FormText::new(&text))),
        None => runs.push(FormRun::Request(vec![FormPiece::Text(FormText::new(&text))])),
    }
    Ok(runs)
}

/// Adds a field after the text that precedes it, which goes to a run of the request if one is beside it.
fn push_field(runs: &mut Vec<FormRun>, text: &mut Vec<u8>, name: &str, escape: Escape) -> Result<(), String> {
    let text = std::mem::take(text);
    let before = (!text.is_empty()).then(|| FormText::new(&text));
    if let Some((_, field)) = REQUEST_FIELDS.iter().find(|(known, _)| *known == name)
        && (*field != RequestField::JsonUser || escape == Escape::Json)
    {
        if !matches!(runs.last(), Some(FormRun::Request(_))) {
            runs.push(FormRun::Request(Vec::new()));
        }
        if let Some(FormRun::Request(pieces)) = runs.last_mut() {
            pieces.extend(before.map(FormPiece::Text));
            pieces.push(FormPiece::Field(*field));
        }
        return Ok(());
    }
    let Some((_, field)) = ANSWER_FIELDS.iter().find(|(known, _)| *known == name) else {
        return Err(format!("there is no field `{{{name}}}`"));
    };
    let before = match (runs.last_mut(), before) {
        (Some(FormRun::Request(pieces)), Some(text)) => {
            pieces.push(FormPiece::Text(text));
            None
        }
        (_, before) => before,
    };
    if !matches!(runs.last(), Some(FormRun::Answer(_))) {
        runs.push(FormRun::Answer(Vec::new()));
    }
    if let Some(FormRun::Answer(pieces)) = runs.last_mut() {
        pieces.extend(before.map(FormPiece::Text));
        pieces.push(FormPiece::Field(*field));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<LogTemplate, String> {
        LogTemplate::try_from(text.to_owned())
    }

    #[test]
    fn named_formats_are_templates_with_all_their_fields() {
        for (text, escape, fields) in
            [(COMBINED, Escape::Text, 8), (COMBINED_HOST, Escape::Text, 9), (JSON, Escape::Json, 17)]
        {
            let runs = parse(text, escape).expect("a form");
            assert_eq!(runs.iter().flat_map(FormRun::fields).count(), fields, "{text}");
        }
        assert_eq!(LogForm::new(LogFormat::Off, None), None);
    }

    #[test]
    fn texts_between_fields_belong_to_the_request_where_they_can() {
        let runs = parse("a{client}b{agent}c{status}d{bytes}e", Escape::Text).expect("a form");
        let text = |text: &str| FormText::new(text.as_bytes());
        assert_eq!(
            runs,
            [
                FormRun::Answer(vec![FormPiece::Text(text("a")), FormPiece::Field(AnswerField::Client)]),
                FormRun::Request(vec![
                    FormPiece::Text(text("b")),
                    FormPiece::Field(RequestField::Agent),
                    FormPiece::Text(text("c")),
                ]),
                FormRun::Answer(vec![
                    FormPiece::Field(AnswerField::Status),
                    FormPiece::Text(text("d")),
                    FormPiece::Field(AnswerField::Bytes),
                    FormPiece::Text(text("e")),
                ]),
            ]
        );
    }

    #[test]
    fn wrong_templates_are_refused_with_the_reason() {
        assert_eq!(of("{{}}{status}{{").map(|template| template.as_str().len()), Ok(14));
        for (text, why) in [
            ("", "no field"),
            ("no field", "no field"),
            ("{state}", "there is no field `{state}`"),
            ("{json_user}", "there is no field"),
            ("{status", "no counterpart"),
            ("status}", "no counterpart"),
            ("{{status}", "no counterpart"),
            ("{status} {status}", "`{status}` is in it twice"),
            ("{request} {target}", "use one of them"),
            ("{status}\n", "control character"),
        ] {
            let refused = of(text).expect_err(text);
            assert!(refused.contains(why), "{text}: {refused}");
        }
        assert!(of(&"x".repeat(1_001)).expect_err("too long").contains("longer than 1000 bytes"));
    }
}
