//! Turns servers into sites. A server of nginx has its own addresses, and a site answers on all of Flash's.
//!
//! Each host has a server for plain HTTP and one for HTTPS. If the first only redirects to the second, or both answer alike, they
//! are one site.

use std::collections::BTreeSet;

use super::redirects;
use super::scope::{Context, Return};
use super::server::{Listen, ServerBlock};
use super::site;
use super::target::{RequestFacts, of_own_host};
use crate::model::{Config, Site};
use crate::notes::Position;

/// Flash needs an address for plain HTTP; this one is its default.
const PLAIN: &str = "127.0.0.1:8080";
/// The most hosts: a site is made for each, and those that are alike are one.
const HOSTS_MAX: usize = 2_000;

/// The server of a host for one of the two protocols.
#[derive(Clone, Copy)]
struct View<'s> {
    number: usize,
    server: &'s ServerBlock,
    returns: Option<&'s Return>,
    /// Whether it names the host, and is not just the default.
    is_named: bool,
}

/// The servers of one protocol.
struct Plane<'s> {
    servers: Vec<(usize, &'s ServerBlock)>,
    default: Option<(usize, &'s ServerBlock)>,
    is_tls: bool,
}

impl<'s> Plane<'s> {
    fn new(servers: &'s [ServerBlock], is_tls: bool) -> Self {
        let of_plane = |server: &ServerBlock| server.listens.iter().any(|listen| listen.is_tls == is_tls);
        let own: Vec<_> = servers.iter().enumerate().filter(|(_, server)| of_plane(server)).collect();
        let is_default = |listen: &Listen| listen.is_tls == is_tls && listen.is_default;
        let marked = own.iter().find(|(_, server)| server.listens.iter().any(is_default));
        let default = marked.or(own.first()).copied();
        Self { servers: own, default, is_tls }
    }

    /// The server of a host, or of all others.
    fn view(&self, host: Option<&str>) -> Option<View<'s>> {
        let named = host.and_then(|host| {
            let exact = self.servers.iter().find(|(_, server)| server.names.iter().any(|name| name == host));
            let fits = |name: &String| name.strip_prefix('*').is_some_and(|end| host.ends_with(end));
            let longest =
                |server: &ServerBlock| server.names.iter().filter(|name| fits(name)).map(String::len).max();
            let by_pattern = self.servers.iter().filter(|(_, server)| longest(server).is_some());
            exact.or_else(|| by_pattern.max_by_key(|(_, server)| longest(server))).copied()
        });
        let (number, server) = named.or(self.default)?;
        Some(View { number, server, returns: server.returns(host, self.is_tls), is_named: named.is_some() })
    }

    /// The ports of a server, and its addresses if they are not all of the machine's.
    fn endpoints(&self, server: &ServerBlock) -> BTreeSet<String> {
        let own = server.listens.iter().filter(|listen| listen.is_tls == self.is_tls);
        own.map(|listen| {
            let wide = ["0.0.0.0:", "[::]:"].iter().find_map(|start| listen.address.strip_prefix(start));
            wide.unwrap_or(&listen.address).to_owned()
        })
        .collect()
    }
}

/// A site without its hosts, and the number of its server.
type Found = (Site, usize);

/// The configuration of all servers.
pub(super) fn config(servers: &[ServerBlock], context: &mut Context<'_>) -> Config {
    let planes = [Plane::new(servers, false), Plane::new(servers, true)];
    let mut config = Config::default();
    for server in servers {
        for listen in &server.listens {
            let list = if listen.is_tls { &mut config.listen_tls } else { &mut config.listen };
            if !list.contains(&listen.address) {
                list.push(listen.address.clone());
            }
        }
    }
    note_addresses(&planes, context);
    let mut used = BTreeSet::new();
    let default = found(&planes, None, &mut used, context);
    let mut hosts: Vec<&String> = Vec::new();
    for name in servers.iter().flat_map(|server| &server.names) {
        if !hosts.contains(&name) && hosts.len() < HOSTS_MAX {
            hosts.push(name);
        }
    }
    let mut sites: Vec<(Found, Vec<String>)> = Vec::new();
    let mut of_default = Vec::new();
    for host in hosts {
        let Some(site) = found(&planes, Some(host), &mut used, context) else { continue };
        match sites.iter_mut().find(|(other, _)| *other == site) {
            _ if default.as_ref() == Some(&site) => of_default.push(host.clone()),
            Some((_, hosts)) => hosts.push(host.clone()),
            None => sites.push((site, vec![host.clone()])),
        }
    }
    config.default = default.map(|(site, _)| Site { hosts: of_default, ..site });
    config.sites = sites.into_iter().map(|((site, _), hosts)| Site { hosts, ..site }).collect();
    for (_, server) in servers.iter().enumerate().filter(|(number, _)| !used.contains(number)) {
        context.notes.add(
            &server.position,
            "`server`: Flash answers a host on all addresses, and another server has its hosts",
        );
    }
    finish(&mut config, servers, context);
    config
}

/// Notes the servers that do not listen on all addresses of their protocol.
fn note_addresses(planes: &[Plane<'_>; 2], context: &mut Context<'_>) {
    for plane in planes {
        let mut all = BTreeSet::new();
        plane.servers.iter().for_each(|(_, server)| all.extend(plane.endpoints(server)));
        for (_, server) in &plane.servers {
            let own = plane.endpoints(server);
            let is_wide = |it: &&String| it.rsplit_once(':').is_some_and(|(_, port)| own.contains(port));
            let others: Vec<&str> =
                all.difference(&own).filter(|it| !is_wide(it)).map(String::as_str).collect();
            if !others.is_empty() {
                let text = format!("`server`: Flash answers its hosts on {} too", others.join(", "));
                context.notes.add(&server.position, text);
            }
        }
    }
}

/// The site of a host, or of all others. None if nobody answers.
fn found<'s>(
    planes: &[Plane<'s>; 2],
    host: Option<&'s str>,
    used: &mut BTreeSet<usize>,
    context: &mut Context<'_>,
) -> Option<Found> {
    let [plain, tls] = [planes[0].view(host), planes[1].view(host)];
    let facts = |server: &'s ServerBlock, scheme| {
        let single = if let [name] = &server.names[..] { Some(name.as_str()) } else { None };
        RequestFacts { host: host.or(single).filter(|host| !host.starts_with('*')), scheme }
    };
    let plain_name = host.filter(|host| !host.starts_with('*'));
    let (view, other) = match (plain, tls) {
        (Some(plain), Some(tls)) => {
            let own = plain_name
                .into_iter()
                .chain(tls.server.names.iter().map(String::as_str).filter(|_| host.is_none()));
            let mut candidates = own.map(Some).chain([None]);
            let to_https =
                candidates.find_map(|host| to_https(&plain, host)).filter(|_| !is_same(&plain, &tls));
            if let Some((status, position)) = to_https {
                used.extend([plain.number, tls.number]);
                if tls.server.rejects() && !tls.is_named {
                    return None;
                }
                let mut site =
                    site::build(tls.server, tls.returns, facts(tls.server, Some("https")), context);
                site.https_redirect = Some(https_status(status, &position, context));
                note_others(&plain, context);
                return Some((site, tls.number));
            }
            if host.is_none() && (plain.server.rejects() || tls.server.rejects()) {
                used.extend([plain.number, tls.number].into_iter().filter(|it| {
                    let view = if *it == plain.number { plain } else { tls };
                    view.server.rejects()
                }));
                let open = [plain, tls].into_iter().find(|view| !view.server.rejects() && is_open(view));
                (open?, None)
            } else if tls.is_named || !plain.is_named {
                (tls, Some(plain))
            } else {
                (plain, Some(tls))
            }
        }
        (Some(view), None) | (None, Some(view)) => {
            if host.is_none() && view.server.rejects() {
                used.insert(view.number);
                return None;
            }
            (view, None)
        }
        (None, None) => return None,
    };
    used.insert(view.number);
    let is_tls = tls.is_some_and(|tls| is_same(&tls, &view));
    let is_plain = plain.is_some_and(|plain| is_same(&plain, &view));
    let scheme = if is_tls && is_plain { None } else { Some(if is_tls { "https" } else { "http" }) };
    let site = site::build(view.server, view.returns, facts(view.server, scheme), context);
    if let Some(other) = other.filter(|other| !is_same(other, &view)) {
        note_difference(&site, (&view, &other), (host, scheme), used, context);
    }
    Some((site, view.number))
}

/// Notes that a host has one site for both protocols, and that it had two.
fn note_difference(
    site: &Site,
    (view, other): (&View<'_>, &View<'_>),
    (host, scheme): (Option<&str>, Option<&'static str>),
    used: &mut BTreeSet<usize>,
    context: &mut Context<'_>,
) {
    let facts = RequestFacts { host: host.filter(|host| !host.starts_with('*')), scheme };
    let bare = |site: Site| Site { certificates: vec![], keys: vec![], ocsp: vec![], hsts: None, ..site };
    let is_alike = bare(site::build(other.server, other.returns, facts, context)) == bare(site.clone());
    if is_alike {
        used.insert(other.number);
    } else if other.is_named || host.is_none() {
        let text = format!("`server`: {} has this site for HTTP and HTTPS alike", view.server.position);
        used.insert(other.number);
        context.notes.add(&other.server.position, text);
    } else if scheme == Some("https") {
        let host = host.unwrap_or_default();
        context.notes.add(
            &view.server.position,
            format!("`server`: Flash answers {host} over plain HTTP too: see `https_redirect`"),
        );
    }
}

/// Whether a server answers hosts that it does not name, and is not the default just because it is the first.
fn is_open(view: &View<'_>) -> bool {
    view.server.names.is_empty() || view.server.listens.iter().any(|listen| listen.is_default)
}

fn is_same(one: &View<'_>, other: &View<'_>) -> bool {
    one.number == other.number && one.returns == other.returns
}

/// The status with which a server sends all requests to HTTPS, if it does.
fn to_https(view: &View<'_>, host: Option<&str>) -> Option<(u16, Position)> {
    let rest = site::rest(&view.server.locations.all);
    let returns = view.returns.or_else(|| rest?.scope.returns.as_ref())?;
    let status = redirects::of_return(returns)?;
    let (scheme, path) = of_own_host(&returns.text, host)?;
    let is_whole = ["$request_uri", "$uri", "$uri$is_args$args"].contains(&path);
    (scheme == Some("https") && is_whole).then(|| (status, returns.position.clone()))
}

fn https_status(status: u16, position: &Position, context: &mut Context<'_>) -> u16 {
    match status {
        301 | 308 => status,
        _ => {
            context
                .notes
                .add(position, format!("`return {status}`: with 308; Flash redirects to HTTPS for good"));
            308
        }
    }
}

/// Notes the locations of a server that redirects all others to HTTPS.
fn note_others(view: &View<'_>, context: &mut Context<'_>) {
    if view.returns.is_some() {
        return;
    }
    for location in view.server.locations.all.iter().filter(|location| location.text != "/") {
        if !location.text.starts_with("/.well-known/acme-challenge") && !location.is_hidden() {
            let text = format!("{}: over plain HTTP Flash redirects it too", location.shown);
            context.notes.add(&location.position, text);
        }
    }
}

/// Adds what Flash asks for: an address for plain HTTP, and roots for sites without files.
fn finish(config: &mut Config, servers: &[ServerBlock], context: &mut Context<'_>) {
    if config.listen.is_empty() {
        config.listen.push(PLAIN.to_owned());
        let position = &servers[0].position;
        context.notes.add(position, format!("`server`: Flash also listens on {PLAIN}, for plain HTTP"));
    }
    let whole = Position { line: 0, ..servers[0].position.clone() };
    config.complete("`root`", &whole, context.notes);
    if !config.listen_tls.is_empty()
        && config.default.iter().chain(&config.sites).all(|site| site.certificates.is_empty())
    {
        let text = "`server`: has HTTPS without `ssl_certificate`: name `certificate` and `certificate_key`";
        context.notes.add(&servers[0].position, text);
    }
}
