//! The optimizations of the paper as settings: each can be turned off alone, to measure its effect (docs/optimizations.md).
//!
//! `config::resolve` fills them, and the worker's start acts on them. It must not know how any of them works.

use serde::{Deserialize, Serialize};

use super::options::{Given, Overrides};
use super::values::Choice;

/// The optimizations and their settings. A size of 0 turns the store off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// The calls that can send parts of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SendBy {
    /// Read into a buffer, then send.
    Read,
    /// By sendfile(2).
    Sendfile,
    /// From mappings.
    Mmap,
}

impl SendBy {
    /// The names in the file, on the command line and in the environment.
    pub(super) const WORDS: &'static [&'static str] = &["read", "sendfile", "mmap"];
}

impl Choice for SendBy {
    const ALL: &'static [Self] = &[SendBy::Read, SendBy::Sendfile, SendBy::Mmap];
}

impl Default for Optimizations {
    /// The defaults of the table of options.
    fn default() -> Self {
        Self::of(&Overrides::defaults())
    }
}

impl Optimizations {
    /// The optimizations of `given`, in which every option has a value.
    pub(super) fn of(given: &Overrides) -> Self {
        let is_on = |given: &Option<Given<bool>>| given.as_ref().is_some_and(|given| given.value);
        Self {
            name_cache: is_on(&given.name_cache),
            head_cache: is_on(&given.head_cache),
            send: given.send.as_ref().map_or(SendBy::Read, |given| given.value),
            align_heads: is_on(&given.align_heads),
            open_in_loop: is_on(&given.open_in_loop),
            residency_check: is_on(&given.residency_check),
        }
    }

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
