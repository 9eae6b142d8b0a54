//! The lab: makes file sets, drives servers, and measures the promise of Flash on any HTTP server.
//!
//! The command line calls it, with one options struct and one `run` a command; the scripts in
//! `bench/` call that. It talks to servers only over sockets and knows nothing of how Flash is
//! built: it must not use the engine, the server, or any figure that a server reports about itself (except the
//! events of a dispatch, in `experiment`, which no client sees). [`cache`] is another matter: it simulates replacement
//! policies, the store's own among them, and drives no server.

#![allow(missing_docs, reason = "only this workspace uses it: a comment stands where a name does not say it")]

pub mod cache;
pub mod compare;
pub mod drive;
mod execute;
pub mod experiment;
pub mod interfere;
pub mod join;
pub mod link;
pub mod profile;
pub mod report;
pub mod results;
#[cfg(test)]
#[path = "../../../tests/skip.rs"]
mod skipping;
mod statistics;
pub mod testbed;
pub mod theory;
