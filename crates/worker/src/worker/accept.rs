//! New connections: accepting, refusing and watching them. Called by the event loop and the architectures.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use flash_engine::{AcceptBatch, Key, Readiness, WhyRefused};
use flash_prompt::epoll::{Epoll, Watch};
use flash_prompt::{AsFd, OwnedFd, net};
use flash_tls::{Acceptor, NewLayer};

use super::{Worker, kind, token};
use crate::calls::{Call, note_call};
use crate::setup::Accepts;
use crate::socket::Socket;

/// A new connection, or why there is no room for it.
type Accepted = Result<Key, (Socket, WhyRefused)>;

impl Worker {
    /// Accepts a batch of connections.
    pub(super) fn accept(&mut self, listener: usize) {
        let Some(queue) = self.queues.get_mut(listener) else { return };
        let batch = queue.poll_batch(self.now_ms, self.is_full);
        let has_emptied = self.accept_batch(listener, batch);
        self.queues[listener].handle_batch(self.now_ms, has_emptied);
    }

    /// Returns whether no connection is left in the queue.
    fn accept_batch(&mut self, listener: usize, batch: AcceptBatch) -> bool {
        for count in 0..batch.admitted_max + batch.refused_max {
            let Some(fd) = self.listeners.get(listener) else { return true };
            if self.accepts == Accepts::OneAtATime && !self.engine.is_drained() {
                return false;
            }
            let accepted = net::accept(fd);
            note_call(Call::Accept);
            match accepted {
                Ok((socket, _)) if count >= batch.admitted_max => self.refuse(&socket, WhyRefused::Overload),
                Ok((socket, peer)) => self.take(listener, socket, peer),
                Err(e) => match e.kind() {
                    io::ErrorKind::WouldBlock => return true,
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    _ => {
                        let listeners = std::mem::take(&mut self.listeners);
                        self.accept_at_limit(&listeners[listener]);
                        self.listeners = listeners;
                        return false;
                    }
                },
            }
        }
        false
    }

    /// Takes a new connection of this listener.
    fn take(&mut self, listener: usize, socket: OwnedFd, peer: SocketAddr) {
        let socket = Socket::own(socket);
        if listener < self.plain_listeners {
            self.welcome(socket, peer, None);
            return;
        }
        match self.tls.as_ref().and_then(Acceptor::layer) {
            Some(NewLayer { records, connection }) => {
                let accepted = self.engine.handle_accept_encrypted(&mut self.sys, socket, peer, records);
                if let Some((key, connection)) = self.watch(accepted, None).zip(connection) {
                    connection.store(key.to_u64(), Ordering::Relaxed);
                }
            }
            None => self.refuse(&socket, WhyRefused::Descriptors),
        }
    }

    /// Takes a new connection and watches it, in `elsewhere` if given. None if it was refused.
    pub fn welcome(&mut self, socket: Socket, peer: SocketAddr, elsewhere: Option<&Epoll>) -> Option<Key> {
        let accepted = self.engine.handle_accept(&mut self.sys, socket, peer);
        self.watch(accepted, elsewhere)
    }

    fn watch(&mut self, accepted: Accepted, elsewhere: Option<&Epoll>) -> Option<Key> {
        match accepted {
            Ok(key) => {
                let socket = self.engine.connection(key)?;
                let token = token(kind::CONNECTION, key.to_u64());
                let watched = match elsewhere {
                    Some(epoll) => epoll.add(socket, token, Watch::Connection),
                    None => self.mechanism.add(socket, token, Watch::Connection),
                };
                note_call(Call::Watch);
                if watched.is_ok() {
                    return Some(key);
                }
                // The kernel has no memory to watch the socket; nothing was received or sent yet.
                self.cut(key);
                self.count_refused(WhyRefused::Descriptors);
            }
            Err((socket, why)) => self.refuse(&socket, why),
        }
        None
    }

    /// Closes a connection that cannot continue.
    pub fn cut(&mut self, key: Key) {
        let broken = Readiness { broken: true, ..Readiness::default() };
        self.engine.handle_ready(&mut self.sys, key, broken);
    }

    /// Watches the listeners, or stops watching them so that other processes accept.
    pub fn listen(&mut self, on: bool) -> io::Result<()> {
        if self.listening != on {
            for (number, listener) in self.listeners.iter().enumerate() {
                if on {
                    // `Shared` would lose a wake-up: a worker that drains may be the one that a connection at a socket of all
                    // workers has woken, and does not accept.
                    let watch = if self.accepts == Accepts::All { Watch::Input } else { Watch::Shared };
                    self.mechanism.add(listener, token(kind::LISTENER, number as u64), watch)?;
                } else {
                    self.mechanism.remove(listener)?;
                }
            }
            self.listening = on;
        }
        Ok(())
    }

    /// Refuses one client at the limit of descriptors. Without a free descriptor, no connection can be
    /// accepted and the listener would stay ready forever, so the spare descriptor is used.
    pub fn accept_at_limit(&mut self, listener: impl AsFd) {
        self.spare = None;
        let accepted = net::accept(listener);
        note_call(Call::Accept);
        if let Ok((socket, _)) = accepted {
            self.refuse(&socket, WhyRefused::Descriptors);
        }
        self.spare = self.sys.supervisor.channel.try_clone().ok();
    }

    fn refuse(&mut self, socket: impl AsFd, why: WhyRefused) {
        self.refusals.refuse(socket);
        self.count_refused(why);
    }

    fn count_refused(&mut self, why: WhyRefused) {
        self.engine.count_refused(why);
        self.refusals.add(why);
    }
}
