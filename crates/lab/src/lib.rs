//! The lab: makes file sets, drives servers, and measures the promise of Flash on any HTTP server.
//!
//! The command line calls it, with one options struct and one `run` a command; the scripts in
//! `bench/` call that. It talks to servers only over sockets and knows nothing of how Flash is
//! built: it may not use the engine, the server, or any figure that a server says of itself.

pub mod error;
pub mod fileset;
pub mod floor;
pub mod interfere;
pub mod load;
pub mod measure;
pub mod record;
pub mod results;
pub mod target;
pub mod workload;

pub use error::{Error, Result};
