//! `Header` and the directives for `Cache-Control`.

use super::site::Builder;
use crate::directive::Directive;
use crate::model::Rule;
use crate::pattern::{Paths, is_all, within};
use crate::values;

/// The endings of the files of a type.
const ENDINGS: &[(&str, &[&str])] = &[
    ("text/html", &["html", "htm"]),
    ("text/css", &["css"]),
    ("text/javascript", &["js", "mjs"]),
    ("application/javascript", &["js", "mjs"]),
    ("application/json", &["json"]),
    ("application/pdf", &["pdf"]),
    ("image/png", &["png"]),
    ("image/jpeg", &["jpg", "jpeg"]),
    ("image/jpg", &["jpg", "jpeg"]),
    ("image/gif", &["gif"]),
    ("image/svg+xml", &["svg"]),
    ("image/webp", &["webp"]),
    ("image/avif", &["avif"]),
    ("image/x-icon", &["ico"]),
    ("font/woff", &["woff"]),
    ("font/woff2", &["woff2"]),
    ("application/font-woff", &["woff"]),
    ("application/font-woff2", &["woff2"]),
    ("text/xml", &["xml"]),
    ("application/xml", &["xml"]),
];

impl Builder<'_> {
    pub(super) fn set(&mut self, paths: &Paths, name: &str, value: &str) {
        let set = vec![(name.to_owned(), vec![value.to_owned()])];
        self.site.add(paths, &Rule { set, ..Rule::default() });
    }

    pub(super) fn header(&mut self, directive: &Directive, paths: &Paths) {
        let is_always = directive.first().eq_ignore_ascii_case("always");
        let words = &directive.args[usize::from(is_always || directive.first() == "onsuccess")..];
        let (action, name) =
            (words.first().map_or("", String::as_str), words.get(1).map_or("", String::as_str));
        let value = words.get(2).map_or("", String::as_str);
        if name.eq_ignore_ascii_case("strict-transport-security") && action != "unset" {
            match values::hsts(value) {
                Some((text, false)) if is_all(paths) && words.len() == 3 => self.site.hsts = Some(text),
                _ => self.lose(
                    directive,
                    "`hsts` is for whole sites, and takes max-age, includeSubDomains and preload",
                ),
            }
            return;
        }
        if let Some(why) = values::field_problem(name, (action != "unset").then_some(value)) {
            return self.lose(directive, &why);
        }
        if words.len() > 3 || value.contains("%{") {
            return self.lose(directive, "Flash sets fields to fixed values, without conditions");
        }
        let mut rule = Rule { errors: is_always, ..Rule::default() };
        let field = (name.to_owned(), vec![value.to_owned()]);
        match action.to_ascii_lowercase().as_str() {
            "unset" => rule.remove.push(name.to_owned()),
            "set" | "setifempty" if !values::is_added(name) => rule.set.push(field),
            "set" | "add" | "append" | "merge" => rule.add.push(field),
            _ => return self.lose(directive, "Flash sets, adds and removes fields"),
        }
        self.site.add(paths, &rule);
    }

    pub(super) fn expires_by_type(&mut self, directive: &Directive, paths: &Paths) {
        let endings = ENDINGS.iter().find(|(kind, _)| kind.eq_ignore_ascii_case(directive.first()));
        let value = expires(&directive.args.get(1..).unwrap_or_default().concat());
        let (Some((_, endings)), Some(value)) = (endings, value) else {
            return self.lose(directive, "Flash's rules are for paths, and this type has no known endings, or this time no counterpart");
        };
        let forms = endings.iter().map(|ending| (format!("*.{ending}"), Vec::new())).collect();
        let own = within(&forms, paths);
        self.set(&own, "Cache-Control", &value);
    }
}

/// The Cache-Control of a time such as `access plus 1 month` or `A3600`.
pub(super) fn expires(text: &str) -> Option<String> {
    let lower: String = text.to_ascii_lowercase().split_whitespace().collect();
    if let Some(seconds) = lower.strip_prefix('a').and_then(|rest| rest.parse::<u64>().ok()) {
        return Some(format!("max-age={seconds}"));
    }
    let rest =
        ["accessplus", "nowplus", "access", "now"].iter().find_map(|start| lower.strip_prefix(start))?;
    if rest.is_empty() {
        return Some("max-age=0".to_owned());
    }
    let digits = rest.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    let unit = match rest[digits.len()..].trim_end_matches('s') {
        "second" => 1,
        "minute" => 60,
        "hour" => 3_600,
        "day" => 86_400,
        "week" => 604_800,
        "month" => 2_592_000,
        "year" => 31_536_000,
        _ => return None,
    };
    Some(format!("max-age={}", number.checked_mul(unit)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_cache_control() {
        assert_eq!(expires("access plus 1 month").as_deref(), Some("max-age=2592000"));
        assert_eq!(expires("A60").as_deref(), Some("max-age=60"));
        assert_eq!(expires("accessplus0seconds").as_deref(), Some("max-age=0"));
        assert_eq!(expires("modificationplus1day"), None);
    }
}
