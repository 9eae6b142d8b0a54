//! Reads `[[site.route]]` and `[[route]]`.

use std::ffi::OsStr;
use std::ops::Range;

use toml::de::DeTable;

use super::super::drafts::RouteDraft;
use super::super::error::{ConfigErrorKind, Problem};
use super::super::options;
use super::super::routes::{self, Protocol, ROUTES_MAX, Route, RoutePaths, ServerAddress, WEIGHT_MAX};
use super::super::suggest;
use super::super::values::{self, FromItems, FromText, Kind};
use super::keys::{
    APP, AUTHORIZATION, CGI, IDLE_MAX, INTERVAL, Number, PROBE, USER, WEIGHTS, owners, values_of,
};
use super::{Key, Reader, Value, items, refused};

/// The keys for the paths of a route.
const PATHS: [&str; 2] = ["prefix", "extension"];
/// The keys for its servers.
const SERVERS: [&str; 4] = ["proxy", "fastcgi", APP, CGI];
/// The keys that only some routes have.
const OWNED: [&str; 7] = [WEIGHTS, "processes", "memory_max", USER, AUTHORIZATION, PROBE, INTERVAL];

const HOUR_MS: u64 = 3_600_000;

/// A switch of a route, which is off by default: its key and its field.
type Switch = (&'static str, fn(&mut Route) -> &mut bool);

const SWITCHES: [Switch; 2] = [
    ("stream_bodies", |route| &mut route.stream_bodies),
    ("stream_answers", |route| &mut route.stream_answers),
];

const NUMBERS: [Number<Route>; 6] = [
    Number {
        key: "body_max",
        kind: Kind::MemorySize { least_bytes: 0, most_bytes: 1 << 40 },
        default: 10_000_000,
        field: |route| &mut route.body_bytes_max,
    },
    Number {
        key: "connect_timeout",
        kind: Kind::Duration { least_ms: 1, most_ms: HOUR_MS },
        default: 5_000,
        field: |route| &mut route.connect_timeout_ms,
    },
    Number {
        key: "answer_timeout",
        kind: Kind::Duration { least_ms: 1, most_ms: 24 * HOUR_MS },
        default: 60_000,
        field: |route| &mut route.answer_timeout_ms,
    },
    Number {
        key: "connections_max",
        kind: Kind::Count { least: 1, most: 65_536 },
        default: 128,
        field: |route| &mut route.connections_max,
    },
    Number {
        key: IDLE_MAX,
        kind: Kind::Count { least: 0, most: 65_536 },
        // No more than `connections_max` can be idle, so there is no bound but that.
        default: 65_536,
        field: |route| &mut route.idle_max,
    },
    Number {
        key: "queue_max",
        kind: Kind::Count { least: 0, most: 65_536 },
        default: 512,
        field: |route| &mut route.queue_max,
    },
];

/// The numbers of a route whose servers are given by the key `by`: their keys, kinds and values.
pub(in super::super) fn route_numbers(by: &str, route: &Route) -> Vec<(&'static str, Kind, u64)> {
    values_of(&NUMBERS, by, route)
}

impl Reader {
    pub(super) fn routes(&mut self, value: &Value<'_>) -> Vec<RouteDraft> {
        let tables = self.tables("route", value, ROUTES_MAX);
        tables.into_iter().filter_map(|(span, table)| self.route(span, table)).collect()
    }

    fn route(&mut self, span: Range<usize>, table: &DeTable<'_>) -> Option<RouteDraft> {
        let paths = self.one_of(&span, table, &PATHS, "prefix = \"/api/\"");
        let servers = self.one_of(&span, table, &SERVERS, "proxy = \"127.0.0.1:3000\"");
        let paths = paths.and_then(|(key, value)| self.paths(key, value));
        let mut route = Route {
            protocol: Protocol::Http,
            servers: Vec::new(),
            weights: Vec::new(),
            body_bytes_max: 0,
            stream_bodies: false,
            stream_answers: false,
            connect_timeout_ms: 0,
            answer_timeout_ms: 0,
            connections_max: 0,
            idle_max: 0,
            queue_max: 0,
            paths: RoutePaths::Prefix(String::new()),
            probe: None,
            program: None,
        };
        for number in &NUMBERS {
            *(number.field)(&mut route) = number.default;
        }
        if servers.is_some_and(|(key, _)| key != "proxy") {
            // A process of PHP-FPM and the like serves no other connection while it has one, idle or not.
            (route.protocol, route.idle_max) = (Protocol::FastCgi, 0);
        }
        let by = servers.map_or("", |(key, _)| key);
        let mut program = None;
        let servers = match servers {
            Some(given @ (APP | CGI, _)) => {
                program = self.program(given, table, &mut route);
                program.as_ref().map(|_| Vec::new())
            }
            given => given.and_then(|(key, value)| self.servers(key, value)),
        };
        if by == "proxy" {
            route.probe = self.probe(table);
        }
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            if let Some((_, field)) = SWITCHES.iter().find(|(switch, _)| *switch == name) {
                *field(&mut route) = self.switch(name, value).unwrap_or_default();
                continue;
            }
            match NUMBERS.iter().find(|number| number.key == name) {
                // Without a server, one problem is enough.
                Some(number) if by.is_empty() || owners(name).is_empty() || owners(name).contains(&by) => {
                    self.number(number, &mut route, value);
                }
                None if PATHS.contains(&name) || SERVERS.contains(&name) => {}
                None if owners(name).contains(&by) => {
                    if name == WEIGHTS {
                        route.weights = self.weights(value, servers.as_ref().map_or(0, Vec::len));
                    }
                }
                _ => self.problems.push(unknown_route_key(key)),
            }
        }
        (route.paths, route.servers) = (paths?, servers?);
        Some(RouteDraft { route, span, program })
    }

    /// Reads a switch of a route or of a program.
    pub(super) fn switch(&mut self, name: &str, value: &Value<'_>) -> Option<bool> {
        let given = value.get_ref().as_bool();
        if given.is_none() {
            self.wrong(name, value.span(), "must be true or false, without quotes");
        }
        given
    }

    /// The value of the one key among these that a route has.
    fn one_of<'t, 'i>(
        &mut self,
        span: &Range<usize>,
        table: &'t DeTable<'i>,
        names: &[&'static str],
        example: &str,
    ) -> Option<(&'static str, &'t Value<'i>)> {
        let find = |name: &&'static str| Some((*name, table.iter().find(|(key, _)| key.get_ref() == *name)?));
        match names.iter().filter_map(find).collect::<Vec<_>>()[..] {
            [(name, (_, value))] => Some((name, value)),
            [(other, (first, _)), (name, (second, _)), ..] => {
                let title = format!("a route has `{other}` or `{name}`, not both");
                let problem = Problem::at(second.span(), title, "given here");
                let problem = problem.with_other(first.span(), "given here").helped("write two routes");
                self.problems.push(problem.of(ConfigErrorKind::Key));
                None
            }
            [] => {
                let (last, others) = names.split_last().expect("names");
                let why = format!("`{}` or `{last}` is missing", others.join("`, `"));
                let problem = Problem::at(span.clone(), "incomplete route", why);
                let problem = problem.helped(format!("add a line such as `{example}`"));
                self.problems.push(problem.of(ConfigErrorKind::Key));
                None
            }
        }
    }

    fn paths(&mut self, key: &str, value: &Value<'_>) -> Option<RoutePaths> {
        let Some(text) = value.get_ref().as_str() else {
            self.wrong(key, value.span(), "must be a text in quotes");
            return None;
        };
        let paths = match key {
            "prefix" => routes::prefix(text).map(RoutePaths::Prefix),
            _ => values::extension(text).map(RoutePaths::Extension),
        };
        paths.map_err(|refusal| self.problems.push(refused(key, value.span(), refusal))).ok()
    }

    /// The weights of this many servers.
    fn weights(&mut self, value: &Value<'_>, servers: usize) -> Vec<u32> {
        let weight = |item: &Value<'_>| {
            let number = item.get_ref().as_integer()?;
            let number = i64::from_str_radix(number.as_str(), number.radix()).ok()?;
            (1..=WEIGHT_MAX).contains(&number).then_some(number as u32)
        };
        let weights = value.get_ref().as_array().and_then(|items| items.iter().map(weight).collect());
        let weights: Vec<u32> = weights.unwrap_or_default();
        // Servers that are wrong were reported.
        if weights.len() != servers && servers > 0 {
            let why = format!("must be a list with a number from 1 to {WEIGHT_MAX} for each server");
            self.wrong(WEIGHTS, value.span(), why);
        }
        weights
    }

    fn servers(&mut self, key: &str, value: &Value<'_>) -> Option<Vec<ServerAddress>> {
        let items = match value.get_ref().as_str() {
            Some(text) => vec![(text.to_owned(), value.span())],
            None => match items(Kind::Addresses, value) {
                Ok(items) => items,
                Err(form) => {
                    self.problems.push(form.titled(key));
                    return None;
                }
            },
        };
        let texts: Vec<&OsStr> = items.iter().map(|(text, _)| OsStr::new(text)).collect();
        let servers = Vec::from_items(&texts, Kind::Addresses).map_err(|refusals| {
            for refusal in refusals {
                let span = items.get(refusal.item).map_or_else(|| value.span(), |(_, span)| span.clone());
                self.problems.push(refused(key, span, refusal));
            }
        });
        servers.ok()
    }

    /// Reads a number of a route or of a program.
    pub(super) fn number<T>(&mut self, number: &Number<T>, of: &mut T, value: &Value<'_>) {
        let items = match items(number.kind, value) {
            Ok(items) => items,
            Err(form) => return self.problems.push(form.titled(number.key)),
        };
        for (text, span) in items {
            match u64::from_text(OsStr::new(&text), number.kind) {
                Ok(given) => *(number.field)(of) = given,
                Err(refusal) => self.problems.push(refused(number.key, span, refusal)),
            }
        }
    }
}

/// An unknown key of a route. Usually it is a key of the site or of the whole file below a route.
fn unknown_route_key(key: &Key<'_>) -> Problem {
    let name = key.get_ref().as_ref();
    let spec = options::find(name).filter(|spec| spec.is_in_file());
    let owners = owners(name);
    let (why, help) = match spec {
        _ if !owners.is_empty() => {
            let title = format!("wrong key `{name}` in a route");
            let why = format!("applies to a route with `{}`", owners.join("` or `"));
            return Problem::at(key.span(), title, why).of(ConfigErrorKind::Key);
        }
        _ if name == "hosts" || spec.is_some_and(|spec| spec.is_of_site()) => {
            let help = format!("move `{name}` above the first route of its site");
            ("applies to a site, not to a route", Some(help))
        }
        Some(_) => ("applies to the whole server, not to a route", Some(super::to_the_top(name))),
        None => {
            let numbers = NUMBERS.iter().map(|number| number.key);
            let words = PATHS
                .into_iter()
                .chain(SERVERS)
                .chain(numbers)
                .chain(OWNED)
                .chain(SWITCHES.map(|(key, _)| key));
            let help = suggest::did_you_mean(name, words);
            ("not a setting of a route", help)
        }
    };
    Problem::at(key.span(), format!("unknown key `{name}` in a route"), why)
        .of(ConfigErrorKind::Key)
        .maybe_helped(help)
}
