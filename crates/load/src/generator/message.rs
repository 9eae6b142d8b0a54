//! Requests other than a plain GET: their method, fields and body.
//!
//! The commands make a [`Message`] of their options; a stream of requests prepares the bytes of its heads from it once for
//! each method (`request.rs`). Pure, except that it reads the file of a body.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flash_http::basic;
use flash_kit::{Error, Result};

use crate::workload::method;

/// The largest body.
const BODY_BYTES_MAX: u64 = 64 << 20;
/// The most fields, and the longest of them: as much as servers take.
const FIELDS_MAX: usize = 64;
const FIELD_BYTES_MAX: usize = 8 * 1024;

/// The method, fields and body of requests. Comments of options are their help.
#[derive(Clone, Debug, Default, clap::Args)]
// Another struct of the same command has this name, too.
#[group(skip)]
#[command(next_help_heading = "Request")]
pub struct Options {
    /// Add a field such as 'Accept-Encoding: br' to each request; Host replaces that of the URL. Repeatable
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = Field::parse)]
    pub fields: Vec<Field>,

    /// Method of the requests [default: GET, or POST with a body]
    #[arg(short = 'X', long, value_name = "METHOD", value_parser = parse_method)]
    pub method: Option<String>,

    /// Send this text as the body
    #[arg(long, value_name = "TEXT", conflicts_with = "body_file")]
    pub body: Option<String>,

    /// Send the content of this file as the body
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub body_file: Option<PathBuf>,

    /// Send this name and password as Basic credentials
    #[arg(long, value_name = "NAME:PASSWORD")]
    pub user: Option<String>,
}

/// A field of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    name: String,
    value: String,
}

/// The method, fields and body of requests, checked.
#[derive(Clone, Debug, Default)]
pub struct Message {
    method: Option<String>,
    /// Without `Host`.
    pub(crate) fields: Vec<Field>,
    pub(crate) host: Option<String>,
    body: Option<Arc<[u8]>>,
}

fn parse_method(name: &str) -> std::result::Result<String, String> {
    method::check(name).map(|()| name.to_owned())
}

impl Field {
    /// Parses `NAME: VALUE`.
    ///
    /// Errors, in words: bytes that no field has (RFC 9110 section 5), or a field that the generator writes itself.
    fn parse(text: &str) -> std::result::Result<Self, String> {
        let (name, value) = text.split_once(':').ok_or("write NAME: VALUE")?;
        let value = value.trim_matches([' ', '\t']);
        if !method::is_token(name.as_bytes()) {
            return Err(format!("'{}' is no name of a field", name.escape_debug()));
        }
        if value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f) {
            return Err("control characters, such as line ends, are in no value of a field".to_owned());
        }
        if text.len() > FIELD_BYTES_MAX {
            return Err(format!("a field has at most {FIELD_BYTES_MAX} bytes"));
        }
        let why = match name.to_ascii_lowercase().as_str() {
            "content-length" => "the body gives it: use --body or --body-file",
            "transfer-encoding" | "te" | "trailer" => "bodies are sent with their length",
            "connection" | "keep-alive" | "proxy-connection" => {
                "connections are kept as --requests-per-connection says"
            }
            "upgrade" | "http2-settings" => "answers must be HTTP: use --http2 for HTTP/2",
            _ => return Ok(Self { name: name.to_owned(), value: value.to_owned() }),
        };
        Err(format!("{name} is written by the generator: {why}"))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn value(&self) -> &str {
        &self.value
    }

    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// Whether its value must not be in results.
    fn is_secret(&self) -> bool {
        let name = self.name.to_ascii_lowercase();
        ["authorization", "cookie", "token", "secret", "key"].iter().any(|part| name.contains(part))
    }

    /// As it is in results: without the value of a secret.
    fn shown(&self) -> String {
        format!("{}: {}", self.name, if self.is_secret() { "..." } else { &self.value })
    }
}

impl Message {
    /// Errors: usage, for fields that do not go together or a body that is too long; run, for a file that cannot be read.
    pub fn new(options: &Options) -> Result<Self> {
        let (hosts, mut fields): (Vec<Field>, Vec<Field>) =
            options.fields.iter().cloned().partition(|field| field.is("host"));
        if hosts.len() > 1 {
            return Err(Error::usage("a request has one Host: give it once"));
        }
        if let Some(user) = &options.user {
            if !user.contains(':') {
                return Err(Error::usage("write --user NAME:PASSWORD"));
            }
            if fields.iter().any(|field| field.is("authorization")) {
                return Err(Error::usage(
                    "a request has one Authorization: leave out --user, or the field of that name",
                ));
            }
            fields.push(Field { name: "Authorization".to_owned(), value: basic::value(user.as_bytes()) });
        }
        if fields.len() > FIELDS_MAX {
            return Err(Error::usage(format!("{} fields: at most {FIELDS_MAX} are possible", fields.len())));
        }
        let body = match (&options.body, &options.body_file) {
            (Some(text), _) => Some(text.as_bytes().into()),
            (None, Some(path)) => Some(read_body(path)?),
            (None, None) => None,
        };
        let host = hosts.into_iter().next().map(|field| field.value);
        Ok(Self { method: options.method.clone(), fields, host, body })
    }

    /// The method of requests that have none of their own.
    pub(crate) fn method(&self) -> &str {
        let default = if self.body.is_some() { "POST" } else { "GET" };
        self.method.as_deref().unwrap_or(default)
    }

    /// The body of requests with this method. A list may have a GET beside a POST: only the latter has one, unless GET is
    /// the method that was asked for.
    pub(crate) fn body(&self, name: &str) -> Option<&Arc<[u8]>> {
        self.body.as_ref().filter(|_| name == self.method() || method::has_content(name))
    }

    /// Whether a request of this method is the GET of a file, whose proper answer is the whole file.
    pub(crate) fn is_plain(&self, name: &str) -> bool {
        name == "GET" && self.fields.is_empty() && self.body(name).is_none()
    }

    /// Names its parts, for the settings of results.
    pub fn describe(&self, mut set: impl FnMut(&str, String)) {
        if self.method() != "GET" {
            set("method", self.method().to_owned());
        }
        let host = self.host.iter().map(|host| format!("Host: {host}"));
        let fields: Vec<String> = host.chain(self.fields.iter().map(Field::shown)).collect();
        if !fields.is_empty() {
            set("fields of requests", fields.join("; "));
        }
        if let Some(body) = &self.body {
            set("body of requests", format!("{} bytes", body.len()));
        }
    }
}

/// A command line for results: without passwords.
pub fn without_secrets(mut words: Vec<String>) -> Vec<String> {
    let mut before = String::new();
    for word in &mut words {
        let (option, start) = match word.split_once('=') {
            Some((option, _)) if word.starts_with("--") => (option.to_owned(), option.len() + 1),
            _ if word.starts_with("-H") && word.len() > 2 => ("-H".to_owned(), 2),
            _ => (std::mem::take(&mut before), 0),
        };
        let value = &word[start..];
        let shown = match (option.as_str(), Field::parse(value.trim_start_matches('='))) {
            ("--user", _) => Some("...".to_owned()),
            ("--header" | "-H", Ok(field)) if field.is_secret() => Some(field.shown()),
            _ => None,
        };
        before.clone_from(word);
        if let Some(shown) = shown {
            word.replace_range(start.., &shown);
        }
    }
    words
}

fn read_body(path: &Path) -> Result<Arc<[u8]>> {
    let length = std::fs::metadata(path).map_err(|why| Error::file("read", path, &why))?.len();
    if length > BODY_BYTES_MAX {
        let path = path.display();
        return Err(Error::usage(format!("{path} has {length} bytes: a body has at most {BODY_BYTES_MAX}")));
    }
    std::fs::read(path).map(Into::into).map_err(|why| Error::file("read", path, &why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(text: &str) -> Field {
        Field::parse(text).unwrap()
    }

    #[test]
    fn fields_are_checked() {
        assert_eq!(field("a: \t b c \t"), Field { name: "a".to_owned(), value: "b c".to_owned() });
        assert_eq!(field("X-Empty:").value, "");
        assert_eq!(field("X: é\t1").value, "é\t1");
        for (text, part) in [
            ("Accept", "write NAME: VALUE"),
            (": x", "no name of a field"),
            ("A B: x", "no name of a field"),
            ("A\r\nB: x", "no name of a field"),
            (":path: /", "no name of a field"),
            ("A: x\r\nB: y", "control characters"),
            ("A: x\0", "control characters"),
            ("content-LENGTH: 3", "use --body"),
            ("Transfer-Encoding: chunked", "with their length"),
            ("Connection: close", "--requests-per-connection"),
            ("Upgrade: h2c", "--http2"),
        ] {
            let error = Field::parse(text).unwrap_err();
            assert!(error.contains(part), "{text:?}: {error}");
        }
        assert!(Field::parse(&format!("A: {}", "x".repeat(FIELD_BYTES_MAX))).is_err());
    }

    #[test]
    fn a_message_is_made_of_its_options() {
        let options = Options {
            fields: vec![field("host: h"), field("A: b")],
            user: Some("Aladdin:open sesame".to_owned()),
            body: Some("text".to_owned()),
            ..Options::default()
        };
        let message = Message::new(&options).unwrap();
        // RFC 7617, section 2.
        let credentials = field("Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(message.fields, [field("A: b"), credentials]);
        assert_eq!((message.host.as_deref(), message.method()), (Some("h"), "POST"));
        assert!(message.body("PUT").is_some() && message.body("GET").is_none());
        let put = Message::new(&Options { method: Some("DELETE".to_owned()), ..options.clone() }).unwrap();
        assert!(put.body("DELETE").is_some() && put.body("PUT").is_some() && put.body("GET").is_none());
        let mut described = Vec::new();
        message.describe(|name, value| described.push(format!("{name} {value}")));
        let fields = "fields of requests Host: h; A: b; Authorization: ...";
        assert_eq!(described, ["method POST", fields, "body of requests 4 bytes"]);
        let wrong = |options: Options| Message::new(&options).unwrap_err().exit_code();
        assert_eq!(
            wrong(Options { fields: vec![field("Host: a"), field("host: b")], ..Options::default() }),
            2
        );
        assert_eq!(wrong(Options { fields: vec![field("authorization: x")], ..options.clone() }), 2);
        assert_eq!(wrong(Options { user: Some("x".to_owned()), ..Options::default() }), 2);
        assert_eq!(wrong(Options { body_file: Some("/not/there".into()), ..Options::default() }), 1);
        let plain = Message::default();
        assert!(plain.is_plain("GET") && !plain.is_plain("HEAD") && !message.is_plain("GET"));
    }

    #[test]
    fn results_have_no_passwords() {
        let words =
            "flash load -HCookie:x --user a:b --user=a:b -H Authorization:x --header=X-Api-Key:y -H Accept:z";
        let shown = without_secrets(words.split(' ').map(str::to_owned).collect());
        let expected = "flash load -HCookie: ... --user ... --user=... -H Authorization: ... --header=X-Api-Key: ... \
                        -H Accept:z";
        assert_eq!(shown.join(" "), expected);
    }
}
