//! A client's socket as the engine has it: dropping it closes the connection, also for a thread that waits
//! on it.

use std::sync::Arc;

use flash_prompt::net;
use flash_prompt::{AsFd, BorrowedFd, OwnedFd};

use super::calls::{Call, lap};

/// A client's socket.
#[derive(Debug)]
pub enum Socket {
    /// The loop that has the engine waits on it, too. It is closed before the other is dropped.
    Own(OwnedFd, Closed),
    /// A thread waits on it without the engine, by a handle of its own ([`Socket::share`]).
    Shared(Arc<OwnedFd>),
}

/// Counts the closing of what was dropped before it.
#[derive(Debug)]
pub struct Closed;

impl Drop for Closed {
    fn drop(&mut self) {
        lap(Call::CloseConnection);
    }
}

impl Socket {
    /// One that nobody but the loop waits on.
    pub(super) fn own(socket: OwnedFd) -> Self {
        Socket::Own(socket, Closed)
    }

    /// A handle to wait on; it keeps the number from being used for another connection. None of one that is
    /// not to be shared.
    pub fn share(&self) -> Option<Arc<OwnedFd>> {
        match self {
            Socket::Own(..) => None,
            Socket::Shared(socket) => Some(Arc::clone(socket)),
        }
    }
}

impl AsFd for Socket {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Own(socket, _) => socket.as_fd(),
            Socket::Shared(socket) => socket.as_fd(),
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Socket::Shared(socket) = self
            && Arc::strong_count(socket) > 1
        {
            // Who waits on it is to notice. It fails only when the connection is over anyway.
            let _ = net::end(socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use flash_prompt::epoll::{Epoll, Watch};

    use super::*;

    #[test]
    fn who_waits_on_a_socket_is_told_when_it_is_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let _client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let (accepted, _) = listener.accept().expect("accepted");
        let socket = Socket::Shared(Arc::new(accepted.into()));
        let handle = socket.share().expect("a handle");
        let mut epoll = Epoll::new(4).expect("an epoll");
        epoll.add(&handle, 7, Watch::Connection).expect("watched");
        let writable = epoll.wait(Some(15_000)).expect("a wait").all(|ready| ready.writable && !ready.broken);
        assert!(writable, "nothing yet");
        drop(socket);
        let told: Vec<_> = epoll.wait(Some(15_000)).expect("a wait").collect();
        assert!(told.iter().any(|ready| ready.token == 7 && ready.broken), "{told:?}");
    }
}
