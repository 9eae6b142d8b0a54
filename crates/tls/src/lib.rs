//! TLS for a worker: [`Acceptor`] makes the record layer ([`flash_engine::RecordLayer`]) of each connection from the
//! certificates of the sites and from the keys of session tickets, [`Connector`] that of each connection to a server of a route.
//!
//! - [`Handshakes`]: those that a thread of their own computes
//! - [`Bundle`]: certificates and keys on their way from the process that reads them to the workers, and the checks before
//! - [`Certificate`]: the names and dates of a certificate
//! - [`Trust`]: the servers of routes and the certificates of the issuers that are trusted
//! - [`Tickets`]: the keys of session tickets, the same in all workers at any time
//!
//! The protocol is that of `rustls`, the cryptography that of `aws-lc-rs`: TLS 1.3 and 1.2, without renegotiation,
//! compression or early data. Nothing here makes a system call, except that `aws-lc-rs` asks the kernel for random bytes.
//! Called by `flash-worker` and `flash-server`.

mod acceptor;
mod bundle;
mod carried;
mod certificate;
mod connector;
mod explain;
mod handshakes;
mod records;
mod tickets;
mod trust;

pub use acceptor::{Acceptor, NewLayer, protocol, warm_up_thread};
pub use bundle::{Bundle, Pair, SiteCertificates, WrongPair};
pub use carried::Carried;
pub use certificate::{Certificate, date};
pub use connector::Connector;
pub use handshakes::Handshakes;
pub use tickets::Tickets;
pub use trust::{Trust, TrustedServer, check_roots, is_server_name};
