//! The house rules, run as a test (after TigerBeetle's `tidy.zig`). Each rule looks at the whole
//! workspace and says file and line of what breaks it; beside each stands a proof that it can fail.

mod c;
mod links;
mod modules;
mod results;
mod source;
mod words;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use source::Source;

/// The most lines of code of a file.
const FILE_LINES_MAX: usize = 500;
/// The most lines of code of a function.
const FUNCTION_LINES_MAX: usize = 70;
/// The most parameters of a function, besides `self`.
const PARAMETERS_MAX: usize = 5;
/// The crates whose functions are held to that.
const FEW_PARAMETERS: &[&str] =
    &["crates/engine/src/", "crates/http/src/", "crates/server/src/", "crates/worker/src/"];

/// The rooms: each crate, and those of ours that it may depend on.
const ROOMS: &[(&str, &[&str])] = &[
    // The crates of system calls and of HTTP are for the clients of its tests.
    (
        "flash",
        &[
            "flash-http",
            "flash-kit",
            "flash-lab",
            "flash-load",
            "flash-migrate",
            "flash-prompt",
            "flash-server",
            "flash-trace",
            "flash-units",
            "flash-waiting",
        ],
    ),
    ("flash-lab", &["flash-keeper", "flash-kit", "flash-load", "flash-units", "flash-waiting"]),
    ("flash-trace", &["flash-kit", "flash-waiting"]),
    ("flash-load", &["flash-http", "flash-kit", "flash-prompt", "flash-units", "flash-waiting"]),
    ("flash-kit", &["flash-waiting"]),
    (
        "flash-server",
        &[
            "flash-engine",
            "flash-http",
            "flash-keeper",
            "flash-prompt",
            "flash-tls",
            "flash-units",
            "flash-waiting",
            "flash-worker",
        ],
    ),
    ("flash-worker", &["flash-engine", "flash-http", "flash-prompt", "flash-tls"]),
    ("flash-tls", &["flash-engine"]),
    // The keeper is for the engine's tests.
    ("flash-engine", &["flash-http", "flash-keeper"]),
    ("flash-http", &[]),
    ("flash-migrate", &[]),
    ("flash-keeper", &[]),
    ("flash-units", &[]),
    ("flash-waiting", &["flash-prompt"]),
    ("flash-prompt", &[]),
    (
        "flash-checks",
        &[
            "flash-engine",
            "flash-http",
            "flash-prompt",
            "flash-server",
            "flash-tls",
            "flash-waiting",
            "flash-worker",
        ],
    ),
];

/// Crates that make system calls.
const SYSTEM_CRATES: &[&str] = &["libc", "rustix", "nix", "linux-raw-sys"];

/// Something that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
struct Breach {
    path: String,
    line: usize,
    what: String,
}

impl Breach {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

#[track_caller]
fn assert_kept(rule: &str, breaches: &[Breach]) {
    let mut list = String::new();
    for Breach { path, line, what } in breaches {
        let _ = writeln!(list, "  {path}:{line}: {what}");
    }
    assert!(breaches.is_empty(), "{rule}\n{list}");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The files that belong to the project, from its root: what git knows or could be told of. Without
/// git all that is not plainly made.
fn files() -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output();
    let mut files: Vec<String> = match listed {
        Ok(output) if output.status.success() => {
            let names = output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
            names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
        }
        _ => walk(Path::new("")),
    };
    // Deleted and not yet committed.
    files.retain(|name| root().join(name).is_file());
    files.sort();
    assert!(files.len() > 50, "the project was not found in {:?}", root());
    files
}

fn walk(folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join(folder)).unwrap().map(Result::unwrap) {
        let name = entry.file_name();
        let path = folder.join(&name);
        if entry.file_type().unwrap().is_dir() {
            if name != "target" && name != ".git" {
                files.extend(walk(&path));
            }
        } else {
            files.push(path.to_string_lossy().into_owned());
        }
    }
    files
}

fn sources() -> Vec<Source> {
    let rust = files().into_iter().filter(|name| name.ends_with(".rs"));
    rust.map(|name| Source::new(&name, &fs::read_to_string(root().join(&name)).unwrap())).collect()
}

fn manifests() -> Vec<(String, toml::Table)> {
    let names =
        files().into_iter().filter(|name| name.starts_with("crates/") && name.ends_with("/Cargo.toml"));
    names
        .map(|name| {
            let text = fs::read_to_string(root().join(&name)).unwrap();
            let table = text.parse().unwrap_or_else(|e| panic!("{name}: {e}"));
            (name, table)
        })
        .collect()
}

/// The breaches of all sources by a rule on each.
fn each(rule: impl Fn(&Source) -> Vec<Breach>) -> Vec<Breach> {
    sources().iter().flat_map(rule).collect()
}

// Length.

fn long_files(source: &Source) -> Vec<Breach> {
    let lines = source.product_lines();
    let is_long = !source.is_test() && lines > FILE_LINES_MAX;
    is_long.then(|| Breach::new(&source.path, 1, format!("{lines} lines of code"))).into_iter().collect()
}

#[test]
fn no_file_has_more_than_500_lines_of_code() {
    assert_kept("A file this long holds two things: make two files of it.", &each(long_files));
}

#[test]
fn long_files_are_found() {
    let text = |lines| {
        "a();\n\n// no code\n".repeat(lines) + "#[cfg(test)]\nmod tests {\n" + &"b();\n".repeat(900) + "}\n"
    };
    assert_eq!(long_files(&Source::new("x.rs", &text(500))), []);
    assert_eq!(long_files(&Source::new("x.rs", &text(501))), [Breach::new("x.rs", 1, "501 lines of code")]);
    assert_eq!(long_files(&Source::new("tests/x.rs", &text(501))), []);
}

fn long_functions(source: &Source) -> Vec<Breach> {
    if source.is_test() {
        return Vec::new();
    }
    let long = source.functions().into_iter().filter(|function| function.lines > FUNCTION_LINES_MAX);
    long.map(|f| Breach::new(&source.path, f.line, format!("`{}` has {} lines of code", f.name, f.lines)))
        .collect()
}

#[test]
fn no_function_has_more_than_70_lines_of_code() {
    assert_kept("A function this long does two things: make two functions of it.", &each(long_functions));
}

#[test]
fn long_functions_are_found() {
    let text = |lines| format!("\nfn f() {{\n{}}}\n", "    a(\"{\");\n".repeat(lines));
    assert_eq!(long_functions(&Source::new("x.rs", &text(68))), []);
    let found = long_functions(&Source::new("x.rs", &text(69)));
    assert_eq!(found, [Breach::new("x.rs", 2, "`f` has 71 lines of code")]);
}

fn many_parameters(source: &Source) -> Vec<Breach> {
    let is_held = FEW_PARAMETERS.iter().any(|room| source.path.starts_with(room));
    if !is_held || source.is_test() {
        return Vec::new();
    }
    let many = source.signatures().into_iter().filter(|function| function.parameters > PARAMETERS_MAX);
    many.map(|f| Breach::new(&source.path, f.line, format!("`{}` has {} parameters", f.name, f.parameters)))
        .collect()
}

#[test]
fn no_function_has_more_than_five_parameters() {
    assert_kept("Parameters that go together are a struct.", &each(many_parameters));
}

#[test]
fn many_parameters_are_found() {
    let found = |path: &str, text: &str| many_parameters(&Source::new(path, text));
    let five = "fn f(&self, a: u8, b: u8, c: u8, d: u8, e: u8) {}\n";
    let six = "fn f(&self, a: u8, b: u8, c: u8, d: u8, e: u8, f: u8) {}\n";
    for room in FEW_PARAMETERS {
        let path = format!("{room}x.rs");
        assert_eq!(found(&path, five), []);
        assert_eq!(found(&path, six), [Breach::new(&path, 1, "`f` has 6 parameters")]);
    }
    assert_eq!(found("crates/engine/src/x.rs", &six.replace("{}", ";")).len(), 1);
    assert_eq!(found("crates/lab/src/x.rs", six), []);
    assert_eq!(found("crates/engine/src/x_tests.rs", six), []);
}

// Crates.

/// The crates that a manifest depends on, for whatever purpose and target.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let mut names = Vec::new();
    for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
        let table = manifest.get(kind).and_then(toml::Value::as_table);
        for (key, value) in table.into_iter().flatten() {
            // Renamed, it is still what it is.
            let package = value.get("package").and_then(toml::Value::as_str);
            names.push(package.unwrap_or(key).to_owned());
        }
    }
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    for (_, target) in targets.into_iter().flatten() {
        names.extend(target.as_table().map(dependencies).unwrap_or_default());
    }
    names
}

fn name_of(manifest: &toml::Table) -> &str {
    manifest.get("package").and_then(|package| package.get("name")?.as_str()).unwrap_or_default()
}

fn upward_edges(path: &str, manifest: &toml::Table) -> Vec<Breach> {
    let name = name_of(manifest);
    let Some((_, allowed)) = ROOMS.iter().find(|(room, _)| *room == name) else {
        return vec![Breach::new(path, 1, format!("`{name}` is not in the table of rooms"))];
    };
    let ours =
        dependencies(manifest).into_iter().filter(|other| other == "flash" || other.starts_with("flash-"));
    // Its tests may build it with other features.
    ours.filter(|other| other != name && !allowed.contains(&other.as_str()))
        .map(|other| Breach::new(path, 1, format!("`{name}` must not depend on `{other}`")))
        .collect()
}

#[test]
fn dependencies_point_downward_only() {
    let manifests = manifests();
    assert!(manifests.len() >= ROOMS.len());
    let breaches: Vec<Breach> =
        manifests.iter().flat_map(|(path, manifest)| upward_edges(path, manifest)).collect();
    assert_kept("A crate lower down never learns of one above (DESIGN, \"Rooms\").", &breaches);
}

/// The rooms that one reaches by the table, itself among them.
fn reached(room: &str) -> Vec<&'static str> {
    let mut found: Vec<&str> = ROOMS.iter().map(|(name, _)| *name).filter(|name| *name == room).collect();
    let mut at = 0;
    while let Some(name) = found.get(at) {
        let below = ROOMS.iter().filter(|(room, _)| room == name).flat_map(|(_, below)| *below);
        let new: Vec<&str> = below.filter(|other| !found.contains(other)).copied().collect();
        found.extend(new);
        at += 1;
    }
    found
}

#[test]
fn a_worker_reaches_no_crate_that_waits() {
    let worker = reached("flash-worker");
    assert!(worker.contains(&"flash-prompt"), "{worker:?}");
    for waiting in
        ["flash-waiting", "flash-server", "flash-kit", "flash-load", "flash-trace", "flash-lab", "flash"]
    {
        assert!(!worker.contains(&waiting), "a worker reaches {waiting}: {worker:?}");
    }
    assert!(reached("flash").contains(&"flash-waiting"), "by several edges");
}

#[test]
fn upward_edges_are_found() {
    let found = |text: &str| upward_edges("x", &text.parse().unwrap()).len();
    let engine = "[package]\nname = \"flash-engine\"\n";
    assert_eq!(
        found(&format!("{engine}[dependencies]\nflash-http.workspace = true\nquick_cache = \"0.7\"\n")),
        0
    );
    for edge in [
        "[dependencies]\nflash-prompt.workspace = true\n",
        "[dependencies.flash-server]\npath = \"../server\"\n",
        "[dev-dependencies]\nflash-prompt.workspace = true\n",
        "[build-dependencies]\nflash-prompt.workspace = true\n",
        "[dependencies]\ninnocent = { package = \"flash-prompt\", path = \"../sys/prompt\" }\n",
        "[target.'cfg(unix)'.dependencies]\nflash-prompt.workspace = true\n",
    ] {
        assert_eq!(found(&format!("{engine}{edge}")), 1, "{edge}");
    }
    assert_eq!(found("[package]\nname = \"flash-new\"\n"), 1);
    let worker = "[package]\nname = \"flash-worker\"\n[dependencies]\n";
    assert_eq!(found(&format!("{worker}flash-prompt.workspace = true\nserde = \"1\"\n")), 0);
    assert_eq!(found(&format!("{worker}flash-waiting.workspace = true\n")), 1);
}

fn system_crates(path: &str, manifest: &toml::Table) -> Vec<Breach> {
    if path.starts_with("crates/sys/") {
        return Vec::new();
    }
    let name = name_of(manifest);
    let theirs = dependencies(manifest).into_iter().filter(|other| SYSTEM_CRATES.contains(&other.as_str()));
    theirs.map(|other| Breach::new(path, 1, format!("`{name}` must not depend on `{other}`"))).collect()
}

fn system_calls(source: &Source) -> Vec<Breach> {
    if source.path.starts_with("crates/sys/") {
        return Vec::new();
    }
    let is_theirs = |path: &str| {
        SYSTEM_CRATES.iter().any(|name| path.split("::").next() == Some(&name.replace('-', "_")))
    };
    source
        .paths()
        .into_iter()
        .filter(|(_, path)| is_theirs(path))
        .map(|(line, path)| Breach::new(&source.path, line, format!("`{path}`")))
        .collect()
}

#[test]
fn only_sys_makes_system_calls() {
    let mut breaches: Vec<Breach> =
        manifests().iter().flat_map(|(path, manifest)| system_crates(path, manifest)).collect();
    breaches.extend(each(system_calls));
    assert_kept("libc and rustix are for crates/sys alone.", &breaches);
}

#[test]
fn system_calls_are_found() {
    let manifest = "[package]\nname = \"flash-lab\"\n[dependencies]\nlibc = \"0.2\"\n".parse().unwrap();
    assert_eq!(system_crates("crates/lab/Cargo.toml", &manifest).len(), 1);
    assert_eq!(system_crates("crates/sys/prompt/Cargo.toml", &manifest), []);
    let text = "use rustix::fd::OwnedFd;\nfn f() { unsafe { libc::getpid() }; }\n// libc::x\n";
    assert_eq!(system_calls(&Source::new("crates/lab/src/x.rs", text)).len(), 2);
    assert_eq!(system_calls(&Source::new("crates/sys/prompt/src/x.rs", text)), []);
}

// Unsafe.

fn unsafe_code(source: &Source) -> Vec<Breach> {
    if source.path.starts_with("crates/sys/") {
        return Vec::new();
    }
    let lines = source.lines_with_word("unsafe").into_iter();
    lines.map(|line| Breach::new(&source.path, line, "`unsafe`")).collect()
}

#[test]
fn only_sys_is_unsafe() {
    assert_kept("Unsafe code is for crates/sys alone.", &each(unsafe_code));
}

#[test]
fn unsafe_code_is_found() {
    let text = "#![forbid(unsafe_code)]\n// unsafe\nfn f() {\n    unsafe { g() }\n}\n";
    assert_eq!(
        unsafe_code(&Source::new("crates/lab/src/x.rs", text)),
        [Breach::new("crates/lab/src/x.rs", 4, "`unsafe`")]
    );
    assert_eq!(unsafe_code(&Source::new("crates/sys/prompt/src/x.rs", text)), []);
}

// Each crate's forbidden names.

/// Whether engine and http may name this: nothing that touches the world.
fn is_worldly(path: &str) -> bool {
    const NET_TYPES: &[&str] =
        &["SocketAddr", "SocketAddrV4", "SocketAddrV6", "IpAddr", "Ipv4Addr", "Ipv6Addr", "AddrParseError"];
    let mut parts = path.split("::");
    if parts.next() != Some("std") {
        return false;
    }
    match (parts.next(), parts.next()) {
        (Some("fs" | "process" | "thread" | "env" | "os"), _) => true,
        (Some("net"), name) => name.is_none_or(|name| !NET_TYPES.contains(&name)),
        (Some("time"), name) => name.is_none_or(|name| matches!(name, "Instant" | "SystemTime" | "*")),
        (Some("io"), name) => matches!(name, Some("stdin" | "stdout" | "stderr")),
        _ => false,
    }
}

/// Macros that write where somebody may have to wait for.
const PRINTS: &[&str] = &["print!", "println!", "eprint!", "eprintln!"];

fn prints(source: &Source) -> Vec<Breach> {
    let found = PRINTS.iter().flat_map(|name| {
        let lines = source.lines_with_word(name.trim_end_matches('!')).into_iter();
        lines.map(move |line| Breach::new(&source.path, line, format!("`{name}`")))
    });
    found.collect()
}

fn worldly_code(source: &Source) -> Vec<Breach> {
    let is_pure = ["crates/engine/src/", "crates/http/src/"].iter().any(|room| source.path.starts_with(room));
    if !is_pure || source.is_test() {
        return Vec::new();
    }
    let named = source.paths().into_iter().filter(|(_, path)| is_worldly(path));
    let mut breaches: Vec<Breach> =
        named.map(|(line, path)| Breach::new(&source.path, line, format!("`{path}`"))).collect();
    breaches.extend(prints(source));
    breaches
}

#[test]
fn engine_and_http_know_no_files_sockets_clocks_or_processes() {
    assert_kept(
        "The engine is told what happens, and HTTP is pure: both stay free of the system.",
        &each(worldly_code),
    );
}

#[test]
fn worldly_code_is_found() {
    let found = |text: &str| worldly_code(&Source::new("crates/engine/src/x.rs", text)).len();
    for text in [
        "use std::fs;\n",
        "use std::{io, fs::File};\n",
        "use std::net::TcpStream;\n",
        "use std::net;\n",
        "use std::net::{SocketAddr, UdpSocket};\n",
        "use std::time::{Duration, Instant};\n",
        "fn f() { std::thread::sleep(x); }\n",
        "fn f() { let t = std::time::SystemTime::now(); }\n",
        "fn f() { println!(\"x\"); }\n",
    ] {
        assert_eq!(found(text), 1, "{text}");
    }
    for text in [
        "use std::net::{IpAddr, SocketAddr};\n",
        "use std::time::Duration;\n",
        "use std::io::{self, ErrorKind};\n",
        "//! use std::fs;\n",
        "#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n",
    ] {
        assert_eq!(found(text), 0, "{text}");
    }
    assert_eq!(worldly_code(&Source::new("crates/server/src/x.rs", "use std::fs;\n")), []);
}

/// Whether this is a name of the standard library that may wait for a disk or a peer, or starts something
/// that may. All else that waits is in crates that a worker does not depend on.
fn may_wait(path: &str) -> bool {
    const ROOMS: &[&str] = &["fs", "process", "thread", "env", "os::unix::fs", "os::unix::net"];
    let is_in = |rest: &str, room: &str| {
        rest.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let std = path.strip_prefix("std::");
    std.is_some_and(|rest| ROOMS.iter().any(|room| is_in(rest, room)))
        || is_worldly(path) && !path.starts_with("std::os")
}

fn waiting_code(source: &Source) -> Vec<Breach> {
    let is_prompt =
        ["crates/worker/src/", "crates/sys/prompt/src/"].iter().any(|room| source.path.starts_with(room));
    if !is_prompt || source.is_test() {
        return Vec::new();
    }
    let named = source.paths().into_iter().filter(|(_, path)| may_wait(path));
    let mut breaches: Vec<Breach> =
        named.map(|(line, path)| Breach::new(&source.path, line, format!("`{path}`"))).collect();
    breaches.extend(prints(source));
    breaches
}

#[test]
fn a_worker_names_nothing_that_waits() {
    for file in ["crates/worker/src/worker.rs", "crates/sys/prompt/src/file.rs"] {
        assert!(sources().iter().any(|source| source.path == file), "{file}");
    }
    assert_kept(
        "An AMPED worker never waits. The crates that it depends on are checked above; this is about std.",
        &each(waiting_code),
    );
}

/// Files of the supervisor that wait only in a child, in a thread, or before it serves and after.
const SUPERVISOR_MAY_WAIT: &[&str] = &[
    "prepare.rs",
    "reader.rs",
    "messages.rs",
    // They bind and remove paths, at the start and at the end.
    "control_socket.rs",
    "local_socket.rs",
    // It opens the list of hot files for `prepare.rs`.
    "hot_list_files.rs",
];

/// Names of Flash and of the standard library that may wait for a disk, and that the supervisor's loop must leave to
/// children.
fn waiting_supervisor_code(source: &Source) -> Vec<Breach> {
    const NAMES: &[&str] = &[
        "std::fs",
        "std::thread",
        "std::os::unix::fs",
        "flash_waiting::account",
        "flash_waiting::root::open_roots",
        "flash_waiting::file::open",
        "flash_waiting::file::names",
        "flash_waiting::local::listen",
    ];
    let file = source.path.strip_prefix("crates/server/src/supervisor/");
    let Some(file) = file.filter(|file| !SUPERVISOR_MAY_WAIT.contains(file)) else { return Vec::new() };
    if source.is_test() {
        return Vec::new();
    }
    let is_bad = |path: &str| {
        NAMES
            .iter()
            .any(|name| path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::")))
    };
    let named = source.paths().into_iter().filter(|(_, path)| is_bad(path));
    let mut breaches: Vec<Breach> =
        named.map(|(line, path)| Breach::new(&source.path, line, format!("`{path}`"))).collect();
    for word in ["wait", "metadata", "symlink_metadata", "canonicalize", "exists", "is_file", "is_dir"] {
        // The loop itself waits for events.
        if word == "wait" && file == "poller.rs" {
            continue;
        }
        let lines = source.lines_with_word(word).into_iter();
        breaches.extend(lines.map(|line| Breach::new(&source.path, line, format!("`{word}`"))));
    }
    breaches
}

#[test]
fn the_supervisor_names_nothing_that_waits() {
    assert_kept(
        "The supervisor waits for no disk and no child while it serves: children ask file systems.",
        &each(waiting_supervisor_code),
    );
}

#[test]
fn waiting_supervisor_code_is_found() {
    let found = |file: &str, text: &str| {
        waiting_supervisor_code(&Source::new(&format!("crates/server/src/supervisor/{file}"), text)).len()
    };
    for text in [
        "use std::fs::File;\n",
        "use flash_waiting::{file, root::open_roots};\n",
        "fn f() { let _ = child.wait(); }\n",
        "fn f() { path.metadata(); }\n",
    ] {
        assert_eq!(found("generation.rs", text), 1, "{text}");
        assert_eq!(found("prepare.rs", text), 0, "{text}");
    }
    assert_eq!(found("generation.rs", "fn f() { child.try_wait(); }\n// wait\n"), 0);
}

#[test]
fn waiting_code_is_found() {
    let found = |path: &str, text: &str| waiting_code(&Source::new(path, text)).len();
    for text in [
        "use std::fs::File;\n",
        "fn f() { std::process::abort(); }\n",
        "fn f() { std::thread::yield_now(); }\n",
        "fn f() { std::env::temp_dir(); }\n",
        "use std::os::unix::fs::FileExt;\n",
        "use std::net::TcpStream;\n",
        "fn f() { std::io::stdin(); }\n",
        "fn f() { eprintln!(\"x\"); }\n",
    ] {
        assert_eq!(found("crates/worker/src/x.rs", text), 1, "{text}");
        assert_eq!(found("crates/sys/prompt/src/x.rs", text), 1, "{text}");
        assert_eq!(found("crates/server/src/start.rs", text), 0, "{text}");
    }
    for text in ["use std::net::SocketAddr;\n", "use std::os::fd::AsFd;\n", "// std::fs\n"] {
        assert_eq!(found("crates/worker/src/x.rs", text), 0, "{text}");
    }
}

/// Which architecture runs is known to its folder and to the settings.
fn architecture_elsewhere(source: &Source) -> Vec<Breach> {
    let path = source.path.as_str();
    let is_product = path.starts_with("crates/") && !path.starts_with("crates/lab/") && !source.is_test();
    let may = ["crates/server/src/architecture/", "crates/server/src/config/"];
    if !is_product || may.iter().any(|room| path.starts_with(room)) {
        return Vec::new();
    }
    let is_field = |line: &usize| {
        let text = source.text.lines().nth(line - 1).unwrap_or_default();
        text.match_indices(".architecture").any(|(at, _)| !text[..at].ends_with('.'))
    };
    let fields = source.lines_with(".architecture").into_iter().filter(is_field);
    let lines = source.lines_with_word("Architecture").into_iter().chain(fields);
    lines.map(|line| Breach::new(path, line, "the architecture")).collect()
}

#[test]
fn only_its_folder_knows_which_architecture_runs() {
    assert_kept("Ask `architecture` for what differs.", &each(architecture_elsewhere));
}

#[test]
fn the_architecture_elsewhere_is_found() {
    let found = |path: &str, text: &str| architecture_elsewhere(&Source::new(path, text)).len();
    for text in ["fn f(s: &Settings) { g(s.architecture) }\n", "use crate::config::Architecture;\n"] {
        assert_eq!(found("crates/worker/src/worker.rs", text), 1, "{text}");
        assert_eq!(found("crates/server/src/architecture/mod.rs", text), 0, "{text}");
    }
    assert_eq!(found("crates/server/src/role.rs", "fn f() { (0..architecture::processes(s)).count() }\n"), 0);
    assert_eq!(
        found("crates/server/src/role.rs", "use crate::architecture;\nfn f() { architecture::run() }\n"),
        0
    );
}

// Words.

fn undocumented(source: &Source) -> Vec<Breach> {
    let is_documented = source.text.starts_with("//!");
    (!is_documented).then(|| Breach::new(&source.path, 1, "does not begin with `//!`")).into_iter().collect()
}

#[test]
fn a_file_begins_with_what_it_is_for() {
    assert_kept(
        "A module starts with what it is for, who calls it, and what it must not do.",
        &each(undocumented),
    );
}

#[test]
fn undocumented_files_are_found() {
    assert_eq!(undocumented(&Source::new("x.rs", "//! What for.\nuse x;\n")), []);
    for text in ["use x;\n//! Too late.\n", "/// Of the next item.\nuse x;\n", ""] {
        assert_eq!(undocumented(&Source::new("x.rs", text)).len(), 1, "{text}");
    }
}

fn unfinished(source: &Source) -> Vec<Breach> {
    let words = ["todo!(", "unimplemented!(", "dbg!(", "#[ignore", "allow(dead_code"];
    let found = words.iter().flat_map(|word| {
        source
            .lines_with(word)
            .into_iter()
            .map(move |line| Breach::new(&source.path, line, format!("`{word}`")))
    });
    found.collect()
}

#[test]
fn nothing_is_left_for_later() {
    assert_kept("Finish it, or take it out.", &each(unfinished));
}

#[test]
fn unfinished_code_is_found() {
    for text in [
        "fn f() { todo!() }",
        "fn f() { unimplemented!(\"x\") }",
        "fn f() { dbg!(x); }",
        "#[ignore]\nfn f() {}",
        "#[ignore = \"slow\"]\nfn f() {}",
        "#[allow(dead_code)]\nfn f() {}",
    ] {
        assert_eq!(unfinished(&Source::new("tests/x.rs", text)).len(), 1, "{text}");
    }
    assert_eq!(unfinished(&Source::new("x.rs", "// todo!()\nfn f() { g(\"dbg!(x)\") }\n")), []);
}

/// Paths of one machine; spelt so that this file does not hold them.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/tmp/tar", "get")];

fn machine_paths(path: &str, text: &str) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let found = MACHINE_PATHS.iter().filter(|wanted| {
            // `/srv/x/…` of an example is no path of a machine.
            line.match_indices(**wanted)
                .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '.'))
        });
        breaches.extend(found.map(|wanted| Breach::new(path, number + 1, format!("`{wanted}`"))));
    }
    breaches
}

#[test]
fn no_file_names_a_place_on_one_machine() {
    let breaches: Vec<Breach> = files()
        .iter()
        .filter_map(|name| Some((name, fs::read_to_string(root().join(name)).ok()?)))
        .flat_map(|(name, text)| machine_paths(name, &text))
        .collect();
    assert_kept("What others clone must not speak of this machine.", &breaches);
}

#[test]
fn machine_paths_are_found() {
    for path in MACHINE_PATHS {
        assert_eq!(
            machine_paths("x.md", &format!("a\ncd {path}x\n")),
            [Breach::new("x.md", 2, format!("`{path}`"))]
        );
    }
    assert_eq!(machine_paths("x.md", concat!("https://example.org/wo", "rk/x\n")), []);
}
