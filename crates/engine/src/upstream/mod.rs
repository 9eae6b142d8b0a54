//! Requests that an upstream answers: the connections to its servers ([`Links`]), the choice of a server (`pool`), and
//! what one request and its answer are on such a connection ([`Talk`]). Called by [`relay`](crate::exchange::relay) and
//! [`Engine`](crate::Engine).

mod health;
mod idle;
mod links;
mod pool;
mod sealed;
mod talk;
mod upload;

pub(crate) use links::{LinkPlace, Links, NoLink, Sought};
pub(crate) use pool::{FailedServers, Seeker};
pub(crate) use talk::{Talk, TalkFailure};
pub(crate) use upload::Upload;
