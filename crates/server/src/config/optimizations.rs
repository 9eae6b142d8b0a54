//! The optimizations of the paper as settings: each can be turned off alone, to measure its effect (docs/optimizations.md).
//!
//! `config::resolve` fills them, and the worker's start acts on them. It must not know how any of them works.

use serde::{Deserialize, Serialize};

use super::choices::SendBy;

/// The optimizations and their settings. A size of 0 turns the store off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Optimizations {
    /// Whether the files that paths lead to are cached.
    pub name_cache: bool,
    /// Whether response heads are cached.
    pub head_cache: bool,
    /// The call that sends parts of files.
    pub send: SendBy,
    /// Whether heads are padded to a multiple of 32 bytes.
    pub align_heads: bool,
    /// Whether look-ups block the worker's event loop instead of going to helpers.
    pub open_in_loop: bool,
    /// Whether the worker checks that data is in memory before it reads or sends it.
    pub residency_check: bool,
}

impl Optimizations {
    /// Warnings for the operator at startup, one per line.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let wait = |option: &str, what: &str| {
            format!(
                "{option} is for experiments: {what} that wait for the disk block the event loop and all clients of its worker"
            )
        };
        let open = self.open_in_loop.then(|| wait("--open-in-loop", "look-ups and opens"));
        let read = (!self.residency_check).then(|| wait("--no-residency-check", "reads"));
        open.into_iter().chain(read).collect()
    }
}
