//! `Redirect`, and `RewriteRule` with its conditions, as far as they say what a rule of Flash says.

use super::site::Builder;
use crate::directive::Directive;
use crate::model::Rule;
use crate::pattern::{self, Paths};
use crate::regex::{self, Shape};
use crate::values;

/// Expressions that every path fits.
const ALL: &[&str] =
    &["^", ".*", "^.*", "^.*$", "^(.*)$", "(.*)", "^(.*)", "^/?(.*)$", "^/(.*)$", "^/?(.*)", "^/(.*)", "."];

/// `Redirect`, for a path and all beneath it, and `RedirectMatch`, for an expression.
pub(super) fn redirect(builder: &mut Builder<'_>, directive: &Directive, paths: &Paths) {
    let (first, rest) = match directive.name.as_str() {
        "redirectpermanent" => (Some(301), &directive.args[..]),
        "redirecttemp" => (Some(302), &directive.args[..]),
        _ => match directive.args.first().map_or("", String::as_str) {
            "permanent" => (Some(301), &directive.args[1..]),
            "temp" => (Some(302), &directive.args[1..]),
            "seeother" => (Some(303), &directive.args[1..]),
            "gone" => (None, &directive.args[1..]),
            text => match text.parse::<u16>() {
                Ok(status) => {
                    (Some(status).filter(|status| values::is_redirect(*status)), &directive.args[1..])
                }
                Err(_) => (Some(302), &directive.args[..]),
            },
        },
    };
    let Some(status) = first else {
        return builder.lose(directive, "Flash redirects with 301, 302, 303, 307 and 308");
    };
    let whole = ("/".to_owned(), rest.first().cloned().unwrap_or_default());
    let (from, to) = if let [from, to] = rest { (from.clone(), to.clone()) } else { whole };
    if directive.name == "redirectmatch" {
        return match regex::shapes(&from, false) {
            Ok(shapes) => add_shapes(builder, directive, (&shapes, &to), Some(status)),
            Err(why) => builder.lose(directive, &format!("Flash's forms of paths have only `*`, not {why}")),
        };
    }
    if from == "/"
        && to.starts_with("https://")
        && is_own(builder, &to)
        && paths.iter().any(|(path, _)| path == "*")
    {
        builder.to_https = Some(if status == 308 { 308 } else { 301 });
        if ![301, 308].contains(&status) {
            builder.lose(directive, "with 301: Flash redirects to HTTPS for good");
        }
        return;
    }
    if !from.starts_with('/') || from.contains('*') || !values::is_location(&to) || to.contains('$') {
        return builder.lose(directive, "Flash takes no such path or target");
    }
    let mut push = |path: String, target: String| {
        if pattern::is_form(&path) && values::is_location(&target) {
            builder.site.rules.push(Rule { redirect: Some((target, status)), ..Rule::new(path) });
        }
    };
    if from.ends_with('/') {
        push(format!("{from}*"), format!("{to}$1"));
    } else {
        push(from.clone(), to.clone());
        push(format!("{from}/*"), format!("{to}/$1"));
    }
}

/// Whether an address is that of the virtual host itself.
fn is_own(builder: &Builder<'_>, address: &str) -> bool {
    let host = address.split("://").nth(1).unwrap_or_default();
    let (host, path) = host.split_once('/').unwrap_or((host, ""));
    path.is_empty() && (builder.site.hosts.iter().any(|own| own == host) || host.starts_with("%{"))
}

/// `RewriteRule`s, each with the conditions above it.
pub(super) fn add(builder: &mut Builder<'_>, directives: &[Directive], paths: &Paths) {
    let mut conditions: Vec<&Directive> = Vec::new();
    for directive in directives {
        match directive.name.as_str() {
            "rewritecond" => conditions.push(directive),
            "rewriterule" => {
                rule(builder, directive, &conditions, paths);
                conditions.clear();
            }
            _ => {}
        }
    }
}

fn rule(builder: &mut Builder<'_>, directive: &Directive, conditions: &[&Directive], paths: &Paths) {
    let [expression, to, flags @ ..] = &directive.args[..] else {
        return builder.lose(directive, "needs an expression and a target");
    };
    let flags = flags.concat().trim_matches(['[', ']']).to_ascii_uppercase();
    let status = flags.split(',').find_map(|flag| match flag.trim().split_once('=') {
        Some(("R" | "REDIRECT", "PERMANENT")) => Some(301),
        Some(("R" | "REDIRECT", status)) => status.parse::<u16>().ok(),
        None if flag.trim() == "R" || flag.trim() == "REDIRECT" => Some(302),
        _ => None,
    });
    let is_whole = ALL.contains(&expression.as_str());
    let tests: Vec<String> = conditions
        .iter()
        .map(|it| it.args.iter().take(2).cloned().collect::<Vec<_>>().join(" ").to_ascii_lowercase())
        .collect();
    let is_https = |test: &String| {
        [
            "%{https} off",
            "%{https} !=on",
            "%{https} !on",
            "%{https} =off",
            "%{server_port} 80",
            "%{server_port} !443",
            "%{server_port} ^80$",
        ]
        .contains(&test.as_str())
            || test.starts_with("%{server_name} ")
    };
    let is_missing = |test: &String| {
        test.starts_with("%{request_filename} !-") || test.starts_with("%{document_root}%{request_uri} !-")
    };
    if is_whole && to.starts_with("https://%{") && tests.iter().all(is_https) {
        builder.to_https = Some(if status == Some(308) { 308 } else { 301 });
        return;
    }
    if is_whole && status.is_none() && !tests.is_empty() && tests.iter().all(is_missing) {
        let file = if to.starts_with('/') { to.clone() } else { format!("/{to}") };
        if !values::is_file(&file) {
            return builder.lose(directive, "is not the path of a file that Flash can serve");
        }
        return builder.site.add(paths, &Rule { fallback: Some(file), ..Rule::default() });
    }
    let tests_files = tests.iter().all(|test| test.contains(" -f") || test.contains(" -d"));
    if to == "-" && (tests_files || expression == "^index\\.html$") {
        return;
    }
    if !conditions.is_empty()
        || to.contains("%{")
        || to == "-"
        || flags.contains('P') && !flags.contains("PERMANENT")
    {
        return builder.lose(directive, "Flash has no conditions and no variables");
    }
    // In a directory the path has no slash in front.
    let bare = expression.strip_prefix("^/?").map_or_else(|| expression.clone(), |rest| format!("^/{rest}"));
    let bare = bare
        .strip_prefix('^')
        .filter(|rest| !rest.starts_with('/'))
        .map_or(bare.clone(), |rest| format!("^/{rest}"));
    match regex::shapes(&bare, false) {
        Ok(shapes) => add_shapes(builder, directive, (&shapes, to), status),
        Err(why) => builder.lose(directive, &format!("Flash's forms of paths have only `*`, not {why}")),
    }
}

/// Redirects, or rewrites without a status, paths of these shapes to a target with their groups.
fn add_shapes(
    builder: &mut Builder<'_>,
    directive: &Directive,
    (shapes, to): (&[Shape], &str),
    status: Option<u16>,
) {
    for shape in shapes.iter().flat_map(Shape::rooted) {
        let mut target = String::new();
        let mut rest = to;
        while let Some(at) = rest.find('$') {
            target.push_str(&rest[..at]);
            let name = rest[at + 1..].chars().next().map(String::from).unwrap_or_default();
            target.push_str(shape.groups.get(&name).map_or("", String::as_str));
            rest = &rest[at + 1 + name.len()..];
        }
        target.push_str(rest);
        if !target.starts_with('/') && !target.contains("://") {
            target.insert(0, '/');
        }
        let is_rewrite = status.is_none() && target.starts_with('/') && !target.contains(['?', '#']);
        let status = status
            .filter(|status| values::is_redirect(*status))
            .or((!is_rewrite && target.contains("://")).then_some(302));
        let rule = Rule { except: shape.except.clone(), ..Rule::new(shape.path.clone()) };
        match (values::is_location(&target), status) {
            (true, Some(status)) => {
                builder.site.rules.push(Rule { redirect: Some((target, status)), ..rule });
            }
            (true, None) if is_rewrite => builder.site.rules.push(Rule { rewrite: Some(target), ..rule }),
            _ => builder.lose(directive, "Flash takes no such target"),
        }
    }
}
