//! The files of a site: where they are, which one answers for a directory, and which for paths without one.

use super::location::{Kind, Location};
use super::meanings;
use super::scope::{ErrorPage, Scope};
use super::site::{Builder, by_files, first_of};
use super::spread::{form, in_order};
use super::target;
use crate::directive::Directive;
use crate::model::Rule;
use crate::pattern;
use crate::values;

/// The paths by which certificates are renewed: Flash serves them from the root of the site.
const ACME: &str = "/.well-known/acme-challenge";

/// Where the files of a location are, other than its path beneath the root says.
enum Elsewhere {
    /// Beneath the root: the path of a file, in which `$0` and the like stand for parts of the path.
    Beneath(String),
    /// In this folder, which is not beneath the root.
    Apart(String),
}

/// Makes rules for the locations whose files are elsewhere, and notes those for which Flash has none.
pub(super) fn map_locations(builder: &mut Builder<'_, '_>) {
    let locations = builder.locations;
    let mut moves = Vec::with_capacity(locations.len());
    for location in locations {
        let found = elsewhere(location, builder.site.root.as_deref());
        let answers = location.scope.returns.is_none() && location.scope.pass.is_none();
        let is_page = builder.server.scope.error_pages.iter().any(|page| page.uri == location.text);
        moves.push(match found {
            Some(Elsewhere::Beneath(path)) if answers => Some(Elsewhere::Beneath(path)),
            Some(Elsewhere::Apart(folder)) if answers && !is_page && !location.is_hidden() => {
                let alias = alias_of(location, &folder).map(Elsewhere::Apart);
                if alias.is_none() {
                    note_apart(builder, location, &folder);
                }
                alias
            }
            _ => None,
        });
    }
    for (path, except, at) in first_of(builder, &moves) {
        let location = &locations[at];
        let text = match &moves[at] {
            Some(Elsewhere::Beneath(text)) => text,
            Some(Elsewhere::Apart(folder)) => {
                let path = format!("{}/*", path.trim_end_matches(['/', '*']));
                builder.site.rules.push(Rule { except, alias: Some(folder.clone()), ..Rule::new(path) });
                continue;
            }
            None => continue,
        };
        let Some(shape) = location.shapes.iter().find(|shape| form(&shape.path) == path) else { continue };
        match target::target(text, shape, builder.facts) {
            Ok(target) if target == shape.groups.get("0").cloned().unwrap_or_default() => {}
            Ok(target) => {
                let moved = moved(&target);
                let own = builder.files[at].iter_mut().find(|(own, _)| *own == shape.path);
                own.into_iter().for_each(|own| *own = (moved.clone(), Vec::new()));
                builder.site.rules.push(Rule { except, rewrite: Some(target), ..Rule::new(path) });
            }
            Err(why) => note(builder, location, &format!("{}: {why}", location.shown)),
        }
    }
}

/// The folder of the files of a location, if they are those of all of its paths.
fn alias_of(location: &Location, folder: &str) -> Option<String> {
    let prefix = location.text.trim_end_matches('/');
    let is_prefix = matches!(location.kind, Kind::First | Kind::Prefix) && prefix.starts_with('/');
    if !is_prefix || prefix.contains('*') || !folder.starts_with('/') {
        return None;
    }
    match &location.scope.alias {
        // Without a slash at one end, nginx joins two names.
        Some((alias, _)) if alias.ends_with('/') != location.text.ends_with('/') => None,
        Some(_) => Some(values::folder(folder)),
        None => Some(format!("{}{prefix}", folder.trim_end_matches('/'))),
    }
}

fn note(builder: &mut Builder<'_, '_>, location: &Location, text: &str) {
    builder.context.notes.add(&location.position, text.to_owned());
}

fn note_apart(builder: &mut Builder<'_, '_>, location: &Location, folder: &str) {
    let root = builder.site.root.clone().unwrap_or_default();
    let text = if location.text.starts_with(ACME) {
        format!("{}: Flash serves these files from {root}: name it in `certbot --webroot -w`", location.shown)
    } else {
        format!("{}: {folder} is not beneath the root {root}: move or mount it there", location.shown)
    };
    note(builder, location, &text);
}

/// The form of the paths that a target has.
fn moved(target: &str) -> String {
    let mut form = String::with_capacity(target.len());
    let mut rest = target;
    while let Some(at) = rest.find('$') {
        form.push_str(&rest[..at]);
        form.push('*');
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    form.push_str(rest);
    form
}

fn elsewhere(location: &Location, root: Option<&str>) -> Option<Elsewhere> {
    let site = root?;
    if let Some((alias, _)) = &location.scope.alias {
        let folder = meanings::folder(alias);
        let Some(beneath) = values::beneath(&folder, site) else { return Some(Elsewhere::Apart(folder)) };
        let slash = if alias.ends_with('/') { "/" } else { "" };
        return Some(Elsewhere::Beneath(match location.kind {
            Kind::Exact | Kind::Regex => format!("{beneath}{slash}"),
            Kind::First | Kind::Prefix => format!("{beneath}{slash}$rest"),
        }));
    }
    let (own, _) = location.scope.root.as_ref()?;
    if own == site {
        return None;
    }
    Some(match values::beneath(own, site) {
        Some(beneath) => Elsewhere::Beneath(format!("{beneath}$uri")),
        None => Elsewhere::Apart(own.clone()),
    })
}

/// The names of index files.
pub(super) fn index(builder: &mut Builder<'_, '_>, scope: &Scope) {
    let names = scope.index.clone().or_else(|| builder.server.scope.index.clone());
    let has_php = builder
        .locations
        .iter()
        .any(|it| it.kind == Kind::Regex && it.scope.pass.is_some() && it.text.contains("php"));
    if let Some((names, position)) = &names {
        let (plain, others): (Vec<_>, Vec<_>) = names.iter().cloned().partition(|name| {
            !name.contains(['/', '$']) && !name.is_empty() && name != "." && name != ".." && name.len() <= 255
        });
        let is_script = |name: &String| name.to_ascii_lowercase().ends_with(".php");
        builder.site.index = match plain.first() {
            Some(first) if has_php && is_script(first) => vec![first.clone()],
            _ if has_php => plain.iter().filter(|name| !is_script(name)).cloned().collect(),
            _ => plain.clone(),
        };
        let mut lost: Vec<&str> = others.iter().map(String::as_str).collect();
        lost.extend(plain.iter().filter(|name| !builder.site.index.contains(name)).map(String::as_str));
        if !lost.is_empty() {
            let why = if others.is_empty() { ": a script is the only index, or none" } else { "" };
            builder.context.notes.add(position, format!("`index`: without {}{why}", lost.join(", ")));
        }
    }
    let own = |location: &&Location| {
        let is_file = location.scope.pass.is_none() && location.scope.returns.is_none();
        is_file
            && location.kind != Kind::Exact
            && location.scope.index.as_ref().map(|it| &it.0) != names.as_ref().map(|it| &it.0)
    };
    for location in builder.locations.iter().filter(own) {
        if let Some((_, position)) = &location.scope.index {
            builder
                .context
                .notes
                .add(position, format!("`index` of {}: Flash's `index` is for whole sites", location.shown));
        }
    }
}

/// The file that answers for missing ones; none if they are not found, as Flash does it anyway, or a server answers.
type Missing = Option<String>;

/// The files that answer for missing ones.
pub(super) fn fall_back(builder: &mut Builder<'_, '_>) {
    let locations = builder.locations;
    let mut fallbacks: Vec<Option<String>> = Vec::with_capacity(locations.len());
    let mut extensions_of: Vec<Option<Vec<String>>> = Vec::with_capacity(locations.len());
    for location in locations {
        let scope = &location.scope;
        let by_page = scope
            .error_pages
            .iter()
            .find(|page| is_fallback(page))
            .map(|page| (page.uri.clone(), page.position.clone()));
        let mut extensions = Vec::new();
        let asked = match (&scope.try_files, by_page) {
            (Some(directive), _) if scope.pass.as_ref().is_none_or(|pass| pass.protocol == "proxy") => {
                match missing(builder, directive) {
                    Ok((tried, missing)) => {
                        extensions = tried;
                        missing.map(|uri| (uri, directive.position.clone()))
                    }
                    Err(why) => {
                        builder.context.lost(directive, &why);
                        None
                    }
                }
            }
            (None, Some(page)) if scope.pass.is_none() && scope.returns.is_none() => Some(page),
            _ => None,
        };
        let fallback = asked.and_then(|(uri, position)| match of_missing(builder, &uri) {
            Ok(file) => Some(file),
            Err(why) => {
                builder.context.notes.add(&position, format!("falling back to {uri}: {why}"));
                None
            }
        });
        fallbacks.push(fallback);
        extensions_of.push(Some(extensions).filter(|extensions| !extensions.is_empty()));
    }
    let mut rules: Vec<Rule> = Vec::new();
    for (path, except, at) in by_files(builder, (&fallbacks, &builder.files), in_order) {
        let fallback = fallbacks[at].clone();
        rules.push(Rule { except, fallback, ..Rule::new(path) });
    }
    guard(&mut rules);
    for (path, except, at) in by_files(builder, (&extensions_of, &builder.files), in_order) {
        let try_extensions = extensions_of[at].clone().unwrap_or_default();
        rules.push(Rule { except, try_extensions, ..Rule::new(path) });
    }
    builder.site.rules.extend(rules);
}

/// Puts rules in front for files that would have another fallback themselves, which Flash refuses.
fn guard(rules: &mut Vec<Rule>) {
    let files: Vec<String> = rules.iter().filter_map(|rule| rule.fallback.clone()).collect();
    for file in files {
        let fits = |rule: &&Rule| {
            pattern::has_all_of(&rule.path, &file)
                && !rule.except.iter().any(|it| pattern::has_all_of(it, &file))
        };
        let first = rules.iter().find(fits).and_then(|rule| rule.fallback.clone());
        if first.is_some_and(|first| first != file) {
            rules.insert(0, Rule { fallback: Some(file.clone()), ..Rule::new(file) });
        }
    }
}

/// Whether a page answers for missing files with success.
pub(super) fn is_fallback(page: &ErrorPage) -> bool {
    page.statuses == [404] && page.status.as_deref() == Some("200") && page.uri.starts_with('/')
}

/// The extensions that `try_files` tries, and its last part.
fn missing(builder: &Builder<'_, '_>, directive: &Directive) -> Result<(Vec<String>, Missing), String> {
    let extension_of = |arg: &String| values::tried_extension(arg, "$uri.");
    let (extensions, args): (Vec<_>, Vec<_>) =
        directive.args.iter().cloned().partition(|arg| extension_of(arg).is_some());
    let tried = extensions.iter().filter_map(extension_of).collect();
    let missing = last_of(builder, &args)?;
    let is_application = |last: &String| last.starts_with('@') || last.contains(".php");
    if !extensions.is_empty() && args.last().is_some_and(is_application) {
        return Err(format!("Flash looks for no {} before an application answers", extensions[0]));
    }
    Ok((tried, missing))
}

/// The meaning of `try_files` without extensions.
fn last_of(builder: &Builder<'_, '_>, args: &[String]) -> Result<Missing, String> {
    let plain = ["$uri", "$uri/", "$uri/index.html", "$uri/index.htm", "$request_uri", "$document_uri"];
    let Some((last, files)) = args.split_last() else { return Ok(None) };
    let (mut last, mut files) = (last.as_str(), files.to_vec());
    if last == "=404" || plain.contains(&last) {
        // A fixed file before it answers, if it is there.
        let fixed = files.pop_if(|file| !file.contains('$'));
        return others(&files, &plain).map(|()| fixed);
    }
    others(&files, &plain)?;
    if last.starts_with('@') {
        return named(builder, last);
    }
    if let Some(status) = last.strip_prefix('=') {
        return Err(format!("Flash answers 404 for a missing file, not {status}"));
    }
    for args in ["$is_args$args", "?$args", "?$query_string", "?$is_args$args", "?"] {
        last = last.strip_suffix(args).unwrap_or(last);
    }
    file(last)
}

fn file(uri: &str) -> Result<Missing, String> {
    match uri {
        uri if uri.contains('?') => Err("a file has no query".to_owned()),
        uri if uri.contains('$') => Err("Flash has no variables".to_owned()),
        uri if uri.ends_with('/') => Ok(Some(format!("{uri}index.html"))),
        uri => Ok(Some(uri.to_owned())),
    }
}

fn others(files: &[String], plain: &[&str]) -> Result<(), String> {
    match files.iter().find(|file| !plain.contains(&file.as_str())) {
        Some(file) => Err(format!("Flash looks for no {file}")),
        None => Ok(()),
    }
}

/// The meaning of a named location.
fn named(builder: &Builder<'_, '_>, name: &str) -> Result<Missing, String> {
    let Some(scope) = builder.server.locations.named(name) else {
        return Err(format!("there is no location {name}"));
    };
    match (&scope.pass, &scope.rewrites[..]) {
        (None, [rewrite]) if scope.returns.is_none() && !rewrite.args[1].contains("://") => {
            file(rewrite.args[1].split('?').next().unwrap_or_default())
        }
        // The route says it.
        (Some(pass), _) if pass.protocol == "proxy" => Ok(None),
        (Some(_), _) => Err("Flash passes missing files to one script alone".to_owned()),
        _ => Err(format!("Flash has no counterpart of {name}")),
    }
}

/// The file or the script that answers for missing files.
fn of_missing(builder: &Builder<'_, '_>, uri: &str) -> Result<String, String> {
    if uri.ends_with(".php") && values::is_file(uri) { Ok(uri.to_owned()) } else { of_uri(builder, uri) }
}

/// The file of an address of the site.
///
/// # Errors
/// Why Flash cannot show it.
pub(super) fn of_uri(builder: &Builder<'_, '_>, uri: &str) -> Result<String, String> {
    if !uri.starts_with('/') {
        return Err("Flash shows files of the site".to_owned());
    }
    let fits = |location: &&Location| location.shapes.iter().any(|shape| pattern::overlap(&shape.path, uri));
    let location = builder.locations.iter().find(fits);
    if location.is_some_and(|location| location.scope.pass.is_some()) {
        return Err("a server answers there, and Flash shows files".to_owned());
    }
    let file = match location
        .and_then(|location| Some((location, elsewhere(location, builder.site.root.as_deref())?)))
    {
        None => uri.to_owned(),
        Some((_, Elsewhere::Apart(folder))) => {
            let root = builder.site.root.clone().unwrap_or_default();
            return Err(format!("{folder} is not beneath the root {root}: copy the file there"));
        }
        Some((location, Elsewhere::Beneath(text))) => {
            let rest = uri.strip_prefix(&location.text).unwrap_or_default();
            text.replace("$rest", rest).replace("$uri", uri)
        }
    };
    if values::is_file(&file) {
        Ok(file)
    } else {
        Err("is not the path of a file that Flash can serve".to_owned())
    }
}
