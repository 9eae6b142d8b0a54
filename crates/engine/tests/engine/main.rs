//! The engine on a machine in memory: one module for each topic.

mod changes;
mod counters;
mod freshness;
mod hits;
mod large_files;
mod life;
mod listings;
#[path = "../machine/mod.rs"]
#[expect(dead_code, reason = "the simulation uses the rest")]
mod machine;
mod misses;
mod optimizations;
mod pipelining;
mod random;
mod requests;
mod shares;
mod timeouts;
