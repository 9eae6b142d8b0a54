//! Reads `[[site.route]]` and `[[route]]`.

use std::ops::Range;

use toml::de::DeTable;

use super::super::error::{ConfigErrorKind, Problem};
use super::super::route_options::{OF_TLS, PATHS, RouteOverrides, SERVERS};
use super::super::routes::{ROUTES_MAX, ServerAddress, WEIGHT_MAX};
use super::super::table::{self, Given, Origin};
use super::{Reader, RouteDraft, Value, unknown, wrong};

impl Reader {
    pub(super) fn routes(&mut self, value: &Value<'_>) -> Vec<RouteDraft> {
        let tables = self.tables("route", value, ROUTES_MAX);
        tables.into_iter().filter_map(|(span, table)| self.route(span, table)).collect()
    }

    fn route(&mut self, span: Range<usize>, table: &DeTable<'_>) -> Option<RouteDraft> {
        let mut given = RouteOverrides::default();
        let paths = self.one_of(&span, table, PATHS, "prefix = \"/api/\"");
        let by = self.one_of(&span, table, SERVERS, "proxy = \"127.0.0.1:3000\"");
        for (key, value) in table {
            match table::find::<RouteOverrides>(key.get_ref()) {
                // Without a server, one problem is enough.
                Some(spec) if by.is_none_or(|by| spec.applies(by)) => self.option(&mut given, spec, value),
                _ => self.problems.push(unknown::of_route(key)),
            }
        }
        self.check_weights(&given);
        self.check_files_first(&given);
        self.check_probe(table, by);
        self.check_tls(&given, table);
        let is_read = |key| table::find(key).is_some_and(|spec| (spec.origin)(&given).is_some());
        (is_read(paths?) && is_read(by?)).then_some(RouteDraft { given, span })
    }

    /// The one key among these that a route has.
    fn one_of(
        &mut self,
        span: &Range<usize>,
        table: &DeTable<'_>,
        names: &[&'static str],
        example: &str,
    ) -> Option<&'static str> {
        let find =
            |name: &&'static str| Some((*name, table.iter().find(|(key, _)| key.get_ref() == *name)?.0));
        match names.iter().filter_map(find).collect::<Vec<_>>()[..] {
            [(name, _)] => Some(name),
            [(other, first), (name, second), ..] => {
                let title = format!("a route has `{other}` or `{name}`, not both");
                let problem = Problem::at(second.span(), title, "given here");
                let problem = problem.with_other(first.span(), "given here").helped("write two routes");
                self.problems.push(problem.of(ConfigErrorKind::Key));
                None
            }
            [] => {
                let (last, others) = names.split_last().expect("names");
                let why = format!("`{}` or `{last}` is missing", others.join("`, `"));
                self.refuse(span, "incomplete route", &why, &format!("add a line such as `{example}`"));
                None
            }
        }
    }

    /// Each server has a weight, or none has. Servers that are wrong were reported.
    fn check_weights(&mut self, given: &RouteOverrides) {
        let servers = given.proxy.as_ref().or(given.fastcgi.as_ref());
        if let (Some(Given { value: weights, origin: Origin::File(span) }), Some(servers)) =
            (&given.weights, servers)
            && weights.len() != servers.value.len()
        {
            let why = format!("must be a list with a number from 1 to {WEIGHT_MAX} for each server");
            self.problems.push(wrong("weights", span.clone(), why));
        }
    }

    /// The files of an extension are scripts, which never answer themselves.
    fn check_files_first(&mut self, given: &RouteOverrides) {
        let Some(Given { value: true, origin: Origin::File(span) }) = &given.files_first else { return };
        if given.cgi.is_some() {
            let why = "a program could be sent instead of run";
            self.refuse(span, "`files_first` with `cgi`", why, "remove it");
        }
        if let Some(extension) = &given.extension {
            let why =
                format!("files that end with .{} are scripts of the route, and never sent", extension.value);
            let help = "remove it; a rule with `fallback` names the script that answers for missing files";
            self.refuse(span, "`files_first` with `extension`", &why, help);
        }
    }

    /// Only servers over TLS have certificates, and only HTTP servers are reached over TLS.
    fn check_tls(&mut self, given: &RouteOverrides, table: &DeTable<'_>) {
        let over_tls = |servers: &Given<Vec<ServerAddress>>| {
            servers.value.iter().find(|server| matches!(server, ServerAddress::Tls(_))).cloned()
        };
        if let Some(servers) = &given.fastcgi
            && let Some(server) = over_tls(servers)
            && let Origin::File(span) = &servers.origin
        {
            let why = format!("`{server}`: FastCGI has no form over TLS");
            let help = "write the address without `https://`, or use `proxy` if the server speaks HTTP";
            self.problems.push(wrong("fastcgi", span.clone(), why).helped(help));
        }
        let of_tls = |name: &&'static str| table.keys().find(|key| key.get_ref() == *name);
        if let Some(proxy) = &given.proxy
            && over_tls(proxy).is_none()
            && let Some(key) = OF_TLS.iter().find_map(of_tls)
        {
            let name = key.get_ref();
            let title = format!("`{name}` without a server over TLS");
            let help = "write an address such as `https://10.0.0.1:443`, or remove the line";
            self.refuse(&key.span(), &title, "no address in `proxy` begins with `https://`", help);
        }
        if given.verify.as_ref().is_some_and(|verify| !verify.value)
            && let Some(Given { origin: Origin::File(span), .. }) = &given.roots
        {
            let (title, help) = ("`roots` with `verify = false`", "remove one of the two lines");
            self.refuse(span, title, "nothing is verified by it", help);
        }
    }

    /// An interval needs a probe.
    fn check_probe(&mut self, table: &DeTable<'_>, by: Option<&str>) {
        let find = |name: &str| table.keys().find(|key| key.get_ref() == name);
        if let (Some("proxy"), Some(key), None) = (by, find("probe_interval"), find("probe")) {
            let (why, help) = ("`probe` is missing", "add a line such as `probe = \"/health\"`");
            self.refuse(&key.span(), "`probe_interval` without `probe`", why, help);
        }
    }
}
