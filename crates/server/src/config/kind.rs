//! The kinds of values: their bounds, and how the file and the documents show them.
//!
//! Called by the tables of options, the readers and the writers of values. It must not know any option.

use std::borrow::Cow;
use std::fmt;

use flash_units as units;

/// The words of [`Kind::AutoSwitch`] in help and completions.
const AUTO_SWITCH_WORDS: &[&str] = &["auto", "on", "off"];

/// The kind of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Addresses with their ports, any number.
    Addresses,
    /// The servers of a route: one, or a list.
    Servers,
    /// Networks of clients, any number.
    Networks,
    /// A text of this form.
    Text(TextFormat),
    /// Fields of heads, a table.
    Fields,
    /// Texts of this form, any number.
    Texts(TextFormat),
    /// A path, relative to the folder of its source.
    Path,
    /// Paths of files, any number, relative to the folder of their source.
    Paths,
    /// The permissions of a file, in octal digits.
    Permissions,
    /// A path, or this word.
    PathOr(&'static str),
    /// A program, or a list of a program and its arguments.
    Command,
    /// Yes or no.
    Switch,
    /// Yes, no, or `auto`.
    AutoSwitch,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A user, with a group or without.
    User,
    /// A number.
    Number(Bounds),
    /// Numbers, any number of them.
    Numbers(Bounds),
    /// A number, or `auto`.
    AutoNumber(Bounds),
}

/// The format of a text; `config::text_formats` has the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// The name of a file.
    FileName,
    /// The name of a host, or a pattern of names.
    Host,
    /// The beginning of a path.
    Prefix,
    /// The extension of a file, in lower case.
    Extension,
    /// The extension of a file.
    FileEnding,
    /// The target of a request.
    Target,
    /// The name or the address in the certificate of a server.
    ServerName,
    /// The name of a character set, or `off`.
    Charset,
    /// The value of `Strict-Transport-Security`, or `off`.
    Hsts,
    /// A form of log lines, or `off`.
    LogTemplate,
    /// The form of paths.
    Pattern,
    /// The name of a field.
    FieldName,
    /// The name of a field of requests.
    RequestField,
    /// The target of a redirect.
    Location,
    /// The path that takes the place of another, with or without a query.
    NewPath,
    /// The origin of a page, or `*` for all.
    Origin,
    /// The decoded path of a file.
    FilePath,
    /// The status of errors, or a hundred of them.
    ErrorStatus,
    /// A number of requests in a time.
    RequestRate,
}

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A whole number, without a unit.
    Count,
    /// A duration in milliseconds.
    Millis,
    /// A size, or a size per second, in bytes.
    Bytes,
    /// A size of memory or of files in bytes: a small number needs a unit.
    MemoryBytes,
    /// A rate in bits per second.
    BitsPerS,
}

/// The inclusive bounds of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The unit of both bounds and of the number.
    pub unit: Unit,
    /// The smallest number allowed.
    pub least: u64,
    /// The largest number allowed.
    pub most: u64,
}

impl Unit {
    /// Reads a number in this unit. One too large for 64 bits is `u64::MAX`.
    pub(super) fn parse(self, text: &str) -> Result<u64, String> {
        match self {
            Unit::Count if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) => {
                Err("must be a whole number, not negative".to_owned())
            }
            Unit::Count => Ok(text.parse().unwrap_or(u64::MAX)),
            Unit::Millis => units::parse_duration_ms(text),
            Unit::Bytes => units::parse_size_bytes(text),
            Unit::MemoryBytes => units::parse_memory_bytes(text),
            Unit::BitsPerS => units::parse_rate_bits(text),
        }
    }

    /// The number as [`Unit::parse`] reads it.
    pub(super) fn text(self, number: u64) -> String {
        match self {
            Unit::Count => number.to_string(),
            Unit::Millis => units::duration_text(number),
            Unit::Bytes | Unit::MemoryBytes => units::size_text(number),
            Unit::BitsPerS => units::rate_text(number),
        }
    }
}

/// `1 to 256`.
impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.unit.text(self.least), self.unit.text(self.most))
    }
}

impl Kind {
    /// Whether the option takes any number of values: a repeatable flag, a list in the file, commas in the
    /// environment.
    #[must_use]
    pub fn is_list(self) -> bool {
        matches!(self, Kind::Addresses | Kind::Texts(_) | Kind::Networks | Kind::Paths | Kind::Numbers(_))
    }

    /// The words that it can be, if it is one of a few.
    #[must_use]
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Kind::OneOf(words) => words,
            Kind::AutoSwitch => AUTO_SWITCH_WORDS,
            _ => &[],
        }
    }

    /// The form of such a value in the file; completes "must be ...".
    #[must_use]
    pub fn file_form(self) -> Cow<'static, str> {
        let form = match self {
            Kind::Addresses | Kind::Servers => "a list of addresses, such as [\"127.0.0.1:8080\"]",
            Kind::Texts(TextFormat::Host) => "a list of names, such as [\"example.org\"]",
            Kind::Texts(TextFormat::FieldName) => "a list of names, such as [\"ETag\"]",
            Kind::Texts(TextFormat::RequestField) => "a list of names, such as [\"X-User\"]",
            Kind::Texts(TextFormat::ErrorStatus) => "a list of statuses, such as [404, \"5xx\"]",
            Kind::Texts(TextFormat::Pattern) => "a list of paths, such as [\"/api/*\"]",
            Kind::Texts(TextFormat::FileEnding) => "a list of extensions, such as [\"html\"]",
            Kind::Texts(TextFormat::Origin) => "a list of origins, such as [\"https://www.example.org\"]",
            Kind::Texts(_) => "a list of names, such as [\"index.html\"]",
            Kind::Fields => "a table of fields, such as { \"Cache-Control\" = \"no-cache\" }",
            Kind::Paths => "a list of files, such as [\"site.pem\"]",
            Kind::Networks => "a list of networks, such as [\"10.0.0.0/8\"]",
            Kind::Text(TextFormat::Charset) => "a name in quotes, such as \"utf-8\" or \"off\"",
            Kind::Text(TextFormat::RequestRate) => "a rate in quotes, such as \"10/s\" or \"100/m\"",
            Kind::Text(TextFormat::LogTemplate) => {
                "a text in quotes, such as '{client} \"{request}\" {status}'"
            }
            Kind::Text(TextFormat::Hsts) => "a text in quotes, such as \"max-age=31536000\" or \"off\"",
            Kind::Text(_) => "a text in quotes",
            Kind::Command => "a program, or a list of a program and its arguments, in quotes",
            Kind::Path | Kind::PathOr(_) => "a path in quotes",
            Kind::Permissions => "permissions in quotes, such as \"0660\"",
            Kind::Switch => "true or false, without quotes",
            Kind::AutoSwitch => "\"auto\", or true or false, without quotes",
            Kind::OneOf(words) => return one_of(words, Some('"')).into(),
            Kind::User => "a user in quotes, such as \"www-data\" or \"www-data:www-data\"",
            Kind::Numbers(Bounds { unit: Unit::Count, .. }) => "a list of whole numbers, such as [1, 3]",
            Kind::Numbers(_) => "a list of sizes, such as [1000, \"50kB\"]",
            Kind::AutoNumber(_) => "\"auto\", a number of bytes, or a size in quotes, such as \"64MiB\"",
            Kind::Number(Bounds { unit, .. }) => match unit {
                Unit::Count => "a whole number, without quotes",
                Unit::Millis => "a duration in quotes, such as \"250ms\", \"5s\", \"2m\" or \"1h\"",
                Unit::Bytes | Unit::MemoryBytes => {
                    "a number of bytes, or a size in quotes, such as \"64KiB\" or \"1MiB\""
                }
                Unit::BitsPerS => "a rate in quotes, such as \"10Mbit\" or \"1Gbit\"",
            },
        };
        form.into()
    }

    /// The values, for the documents: `1 to 256`, `list of names`.
    #[must_use]
    pub fn summary(self) -> String {
        match self {
            Kind::Addresses => "list of addresses".to_owned(),
            Kind::Servers => "server, or list of up to 64".to_owned(),
            Kind::Texts(TextFormat::ErrorStatus) => "list of statuses".to_owned(),
            Kind::Texts(TextFormat::Pattern) => "list of texts".to_owned(),
            Kind::Texts(TextFormat::FileEnding) => "list of extensions".to_owned(),
            Kind::Texts(TextFormat::Origin) => "list of origins, or `*`".to_owned(),
            Kind::Texts(_) => "list of names".to_owned(),
            Kind::Fields => "table of names and values".to_owned(),
            Kind::Paths => "list of files".to_owned(),
            Kind::Networks => "list of networks".to_owned(),
            Kind::Text(TextFormat::Charset) => "name, or `off`".to_owned(),
            Kind::Text(TextFormat::LogTemplate) => "text with [fields](#access-log), or `off`".to_owned(),
            Kind::Text(TextFormat::Hsts) => "value of the field, or `off`".to_owned(),
            Kind::Text(TextFormat::RequestRate) => "number of requests, with `/s`, `/m` or `/h`".to_owned(),
            Kind::Text(TextFormat::Location) => "path or address".to_owned(),
            Kind::Text(TextFormat::NewPath | TextFormat::FilePath) => "path".to_owned(),
            Kind::Text(_) => "text".to_owned(),
            Kind::Command => "program, or list of a program and its arguments".to_owned(),
            Kind::Path => "path".to_owned(),
            Kind::Permissions => "permissions, such as `0660`".to_owned(),
            Kind::PathOr(word) => format!("path, or `{word}`"),
            Kind::Switch => "true or false".to_owned(),
            Kind::AutoSwitch | Kind::OneOf(_) => one_of(self.words(), Some('`')),
            Kind::User => "user, or user:group".to_owned(),
            Kind::Number(bounds) => bounds.to_string(),
            Kind::Numbers(bounds @ Bounds { unit: Unit::Count, .. }) => format!("list of numbers, {bounds}"),
            Kind::Numbers(bounds) => format!("list of sizes, {bounds}"),
            Kind::AutoNumber(bounds) => format!("`auto`, or {bounds}"),
        }
    }
}

pub(super) const HOUR_MS: u64 = 3_600_000;
pub(super) const GIB: u64 = 1 << 30;

pub(super) const fn bounds(unit: Unit, least: u64, most: u64) -> Bounds {
    Bounds { unit, least, most }
}

pub(super) const fn number(unit: Unit, least: u64, most: u64) -> Kind {
    Kind::Number(bounds(unit, least, most))
}

pub(super) const fn count(least: u64, most: u64) -> Kind {
    number(Unit::Count, least, most)
}

pub(super) const fn millis(least: u64, most: u64) -> Kind {
    number(Unit::Millis, least, most)
}

pub(super) const fn memory(least: u64, most: u64) -> Kind {
    number(Unit::MemoryBytes, least, most)
}

/// The words as a choice, each in these quotes or in none.
#[must_use]
pub fn one_of(words: &[&str], quote: Option<char>) -> String {
    let quote = quote.map(String::from).unwrap_or_default();
    let quoted: Vec<String> = words.iter().map(|word| format!("{quote}{word}{quote}")).collect();
    match quoted.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => quoted.concat(),
    }
}
