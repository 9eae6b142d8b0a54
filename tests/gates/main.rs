//! Flashpache, end to end: `flash backend`, and the servers that it warms names and ranges for. The modules are built from
//! `modules/` once for a run; a server that is not installed is a counted skip.

mod apache;
mod backend;
mod client;
#[path = "../e2e/harness/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the end-to-end tests need more of it")]
mod harness;
mod nginx;
mod warm;
