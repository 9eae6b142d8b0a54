//! Apache: virtual hosts as sites. `site` has the directives.
//!
//! Apache applies all sections that fit a path, the later ones over the earlier ones, as Flash applies rules.

mod access;
mod fields;
mod parse;
mod rewrite;
mod route;
mod site;

use std::path::Path;

use crate::directive::Directive;
use crate::files::Files;
use crate::model::{Config, Site};
use crate::notes::{Failure, Notes, Position};
use crate::{toml, values};
use site::Host;

/// The most virtual hosts.
const HOSTS_MAX: usize = 1_024;
/// Flash needs an address for plain HTTP; this one is its default.
const PLAIN: &str = "127.0.0.1:8080";

/// The configuration in a file.
///
/// # Errors
/// The file cannot be read or parsed, or has no site.
pub(crate) fn read(file: &Path, files: &mut Files, notes: &mut Notes) -> Result<Config, Failure> {
    let directives = parse::read(file, files, notes)?;
    let mut config = Config::default();
    let is_host = |directive: &&Directive| directive.name == "virtualhost";
    let common: Vec<Directive> = directives.iter().filter(|it| !is_host(it)).cloned().collect();
    let mut hosts: Vec<Host> = Vec::new();
    for section in directives.iter().filter(is_host).take(HOSTS_MAX) {
        hosts.push(site::build(Some(section), &common, files, notes, &mut config));
    }
    if hosts.is_empty() {
        if !common.iter().any(|directive| directive.name == "documentroot") {
            let position = Position { file: files.first.clone(), line: 0 };
            return Err(Failure::new(&position, "has no <VirtualHost> and no DocumentRoot"));
        }
        hosts.push(site::build(None, &common, files, notes, &mut config));
    }
    listen(&common, &hosts, &mut config, notes);
    sites(hosts, &mut config, notes);
    finish(&mut config, files, notes);
    Ok(config)
}

/// The addresses: those of `Listen`, or of the virtual hosts if there is none.
fn listen(common: &[Directive], hosts: &[Host], config: &mut Config, notes: &mut Notes) {
    let mut ports: Vec<(String, u16)> = Vec::new();
    for directive in common.iter().filter(|directive| directive.name == "listen") {
        let text = directive.first();
        let port = text.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
        let all = [format!("0.0.0.0:{text}"), format!("[::]:{text}")];
        let addresses = if text.contains(':') { vec![text.to_owned()] } else { all.to_vec() };
        for address in addresses {
            match (values::server(&address, 80), port) {
                (Some(address), Some(port)) => ports.push((address, port)),
                _ => notes.lost(directive, "Flash listens on addresses with ports"),
            }
        }
    }
    if ports.is_empty() {
        for port in hosts.iter().flat_map(|host| host.ports.iter().copied()) {
            ports.extend([(format!("0.0.0.0:{port}"), port), (format!("[::]:{port}"), port)]);
        }
    }
    for (address, port) in ports {
        let is_tls = hosts.iter().any(|host| host.is_tls && host.ports.contains(&port))
            || (port == 443 && hosts.iter().any(|host| host.is_tls));
        let is_used = is_tls || port != 443;
        let list = if is_tls { &mut config.listen_tls } else { &mut config.listen };
        if is_used && !list.contains(&address) {
            list.push(address);
        }
    }
    for host in hosts {
        let others: Vec<u16> = hosts
            .iter()
            .filter(|other| other.is_tls == host.is_tls)
            .flat_map(|other| other.ports.iter().copied())
            .collect();
        if let Some(other) = others.iter().find(|port| !host.ports.contains(port)) {
            notes.add(&host.position, format!("<VirtualHost>: Flash answers its hosts on port {other} too"));
        }
    }
}

/// The sites of the virtual hosts: those for HTTP and HTTPS of the same name are one.
fn sites(hosts: Vec<Host>, config: &mut Config, notes: &mut Notes) {
    let (tls, plain): (Vec<Host>, Vec<Host>) = hosts.into_iter().partition(|host| host.is_tls);
    let mut sites: Vec<Site> = tls.into_iter().map(|host| host.site).collect();
    let of_tls = sites.len();
    for host in plain {
        let shares = |site: &&mut Site| {
            site.hosts.iter().any(|name| host.site.hosts.contains(name))
                || (site.hosts.is_empty() && host.site.hosts.is_empty())
        };
        match sites[..of_tls].iter_mut().find(shares) {
            Some(site) if host.to_https.is_some() => {
                site.https_redirect = host.to_https;
                let new = host.site.hosts.iter().filter(|name| !site.hosts.contains(name)).cloned();
                let new: Vec<String> = new.collect();
                site.hosts.extend(new);
            }
            Some(site) => {
                let bare = |site: &Site| Site {
                    hosts: vec![],
                    certificates: vec![],
                    keys: vec![],
                    hsts: None,
                    ..site.clone()
                };
                if bare(site) != bare(&host.site) {
                    notes.add(
                        &host.position,
                        "<VirtualHost>: Flash has one site for HTTP and HTTPS: that of HTTPS is carried over",
                    );
                }
            }
            None if host.to_https.is_some() && host.site.rules.is_empty() => {
                notes.add(&host.position, "<VirtualHost>: redirects to HTTPS, and no site answers there");
            }
            None => sites.push(host.site),
        }
    }
    let mut known: Vec<String> = Vec::new();
    for site in &mut sites {
        site.hosts.retain(|name| !known.contains(name));
        known.extend(site.hosts.iter().cloned());
    }
    let first = sites.iter().position(|site| site.hosts.is_empty()).unwrap_or(0);
    if !sites.is_empty() {
        // The first virtual host answers for hosts that no other one has.
        config.default = Some(sites.remove(first));
    }
    sites.retain(|site| !site.hosts.is_empty());
    config.sites = sites;
}

fn finish(config: &mut Config, files: &Files, notes: &mut Notes) {
    let whole = Position { file: files.first.clone(), line: 0 };
    if config.listen.is_empty() {
        config.listen.push(PLAIN.to_owned());
        notes.add(&whole, format!("Flash also listens on {PLAIN}, for plain HTTP"));
    }
    config.complete("DocumentRoot", &whole, notes);
    config.settings.entry("charset").or_insert_with(|| toml::text("off"));
    if config.settings.get("charset").is_some_and(|name| name == "\"utf-8\"") {
        config.settings.remove("charset");
    }
    if config.settings.contains_key("log_file") {
        let format = if config.sites.is_empty() { "combined" } else { "combined_host" };
        config.settings.insert("log_format", toml::text(format));
    }
}
