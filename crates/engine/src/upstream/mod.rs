//! Requests that an upstream answers: the connections to its servers ([`Links`]), the choice of a server (`pool`), and
//! what one request and its answer are on such a connection ([`Transaction`]). Called by [`relay`](crate::exchange::relay) and
//! [`Engine`](crate::Engine).

mod events;
mod handshake;
mod health;
mod idle;
mod links;
mod pool;
mod transaction;
mod upload;

pub(crate) use links::{LinkClaim, Links, NoLink, Sought};
pub(crate) use pool::{FailedServers, Seeker};
pub(crate) use transaction::{BadAnswer, Transaction};
pub(crate) use upload::Upload;
