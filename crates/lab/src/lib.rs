//! The lab: makes file sets, drives servers, and measures the promise of Flash on any HTTP server.
//!
//! The command line calls it, with one options struct and one `run` a command; the scripts in
//! `bench/` call that. It talks to servers only over sockets and knows nothing of how Flash is
//! built: it may not use the engine, the server, or any figure that a server says of itself (but for the
//! events of a dispatch, in `experiment`, which no client sees).

pub mod compare;
pub mod drive;
pub mod error;
pub mod experiment;
pub mod fileset;
pub mod floor;
pub mod interfere;
pub mod load;
pub mod measure;
pub mod profile;
pub mod record;
pub mod report;
pub mod results;
pub mod target;
pub mod testbed;
pub mod trace;
pub mod workload;

pub use error::{Error, Result};
