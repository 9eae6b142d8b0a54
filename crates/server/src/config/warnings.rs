//! Settings that are valid, and yet perhaps not meant. The supervisor prints these warnings.

use flash_engine::limits::SPOOL_SHARE_ONE_IN;

use super::listen::Listen;
use super::options::{Settings, Site};
use super::redirect_circles;
use super::route_options::Route;
use super::routes::{RoutePaths, ServerAddress};
use super::rule_options::Rule;
use super::run_as::RunAs;
use super::unreached_rules::{Unreached, unreached};
use flash_units::size_text;

const MIB: u64 = 1 << 20;

impl Settings {
    /// Warnings for the operator at startup, one per line.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let memory = self.lowered.iter().cloned().chain(self.cache_memory.warning());
        let of_sites = exposed_programs(&self.sites).into_iter().chain(idle_index_names(&self.sites));
        let of_sites = of_sites.chain(unreached_rules(&self.sites)).chain(unreached_routes(&self.sites));
        let of_routes = self.too_long_bodies().into_iter().chain(self.programs_of_workers());
        let of_routes = of_routes.chain(self.unverified_servers()).chain(self.proxy_to_itself());
        memory.chain(self.waits_in_loop()).chain(of_sites).chain(of_routes).collect()
    }

    /// Warnings about optimizations whose absence makes the event loop wait.
    fn waits_in_loop(&self) -> impl Iterator<Item = String> + use<> {
        let wait = |option: &str, what: &str| {
            format!(
                "{option} is for experiments: {what} that wait for the disk block the event loop and all clients of its worker"
            )
        };
        let open = self.open_in_loop.then(|| wait("--open-in-loop", "look-ups and opens"));
        let read = (!self.residency_check).then(|| wait("--no-residency-check", "reads"));
        open.into_iter().chain(read)
    }

    /// A warning for the first program that has the user of the workers.
    fn programs_of_workers(&self) -> Option<String> {
        let user = |run_as: Option<&RunAs>| run_as.map(|run_as| run_as.uid);
        let workers = user(self.run_as.as_ref());
        let mut programs = self.routes().filter_map(|route| route.program.as_ref());
        let program = programs.find(|program| user(program.run_as.as_ref()) == workers)?;
        let remedy = match workers {
            Some(_) => "name another user of its route",
            None => "only root can start programs of another user",
        };
        Some(format!(
            "{} has the user of the workers, and so can slow them down or end them; {remedy}",
            program.name()
        ))
    }

    /// A warning for the first server whose certificate is not verified.
    fn unverified_servers(&self) -> Option<String> {
        let is_unverified = |route: &&Route| route.tls.as_ref().is_some_and(|tls| !tls.verify);
        let over_tls = |server: &&ServerAddress| matches!(server, ServerAddress::Tls(_));
        let server = self.routes().find(is_unverified)?.servers.iter().find(over_tls)?;
        Some(format!(
            "verify = false: anyone on the way to {server} can read and change its requests and answers; set `roots` to its \
             certificate instead"
        ))
    }

    /// A warning for the first server of a route that is Flash itself: its requests would come back again and again.
    fn proxy_to_itself(&self) -> Option<String> {
        let reaches = |server: &ServerAddress, listen: &Listen| match (server, listen) {
            (ServerAddress::Tcp(address) | ServerAddress::Tls(address), Listen::Tcp(listen)) => {
                let is_any = listen.ip().is_unspecified() && address.ip().is_loopback();
                listen.port() == address.port() && (is_any || listen.ip() == address.ip())
            }
            (ServerAddress::Unix(path), Listen::Unix(listen)) => **path == **listen,
            _ => false,
        };
        let is_own = |server: &&ServerAddress| {
            self.listen.iter().chain(&self.tls_listen).any(|listen| reaches(server, listen))
        };
        let server = self.routes().flat_map(|route| &route.servers).find(is_own)?;
        Some(format!(
            "a route passes requests to {server}, where Flash itself listens: they come back again and again"
        ))
    }

    /// A warning if a route allows bodies that its workers cannot hold: one client alone gets a
    /// part of a worker's file.
    fn too_long_bodies(&self) -> Option<String> {
        self.spool_folder.as_ref()?;
        let held_bytes_max = self.spool_bytes_max / self.workers as u64 / (SPOOL_SHARE_ONE_IN as u64 + 1);
        // In whole mebibytes, so that it is easy to read.
        let held_bytes_max = if held_bytes_max < MIB { held_bytes_max } else { held_bytes_max / MIB * MIB };
        let holding = self.routes().filter(|route| !route.stream_bodies);
        let longest_bytes = holding.map(|route| route.body_bytes_max).max()?;
        (longest_bytes > held_bytes_max).then(|| {
            format!(
                "a request body of body_max ({}) cannot be held, and gets 503: spool_max leaves {} for a client of each \
                 worker; raise spool_max, or set stream_bodies",
                size_text(longest_bytes),
                size_text(held_bytes_max),
            )
        })
    }
}

/// A warning for each site whose first index file is a script: the script answers for each directory, so no other name
/// is tried.
fn idle_index_names(sites: &[Site]) -> Vec<String> {
    let idle = |site: &Site| {
        let first = site.index.first().filter(|_| site.index.len() > 1)?;
        site.routes.iter().any(|route| route.is_script(first)).then(|| {
            format!(
                "{} never tries {}: the route of {first} answers for each directory; write it as the only name of `index`",
                name(site),
                site.index[1..].join(", "),
            )
        })
    };
    sites.iter().filter_map(idle).collect()
}

/// A warning for the first rule of each kind of each site that no request reaches.
fn unreached_rules(sites: &[Site]) -> Vec<String> {
    let mut warnings = Vec::new();
    for site in sites {
        warnings.extend(unreached(&site.rules).map(|unreached| {
            let Unreached { verb, rule, .. } = &unreached;
            format!("{} never {verb} {}: {}", name(site), rule.path, unreached.why())
        }));
        warnings.extend(site.rules.iter().find_map(|rule| {
            let why = why_no_path_fits(&rule.path)?;
            Some(format!("{} never applies its rule for {}: {why}", name(site), rule.path))
        }));
        warnings.extend(behind_a_route(site));
    }
    warnings.extend(redirect_circles::of_several(sites).map(|(site, why)| {
        format!(
            "{} and others redirect in a circle, unless their addresses are those of another server: {why}",
            name(&sites[site])
        )
    }));
    warnings
}

/// A warning for the first rule about files whose paths are all those of a route.
fn behind_a_route(site: &Site) -> Option<String> {
    let prefixes =
        || site.routes.iter().filter(|route| !route.files_first).filter_map(|route| route.paths.prefix());
    let is_of_files =
        |rule: &&Rule| rule.fallback.is_some() || !rule.try_extensions.is_empty() || rule.alias.is_some();
    site.rules.iter().filter(is_of_files).find_map(|rule| {
        let beginning = rule.path.split('*').next().unwrap_or_default();
        let taken = prefixes().find(|prefix| beginning.starts_with(prefix))?;
        let rule = &rule.path;
        Some(format!("{} never looks for files of {rule}: the route for {taken} has its paths", name(site)))
    })
}

/// Why no path fits the pattern of a rule, because each is decoded, and has no dots and no empty segments.
fn why_no_path_fits(pattern: &str) -> Option<&'static str> {
    let is_exact_dot = !pattern.contains('*') && (pattern.ends_with("/.") || pattern.ends_with("/.."));
    let has_dots = is_exact_dot || ["//", "/./", "/../"].iter().any(|text| pattern.contains(text));
    why_none_is(pattern, has_dots)
}

/// A warning for the first route of each site that no request reaches.
fn unreached_routes(sites: &[Site]) -> Vec<String> {
    let of_site = |site: &Site| {
        let unreached = |(number, route): (usize, &Route)| {
            let prefix = route.paths.prefix()?;
            let why = why_no_path_begins_so(prefix).map(str::to_owned);
            let why = why.or_else(|| {
                let mut earlier = site.routes[..number].iter().filter_map(|route| route.paths.prefix());
                let earlier = earlier.find(|earlier| prefix.starts_with(earlier))?;
                Some(format!("an earlier route, for {earlier}, has its paths; write it before that one"))
            })?;
            Some(format!("{} never uses its route for {prefix}: {why}", name(site)))
        };
        site.routes.iter().enumerate().find_map(unreached)
    };
    sites.iter().filter_map(of_site).collect()
}

/// Why no path begins with the prefix of a route, for the same reasons.
fn why_no_path_begins_so(prefix: &str) -> Option<&'static str> {
    // The last segment can be the beginning of a name.
    let mut segments = prefix[1..].split('/').rev().skip(1);
    let has_dots = segments.any(|segment| segment.is_empty() || segment == "." || segment == "..");
    why_none_is(prefix, has_dots)
}

/// Why no path is of a form, which has empty segments or dots or not.
fn why_none_is(form: &str, has_dots: bool) -> Option<&'static str> {
    let is_escape =
        |rest: &str| rest.get(..2).is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if has_dots {
        Some("paths are compared without empty segments, `.` and `..`")
    } else if form.split('%').skip(1).any(is_escape) {
        Some("it is compared with decoded paths; write the characters themselves")
    } else {
        None
    }
}

/// A warning for each site that serves the directory of another site's route for an extension, without such a route.
fn exposed_programs(sites: &[Site]) -> Vec<String> {
    let mut warnings = Vec::new();
    for site in sites {
        for extension in site.routes.iter().filter_map(|route| route.paths.extension()) {
            let others = sites.iter().filter(|other| shares_files(site, other) && !runs(other, extension));
            warnings.extend(others.map(|other| {
                format!(
                    "{} sends the source of .{extension} files in {}, which {} passes to an application; give it the same \
                     route, or another root",
                    name(other),
                    site.root.display(),
                    name(site),
                )
            }));
        }
    }
    warnings
}

fn shares_files(one: &Site, other: &Site) -> bool {
    let mut folders = [&other.root].into_iter().chain(other.aliases().map(|(_, folder)| folder));
    folders.any(|folder| one.root.starts_with(folder) || folder.starts_with(&one.root))
}

/// Whether a site sends no file with this extension.
fn runs(site: &Site, wanted: &str) -> bool {
    site.routes.iter().any(|route| match &route.paths {
        RoutePaths::Extension(extension) => extension == wanted,
        RoutePaths::Prefix(prefix) => prefix == "/" && !route.files_first,
    })
}

fn name(site: &Site) -> String {
    site.hosts.first().map_or_else(|| "the default site".to_owned(), |host| format!("site {host}"))
}
