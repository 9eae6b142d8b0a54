//! Addresses of `return` and `rewrite` as Flash writes them: its targets have no variables except the parts of a path.

use crate::regex::Shape;
use crate::values;

/// The facts about the requests whose address is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestFacts<'k> {
    /// The only host, if there is one.
    pub(super) host: Option<&'k str>,
    /// Whether they come over HTTPS, if all or none do.
    pub(super) scheme: Option<&'static str>,
}

/// The scheme and the host of an address that nginx makes of the request's own.
const OWN_HOSTS: &[&str] = &["$host", "$http_host", "$server_name", "${host}", "$host:$server_port"];

/// Splits an address whose host is that of the request, and returns its scheme, if it is fixed, and the rest.
pub(super) fn of_own_host<'t>(text: &'t str, host: Option<&str>) -> Option<(Option<&'static str>, &'t str)> {
    let schemes = [
        ("$scheme://", None),
        ("${scheme}://", None),
        ("https://", Some("https")),
        ("http://", Some("http")),
    ];
    let (scheme, rest) =
        schemes.into_iter().find_map(|(start, scheme)| Some((scheme, text.strip_prefix(start)?)))?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    // A variable with a path follows the host at once.
    let end = rest.find("$request_uri").or_else(|| rest.find("$uri")).map_or(end, |at| at.min(end));
    let name = &rest[..end];
    let is_own = OWN_HOSTS.contains(&name) || host.is_some_and(|host| host.eq_ignore_ascii_case(name));
    is_own.then_some((scheme, &rest[end..]))
}

/// The target of a redirect or a rewrite for paths of this shape.
///
/// # Errors
/// The part that Flash cannot write.
pub(super) fn target(text: &str, shape: &Shape, facts: RequestFacts<'_>) -> Result<String, String> {
    let text = match of_own_host(text, facts.host) {
        Some((scheme, rest)) if scheme.is_none() || scheme == facts.scheme => rest.to_owned(),
        Some((Some(scheme), rest)) => match facts.host {
            Some(host) => format!("{scheme}://{host}{rest}"),
            None => return Err("Flash needs a host of its own in an address".to_owned()),
        },
        _ => match text.strip_prefix("$scheme://") {
            Some(rest) => format!("{}://{rest}", facts.scheme.unwrap_or("https")),
            None => text.to_owned(),
        },
    };
    let written = substituted(without_args(&text), shape)?;
    let written = if written.is_empty() { "/".to_owned() } else { written };
    if values::is_location(&written) {
        Ok(written)
    } else {
        Err(format!("Flash takes no target `{written}`"))
    }
}

/// The text without the query of the request at its end, which Flash keeps by itself.
fn without_args(text: &str) -> &str {
    let ends = ["$is_args$args", "?$args", "?$query_string", "$is_args$query_string", "?"];
    ends.iter().find_map(|end| text.strip_suffix(end)).unwrap_or(text)
}

fn substituted(text: &str, shape: &Shape) -> Result<String, String> {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        written.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let (name, end) = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((name, end)) => (name, end),
            None => {
                let is_number = after.starts_with(|c: char| c.is_ascii_digit());
                let is_part = |c: char| {
                    if is_number { c.is_ascii_digit() } else { c.is_ascii_alphanumeric() || c == '_' }
                };
                after.split_at(after.find(|c| !is_part(c)).unwrap_or(after.len()))
            }
        };
        let group = match name {
            "request_uri" | "uri" | "document_uri" => shape.groups.get("0"),
            name => shape.groups.get(name),
        };
        match group {
            Some(group) => written.push_str(group),
            // A group that took no part in the match is empty.
            None if name.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty() => {}
            None => return Err(format!("Flash has no variable `${name}`")),
        }
        rest = end;
    }
    written.push_str(rest);
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regex::shapes;

    #[test]
    fn addresses_keep_their_meaning() {
        let all = || Shape {
            path: "/*".into(),
            groups: [("0".to_owned(), "/$1".to_owned())].into(),
            ..Shape::default()
        };
        let facts = RequestFacts { host: Some("a.example"), scheme: Some("https") };
        for (text, expected) in [
            ("https://b.example$request_uri", "https://b.example/$1"),
            ("$scheme://b.example$request_uri", "https://b.example/$1"),
            ("$scheme://$host/x", "/x"),
            ("https://$host$request_uri", "/$1"),
            ("http://$host$request_uri", "http://a.example/$1"),
            ("https://b.example", "https://b.example"),
            ("/new$is_args$args", "/new"),
            ("/new?a=1", "/new?a=1"),
        ] {
            assert_eq!(target(text, &all(), facts).as_deref(), Ok(expected), "{text}");
        }
        for text in ["/$cookie_x", "http://$x/", "/a b", "//x"] {
            assert!(target(text, &all(), facts).is_err(), "{text}");
        }
        assert!(target("http://$host/", &all(), RequestFacts { host: None, scheme: None }).is_err());
    }

    #[test]
    fn groups_are_parts_of_the_path() {
        let shape = shapes("^/a/(.*)/(x|y)$", false).unwrap().remove(1);
        let facts = RequestFacts { host: None, scheme: None };
        assert_eq!(target("/b/$2/$1", &shape, facts).as_deref(), Ok("/b/y/$1"));
        assert_eq!(target("/b/${1}5", &shape, facts).as_deref(), Ok("/b/$15"));
    }
}
