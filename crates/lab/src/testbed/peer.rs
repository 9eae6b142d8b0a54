//! Servers that the lab can start, or that run already: what `peers.toml` says, and the ready-made ones.
//!
//! The commands read it before anything starts; [`super::running`] starts what it describes. It
//! reads the file and touches nothing else. `docs/peers.md` tells users how to write one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flash_waiting::program::{Signal, signal_named};
use serde::Deserialize;
use toml::Spanned;

use super::Testbed;
use super::template;
use flash_kit::{Error, Result};
use flash_units::parse_memory_bytes;

/// The longest file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The most servers in a file.
const SERVERS_MAX: usize = 64;
/// The most files of a server.
const FILES_MAX: usize = 32;
/// The longest name, which has to fit into tables.
const NAME_BYTES_MAX: usize = 40;
/// How long a server may take to answer, unless said otherwise, in seconds.
const PATIENCE_S: f64 = 20.0;
/// How long it may be allowed to take, in seconds.
const PATIENCE_MAX_S: f64 = 3600.0;
pub(super) const LOG: &str = "server.log";

/// A server.
#[derive(Clone, Debug)]
pub struct Peer {
    pub name: String,
    /// A remark about it; may be empty.
    pub note: String,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Started(Recipe),
    /// It runs already.
    Elsewhere {
        url: String,
        pid: Option<u32>,
        wait: Wait,
    },
}

/// How a server is started. Texts are templates.
#[derive(Clone, Debug, Default)]
pub(super) struct Recipe {
    /// The program and its arguments; never empty.
    pub(super) command: Vec<String>,
    /// The program, with its arguments, that is started first and listens on `{socket}`; empty for a server without a
    /// backend.
    pub(super) backend: Vec<String>,
    /// The command that prints the version; may be empty.
    pub(super) version: Vec<String>,
    /// The Debian package that has the program.
    pub(super) package: Option<String>,
    pub(super) env: BTreeMap<String, String>,
    /// Placeholders of its own.
    pub(super) set: BTreeMap<String, String>,
    /// Placeholders for files that can be in several places, unless `set` has them.
    pub(super) find: BTreeMap<String, Find>,
    /// Name and text of the files in its folder.
    pub(super) files: BTreeMap<String, String>,
    pub(super) wait: Wait,
    pub(super) stop: Option<Signal>,
}

/// A file that can be in several places.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Find {
    /// Where it can be, the best place first; at least one. Those that do not begin with a slash are below the folder of
    /// this program or one above it, such as the checkout that it was built in.
    pub(super) paths: Vec<String>,
    /// The command that makes it.
    pub(super) build: String,
}

/// The condition for a server to count as ready.
#[derive(Clone, Debug)]
pub(super) struct Wait {
    /// The path to ask for; without one, a connection is enough.
    pub(super) path: Option<String>,
    pub(super) patience: Duration,
}

impl Default for Wait {
    fn default() -> Self {
        Self { path: Some("/".to_owned()), patience: Duration::from_secs_f64(PATIENCE_S) }
    }
}

/// The content of a `peers.toml`.
#[derive(Clone, Debug, Default)]
pub struct Peers {
    /// At least one, in the order of the file, each with a name of its own.
    pub servers: Vec<Peer>,
    /// The table `[testbed]`; options of the command line override it.
    pub testbed: Testbed,
    /// The core of the load generator there.
    pub load_core: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileSpec {
    #[serde(default)]
    testbed: TestbedSpec,
    #[serde(default)]
    server: Vec<ServerSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TestbedSpec {
    root: Option<PathBuf>,
    memory: Option<Spanned<String>>,
    reads_per_s: Option<Spanned<u32>>,
    cpu_percent: Option<Spanned<u32>>,
    core: Option<usize>,
    load_core: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerSpec {
    name: Spanned<String>,
    like: Option<Spanned<String>>,
    note: Option<String>,
    package: Option<String>,
    version: Option<Spanned<Vec<String>>>,
    command: Option<Spanned<Vec<String>>>,
    backend: Option<Spanned<Vec<String>>>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    set: BTreeMap<Spanned<String>, String>,
    #[serde(default)]
    find: BTreeMap<Spanned<String>, Find>,
    #[serde(default)]
    file: Vec<TextSpec>,
    ready: Option<Spanned<String>>,
    patience_s: Option<Spanned<f64>>,
    stop: Option<Spanned<String>>,
    url: Option<Spanned<String>>,
    pid: Option<Spanned<u32>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextSpec {
    name: Spanned<String>,
    text: String,
}

/// Reads a `peers.toml`.
///
/// Errors: run, for a file that can't be read; usage, with file and line, for what is wrong in it.
pub fn read_peers(path: &Path) -> Result<Peers> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
    read.map_err(|why| Error::file("read", path, &why))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(Error::usage(format!(
            "{} is no list of servers: it has more than {FILE_BYTES_MAX} bytes",
            path.display()
        )));
    }
    Source { name: path.display().to_string(), text: &text }.peers()
}

const READY_MADE: [(&str, &str); 12] = [
    ("flash", include_str!("../../peers/flash.toml")),
    ("nginx", include_str!("../../peers/nginx.toml")),
    ("nginx-aio", include_str!("../../peers/nginx-aio.toml")),
    ("apache-event", include_str!("../../peers/apache-event.toml")),
    ("apache-prefork", include_str!("../../peers/apache-prefork.toml")),
    ("lighttpd", include_str!("../../peers/lighttpd.toml")),
    ("h2o", include_str!("../../peers/h2o.toml")),
    ("caddy", include_str!("../../peers/caddy.toml")),
    ("nginx-gate", include_str!("../../peers/nginx-gate.toml")),
    ("apache-flashpache", include_str!("../../peers/apache-flashpache.toml")),
    ("h2o-warm", include_str!("../../peers/h2o-warm.toml")),
    ("lighttpd-warm", include_str!("../../peers/lighttpd-warm.toml")),
];

pub fn ready_made_names() -> Vec<&'static str> {
    READY_MADE.iter().map(|(name, _)| *name).collect()
}

pub fn ready_made(name: &str) -> Option<Peer> {
    let (name, text) = READY_MADE.iter().find(|(known, _)| *known == name)?;
    // They are right: a test reads them all.
    Source { name: format!("{name}.toml"), text }.peers().ok()?.servers.pop()
}

impl Peer {
    /// A server that runs already at `url`; `pid` is for its CPU and memory.
    pub fn elsewhere(name: &str, url: &str, pid: Option<u32>) -> Self {
        let kind = Kind::Elsewhere { url: url.to_owned(), pid, wait: Wait::default() };
        Self { name: name.to_owned(), note: String::new(), kind }
    }

    /// The same server under another name, started with these arguments more, and without `left_out`, an
    /// option with a value. One that runs already is only renamed.
    pub(crate) fn with_arguments(&self, name: &str, left_out: Option<&str>, arguments: &[String]) -> Self {
        let mut peer = Self { name: name.to_owned(), ..self.clone() };
        if let Kind::Started(recipe) = &mut peer.kind {
            if let Some(at) = recipe.command.iter().position(|word| Some(word.as_str()) == left_out) {
                recipe.command.drain(at..(at + 2).min(recipe.command.len()));
            }
            recipe.command.extend_from_slice(arguments);
        }
        peer
    }

    /// The same with this value for a placeholder.
    pub(crate) fn with_set(&self, name: &str, value: &str) -> Self {
        let mut peer = self.clone();
        if let Kind::Started(recipe) = &mut peer.kind {
            recipe.set.insert(name.to_owned(), value.to_owned());
        }
        peer
    }

    /// Where it runs already; none for one that the lab starts.
    pub fn url(&self) -> Option<&str> {
        match &self.kind {
            Kind::Elsewhere { url, .. } => Some(url),
            Kind::Started(_) => None,
        }
    }
}

/// A file that is read, for errors.
struct Source<'t> {
    name: String,
    text: &'t str,
}

impl Source<'_> {
    fn wrong(&self, span: std::ops::Range<usize>, what: &str) -> Error {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        Error::usage(format!("{}, line {line}: {what}", self.name))
    }

    fn peers(&self) -> Result<Peers> {
        let end = self.text.len();
        let spec: FileSpec = toml::from_str(self.text)
            .map_err(|error| self.wrong(error.span().unwrap_or(end..end), error.message()))?;
        if spec.server.is_empty() || spec.server.len() > SERVERS_MAX {
            return Err(self.wrong(
                end..end,
                &format!(
                    "{} servers are listed; 1 to {SERVERS_MAX} are possible, each under [[server]]",
                    spec.server.len()
                ),
            ));
        }
        let mut servers: Vec<Peer> = Vec::new();
        for server in &spec.server {
            let name = server.name.get_ref();
            if servers.iter().any(|earlier| earlier.name == *name) {
                return Err(self.wrong(server.name.span(), &format!("there is a server '{name}' already")));
            }
            servers.push(self.peer(server)?);
        }
        let load_core = spec.testbed.load_core;
        Ok(Peers { servers, testbed: self.testbed(spec.testbed)?, load_core })
    }

    fn testbed(&self, spec: TestbedSpec) -> Result<Testbed> {
        let memory_bytes = match spec.memory {
            None => None,
            Some(memory) => match parse_memory_bytes(memory.get_ref()) {
                Ok(0) => return Err(self.wrong(memory.span(), "no server runs in 0 bytes of memory")),
                Ok(bytes) => Some(bytes),
                Err(why) => {
                    return Err(self.wrong(memory.span(), &format!("'{}': {why}", memory.get_ref())));
                }
            },
        };
        if let Some(rate) = spec.reads_per_s.as_ref().filter(|rate| *rate.get_ref() == 0) {
            return Err(
                self.wrong(rate.span(), "0 reads_per_s would stop the disk; leave it out for no bound")
            );
        }
        if let Some(share) = spec.cpu_percent.as_ref().filter(|share| *share.get_ref() == 0) {
            return Err(
                self.wrong(share.span(), "0 cpu_percent would stop the server; leave it out for no bound")
            );
        }
        Ok(Testbed {
            root: spec.root,
            core: spec.core,
            memory_bytes,
            reads_per_s: spec.reads_per_s.map(Spanned::into_inner),
            cpu_percent: spec.cpu_percent.map(Spanned::into_inner),
            ..Testbed::default()
        })
    }

    fn peer(&self, spec: &ServerSpec) -> Result<Peer> {
        let name = spec.name.get_ref();
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(char::is_control) {
            let what = format!("a server needs a name of 1 to {NAME_BYTES_MAX} bytes on one line");
            return Err(self.wrong(spec.name.span(), &what));
        }
        let mut wait = Wait::default();
        self.wait(spec, &mut wait)?;
        if let Some(url) = &spec.url {
            if spec.command.is_some() || spec.like.is_some() {
                let what = format!("'{name}' has a url, so it runs already: leave out command and like");
                return Err(self.wrong(url.span(), &what));
            }
            let pid = spec.pid.as_ref().map(|pid| *pid.get_ref());
            let kind = Kind::Elsewhere { url: url.get_ref().clone(), pid, wait };
            return Ok(Peer { name: name.clone(), note: spec.note.clone().unwrap_or_default(), kind });
        }
        if let Some(pid) = &spec.pid {
            return Err(self
                .wrong(pid.span(), &format!("'{name}' has a pid and no url: who started it knows its pid")));
        }
        let (mut recipe, base_note) = self.base(spec)?;
        self.wait(spec, &mut recipe.wait)?;
        self.change(spec, &mut recipe)?;
        if recipe.command.is_empty() {
            let what = format!("'{name}' has neither command, url nor like");
            return Err(self.wrong(spec.name.span(), &what));
        }
        Ok(Peer {
            name: name.clone(),
            note: spec.note.clone().unwrap_or(base_note),
            kind: Kind::Started(recipe),
        })
    }

    fn base(&self, spec: &ServerSpec) -> Result<(Recipe, String)> {
        let Some(like) = &spec.like else {
            return Ok((Recipe::default(), String::new()));
        };
        match ready_made(like.get_ref()) {
            Some(Peer { kind: Kind::Started(recipe), note, .. }) => {
                Ok((recipe, note_of(spec, like.get_ref(), note)))
            }
            _ => {
                let (wanted, names) = (like.get_ref(), ready_made_names().join(", "));
                Err(self.wrong(like.span(), &format!("nothing is like '{wanted}'; there are {names}")))
            }
        }
    }

    fn wait(&self, spec: &ServerSpec, into: &mut Wait) -> Result<()> {
        if let Some(ready) = &spec.ready {
            let path = ready.get_ref();
            let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
            if !path.is_empty() && !is_path {
                let what = "ready must be a path such as \"/\", or \"\" to wait for a connection only";
                return Err(self.wrong(ready.span(), what));
            }
            into.path = is_path.then(|| path.clone());
        }
        if let Some(patience_s) = &spec.patience_s {
            if !(*patience_s.get_ref() > 0.0 && *patience_s.get_ref() <= PATIENCE_MAX_S) {
                let what = format!("patience_s must be above 0 and at most {PATIENCE_MAX_S} seconds");
                return Err(self.wrong(patience_s.span(), &what));
            }
            into.patience = Duration::from_secs_f64(*patience_s.get_ref());
        }
        Ok(())
    }

    fn change(&self, spec: &ServerSpec, recipe: &mut Recipe) -> Result<()> {
        for name in spec.set.keys().chain(spec.find.keys()) {
            if !template::is_name(name.get_ref()) || template::BUILT_IN.contains(&name.get_ref().as_str()) {
                let what = format!(
                    "'{}' can't be set: names are of a-z and _, and not {}",
                    name.get_ref(),
                    template::BUILT_IN.join(", ")
                );
                return Err(self.wrong(name.span(), &what));
            }
        }
        recipe.set.extend(spec.set.iter().map(|(name, text)| (name.get_ref().clone(), text.clone())));
        for (name, find) in &spec.find {
            if find.paths.is_empty() || find.paths.iter().any(String::is_empty) {
                let what = format!("'{}' has no path where it can be found", name.get_ref());
                return Err(self.wrong(name.span(), &what));
            }
            recipe.find.insert(name.get_ref().clone(), find.clone());
        }
        for file in &spec.file {
            let name = file.name.get_ref();
            if name.is_empty() || name.contains(['/', '\0']) || [".", "..", LOG].contains(&name.as_str()) {
                let what = format!("'{name}' can't be the name of a file: give a plain one, and not {LOG}");
                return Err(self.wrong(file.name.span(), &what));
            }
            recipe.files.insert(name.clone(), file.text.clone());
        }
        if recipe.files.len() > FILES_MAX {
            let what = format!("'{}' has more than {FILES_MAX} files", spec.name.get_ref());
            return Err(self.wrong(spec.name.span(), &what));
        }
        recipe.env.extend(spec.env.clone());
        self.commands(spec, recipe)?;
        if let Some(package) = &spec.package {
            recipe.package = Some(package.clone());
        }
        if let Some(stop) = &spec.stop {
            let signal = signal_named(stop.get_ref());
            recipe.stop = Some(signal.ok_or_else(|| {
                let what = format!(
                    "'{}' is no signal that ends a server; there are TERM, INT, QUIT, HUP, USR1, USR2, WINCH, KILL",
                    stop.get_ref()
                );
                self.wrong(stop.span(), &what)
            })?);
        }
        Ok(())
    }

    fn commands(&self, spec: &ServerSpec, recipe: &mut Recipe) -> Result<()> {
        let Recipe { set, find, command, backend, version, .. } = recipe;
        let is_known = |name: &str| set.contains_key(name) || find.contains_key(name);
        for (spec, into) in [(&spec.command, command), (&spec.backend, backend), (&spec.version, version)] {
            let Some(command) = spec else { continue };
            into.clone_from(command.get_ref());
            if let Some(unknown) = into.iter().find_map(|text| template::unknown(text, is_known)) {
                let what = format!(
                    "there is no {{{unknown}}}; there are {}, and what `set` and `find` have",
                    template::BUILT_IN.map(|name| format!("{{{name}}}")).join(", ")
                );
                return Err(self.wrong(command.span(), &what));
            }
        }
        Ok(())
    }
}

fn note_of(spec: &ServerSpec, like: &str, note: String) -> String {
    let has_commands = spec.command.is_some() || spec.backend.is_some();
    if spec.set.is_empty() && spec.file.is_empty() && !has_commands {
        return note;
    }
    let set = spec.set.iter().map(|(name, text)| format!("{} {text}", name.get_ref()));
    let files = spec.file.iter().map(|file| format!("its own {}", file.name.get_ref()));
    let command = spec.command.iter().map(|_| "its own command".to_owned());
    let backend = spec.backend.iter().map(|_| "its own backend".to_owned());
    format!(
        "like {like} with {}",
        set.chain(files).chain(command).chain(backend).collect::<Vec<_>>().join(", ")
    )
}

#[cfg(test)]
#[path = "peer_tests.rs"]
mod tests;
