//! What must hold of everything that reads bytes from outside, whatever the bytes are.
//!
//! Called by the fuzz targets in `fuzz/` and by this crate's own tests, with the corpus in
//! `fuzz/corpus` and with inputs that proptest makes. Each check takes the bytes of one input and
//! panics where a property does not hold. It may not be what the server does again: where a result
//! is compared, the other one comes from a plain and slow reading of the RFC.

mod body;
mod conditional;
mod config;
mod control;
mod date;
pub mod messages;
mod negotiate;
mod path;
mod protocol;
mod range;
mod request;
mod request_reference;
mod text;

pub use body::body;
pub use conditional::conditional;
pub use config::config;
pub use control::control;
pub use date::date;
pub use negotiate::negotiate;
pub use path::path;
pub use protocol::protocol;
pub use range::range;
pub use request::request;

/// Checks one input.
pub type Check = fn(&[u8]);

/// Every check by the name of its fuzz target and its corpus.
pub const TARGETS: &[(&str, Check)] = &[
    ("body", body),
    ("conditional", conditional),
    ("config", config),
    ("control", control),
    ("date", date),
    ("negotiate", negotiate),
    ("path", path),
    ("protocol", protocol),
    ("range", range),
    ("request", request),
];
