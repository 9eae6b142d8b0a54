//! HTTP/2 (RFC 9113): frames, header compression, requests, flow control and priorities.
//!
//! Called by the engine's wire. Everything here is a pure function of bytes and of the state that a type holds; which streams
//! there are, and what is sent when, is the wire's decision. Nothing here panics on any input.
//!
//! Where to start reading: [`frame`] splits the bytes of a connection into frames, [`hpack`] turns a header block into a list of
//! fields, and [`head`] turns such a list into a [`Request`](crate::Request) by the rules that protect HTTP/1.1 servers
//! behind this one.

mod error;
pub mod frame;
pub mod head;
pub mod hpack;
pub mod priority;
pub mod settings;
pub mod stream;
pub mod window;

pub use error::{ErrorCode, Violation};
pub use frame::{FRAME_HEAD_BYTES, Frame, PREFACE, next_frame};
pub use head::{BadRequest, RequestHead, Scratch, check_trailers, read_head};
pub use hpack::{Decoder, Encoder, FieldList, Indexing, ListLimits};
pub use priority::Priority;
pub use settings::{PeerSettings, Setting};
pub use stream::Receiving;
pub use window::Window;
