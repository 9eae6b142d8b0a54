//! The last stalls of a worker.

use serde::{Deserialize, Serialize};

/// How many stalls a worker keeps.
pub const STALLS_MAX: usize = 100;
/// Longest path of a stall, in bytes of JSON; of a longer path only the end is kept.
const PATH_BYTES_MAX: usize = 320;

/// A call of a worker's event loop that took long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stall {
    /// The number of the stall in its worker, starting at 1.
    pub number: u64,
    /// The name of the call, as in the counters.
    pub call: String,
    /// The file that the call was for; None for calls on sockets.
    pub path: Option<String>,
    /// When it began, in milliseconds since 1970, UTC.
    pub began_unix_ms: u64,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
    /// The voluntary context switches that the call cost. 0 means that the thread did not wait: it was
    /// preempted, or busy all the time. None if unknown.
    pub switches: Option<u64>,
}

/// A worker's report of its stalls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stalls {
    /// The number of stalls since the worker's start.
    pub count: u64,
    /// The last [`STALLS_MAX`] of them, oldest first.
    pub last: Vec<Stall>,
}

impl Stalls {
    /// As JSON, for the supervisor.
    #[must_use]
    pub fn to_json(&self) -> String {
        // A struct of numbers and texts always has a JSON form, so this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The part of a path that is kept: all of it, or its end.
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
    fn the_longest_report_of_stalls_fits_in_a_message() {
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
