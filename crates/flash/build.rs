//! Notes the commit that the program is built from, for `flash --version`. Without git, or outside a clone, there is none, unless
//! `FLASH_COMMIT` names it.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=FLASH_COMMIT");
    let named = std::env::var("FLASH_COMMIT").ok().filter(|commit| !commit.is_empty());
    let version = match named.or_else(of_clone) {
        Some(commit) => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    };
    println!("cargo::rustc-env=PROGRAM_VERSION={version}");
}

/// The commit of the clone that this folder is in. A commit changes the log of `HEAD`.
fn of_clone() -> Option<String> {
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    // A file that is missing would build the program each time.
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    // Of Flash itself, not of a repository that a copy of it lies in.
    let is_own = git(&["rev-parse", "--show-prefix"])? == "crates/flash/";
    if is_own { git(&["rev-parse", "--short=10", "HEAD"]) } else { None }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
