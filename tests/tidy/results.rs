//! Measurements: the repository has small results only.
//!
//! Run by `cargo test -p flash --test tidy`.

use super::{Breach, assert_kept, files, root};

/// Where results are kept.
const FOLDER: &str = "bench/results/";
/// The most bytes of a result; `bench/keep.py` has the same bound.
const BYTES_MAX: u64 = 200_000;

fn large(name: &str, bytes: u64) -> Option<Breach> {
    let is_large = name.starts_with(FOLDER) && bytes > BYTES_MAX;
    is_large.then(|| Breach::new(name, 1, format!("{bytes} bytes")))
}

#[test]
fn no_kept_result_has_more_than_200_kb() {
    let size = |name: &String| std::fs::metadata(root().join(name)).unwrap().len();
    let breaches: Vec<Breach> = files().iter().filter_map(|name| large(name, size(name))).collect();
    assert_kept(
        "A file below bench/results has at most 200 kB: keep a run of the lab by `bench/keep.py FROM TO`, and leave raw \
         records out.",
        &breaches,
    );
}

#[test]
fn large_results_are_found() {
    assert!(large("bench/results/x/run.json.gz", BYTES_MAX + 1).is_some());
    assert!(large("bench/results/x/run.json.gz", BYTES_MAX).is_none());
    assert!(large("docs/x.svg", BYTES_MAX + 1).is_none());
}
