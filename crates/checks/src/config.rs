//! The configuration: any file gives settings that survive being handed over and printed, or errors
//! that name places in it and can be shown.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use flash_server::config::{ConfigErrorKind, Origin, Overrides, Settings, Sources, options};

/// `input` is a config file. It lies in the folder for temporary files.
pub fn config(input: &[u8]) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // Tests run side by side.
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("flash-checks-{}-{number}.toml", std::process::id()));
    fs::write(&path, input).expect("a config file can be written");
    let mut cli = Overrides::default();
    let option = options::find("config").expect("an option");
    option.set(&mut cli, &[path.as_os_str()], Origin::Flag).expect("a path");
    let loaded = Sources { cli, env: Vec::new(), cwd: std::env::temp_dir() }.load();
    let _ = fs::remove_file(&path);
    match loaded {
        Ok(settings) => sound(&settings),
        Err(error) => {
            let text = std::str::from_utf8(input).unwrap_or_default();
            assert!(error.count() > 0);
            for span in error.spans() {
                assert!(text.get(span.clone()).is_some(), "{span:?} is no place in the file");
            }
            assert_ne!(error.kind(), ConfigErrorKind::Handover);
            let shown = error.to_string();
            assert!(!shown.is_empty() && !shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
        }
    }
    // A file can look like settings that are handed over, too.
    if let Ok(settings) = Settings::from_toml(&String::from_utf8_lossy(input)) {
        again(&settings);
    }
}

/// What the rest of the server relies on.
fn sound(settings: &Settings) {
    assert!(!settings.listen.is_empty() && !settings.sites.is_empty());
    assert!(settings.workers > 0 && settings.helpers_max > 0 && settings.connections_max > 0);
    for (at, site) in settings.sites.iter().enumerate() {
        assert!(site.root.is_absolute());
        assert!(at == 0 || !site.hosts.is_empty(), "two default sites");
    }
    let mut hosts: Vec<&String> = settings.sites.iter().flat_map(|site| &site.hosts).collect();
    let count = hosts.len();
    hosts.sort();
    hosts.dedup();
    assert_eq!(hosts.len(), count, "a host of two sites");
    assert!(hosts.iter().all(|host| host.is_ascii() && **host == host.to_ascii_lowercase()));
    assert!(settings.types.values().all(|kind| kind.bytes().all(|byte| (b' '..=b'~').contains(&byte))));
    assert!(settings.log.file.as_ref().is_none_or(|file| file.is_absolute()));
    again(settings);
}

fn again(settings: &Settings) {
    let text = settings.to_toml();
    let read = Settings::from_toml(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(read, *settings, "{text}");
    assert_eq!(read.to_toml(), text);
}
