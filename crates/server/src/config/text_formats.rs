//! The formats of texts: names of files and hosts, paths, extensions, content types.
//!
//! Called by `config::values` for values of options, and by `config::file` for hosts and content types. It must not touch the system.

use flash_engine::LogTemplate;

use super::error::Refusal;
use super::kind::TextFormat;
use super::rule_options::{field_name, request_field};
use super::values::OFF;

/// The word of `Strict-Transport-Security` that includes all names below a host.
const SUBDOMAINS: &str = "includeSubDomains";
const STARS_MAX: usize = 8;
const REQUESTS_MAX: u32 = 1_000_000;
const PATH_BYTES_MAX: usize = 1_024;

impl TextFormat {
    /// The text in the form in which the server compares it.
    pub(super) fn read(self, text: &str) -> Result<String, Refusal> {
        match self {
            TextFormat::FileName => file_name(text),
            TextFormat::Host => host(text),
            TextFormat::Prefix => prefix(text),
            TextFormat::Extension => extension(text),
            // In upper or lower case as the names of files have it.
            TextFormat::FileEnding => extension(text).map(|_| text.to_owned()),
            TextFormat::Target => target(text),
            TextFormat::ServerName => server_name(text),
            TextFormat::Charset => charset(text),
            TextFormat::Hsts => hsts(text),
            TextFormat::LogTemplate => log_template(text),
            TextFormat::Pattern => pattern(text),
            TextFormat::FieldName => field_name(text),
            TextFormat::RequestField => request_field(text),
            TextFormat::Location => location(text),
            TextFormat::NewPath => new_path(text),
            TextFormat::Origin => origin(text),
            TextFormat::FilePath => file_path(text),
            TextFormat::ErrorStatus => error_status(text),
            TextFormat::RequestRate => request_rate(text),
        }
    }
}

fn file_name(name: &str) -> Result<String, Refusal> {
    if name.contains('/') {
        return Err(Refusal::new("must be the name of a file, without `/`"));
    }
    if name.is_empty() || name == "." || name == ".." || name.contains('\0') || name.len() > 255 {
        return Err(Refusal::new("must be the name of a file, such as index.html"));
    }
    Ok(name.to_owned())
}

/// A host in the form that virtual hosts are looked up by: lower case, no port, no final dot.
fn host(text: &str) -> Result<String, Refusal> {
    let lower = text.to_ascii_lowercase();
    let name = lower.strip_suffix('.').unwrap_or(&lower);
    if name.starts_with('[') || name.matches(':').count() > 1 {
        return bracketed(name);
    }
    if let Some((name, _)) = name.split_once(':') {
        let help = format!("write `{name}`: a site answers on every address that Flash listens on");
        return Err(Refusal::new("must be a host without a port").helped(help));
    }
    if !name.is_ascii() {
        let help = "write its ASCII form, such as `xn--bcher-kva.example`";
        return Err(Refusal::new("must be ASCII").helped(help.to_owned()));
    }
    let labels = name.strip_prefix("*.").unwrap_or(name);
    if labels.contains('*') {
        let why = "`*` can replace only the first part, as in `*.example.org`";
        return Err(Refusal::new(why));
    }
    let fits = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if name.len() > 253 || !labels.split('.').all(fits) {
        return Err(Refusal::new("must be a host name, such as `example.org` or `*.example.org`"));
    }
    Ok(name.to_owned())
}

/// An IPv6 address as in `Host`, in brackets.
fn bracketed(name: &str) -> Result<String, Refusal> {
    let inner = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match inner.unwrap_or(name).parse::<std::net::Ipv6Addr>() {
        Ok(address) if inner.is_some() => Ok(format!("[{address}]")),
        Ok(address) => {
            Err(Refusal::new("an IPv6 address needs brackets").helped(format!("write `[{address}]`")))
        }
        Err(_) => Err(Refusal::new("must be a host name or an IPv6 address in brackets, without a port")),
    }
}

/// A file extension, lower case, without its dot.
pub(super) fn extension(text: &str) -> Result<String, Refusal> {
    if let Some(rest) = text.strip_prefix('.') {
        return Err(Refusal::new("must be an extension without its dot").helped(format!("write `{rest}`")));
    }
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b'.';
    if text.is_empty() || text.len() > 32 || !text.bytes().all(plain) {
        return Err(Refusal::new("must be a file extension without its dot, such as `webmanifest`"));
    }
    Ok(text.to_ascii_lowercase())
}

/// The key of a content type: an extension, or a slash and a whole name.
pub(super) fn typed_name(text: &str) -> Result<String, Refusal> {
    let Some(name) = text.strip_prefix('/') else { return extension(text) };
    if name.is_empty() || name.len() > 255 || name.contains(['/', '\0']) {
        return Err(Refusal::new("must be the whole name of a file after the slash, such as `/PKGBUILD`"));
    }
    Ok(text.to_owned())
}

/// A content type: `type/subtype`, with or without parameters (RFC 9110 section 8.3.1).
///
/// It accepts only printable ASCII, which can stand in a response head unchanged.
pub(super) fn content_type(text: &str) -> Result<String, Refusal> {
    let token = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
    };
    let essence = text.split_once(';').map_or(text, |(essence, _)| essence);
    let well_formed = essence.trim_end().split_once('/').is_some_and(|(main, sub)| token(main) && token(sub));
    let printable = text.len() <= 255 && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if well_formed && printable {
        Ok(text.to_owned())
    } else {
        Err(Refusal::new("must be a content type, such as \"text/plain; charset=utf-8\""))
    }
}

/// The name of a character set (RFC 9110 section 8.3.2), in lower case.
fn charset(text: &str) -> Result<String, Refusal> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:+".contains(&byte);
    if text.is_empty() || text.len() > 40 || !text.bytes().all(fits) {
        return Err(Refusal::new("must be the name of a character set, such as utf-8, or off"));
    }
    Ok(text.to_ascii_lowercase())
}

/// The value of `Strict-Transport-Security` (RFC 6797, section 6.1), or `off`.
fn hsts(text: &str) -> Result<String, Refusal> {
    let mut words = text.split(';').map(str::trim);
    let seconds = words.next().and_then(|word| word.strip_prefix("max-age="));
    let is_number = seconds
        .is_some_and(|it| (1..=10).contains(&it.len()) && it.bytes().all(|byte| byte.is_ascii_digit()));
    let rest: Vec<&str> = words.collect();
    if text != OFF && !(is_number && matches!(rest[..], [] | [SUBDOMAINS] | [SUBDOMAINS, "preload"])) {
        let why =
            format!("must be `max-age=SECONDS`, with or without `; {SUBDOMAINS}` and `; preload`, or off");
        return Err(Refusal::new(why));
    }
    Ok(text.to_owned())
}

/// A form of log lines, or `off`.
fn log_template(text: &str) -> Result<String, Refusal> {
    if text != OFF
        && let Err(why) = LogTemplate::try_from(text.to_owned())
    {
        let help = "docs/config.md, \"Access log\", lists the fields";
        return Err(Refusal::new(format!("is no form of log lines: {why}")).helped(help.to_owned()));
    }
    Ok(text.to_owned())
}

/// The target of a probe (RFC 9112 section 3.2.1), as it is sent.
fn target(text: &str) -> Result<String, Refusal> {
    if !text.starts_with('/') {
        return Err(Refusal::new("must begin with `/`").helped(format!("write `/{text}`")));
    }
    if text.len() > PATH_BYTES_MAX || !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        let why = format!(
            "must have at most {PATH_BYTES_MAX} bytes, all of them ASCII without spaces, control characters and `#`"
        );
        return Err(Refusal::new(why).helped("encode other bytes, such as %20 for a space".to_owned()));
    }
    Ok(text.to_owned())
}

/// A form of decoded paths.
fn pattern(text: &str) -> Result<String, Refusal> {
    if !text.starts_with(['/', '*']) {
        return Err(Refusal::new("must begin with `/` or `*`").helped(format!("write `/{text}`")));
    }
    if text.len() > PATH_BYTES_MAX || text.contains('\0') || text.matches('*').count() > STARS_MAX {
        let why = format!("must have at most {PATH_BYTES_MAX} bytes, {STARS_MAX} `*` and no NUL byte");
        return Err(Refusal::new(why));
    }
    Ok(text.to_owned())
}

/// The target of a redirect: a path, or an address whose host does not depend on the request.
fn location(text: &str) -> Result<String, Refusal> {
    let text = encoded(text)?;
    if is_path(&text) {
        return Ok(text);
    }
    let address = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match address.map(|address| address.split('/').next().unwrap_or_default()) {
        Some(host) if !host.is_empty() && !host.contains('$') => Ok(text),
        Some(_) => Err(Refusal::new("must have a host of its own, with `$` only after the `/` behind it")
            .helped("write an address such as `https://example.org/$1`".to_owned())),
        None => Err(Refusal::new(
            "must be a path that begins with one `/`, or begin with `https://` or `http://`",
        )),
    }
}

/// The path that takes the place of another, with or without a query.
fn new_path(text: &str) -> Result<String, Refusal> {
    let text = encoded(text)?;
    if !is_path(&text) {
        return Err(Refusal::new("must be a path that begins with one `/`"));
    }
    if text.contains('#') {
        return Err(Refusal::new("must be a path, with or without a query: servers get no fragment"));
    }
    Ok(text)
}

/// The origin of a page, as browsers write it (RFC 6454, section 6.2), or `*`.
fn origin(text: &str) -> Result<String, Refusal> {
    let lower = text.to_ascii_lowercase();
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_lowercase())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    let (scheme, place) = lower.split_once("://").unwrap_or_default();
    if let Some((bare, _)) = place.split_once('/').filter(|_| is_scheme(scheme)) {
        let help = format!("write `{scheme}://{bare}`");
        return Err(Refusal::new("must be an origin, which has no path").helped(help));
    }
    let is_place = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    if text == "*"
        || is_scheme(scheme) && !place.is_empty() && place.len() <= 260 && place.bytes().all(is_place)
    {
        return Ok(lower);
    }
    Err(Refusal::new(
        "must be the origin of pages, such as https://www.example.org or http://localhost:3000, or *",
    ))
}

/// A text that can stand in a request or in `Location`.
fn encoded(text: &str) -> Result<String, Refusal> {
    if text.len() <= PATH_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    let why = format!(
        "must have at most {PATH_BYTES_MAX} bytes, all of them ASCII without spaces and control characters"
    );
    Err(Refusal::new(why).helped("encode other bytes, such as %20 for a space".to_owned()))
}

/// Whether an address is a path of the same host.
fn is_path(text: &str) -> bool {
    text.starts_with('/') && !text.starts_with("//")
}

/// The decoded path of a file that can be served.
fn file_path(text: &str) -> Result<String, Refusal> {
    if !text.starts_with('/') {
        return Err(Refusal::new("must begin with `/`").helped(format!("write `/{text}`")));
    }
    let names = || text[1..].split('/');
    if names().any(|name| name.is_empty() || name.len() > 255) || text.len() > PATH_BYTES_MAX {
        return Err(Refusal::new("must be a whole path without empty names, such as /index.html"));
    }
    if names().any(|name| name.starts_with('.')) || text.contains('\0') {
        return Err(Refusal::new("must not lead to a hidden file, which is never served"));
    }
    Ok(text.to_owned())
}

/// The status of errors, or the first digit of a hundred of them before `xx`.
fn error_status(text: &str) -> Result<String, Refusal> {
    let is_status = text.len() == 3 && text.parse().is_ok_and(|status: u16| (400..600).contains(&status));
    if is_status || ["4xx", "5xx"].contains(&text) {
        return Ok(text.to_owned());
    }
    Err(Refusal::new("must be the status of an error, from 400 to 599, or \"4xx\" or \"5xx\""))
}

/// A number of requests in a second, a minute or an hour.
fn request_rate(text: &str) -> Result<String, Refusal> {
    let why = "must be a number of requests from 1 to 1000000 in a second, a minute or an hour";
    let refusal = || Refusal::new(why).helped("write it as 10/s, 100/m or 1000/h".to_owned());
    rate_parts(text).map(|_| text.to_owned()).ok_or_else(refusal)
}

/// The number of requests in such a text, and the time, in microseconds.
pub(super) fn rate_parts(text: &str) -> Option<(u32, u64)> {
    let (number, unit) = text.split_once('/')?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return None,
    };
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse().ok().filter(|number| is_number && (1..=REQUESTS_MAX).contains(number))?;
    Some((number, seconds * 1_000_000))
}

/// The name of a server in its certificate.
fn server_name(text: &str) -> Result<String, Refusal> {
    if flash_tls::is_server_name(text) {
        return Ok(text.to_owned());
    }
    Err(Refusal::new("must be one name or IP address, such as backend.example, without a port"))
}

/// A prefix of paths, in decoded form.
fn prefix(text: &str) -> Result<String, Refusal> {
    if !text.starts_with('/') {
        return Err(Refusal::new("must begin with `/`").helped(format!("write `/{text}`")));
    }
    if text.len() > PATH_BYTES_MAX || text.contains('\0') {
        let why = format!("must have at most {PATH_BYTES_MAX} bytes and no NUL byte");
        return Err(Refusal::new(why));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why<T: std::fmt::Debug>(result: Result<T, Refusal>) -> String {
        let refusal = result.unwrap_err();
        format!("{}{}", refusal.why, refusal.help.map(|help| format!(" / {help}")).unwrap_or_default())
    }

    #[test]
    fn index_names_are_names() {
        let name = |text: &str| TextFormat::FileName.read(text);
        assert_eq!(name("index.html").unwrap(), "index.html");
        for text in ["", ".", "..", "a/b", "/", "a\0b"] {
            assert!(name(text).is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_are_made_uniform() {
        assert_eq!(host("Example.ORG").unwrap(), "example.org");
        assert_eq!(host("example.org.").unwrap(), "example.org");
        assert_eq!(host("*.Example.org").unwrap(), "*.example.org");
        assert_eq!(host("127.0.0.1").unwrap(), "127.0.0.1");
        assert_eq!(host("[::0:1]").unwrap(), "[::1]");
        assert!(why(host("example.org:80")).contains("without a port / write `example.org`"));
        assert!(why(host("::1")).contains("write `[::1]`"));
        assert!(why(host("bücher.example")).contains("xn--"));
        for text in
            ["", "*", "*.", ".", "a..b", "a b", "www.*.org", "*x.org", "http://x", "[::1]:80", "a/b", "*.*.a"]
        {
            assert!(host(text).is_err(), "{text}");
        }
        assert!(host(&"a.".repeat(127)).is_ok());
        assert!(host(&"a.".repeat(128)).is_err());
    }

    #[test]
    fn character_sets_are_names() {
        for (text, name) in [("UTF-8", "utf-8"), ("off", "off"), ("iso-8859-1", "iso-8859-1")] {
            assert_eq!(TextFormat::Charset.read(text), Ok(name.to_owned()));
        }
        for text in ["", "utf 8", "utf-8; x", "utf-8\r\nX: y", "ü"] {
            assert!(why(TextFormat::Charset.read(text)).contains("such as utf-8, or off"), "{text}");
        }
    }

    #[test]
    fn origins_are_those_of_browsers() {
        for (text, origin) in [
            ("*", "*"),
            ("https://www.Example.org", "https://www.example.org"),
            ("http://localhost:3000", "http://localhost:3000"),
            ("moz-extension://0a-1b", "moz-extension://0a-1b"),
            ("https://[::1]:8443", "https://[::1]:8443"),
        ] {
            assert_eq!(TextFormat::Origin.read(text), Ok(origin.to_owned()));
        }
        assert!(
            why(TextFormat::Origin.read("https://a.example/"))
                .contains("no path / write `https://a.example`")
        );
        for text in ["", "a.example", "https://", "://a", "https://*.example", "https://a\r\nX: y", "null"] {
            assert!(why(TextFormat::Origin.read(text)).contains("such as https://www.example.org"), "{text}");
        }
    }

    #[test]
    fn rates_have_a_number_and_a_time() {
        for (text, parts) in
            [("10/s", (10, 1_000_000)), ("1000000/m", (1_000_000, 60_000_000)), ("1/h", (1, 3_600_000_000))]
        {
            assert_eq!(
                (TextFormat::RequestRate.read(text), rate_parts(text)),
                (Ok(text.to_owned()), Some(parts))
            );
        }
        for text in
            ["", "10", "/s", "0/s", "1000001/s", "+1/s", "1.5/s", "10/d", "10 /s", "off", "99999999999/s"]
        {
            assert!(why(TextFormat::RequestRate.read(text)).contains("10/s, 100/m or 1000/h"), "{text}");
        }
    }

    #[test]
    fn types_can_stand_in_a_head() {
        for text in [
            "off",
            "max-age=0",
            "max-age=63072000; includeSubDomains",
            "max-age=1;includeSubDomains; preload",
        ] {
            assert_eq!(TextFormat::Hsts.read(text), Ok(text.to_owned()));
        }
        for text in
            ["", "1", "max-age=", "max-age=x", "max-age=1; preload", "max-age=1\r\nX: y", "includeSubDomains"]
        {
            assert!(why(TextFormat::Hsts.read(text)).contains("max-age=SECONDS"), "{text}");
        }
        assert_eq!(content_type("text/plain; charset=utf-8").unwrap(), "text/plain; charset=utf-8");
        assert!(content_type("application/vnd.api+json").is_ok());
        for text in
            ["", "text", "text/", "/plain", "text/plain\r\nX: y", "te xt/plain", "text/pläin", "; a=b"]
        {
            assert!(content_type(text).is_err(), "{text:?}");
        }
        assert_eq!(extension("MJS").unwrap(), "mjs");
        assert!(why(extension(".mjs")).contains("write `mjs`"));
        for text in ["", "tar.gz", "a b", "a/b"] {
            assert!(extension(text).is_err(), "{text:?}");
        }
    }
}
