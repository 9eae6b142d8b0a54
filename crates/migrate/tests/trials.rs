//! Common configurations of static sites, written down for this test after public documents (`SOURCES.md`), each beside Flash's
//! configuration for it. The head of that lists what is not carried over. `FLASH_BLESS=1` writes the files that have changed.

use std::fs;
use std::path::{Path, PathBuf};

use flash_migrate::{Server, migrate};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Compares the results for all files of a folder with those beside them.
fn compare(server: Server, name: &str, ending: &str, least: usize) {
    let mut count = 0;
    let mut complaints = String::new();
    let sources = fs::read_to_string(folder("SOURCES.md")).unwrap().to_ascii_lowercase();
    let sources = sources.split("\n## ").find(|part| part.starts_with(name)).unwrap().to_owned();
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == ending)) {
        count += 1;
        let stem = file.file_stem().unwrap().to_str().unwrap();
        assert!(
            sources.contains(&format!("`{stem}`")),
            "SOURCES.md does not say where {name}/{stem} comes from"
        );
        let migration = migrate(server, file).unwrap_or_else(|failure| panic!("{failure}"));
        let expected = file.with_extension("toml");
        if fs::read_to_string(&expected).ok().as_deref() == Some(migration.toml.as_str()) {
            continue;
        }
        if std::env::var_os("FLASH_BLESS").is_some() {
            fs::write(&expected, &migration.toml).unwrap();
        } else {
            complaints += &format!("{} is not:\n{}\n", expected.display(), migration.toml);
        }
    }
    assert!(count >= least, "the files were not found: {count}");
    assert!(complaints.is_empty(), "{complaints}");
}

#[test]
fn nginx() {
    compare(Server::Nginx, "nginx", "conf", 20);
}

#[test]
fn caddy() {
    compare(Server::Caddy, "caddy", "caddyfile", 6);
}

#[test]
fn apache() {
    compare(Server::Apache, "apache", "conf", 5);
}
