//! The socket of a client or a server, as the engine holds it. Dropping it closes the connection, even if another thread waits
//! on the socket.

use std::sync::Arc;

use flash_prompt::net;
use flash_prompt::{AsFd, BorrowedFd, OwnedFd};

use super::calls::{Call, note_call};

/// The socket of a client or a server.
#[derive(Debug)]
pub enum Socket {
    /// Only the event loop waits on it. The field order matters: the descriptor is closed before `Closed` is
    /// dropped.
    Own(OwnedFd, Closed),
    /// It leads to a server.
    Link(OwnedFd, Closed),
    /// A thread waits on it without the engine, through its own handle ([`Socket::share`]).
    Shared(Arc<OwnedFd>),
}

/// Times the close of the descriptor that was dropped before it.
#[derive(Debug)]
pub struct Closed;

impl Drop for Closed {
    fn drop(&mut self) {
        note_call(Call::CloseConnection);
    }
}

impl Socket {
    /// A socket on which only the event loop waits.
    pub(super) fn own(socket: OwnedFd) -> Self {
        Socket::Own(socket, Closed)
    }

    /// A socket that leads to a server.
    pub(super) fn link(socket: OwnedFd) -> Self {
        Socket::Link(socket, Closed)
    }

    /// A handle to wait on. It prevents the descriptor number from being reused for another connection. None
    /// for a socket that is not shared.
    pub fn share(&self) -> Option<Arc<OwnedFd>> {
        match self {
            Socket::Own(..) | Socket::Link(..) => None,
            Socket::Shared(socket) => Some(Arc::clone(socket)),
        }
    }
}

impl AsFd for Socket {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Own(socket, _) | Socket::Link(socket, _) => socket.as_fd(),
            Socket::Shared(socket) => socket.as_fd(),
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Socket::Shared(socket) = self
            && Arc::strong_count(socket) > 1
        {
            // Wakes the thread that waits on the socket, even if this side was closed before. Its sandbox forbids to close
            // the other side. This fails only if the connection has already ended.
            let _ = net::end_sending(socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use flash_prompt::epoll::{Epoll, Watch};

    use super::*;

    #[test]
    fn dropping_a_socket_wakes_the_thread_that_waits_on_it() {
        for has_ended_sending in [false, true] {
            wakes(has_ended_sending);
        }
    }

    fn wakes(has_ended_sending: bool) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let _client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let (accepted, _) = listener.accept().expect("accepted");
        let socket = Socket::Shared(Arc::new(accepted.into()));
        let handle = socket.share().expect("a handle");
        if has_ended_sending {
            net::end_sending(&socket).expect("ended");
        }
        let mut epoll = Epoll::new(4).expect("an epoll");
        epoll.add(&handle, 7, Watch::Connection).expect("watched");
        let writable = epoll.wait(Some(15_000)).expect("a wait").all(|ready| ready.writable && !ready.broken);
        assert!(writable, "nothing yet");
        drop(socket);
        let told: Vec<_> = epoll.wait(Some(15_000)).expect("a wait").collect();
        assert!(told.iter().any(|ready| ready.token == 7), "{told:?}");
    }
}
