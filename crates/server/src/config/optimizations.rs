//! The optimizations of the paper as settings: each can be switched off alone, so that its worth can be
//! measured (docs/optimizations.md).
//!
//! For: `config::resolve`, which asks for them; the worker's start acts on them. May not know how any of them works.

use serde::{Deserialize, Serialize};

use super::options::{Given, Overrides};
use super::values::Choice;

/// What is optimized, and how. The content cache is switched off by its bound of 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Optimizations {
    /// What a path leads to is remembered between requests.
    pub name_cache: bool,
    /// Response heads are kept.
    pub head_cache: bool,
    /// How parts of files are sent.
    pub send: SendBy,
    /// Heads are padded to a multiple of 32 bytes.
    pub align_heads: bool,
    /// Look-ups wait in the worker's loop instead of going to helpers.
    pub open_in_loop: bool,
    /// What is in memory is asked before anything is read or sent.
    pub residency_check: bool,
}

/// How parts of files are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SendBy {
    /// Read into a buffer, which is sent.
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
    /// What the table of options says.
    fn default() -> Self {
        Self::of(&Overrides::defaults())
    }
}

impl Optimizations {
    /// Those of `given`, in which every option has a value.
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

    /// What the operator is to be told at the start, a line each.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let wait = |option: &str, what: &str| {
            format!(
                "{option}, for experiments: {what} wait for the disk in the loop of a worker, and with them all its clients"
            )
        };
        let open = self.open_in_loop.then(|| wait("--open-in-loop", "look-ups and opens"));
        let read = (!self.residency_check).then(|| wait("--no-residency-check", "reads"));
        open.into_iter().chain(read).collect()
    }
}
