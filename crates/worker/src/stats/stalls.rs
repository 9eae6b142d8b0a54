//! The stalls that a worker has met last.

use serde::{Deserialize, Serialize};

/// Stalls that a worker keeps: the last ones.
pub const STALLS_MAX: usize = 100;
/// The longest path of a stall, in bytes of JSON; of a longer one the end is kept.
const PATH_BYTES_MAX: usize = 320;

/// A call in a worker's loop that took long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stall {
    /// Which one it was of its worker's, from 1.
    pub number: u64,
    /// The name of the call, as in the counters.
    pub call: String,
    /// The file that it was for; None for calls on sockets.
    pub path: Option<String>,
    /// When it began, in milliseconds since 1970, UTC.
    pub began_unix_ms: u64,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
    /// The voluntary context switches that it cost: 0 means that the thread was kept from its core, or had that
    /// much to do, and did not wait. None where they are not known.
    pub switches: Option<u64>,
}

/// What a worker tells of its stalls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stalls {
    /// How many there were since its start.
    pub count: u64,
    /// The last [`STALLS_MAX`] of them, oldest first.
    pub last: Vec<Stall>,
}

impl Stalls {
    /// As JSON, for the supervisor.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // Numbers and texts in structs always have a form.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// What of a path is kept: all of it, or its end.
#[must_use]
pub fn kept_path(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    let json_bytes = |c: char| match c {
        '\0'..' ' => 6,
        '"' | '\\' => 2,
        c => c.len_utf8(),
    };
    if text.chars().map(json_bytes).sum::<usize>() <= PATH_BYTES_MAX {
        return text.into_owned();
    }
    let mut left = PATH_BYTES_MAX - '…'.len_utf8();
    let fits = |(_, c): &(usize, char)| {
        let fits = json_bytes(*c) <= left;
        left = left.saturating_sub(json_bytes(*c));
        fits
    };
    let start = text.char_indices().rev().take_while(fits).last().map_or(text.len(), |(at, _)| at);
    format!("…{}", &text[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_that_a_worker_can_tell_fits_a_message() {
        for path in ["\u{1b}", "\"", "x", "ä", "\u{1f600}"] {
            let path = kept_path(path.repeat(5000).as_bytes());
            assert!(path.starts_with('…'));
            let json = serde_json::to_string(&path).expect("JSON");
            assert!((PATH_BYTES_MAX - 8..=PATH_BYTES_MAX + 2).contains(&json.len()), "{}", json.len());
            let most = Stall {
                number: u64::MAX,
                call: "close_connection".into(),
                path: Some(path),
                began_unix_ms: u64::MAX,
                took_ns: u64::MAX,
                switches: Some(u64::MAX),
            };
            let json = Stalls { count: u64::MAX, last: vec![most; STALLS_MAX] }.to_json();
            assert!(json.len() <= crate::control::STATS_BYTES_MAX, "{} bytes", json.len());
        }
        assert_eq!(kept_path(b"/srv/a\xffb"), "/srv/a\u{fffd}b");
    }
}
