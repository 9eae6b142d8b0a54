//! HTTP itself: parses requests and encodes responses, and does the reverse for upstream servers.
//!
//! Called by `engine`, and by `server` and `lab` for dates and escapes. Everything here is a pure function of
//! its arguments: no input or output, no clock (callers pass the time), and no panic on any input.
//!
//! Where to start reading: [`request`] is the heart. It decides which request heads are valid and how their
//! bodies are framed, which is what protects against request smuggling. [`target`] makes paths safe, and
//! [`response`] writes heads. [`h2`] does the same for HTTP/2. For upstream servers, [`forward`] writes the request and [`upstream_response`] parses the
//! head of the response.

pub mod basic;
pub mod body;
pub mod client;
pub mod conditional;
pub mod date;
pub mod error_page;
pub mod etag;
pub mod forward;
pub mod granted;
pub mod h2;
mod hop;
pub mod negotiate;
pub mod proxies;
pub mod proxy_protocol;
pub mod range;
mod recoded;
mod refusal;
pub mod request;
pub mod request_buf;
pub mod response;
pub mod target;
pub mod types;
pub mod upstream_response;

pub use body::{BadBody, Chunked, Progress};
pub use conditional::{PreconditionResult, Validators};
pub use forward::{
    Forwarding, Inbound, Script, cgi_length, each_cgi_variable, end_proxy_head, write_proxy_head,
};
pub use hop::Field;
pub use negotiate::{Acceptable, Choice, Coding};
pub use range::{ByteRange, Ranges};
pub use request::{BadHead, Body, Head, HeadLimits, Method, Request, Version, head_end, parse_head};
pub use request_buf::RequestBuf;
pub use response::{HeadWriter, Status};
pub use target::{BadPath, EncodedSlash, decode_path};
pub use types::TypeTable;
pub use upstream_response::{
    BadResponse, HandBack, HeadSyntax, ParsedHead, ResponseBody, ResponseHead, ResponseTo, parse_response,
};
