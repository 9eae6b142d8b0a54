//! Writes Flash's configuration from that of another server, as far as static sites go. Called by `flash migrate`.
//!
//! Each language has a module with its parser and its meaning: `nginx`, `apache` and `caddy`. They fill one small model of
//! Flash's configuration (`model`), which `toml` writes, and note what is different (`notes`). The crate reads files and
//! directories, and nothing else. Whatever a file holds, the result is a configuration or a [`Failure`] with its line.

mod apache;
mod caddy;
mod directive;
mod files;
mod model;
mod nginx;
mod notes;
mod pattern;
mod regex;
mod toml;
mod values;

use std::path::Path;

use files::Files;
use model::Config;
use notes::Notes;
pub use notes::{Failure, Note, Position};

/// A server whose configuration can be carried over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// nginx, from `nginx.conf` or a file with `server` blocks.
    Nginx,
    /// Apache, from `apache2.conf` or a file with virtual hosts.
    Apache,
    /// Caddy, from a `Caddyfile`.
    Caddy,
}

/// A configuration for Flash.
#[derive(Debug)]
pub struct Migration {
    /// The config file; the notes are comments at its head.
    pub toml: String,
    /// The lines that were not carried over.
    pub notes: Vec<Note>,
}

/// Carries the configuration in this file over, with the files that it includes.
///
/// # Errors
/// A file cannot be read or parsed.
pub fn migrate(server: Server, file: &Path) -> Result<Migration, Failure> {
    let mut files = Files::new(file);
    let mut notes = Notes::default();
    let (name, mut config) = match server {
        Server::Nginx => ("nginx", nginx::read(file, &mut files, &mut notes)?),
        Server::Apache => ("Apache", apache::read(file, &mut files, &mut notes)?),
        Server::Caddy => ("Caddy", caddy::read(file, &mut files, &mut notes)?),
    };
    config.compress_answers();
    let whole = Position { file: files.first.clone(), line: 0 };
    for script in config.drop_sources() {
        notes.add(
            &whole,
            format!(
                "{script} does not answer for other paths: no server runs it, and its source would be sent"
            ),
        );
    }
    Ok(finish(&config, notes, &files, name))
}

fn finish(config: &Config, notes: Notes, files: &Files, name: &str) -> Migration {
    let notes = notes.sorted(&files.first);
    let subject = format!("{}, a configuration of {name}", files.first);
    Migration { toml: toml::write(config, &notes, &subject), notes }
}
