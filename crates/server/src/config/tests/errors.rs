//! Tests of wrong settings: the text of every error, and its place.

use super::*;

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
fn a_value_of_the_wrong_kind_is_shown_whichever_setting_has_it() {
    let folder = Folder::new();
    let top = options::OPTIONS.iter().filter(|spec| spec.is_in_file()).map(|spec| (spec.key, ""));
    let of_rules = super::super::rule_options::RULE_OPTIONS.iter().map(|spec| (spec.key, "[[rule]]\n"));
    let of_routes = super::super::route_options::ROUTE_OPTIONS
        .iter()
        .map(|spec| (spec.key, "[[route]]\nprefix = \"/a/\"\n"));
    let mut count = 0;
    for (key, table) in top.chain(of_rules).chain(of_routes).filter(|(key, _)| *key != "prefix") {
        count += 1;
        let error = folder.error(&format!("{table}{key} = 1979-05-27\n"));
        let line = table.lines().count() + 1;
        for part in [&format!("wrong value for `{key}`"), &format!(" --> flash.toml:{line}:"), "^^^^"] {
            assert!(error.contains(part), "{key}: {part}\n{error}");
        }
    }
    assert!(count > 100, "{count}");
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
fn wrong_values_of_listeners_and_proxies_are_shown() {
    let folder = Folder::new();
    for (line, why) in [
        ("trusted_proxies = [\"10.0.0.0/33\"]", "must be a network, such as 10.0.0.0/8"),
        ("trusted_proxies = [\"proxy.example\"]", "or `loopback` or `unix`"),
        ("proxy_protocol = [\"10.0.0.300\"]", "must be a network"),
        ("proxy_field = \"x-real-ip\"", "must be x-forwarded-for or forwarded"),
        ("listen_mode = \"0999\"", "must be three octal digits, such as 0660 or 0666"),
        ("listen_mode = \"rw\"", "must be three octal digits"),
        ("listen_tls = [\"0.0.0.0\"]", "did you mean `0.0.0.0:8080`?"),
        ("listen_tls = [\"unix:\"]", "a path must follow `unix:`"),
        ("compress = \"yes\"", "must be true or false, without quotes"),
    ] {
        let error = folder.error(&format!("workers = 2\n{line}\n"));
        let (key, _) = line.split_once(' ').unwrap();
        for part in [&format!("wrong value for `{key}`"), " --> flash.toml:2:", "^", why] {
            assert!(error.contains(part), "{line}: {error}");
        }
    }
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
    ("server_field = false\nalign_heads = true", &["`align_heads` cannot be used here", "Server is off"]),
    (
        "architecture = \"mp\"\nprocesses = 257\n[[rule]]\nconcurrency = 1",
        &["`processes` is too high", "at most 256 count requests together"],
    ),
    ("spool = \"/tmp\"", &["`spool` cannot be used here", "there are no routes"]),
    ("spool_max = \"1GiB\"", &["`spool_max` cannot be used here", "there are no routes"]),
    ("log_rotate_size = \"1MiB\"\nlog_format = \"json\"", &["`log_rotate_size`", "no log_file is set"]),
    ("log_rotate_age = \"1d\"\nlog_file = \"-\"", &["standard output cannot be renamed"]),
    ("log_format = \"template\"", &["log_template is not set", "add `log_template`"]),
    ("log_format = \"json\"\nlog_template = \"{status}\"", &["log_format has another form of lines"]),
    ("log_template = \"{stat}\"", &["no form of log lines", "there is no field `{stat}`"]),
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
    ("log_format = 3", &["must be combined, combined_host, json, template or off"]),
    ("helpers = 4", &["must be processes or threads", "--helpers-max (FLASH_HELPERS_MAX, `helpers_max`)"]),
    ("helpers = \"thread\"", &["must be processes or threads", "did you mean `threads`?"]),
    (
        "helpers = \"threads\"\nhelper_idle = \"1s\"",
        &["`helper_idle` cannot be used here", "--helpers processes"],
    ),
    (
        "event_mechanism = \"select\"\nconnections = 5000",
        &["`connections` is too high", "select allows 1024 descriptors, which leaves 671 for connections"],
    ),
    (
        "event_mechanism = \"select\"\nconnections = 300\nhelpers = \"threads\"\nhelpers_max = 64",
        &["`connections` is too high"],
    ),
    (
        "event_mechanism = \"select\"\nhelpers_max = 256\nhelpers = \"threads\"",
        &["`event_mechanism` cannot be select", "need all of them", "fewer sites or helpers"],
    ),
    (
        "log_format = \"jsn\"",
        &["must be combined, combined_host, json, template or off", "did you mean `json`?"],
    ),
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
    ("[types]\n\"/a/b\" = \"a/b\"", &["must be the whole name of a file after the slash"]),
    ("[types]\n\"/\" = \"a/b\"", &["must be the whole name of a file after the slash"]),
    ("[types]\nworkers = 2", &["move `workers` to the top of the file"]),
    ("[types]\nmjs = \"javascript\"", &["wrong value for `types.mjs`", "must be a content type"]),
    ("[types]\nmjs = \"a/b\"\nMJS = \"a/b\"", &["this name is given twice"]),
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
    variable(&mut sources, "FLASH_CONNECTIONS", "671");
    assert_eq!(sources.load().unwrap().connections_max, 671);
    variable(&mut sources, "FLASH_CONNECTIONS", "672");
    let text = sources.load().unwrap_err().to_string();
    assert!(
        text.contains(
            "error: `FLASH_CONNECTIONS` is too high: select allows 1024 descriptors, which leaves 671"
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
