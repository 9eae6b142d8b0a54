//! Header compression of HTTP/2 (RFC 7541): [`Decoder`] for request heads, [`Encoder`] for response heads.
//!
//! Called by the engine. Each connection has one of each, because both depend on all blocks before. Everything is bounded: the
//! dynamic tables in bytes, a decoded list in bytes and fields whatever its block expands to, and the work by the length of
//! the block, because a list that has become too large takes no more copies.

mod decode;
mod encode;
mod huffman;
mod list;
mod table;

pub use decode::{Decoder, ListLimits};
pub use encode::{Encoder, Indexing};
pub use list::FieldList;

/// The size of a dynamic table unless SETTINGS change it (RFC 9113 section 6.5.2), in bytes as RFC 7541 section 4.1 counts.
pub const TABLE_BYTES: usize = 4096;

/// The size of a field without its name and its value (RFC 7541 section 4.1).
pub const FIELD_OVERHEAD_BYTES: usize = 32;

/// A header block that cannot be decoded: the connection must end with `COMPRESSION_ERROR` (RFC 9113 section 4.3). The text
/// says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadBlock(pub &'static str);
