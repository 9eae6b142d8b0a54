//! The C client that both modules use (`modules/client`): its own tests, so that CI counts them.

use std::path::Path;
use std::process::Command;

use crate::harness::{Folder, skip};

/// Runs one target of the client's Makefile and returns what it printed; its products lie in `folder`.
#[track_caller]
fn make(folder: &Folder, target: &[&str]) -> String {
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../modules/client");
    let mut command = Command::new("make");
    command.arg("-C").arg(client).args(target).arg(format!("BUILD={}", folder.path("build").display()));
    let done = command.output().unwrap();
    let printed = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(
        done.status.success(),
        "{command:?}: {}\n{printed}{}",
        done.status,
        String::from_utf8_lossy(&done.stderr)
    );
    printed
}

/// Whether a C compiler and make are installed; prints the reason if not.
fn lacks_compiler() -> bool {
    let lacks = |program: &str| {
        !Command::new(program).arg("--version").output().is_ok_and(|done| done.status.success())
    };
    let missing = lacks("make") || lacks("cc");
    if missing {
        skip("needs make and a C compiler");
    }
    missing
}

#[test]
fn the_client_passes_its_own_tests() {
    if lacks_compiler() {
        return;
    }
    let printed = make(&Folder::new(), &["check"]);
    for part in ["vectors: ", "wire: ok", "backend: ok", "residency: ok", "machine: ok", "descriptors: "] {
        assert!(printed.lines().any(|line| line.starts_with(part)), "no line with `{part}` in:\n{printed}");
    }
    for reason in printed.lines().filter_map(|line| line.strip_prefix("skip: ")) {
        skip(&format!("in part: {reason}"));
    }
}

#[test]
fn the_client_decodes_mutated_messages_without_a_fault() {
    if lacks_compiler() {
        return;
    }
    let printed = make(&Folder::new(), &["fuzz", "SECONDS=2"]);
    assert!(printed.contains("no fault"), "{printed}");
}
