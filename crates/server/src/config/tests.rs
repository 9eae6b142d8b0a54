//! Tests of loading as a whole: the order of the sources, inheritance, and paths.

mod errors;
mod logs;
mod routes;
mod rules;

use std::ffi::OsStr;
use std::fs;

use flash_engine::{LogFormat, UpstreamProtocol};
use flash_prompt::mechanism::MechanismKind;
use flash_waiting::sandbox::privileges;
use flash_worker::{HelperKind, SendBy};
use tempfile::TempDir;

use super::crew::Crew;
use super::*;

/// A new folder with `www/` in it, removed at the end.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        fs::create_dir(folder.path().join("www")).unwrap();
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Sources with this folder as the current one, this config file, and nothing else.
    fn sources(&self, file: &str) -> Sources {
        fs::write(self.path().join("flash.toml"), file).unwrap();
        let mut sources = Sources { cli: Overrides::default(), env: Vec::new(), cwd: self.path().to_owned() };
        flag(&mut sources, "config", &["flash.toml"]);
        sources
    }

    fn load(&self, file: &str) -> Settings {
        let settings = self.sources(file).load().unwrap_or_else(|error| panic!("{error}"));
        self.check_printed(&settings);
        settings
    }

    /// The printed settings are a config file that leads to the same settings, also from another folder.
    fn check_printed(&self, settings: &Settings) {
        let printed = settings.to_config_file().unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &printed).unwrap();
        let mut sources = Sources { cli: Overrides::default(), env: Vec::new(), cwd: "/".into() };
        flag(&mut sources, "config", &[file.path().to_str().unwrap()]);
        let again = sources.load().unwrap_or_else(|error| panic!("{error}\n{printed}"));
        assert_eq!(again, *settings, "{printed}");
    }

    /// The error for a config file, with the folder's name removed.
    fn error(&self, file: &str) -> String {
        let error = self.sources(file).load().unwrap_err();
        format!("{error}\n").replace(&self.path().display().to_string(), "/DIR")
    }
}

/// A config file that changes nothing. An empty one is refused.
const DEFAULTS: &str = "browse = false\n";

fn flag(sources: &mut Sources, key: &str, values: &[&str]) {
    let values: Vec<&OsStr> = values.iter().map(OsStr::new).collect();
    options::find(key).unwrap().set(&mut sources.cli, &values, Origin::Flag).unwrap();
}

fn variable(sources: &mut Sources, name: &str, value: &str) {
    sources.env.push((name.to_owned(), value.into()));
}

#[test]
fn nothing_said_means_the_defaults() {
    let folder = Folder::new();
    let sources = Sources { cli: Overrides::default(), env: Vec::new(), cwd: folder.path().to_owned() };
    let settings = sources.load().unwrap();
    let expected = Settings {
        service: Service::Files,
        listen: vec!["127.0.0.1:8080".parse().unwrap()],
        tls_listen: Vec::new(),
        listens_by_default: true,
        listen_mode: SocketMode(0o660),
        admin: Vec::new(),
        architecture: Architecture::Amped,
        workers: std::thread::available_parallelism().unwrap().get().min(256),
        processes: 32,
        threads: 64,
        event_mechanism: MechanismKind::Epoll,
        helpers: HelperKind::Processes,
        helpers_max: 16,
        lowered: Vec::new(),
        freshness_ms: 1_000,
        stale_ms: 10_000,
        watch: true,
        etag: EtagTime::Modified,
        cache_memory: settings.cache_memory,
        cache_list: None,
        spool_folder: Some("/var/tmp".into()),
        spool_bytes_max: 1 << 30,
        connections_max: 16_384,
        http2: true,
        server_field: true,
        head_timeout_ms: 10_000,
        idle_timeout_ms: 60_000,
        job_deadline_ms: 30_000,
        queue_wait_ms: 5_000,
        shutdown_timeout_ms: 30_000,
        reload_timeout_ms: 0,
        helper_idle_ms: 10_000,
        least_rate_bytes_per_s: 1_024,
        body_least_rate_bytes_per_s: 500,
        body_timeout_ms: 7_200_000,
        listing_entries_max: 10_000,
        sandbox: SandboxMode::Auto,
        cap_fowner: settings.cap_fowner,
        run_as: settings.run_as.clone(),
        name_cache: true,
        head_cache: true,
        send: SendBy::Read,
        align_heads: false,
        open_in_loop: false,
        residency_check: true,
        schedule: SchedulePolicy::Fair,
        srpt_cutoffs: Vec::new(),
        srpt_dscp: false,
        cwnd_cap_bytes: 0,
        connection_bits_per_s: 0,
        egress_bits_per_s: 0,
        client_connections_max: 8_192,
        client_exempt: vec![Clients::Loopback],
        trusted_proxies: Vec::new(),
        proxy_field: ProxyField::XForwardedFor,
        proxy_protocol: Vec::new(),
        accept_wait_ms: 1_000,
        log_format: LogFormat::Off,
        log_template: None,
        log_sample: 1,
        log_output: LogOutput::Off,
        log_rotate_bytes: 0,
        log_rotate_ms: 0,
        log_rotate_keep: 7,
        control: ControlSocket::Default,
        charset: Some("utf-8".to_owned()),
        types: Default::default(),
        sites: vec![Site {
            log_output: LogOutput::Off,
            hosts: Vec::new(),
            root: folder.path().into(),
            index: vec!["index.html".to_owned()],
            browse: false,
            precompressed: true,
            compress: false,
            encoded_slash: EncodedSlash::Decode,
            certificates: Vec::new(),
            certificate_keys: Vec::new(),
            ocsp: Vec::new(),
            hsts: None,
            https_redirect: HttpsRedirect::Off,
            routes: Vec::new(),
            rules: Vec::new(),
        }],
    };
    assert_eq!(settings, expected);
    assert_eq!(folder.load(DEFAULTS), expected, "a default changes nothing");
}

#[test]
fn the_control_socket_is_somewhere_nowhere_or_where_it_is_by_default() {
    let folder = Folder::new();
    let control = |file: &str| folder.load(file).control;
    assert_eq!(control(DEFAULTS), ControlSocket::Default);
    assert_eq!(control("control = \"none\""), ControlSocket::Off);
    assert_eq!(control("control = \"./none\""), ControlSocket::At(folder.path().join("none").into()));
    assert_eq!(control("control = \"/run/x.sock\""), ControlSocket::At("/run/x.sock".into()));
}

#[test]
fn flag_beats_environment_beats_file_beats_default() {
    let folder = Folder::new();
    let mut sources = folder.sources("freshness = \"2s\"\nhelpers_max = 2\nworkers = 2\n");
    variable(&mut sources, "FLASH_HELPERS_MAX", "3");
    variable(&mut sources, "FLASH_WORKERS", "3");
    flag(&mut sources, "workers", &["4"]);
    let settings = sources.load().unwrap();
    assert_eq!(settings.workers, 4);
    assert_eq!(settings.helpers_max, 3);
    assert_eq!(settings.freshness_ms, 2_000);
    assert_eq!(settings.connections_max, 16_384);
}

#[test]
fn a_list_of_a_higher_source_replaces_the_whole_list() {
    let folder = Folder::new();
    let mut sources = folder.sources("listen = [\"127.0.0.1:1\", \"127.0.0.1:2\"]");
    assert_eq!(sources.load().unwrap().listen.len(), 2);
    variable(&mut sources, "FLASH_LISTEN", "[::1]:3,127.0.0.1:3");
    assert_eq!(sources.load().unwrap().listen, ["[::1]:3", "127.0.0.1:3"].map(|text| text.parse().unwrap()));
    flag(&mut sources, "listen", &["127.0.0.1:4"]);
    assert_eq!(sources.load().unwrap().listen, ["127.0.0.1:4".parse().unwrap()]);
}

#[test]
fn loading_again_sees_the_new_file_and_the_old_flags() {
    let folder = Folder::new();
    let mut sources = folder.sources("workers = 1\nhelpers_max = 1");
    flag(&mut sources, "helpers_max", &["9"]);
    assert_eq!(sources.load().unwrap().workers, 1);
    fs::write(folder.path().join("flash.toml"), "workers = 2\nhelpers_max = 2").unwrap();
    let settings = sources.load().unwrap();
    assert_eq!((settings.workers, settings.helpers_max), (2, 9));
}

#[test]
fn every_key_is_read() {
    let folder = Folder::new();
    let settings = folder.load(
        r#"
        root = "www"
        index = ["a.html", "b.html"]
        browse = true
        precompressed = false
        encoded_slash = "refuse"
        charset = "ISO-8859-1"
        etag = "changed"
        listen = ["[::]:80", "unix:http.sock"]
        listen_mode = "0666"
        workers = 0x10
        helpers_max = 1
        freshness = "250ms"
        cache_memory = 1_048_576
        cache_list = "hot"
        connections = 7
        client_connections = 5
        client_exempt = ["10.0.0.0/8", "loopback"]
        accept_wait = "8s"
        head_timeout = "1s"
        idle_timeout = "2s"
        job_deadline = "3s"
        queue_wait = "7s"
        shutdown_timeout = "4s"
        reload_timeout = "6s"
        helper_idle = "5s"
        least_rate = "2KiB"
        body_least_rate = "3KiB"
        body_timeout = "9s"
        listing_entries = 6
        user = "UID"
        cap_fowner = false
        sandbox = "required"
        log_format = "json"
        log_file = "access.log"
        architecture = "amped"
        event_mechanism = "poll"
        helpers = "processes"
        schedule = "srpt"
        srpt_cutoffs = [1000, "50kB"]
        srpt_dscp = true
        cwnd_cap = "64KiB"
        egress = "10Mbit"
        [types]
        MJS = "text/javascript"
        "/Read Me" = "text/plain"
        "#
        .replace("UID", &flash_waiting::sandbox::privileges::user().to_string())
        .as_str(),
    );
    let store = CacheMemory::Fixed { bytes: 1 << 20, asked_bytes: 1 << 20 };
    assert_eq!((settings.workers, settings.cache_memory), (16, store));
    assert_eq!(settings.cache_list, Some(folder.path().join("hot").into()));
    assert_eq!((settings.least_rate_bytes_per_s, settings.body_least_rate_bytes_per_s), (2_048, 3_072));
    let times = [
        settings.freshness_ms,
        settings.head_timeout_ms,
        settings.idle_timeout_ms,
        settings.job_deadline_ms,
        settings.shutdown_timeout_ms,
        settings.helper_idle_ms,
        settings.reload_timeout_ms,
        settings.queue_wait_ms,
        settings.body_timeout_ms,
    ];
    assert_eq!(times, [250, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000, 9_000]);
    assert_eq!((settings.connections_max, settings.listing_entries_max), (7, 6));
    let log = LogOutput::File(folder.path().join("access.log").into());
    assert_eq!((settings.log_format, &settings.log_output), (LogFormat::Json, &log));
    assert_eq!((settings.sandbox, settings.cap_fowner), (SandboxMode::Required, false));
    assert_eq!(settings.types["mjs"], "text/javascript");
    assert_eq!(settings.types["/Read Me"], "text/plain");
    assert_eq!(settings.charset.as_deref(), Some("iso-8859-1"));
    let socket = Listen::Unix(folder.path().join("http.sock").into());
    assert_eq!((settings.listen_mode, settings.listens_by_default), (SocketMode(0o666), false));
    assert_eq!(settings.listen, ["[::]:80".parse().unwrap(), socket]);
    assert_eq!((settings.schedule, settings.srpt_dscp), (SchedulePolicy::Srpt, true));
    assert_eq!(settings.srpt_cutoffs, [1_000, 50_000]);
    assert_eq!((settings.cwnd_cap_bytes, settings.egress_bits_per_s), (65_536, 10_000_000));
    let client_exempt = vec![Clients::Network("10.0.0.0/8".parse().unwrap()), Clients::Loopback];
    assert_eq!((settings.client_connections_max, settings.accept_wait_ms), (5, 8_000));
    assert_eq!(settings.client_exempt, client_exempt);
    assert_eq!(
        (settings.architecture, settings.event_mechanism, settings.helpers, settings.helpers_max),
        (Architecture::Amped, MechanismKind::Poll, HelperKind::Processes, 1)
    );
    let site = &settings.sites[0];
    assert_eq!(
        (site.root.clone(), site.browse, site.precompressed),
        (folder.path().join("www").into(), true, false)
    );
    assert_eq!(site.index, ["a.html", "b.html"]);
    assert_eq!((site.encoded_slash, settings.etag), (EncodedSlash::Refuse, EtagTime::Changed));
    assert_eq!(Settings::from_toml(&settings.to_toml()).unwrap(), settings);
}

#[test]
fn relative_paths_start_at_the_file_or_at_the_current_directory() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path().join("etc/www")).unwrap();
    fs::write(folder.path().join("etc/flash.toml"), "root = \"www\"\nlog_file = \"log\"").unwrap();
    let mut sources = Sources { cli: Overrides::default(), env: Vec::new(), cwd: folder.path().to_owned() };
    variable(&mut sources, "FLASH_CONFIG", "etc/flash.toml");
    assert_eq!(sources.config_file(), Some("etc/flash.toml".into()));
    let settings = sources.load().unwrap();
    assert_eq!(settings.sites[0].root, folder.path().join("etc/www").into());
    assert_eq!(settings.log_output, LogOutput::File(folder.path().join("etc/log").into()));
    variable(&mut sources, "FLASH_ROOT", "www");
    flag(&mut sources, "log_file", &["log"]);
    let settings = sources.load().unwrap();
    assert_eq!(settings.sites[0].root, folder.path().join("www").into());
    assert_eq!(settings.log_output, LogOutput::File(folder.path().join("log").into()));
}

#[test]
fn texts_have_a_charset_or_none() {
    let folder = Folder::new();
    for (file, charset) in
        [(DEFAULTS, Some("utf-8")), ("charset = \"off\"", None), ("charset = \"koi8-r\"", Some("koi8-r"))]
    {
        let settings = folder.load(file);
        assert_eq!(settings.charset.as_deref(), charset, "{file}");
        assert_eq!(Settings::from_toml(&settings.to_toml()).unwrap(), settings);
    }
}

const TWO_SITES: &str = r#"
browse = true
index = ["home.html"]

[[site]]
hosts = ["Example.org", "*.example.org"]
root = "www"

[[site]]
hosts = ["files.example.net"]
root = "."
browse = false
index = []
precompressed = false
"#;

#[test]
fn sites_inherit_what_they_do_not_set() {
    let folder = Folder::new();
    let settings = folder.load(TWO_SITES);
    assert_eq!(settings.sites.len(), 2, "with sites and no root there is no default site");
    let [first, second] = &settings.sites[..] else { panic!() };
    assert_eq!(first.hosts, ["example.org", "*.example.org"]);
    assert_eq!(
        (first.browse, first.precompressed, &first.index[..]),
        (true, true, &["home.html".to_owned()][..])
    );
    assert_eq!(second.root, folder.path().into());
    assert_eq!((second.browse, second.precompressed, second.index.len()), (false, false, 0));
    assert_eq!(Settings::from_toml(&settings.to_toml()).unwrap(), settings);
}

#[test]
fn a_root_beside_sites_makes_the_default_site_the_first() {
    let folder = Folder::new();
    let mut sources = folder.sources(TWO_SITES);
    flag(&mut sources, "root", &["www"]);
    let settings = sources.load().unwrap();
    assert_eq!(settings.sites.len(), 3);
    assert!(settings.sites[0].hosts.is_empty());
    assert_eq!(settings.sites[0].root, folder.path().join("www").into());
}

#[test]
fn a_flag_overrules_a_root_that_is_not_there() {
    let folder = Folder::new();
    let mut sources = folder.sources("root = \"gone\"");
    assert_eq!(sources.load().unwrap_err().kind(), ConfigErrorKind::Path);
    flag(&mut sources, "root", &["www"]);
    assert!(sources.load().is_ok());
}

#[test]
fn each_architecture_has_its_numbers() {
    let folder = Folder::new();
    let amped = folder.load(DEFAULTS);
    let mp = folder.load("architecture = \"mp\"\nprocesses = 8");
    assert_eq!((mp.architecture, mp.processes), (Architecture::Mp, 8));
    assert_eq!(mp.cache_memory, amped.cache_memory, "all processes share it");
    let mt = folder.load("architecture = \"mt\"\nthreads = 9");
    assert_eq!((mt.architecture, mt.threads, mt.workers), (Architecture::Mt, 9, 1));
    assert_eq!(folder.load("architecture = \"sped\"").workers, amped.workers);
}

#[test]
fn the_store_has_the_size_that_was_asked_for_or_follows_the_memory() {
    let folder = Folder::new();
    let load = |file: &str| folder.load(file).cache_memory;
    let (Settings { workers, helpers_max, .. }, usable) =
        (folder.load(DEFAULTS), flash_waiting::memory::usable());
    let processes_bytes = Crew { workers, helpers_max }.bytes();
    let bytes_max = CacheMemory::of(Auto::Auto, usable, processes_bytes).bytes_max();
    assert_eq!(load(DEFAULTS), CacheMemory::Auto { bytes_max });
    assert_eq!(load("cache_memory = \"auto\"").bytes_max(), bytes_max);
    for file in ["cache_memory = 0", "content_cache = false", "content_cache = false\ncache_memory = 0"] {
        assert_eq!(load(file), CacheMemory::Fixed { bytes: 0, asked_bytes: 0 }, "{file}");
    }
    let large = folder.load("cache_memory = \"1TiB\"");
    if usable.is_some_and(|usable| usable.bytes() < 1 << 40) {
        assert!(large.cache_memory.bytes_max() < 1 << 40);
        assert!(large.warnings()[0].starts_with("cache_memory is lowered from 1TiB to "), "{large:?}");
    }
}

#[test]
fn the_list_of_hot_files_is_somewhere_or_nowhere() {
    let folder = Folder::new();
    let list = |file: &str| folder.load(file).cache_list;
    for file in
        [DEFAULTS, "cache_list = \"\"", "cache_list = \"off\"", "cache_list = \"off\"\ncache_memory = 0"]
    {
        assert_eq!(list(file), None, "{file}");
    }
    assert_eq!(list("cache_list = \"./off\""), Some(folder.path().join("off").into()));
    assert_eq!(list("cache_list = \"/var/lib/flash/hot\""), Some("/var/lib/flash/hot".into()));
    let mut sources = folder.sources("cache_list = \"hot\"");
    variable(&mut sources, "FLASH_CACHE_LIST", "off");
    assert_eq!(sources.load().unwrap().cache_list, None);
}

#[test]
fn the_capability_is_kept_as_far_as_it_is_there() {
    let folder = Folder::new();
    let kept = |file: &str| folder.load(file).cap_fowner;
    let is_there = privileges::has_fowner();
    let by_itself = is_there && privileges::can_forbid_calls();
    assert_eq!((kept(DEFAULTS), kept("cap_fowner = \"auto\"")), (by_itself, by_itself));
    for file in ["cap_fowner = false", "cap_fowner = \"off\"", "sandbox = \"off\""] {
        assert!(!kept(file), "{file}");
    }
    for file in ["cap_fowner = true", "cap_fowner = \"on\"", "cap_fowner = true\nsandbox = \"off\""] {
        if is_there {
            assert!(kept(file), "{file}");
        } else {
            let error = folder.error(file);
            let why = "`cap_fowner` cannot be kept";
            assert!(error.contains(why) && error.contains("does not have CAP_FOWNER"), "{error}");
            assert!(error.contains("AmbientCapabilities=CAP_FOWNER, or remove the setting"), "{error}");
        }
    }
}
