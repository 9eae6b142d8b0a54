//! Texts with placeholders such as `{port}`: commands, and the files of servers. Pure.
//!
//! Braces around anything else stay as they are, since configurations are full of them. An argument
//! or a line that begins with `{as root}` is only there when the lab runs as root, one that begins with
//! `{with application}` only when dynamic requests are passed to an application, and so on; several must all hold.

use std::collections::BTreeMap;

/// The placeholders that every server has.
pub(super) const BUILT_IN: [&str; 13] = [
    "root",
    "address",
    "port",
    "folder",
    "log",
    "socket",
    "flash",
    "core",
    "certificate",
    "certificate_key",
    "application",
    "application_port",
    "dynamic",
];

/// The circumstances that arguments and lines can depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    pub(super) is_root: bool,
    pub(super) has_application: bool,
    pub(super) has_tls: bool,
    pub(super) has_http2: bool,
}

/// Whether this could stand in braces.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// The first placeholder, if any, that is neither built in nor known otherwise.
pub(super) fn unknown(text: &str, is_known: impl Fn(&str) -> bool) -> Option<String> {
    let mut found = None;
    fill_with(text, |name| {
        if found.is_none() && !BUILT_IN.contains(&name) && !is_known(name) {
            found = Some(name.to_owned());
        }
        None
    });
    found
}

/// Puts values in for placeholders; those without a value stay.
pub(super) fn fill(text: &str, values: &BTreeMap<String, String>) -> String {
    fill_with(text, |name| values.get(name).cloned())
}

fn fill_with(text: &str, mut value: impl FnMut(&str) -> Option<String>) -> String {
    let (mut filled, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(open) = rest.find('{') {
        let (before, after) = rest.split_at(open);
        filled.push_str(before);
        let name = after[1..].split_once('}').map(|(name, _)| name).filter(|name| is_name(name));
        match name.and_then(|name| Some((name, value(name)?))) {
            Some((name, value)) => {
                filled.push_str(&value);
                rest = &after[name.len() + 2..];
            }
            None => {
                filled.push('{');
                rest = &after[1..];
            }
        }
    }
    filled + rest
}

/// The text without its conditions, such as `{as root}`; none when one of them is not given.
pub(super) fn if_given(text: &str, given: Given) -> Option<&str> {
    let conditions = [
        ("{as root}", given.is_root),
        ("{with application}", given.has_application),
        ("{with tls}", given.has_tls),
        ("{without tls}", !given.has_tls),
        ("{with http2}", given.has_http2),
        ("{without http2}", !given.has_http2),
    ];
    let condition = |(prefix, holds)| Some((text.trim_start().strip_prefix(prefix)?, holds));
    match conditions.into_iter().find_map(condition) {
        Some((rest, true)) => if_given(rest, given),
        Some((_, false)) => None,
        None => Some(text),
    }
}

/// The lines of a text whose condition is given.
pub(super) fn lines_if_given(text: &str, given: Given) -> String {
    text.split_inclusive('\n').filter_map(|line| if_given(line, given)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn fills_what_is_known_and_leaves_the_rest() {
        let values = values(&[("port", "80"), ("root", "/{port}")]);
        for (text, filled) in [
            ("listen {port};", "listen 80;"),
            ("{port}{port}", "8080"),
            ("http { server { root {root}; } }", "http { server { root /{port}; } }"),
            ("{{port}}", "{80}"),
            ("{http.host} {} {", "{http.host} {} {"),
            ("{prot}", "{prot}"),
            ("ü{port}ü", "ü80ü"),
            ("", ""),
        ] {
            assert_eq!(fill(text, &values), filled);
        }
    }

    #[test]
    fn finds_what_nobody_knows() {
        let is_known = |name: &str| name == "threads";
        assert_eq!(unknown("{port} {threads} {x y} { }", is_known), None);
        assert_eq!(unknown("-p{port} {prot} {other}", is_known).as_deref(), Some("prot"));
    }

    #[test]
    fn lines_with_a_condition_need_it() {
        let plain = Given { is_root: false, has_application: false, has_tls: false, has_http2: false };
        let given = |is_root, has_application| Given { is_root, has_application, ..plain };
        let text = "a\n  {as root}b\n{with application}  c\nd";
        assert_eq!(lines_if_given(text, given(true, true)), "a\nb\n  c\nd");
        assert_eq!(lines_if_given(text, given(true, false)), "a\nb\nd");
        assert_eq!(lines_if_given(text, given(false, true)), "a\n  c\nd");
        assert_eq!(if_given("{as root}--user", given(false, true)), None);
        assert_eq!(if_given("{port}", given(false, false)), Some("{port}"));
        let text = "{with tls}{with http2}a\n{with tls}{without http2}b\n{without tls}c\n{without tls}{with http2} d\n";
        let wire = |has_tls, has_http2| lines_if_given(text, Given { has_tls, has_http2, ..plain });
        assert_eq!([wire(true, true), wire(true, false)], ["a\n", "b\n"]);
        assert_eq!([wire(false, false), wire(false, true)], ["c\n", "c\n d\n"]);
    }
}
