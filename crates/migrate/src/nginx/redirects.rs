//! `return`, `rewrite` and `if` as redirects and rewritten paths.

use super::location::Location;
use super::scope::Return;
use super::site::{Builder, first_of, is_refusal};
use super::spread::{excepted, form};
use super::target::target;
use crate::directive::Directive;
use crate::model::Rule;
use crate::pattern;
use crate::regex::{self, Shape};
use crate::values;

pub(super) fn of_return(returns: &Return) -> Option<u16> {
    (values::is_redirect(returns.status) && !returns.text.is_empty()).then_some(returns.status)
}

pub(super) fn add(builder: &mut Builder<'_, '_>) {
    let server = builder.server;
    for rewrite in &server.scope.rewrites {
        self::rewrite(builder, rewrite, &[Shape::all()], &|_| Vec::new());
    }
    locations(builder);
    for (number, location) in builder.locations.iter().enumerate() {
        let requests = builder.requests.clone();
        let preferred: Vec<usize> = (0..number).collect();
        let except = |path: &str| excepted(path, &[], preferred.iter().copied(), &requests);
        for rewrite in &location.scope.rewrites {
            self::rewrite(builder, rewrite, &location.shapes, &except);
        }
        for condition in &location.scope.conditions {
            builder.context.lost(condition, "Flash has no conditions");
        }
    }
}

/// The redirects of whole locations, in the order in which nginx prefers them.
fn locations(builder: &mut Builder<'_, '_>) {
    let of = |location: &Location| {
        let returns = location.scope.returns.clone()?;
        of_return(&returns).map(|status| (returns, status))
    };
    let values: Vec<Option<(Return, u16)>> = builder.locations.iter().map(of).collect();
    for (path, except, at) in first_of(builder, &values) {
        let Some((returns, status)) = &values[at] else { continue };
        let shapes = builder.locations[at].shapes.iter().filter(|shape| form(&shape.path) == path);
        for shape in shapes.flat_map(Shape::rooted) {
            match target(&returns.text, &shape, builder.facts) {
                Ok(target) => {
                    let path = if target.contains('$') { shape.path.clone() } else { form(&shape.path) };
                    let redirect = Some((target, *status));
                    builder.site.rules.push(Rule { except: except.clone(), redirect, ..Rule::new(path) });
                }
                Err(why) => builder.lose_return(returns, &why),
            }
        }
    }
    for location in builder.locations {
        if let Some(returns) = location.scope.returns.as_ref().filter(|it| of_return(it).is_none())
            && !is_refusal(returns.status)
            && !location.is_hidden()
        {
            builder.lose_return(returns, "Flash answers with files, redirects and errors");
        }
    }
}

/// The rules of a `rewrite` for paths of a location.
fn rewrite(
    builder: &mut Builder<'_, '_>,
    directive: &Directive,
    outer: &[Shape],
    except: &dyn Fn(&str) -> Vec<String>,
) {
    let [expression, to, ..] = &directive.args[..] else { return };
    let status = status_of(directive);
    let shapes = match regex::shapes(expression, false) {
        Ok(shapes) => shapes,
        Err(why) => {
            let why = format!("Flash's forms of paths have only `*`, not {why}");
            return builder.context.lost(directive, &why);
        }
    };
    for shape in shapes.iter().flat_map(Shape::rooted) {
        let Some(shape) = outer.iter().find_map(|outer| both(&shape, outer)) else {
            let why = "in part: some of its paths are not in its location, or cannot be told";
            builder.context.lost(directive, why);
            continue;
        };
        let written = target(to, &shape, builder.facts);
        let mut rule = Rule { except: shape.except.clone(), ..Rule::new(shape.path.clone()) };
        rule.except.extend(except(&shape.path));
        match (written, status) {
            (Ok(target), Some(status)) => rule.redirect = Some((target, status)),
            (Ok(target), None) if target.contains('#') || target.ends_with('?') => {
                builder.context.lost(directive, "Flash keeps the query of the request");
                continue;
            }
            (Ok(target), None) => rule.rewrite = Some(target),
            (Err(why), _) => {
                builder.context.lost(directive, &why);
                continue;
            }
        }
        if rule.path == "/*" && !rule.redirect.as_ref().is_some_and(|(target, _)| target.contains('$')) {
            rule.path =
                if rule.rewrite.as_ref().is_some_and(|it| it.contains('$')) { "/*" } else { "*" }.to_owned();
        }
        builder.site.rules.push(rule);
    }
}

/// The paths that are of two shapes, with the groups of the first.
fn both(shape: &Shape, outer: &Shape) -> Option<Shape> {
    if pattern::has_all_of(&outer.path, &shape.path) {
        return Some(shape.clone());
    }
    if shape.path == "/*" && shape.except.is_empty() {
        // All paths: each group is the whole path, or the path without its slash.
        let whole = outer.groups.get("0")?;
        let text = |text: &String| match text.as_str() {
            "/$1" => Some(whole.clone()),
            "$1" => whole.strip_prefix('/').map(str::to_owned),
            _ => None,
        };
        let groups =
            shape.groups.iter().map(|(name, it)| Some((name.clone(), text(it)?))).collect::<Option<_>>()?;
        return Some(Shape { path: outer.path.clone(), except: outer.except.clone(), groups });
    }
    None
}

/// The expressions that every path fits.
pub(super) const ALL: &[&str] =
    &["^", ".*", "^.*", "^.*$", "^(.*)", "^(.*)$", "(.*)", "^/(.*)", "^/(.*)$", "^/.*", "^/", "^/.*$", "."];

/// A `rewrite` of every path to an address, as a `return`.
pub(super) fn of_rewrite(directive: &Directive) -> Option<Return> {
    let [expression, to, ..] = &directive.args[..] else { return None };
    if !ALL.contains(&expression.as_str()) {
        return None;
    }
    let status = status_of(directive)?;
    let whole = if expression.starts_with("^/") { "/$1" } else { "$1" };
    let text = to.replace(whole, "$request_uri");
    (!text.contains("$1")).then(|| Return { status, text, position: directive.position.clone() })
}

/// The status of a `rewrite` that redirects.
fn status_of(rewrite: &Directive) -> Option<u16> {
    match rewrite.args.get(2).map_or("", String::as_str) {
        "permanent" => Some(301),
        "redirect" => Some(302),
        _ => rewrite.args.get(1).is_some_and(|target| target.contains("://")).then_some(302),
    }
}
