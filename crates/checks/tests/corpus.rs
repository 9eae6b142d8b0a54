//! Runs the check of every file of the corpus, and makes sure that no target is forgotten.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use flash_checks::TARGETS;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn every_file_of_the_corpus_passes_its_check() {
    for (name, check) in TARGETS {
        let folder = fuzz().join("corpus").join(name);
        let files = names(&folder);
        assert!(files.len() >= 10, "{name} has {} files", files.len());
        for file in files {
            // Printed only when the check fails.
            println!("fuzz/corpus/{name}/{file}");
            check(&fs::read(folder.join(file)).unwrap());
        }
    }
}

#[test]
fn every_check_has_a_target_and_a_corpus() {
    let expected: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names(&fuzz().join("corpus")), expected);
    let targets = names(&fuzz().join("fuzz_targets"));
    assert_eq!(targets, expected.iter().map(|name| format!("{name}.rs")).collect());
    let manifest: toml::Table = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap().parse().unwrap();
    let bins = manifest["bin"].as_array().unwrap();
    let bins: BTreeSet<String> = bins.iter().map(|bin| bin["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(bins, expected);
    for name in &expected {
        let text = fs::read_to_string(fuzz().join("fuzz_targets").join(format!("{name}.rs"))).unwrap();
        assert!(text.contains(&format!("flash_checks::{name}(")), "{name}.rs calls another check");
    }
}
