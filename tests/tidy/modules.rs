//! The rules for modules: their order in the engine and in the crates of the lab, no circles among the files of several
//! crates, and one name for one type in the engine.

use std::collections::BTreeMap;

use crate::source::Source;
use crate::{Breach, assert_kept, each, sources};

/// Where they are.
const ENGINE: &str = "crates/engine/src/";

/// The modules of each crate that has an order, the highest first. A module knows only itself and those below it, so there
/// are no circles.
const ORDERS: &[(&str, &[&str])] = &[
    (
        "crates/engine/src/",
        &[
            "backend",
            "engine",
            "wire",
            "exchange",
            "handler",
            "body",
            "context",
            "throttles",
            "in_flight",
            "spool",
            "upstream",
            "transport",
            "caches",
            "jobs",
            "access_log",
            "requester",
            "machine",
            "head_changes",
            "router",
            "rules",
            "path_rules",
            "path_rule",
            "path_pattern",
            "conditions",
            "bandwidth",
            "rates",
            "bounds",
            "users",
            "handed_over",
            "log_template",
            "counters",
            "timing",
            "schedule",
            "admission",
            "histogram",
            "report_limit",
            "shares",
            "slab",
            "secret",
            "fastcgi",
            "limits",
        ],
    ),
    (
        "crates/kit/src/",
        &[
            "sheet",
            "bars",
            "chart",
            "section",
            "scale",
            "text",
            "page",
            "style",
            "number",
            "interrupt",
            "processes",
            "ending",
            "error",
        ],
    ),
    (
        "crates/load/src/",
        &["fileset", "generator", "measure", "record", "workload", "target", "files", "floor", "gzip", "tls"],
    ),
    (
        "crates/trace/src/",
        &[
            "doctor",
            "output",
            "page",
            "table",
            "strip",
            "diagnosis_text",
            "diagnosis",
            "pools",
            "display",
            "recorder",
            "roles",
            "roll_call",
            "analysis",
            "reason",
            "attach",
            "decode",
            "tap",
            "world",
            "event",
            "segment",
            "symbols",
            "calls",
            "fixture",
            "model",
        ],
    ),
    (
        "crates/lab/src/",
        &[
            "experiment",
            "compare",
            "interfere",
            "profile",
            "execute",
            "cache",
            "drive",
            "testbed",
            "link",
            "join",
            "report",
            "statistics",
            "results",
            "theory",
        ],
    ),
];

/// The order of a file's crate and the modules that the file is in, from the root: `wire`, `h1` of `wire/h1/mod.rs`. None for a
/// file that is not held to an order: another crate's, a test, or the root, which names all modules.
fn place(source: &Source) -> Option<(&'static [&'static str], Vec<&str>)> {
    let (folder, order) = ORDERS.iter().find(|(folder, _)| source.path.starts_with(folder))?;
    let file = source.path.strip_prefix(folder)?.strip_suffix(".rs")?;
    let modules = file.strip_suffix("/mod").unwrap_or(file).split('/').collect();
    (file != "lib" && !source.is_test()).then_some((*order, modules))
}

/// The path from the root of the crate that a path leads to from a module. None if it leads out of the crate, or down
/// from the module.
fn from_root<'p>(place: &[&'p str], path: &'p str) -> Option<Vec<&'p str>> {
    let mut parts = path.split("::").peekable();
    let mut found = match parts.next_if(|part| matches!(*part, "crate" | "self")) {
        Some("crate") => Vec::new(),
        Some(_) => place.to_vec(),
        None => {
            parts.peek().filter(|part| **part == "super")?;
            place.to_vec()
        }
    };
    for part in parts {
        if part == "super" {
            found.pop();
        } else {
            found.push(part);
        }
    }
    Some(found)
}

fn level(order: &[&str], module: &str) -> Option<usize> {
    order.iter().position(|name| *name == module)
}

fn upward_imports(source: &Source) -> Vec<Breach> {
    let Some((order, place)) = place(source) else { return Vec::new() };
    let module = place[0];
    let Some(own) = level(order, module) else {
        return vec![Breach::new(&source.path, 1, format!("`{module}` is not in the order of modules"))];
    };
    let breach = |(line, path): (usize, String)| {
        let found = from_root(&place, &path)?;
        let named = found.first().copied().unwrap_or("*");
        let what = match level(order, named) {
            Some(level) if level >= own => return None,
            Some(_) => format!("`{module}` must not name `{named}`"),
            None => format!("`{path}` names no module of the order"),
        };
        Some(Breach::new(&source.path, line, what))
    };
    source.paths().into_iter().filter_map(breach).collect()
}

#[test]
fn modules_name_only_those_below_them() {
    for (folder, order) in ORDERS {
        let root = sources().into_iter().find(|source| source.path == format!("{folder}lib.rs")).unwrap();
        for module in *order {
            assert!(
                !root.lines_with(&format!("mod {module};")).is_empty(),
                "{module} is no module of {folder}"
            );
        }
    }
    assert_kept("A module knows only those below it: `ORDERS` in this file.", &each(upward_imports));
}

#[test]
fn upward_imports_are_found() {
    let found = |file: &str, text: &str| upward_imports(&Source::new(&format!("{ENGINE}{file}"), text)).len();
    for (file, text) in [
        ("handler/files.rs", "use crate::wire::Wires;\n"),
        ("handler/files.rs", "use crate::{limits, wire::{self, Wires as W}};\n"),
        ("handler/files.rs", "fn f() { crate::exchange::g() }\n"),
        ("handler/files.rs", "use super::super::wire::Wires;\n"),
        ("handler/mod.rs", "use super::wire::Wires;\n"),
        ("handler/mod.rs", "use self::super::wire::Wires;\n"),
        ("handler/mod.rs", "use super::*;\n"),
        ("handler/mod.rs", "use crate::Counters;\n"),
        ("histogram.rs", "use crate::counters::Counters;\n"),
        ("limits.rs", "use crate::slab::Key;\n"),
        ("new.rs", "use crate::limits::TICKS;\n"),
    ] {
        assert!(found(file, text) > 0, "{file}: {text}");
    }
    for (file, text) in [
        ("handler/files.rs", "use crate::handler::Asked;\nuse super::{Asked, error_page::BUSY};\n"),
        ("handler/files.rs", "use self::inner::Wires;\nuse std::sync::Arc;\nuse flash_http::etag;\n"),
        ("handler/mod.rs", "use crate::{limits, caches::{self, Caches}};\nmod files;\nuse files::wire::X;\n"),
        ("handler/mod.rs", "// crate::wire\n#[cfg(test)]\nmod tests {\n    use crate::wire::Wires;\n}\n"),
        ("counters.rs", "use crate::histogram::Histogram;\n"),
        ("handler/handler_tests.rs", "use crate::wire::Wires;\n"),
        ("lib.rs", "pub use crate::wire::Readiness;\n"),
    ] {
        assert_eq!(found(file, text), 0, "{file}: {text}");
    }
    let other = Source::new("crates/worker/src/limits.rs", "use crate::worker::Worker;\n");
    assert_eq!(upward_imports(&other), []);
}

/// The crates in which no two files import each other in a circle.
const NO_CIRCLES: &[&str] = &[
    "crates/kit/src/",
    "crates/load/src/",
    "crates/server/src/",
    "crates/trace/src/",
    "crates/lab/src/",
    "crates/http/src/",
    "crates/engine/src/",
];

/// The files of a crate by their modules from the root, tests and the root itself not among them.
type Files<'s> = BTreeMap<Vec<&'s str>, &'s Source>;

fn files<'s>(sources: &'s [Source], folder: &str) -> Files<'s> {
    let of_crate = sources.iter().filter(|source| !source.is_test());
    let file = |source: &'s Source| {
        let file = source.path.strip_prefix(folder)?.strip_suffix(".rs")?;
        let modules = file.strip_suffix("/mod").unwrap_or(file).split('/').collect();
        (file != "lib").then_some((modules, source))
    };
    of_crate.filter_map(file).collect()
}

/// The file that a path leads to from a module: the longest part of the path that is a file, and the name that follows.
fn file_of<'p>(
    files: &Files<'_>,
    place: &[&'p str],
    path: &'p str,
) -> Option<(Vec<&'p str>, Option<&'p str>)> {
    let mut parts = from_root(place, path).or_else(|| {
        let child = [place, &path.split("::").collect::<Vec<_>>()].concat();
        files.contains_key(&child[..=place.len()]).then_some(child)
    })?;
    let mut next = None;
    while !files.contains_key(&parts) {
        next = Some(parts.pop()?);
    }
    Some((parts, next))
}

/// The files that a file imports from, with the lines. A name that a file only hands on is its own file's. A file may name
/// those below it, and a file below may name it: the two are one module.
fn imports<'s>(files: &Files<'s>, place: &[&'s str]) -> Vec<(usize, Vec<&'s str>)> {
    // The paths live only as long as this function: the files' own keys do not.
    let key = |found: &[&str]| files.keys().find(|key| key.as_slice() == found).cloned();
    let mut imports = Vec::new();
    for (line, path) in files[place].paths() {
        let Some((mut found, name)) = file_of(files, place, &path) else { continue };
        let handed_on = files[&found].paths();
        let sources = handed_on.iter().filter(|(_, path)| path.rsplit("::").next() == name);
        if let Some(source) = sources.filter_map(|(_, path)| Some(file_of(files, &found, path)?.0)).next() {
            found = source;
        }
        imports.extend(key(&found).filter(|found| !found.starts_with(place)).map(|found| (line, found)));
    }
    imports
}

/// The imports that are part of a circle.
fn circles(sources: &[Source], folder: &str) -> Vec<Breach> {
    let files = files(sources, folder);
    let all: BTreeMap<_, _> = files.keys().map(|place| (place.clone(), imports(&files, place))).collect();
    let leads_to = |from: &Vec<&str>, to: &Vec<&str>| {
        let (mut seen, mut left) = (vec![from], vec![from]);
        while let Some(place) = left.pop() {
            for (_, next) in &all[place] {
                if !seen.contains(&next) {
                    seen.push(next);
                    left.push(next);
                }
            }
        }
        seen.contains(&to)
    };
    let mut breaches = Vec::new();
    for (place, imports) in &all {
        for (line, named) in imports.iter().filter(|(_, named)| leads_to(named, place)) {
            let what = format!("`{}` leads back to this file", named.join("::"));
            breaches.push(Breach::new(&files[place].path, *line, what));
        }
    }
    breaches
}

#[test]
fn files_do_not_import_each_other_in_a_circle() {
    let sources = sources();
    let found: Vec<Breach> = NO_CIRCLES.iter().flat_map(|folder| circles(&sources, folder)).collect();
    assert_kept("Two files that need each other share an item that belongs in a third, below both.", &found);
}

#[test]
fn circles_of_files_are_found() {
    let found = |files: &[(&str, &str)]| {
        let source = |(name, text): &(&str, &str)| Source::new(&format!("crates/lab/src/{name}"), text);
        circles(&files.iter().map(source).collect::<Vec<_>>(), "crates/lab/src/").len()
    };
    let both = [
        ("a/mod.rs", "mod b;\nmod c;\n"),
        ("a/b.rs", "use super::c::C;\n"),
        ("a/c.rs", "use super::b::B;\n"),
    ];
    assert_eq!(found(&both), 2);
    assert_eq!(found(&both[..2]), 0, "only one direction");
    assert_eq!(found(&[("a.rs", "use crate::b::B;\n"), ("b.rs", "fn f() { crate::a::g() }\n")]), 2);
    let three = [
        ("a.rs", "use super::b::B;\n"),
        ("b.rs", "use super::{c::{self, C}, d::D};\n"),
        ("c.rs", "use super::a::A;\n"),
        ("d.rs", ""),
    ];
    assert_eq!(found(&three), 4, "`b` names `c` twice, and what it names of `d` leads nowhere");
    // Through a parent that hands the name on.
    let handed_on = [
        ("a/mod.rs", "mod b;\nmod c;\npub use b::B;\n"),
        ("a/b.rs", "use super::c::C;\n"),
        ("a/c.rs", "use super::B;\n"),
    ];
    assert_eq!(found(&handed_on), 2);
    let parent =
        [("a/mod.rs", "mod b;\nuse b::B;\npub struct A;\n"), ("a/b.rs", "use super::A;\npub struct B;\n")];
    assert_eq!(found(&parent), 0, "a file and the one below it are one module");
    let folder =
        [("wire/conn.rs", "use super::h1::H1;\n"), ("wire/h1/mod.rs", "use crate::wire::conn::Conn;\n")];
    assert_eq!(found(&folder), 2);
    let test = "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n";
    assert_eq!(found(&[("a.rs", test), ("b.rs", "use crate::a::A;\n")]), 0);
}

fn names_used_twice(sources: &[Source]) -> Vec<Breach> {
    let mut first: BTreeMap<String, String> = BTreeMap::new();
    let mut breaches = Vec::new();
    let product = sources.iter().filter(|source| source.path.starts_with(ENGINE) && !source.is_test());
    for source in product {
        for (line, name) in source.types() {
            let here = format!("{}:{line}", source.path);
            match first.get(&name) {
                Some(there) => {
                    breaches.push(Breach::new(&source.path, line, format!("`{name}`, as at {there}")));
                }
                None => drop(first.insert(name, here)),
            }
        }
    }
    breaches
}

#[test]
fn a_name_in_the_engine_means_one_type() {
    assert_kept("Two types of one name are taken for each other.", &names_used_twice(&sources()));
}

#[test]
fn names_used_twice_are_found() {
    let file = |name: &str, text: &str| Source::new(&format!("{ENGINE}{name}"), text);
    let first = || file("a.rs", "pub struct Part<'a>(&'a u8);\n");
    let found = |text: &str| names_used_twice(&[first(), file("b.rs", text)]);
    for text in ["struct Part;\n", "pub(crate) enum Part {}\n", "trait Part {}\n"] {
        assert_eq!(
            found(text),
            [Breach::new("crates/engine/src/b.rs", 1, "`Part`, as at crates/engine/src/a.rs:1")]
        );
    }
    for text in ["struct Parts;\n", "// struct Part;\n", "#[cfg(test)]\nmod tests {\n    struct Part;\n}\n"] {
        assert_eq!(found(text), [], "{text}");
    }
    let elsewhere = Source::new("crates/worker/src/a.rs", "struct Part;\n");
    assert_eq!(names_used_twice(&[first(), elsewhere]), []);
}
