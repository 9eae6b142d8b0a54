//! The rules for the modules of the engine: their order, and one name for one type.

use std::collections::BTreeMap;

use crate::source::Source;
use crate::{Breach, assert_kept, each, sources};

/// Where they are.
const ENGINE: &str = "crates/engine/src/";

/// The modules of the engine, the highest first. Each knows only itself and those below it, so there are no circles.
const ORDER: &[&str] = &[
    "engine",
    "wire",
    "exchange",
    "handler",
    "body",
    "desk",
    "store",
    "jobs",
    "machine",
    "rules",
    "handed_over",
    "access_log",
    "counters",
    "histogram",
    "slab",
    "limits",
];

/// The modules that a file of the engine is in, from the root: `wire`, `h1` of `wire/h1.rs`. None for a file that is not
/// held to the order: another crate's, a test, or the root, which names all modules.
fn place(source: &Source) -> Option<Vec<&str>> {
    let file = source.path.strip_prefix(ENGINE)?.strip_suffix(".rs")?;
    let modules = file.strip_suffix("/mod").unwrap_or(file).split('/').collect();
    (file != "lib" && !source.is_test()).then_some(modules)
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

fn level(module: &str) -> Option<usize> {
    ORDER.iter().position(|name| *name == module)
}

fn upward_imports(source: &Source) -> Vec<Breach> {
    let Some(place) = place(source) else { return Vec::new() };
    let module = place[0];
    let Some(own) = level(module) else {
        return vec![Breach::new(&source.path, 1, format!("`{module}` is not in the order of modules"))];
    };
    let breach = |(line, path): (usize, String)| {
        let found = from_root(&place, &path)?;
        let named = found.first().copied().unwrap_or("*");
        let what = match level(named) {
            Some(level) if level >= own => return None,
            Some(_) => format!("`{module}` must not name `{named}`"),
            None => format!("`{path}` names no module of the order"),
        };
        Some(Breach::new(&source.path, line, what))
    };
    source.paths().into_iter().filter_map(breach).collect()
}

#[test]
fn modules_of_the_engine_name_only_those_below_them() {
    let root = sources().into_iter().find(|source| source.path == format!("{ENGINE}lib.rs")).unwrap();
    for module in ORDER {
        assert!(
            !root.lines_with(&format!("mod {module};")).is_empty(),
            "{module} is no module of the engine"
        );
    }
    assert_kept("A module knows only those below it: `ORDER` in this file.", &each(upward_imports));
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
        ("handler/mod.rs", "use crate::{limits, store::{self, Store}};\nmod files;\nuse files::wire::X;\n"),
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
