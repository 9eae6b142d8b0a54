//! Caddy: the addresses of its sites and its global options. `site` has the directives.
//!
//! Caddy obtains certificates by itself; Flash takes files. A site without files of its own is carried over for plain HTTP, and noted.

mod parse;
mod route;
mod site;
mod users;

use std::path::Path;

use crate::directive::{Directive, is_among};
use crate::files::Files;
use crate::model::Config;
use crate::notes::{Failure, Notes, Position};
use crate::{toml, values};

/// Global options that Flash needs not, or has in its own way.
const NOTHING: &str = "
    acme_ca acme_ca_root acme_eab admin auto_https debug default_bind default_sni email grace_period
    http_port https_port key_type local_certs order persist_config shutdown_delay skip_install_trust
    storage
";

/// An address of a site.
struct Address {
    /// None for all hosts.
    host: Option<String>,
    port: Option<u16>,
    is_plain: bool,
}

/// The configuration in a file.
///
/// # Errors
/// The file cannot be read or parsed, or has no site.
pub(crate) fn read(file: &Path, files: &mut Files, notes: &mut Notes) -> Result<Config, Failure> {
    let lines = parse::read(file, files, notes)?;
    let mut config = Config::default();
    let mut blocks: Vec<(Vec<String>, Vec<Directive>, Position)> = Vec::new();
    for line in &lines {
        match &line.block {
            Some(options) if line.name.is_empty() => global(options, &mut config, notes),
            Some(inner) => blocks.push((line.words(), inner.clone(), line.position.clone())),
            // One site without a block: its address, and then its directives.
            None if blocks.is_empty() => {
                let rest = lines
                    .iter()
                    .skip_while(|other| other.position.line <= line.position.line)
                    .cloned()
                    .collect();
                blocks.push((line.words(), rest, line.position.clone()));
                break;
            }
            None => {
                return Err(Failure::new(&line.position, format!("{} is outside of a site", line.shown())));
            }
        }
    }
    if blocks.is_empty() {
        return Err(Failure::new(&Position { file: files.first.clone(), line: 0 }, "has no site"));
    }
    let mut positions = Vec::new();
    for (words, inner, position) in blocks {
        let own = add(&mut config, (&words, &inner), &position, files, notes);
        positions.push((position, own));
    }
    note_addresses(&config, &positions, notes);
    finish(&mut config, files, notes);
    Ok(config)
}

fn global(options: &[Directive], config: &mut Config, notes: &mut Notes) {
    for option in options {
        match option.name.as_str() {
            "servers" => {
                for inner in option.inner() {
                    let networks: Option<Vec<String>> =
                        inner.args.iter().skip(1).map(|text| values::network(text)).collect();
                    match (inner.name.as_str(), networks) {
                        ("trusted_proxies", Some(networks)) if !networks.is_empty() => {
                            config.settings.insert("trusted_proxies", toml::list(&networks));
                        }
                        (
                            "timeouts"
                            | "keepalive_interval"
                            | "protocols"
                            | "client_ip_headers"
                            | "name"
                            | "trusted_proxies_strict",
                            _,
                        ) => {}
                        _ => notes.lost(inner, "Flash has nothing like it"),
                    }
                }
            }
            name if is_among(name, NOTHING) => {}
            _ => notes.lost(option, "Flash has nothing like it"),
        }
    }
}

/// The addresses of a site: `example.com`, `http://a:8080`, `:80`, with or without commas.
fn addresses(words: &[String], position: &Position, notes: &mut Notes) -> Vec<Address> {
    let mut addresses = Vec::new();
    for text in words.iter().flat_map(|word| word.split(',')).filter(|text| !text.is_empty()) {
        let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
        let rest = rest.trim_end_matches('/');
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok_and(|port| port > 0) => (host, port.parse().ok()),
            _ => (rest, None),
        };
        let is_all = host.is_empty() || host == "*" || host == "0.0.0.0";
        let known = if is_all { None } else { values::host(host) };
        if !is_all && known.is_none() {
            notes.add(position, format!("`{text}`: Flash has names, and `*.` in front of them"));
            continue;
        }
        let is_plain =
            scheme == "http" || port == Some(80) || (is_all && scheme != "https" && port != Some(443));
        addresses.push(Address { host: known, port, is_plain });
    }
    addresses
}

/// Adds the sites of a block, and returns the addresses where they listen.
fn add(
    config: &mut Config,
    (words, inner): (&[String], &[Directive]),
    position: &Position,
    files: &Files,
    notes: &mut Notes,
) -> Vec<String> {
    let mut own = Vec::new();
    let addresses = addresses(words, position, notes);
    let (mut site, bind) = site::build(inner, files, notes, config);
    let is_https = !site.certificates.is_empty();
    let binds = bind.map_or_else(|| vec!["0.0.0.0".to_owned(), "::".to_owned()], |bind| vec![bind]);
    for address in &addresses {
        let is_plain = address.is_plain || !is_https;
        let port = match address.port {
            Some(443) if is_plain => 80,
            Some(port) => port,
            None if is_plain => 80,
            None => 443,
        };
        if !address.is_plain && !is_https {
            let shown = address.host.as_deref().unwrap_or("all hosts");
            let why = "Flash obtains no certificates: plain HTTP until they are named (docs/tls.md)";
            notes.add(position, format!("`{shown}`: {why}"));
        }
        if !is_plain {
            own.extend(binds.iter().filter_map(|bind| listen(&mut config.listen, bind, 80)));
            site.https_redirect = Some(308);
        }
        let list = if is_plain { &mut config.listen } else { &mut config.listen_tls };
        own.extend(binds.iter().filter_map(|bind| listen(list, bind, port)));
    }
    if addresses.iter().any(|address| address.host.is_none()) {
        if config.default.is_some() {
            notes.add(
                position,
                "another site is for all hosts, and Flash answers on all addresses".to_owned(),
            );
        } else {
            config.default = Some(site);
        }
        return own;
    }
    for host in addresses.into_iter().filter_map(|address| address.host) {
        if config.sites.iter().any(|other| other.hosts.contains(&host)) {
            notes.add(
                position,
                format!("`{host}`: another site has this host, and Flash answers on all addresses"),
            );
        } else if !site.hosts.contains(&host) {
            site.hosts.push(host);
        }
    }
    if !site.hosts.is_empty() {
        config.sites.push(site);
    }
    own
}

fn listen(list: &mut Vec<String>, bind: &str, port: u16) -> Option<String> {
    let host = if bind.contains(':') { format!("[{bind}]") } else { bind.to_owned() };
    let address = values::server(&format!("{host}:{port}"), port)?;
    if !list.contains(&address) {
        list.push(address.clone());
    }
    Some(address)
}

/// Notes the sites that do not listen on all addresses of a protocol on which they listen.
fn note_addresses(config: &Config, positions: &[(Position, Vec<String>)], notes: &mut Notes) {
    for (position, own) in positions {
        for list in [&config.listen, &config.listen_tls] {
            let is_wide = |it: &&String| {
                it.rsplit_once(':').is_some_and(|(_, port)| own.contains(&format!("[::]:{port}")))
            };
            let others = list.iter().filter(|it| !own.contains(it) && !is_wide(it));
            let others: Vec<&str> = others.map(String::as_str).collect();
            if !others.is_empty() && list.iter().any(|it| own.contains(it)) {
                notes.add(
                    position,
                    format!("Flash answers the hosts of this site on {} too", others.join(", ")),
                );
            }
        }
    }
}

fn finish(config: &mut Config, files: &Files, notes: &mut Notes) {
    let whole = Position { file: files.first.clone(), line: 0 };
    if config.listen.is_empty() {
        config.listen.extend(["0.0.0.0:80", "[::]:80"].map(str::to_owned));
    }
    config.complete("root", &whole, notes);
    if config.settings.contains_key("log_file") && !config.sites.is_empty() {
        let is_json = config.settings.get("log_format").is_some_and(|format| format == "\"json\"");
        if !is_json {
            config.settings.insert("log_format", toml::text("combined_host"));
        }
    }
}
