//! Tests of loading as a whole: the order of the sources, inheritance, paths, and the text of every error.

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
        egress_bits_per_s: 0,
        client_connections_max: 8_192,
        client_exempt: vec![Clients::Loopback],
        accept_wait_ms: 1_000,
        log_format: LogFormat::Off,
        log_file: None,
        control: ControlSocket::Default,
        charset: Some("utf-8".to_owned()),
        types: Default::default(),
        sites: vec![Site {
            hosts: Vec::new(),
            root: folder.path().into(),
            index: vec!["index.html".to_owned()],
            browse: false,
            precompressed: true,
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
        listen = ["[::]:80"]
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
    let log_file = Some(folder.path().join("access.log").into());
    assert_eq!((settings.log_format, &settings.log_file), (LogFormat::Json, &log_file));
    assert_eq!((settings.sandbox, settings.cap_fowner), (SandboxMode::Required, false));
    assert_eq!(settings.types["mjs"], "text/javascript");
    assert_eq!(settings.charset.as_deref(), Some("iso-8859-1"));
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
    assert_eq!(settings.log_file, Some(folder.path().join("etc/log").into()));
    variable(&mut sources, "FLASH_ROOT", "www");
    flag(&mut sources, "log_file", &["log"]);
    let settings = sources.load().unwrap();
    assert_eq!(settings.sites[0].root, folder.path().join("www").into());
    assert_eq!(settings.log_file, Some(folder.path().join("log").into()));
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

#[test]
fn a_log_file_makes_the_format_combined() {
    let folder = Folder::new();
    let log = |text: &str| {
        let settings = folder.load(text);
        (settings.log_format, settings.log_file.map(|file| file.to_path_buf()))
    };
    let file = Some(folder.path().join("l"));
    assert_eq!(log(DEFAULTS), (LogFormat::Off, None));
    assert_eq!(log("log_file = \"l\""), (LogFormat::Combined, file.clone()));
    assert_eq!(log("log_file = \"-\""), (LogFormat::Combined, None));
    assert_eq!(log("log_format = \"json\""), (LogFormat::Json, None));
    assert_eq!(log("log_file = \"l\"\nlog_format = \"off\""), (LogFormat::Off, file));
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
fn a_wrong_key_is_shown_with_line_caret_and_suggestion() {
    let folder = Folder::new();
    assert_eq!(
        folder.error("workers = 2\nfreshnes = \"1s\"\n"),
        "\
error: unknown key `freshnes`
 --> flash.toml:2:1
  |
2 | freshnes = \"1s\"
  | ^^^^^^^^ not a setting of Flash
  |
  = help: did you mean `freshness`?
"
    );
}

#[test]
fn everything_wrong_is_shown_at_once() {
    let folder = Folder::new();
    let mut sources = folder.sources(
        "root = \"gone\"\nworkers = 0\nfreshness = 5\n[[site]]\nhosts = [\"a.org\", \"A.org\", \"b.org:80\"]\n",
    );
    variable(&mut sources, "FLASH_HELPERS_MAX", "many");
    let error = sources.load().unwrap_err();
    let text = error.to_string();
    let titles: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
    assert_eq!(
        titles,
        [
            "wrong value `many` for FLASH_HELPERS_MAX: must be a whole number, not negative",
            &format!("cannot serve `{}`", folder.path().join("gone").display()),
            "wrong value for `workers`",
            "wrong value for `freshness`",
            "incomplete site",
            "the host `a.org` is named twice",
            "wrong value for `hosts`",
        ]
    );
    assert_eq!(error.count(), 7);
}

#[test]
fn a_setting_without_effect_is_refused_where_it_was_given() {
    let folder = Folder::new();
    for (file, title, why) in [
        ("processes = 4", "`processes`", "the architecture is `amped`: only `mp` has a process"),
        ("threads = 64", "`threads`", "only `mt` has threads"),
        (
            "architecture = \"mp\"\nworkers = 2",
            "`workers`",
            "`processes` sets its number of worker processes",
        ),
        (
            "architecture = \"sped\"\nhelpers_max = 16",
            "`helpers_max`",
            "the architecture is `sped`: only `amped` has helpers",
        ),
        ("architecture = \"mt\"\nhelper_idle = \"1s\"", "`helper_idle`", "only `amped` has helpers"),
        ("architecture = \"sped\"\nhelpers = \"processes\"", "`helpers`", "only `amped` has helpers"),
        (
            "architecture = \"mp\"\nevent_mechanism = \"poll\"",
            "`event_mechanism`",
            "^^^^^^ the architecture is `mp`",
        ),
        (
            "architecture = \"mt\"\nevent_mechanism = \"epoll\"",
            "`event_mechanism`",
            "only `amped` and `sped` have an event loop",
        ),
        ("architecture = \"mp\"\nconnections = 7", "`connections`", "has one connection at a time"),
        ("architecture = \"mp\"\njob_deadline = \"1s\"", "`job_deadline`", "cannot stop waiting"),
        ("architecture = \"sped\"\njob_deadline = \"30s\"", "`job_deadline`", "cannot stop waiting"),
        ("architecture = \"sped\"\nopen_in_loop = true", "`open_in_loop`", "it always does"),
        ("architecture = \"mp\"\nresidency_check = false", "`residency_check`", "it never checks"),
        ("architecture = \"mt\"\nresidency_check = false", "`residency_check`", "its threads share a lock"),
    ] {
        let error = folder.error(file);
        for part in [title, "cannot be used here", why, "remove it"] {
            assert!(error.contains(part), "{file}: {error}");
        }
    }
    let mut sources = folder.sources("architecture = \"mt\"");
    variable(&mut sources, "FLASH_PROCESSES", "8");
    flag(&mut sources, "helpers_max", &["3"]);
    let error = sources.load().unwrap_err();
    assert_eq!(error.count(), 2, "{error}");
    let text = error.to_string();
    assert!(
        text.contains("`FLASH_PROCESSES` cannot be used") && text.contains("`--helpers-max` cannot be used"),
        "{text}"
    );
}

#[test]
fn what_takes_effect_somewhere_is_taken() {
    let folder = Folder::new();
    for file in [
        "listing_entries = 7\n[[site]]\nhosts = [\"a\"]\nroot = \"www\"\nbrowse = true",
        "architecture = \"mt\"\nconnections = 7\njob_deadline = \"1s\"",
        "architecture = \"sped\"\nconnections = 7\nstale = \"1s\"",
        "name_cache = false",
        "log_file = \"l\"\nlog_format = \"off\"",
    ] {
        folder.load(file);
    }
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

/// Each wrong file, and the texts that its error must contain.
const WRONG: &[(&str, &[&str])] = &[
    ("workers = 300", &["wrong value for `workers`", "1:11", "^^^ must be from 1 to 256"]),
    ("workers = 99999999999999999999", &["must be from 1 to 256"]),
    ("workers = -1", &["must be a whole number"]),
    ("workers = \"2\"", &["must be a whole number, without quotes", "write `2`, without quotes"]),
    ("workers = 1.5", &["must be a whole number, without quotes"]),
    ("freshness = 5", &["^ must be a duration in quotes", "write `\"5ms\"`, `\"5s\"` or `\"5m\"`"]),
    ("freshness = \"5\"", &["the unit is missing; write a number and a unit: 250ms, 1.5s"]),
    ("freshness = \"2h\"", &["must be from 0s to 1h"]),
    ("cache_memory = \"64X\"", &["not a size", "64KiB", "or write `auto`"]),
    ("cache_memory = 512", &["512 is 512 bytes; did you mean 512MiB?"]),
    ("cache_memory = \"2TiB\"", &["must be from 0 to 1TiB"]),
    (
        "cache_list = \"hot\"\ncache_memory = 0",
        &[
            "`cache_list` cannot be used here",
            "no store whose files it could list, because cache_memory is 0",
        ],
    ),
    ("cache_list = \"hot\"\ncontent_cache = false", &["could list, because content_cache is false"]),
    ("spool = \"/tmp\"", &["`spool` cannot be used here", "there are no routes"]),
    ("spool_max = \"1GiB\"", &["`spool_max` cannot be used here", "there are no routes"]),
    ("cache_list = \"l\"\nlog_file = \"l\"", &["`cache_list` needs its own file"]),
    (
        "content_cache = true\ncache_memory = 0",
        &["`cache_memory` cannot be 0 here", "--content-cache asks for the store"],
    ),
    ("name_cache = false\nfreshness = \"1s\"", &["`freshness` cannot be used here", "--no-name-cache"]),
    ("name_cache = false\nstale = \"10s\"", &["`stale` cannot be used here", "looks up its file"]),
    ("listing_entries = 7", &["`listing_entries` cannot be used here", "no site has listings", "--browse"]),
    (
        "listing_entries = 7\n[[site]]\nhosts = [\"a\"]\nroot = \"www\"",
        &["`listing_entries` cannot be used here"],
    ),
    ("cap_fowner = \"maybe\"", &["must be auto, on or off"]),
    ("cap_fowner = 1", &["must be \"auto\", or true or false, without quotes"]),
    ("cache_list = true", &["must be a path in quotes"]),
    ("cache_memory = true", &["must be \"auto\", a number of bytes, or a size in quotes"]),
    ("content_cache = false\ncache_memory = \"auto\"", &["`cache_memory` cannot be used here"]),
    ("browse = \"true\"", &["must be true or false, without quotes", "write `true`, without quotes"]),
    ("listen = \"127.0.0.1:80\"", &["must be a list of addresses", "write `[\"127.0.0.1:80\"]`"]),
    (
        "listen = [\"127.0.0.1:80\", \":81\"]",
        &["1:27", "^^^^^ must be an address and a port", "`127.0.0.1:81`"],
    ),
    ("listen = [80]", &["must be in quotes"]),
    ("listen = []", &["name at least one address"]),
    ("index = [\"a/b\"]", &["must be the name of a file, without `/`"]),
    ("log_format = 3", &["must be combined, combined_host, json or off"]),
    ("helpers = 4", &["must be processes or threads", "--helpers-max (FLASH_HELPERS_MAX, `helpers_max`)"]),
    ("helpers = \"thread\"", &["must be processes or threads", "did you mean `threads`?"]),
    (
        "helpers = \"threads\"\nhelper_idle = \"1s\"",
        &["`helper_idle` cannot be used here", "--helpers processes"],
    ),
    (
        "event_mechanism = \"select\"\nconnections = 5000",
        &["`connections` is too high", "select allows 1024 descriptors, which leaves 670 for connections"],
    ),
    (
        "event_mechanism = \"select\"\nconnections = 300\nhelpers = \"threads\"\nhelpers_max = 64",
        &["`connections` is too high"],
    ),
    (
        "event_mechanism = \"select\"\nhelpers_max = 256\nhelpers = \"threads\"",
        &["`event_mechanism` cannot be select", "need all of them", "fewer sites or helpers"],
    ),
    ("log_format = \"jsn\"", &["must be combined, combined_host, json or off", "did you mean `json`?"]),
    (
        "log_file = \"gone/access.log\"",
        &["cannot write the log `/DIR/gone/access.log`", "`/DIR/gone`: no such file"],
    ),
    ("log_file = \"www\"", &["it is a directory"]),
    ("log_file = \"a\\tb/c\"", &["`/DIR/a b`: no such file"]),
    ("root = \"\"", &["must not be empty"]),
    ("root = \"flash.toml\"", &["cannot serve `/DIR/flash.toml`", "^^^^^^^^^^^^ not a directory"]),
    ("config = \"x\"", &["unknown key `config`"]),
    ("hosts = [\"a\"]", &["hosts belong to a site"]),
    ("[log]\nformat = \"json\"", &["unknown key `log`", "write `log_format = ...` at the top of the file"]),
    ("[server]\nworkers = 2", &["write its keys at the top of the file"]),
    ("[[sites]]\nroot = \"/\"", &["unknown key `sites`", "did you mean `site`?"]),
    ("[site]\nroot = \"/\"", &["write `[[site]]`, in double brackets"]),
    ("[[site]]\nroot = \"www\"", &["1:1", "`hosts` is missing", "hosts = [\"example.org\"]"]),
    ("[[site]]\nhosts = [\"a\"]", &["`root` is missing"]),
    ("[[site]]\nhosts = []\nroot = \"www\"", &["must be a list of names"]),
    (
        "[[site]]\nhosts = [\"a\"]\nroot = \"www\"\nworkers = 2",
        &["4:1", "move `workers` to the top of the file"],
    ),
    ("[[site]]\nhosts = [\"a\"]\nroot = \"www\"\nbrows = true", &["did you mean `browse`?"]),
    (
        "[[site]]\nhosts = [\"a\"]\nroot = \"www\"\n[[site]]\nhosts = [\"A\"]\nroot = \"www\"",
        &["named first", "named again"],
    ),
    ("[types]\n\".mjs\" = \"text/javascript\"", &["without its dot", "write `mjs`"]),
    ("[types]\nworkers = 2", &["move `workers` to the top of the file"]),
    ("[types]\nmjs = \"javascript\"", &["wrong value for `types.mjs`", "must be a content type"]),
    ("[types]\nmjs = \"a/b\"\nMJS = \"a/b\"", &["this extension is given twice"]),
    ("charset = 8", &["must be a name in quotes, such as \"utf-8\" or \"off\""]),
    ("charset = \"utf 8\"", &["must be the name of a character set, such as utf-8, or off"]),
    ("types = 1", &["must be a table, such as [types]"]),
    ("workers = 1\nworkers = 2", &["the config file is not TOML", "2:1", "duplicate key"]),
    ("workers 1", &["the config file is not TOML", "1:"]),
    ("root = \"www", &["the config file is not TOML"]),
];

#[test]
fn wrong_files_say_what_to_write() {
    let folder = Folder::new();
    for (file, parts) in WRONG {
        let error = folder.error(file);
        for part in *parts {
            assert!(error.contains(part), "{file}\n--- must contain: {part}\n--- is:\n{error}");
        }
    }
}

#[test]
fn what_an_error_quotes_does_not_act_on_the_terminal() {
    let folder = Folder::new();
    for file in [
        "[[site]]\nhosts = [\"\\u001b[2J:1\"]\nroot = \"www\"",
        "[types]\n\".\\u001b[2J\" = \"a/b\"",
        "\"\\u001b[2J\" = 1",
        "index = [\"\\u001b[2J/\"]",
        "root = \"\\u001b[2J\"",
    ] {
        let error = folder.error(file);
        assert!(!error.contains('\x1b'), "{file}: {error:?}");
    }
}

#[test]
fn an_emptied_config_file_does_not_publish_the_current_directory() {
    let folder = Folder::new();
    for text in ["", "\n \n", "# root = \"www\"\n"] {
        let error = folder.error(text);
        assert!(error.contains("no directory to serve is named: the config file has no settings"), "{error}");
        let mut sources = folder.sources(text);
        flag(&mut sources, "root", &["."]);
        sources.load().expect("a directory on the command line");
    }
}

#[test]
fn a_config_file_that_cannot_be_read() {
    let folder = Folder::new();
    let mut sources = folder.sources(DEFAULTS);
    flag(&mut sources, "config", &["gone.toml"]);
    let error = sources.load().unwrap_err();
    assert_eq!(error.kind(), ConfigErrorKind::Read);
    assert!(error.to_string().ends_with("gone.toml`: no such file or directory"), "{error}");

    let file = folder.path().join("flash.toml");
    flag(&mut sources, "config", &["flash.toml"]);
    fs::write(&file, b"workers = 1\nroot = \"\xff\"").unwrap();
    assert!(sources.load().unwrap_err().to_string().ends_with("line 2 is not UTF-8"));
    fs::write(&file, vec![b'#'; 1 + FILE_BYTES_MAX as usize]).unwrap();
    assert!(sources.load().unwrap_err().to_string().ends_with("larger than 16MiB"));
    for not_a_file in ["www", "/dev/zero"] {
        flag(&mut sources, "config", &[not_a_file]);
        let error = sources.load().unwrap_err();
        assert!(error.to_string().ends_with("not a regular file"), "{error}");
    }
}

#[test]
fn a_wrong_path_says_who_named_it() {
    let folder = Folder::new();
    let mut sources = folder.sources(DEFAULTS);
    variable(&mut sources, "FLASH_ROOT", "gone");
    let error = sources.load().unwrap_err().to_string();
    assert!(error.ends_with("/gone` (from FLASH_ROOT): no such file or directory"), "{error}");
    flag(&mut sources, "root", &["flash.toml"]);
    flag(&mut sources, "log_file", &["gone/log"]);
    let error = sources.load().unwrap_err().to_string();
    assert!(error.contains("/flash.toml`: not a directory"), "{error}");
    assert!(error.contains("/gone/log` (from --log-file): `"), "{error}");
}

/// No text makes the reader panic, and every problem can be shown.
#[test]
fn pieces_of_a_config_file_are_survived() {
    let folder = Folder::new();
    let whole = "# ü\nlisten = [\"127.0.0.1:80\"]\nfreshness = '''1s'''\n[types]\n\"a\" = \"b/c\"\n[[site]]\nhosts = [\"ä\"]\n";
    for (end, _) in whole.char_indices() {
        for text in [whole[..end].to_owned(), format!("{}=[{{", &whole[..end]), whole[end..].to_owned()] {
            if let Err(error) = folder.sources(&text).load() {
                assert!(error.render(true).len() > 10);
            }
        }
    }
}

#[test]
fn refused_settings_are_named_as_they_were_given() {
    let folder = Folder::new();
    let mut sources = folder.sources("event_mechanism = \"select\"");
    assert_eq!(sources.load().unwrap().connections_max, 16_384, "what fits is what the worker takes");
    variable(&mut sources, "FLASH_CONNECTIONS", "670");
    assert_eq!(sources.load().unwrap().connections_max, 670);
    variable(&mut sources, "FLASH_CONNECTIONS", "671");
    let text = sources.load().unwrap_err().to_string();
    assert!(
        text.contains(
            "error: `FLASH_CONNECTIONS` is too high: select allows 1024 descriptors, which leaves 670"
        ),
        "{text}"
    );
    flag(&mut sources, "connections", &["5000"]);
    let text = sources.load().unwrap_err().to_string();
    assert!(text.contains("error: `--connections` is too high"), "{text}");
    for architecture in ["sped", "mp", "mt"] {
        assert_eq!(folder.load(&format!("architecture = \"{architecture}\"")).helpers_max, 16);
    }
}

const ROUTES: &str = r#"
[[route]]
prefix = "/"
proxy = "[::1]:80"

[[site]]
hosts = ["a.example"]
root = "www"

[[site.route]]
extension = "PHP"
fastcgi = "unix:/run/php/php-fpm.sock"
body_max = "64MiB"
stream_bodies = true
stream_answers = true
answer_timeout = "5m"

[[site.route]]
prefix = "/api/"
proxy = ["10.0.0.1:3000", "unix:/run/app.sock"]
weights = [1, 1000]
probe = "/health?full"
connect_timeout = "250ms"
connections_max = 8
idle_max = 0
queue_max = 16
"#;

#[test]
fn a_site_that_would_send_programs_of_another_one_is_reported() {
    const PHP: &str = "extension = \"php\"\nfastcgi = \"unix:/run/php.sock\"\n";
    let folder = Folder::new();
    fs::create_dir(folder.path().join("other")).unwrap();
    let warnings = |b: &str| {
        let text = format!(
            "[[site]]\nhosts = [\"a.example\"]\nroot = \"www\"\n[[site.route]]\n{PHP}\n[[site]]\nhosts = [\"b.example\"]\n{b}"
        );
        folder.sources(&text).load().unwrap().warnings()
    };
    let found = warnings("root = \"www\"\n");
    let [warning] = &found[..] else { panic!("{found:?}") };
    assert!(warning.starts_with("site b.example sends the source of .php files in /"), "{warning}");
    assert_eq!(warnings("root = \".\"\n").len(), 1, "the directory above");
    for right in [
        format!("root = \"www\"\n[[site.route]]\n{PHP}"),
        "root = \"www\"\n[[site.route]]\nprefix = \"/\"\nproxy = \"127.0.0.1:3000\"\n".to_owned(),
        "root = \"other\"\n".to_owned(),
    ] {
        assert_eq!(warnings(&right), Vec::<String>::new());
    }
}

#[test]
fn routes_belong_to_their_site_in_their_order() {
    let folder = Folder::new();
    let mut sources = folder.sources(ROUTES);
    flag(&mut sources, "root", &["www"]);
    let settings = sources.load().unwrap();
    folder.check_printed(&settings);
    let [of_default, of_site] = &settings.sites[..] else { panic!() };
    let first = Route {
        protocol: UpstreamProtocol::Http,
        servers: vec![ServerAddress::Tcp("[::1]:80".parse().unwrap())],
        weights: Vec::new(),
        body_bytes_max: 10_000_000,
        stream_bodies: false,
        stream_answers: false,
        connect_timeout_ms: 5_000,
        answer_timeout_ms: 60_000,
        connections_max: 128,
        idle_max: 65_536,
        queue_max: 512,
        paths: RoutePaths::Prefix("/".to_owned()),
        tls: None,
        probe: None,
        program: None,
    };
    assert_eq!(of_default.routes, vec![first.clone()]);
    let [php, api] = &of_site.routes[..] else { panic!() };
    let expected = Route {
        protocol: UpstreamProtocol::FastCgi,
        servers: vec![ServerAddress::Unix("/run/php/php-fpm.sock".into())],
        body_bytes_max: 64 << 20,
        stream_bodies: true,
        stream_answers: true,
        answer_timeout_ms: 300_000,
        idle_max: 0,
        paths: RoutePaths::Extension("php".to_owned()),
        ..first.clone()
    };
    assert_eq!(*php, expected);
    let app = ServerAddress::Unix("/run/app.sock".into());
    let expected = Route {
        servers: vec![ServerAddress::Tcp("10.0.0.1:3000".parse().unwrap()), app],
        weights: vec![1, 1000],
        probe: Some(Probe { target: "/health?full".to_owned(), interval_ms: 5_000 }),
        connect_timeout_ms: 250,
        connections_max: 8,
        idle_max: 0,
        queue_max: 16,
        paths: RoutePaths::Prefix("/api/".to_owned()),
        ..first
    };
    assert_eq!(*api, expected);
    assert_eq!(Settings::from_toml(&settings.to_toml()).unwrap(), settings);
    let error = folder.error(ROUTES);
    assert!(error.contains("2:1") && error.contains("there is no default site"), "{error}");
}

#[test]
fn servers_over_tls() {
    let folder = Folder::new();
    let settings = folder.load(
        "[[route]]\nprefix = \"/a/\"\nproxy = [\"https://10.0.0.1\", \"https://[::1]\", \"https://[::1]:8443/\", \"10.0.0.1:80\"]\nserver_name = \"a.example\"\nroots = \"www/ca.pem\"\n\
                [[route]]\nprefix = \"/b/\"\nproxy = \"https://10.0.0.1:1\"\nverify = false\n",
    );
    folder.check_printed(&settings);
    let [a, b] = &settings.sites[0].routes[..] else { panic!() };
    let names: Vec<String> = a.servers.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["https://10.0.0.1:443", "https://[::1]:443", "https://[::1]:8443", "10.0.0.1:80"]);
    let (server_name, roots) = (Some("a.example".to_owned()), Some(folder.path().join("www/ca.pem")));
    assert_eq!(a.tls, Some(RouteTls { verify: true, server_name, roots }));
    assert_eq!(b.tls, Some(RouteTls { verify: false, server_name: None, roots: None }));
    let [warning] = &settings.warnings()[..] else { panic!("{:?}", settings.warnings()) };
    assert!(warning.starts_with("verify = false: anyone on the way to https://10.0.0.1:1"), "{warning}");
    assert_eq!(Settings::from_toml(&settings.to_toml()).unwrap(), settings);
}

#[test]
fn routes_with_programs() {
    let folder = Folder::new();
    let user = current_user();
    let file = format!(
        "[[route]]\nprefix = \"/cgi-bin/\"\ncgi = \"www\"\nmemory_max = \"4MiB\"\nauthorization = true\nuser = {user:?}\n\
                [[route]]\nextension = \"php\"\napp = [\"true\", \"-n\"]\nprocesses = 2\nconnections_max = 3\nuser = {user:?}\n"
    );
    let settings = folder.load(&file);
    let [cgi, app] = &settings.sites[0].routes[..] else { panic!() };
    let program = Program {
        processes: 1,
        memory_bytes_max: 4 << 20,
        authorization: true,
        run_as: privileges::is_root().then(|| RunAs { name: user.clone(), uid: 0, gid: 0, groups: vec![0] }),
        runs: Runs::Cgi(folder.path().join("www")),
    };
    assert_eq!((cgi.program.as_ref(), cgi.connections_max, cgi.idle_max), (Some(&program), 16, 0));
    assert_eq!((cgi.protocol, &cgi.servers[..]), (UpstreamProtocol::FastCgi, &[ServerAddress::Program][..]));
    let program = Program {
        processes: 2,
        memory_bytes_max: 1 << 30,
        authorization: false,
        runs: Runs::App(vec!["true".to_owned(), "-n".to_owned()]),
        ..program
    };
    assert_eq!((app.program.as_ref(), app.connections_max), (Some(&program), 3));
    assert_eq!((&app.servers[..], app.connections_of_worker()), (&[ServerAddress::Program][..], 6));
    assert_eq!(Settings::from_toml(&settings.to_toml()).unwrap(), settings);
}

/// The name of the user that runs this test.
fn current_user() -> String {
    let output = std::process::Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_program_that_its_user_cannot_start_is_refused() {
    let folder = Folder::new();
    let file = |name: &str, text: &str, mode: u32| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        path
    };
    let user = current_user();
    let route = |line: &str, user: &str| format!("[[route]]\nprefix = \"/x/\"\n{line}\nuser = {user:?}\n");
    let broken = file("broken", "#!/none/python\n", 0o755);
    for (line, why) in [
        ("app = \"php-cgj\"".to_owned(), "no such program in /usr/local/sbin"),
        (format!("app = {:?}", file("plain", "", 0o644)), "cannot execute it: permission denied"),
        (format!("app = [{broken:?}, \"x\"]"), "its interpreter `/none/python`: No such file"),
        (format!("cgi = {broken:?}"), "not a directory"),
    ] {
        let error = folder.error(&route(&line, &user));
        assert!(
            error.contains("cannot start `") && error.contains(why) && error.contains("3:"),
            "{line}: {error}"
        );
    }
    if !privileges::is_root() {
        return;
    }
    // Its owner could.
    let private = file("private", "#!/bin/sh\n", 0o700);
    let error = folder.error(&route(&format!("app = {private:?}"), "nobody"));
    assert!(error.contains("user `nobody` cannot execute it"), "{error}");
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let error = folder.error(&route(&format!("cgi = {closed:?}"), "nobody"));
    assert!(error.contains("user `nobody` cannot enter it"), "{error}");
    for (key, value) in [("app", "true"), ("cgi", "www")] {
        let error = folder.error(&format!("[[route]]\nprefix = \"/x/\"\n{key} = {value:?}\n"));
        assert!(error.contains(&format!("`{key}` without `user`, started by root")), "{error}");
        assert!(error.contains("user = \"www-data\""), "{error}");
    }
    let settings = folder.load(&format!("user = \"nobody\"\n{}", route("app = \"true\"", "nobody")));
    let [warning] = &settings.warnings()[..] else { panic!("{:?}", settings.warnings()) };
    assert!(warning.starts_with("`true` has the user of the workers"), "{warning}");
}

#[test]
fn no_index_file_is_a_script_whose_source_could_be_sent() {
    let folder = Folder::new();
    let config = |index: &str| {
        format!("index = [{index}]\n[[route]]\nextension = \"php\"\nfastcgi = \"unix:/run/php.sock\"\n")
    };
    for index in ["\"index.php\"", "\"index.php\", \"index.html\"", "\"index.html\", \"php\"", ""] {
        assert_eq!(folder.load(&config(index)).sites[0].routes.len(), 1, "{index}");
    }
    for later in ["index.php", "a.b.PHP"] {
        let error = folder.error(&config(&format!("\"index.html\", \"{later}\"")));
        assert!(error.contains("2:1") && error.contains(&format!("source of `{later}`")), "{error}");
    }
}

#[test]
fn settings_of_routes_that_cannot_take_effect_are_reported() {
    let folder = Folder::new();
    let warnings = |top: &str, route: &str| {
        let file = format!(
            "workers = 2\n{top}\n[[route]]\nextension = \"php\"\nfastcgi = \"unix:/run/php.sock\"\n{route}"
        );
        folder.load(&file).warnings()
    };
    let [warning] = &warnings("spool_max = \"1GiB\"", "body_max = \"400MiB\"")[..] else { panic!() };
    assert!(warning.contains("400MiB") && warning.contains("spool_max leaves 102"), "{warning}");
    for (top, route) in [
        ("spool_max = \"1GiB\"", "body_max = \"100MiB\""),
        ("spool_max = \"1GiB\"", "body_max = \"400MiB\"\nstream_bodies = true"),
        ("spool = \"off\"", "body_max = \"400MiB\""),
        ("index = [\"index.php\"]", ""),
        ("index = [\"index.html\", \"a.html\"]", ""),
    ] {
        assert_eq!(warnings(top, route), Vec::<String>::new(), "{top} {route}");
    }
    let [warning] = &warnings("index = [\"index.php\", \"index.html\"]", "")[..] else { panic!() };
    assert!(warning.starts_with("the default site never tries index.html"), "{warning}");
}

#[test]
fn routes_need_an_event_loop_and_are_bounded() {
    let folder = Folder::new();
    let routes = |architecture: &str| {
        format!("architecture = \"{architecture}\"\n[[route]]\nprefix = \"/\"\nproxy = \"127.0.0.1:1\"\n")
    };
    assert_eq!(folder.load(&routes("sped")).sites[0].routes.len(), 1);
    for architecture in ["mp", "mt"] {
        let error = folder.error(&routes(architecture));
        assert!(error.contains("2:1") && error.contains("`route` cannot be used here"), "{error}");
        assert!(error.contains("only `amped` and `sped` have an event loop"), "{error}");
    }
    let site = |n| format!("[[site]]\nhosts = [\"h{n}\"]\nroot = \"www\"\n");
    let route = "[[site.route]]\nprefix = \"/\"\nproxy = \"127.0.0.1:1\"\n";
    let many = |count| (0..2).map(|n| site(n) + &route.repeat(count)).collect::<String>();
    assert_eq!(folder.load(&many(128)).routes().count(), 256);
    assert!(folder.error(&many(129)).contains("too many routes in the whole file: at most 256"));
}

/// Each wrong route, and the texts that its error must contain.
const WRONG_ROUTES: &[(&str, &[&str])] = &[
    (
        "proxy = \"127.0.0.1:1\"",
        &["incomplete route", "`prefix` or `extension` is missing", "prefix = \"/api/\""],
    ),
    (
        "prefix = \"/\"",
        &["incomplete route", "`proxy`, `fastcgi`, `app` or `cgi` is missing", "proxy = \"127.0.0.1:3000\""],
    ),
    (
        "prefix = \"/\"\nextension = \"php\"\nproxy = \"127.0.0.1:1\"",
        &["a route has `prefix` or `extension`, not both", "write two routes"],
    ),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nfastcgi = \"127.0.0.1:1\"",
        &["a route has `proxy` or `fastcgi`, not both"],
    ),
    ("prefix = \"api\"\nproxy = \"127.0.0.1:1\"", &["must begin with `/`", "write `/api`"]),
    ("prefix = 1\nproxy = \"127.0.0.1:1\"", &["must be a text in quotes"]),
    ("extension = \".php\"\nproxy = \"127.0.0.1:1\"", &["without its dot", "write `php`"]),
    ("extension = \"a/b\"\nproxy = \"127.0.0.1:1\"", &["must be a file extension"]),
    ("prefix = \"/\"\nproxy = 1", &["wrong value for `proxy`", "must be a list of addresses"]),
    ("prefix = \"/\"\nproxy = []", &["name at least one server"]),
    ("prefix = \"/\"\nproxy = [\"127.0.0.1:1\", \"127.0.0.1:1\"]", &["3:25", "given twice"]),
    ("prefix = \"/\"\nproxy = \"127.0.0.1:0\"", &["the port must not be 0"]),
    ("prefix = \"/\"\nproxy = \"10.0.0.1\"", &["must be an address and a port", "add the port"]),
    ("prefix = \"/\"\nproxy = \"localhost:3000\"", &["did you mean `127.0.0.1:3000`?"]),
    ("prefix = \"/\"\nproxy = \"http://10.0.0.1:3000/x\"", &["did you mean `10.0.0.1:3000`?"]),
    (
        "prefix = \"/\"\nproxy = \"app.example:3000\"",
        &["write an address instead of a host name: Flash does not resolve names"],
    ),
    ("prefix = \"/\"\nfastcgi = \"/run/x.sock\"", &["write `unix:/run/x.sock`"]),
    ("prefix = \"/\"\nfastcgi = \"unix:x.sock\"", &["must be an absolute path after `unix:`"]),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nstream_bodies = 1",
        &["wrong value for `stream_bodies`", "must be true or false, without quotes"],
    ),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nbody_max = \"1X\"",
        &["wrong value for `body_max`", "not a size"],
    ),
    ("prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nconnect_timeout = 5", &["must be a duration in quotes"]),
    ("prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nconnections_max = 0", &["must be from 1 to 65536"]),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nqueue = 1",
        &["unknown key `queue` in a route", "not a setting of a route"],
    ),
    ("prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nfastcg = 1", &["did you mean `fastcgi`?"]),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nbrowse = true",
        &["move `browse` above the first route of its site"],
    ),
    ("prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nuser = \"x\"", &["applies to a route with `app` or `cgi`"]),
    ("prefix = \"/\"\ncgi = \"www\"\nprocesses = 2", &["applies to a route with `app`"]),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nweights = [1, 2]",
        &["wrong value for `weights`", "must be a list with a number from 1 to 1000 for each server"],
    ),
    ("prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nweights = [0]", &["wrong value for `weights`"]),
    (
        "prefix = \"/\"\ncgi = \"www\"\nidle_max = 1",
        &["wrong key `idle_max`", "applies to a route with `proxy` or `fastcgi` or `app`"],
    ),
    ("prefix = \"/\"\nfastcgi = \"127.0.0.1:1\"\nprobe = \"/\"", &["applies to a route with `proxy`"]),
    ("prefix = \"/\"\ncgi = \"www\"\nprobe_interval = \"1s\"", &["applies to a route with `proxy`"]),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nprobe_interval = \"1s\"",
        &[
            "`probe_interval` without `probe`",
            "`probe` is missing",
            "add a line such as `probe = \"/health\"`",
        ],
    ),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nprobe = \"health\"",
        &["wrong value for `probe`", "must begin with `/`", "write `/health`"],
    ),
    ("prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nprobe = 1", &["must be a text in quotes"]),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nprobe = \"/a b\"",
        &["wrong value for `probe`", "without spaces", "%20 for a space"],
    ),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nprobe = \"/a\\r\\nX: y\"",
        &["wrong value for `probe`", "control characters"],
    ),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nprobe = \"/\"\nprobe_interval = \"99ms\"",
        &["wrong value for `probe_interval`", "100ms"],
    ),
    ("prefix = \"/\"\ncgi = \"www\"\nweights = [1]", &["applies to a route with `proxy` or `fastcgi`"]),
    (
        "prefix = \"/\"\nproxy = \"https://backend.example:8443\"",
        &[
            "Flash does not resolve names",
            "write `https://ADDRESS:8443`, and `server_name = \"backend.example\"` in the route",
        ],
    ),
    (
        "prefix = \"/\"\nproxy = \"https://10.0.0.1/api\"",
        &["the servers of a route get the paths of its requests", "write `https://10.0.0.1`"],
    ),
    ("prefix = \"/\"\nproxy = \"https://10.0.0.1:0\"", &["the port must not be 0"]),
    (
        "prefix = \"/\"\nfastcgi = \"https://10.0.0.1:9000\"",
        &["wrong value for `fastcgi`", "FastCGI has no form over TLS", "or use `proxy`"],
    ),
    ("prefix = \"/\"\napp = \"true\"\nverify = false", &["applies to a route with `proxy`"]),
    (
        "prefix = \"/\"\nproxy = \"10.0.0.1:443\"\nserver_name = \"a\"",
        &["`server_name` without a server over TLS", "begins with `https://`"],
    ),
    (
        "prefix = \"/\"\nproxy = \"https://10.0.0.1\"\nserver_name = \"a:443\"",
        &["wrong value for `server_name`", "without a port"],
    ),
    (
        "prefix = \"/\"\nproxy = \"https://10.0.0.1\"\nverify = false\nroots = \"ca.pem\"",
        &["`roots` with `verify = false`", "remove one of the two lines"],
    ),
    ("prefix = \"/\"\ncgi = \"gone\"", &["cannot start `", "/gone`", "no such file or directory"]),
    ("prefix = \"/\"\ncgi = 1", &["wrong value for `cgi`"]),
    ("prefix = \"/\"\ncgi = \"\"", &["wrong value for `cgi`", "must not be empty"]),
    ("prefix = \"/\"\napp = \"/\"", &["cannot start `/`", "not a file"]),
    ("prefix = \"/\"\napp = []", &["must be a program, or a list of a program and its arguments, in quotes"]),
    ("prefix = \"/\"\napp = \"python3 /x.py\"", &["is one word", "write `[\"python3\", \"/x.py\"]`"]),
    ("prefix = \"/\"\napp = \"x\"\nprocesses = 0", &["must be from 1 to 64"]),
    ("prefix = \"/\"\napp = \"x\"\nuser = \"no such user\"", &["must be a user"]),
    ("prefix = \"/\"\napp = \"x\"\nuser = \"nosuchuser\"", &["cannot run as `nosuchuser`"]),
    ("prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nworkers = 2", &["move `workers` to the top of the file"]),
];

#[test]
fn wrong_routes_say_what_to_write() {
    let folder = Folder::new();
    for (route, parts) in WRONG_ROUTES {
        let error = folder.error(&format!("[[route]]\n{route}\n"));
        for part in *parts {
            assert!(error.contains(part), "{route}\n--- must contain: {part}\n--- is:\n{error}");
        }
    }
    let path = format!("[[route]]\nprefix = \"/\"\nproxy = \"unix:/{}\"", "x".repeat(107));
    assert!(folder.error(&path).contains("a path of at most 107 bytes"));
    assert!(folder.error("[route]\nprefix = \"/\"").contains("write `[[site.route]]`, in double brackets"));
    assert!(folder.error("[[routes]]\nprefix = \"/\"").contains("did you mean `route`?"));
}

#[test]
fn rules_belong_to_their_site_in_their_order() {
    let folder = Folder::new();
    let settings = folder.load(
        r#"
        root = "www"
        [[rule]]
        set = { X-Frame-Options = "DENY" }
        add = { Link = ["</a>", "</b>"] }
        remove = ["Server", "ETag"]
        errors = true
        allow = ["loopback", "10.0.0.0/8"]
        deny = ["10.1.0.0/16"]
        [[rule]]
        path = "/old/*/x"
        redirect = "https://example.org/$1?y"
        [[site]]
        hosts = ["example.org"]
        root = "www"
        [[site.rule]]
        path = "/a"
        redirect = "/b"
        status = 308
        "#,
    );
    let field = |name: &str, value: &str| HeadField { name: name.to_owned(), value: value.to_owned() };
    let [all, old] = &settings.sites[0].rules[..] else { panic!("{:?}", settings.sites[0].rules) };
    assert_eq!((all.path.as_str(), &all.set[..]), ("*", &[field("X-Frame-Options", "DENY")][..]));
    assert_eq!((&all.add[..], all.errors), (&[field("Link", "</a>"), field("Link", "</b>")][..], true));
    assert_eq!((&all.remove[..], &all.redirect), (&["Server".to_owned(), "ETag".to_owned()][..], &None));
    assert_eq!(
        (&old.redirect, old.status),
        (&Some("https://example.org/$1?y".into()), RedirectStatus::Found)
    );
    assert_eq!(settings.sites[1].rules[0].status, RedirectStatus::Permanent);
}

/// Rules that are wrong, and parts of what is said about each.
const WRONG_RULES: &[(&str, &[&str])] = &[
    (
        "path = \"/a\"",
        &["incomplete rule", "neither refuses clients, nor changes fields", "add a line such as `set"],
    ),
    (
        "path = \"a\"\nredirect = \"/b\"",
        &["wrong value for `path`", "must begin with `/` or `*`", "write `/a`"],
    ),
    ("path = \"/*********\"\nredirect = \"/b\"", &["8 `*`"]),
    ("set = \"x\"", &["must be a table of fields, such as { \"Cache-Control\" = \"no-cache\" }"]),
    ("allow = []", &["wrong value for `allow`", "name at least one network"]),
    ("deny = [\"10.0.0.1/8\"]", &["did you mean `10.0.0.0/8`?"]),
    ("set = {}", &["name at least one field"]),
    ("set = { Age = 1 }", &["must be a text in quotes, or a list of them"]),
    (
        "set = { \"Content-Type\" = \"x\" }",
        &["`Content-Type` follows from the answer", "write it in `[types]`"],
    ),
    ("add = { Transfer-Encoding = \"x\" }", &["`Transfer-Encoding` follows from the answer"]),
    ("remove = [\"content-length\"]", &["`content-length` follows from the answer"]),
    ("set = { Strict-Transport-Security = \"max-age=1\" }", &["set `hsts` instead"]),
    ("remove = [\"a b\"]", &["must be the name of a field, such as Cache-Control"]),
    ("set = { ETag = \"x\" }", &["`ETag` differs from file to file; a rule can only remove it"]),
    ("set = { Vary = \"x\" }", &["`Vary` in `set`", "write it in `add`"]),
    ("remove = [\"vary\"]", &["`Vary` in `remove`"]),
    ("set = { X = \"a\\r\\nY: b\" }", &["the value of `X` must be a text of ASCII, in one line"]),
    ("set = { X = \"\" }", &["the value of `X` must be a text"]),
    ("redirect = \"b\"", &["must be a path that begins with one `/`"]),
    ("redirect = \"//b\"", &["must be a path that begins with one `/`"]),
    ("redirect = \"https://x.example$1\"", &["must have a host of its own", "`https://example.org/$1`"]),
    ("redirect = \"/a b\"", &["encode other bytes, such as %20"]),
    ("path = \"/a*\"\nredirect = \"/b/$2\"", &["`$2` in `redirect`", "`path` has 1 `*`"]),
    ("redirect = \"/a\"\nstatus = 304", &["must be 301, 302, 303, 307 or 308"]),
    ("set = { X = \"1\" }\nstatus = 301", &["`status` without `redirect`"]),
    ("redirect = \"https://x.example/\"\nerrors = true", &["`errors` without `set`, `add` or `remove`"]),
    (
        "path = \"/*\"\nredirect = \"/a/$1\"",
        &["redirects in a circle", "a client at /x is redirected without an end"],
    ),
    ("path = \"/%41\"\nredirect = \"/%2541\"", &["redirects in a circle"]),
    ("set = { X = \"1\" }\nbrowse = true", &["move `browse` above the first rule of its site"]),
    ("set = { X = \"1\" }\nworkers = 1", &["move `workers` to the top of the file"]),
    (
        "set = { X = \"1\" }\nredirct = \"/a\"",
        &["unknown key `redirct` in a rule", "did you mean `redirect`?"],
    ),
];

#[test]
fn wrong_rules_say_what_to_write() {
    let folder = Folder::new();
    for (rule, parts) in WRONG_RULES {
        let error = folder.error(&format!("root = \"www\"\n[[rule]]\n{rule}\n"));
        for part in *parts {
            assert!(error.contains(part), "{rule}\n--- must contain: {part}\n--- is:\n{error}");
        }
    }
    let site = "[[site]]\nhosts = [\"example.org\"]\nroot = \"www\"\n[[site.rule]]\npath = \"/*\"\n";
    assert!(
        folder.error(&format!("{site}redirect = \"https://Example.org:443/$1\"")).contains("in a circle")
    );
    folder.load(&format!("{site}redirect = \"https://www.example.org/$1\""));
}

#[test]
fn rules_that_no_request_reaches_are_reported() {
    let folder = Folder::new();
    let warnings = |rules: &[(&str, &str)]| {
        let rule =
            |(path, target): &(&str, &str)| format!("[[rule]]\npath = \"{path}\"\nredirect = \"{target}\"\n");
        let rules: String = rules.iter().map(rule).collect();
        folder.load(&format!("root = \"www\"\n{rules}")).warnings().join("\n")
    };
    assert_eq!(warnings(&[("/a", "/1"), ("/a*", "/2"), ("/b/*", "/3")]), "");
    for later in ["/a", "/a/*", "/a/*/b"] {
        let warning = warnings(&[("/a*", "/1"), (later, "/2")]);
        assert!(
            warning.contains(&format!("the default site never redirects {later}: an earlier rule, for /a*,"))
        );
    }
    assert!(warnings(&[("/a", "/1"), ("/a", "/2")]).contains("never redirects /a"));
}
