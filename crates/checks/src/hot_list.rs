//! The list of hot files: each line is accepted or skipped on its own, and accepted lines survive saving and
//! reading.

use std::path::Path;

use flash_server::hot_list::{again, read_all};

/// The sites' roots.
const ROOTS: [&str; 3] = ["/srv/a", "/srv/b", ""];

/// Checks `input`, a list.
pub fn hot_list(input: &[u8]) {
    let roots = ROOTS.map(Path::new);
    let blocks = read_all(input, &roots);
    assert!(blocks.len() < input.split(|byte| *byte == b'\n').count().max(1));
    for (site, path, _) in &blocks {
        assert!(*site < ROOTS.len());
        assert!(path.starts_with(b"/") && !path.contains(&0), "{}", path.escape_ascii());
    }
    let saved = again(input, &roots);
    assert_eq!(read_all(&saved, &roots), blocks, "{}", saved.escape_ascii());
    assert_eq!(again(&saved, &roots), saved, "a saved list reads differently");
    assert!(saved.iter().all(|byte| matches!(byte, b'\n' | b'\t' | b' '..=b'~')), "{}", saved.escape_ascii());
    // An invalid line does not affect the others.
    if let Some(end) = input.iter().position(|byte| *byte == b'\n') {
        let more = [&input[..=end], b"no\tline\n", &input[end + 1..]].concat();
        assert_eq!(read_all(&more, &roots), blocks);
    }
}
