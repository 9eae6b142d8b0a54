//! The configuration: every file gives settings that survive being passed on and printed, or errors that
//! refer to valid positions in it.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use flash_server::config::{ConfigErrorKind, LogOutput, Origin, Overrides, Settings, Sources, options};

/// Checks `input`, the bytes of a config file, which is written to the directory for temporary files.
pub fn config(input: &[u8]) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // Tests run in parallel, so each file needs a unique name.
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
                assert!(text.get(span.clone()).is_some(), "{span:?} is not within the file");
            }
            assert_ne!(error.kind(), ConfigErrorKind::Handover);
            let shown = error.to_string();
            assert!(!shown.is_empty() && !shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
        }
    }
    // The same bytes are also read as settings passed on by the supervisor.
    if let Ok(settings) = Settings::from_toml(&String::from_utf8_lossy(input)) {
        again(&settings);
    }
}

/// Checks the guarantees that the rest of the server relies on.
fn sound(settings: &Settings) {
    assert!(!settings.listen.is_empty() && !settings.sites.is_empty());
    assert!(settings.workers > 0 && settings.helpers_max > 0 && settings.connections_max > 0);
    for (at, site) in settings.sites.iter().enumerate() {
        assert!(site.root.is_absolute());
        assert!(at == 0 || !site.hosts.is_empty(), "two default sites");
        assert!(site.routes.iter().all(|route| !route.servers.is_empty()));
    }
    let mut hosts: Vec<&String> = settings.sites.iter().flat_map(|site| &site.hosts).collect();
    let count = hosts.len();
    hosts.sort();
    hosts.dedup();
    assert_eq!(hosts.len(), count, "two sites have the same host");
    assert!(hosts.iter().all(|host| host.is_ascii() && **host == host.to_ascii_lowercase()));
    assert!(settings.types.values().all(|kind| kind.bytes().all(|byte| (b' '..=b'~').contains(&byte))));
    if let LogOutput::File(file) = &settings.log_output {
        assert!(file.is_absolute());
    }
    again(settings);
}

fn again(settings: &Settings) {
    let text = settings.to_toml();
    let read = Settings::from_toml(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(read, *settings, "{text}");
    assert_eq!(read.to_toml(), text);
}
