//! Runs modules of the end-to-end tests with servers of another architecture or clients over another wire. Each variant is a test
//! target without a harness, whose `main` is here: it starts the program of `e2e`, so that its text is compiled once.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Options of libtest whose value is the next argument.
const WITH_VALUE: [&str; 2] = ["--test-threads", "--skip"];

/// Runs the tests of these modules with this variable set (`harness/suite.rs`). The arguments are libtest's.
pub(crate) fn run(variable: (&str, &str), modules: &[&str]) -> ExitCode {
    let own = std::env::current_exe().expect("the path of this program");
    let program = program_of_e2e(&own);
    let (options, filters) = sorted(std::env::args().skip(1));
    let listed = output(Command::new(&program).args(["--list", "--format", "terse"]));
    let is_chosen = |test: &&str| {
        test.split_once("::").is_some_and(|(module, _)| modules.contains(&module))
            && (filters.is_empty() || filters.iter().any(|filter| test.contains(filter.as_str())))
    };
    let tests: Vec<&str> =
        listed.lines().filter_map(|line| line.strip_suffix(": test")).filter(is_chosen).collect();
    let name = own.file_name().expect("a path of a file");
    let mut command = Command::new(&program);
    command.arg0(name).env(variable.0, variable.1).args(options).arg("--exact").args(&tests);
    // Without a name all tests would run.
    if tests.is_empty() {
        command.arg("none");
    }
    let status =
        command.status().unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Options with their values, and words that a test's name shall contain.
fn sorted(arguments: impl Iterator<Item = String>) -> (Vec<String>, Vec<String>) {
    let (mut options, mut filters) = (Vec::new(), Vec::new());
    let mut is_value = false;
    for argument in arguments {
        let is_option = is_value || argument.starts_with('-');
        is_value = WITH_VALUE.contains(&argument.as_str());
        if is_option { options.push(argument) } else { filters.push(argument) }
    }
    (options, filters)
}

/// The program of the tests, built as this one was.
fn program_of_e2e(own: &Path) -> PathBuf {
    let profile = own.ancestors().nth(2).and_then(Path::file_name).and_then(|name| name.to_str());
    let profile = profile.filter(|&name| name != "debug").unwrap_or("test");
    let features = if cfg!(feature = "all-architectures") { "flash/all-architectures" } else { "" };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--workspace", "--test", "e2e", "--no-run", "--message-format", "json"]);
    command.args(["--profile", profile, "--features", features]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let messages = output(&mut command);
    let is_e2e = |message: &serde_json::Value| {
        message["profile"]["test"] == true && message["target"]["name"] == "e2e"
    };
    let messages = messages.lines().filter_map(|line| serde_json::from_str(line).ok());
    let found = messages.filter(is_e2e).find_map(|message| message["executable"].as_str().map(PathBuf::from));
    found.unwrap_or_else(|| panic!("cargo names no program of e2e: {command:?}"))
}

/// The standard output of a command that must succeed.
fn output(command: &mut Command) -> String {
    let done = command.stderr(std::process::Stdio::inherit()).output();
    let done = done.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    assert!(done.status.success(), "failed: {command:?}");
    String::from_utf8(done.stdout).expect("text")
}
