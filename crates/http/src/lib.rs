//! HTTP itself: bytes to requests, and responses to bytes.
//!
//! Called by `engine`, whose steps feed it what a socket gave and send what it wrote, and by
//! `server` for dates and escapes in logs and listings. Everything here is a pure function of its
//! arguments: no input or output, no clock (callers pass the time), no unsafe code, and no panic
//! whatever the bytes are.

pub mod body;
pub mod conditional;
pub mod date;
pub mod error_page;
pub mod etag;
mod fields;
pub mod multipart;
pub mod negotiate;
pub mod range;
pub mod request;
pub mod request_buf;
mod request_line;
pub mod response;
pub mod target;
pub mod types;

pub use body::{BadBody, Chunked, Progress};
pub use conditional::{Validators, Verdict};
pub use negotiate::{Acceptable, Choice, Coding};
pub use range::{ByteRange, Ranges};
pub use request::{BadHead, Body, Head, HeadLimits, Method, Request, Version, head_end, parse_head};
pub use request_buf::RequestBuf;
pub use response::{HeadWriter, Status};
pub use target::{BadPath, EncodedSlash, decode_path};
pub use types::TypeTable;
