//! Calls that never wait for a disk: what a worker's loop is made of.

pub mod channel;
pub mod clock;
pub mod epoll;
pub mod file;
mod levels;
pub mod mapping;
pub mod mechanism;
pub mod net;
pub mod sendfile;
pub mod timer;
pub mod usage;
