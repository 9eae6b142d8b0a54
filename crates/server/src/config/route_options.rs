//! The table of the options of a route.
//!
//! Each row gives a key its bounds, default, help, the routes that can have it, and its field of the settings. The man page
//! flash.toml(5) and a table in `docs/config.md` follow from the rows. It must not read anything.

use std::path::PathBuf;

use flash_engine::UpstreamProtocol;

use super::kind::{HOUR_MS, Kind, TextFormat, Unit, bounds, count, memory, millis};
use super::programs::Runs;
use super::routes::{RoutePaths, RouteTls, ServerAddress, WEIGHT_MAX};
use super::run_as::RunAs;
use super::table::{DefaultValue, Field, Spec, fields, put, rows, show};
use super::values::{Command, UserName, Value};

/// The keys for the paths of a route, of which each has one.
pub(super) const PATHS: &[&str] = &["prefix", "extension"];
/// The keys for its servers, of which each has one.
pub(super) const SERVERS: &[&str] = &["proxy", "fastcgi", "app", "cgi"];

/// The keys for servers of which a route must have one to have a key; none if any route can have it.
pub type Owners = &'static [&'static str];

const ANY: Owners = &[];
const OTHERS: Owners = &["proxy", "fastcgi"];
const PROGRAMS: Owners = &["app", "cgi"];
/// `cgi` ends each connection after its request.
const LASTING: Owners = &["proxy", "fastcgi", "app"];
/// A FastCGI application has no request that is harmless for certain.
const PROXY: Owners = &["proxy"];
/// The one process of `cgi` starts all programs.
const APP: Owners = &["app"];
/// Other applications get the field, as all fields.
const CGI: Owners = &["cgi"];

macro_rules! target {
    ($key:ident: $type:ty, route.$field:ident) => {
        Field {
            put: |given, route| put(given.$key.as_ref(), &mut route.$field),
            show: |route, kind| show::<$type>(&route.$field, kind),
        }
    };
    // A field of a part that only some routes have.
    ($key:ident: $type:ty, $part:ident?.$field:ident) => {
        Field {
            put: |given, route| {
                if let Some(part) = &mut route.$part {
                    put(given.$key.as_ref(), &mut part.$field);
                }
            },
            show: |route, kind| {
                route.$part.as_ref().map_or(Ok(None), |part| show::<$type>(&part.$field, kind))
            },
        }
    };
    // `config::route_checks` makes the field, and `$held` finds the value in the route.
    ($key:ident: $type:ty, from $held:expr) => {
        Field {
            put: |_, _| {},
            show: |route, kind| {
                let held: fn(&Route) -> Option<$type> = $held;
                held(route).map(|value| value.to_items(kind)).transpose()
            },
        }
    };
}

use DefaultValue::{Depends, Text};

rows! {
    /// The options of a route.
    RouteOverrides, Owners, Field<RouteOverrides, Route>, ROUTE_OPTIONS,
    {

    prefix: String, ANY, Kind::Text(TextFormat::Prefix), DefaultValue::None, [from |route| route.paths.prefix().map(str::to_owned)],
        "Pass requests whose path begins with this text, from its first /";
    extension: String, ANY, Kind::Text(TextFormat::Extension), DefaultValue::None, [from |route| route.paths.extension().map(str::to_owned)],
        "Pass requests for files with this extension, without its dot";
    proxy: Vec<ServerAddress>, ANY, Kind::Servers, DefaultValue::None, [from |route| servers(route, "proxy")],
        "Servers that answer by HTTP/1.1";
    fastcgi: Vec<ServerAddress>, ANY, Kind::Servers, DefaultValue::None, [from |route| servers(route, "fastcgi")],
        "Servers that answer by FastCGI";
    app: Command, ANY, Kind::Command, DefaultValue::None, [from command],
        "Program that Flash starts, and that answers by FastCGI";
    cgi: PathBuf, ANY, Kind::Path, DefaultValue::None, [from directory],
        "Directory of programs that Flash starts, one process per request";
    processes: u64, APP, count(1, 64), Text("4"), [program?.processes],
        "Processes of the program, which share one listening socket";
    user: UserName, PROGRAMS, Kind::User, Depends("an error if root starts Flash, else the current user"), [from user],
        "Run the programs as this user; only root can choose another one";
    memory_max: u64, PROGRAMS, memory(4 << 20, 1 << 40), Text("1GiB"), [program?.memory_bytes_max],
        "Maximum private memory of a process of the programs";
    authorization: bool, CGI, Kind::Switch, Text("false"), [program?.authorization],
        "Pass the field Authorization to the programs";
    weights: Vec<u64>, OTHERS, Kind::Numbers(bounds(Unit::Count, 1, WEIGHT_MAX)), Depends("equal"), [route.weights],
        "Share of the requests of each server";
    body_max: u64, ANY, memory(0, 1 << 40), Text("10MB"), [route.body_bytes_max],
        "Maximum length of a request body";
    files_first: bool, ANY, Kind::Switch, Text("false"), [route.files_first],
        "Answer with a file or a listing where there is one, and pass on only the other requests";
    compress: bool, ANY, Kind::Switch, Text("false"), [route.compress],
        "Compress texts in answers with gzip, for clients that accept it";
    stream_bodies: bool, ANY, Kind::Switch, Text("false"), [route.stream_bodies],
        "Pass a request body on while it comes, instead of once it is complete";
    stream_answers: bool, ANY, Kind::Switch, Text("false"), [route.stream_answers],
        "Let a slow reader slow its server down, instead of holding the answer in memory and in the file of `spool`";
    connect_timeout: u64, ANY, millis(1, HOUR_MS), Text("5s"), [route.connect_timeout_ms],
        "Maximum time to get a connection, also in the queue";
    answer_timeout: u64, ANY, millis(1, 24 * HOUR_MS), Text("60s"), [route.answer_timeout_ms],
        "Maximum time without a byte from the server that must answer";
    connections_max: u64, ANY, count(1, 65_536), Depends("`128`; `1` for `app`, `16` for `cgi`"), [route.connections_max],
        "Maximum connections of a worker to each server, or to each process of the `app`";
    idle_max: u64, LASTING, count(0, 65_536), Depends("for `proxy` as many as were in use within the last minute, else `0`"), [route.idle_max],
        "Maximum idle connections of a worker that are kept for each server, or for each process of the `app`";
    queue_max: u64, ANY, count(0, 65_536), Text("512"), [route.queue_max],
        "Maximum requests of a worker that wait for a connection";
    probe: String, PROXY, Kind::Text(TextFormat::Target), Depends("no probes"), [probe?.target],
        "Path of a request, such as /health, that shows whether a server is in order";
    probe_interval: u64, PROXY, millis(100, HOUR_MS), Text("5s"), [probe?.interval_ms],
        "Time between two probes of a server";
    verify: bool, PROXY, Kind::Switch, Text("true"), [from |route| Some(route.tls.as_ref()?.verify)],
        "Verify the certificates of servers that are reached over TLS";
    server_name: String, PROXY, Kind::Text(TextFormat::ServerName), Depends("the address of each server"), [from |route| route.tls.as_ref()?.server_name.clone()],
        "Name that the servers have in their certificates, and that they are asked for (SNI)";
    roots: PathBuf, PROXY, Kind::Path, Depends("the issuers that the system trusts"), [from |route| route.tls.as_ref()?.roots.clone()],
        "File of the certificates, in PEM, of the issuers that are trusted, or of the servers themselves";
    }
    route: {
        /// The requests of a site that an upstream answers, and the upstream.
        #[derive(Default)]
        Route {
            /// The protocol of the servers.
            pub protocol: UpstreamProtocol,
            /// The servers, at least one.
            pub servers: Vec<ServerAddress>,
            /// The paths of the requests.
            pub paths: RoutePaths,
            /// How its servers over TLS are verified, if there are any.
            pub tls: Option<RouteTls>,
            /// How its servers are probed, if they are.
            pub probe: Option<Probe>,
            /// The program that Flash starts, if there is one; it is the only server.
            pub program: Option<Program>,
        }
    }
    probe: {
        /// Requests that the gateway makes to find out whether a server is in order.
        #[derive(Default)]
        Probe {}
    }
    program: {
        /// A program that answers the requests of a route.
        Program {
            /// The user; `None` for the one that started Flash.
            pub run_as: Option<RunAs>,
            /// The processes themselves.
            pub runs: Runs,
        }
    }
}

impl Spec<RouteOverrides> {
    /// Whether a route whose servers are given by the key `by` can have this key.
    pub(super) fn applies(&self, by: &str) -> bool {
        self.details.is_empty() || self.details.contains(&by)
    }
}

impl Route {
    /// Whether files of this name belong to the route by their extension.
    pub(super) fn is_script(&self, name: &str) -> bool {
        let extension = self.paths.extension();
        extension.is_some_and(|it| name.to_ascii_lowercase().ends_with(&format!(".{it}")))
    }

    /// The connections to its servers that a worker can have open, idle ones included.
    pub(crate) fn connections_of_worker(&self) -> u64 {
        let processes = self.servers.len() as u64 * self.processes_of_server();
        self.connections_max.saturating_mul(processes)
    }

    /// The processes that accept the connections to a server: a program is one server with all of its processes.
    pub(crate) fn processes_of_server(&self) -> u64 {
        self.program.as_ref().map_or(1, |program| program.processes)
    }
}

impl Program {
    /// The program in messages.
    pub(crate) fn name(&self) -> String {
        match &self.runs {
            Runs::App(words) => format!("`{}`", words.join(" ")),
            Runs::Cgi(folder) => format!("the process that runs the programs in `{}`", folder.display()),
        }
    }

    /// Its process of this number, from 1, in messages.
    pub(crate) fn process_name(&self, number: u64) -> String {
        let name = self.name();
        if self.processes > 1 { format!("process {number} of {name}") } else { name }
    }
}

/// The keys that are of use to servers over TLS only.
pub(super) const OF_TLS: &[&str] = &["verify", "server_name", "roots"];

/// The key that gives the servers of a route.
pub(super) fn by(route: &Route) -> &'static str {
    match (&route.program, route.protocol) {
        (Some(Program { runs: Runs::App(_), .. }), _) => "app",
        (Some(Program { runs: Runs::Cgi(_), .. }), _) => "cgi",
        (None, UpstreamProtocol::Http) => "proxy",
        (None, UpstreamProtocol::FastCgi) => "fastcgi",
    }
}

fn servers(route: &Route, key: &str) -> Option<Vec<ServerAddress>> {
    (by(route) == key).then(|| route.servers.clone())
}

fn command(route: &Route) -> Option<Command> {
    if let Runs::App(words) = &route.program.as_ref()?.runs { Some(Command(words.clone())) } else { None }
}

fn directory(route: &Route) -> Option<PathBuf> {
    if let Runs::Cgi(folder) = &route.program.as_ref()?.runs { Some(folder.clone()) } else { None }
}

fn user(route: &Route) -> Option<UserName> {
    Some(route.program.as_ref()?.run_as.as_ref()?.setting())
}
