//! From the rules of a config file to [`Rule`]s: whether each has an effect, where fallbacks lead, and the pages of
//! errors.
//!
//! Called by `config::resolve`. It must not change the file system.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use flash_engine::{PathPattern, PathRules, SiteId};
use flash_http::EncodedSlash;
use flash_http::target::decode_path;
use flash_prompt::{AsRawFd, OwnedFd};

use super::account;
use super::error::{ConfigErrorKind, Problem};
use super::file::RuleDraft;
use super::options::Site;
use super::path_rules::path_rules;
use super::route_options::Route;
use super::routes::RoutePaths;
use super::rule_options::{Rule, RuleOverrides};
use super::run_as::RunAs;
use super::table::{self, Given, Origin};
use crate::certificates::content;
use crate::passwords;

/// The largest error page: each worker keeps it.
const PAGE_BYTES_MAX: usize = 64 * 1024;
/// Maximum extensions of a rule that can be tried: each can cost a look at the disk.
const EXTENSIONS_MAX: usize = 8;
/// Stands for the characters of a `*` when a redirect is tried.
pub(super) const SAMPLE: &str = "x";

impl RuleDraft {
    fn resolve(&self) -> Rule {
        let given = self.given.clone().or(table::defaults());
        let mut rule = Rule::default();
        for spec in <RuleOverrides as table::Table>::rows() {
            (spec.target.put)(&given, &mut rule);
        }
        rule
    }

    /// Whether the rule has an effect, and all of its parts.
    fn check(&self, problems: &mut Vec<Problem>) {
        self.check_companions(problems);
        self.check_values(problems);
        self.check_fields(problems);
        self.check_targets(problems);
        self.check_alias(problems);
    }

    fn path(&self) -> &str {
        self.given.path.as_ref().map_or("*", |path| &path.value)
    }

    /// Whether each key has those without which it has no effect, and none with which it has none.
    fn check_companions(&self, problems: &mut Vec<Problem>) {
        let given = &self.given;
        let changes_fields = given.set.is_some() || given.add.is_some() || given.remove.is_some();
        for (key, origin, is_useful, others) in [
            ("auth_fields", origin(&given.auth_fields), given.auth.is_some(), "`auth`"),
            ("errors", origin(&given.errors), changes_fields, "`set`, `add` or `remove`"),
            ("status", origin(&given.status), given.redirect.is_some(), "`redirect`"),
            ("statuses", origin(&given.statuses), given.error_page.is_some(), "`error_page`"),
            ("burst", origin(&given.burst), given.rate.is_some(), "`rate`"),
        ] {
            let alone = |origin| Problem::given(origin, format!("`{key}` without {others}"), "has no effect");
            problems
                .extend(origin.filter(|_| !is_useful).map(|origin| alone(origin).of(ConfigErrorKind::Key)));
        }
        let first = [("redirect", given.redirect.is_some()), ("rewrite", given.rewrite.is_some())];
        for (key, origin, earlier) in [
            ("rewrite", origin(&given.rewrite), &first[..1]),
            ("try_extensions", origin(&given.try_extensions), &first),
            ("fallback", origin(&given.fallback), &first),
            ("alias", origin(&given.alias), &first),
        ] {
            let Some(origin) = origin else { continue };
            for (first, _) in earlier.iter().filter(|(_, is_given)| *is_given) {
                let why = "a request to which that applies no longer has this path";
                let problem = Problem::given(origin, format!("`{key}` beside `{first}`"), why);
                problems.push(problem.of(ConfigErrorKind::Key).helped("write it in a rule for the new path"));
            }
        }
    }

    /// Whether lists have values, and each of these an effect.
    fn check_values(&self, problems: &mut Vec<Problem>) {
        let RuleOverrides { except, allow, deny, auth_fields, try_extensions, cors, .. } = &self.given;
        let mut wrong = |key: &str, origin: &Origin, why: &str| {
            problems.push(Problem::given(origin, format!("wrong value for `{key}`"), why));
        };
        for (key, origin, why) in [
            ("auth_fields", origin_of_none(auth_fields), "name at least one field"),
            ("allow", origin_of_none(allow), "name at least one network"),
            ("deny", origin_of_none(deny), "name at least one network"),
            ("cors", origin_of_none(cors), "name at least one origin"),
        ] {
            origin.into_iter().for_each(|origin| wrong(key, origin, why));
        }
        let pattern = PathPattern::new(self.path());
        if let Some(Given { value, origin }) = except
            && let Some(all) = value.iter().find(|all| PathPattern::new(all).has_all_of(&pattern))
        {
            wrong("except", origin, &format!("{all} has all paths of the rule, so it would never apply"));
        }
        if let (Some(allow), Some(deny)) = (allow, deny)
            && !allow.value.is_empty()
            && allow.value.iter().all(|clients| deny.value.contains(clients))
        {
            let why = "it has all clients of `allow`, so none would be admitted";
            wrong("deny", &deny.origin, why);
        }
        if let Some(Given { value, origin }) = try_extensions
            && !(1..=EXTENSIONS_MAX).contains(&value.len())
        {
            wrong("try_extensions", origin, &format!("name 1 to {EXTENSIONS_MAX} extensions"));
        }
        if let Some(Given { value, origin }) = cors
            && value.len() > 1
            && value.iter().any(|allowed| allowed == "*")
        {
            wrong("cors", origin, "`*` stands for all origins, so the others have no effect");
        }
    }

    /// Whether no field is both set and removed, and `Vary` is only added to.
    fn check_fields(&self, problems: &mut Vec<Problem>) {
        let RuleOverrides { set, remove, .. } = &self.given;
        let is_set = |name: &str| {
            let fields = set.iter().flat_map(|set| &set.value);
            fields.into_iter().any(|field| field.name.eq_ignore_ascii_case(name))
        };
        if let Some(remove) = remove
            && let Some(name) = remove.value.iter().find(|name| is_set(name))
        {
            let title = format!("`{name}` in `remove`");
            problems.push(Problem::given(&remove.origin, title, "`set` has it too"));
        }
        let removes_vary =
            |given: &&Given<Vec<String>>| given.value.iter().any(|name| name.eq_ignore_ascii_case("vary"));
        let set = set.as_ref().filter(|_| is_set("vary")).map(|given| ("set", &given.origin));
        let remove = remove.as_ref().filter(removes_vary).map(|given| ("remove", &given.origin));
        if let Some((key, origin)) = set.or(remove) {
            let why = "caches would give clients an answer in a form that they do not accept";
            let problem = Problem::given(origin, format!("`Vary` in `{key}`"), why);
            problems.push(problem.helped("write it in `add`, or remove it"));
        }
    }

    /// Whether the paths that take the place of others can be made.
    fn check_targets(&self, problems: &mut Vec<Problem>) {
        let RuleOverrides { redirect, rewrite, .. } = &self.given;
        let stars = self.path().matches('*').count();
        for (key, target) in [("redirect", redirect), ("rewrite", rewrite)] {
            let Some(target) = target else { continue };
            if let Some(number) = numbers(&target.value).find(|number| *number > stars) {
                let title = format!("`${number}` in `{key}`");
                problems.push(Problem::given(&target.origin, title, format!("`path` has {stars} `*`")));
            }
        }
        if let Some(rewrite) = rewrite {
            let sample = (1..=stars)
                .fold(rewrite.value.clone(), |text, number| text.replace(&format!("${number}"), SAMPLE));
            let path = sample.split('?').next().unwrap_or_default();
            if let Err(bad) = decode_path(path.as_bytes(), EncodedSlash::Decode) {
                problems.push(Problem::given(&rewrite.origin, "wrong value for `rewrite`", bad.reason()));
            }
        }
    }

    /// Whether the paths of an alias are those of a folder.
    fn check_alias(&self, problems: &mut Vec<Problem>) {
        let Some(alias) = &self.given.alias else { return };
        let folder = self.path().strip_suffix("/*");
        let folder = folder.filter(|folder| folder.len() > 1 && !folder.contains('*'));
        if folder.is_none_or(|folder| !folder.starts_with('/')) {
            let why = "`path` must be a folder and `/*`, such as /docs/*";
            problems.push(Problem::given(&alias.origin, "`alias` for other paths", why));
        }
    }
}

fn origin<T>(given: &Option<Given<T>>) -> Option<&Origin> {
    given.as_ref().map(|given| &given.origin)
}

/// Where a list without values was given.
fn origin_of_none<T>(given: &Option<Given<Vec<T>>>) -> Option<&Origin> {
    origin(given).filter(|_| given.as_ref().is_some_and(|given| given.value.is_empty()))
}

/// The numbers of the parts in a target.
fn numbers(target: &str) -> impl Iterator<Item = usize> {
    target
        .split('$')
        .skip(1)
        .filter_map(|rest| Some(rest.chars().next()?.to_digit(10)? as usize))
        .filter(|number| *number > 0)
}

pub(super) fn resolve(drafts: &[RuleDraft], problems: &mut Vec<Problem>) -> Vec<Rule> {
    let before = problems.len();
    drafts.iter().for_each(|draft| draft.check(problems));
    let rules: Vec<Rule> = drafts.iter().map(RuleDraft::resolve).collect();
    if problems.len() == before {
        let all = path_rules(&rules, SiteId(0));
        problems.extend(drafts.iter().filter_map(|draft| second_fallback(&all, draft)));
    }
    rules
}

/// Reads the error pages of rules beneath the root of their site. Later they are shown without looking at the disk, which an error
/// may be about.
pub(super) fn read_error_pages(
    drafts: &[RuleDraft],
    site: &mut Site,
    root: &OwnedFd,
    run_as: Option<&RunAs>,
    problems: &mut Vec<Problem>,
) {
    for (draft, rule) in drafts.iter().zip(&mut site.rules) {
        let Some(Given { value: path, origin }) = &draft.given.error_page else { continue };
        if site.routes.iter().any(|route| route.is_script(path)) {
            let why = "it is a script of a route, and its source would be shown";
            problems.push(Problem::given(origin, format!("cannot show `{path}`"), why));
            continue;
        }
        match account::read_text(root, (path, PAGE_BYTES_MAX), run_as) {
            Ok(html) => rule.error_html = Some(html),
            Err((why, help)) => {
                let problem = Problem::given(origin, format!("cannot show `{path}`"), why);
                problems.push(problem.of(ConfigErrorKind::Path).maybe_helped(help));
            }
        }
    }
}

/// Whether a route of the site has each path whose server is asked.
pub(super) fn check_auth(drafts: &[RuleDraft], site: &Site, problems: &mut Vec<Problem>) {
    for Given { value: path, origin } in drafts.iter().filter_map(|draft| draft.given.auth.as_ref()) {
        let has_path = |route: &Route| match &route.paths {
            RoutePaths::Prefix(prefix) => path.starts_with(prefix),
            RoutePaths::Extension(_) => route.is_script(path),
        };
        if !site.routes.iter().any(has_path) {
            let why = "no route of the site has this path";
            let problem = Problem::given(origin, format!("cannot ask `{path}`"), why);
            problems.push(problem.helped("add a route for its server"));
        }
    }
}

/// Whether the extensions that are tried are those of files, not of scripts.
pub(super) fn check_tried_extensions(drafts: &[RuleDraft], site: &Site, problems: &mut Vec<Problem>) {
    let trying = drafts.iter().zip(&site.rules);
    let trying = trying.filter_map(|(draft, rule)| Some((draft.given.try_extensions.as_ref()?, &rule.path)));
    let mut trying = trying.peekable();
    if trying.peek().is_none() {
        return;
    }
    let rules = path_rules(&site.rules, SiteId(0));
    for (Given { value, origin }, path) in trying {
        let is_script = |extension: &&String| {
            let name = format!("/a.{extension}");
            site.routes.iter().any(|route| route.is_script(&name))
        };
        if let Some(extension) = value.iter().find(is_script) {
            let why = "its files are scripts of a route, and no file answers with their source";
            problems.push(Problem::given(origin, format!("cannot try `{extension}`"), why));
        }
        let typical = PathPattern::new(path).typical();
        let fallback = rules.fallback(&typical).and_then(|path| std::str::from_utf8(path).ok());
        if let Some(script) = fallback.filter(|path| site.routes.iter().any(|route| route.is_script(path))) {
            let why =
                format!("{script} answers for the missing files, and decides about each path without a file");
            problems.push(Problem::given(origin, "`try_extensions` beside a script", why));
        }
    }
}

/// Reads the files of users of rules, with the rights of this process: no other should be able to. `folders` are the root and the
/// aliases, without those that did not answer, which could hang now.
pub(super) fn read_users<'f>(
    drafts: &[RuleDraft],
    site: &mut Site,
    folders: impl Iterator<Item = &'f OwnedFd>,
    problems: &mut Vec<Problem>,
) {
    let place = |folder: &OwnedFd| fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd())).ok();
    let folders: Vec<_> = folders.filter_map(place).collect();
    for (draft, rule) in drafts.iter().zip(&mut site.rules) {
        let (Some(path), Some(Given { origin, .. })) = (&rule.users, &draft.given.users) else { continue };
        let title = format!("cannot use `{}` as `users`", path.display());
        if folders.iter().any(|folder| is_served(path, folder)) {
            let why = "it lies beneath the root or an alias, where clients could get it";
            let problem = Problem::given(origin, title, why);
            problems.push(
                problem.of(ConfigErrorKind::Path).helped("move it to another folder, such as /etc/flash"),
            );
            continue;
        }
        let read = content(path, true).and_then(|bytes| {
            let text = String::from_utf8(bytes).map_err(|_| "it is no text in UTF-8".to_owned())?;
            passwords::read(&text)
        });
        match read {
            Ok(users) => rule.stored_users = users,
            Err(why) => problems.push(Problem::given(origin, title, why).of(ConfigErrorKind::Path)),
        }
    }
}

/// Whether a site with this folder sends the file at a path.
fn is_served(path: &Path, folder: &Path) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let is_hidden = |part: &OsStr| part.as_encoded_bytes().starts_with(b".");
    path.strip_prefix(folder).is_ok_and(|rest| !rest.iter().any(is_hidden))
}

/// A problem if another file would answer for the fallback of a rule: it is used only once.
fn second_fallback(all: &PathRules, draft: &RuleDraft) -> Option<Problem> {
    let fallback = draft.given.fallback.as_ref()?;
    let second = all.fallback(fallback.value.as_bytes())?.escape_ascii();
    let title = "a fallback that has a fallback";
    let why = format!("if {} is missing, {second} would have to answer", fallback.value);
    let help = format!(
        "put a rule with `path = \"{0}\"` and `fallback = \"{0}\"` before the others",
        fallback.value
    );
    Some(Problem::given(&fallback.origin, title.to_owned(), why).helped(help))
}
