//! nginx: its grammar (`parse`), the directives that a block has with those that it inherits (`scope`), the order of locations
//! (`location`, `spread`), and the sites that follow from servers and their addresses (`hosts`).
//!
//! A directive is carried over, found to need nothing (`meanings`), or noted.

mod auth_request;
mod files;
mod global;
mod hosts;
mod location;
mod meanings;
mod parse;
mod redirects;
mod route;
mod scope;
mod server;
mod site;
mod spread;
mod target;
mod units;

use std::path::Path;

use crate::directive::Directive;
use crate::files::Files;
use crate::model::Config;
use crate::notes::{Failure, Notes};
use global::Global;
use route::Upstream;
use scope::{Context, Scope};
use server::ServerBlock;

/// The most servers: each has its own copy of what it inherits.
const SERVERS_MAX: usize = 1_024;

/// The configuration in a file.
///
/// # Errors
/// The file cannot be read or parsed, or has no server.
pub(crate) fn read(file: &Path, files: &mut Files, notes: &mut Notes) -> Result<Config, Failure> {
    let directives = parse::read(file, files, notes)?;
    let mut context = Context { notes, files: &*files, global: Global::default() };
    // A file of `sites-enabled` is the inside of `http`.
    let http: Vec<&Directive> = directives.iter().filter(|directive| directive.name == "http").collect();
    for events in directives.iter().filter(|directive| directive.name == "events") {
        Scope::default().within(events.inner(), &mut context);
    }
    upstreams(&directives, &mut context);
    http.iter().for_each(|http| upstreams(http.inner(), &mut context));
    let main = Scope::default().within(&directives, &mut context);
    let mut servers = Vec::new();
    let mut blocks: Vec<(Scope, &[Directive])> = vec![(main.clone(), &directives)];
    for http in http {
        blocks.push((main.within(http.inner(), &mut context), http.inner()));
    }
    for (scope, inner) in &blocks {
        for directive in inner.iter().filter(|directive| directive.name == "server") {
            if servers.len() < SERVERS_MAX {
                servers.push(ServerBlock::new(directive, scope, &mut context));
            } else {
                context.lost(directive, "there are too many servers");
            }
        }
    }
    if servers.is_empty() {
        let position = crate::notes::Position { file: context.files.first.clone(), line: 0 };
        return Err(Failure::new(&position, "has no `server` block"));
    }
    let mut config = hosts::config(&servers, &mut context);
    let global = std::mem::take(&mut context.global);
    (config.settings, config.types) = global.finish(config.sites.len(), context.notes);
    Ok(config)
}

fn upstreams(directives: &[Directive], context: &mut Context<'_>) {
    for block in directives.iter().filter(|directive| directive.name == "upstream") {
        let mut upstream = Upstream { name: block.first().to_owned(), servers: Vec::new() };
        for inner in block.inner() {
            match inner.name.as_str() {
                "server" if inner.args.iter().any(|arg| arg == "down") => {}
                "server" if inner.args.iter().any(|arg| arg == "backup") => {
                    context.lost(inner, "Flash has no servers that wait for the failure of others");
                }
                "server" => {
                    let weight = inner.args.iter().find_map(|arg| arg.strip_prefix("weight=")?.parse().ok());
                    upstream.servers.push((inner.first().to_owned(), weight.unwrap_or(1)));
                }
                "keepalive" | "keepalive_requests" | "keepalive_timeout" | "zone" | "least_conn"
                | "random" => {}
                _ => context.lost(inner, "Flash chooses the server with the fewest requests for its weight"),
            }
        }
        context.global.upstreams.push(upstream);
    }
}
