//! Requests that an upstream answers: the connections to its servers ([`Links`]), and what one request and its
//! answer are on such a connection ([`Talk`]). Called by the wires and by [`Engine`](crate::Engine).

mod links;
mod talk;
mod upload;

pub(crate) use links::{FailedServers, LinkPlace, Links, NoLink, Seeker, Sought};
pub(crate) use talk::{Talk, TalkFailure};
pub(crate) use upload::{Framing, Upload};
