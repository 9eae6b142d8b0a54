//! Tests of the engine on a machine in memory, one module per topic.

mod aliases;
mod authorization;
mod bandwidth;
mod changes;
mod compressed_answers;
mod compression;
mod concurrency;
mod counters;
mod encrypted_links;
mod files_first;
mod freshness;
mod gathered;
mod h2;
mod h2_bounds;
mod h2_relays;
mod hints;
mod hits;
mod https;
mod large_files;
mod life;
mod listings;
#[path = "../machine/mod.rs"]
#[expect(dead_code, reason = "the simulation uses the rest")]
mod machine;
mod misses;
mod names;
mod optimizations;
mod overload;
mod passwords;
mod path_rules;
mod pipelining;
mod proxies;
mod random;
mod readmission;
mod relays;
mod requests;
mod schedule;
mod scripts;
mod shares;
mod timeouts;
mod tls;
mod tried_extensions;
mod uploads;
