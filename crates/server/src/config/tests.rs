//! Tests of loading as a whole: the order of the sources, inheritance, paths, and every error as it
//! is shown.

use std::ffi::OsStr;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A fresh folder with `www/` in it, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("flash-config-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("www")).unwrap();
        Folder(path)
    }

    /// Sources with this folder as the current one, this config file, and nothing else.
    fn sources(&self, file: &str) -> Sources {
        fs::write(self.0.join("flash.toml"), file).unwrap();
        let mut sources = Sources { cli: Overrides::default(), env: Vec::new(), cwd: self.0.clone() };
        flag(&mut sources, "config", &["flash.toml"]);
        sources
    }

    fn load(&self, file: &str) -> Settings {
        self.sources(file).load().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The error for a config file, with the folder's name taken out.
    fn error(&self, file: &str) -> String {
        let error = self.sources(file).load().unwrap_err();
        format!("{error}\n").replace(&self.0.display().to_string(), "/DIR")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

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
    let sources = Sources { cli: Overrides::default(), env: Vec::new(), cwd: folder.0.clone() };
    let settings = sources.load().unwrap();
    let expected = Settings {
        listen: vec!["127.0.0.1:8080".parse().unwrap()],
        architecture: Architecture::Amped,
        workers: std::thread::available_parallelism().unwrap().get().min(256),
        processes: 32,
        threads: 64,
        event_mechanism: EventMechanism::Epoll,
        helpers: HelperKind::Processes,
        helpers_max: 16,
        freshness_ms: 1_000,
        stale_ms: 10_000,
        etag: EtagTime::Modified,
        cache_memory_bytes: settings.cache_memory_bytes,
        connections_max: 16_384,
        head_timeout_ms: 10_000,
        idle_timeout_ms: 60_000,
        job_deadline_ms: 30_000,
        shutdown_timeout_ms: 30_000,
        reload_timeout_ms: 0,
        helper_idle_ms: 10_000,
        least_rate_bytes_per_s: 1_024,
        listing_entries_max: 10_000,
        sandbox: SandboxMode::Auto,
        cap_fowner: false,
        run_as: settings.run_as.clone(),
        optimizations: Optimizations {
            name_cache: true,
            head_cache: true,
            send: SendBy::Read,
            align_heads: false,
            open_in_loop: false,
            residency_check: true,
        },
        log: LogSettings { format: LogFormat::Off, file: None },
        control: ControlSocket::Default,
        types: Default::default(),
        sites: vec![Site {
            hosts: Vec::new(),
            root: folder.0.clone(),
            index: vec!["index.html".to_owned()],
            browse: false,
            precompressed: true,
            encoded_slash: EncodedSlash::Decode,
        }],
    };
    assert_eq!(settings, expected);
    assert_eq!(folder.load(""), expected, "an empty file changes nothing");
}

#[test]
fn the_control_socket_is_somewhere_nowhere_or_where_it_is_by_default() {
    let folder = Folder::new();
    let control = |file: &str| folder.load(file).control;
    assert_eq!(control(""), ControlSocket::Default);
    assert_eq!(control("control = \"none\""), ControlSocket::Off);
    assert_eq!(control("control = \"./none\""), ControlSocket::At(folder.0.join("none")));
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
    fs::write(folder.0.join("flash.toml"), "workers = 2\nhelpers_max = 2").unwrap();
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
        etag = "changed"
        listen = ["[::]:80"]
        workers = 0x10
        helpers_max = 1
        freshness = "250ms"
        cache_memory = 1_048_576
        connections = 7
        head_timeout = "1s"
        idle_timeout = "2s"
        job_deadline = "3s"
        shutdown_timeout = "4s"
        reload_timeout = "6s"
        helper_idle = "5s"
        least_rate = "2KiB"
        listing_entries = 6
        user = "UID"
        cap_fowner = true
        sandbox = "required"
        log_format = "json"
        log_file = "access.log"
        architecture = "amped"
        event_mechanism = "poll"
        helpers = "processes"
        [types]
        MJS = "text/javascript"
        "#
        .replace("UID", &flash_waiting::sandbox::privileges::user().to_string())
        .as_str(),
    );
    assert_eq!((settings.workers, settings.cache_memory_bytes), (16, 1 << 20));
    assert_eq!(settings.least_rate_bytes_per_s, 2_048);
    let times = [
        settings.freshness_ms,
        settings.head_timeout_ms,
        settings.idle_timeout_ms,
        settings.job_deadline_ms,
        settings.shutdown_timeout_ms,
        settings.helper_idle_ms,
        settings.reload_timeout_ms,
    ];
    assert_eq!(times, [250, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000]);
    assert_eq!((settings.connections_max, settings.listing_entries_max), (7, 6));
    assert_eq!(
        settings.log,
        LogSettings { format: LogFormat::Json, file: Some(folder.0.join("access.log")) }
    );
    assert_eq!((settings.sandbox, settings.cap_fowner), (SandboxMode::Required, true));
    assert_eq!(settings.types["mjs"], "text/javascript");
    assert_eq!(
        (settings.architecture, settings.event_mechanism, settings.helpers, settings.helpers_max),
        (Architecture::Amped, EventMechanism::Poll, HelperKind::Processes, 1)
    );
    let site = &settings.sites[0];
    assert_eq!((site.root.clone(), site.browse, site.precompressed), (folder.0.join("www"), true, false));
    assert_eq!(site.index, ["a.html", "b.html"]);
    assert_eq!((site.encoded_slash, settings.etag), (EncodedSlash::Refuse, EtagTime::Changed));
    assert_eq!(Settings::from_toml(&settings.to_toml()).unwrap(), settings);
}

#[test]
fn relative_paths_start_at_the_file_or_at_the_current_directory() {
    let folder = Folder::new();
    fs::create_dir_all(folder.0.join("etc/www")).unwrap();
    fs::write(folder.0.join("etc/flash.toml"), "root = \"www\"\nlog_file = \"log\"").unwrap();
    let mut sources = Sources { cli: Overrides::default(), env: Vec::new(), cwd: folder.0.clone() };
    variable(&mut sources, "FLASH_CONFIG", "etc/flash.toml");
    assert_eq!(sources.config_file(), Some("etc/flash.toml".into()));
    let settings = sources.load().unwrap();
    assert_eq!(settings.sites[0].root, folder.0.join("etc/www"));
    assert_eq!(settings.log.file, Some(folder.0.join("etc/log")));
    variable(&mut sources, "FLASH_ROOT", "www");
    flag(&mut sources, "log_file", &["log"]);
    let settings = sources.load().unwrap();
    assert_eq!(settings.sites[0].root, folder.0.join("www"));
    assert_eq!(settings.log.file, Some(folder.0.join("log")));
}

#[test]
fn a_log_file_makes_the_format_combined() {
    let folder = Folder::new();
    let log = |text: &str| folder.load(text).log;
    assert_eq!(log("").format, LogFormat::Off);
    assert_eq!(log("log_file = \"l\"").format, LogFormat::Combined);
    assert_eq!(log("log_file = \"-\""), LogSettings { format: LogFormat::Combined, file: None });
    assert_eq!(log("log_format = \"json\""), LogSettings { format: LogFormat::Json, file: None });
    assert_eq!(log("log_file = \"l\"\nlog_format = \"off\"").format, LogFormat::Off);
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
    assert_eq!(second.root, folder.0);
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
    assert_eq!(settings.sites[0].root, folder.0.join("www"));
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
            &format!("cannot serve `{}`", folder.0.join("gone").display()),
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
fn what_does_nothing_with_the_architecture_is_refused_where_it_was_given() {
    let folder = Folder::new();
    for (file, title, why) in [
        ("processes = 4", "`processes`", "the architecture is `amped`: only `mp` has a process"),
        ("threads = 64", "`threads`", "only `mt` has threads"),
        ("architecture = \"mp\"\nworkers = 2", "`workers`", "set by `processes`"),
        (
            "architecture = \"sped\"\nhelpers_max = 16",
            "`helpers_max`",
            "the architecture is `sped`: it has no helpers",
        ),
        ("architecture = \"mt\"\nhelper_idle = \"1s\"", "`helper_idle`", "it has no helpers"),
        ("architecture = \"sped\"\nhelpers = \"processes\"", "`helpers`", "it has no helpers"),
        (
            "architecture = \"mp\"\nevent_mechanism = \"poll\"",
            "`event_mechanism`",
            "^^^^^^ the architecture is `mp`",
        ),
        (
            "architecture = \"mt\"\nevent_mechanism = \"epoll\"",
            "`event_mechanism`",
            "it has no loop over many",
        ),
        ("architecture = \"sped\"\nopen_in_loop = true", "`open_in_loop`", "it does so in any case"),
        ("architecture = \"mp\"\nresidency_check = false", "`residency_check`", "it never asks"),
        ("architecture = \"mt\"\nresidency_check = false", "`residency_check`", "its threads share a lock"),
    ] {
        let error = folder.error(file);
        for part in [title, "makes no sense here", why, "leave it out"] {
            assert!(error.contains(part), "{file}: {error}");
        }
    }
    let mut sources = folder.sources("architecture = \"mt\"");
    variable(&mut sources, "FLASH_PROCESSES", "8");
    flag(&mut sources, "helpers_max", &["3"]);
    let error = sources.load().unwrap_err();
    assert_eq!(error.count(), 2, "{error}");
    let text = error.to_string();
    assert!(text.contains("`FLASH_PROCESSES` makes") && text.contains("`--helpers-max` makes"), "{text}");
}

#[test]
fn each_architecture_has_its_numbers() {
    let folder = Folder::new();
    let amped = folder.load("");
    let mp = folder.load("architecture = \"mp\"\nprocesses = 8");
    assert_eq!((mp.architecture, mp.processes), (Architecture::Mp, 8));
    let all_bytes = amped.cache_memory_bytes * amped.workers as u64;
    assert_eq!(mp.cache_memory_bytes, all_bytes / 8, "all together have as much as all workers");
    let mt = folder.load("architecture = \"mt\"\nthreads = 9");
    assert_eq!((mt.architecture, mt.threads, mt.workers), (Architecture::Mt, 9, 1));
    assert_eq!(folder.load("architecture = \"sped\"").workers, amped.workers);
}

/// Each wrong file, and what its error must contain.
const WRONG: &[(&str, &[&str])] = &[
    ("workers = 300", &["wrong value for `workers`", "1:11", "^^^ must be from 1 to 256"]),
    ("workers = 99999999999999999999", &["must be from 1 to 256"]),
    ("workers = -1", &["must be a whole number"]),
    ("workers = \"2\"", &["must be a whole number, without quotes", "write `2`, without quotes"]),
    ("workers = 1.5", &["must be a whole number, without quotes"]),
    ("freshness = 5", &["^ must be a duration in quotes", "write `\"5ms\"`, `\"5s\"` or `\"5m\"`"]),
    ("freshness = \"5\"", &["the unit is missing; write a whole number and a unit: 250ms, 5s, 2m or 1h"]),
    ("freshness = \"2h\"", &["must be from 0s to 1h"]),
    ("cache_memory = \"64M\"", &["not a size", "64KiB"]),
    ("cache_memory = \"2TiB\"", &["must be from 0 to 1TiB"]),
    ("browse = \"true\"", &["must be true or false, without quotes", "write `true`, without quotes"]),
    ("listen = \"127.0.0.1:80\"", &["must be a list of addresses", "write `[\"127.0.0.1:80\"]`"]),
    (
        "listen = [\"127.0.0.1:80\", \":81\"]",
        &["1:27", "^^^^^ must be an address and a port", "`127.0.0.1:81`"],
    ),
    ("listen = [80]", &["must be in quotes"]),
    ("listen = []", &["name at least one address"]),
    ("index = [\"a/b\"]", &["must be the name of a file, without `/`"]),
    ("log_format = 3", &["must be combined, json or off"]),
    ("helpers = 4", &["must be processes or threads", "--helpers-max (FLASH_HELPERS_MAX, `helpers_max`)"]),
    ("helpers = \"thread\"", &["must be processes or threads", "did you mean `threads`?"]),
    (
        "helpers = \"threads\"\nhelper_idle = \"1s\"",
        &["`helper_idle` makes no sense here", "--helpers processes"],
    ),
    (
        "event_mechanism = \"select\"\nconnections = 5000",
        &["`connections` is too many", "select has room for 670: it takes descriptors below 1024"],
    ),
    (
        "event_mechanism = \"select\"\nconnections = 300\nhelpers = \"threads\"\nhelpers_max = 64",
        &["`connections` is too many"],
    ),
    (
        "event_mechanism = \"select\"\nhelpers_max = 256\nhelpers = \"threads\"",
        &["`event_mechanism` cannot be select", "none are left for connections", "fewer sites or helpers"],
    ),
    ("log_format = \"jsn\"", &["must be combined, json or off", "did you mean `json`?"]),
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
    ("[site]\nroot = \"/\"", &["write `[[site]]`, in two pairs of brackets"]),
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
fn a_config_file_that_cannot_be_read() {
    let folder = Folder::new();
    let mut sources = folder.sources("");
    flag(&mut sources, "config", &["gone.toml"]);
    let error = sources.load().unwrap_err();
    assert_eq!(error.kind(), ConfigErrorKind::Read);
    assert!(error.to_string().ends_with("gone.toml`: no such file or directory"), "{error}");

    let file = folder.0.join("flash.toml");
    flag(&mut sources, "config", &["flash.toml"]);
    fs::write(&file, b"workers = 1\nroot = \"\xff\"").unwrap();
    assert!(sources.load().unwrap_err().to_string().ends_with("line 2 is not UTF-8"));
    fs::write(&file, vec![b'#'; 1 + FILE_BYTES_MAX as usize]).unwrap();
    assert!(sources.load().unwrap_err().to_string().ends_with("larger than 1MiB"));
    for not_a_file in ["www", "/dev/zero"] {
        flag(&mut sources, "config", &[not_a_file]);
        let error = sources.load().unwrap_err();
        assert!(error.to_string().ends_with("not a regular file"), "{error}");
    }
}

#[test]
fn a_wrong_path_says_who_named_it() {
    let folder = Folder::new();
    let mut sources = folder.sources("");
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
fn combinations_are_named_as_they_were_given_and_defaults_are_none() {
    let folder = Folder::new();
    let mut sources = folder.sources("event_mechanism = \"select\"");
    assert_eq!(sources.load().unwrap().connections_max, 16_384, "what fits is what the worker takes");
    variable(&mut sources, "FLASH_CONNECTIONS", "670");
    assert_eq!(sources.load().unwrap().connections_max, 670);
    variable(&mut sources, "FLASH_CONNECTIONS", "671");
    let text = sources.load().unwrap_err().to_string();
    assert!(text.contains("error: `FLASH_CONNECTIONS` is too many: select has room for 670"), "{text}");
    flag(&mut sources, "connections", &["5000"]);
    let text = sources.load().unwrap_err().to_string();
    assert!(text.contains("error: `--connections` is too many"), "{text}");
    for architecture in ["sped", "mp", "mt"] {
        assert_eq!(folder.load(&format!("architecture = \"{architecture}\"")).helpers_max, 16);
    }
}
