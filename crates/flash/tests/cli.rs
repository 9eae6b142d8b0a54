//! The command line as users see it: exit codes, standard output and error, and the documents that must
//! agree with it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flash_server::config::options::{self, OPTIONS, Spec};
use flash_server::config::route_options::{ROUTE_OPTIONS, RouteOverrides};
use flash_server::config::rule_options::{RULE_OPTIONS, RuleOverrides};
use flash_server::config::{self, Bounds, DefaultValue, Kind, Origin, Overrides, Settings, Sources, Unit};
use tempfile::TempDir;

/// A fresh folder, removed at the end.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        let above = std::env::temp_dir().canonicalize().unwrap();
        let open_to_all = Permissions::from_mode(0o755);
        let folder = tempfile::Builder::new().prefix("flash-cli-").permissions(open_to_all).tempdir_in(above);
        let folder = Folder(folder.unwrap());
        fs::create_dir(folder.path().join("www")).unwrap();
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn with(file: &str) -> Folder {
        let folder = Folder::new();
        fs::write(folder.path().join("flash.toml"), file).unwrap();
        folder
    }

    fn flash(&self, args: &[&str]) -> Run {
        self.flash_env(args, &[])
    }

    fn flash_env(&self, args: &[&str], env: &[(&str, &str)]) -> Run {
        run(Command::new(env!("CARGO_BIN_EXE_flash"))
            .current_dir(self.path())
            .args(args)
            .envs(env.iter().copied()))
    }
}

struct Run {
    code: i32,
    out: String,
    err: String,
}

impl Run {
    fn settings(&self) -> Settings {
        let only_warns = self.err.lines().all(|line| line.starts_with("warning: "));
        assert!(self.code == 0 && only_warns, "{}{}", self.err, self.out);
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &self.out).unwrap();
        let mut cli = Overrides::default();
        let config = options::find("config").unwrap();
        config.set(&mut cli, &[file.path().as_os_str()], Origin::Flag).unwrap();
        Sources { cli, env: Vec::new(), cwd: "/".into() }.load().unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Runs a command without the `FLASH_*` variables of the process that runs the tests.
fn run(command: &mut Command) -> Run {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FLASH_") && !command.get_envs().any(|(set, _)| set == name) {
            command.env_remove(name);
        }
    }
    let Output { status, stdout, stderr } = command.output().unwrap();
    Run {
        code: status.code().unwrap(),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    }
}

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

#[test]
fn help_and_version() {
    let folder = Folder::new();
    let help = folder.flash(&["--help"]);
    assert_eq!((help.code, help.err.as_str()), (0, ""));
    assert!(help.out.contains("serve ") && help.out.contains("check "), "{}", help.out);
    assert!(
        !help.out.contains("one of the processes"),
        "`flash role` is hidden: only the supervisor calls it"
    );

    let version = folder.flash(&["--version"]);
    assert!(version.out.starts_with(concat!("flash ", env!("CARGO_PKG_VERSION"))), "{}", version.out);
    assert_eq!(
        version.out,
        concat!("flash ", env!("PROGRAM_VERSION"), "\n"),
        "with the commit, if there is one"
    );

    let nothing = folder.flash(&[]);
    assert_eq!((nothing.code, nothing.out.as_str()), (2, ""));
    assert!(nothing.err.contains("Usage: flash <COMMAND>"));
}

#[test]
fn the_help_of_serve_names_every_option() {
    let help = Folder::new().flash(&["serve", "--help"]);
    for heading in
        ["Files:", "Network:", "Processes and memory:", "Limits and timeouts:", "Logs and statistics:"]
    {
        assert!(help.out.contains(heading), "{heading}");
    }
    for spec in OPTIONS {
        assert!(spec.is_operand() || help.out.contains(&format!("--{} ", spec.flag())), "{}", spec.flag());
    }
    assert!(
        help.out.contains("FLASH_CACHE_MEMORY") && help.out.contains("FLASH_ROOT"),
        "the variables' rule"
    );
    assert!(help.out.lines().all(|line| line.chars().count() <= 100), "{}", help.out);
}

#[test]
fn the_help_of_a_command_shows_how_it_is_called() {
    let folder = Folder::new();
    for (args, usage) in [
        (&["cache", "-h"][..], "Usage: flash cache simulate [OPTIONS]"),
        (&["serve", "-h"], "Usage: flash serve [OPTIONS]"),
        (&["check", "-h"], "Usage: flash check [OPTIONS]"),
    ] {
        let shown = folder.flash(args);
        assert!(shown.code == 0 && shown.out.contains(usage), "{}{}", shown.out, shown.err);
    }
}

#[test]
fn a_wrong_command_line_is_a_usage_error() {
    let folder = Folder::new();
    let wrong: &[(&[&str], &str)] = &[
        (&["sevre"], "a similar subcommand exists: 'serve'"),
        (&["serve", "--worker", "2"], "a similar argument exists: '--workers'"),
        (&["serve", "--workers", "0"], "invalid value '0' for '--workers <N>': must be from 1 to 256"),
        (&["serve", "--freshness", "5"], "the unit is missing; write a number and a unit"),
        (&["serve", "--listen", "8080"], "did you mean `127.0.0.1:8080`?"),
        (
            &["serve", "--log-format", "jsn"],
            "must be combined, combined_host, json, template or off; did you mean `json`?",
        ),
        (&["serve", "--index", "a/b"], "must be the name of a file, without `/`"),
        (&["check", "--listen", "127.0.0.1:1", "--listen", "127.0.0.1:1"], "given twice"),
        (&["check", "a", "b"], "unexpected argument 'b'"),
        (&["serve", "--port", "80"], "write --listen 0.0.0.0:80"),
        (&["serve", "-p", "80"], "write --listen 0.0.0.0:80"),
        (&["serve", "--port"], "write --listen 0.0.0.0:8080"),
        (&["serve", "--cache-memory", "512"], "did you mean 512MiB?"),
        (&["completions", "tcsh"], "invalid value 'tcsh'"),
        (&["man", "here", "--stdout"], "cannot be used with"),
    ];
    for (args, message) in wrong {
        let run = folder.flash(args);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{args:?}");
        assert!(run.err.contains(message), "{args:?}: {}", run.err);
    }
}

#[test]
fn check_prints_ok_and_a_summary() {
    let folder = Folder::with("root = \"www\"\nworkers = 1\n");
    let run = folder.flash(&["check", "--config", "flash.toml"]);
    let root = folder.path().join("www");
    // A busy machine may be late to open it.
    let late = format!("warning: `{}` did not answer within ", root.display());
    assert!(run.code == 0 && run.err.lines().all(|line| line.starts_with(&late)), "{}", run.err);
    assert_eq!(run.out, format!("flash.toml: ok\n`{}` on 127.0.0.1:8080 with 1 worker\n", root.display()));

    let run = folder.flash_env(&["check", "--workers", "2"], &[("FLASH_LISTEN", "[::1]:1,127.0.0.1:2")]);
    let here = folder.path().display();
    assert_eq!(run.out, format!("settings: ok\n`{here}` on [::1]:1, 127.0.0.1:2 with 2 workers\n"));
}

#[test]
fn check_prints_the_warnings_of_a_start() {
    let folder = Folder::new();
    let run = folder.flash(&["check", "--cache-memory", "1TiB"]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.err.starts_with("warning: cache_memory is lowered from 1TiB to "), "{}", run.err);
}

#[test]
fn check_shows_each_error_with_line_caret_and_suggestion() {
    let folder =
        Folder::with("workers = 2\nfreshnes = \"1s\"\n\n[[site]]\nhosts = [\"a.org:80\"]\nroot = \"www\"\n");
    let run = folder.flash(&["check", "--config", "flash.toml"]);
    assert_eq!((run.code, run.out.as_str()), (1, ""));
    let expected = "\
error: unknown key `freshnes`
 --> flash.toml:2:1
  |
2 | freshnes = \"1s\"
  | ^^^^^^^^ not a setting of Flash
  |
  = help: did you mean `freshness`?

error: wrong value for `hosts`
 --> flash.toml:5:10
  |
5 | hosts = [\"a.org:80\"]
  |          ^^^^^^^^^^ must be a host without a port
  |
  = help: write `a.org`: a site answers on every address that Flash listens on

flash.toml: 2 errors
";
    assert_eq!(run.err, expected);
}

#[test]
fn check_fails_if_the_config_file_is_missing() {
    let run = Folder::new().flash(&["check", "--config", "gone.toml"]);
    assert_eq!((run.code, run.out.as_str()), (1, ""));
    let expected =
        "error: cannot read the config file `gone.toml`: no such file or directory\n\ngone.toml: 1 error\n";
    assert_eq!(run.err, expected);
}

#[test]
fn flag_beats_environment_beats_file_beats_default() {
    let folder = Folder::with("workers = 1\nhelpers_max = 1\nconnections = 1\nbrowse = true\n");
    let env = [("FLASH_WORKERS", "2"), ("FLASH_HELPERS_MAX", "2"), ("FLASH_CONFIG", "flash.toml")];
    let settings = folder.flash_env(&["check", "--print", "--workers", "3"], &env).settings();
    assert_eq!((settings.workers, settings.helpers_max, settings.connections_max), (3, 2, 1));
    assert_eq!(settings.idle_timeout_ms, 60_000);
    assert!(settings.sites[0].browse);

    let off = folder.flash_env(&["check", "--print", "--no-browse"], &env).settings();
    assert!(!off.sites[0].browse);
    let last = folder.flash_env(&["check", "--print", "--no-browse", "--browse"], &env).settings();
    assert!(last.sites[0].browse, "the last of a switch and its opposite wins");
}

#[test]
fn every_flag_changes_the_settings() {
    let folder = Folder::new();
    let text = |spec: &Spec| match spec.key {
        "root" => "www",
        "config" => "flash.toml",
        "index" => "home.html",
        "listen" => "[::1]:0",
        "listen_tls" | "admin" => "[::1]:1",
        "hsts" => "max-age=7",
        "https_redirect" => "308",
        "log_format" => "json",
        "sandbox" => "off",
        "architecture" => "sped",
        "send" => "mmap",
        "encoded_slash" => "refuse",
        "etag" => "changed",
        "log_file" => "access.log",
        "event_mechanism" => "select",
        "helpers" => "threads",
        "schedule" => "srpt",
        "cwnd_cap" => "64KiB",
        "egress" | "connection_rate" => "10Mbit",
        "client_exempt" | "trusted_proxies" | "proxy_protocol" => "10.0.0.0/8",
        "proxy_field" => "forwarded",
        "listen_mode" => "0666",
        "control" => "none",
        "log_rotate_keep" => "8",
        "log_template" => "{status}",
        _ => match spec.kind {
            Kind::Number(Bounds { unit: Unit::Millis, .. }) => "7s",
            Kind::AutoNumber(_) | Kind::Number(Bounds { unit: Unit::MemoryBytes, .. }) => "7M",
            _ => "7",
        },
    };
    fs::write(folder.path().join("flash.toml"), "").unwrap();
    let route = "[[route]]\nprefix = \"/app/\"\nproxy = \"127.0.0.1:3000\"\n";
    fs::write(folder.path().join("routes.toml"), route).unwrap();
    // Only root can name another user or keep a capability; the end-to-end tests cover both.
    for spec in OPTIONS.iter().filter(|spec| !matches!(spec.key, "config" | "user" | "cap_fowner")) {
        let flag = format!("--{}", spec.flag());
        let opposite = format!("--no-{}", spec.flag());
        let args = match spec.kind {
            Kind::Switch if spec.default == DefaultValue::Text("true") => vec![opposite.as_str()],
            Kind::Switch => vec![flag.as_str()],
            _ if spec.is_operand() => vec![text(spec)],
            _ => vec![flag.as_str(), text(spec)],
        };
        let of_architecture: &[&str] = match spec.key {
            "processes" => &["--architecture", "mp"],
            "threads" => &["--architecture", "mt"],
            "listing_entries" => &["--browse"],
            "hsts" | "https_redirect" => &["--listen-tls", "[::1]:1"],
            "srpt_cutoffs" | "srpt_dscp" => &["--schedule", "srpt"],
            "proxy_field" => &["--trusted-proxies", "loopback"],
            "listen_mode" => &["--listen", "unix:http.sock"],
            "spool" | "spool_max" => &["--config", "routes.toml"],
            "log_rotate_size" | "log_rotate_age" => &["--log-file", "access.log"],
            _ => &[],
        };
        let check = [&["check", "--print"], of_architecture].concat();
        let plain = folder.flash(&check).settings();
        let args = [&check, &args[..]].concat();
        assert_ne!(folder.flash(&args).settings(), plain, "{args:?} changed nothing");
    }
}

#[test]
fn an_auto_switch_takes_a_word_or_none() {
    let folder = Folder::new();
    let check = |args: &[&str]| folder.flash(&[&["check", "--print"], args].concat());
    let off = check(&["--no-cap-fowner"]).settings();
    assert!(!off.cap_fowner);
    assert_eq!(check(&["--cap-fowner=off"]).settings(), off);
    let auto = check(&[]).settings();
    assert_eq!(check(&["--no-cap-fowner", "--cap-fowner=auto"]).settings(), auto, "the last one wins");
    // Without a word it means yes, and the operand after it is not taken as its word.
    for args in [&["--cap-fowner", "www"][..], &["www", "--cap-fowner=on"]] {
        let run = check(args);
        match run.code {
            0 => assert!(run.settings().cap_fowner && run.settings().sites[0].root.ends_with("www")),
            _ => assert!(
                run.err.contains("`--cap-fowner` cannot be kept: this process does not"),
                "{}",
                run.err
            ),
        }
    }
    let run = check(&["--cap-fowner=maybe"]);
    assert!(run.code == 2 && run.err.contains("must be auto, on or off"), "{}", run.err);
}

#[test]
fn a_number_for_helpers_suggests_helpers_max() {
    let folder = Folder::new();
    let run = folder.flash(&["check", "--helpers", "4"]);
    assert_eq!(run.code, 2);
    for part in ["'4'", "'--helpers <KIND>'", "must be processes or threads", "--helpers-max"] {
        assert!(run.err.contains(part), "{part}: {}", run.err);
    }
    let run = folder.flash_env(&["check"], &[("FLASH_HELPERS", "4")]);
    assert_eq!(run.code, 1);
    assert!(
        run.err.contains("wrong value `4` for FLASH_HELPERS") && run.err.contains("--helpers-max"),
        "{}",
        run.err
    );
    assert_eq!(folder.flash(&["check", "--print", "--helpers-max", "4"]).settings().helpers_max, 4);
}

#[test]
fn an_unknown_variable_causes_a_warning() {
    let run = Folder::new().flash_env(&["check"], &[("FLASH_WORKER", "1")]);
    assert_eq!(run.code, 0);
    let expected =
        "warning: unknown environment variable FLASH_WORKER is ignored; did you mean `FLASH_WORKERS`?\n";
    assert_eq!(run.err, expected);
}

#[cfg(unix)]
#[test]
fn a_root_need_not_be_utf8() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::new();
    let name = std::ffi::OsStr::from_bytes(b"w\xff");
    fs::create_dir(folder.path().join(name)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flash"));
    let check = run(command.current_dir(folder.path()).arg("check").arg(name));
    assert!(check.code == 0 && check.out.starts_with("settings: ok\n"), "{}{}", check.err, check.out);
    let printed = run(command.arg("--print"));
    assert_eq!((printed.code, printed.out.as_str()), (1, ""));
    assert!(printed.err.contains("a config file holds only UTF-8"), "{}", printed.err);
}

#[test]
fn serve_refuses_wrong_settings() {
    let run = Folder::with("root = \"gone\"\n").flash(&["serve", "--config", "flash.toml"]);
    assert_eq!((run.code, run.out.as_str()), (1, ""));
    assert!(
        run.err.contains("flash.toml:1:8") && run.err.contains("no such file or directory"),
        "{}",
        run.err
    );
}

#[test]
fn file_sets_of_both_kinds() {
    let folder = Folder::new();
    let made = folder.flash(&["fileset", "specweb99", "set", "--size", "1B"]);
    assert_eq!((made.code, made.err.as_str()), (0, ""), "{}", made.out);
    assert!(made.out.contains("1 directories, 36 files, 5.12 MB, seed 1; 36 files"), "{}", made.out);

    let line = "h - - [10/Oct/2000:10:00:00 +0000] \"GET /a HTTP/1.0\" 200 70\n";
    fs::write(folder.path().join("log"), format!("{line}?\n")).unwrap();
    let made = folder.flash(&["fileset", "log:log", "files"]);
    assert!(made.code == 0 && made.err.contains("warning: log: 1 of 2 lines are malformed"), "{}", made.err);
    let manifest = fs::read_to_string(folder.path().join("files/manifest.txt")).unwrap();
    assert!(manifest.ends_with("\nt/000/000000 70 /a\n"), "{manifest}");
    assert_eq!(fs::metadata(folder.path().join("files/t/000/000000")).unwrap().len(), 70);

    for (args, part) in [
        (&["fileset", "specweb99", "x"][..], "--size or --directories"),
        (&["fileset", "log:log", "x", "--directories", "1"], "the other sets have --size"),
        (&["fileset", "pareto", "x", "--size", "1B"], "1 to 999999 are possible"),
        (&["fileset", "log:", "x"], "write specweb99, pareto or log:FILE"),
        (&["fileset", "specweb99:", "x", "--size", "1B"], "write specweb99, pareto or log:FILE"),
        (&["fileset", "log:log", "set"], "holds another set"),
    ] {
        let refused = folder.flash(args);
        assert!(refused.code == 2 && refused.err.contains(part), "{args:?}: {}", refused.err);
    }
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let run = Folder::new().flash(&["completions", shell]);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{shell}");
        assert!(run.out.contains("cache-memory"), "{shell}");
        assert!(!run.out.contains("one of the processes"), "{shell}: role");
    }
}

#[test]
fn man_pages() {
    let folder = Folder::new();
    let all = folder.flash(&["man"]);
    assert_eq!((all.code, all.err.as_str()), (0, ""));
    for page in ["flash", "flash-serve", "flash-check", "flash-man", "flash-completions"] {
        assert!(all.out.contains(&format!(".TH {page} 1")), "{page}: {}", all.out);
    }
    assert_eq!(folder.flash(&["man", "--stdout"]).out, all.out);

    assert_eq!(folder.flash(&["man", "pages"]).code, 0);
    let serve = fs::read_to_string(folder.path().join("pages/flash-serve.1")).unwrap();
    for heading in
        ["SYNOPSIS", "OPTIONS", "SIGNALS", "FILES", "ENVIRONMENT", "EXIT STATUS", "EXAMPLES", "SEE ALSO"]
    {
        let lines = serve.lines().filter(|line| line.trim_start_matches(".SH ").trim_matches('"') == heading);
        assert_eq!(lines.count(), 1, "{heading}");
    }
    assert!(folder.path().join("pages/flash.1").exists());
    assert!(!folder.path().join("pages/flash-role.1").exists());

    let settings = fs::read_to_string(folder.path().join("pages/flash.toml.5")).unwrap();
    let keys = OPTIONS.iter().filter(|spec| spec.is_in_file()).map(|spec| spec.key);
    let of_tables = ROUTE_OPTIONS.iter().map(|spec| spec.key).chain(RULE_OPTIONS.iter().map(|spec| spec.key));
    for key in keys.chain(of_tables) {
        assert!(settings.contains(&format!("\\fB{key}\\fR\n")), "{key}: {settings}");
    }

    fs::write(folder.path().join("file"), "").unwrap();
    let run = folder.flash(&["man", "file"]);
    assert_eq!(run.code, 1);
    assert!(run.err.starts_with("error: cannot write the man pages to `file`: "), "{}", run.err);
}

#[test]
fn the_example_config_file_shows_every_default() {
    let path = docs("flash.toml");
    let folder = Folder::new();
    let run = folder.flash(&["check", "--print", "--config", path.to_str().unwrap()]);
    let settings = run.settings();
    assert_eq!(settings.sites.len(), 3);

    // Without the comment signs the file means the same: each commented line shows a default.
    let text = fs::read_to_string(&path).unwrap();
    let is_key = |line: &str| line.starts_with(|first: char| first.is_ascii_lowercase());
    let lines = text.lines().map(|line| match line.strip_prefix('#') {
        Some(setting)
            if is_key(setting)
                && ![
                    "log_file",
                    "log_template",
                    "user",
                    "control",
                    "processes",
                    "threads",
                    "spool",
                    "srpt",
                    "proxy_field",
                    "listen_tls",
                    "listen_mode",
                    "admin",
                    "certificate",
                ]
                .iter()
                .any(|key| setting.starts_with(key)) =>
        {
            setting
        }
        _ => line,
    });
    fs::write(folder.path().join("flash.toml"), lines.collect::<Vec<_>>().join("\n")).unwrap();
    let mut whole = folder.flash(&["check", "--print", "--config", "flash.toml"]).settings();
    for (site, same) in whole.sites.iter_mut().zip(&settings.sites) {
        site.root.clone_from(&same.root);
    }
    assert_eq!(whole, settings);
    for spec in OPTIONS.iter().filter(|spec| spec.is_in_file()) {
        let named = |line: &str| line.trim_start_matches('#').starts_with(&format!("{} = ", spec.key));
        assert!(text.lines().any(named), "docs/flash.toml does not show {}", spec.key);
    }
}

/// The default of an option, or the `other` text without one.
fn default(default: DefaultValue, other: &str) -> String {
    match default {
        DefaultValue::Text(text) => format!("`{text}`"),
        DefaultValue::Depends(text) => text.to_owned(),
        DefaultValue::None => other.to_owned(),
    }
}

/// The row of an option of the server in `docs/config.md`.
fn server_row(spec: &Spec) -> String {
    let key = if spec.is_in_file() { format!("`{}`", spec.key) } else { "-".to_owned() };
    let flag = match spec.kind {
        Kind::Switch => format!("`--{0}`, `--no-{0}`", spec.flag()),
        Kind::AutoSwitch => format!("`--{0}[={1}]`, `--no-{0}`", spec.flag(), spec.details.value_name),
        _ if spec.is_operand() => "`DIR`".to_owned(),
        _ => format!("`--{} {}`", spec.flag(), spec.details.value_name),
    };
    let (value, default) = (spec.kind.summary(), default(spec.default, "none"));
    format!("| {key} | {value} | {default} | {flag} | `{}` | {} |", spec.variable(), spec.help)
}

fn site_row(spec: &Spec) -> String {
    let default = if spec.is_operand() { "an error" } else { "the value of the default site" };
    format!("| `{}` | {} | {default} | {} |", spec.key, spec.kind.summary(), spec.help)
}

fn route_row(spec: &config::Spec<RouteOverrides>) -> String {
    let owners: Vec<String> = spec.details.iter().map(|key| format!("`{key}`")).collect();
    let owners = if owners.is_empty() { "any".to_owned() } else { owners.join(", ") };
    let default = default(spec.default, "-");
    format!("| `{}` | {} | {default} | {owners} | {} |", spec.key, spec.kind.summary(), spec.help)
}

fn rule_row(spec: &config::Spec<RuleOverrides>) -> String {
    let default = default(spec.default, "-");
    format!("| `{}` | {} | {default} | {} |", spec.key, spec.kind.summary(), spec.help)
}

/// Replaces the rows of the table between `<!-- settings: NAME -->` and the next empty line, below its head.
fn with_rows(text: &str, name: &str, rows: &[String]) -> String {
    let (before, rest) =
        text.split_once(&format!("<!-- settings: {name} -->\n")).expect("the mark of a table");
    let (table, after) = rest.split_once("\n\n").expect("the end of a table");
    let head: Vec<&str> = table.lines().take(2).collect();
    let rows = rows.join("\n");
    format!("{before}<!-- settings: {name} -->\n{}\n{rows}\n\n{after}", head.join("\n"))
}

/// `FLASH_BLESS=1 cargo test -p flash --test cli the_tables` writes the tables.
#[test]
fn the_tables_in_the_docs_are_those_of_the_options() {
    let path = docs("config.md");
    let text = fs::read_to_string(&path).unwrap();
    let rows: Vec<String> = OPTIONS.iter().map(server_row).collect();
    let of_sites: Vec<String> = OPTIONS.iter().filter(|spec| spec.is_of_site()).map(site_row).collect();
    let of_routes: Vec<String> = ROUTE_OPTIONS.iter().map(route_row).collect();
    let mut right = with_rows(&text, "server", &rows);
    right = with_rows(&right, "site", &of_sites);
    right = with_rows(&right, "route", &of_routes);
    let of_rules: Vec<String> = RULE_OPTIONS.iter().map(rule_row).collect();
    right = with_rows(&right, "rule", &of_rules);
    if std::env::var_os("FLASH_BLESS").is_some() {
        fs::write(&path, &right).unwrap();
    } else {
        let missing = right.lines().find(|row| text.lines().all(|line| line != *row));
        assert!(
            missing.is_none(),
            "docs/config.md lacks this row (FLASH_BLESS=1 writes it):\n{}",
            missing.unwrap()
        );
        assert!(right == text, "docs/config.md has rows of no option (FLASH_BLESS=1 removes them)");
    }
    let example = fs::read_to_string(docs("flash.toml")).unwrap();
    assert!(text.contains(&example), "the example in docs/config.md is not docs/flash.toml");
}
