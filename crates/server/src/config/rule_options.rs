//! The table of the options of a rule, and the values that only rules have: fields of heads.
//!
//! Each row gives a key its default, help, and its field of the settings. The man page flash.toml(5) and a table in `docs/config.md`
//! follow from the rows. It must not read anything.

use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::admission::Clients;
use super::choices::{Choice, RedirectStatus};
use super::error::{NotUtf8, Refusal};
use super::file_path::FilePath;
use super::kind::{Kind, TextFormat, Unit, count, number};
use super::table::{DefaultValue, Field, fields, held, put, rows, show};
use super::values::{Item, ListItem, utf8};

const VALUE_BYTES_MAX: usize = 4_096;
/// `hsts` sets this field, which must not be sent over plain HTTP.
const STRICT: &str = "strict-transport-security";
/// Fields that follow from the answer itself, or belong to the connection (RFC 9110, sections 7.6.1 and 8; RFC 9112).
const NEVER: &[&str] = &[
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "keep-alive",
    "location",
    STRICT,
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Fields by which Flash describes the request to the server of a route, or that it takes out of requests or answers.
const OF_REQUESTS: &[&str] = &[
    "expect",
    "forwarded",
    "host",
    "max-forwards",
    "proxy",
    "proxy-authorization",
    "proxy-connection",
    "server",
    "status",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-method",
    "x-forwarded-proto",
    "x-forwarded-uri",
    "x-request-id",
    "x-sendfile",
];
/// No single value of these fields is right for several files.
const ONLY_REMOVED: &[&str] = &["accept-ranges", "etag", "last-modified"];

/// A field of a head: its name and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadField {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
}

impl fmt::Display for HeadField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.value)
    }
}

impl Item for HeadField {
    fn from_text(text: &OsStr, _: Kind) -> Result<Self, Refusal> {
        let (name, value) = utf8(text)?.split_once(':').unwrap_or_default();
        let name = field_name(name)?;
        if ONLY_REMOVED.iter().any(|field| field.eq_ignore_ascii_case(&name)) {
            return Err(Refusal::new(format!(
                "`{name}` differs from file to file; a rule can only remove it"
            )));
        }
        let value = value.trim_matches([' ', '\t']);
        let is_text = value.bytes().all(|byte| byte == b' ' || byte == b'\t' || byte.is_ascii_graphic());
        if value.is_empty() || value.len() > VALUE_BYTES_MAX || !is_text {
            let why = format!(
                "the value of `{name}` must be a text of ASCII, in one line and with at most {VALUE_BYTES_MAX} bytes"
            );
            return Err(Refusal::new(why));
        }
        Ok(Self { name, value: value.to_owned() })
    }

    fn to_text(&self, _: Kind) -> Result<String, NotUtf8> {
        Ok(self.to_string())
    }
}

impl ListItem for HeadField {
    const NONE_REFUSED: Option<&'static str> = Some("name at least one field");
}

/// The name of a field that a rule can change (RFC 9110, section 5.1).
pub(super) fn field_name(text: &str) -> Result<String, Refusal> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if text.is_empty() || text.len() > 64 || !text.bytes().all(is_token) {
        return Err(Refusal::new("must be the name of a field, such as Cache-Control"));
    }
    if NEVER.iter().any(|name| name.eq_ignore_ascii_case(text)) {
        let help = text.eq_ignore_ascii_case("content-type").then(|| "write it in `[types]`".to_owned());
        let help =
            help.or_else(|| text.eq_ignore_ascii_case(STRICT).then(|| "set `hsts` instead".to_owned()));
        return Err(
            Refusal::new(format!("`{text}` follows from the answer, and no rule can change it")).helped(help)
        );
    }
    Ok(text.to_owned())
}

/// The name of a field that `auth` can give to requests: none that Flash writes itself, or that belongs to the connection or to the body.
pub(super) fn request_field(text: &str) -> Result<String, Refusal> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if text.is_empty() || text.len() > 64 || !is_plain {
        return Err(Refusal::new("must be the name of a field with letters, digits and `-`, such as X-User"));
    }
    let is_for_flash = text.to_ascii_lowercase().starts_with("x-accel-");
    if is_for_flash || NEVER.iter().chain(OF_REQUESTS).any(|name| name.eq_ignore_ascii_case(text)) {
        return Err(Refusal::new(format!("`{text}` follows from the request, and no server can give it")));
    }
    Ok(text.to_owned())
}

macro_rules! target {
    ($key:ident: $type:ty, rule.$field:ident $(as $held:ty)?) => {
        Field {
            put: |given, rule| put(given.$key.as_ref(), &mut rule.$field),
            show: |rule, kind| show::<$type>(&rule.$field, kind),
        }
    };
}

use DefaultValue::{Depends, Text};

rows! {
    /// The options of a rule.
    RuleOverrides, (), Field<RuleOverrides, Rule>, RULE_OPTIONS,
    {

    path: String, (), Kind::Text(TextFormat::Pattern), Text("*"), [rule.path],
        "Apply the rule to paths of this form, in which each * stands for any characters";
    hashed: bool, (), Kind::Switch, Text("false"), [rule.hashed],
        "Apply the rule only to files whose name holds a hash of their content, such as app.3f2a9c1b.js; without other effects, let clients keep them for a year";
    except: Vec<String>, (), Kind::Texts(TextFormat::Pattern), Depends("none"), [rule.except],
        "Do not apply the rule to paths of these forms";
    allow: Vec<Clients>, (), Kind::Networks, Depends("all"), [rule.allow],
        "Answer only clients of these networks, others with 403";
    deny: Vec<Clients>, (), Kind::Networks, Depends("none"), [rule.deny],
        "Answer clients of these networks with 403";
    users: PathBuf, (), Kind::Path, Depends("everybody"), [rule.users as Option<FilePath>],
        "Answer only requests with the name and password of a user in this file, others with 401";
    auth: String, (), Kind::Text(TextFormat::FilePath), Depends("nobody"), [rule.auth as Option<String>],
        "Answer only requests for which the server of this path answers with success, others as that server does";
    auth_fields: Vec<String>, (), Kind::Texts(TextFormat::RequestField), Depends("none"), [rule.auth_fields],
        "Give the server of a route these fields of the answer of `auth`, in place of those of the client";
    rate: String, (), Kind::Text(TextFormat::RequestRate), Depends("none"), [rule.rate as Option<String>],
        "Answer 429 to a client that sends more requests than this";
    burst: u64, (), count(1, 1_000_000), Depends("the number of `rate`"), [rule.burst],
        "How many requests a client may send at once";
    total_rate: String, (), Kind::Text(TextFormat::RequestRate), Depends("none"), [rule.total_rate as Option<String>],
        "Answer 503 while all clients together send more requests than this";
    concurrency: u64, (), count(1, 1_000_000), Depends("none"), [rule.concurrency],
        "Answer 429 to a client while this many of its requests are being answered";
    total_concurrency: u64, (), count(1, 1_000_000), Depends("none"), [rule.total_concurrency],
        "Answer 503 while this many requests of all clients are being answered";
    bandwidth: u64, (), number(Unit::BitsPerS, 64_000, 100_000_000_000), Depends("none"), [rule.bandwidth],
        "Send no faster than this to each client";
    total_bandwidth: u64, (), number(Unit::BitsPerS, 64_000, 100_000_000_000), Depends("none"), [rule.total_bandwidth],
        "Send no faster than this to all clients together";
    set: Vec<HeadField>, (), Kind::Fields, Depends("none"), [rule.set],
        "Put these fields into the answers, in place of others with their names";
    add: Vec<HeadField>, (), Kind::Fields, Depends("none"), [rule.add],
        "Put these fields into the answers, in addition to others with their names";
    remove: Vec<String>, (), Kind::Texts(TextFormat::FieldName), Depends("none"), [rule.remove],
        "Leave fields with these names out of the answers";
    cors: Vec<String>, (), Kind::Texts(TextFormat::Origin), Depends("none"), [rule.cors],
        "Let scripts of pages with these origins read the answers; [\"*\"] stands for all origins";
    errors: bool, (), Kind::Switch, Text("false"), [rule.errors],
        "Change the fields of error answers too, not only of those with a status below 400";
    redirect: String, (), Kind::Text(TextFormat::Location), Depends("none"), [rule.redirect as Option<String>],
        "Send clients to this path or address, in which $1 stands for the characters of the first *";
    status: RedirectStatus, (), Kind::OneOf(RedirectStatus::WORDS), Text("302"), [rule.status],
        "Redirect with this status";
    rewrite: String, (), Kind::Text(TextFormat::NewPath), Depends("none"), [rule.rewrite as Option<String>],
        "Answer as if the request were for this path and query, in which $1 stands for the characters of the first *";
    try_extensions: Vec<String>, (), Kind::Texts(TextFormat::FileEnding), Depends("none"), [rule.try_extensions],
        "If there is no file of the requested path, answer with the first one whose name has one of these extensions in addition";
    fallback: String, (), Kind::Text(TextFormat::FilePath), Depends("none"), [rule.fallback as Option<String>],
        "If there is no file of the requested path, answer with the file or script of this path";
    alias: PathBuf, (), Kind::Path, Depends("none"), [rule.alias as Option<FilePath>],
        "Find the files of these paths in this folder: with /docs/*, the file of /docs/a is named a there";
    error_page: String, (), Kind::Text(TextFormat::FilePath), Depends("none"), [rule.error_page as Option<String>],
        "Show the HTML page at this path for errors";
    statuses: Vec<String>, (), Kind::Texts(TextFormat::ErrorStatus), Depends("all errors"), [rule.statuses],
        "Show error_page for errors with these statuses";
    }
    rule: {
        /// A rule of a site for paths.
        #[derive(Default)]
        Rule {
            /// The error page itself, if it could be read.
            pub error_html: Option<String>,
            /// The names and the stored passwords of the users.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub stored_users: Vec<(String, String)>,
        }
    }
}

impl Rule {
    /// Whether it bounds how many requests all workers together answer at once.
    pub(crate) fn needs_counts(&self) -> bool {
        self.concurrency > 0 || self.total_concurrency > 0
    }

    /// Whether it counts requests or bytes of all workers together.
    pub(crate) fn needs_buckets(&self) -> bool {
        self.rate.is_some() || self.total_rate.is_some() || self.bandwidth > 0 || self.total_bandwidth > 0
    }
}
