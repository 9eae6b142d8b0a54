//! Load: workloads and file sets, the generator that sends requests, the records of what came back, and the statistics of
//! records. For any HTTP server.
//!
//! ```text
//! fileset   sets of files by the papers' distributions        workload   what is asked for, and when: sets, access logs
//! target    the server's address                              generator  threads that send requests and take answers
//! record    one request's times, and files of them            measure    figures computed from records
//! floor     the least server, to measure the generator with  tls         TLS of the generator and of the floor
//! ```
//!
//! `flash-lab` drives servers with it. It starts no server and knows nothing of how Flash is built.

#![allow(missing_docs, reason = "only this workspace uses it: a comment stands where a name does not say it")]

pub mod files;
pub mod fileset;
pub mod floor;
pub mod generator;
pub mod gzip;
pub mod measure;
pub mod record;
#[cfg(test)]
#[path = "../../../tests/skip.rs"]
mod skipping;
pub mod target;
pub mod tls;
pub mod workload;
