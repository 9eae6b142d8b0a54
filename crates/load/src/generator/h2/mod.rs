//! HTTP/2 as a client (RFC 9113): many requests at once over a connection.
//!
//! [`mux`] has the connections of a generator, which all its streams of requests share, and finds one for each request;
//! [`connection`] speaks the protocol on one of them, with the frames and the header compression of `flash-http`; [`answer`] is
//! one request and what came of it so far, and [`upload`] its body on the way to the server.

pub(super) mod answer;
pub(super) mod connection;
pub(super) mod head;
pub(super) mod mux;
pub(super) mod upload;
