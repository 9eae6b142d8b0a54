//! Values that Flash takes in another form, or only some of: hosts, networks, addresses, fields, durations and sizes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::directive::is_among;

/// A host name as `hosts` takes it.
pub(crate) fn host(text: &str) -> Option<String> {
    let name = text.to_ascii_lowercase();
    let name = name.strip_suffix('.').unwrap_or(&name);
    let labels = name.strip_prefix("*.").unwrap_or(name);
    let fits = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    (name.len() <= 253 && labels.split('.').all(fits)).then(|| name.to_owned())
}

/// A network as Flash takes it: without bits beyond the prefix.
pub(crate) fn network(text: &str) -> Option<String> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.trim_matches(['[', ']']).parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits: u32 = match bits {
        Some(bits) => bits.parse().ok().filter(|bits| *bits <= most)?,
        None => return Some(address.to_string()),
    };
    let first: IpAddr = match address {
        IpAddr::V4(it) => {
            Ipv4Addr::from_bits(it.to_bits() & u32::MAX.checked_shl(32 - bits).unwrap_or(0)).into()
        }
        IpAddr::V6(it) => {
            Ipv6Addr::from_bits(it.to_bits() & u128::MAX.checked_shl(128 - bits).unwrap_or(0)).into()
        }
    };
    Some(format!("{first}/{bits}"))
}

/// The address of a server of a route, from `HOST:PORT`; Flash resolves no names except this machine's.
pub(crate) fn server(text: &str, port: u16) -> Option<String> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, digits)) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            (host, digits.parse().ok()?)
        }
        _ => (text, port),
    };
    let address: IpAddr = match host {
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        host => host.trim_matches(['[', ']']).parse().ok()?,
    };
    (port > 0).then(|| SocketAddr::new(address, port).to_string())
}

/// Whether an address is one of HTTPS, and its rest behind the scheme; none if it is not one of HTTP either.
pub(crate) fn scheme(address: &str) -> Option<(bool, &str)> {
    let rest = address.strip_prefix("http://").map(|rest| (false, rest));
    rest.or_else(|| Some((true, address.strip_prefix("https://")?)))
}

/// Fields that no rule can change (docs/config.md, "Rules").
const FIXED: &str = "
    connection content-encoding content-length content-range content-type date keep-alive location te
    trailer transfer-encoding upgrade
";
/// Fields that a rule can only remove.
const REMOVED: &[&str] = &["accept-ranges", "etag", "last-modified"];

/// Why a rule cannot give a field this value, or cannot remove it if there is none.
pub(crate) fn field_problem(name: &str, value: Option<&str>) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    if is_among(&lower, FIXED) {
        return Some("no rule can change this field".to_owned());
    }
    if value.is_some() && REMOVED.contains(&lower.as_str()) {
        return Some("a rule can only remove this field".to_owned());
    }
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_token) {
        return Some("is no name of a field".to_owned());
    }
    let value = value?;
    let is_text = value.bytes().all(|byte| matches!(byte, b' ' | b'\t') || byte.is_ascii_graphic());
    let is_value = is_text && !value.trim().is_empty() && value.len() <= 4_096;
    (!is_value).then(|| "the value must be ASCII in one line".to_owned())
}

/// Fields that Flash writes itself into requests, or takes out of requests or answers.
const OWN: &str = "
    expect forwarded host max-forwards proxy proxy-authorization proxy-connection server status
    strict-transport-security via x-forwarded-for x-forwarded-host x-forwarded-method x-forwarded-proto
    x-forwarded-uri x-request-id x-sendfile
";

/// Whether a server that agrees to requests can give them this field.
pub(crate) fn is_given(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_own = is_among(&lower, FIXED) || is_among(&lower, OWN) || lower.starts_with("x-accel-");
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    (1..=64).contains(&name.len()) && is_plain && !is_own
}

/// Whether several values of a field are no contradiction, so that a rule adds its own.
pub(crate) fn is_added(name: &str) -> bool {
    ["vary", "link", "set-cookie"].contains(&name.to_ascii_lowercase().as_str())
}

/// The value of Strict-Transport-Security as `hsts` takes it, and whether a part of it is lost.
pub(crate) fn hsts(value: &str) -> Option<(String, bool)> {
    let (mut seconds, mut subdomains, mut preload, mut is_lost) = (None, false, false, false);
    for word in value.split(';').map(str::trim).filter(|word| !word.is_empty()) {
        let lower = word.to_ascii_lowercase().replace(' ', "");
        if let Some(digits) = lower.strip_prefix("max-age=") {
            let digits = digits.trim_matches('"');
            let is_number =
                (1..=10).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
            seconds = is_number.then(|| digits.to_owned());
        } else if lower == "includesubdomains" {
            subdomains = true;
        } else if lower == "preload" {
            preload = true;
        } else {
            is_lost = true;
        }
    }
    let mut text = format!("max-age={}", seconds?);
    if subdomains {
        text.push_str("; includeSubDomains");
    }
    if preload && subdomains {
        text.push_str("; preload");
    }
    Some((text, is_lost || (preload && !subdomains)))
}

/// The statuses of redirects that Flash has.
pub(crate) fn is_redirect(status: u16) -> bool {
    [301, 302, 303, 307, 308].contains(&status)
}

/// Whether a text can stand in an address as it is.
pub(crate) fn is_location(text: &str) -> bool {
    let is_text = text.len() <= 1_024 && text.bytes().all(|byte| byte.is_ascii_graphic());
    let has_host = scheme(text).map(|(_, rest)| rest.split(['/', '?']).next().unwrap_or_default());
    let is_path = text.starts_with('/') && !text.starts_with("//");
    is_text && (is_path || has_host.is_some_and(|host| !host.is_empty() && !host.contains('$')))
}

/// Whether a text is the decoded path of a file that Flash can serve.
pub(crate) fn is_file(text: &str) -> bool {
    let fits = |name: &str| !name.is_empty() && name.len() <= 255 && !name.starts_with('.');
    text.len() <= 1_024 && text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(fits))
}

/// The extension that stands after this beginning, if Flash can try it. Scripts do not answer as files.
pub(crate) fn tried_extension(text: &str, beginning: &str) -> Option<String> {
    let text = text.strip_prefix(beginning)?;
    let is_plain = (1..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_plain && !text.to_ascii_lowercase().starts_with("php")).then(|| text.to_owned())
}

/// Checks the path by which a server is asked about requests.
///
/// # Errors
/// Why Flash cannot ask for it.
pub(crate) fn asked_path(path: &str) -> Result<(), &'static str> {
    if !is_file(path) || path.contains(['?', '{', '*']) || path.ends_with(".php") {
        return Err("Flash asks for the path of a server, without a query");
    }
    Ok(())
}

/// The note for the path of a server that is asked.
pub(crate) fn closed_for_server(path: &str) -> String {
    format!("everybody gets 403 for paths that begin with {path}, which that server has now")
}

/// Whether Flash can use a file of users, as htpasswd(1) writes it; a note if the file cannot be read here.
///
/// # Errors
/// Why it cannot.
pub(crate) fn users(file: &str) -> Result<Option<&'static str>, &'static str> {
    const FORMS: [&str; 5] = ["$2y$", "$2a$", "$2b$", "$6$", "$argon2"];
    let Ok(text) = std::fs::read_to_string(file) else {
        return Ok(Some("the file cannot be read here: `flash check` says whether Flash can use it"));
    };
    let mut lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).peekable();
    let is_known = |line: &str| {
        line.split_once(':').is_some_and(|(_, stored)| FORMS.iter().any(|form| stored.starts_with(form)))
    };
    if lines.peek().is_some() && lines.all(is_known) {
        Ok(None)
    } else {
        Err("Flash takes passwords as `htpasswd -B` stores them, and SHA-512 and Argon2")
    }
}

/// A duration, as Flash writes it.
pub(crate) fn duration(seconds: u64) -> String {
    format!("\"{seconds}s\"")
}

/// The folder that a path leads to, without `.` and final slashes; its names from the root.
fn names(path: &str) -> Vec<&str> {
    path.split('/').filter(|name| !name.is_empty() && *name != ".").collect()
}

/// A folder as Flash's `root` has it.
pub(crate) fn folder(path: &str) -> String {
    format!("/{}", names(path).join("/"))
}

/// The rest of a path beneath a folder: empty for the folder itself, otherwise with a slash in front.
pub(crate) fn beneath(path: &str, folder: &str) -> Option<String> {
    let (path, folder) = (names(path), names(folder));
    let rest = path.strip_prefix(&folder[..])?;
    let is_plain = rest.iter().all(|name| !name.starts_with('.'));
    is_plain.then(|| rest.iter().flat_map(|name| ["/", name]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_no_bits_beyond_their_prefix() {
        assert_eq!(network("10.1.2.3/8").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(network("2001:db8::1/32").as_deref(), Some("2001:db8::/32"));
        assert_eq!(network("0.0.0.0/0").as_deref(), Some("0.0.0.0/0"));
        assert_eq!(network("192.0.2.7").as_deref(), Some("192.0.2.7"));
        assert!(network("10.0.0.0/33").is_none() && network("x").is_none());
    }

    #[test]
    fn servers_are_addresses() {
        assert_eq!(server("localhost:3000", 80).as_deref(), Some("127.0.0.1:3000"));
        assert_eq!(server("[::1]:3000", 80).as_deref(), Some("[::1]:3000"));
        assert_eq!(server("10.0.0.1", 80).as_deref(), Some("10.0.0.1:80"));
        assert!(server("backend:3000", 80).is_none() && server("10.0.0.1:70000", 80).is_none());
    }

    #[test]
    fn hsts_has_the_words_that_flash_knows() {
        let known = |text: &str, lost| Some((text.to_owned(), lost));
        assert_eq!(
            hsts("max-age=1; includeSubdomains; preload"),
            known("max-age=1; includeSubDomains; preload", false)
        );
        assert_eq!(hsts("max-age=1; preload"), known("max-age=1", true));
        assert_eq!(hsts("max-age=x"), None);
    }

    #[test]
    fn paths_lie_beneath_folders() {
        assert_eq!(beneath("/srv/www/img/", "/srv/www").as_deref(), Some("/img"));
        assert_eq!(beneath("/srv/www", "/srv/www/").as_deref(), Some(""));
        assert_eq!(beneath("/srv/wwwx", "/srv/www"), None);
        assert_eq!(beneath("/srv/www/.x", "/srv/www"), None);
    }
}
