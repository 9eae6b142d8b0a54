//! Clients of the backend: their connections, their messages, and the replies to them. Called by the event loop
//! ([`BackendLoop`]).

use std::io;
use std::ops::ControlFlow;

use flash_engine::backend::ClientFile;
use flash_engine::backend::protocol::{Reply, Status, decode};
use flash_engine::{FileId, Key};
use flash_prompt::channel::{self, Received};
use flash_prompt::epoll::{Ready, Watch};
use flash_prompt::{OwnedFd, file};

use super::session::{Sent, Session};
use super::{ACCEPTS_PER_TURN_MAX, BackendLoop, MESSAGES_PER_TURN_MAX};
use crate::REPORT_MS;
use crate::calls::{Call, note_call};
use crate::convert;
use crate::site_file::SiteFile;
use crate::worker::{kind, token};

impl BackendLoop {
    pub(super) fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            let Some(listener) = &self.listener else { return };
            let accepted = channel::accept(listener);
            note_call(Call::Accept);
            match accepted {
                Ok((socket, user)) => self.welcome(socket, user),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.accept_at_limit(),
            }
        }
    }

    fn welcome(&mut self, socket: OwnedFd, user: u32) {
        let Some(key) = self.backend.handle_accept(user, self.users.contains(&user)) else {
            return self.refuse(socket);
        };
        let watched = self.mechanism.add(&socket, token(kind::CONNECTION, key.to_u64()), Watch::Connection);
        note_call(Call::Watch);
        if watched.is_err() {
            // The kernel has no memory to watch the socket.
            self.backend.handle_gone(key);
            return self.refuse(socket);
        }
        self.sessions.insert(key, Session::new(socket));
    }

    /// Without a free descriptor the listener would stay ready forever, so one client is refused with the
    /// spare descriptor.
    fn accept_at_limit(&mut self) {
        self.spare = None;
        if let Some(Ok((socket, _))) = self.listener.as_ref().map(channel::accept) {
            self.refuse(socket);
        }
        note_call(Call::Accept);
        self.spare = self.supervisor.channel.try_clone().ok();
    }

    fn refuse(&mut self, socket: OwnedFd) {
        let _ = Session::new(socket).send(Reply::Hello(Status::NoRoom));
        if self.refusals.is_due(self.now_ms, REPORT_MS) {
            self.supervisor.report("refused a connection: a limit of connections or descriptors is reached");
        }
    }

    pub(super) fn handle_client(&mut self, client: Key, ready: Ready) {
        if ready.writable
            && let Some(session) = self.sessions.get_mut(&client)
        {
            let sent = session.go_on();
            note_call(Call::Send);
            if self.has_ended(client, sent) {
                return self.end(client);
            }
        }
        if ready.readable || ready.hung_up || ready.broken {
            self.receive(client);
        }
    }

    /// Receives messages of a client, until there is none or its turn is over.
    pub(super) fn receive(&mut self, client: Key) {
        for _ in 0..MESSAGES_PER_TURN_MAX {
            if self.draining {
                // Its requests so far are answered, and then it is closed.
                return;
            }
            let Some(session) = self.sessions.get(&client) else { return };
            let mut descriptors = Vec::new();
            let received = channel::recv_reported(session, &mut self.buffer, &mut descriptors);
            note_call(Call::Receive);
            let standing = match received {
                Ok(Received { bytes: 0, .. }) => ControlFlow::Break(()),
                Ok(Received { bytes, is_complete: false }) if descriptors.is_empty() => {
                    self.take_cut(client, bytes)
                }
                Ok(Received { bytes, .. }) => self.take(client, bytes, descriptors),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // A message that is too long, or a broken connection.
                Err(e) => {
                    if e.kind() == io::ErrorKind::InvalidData {
                        self.backend.note_malformed();
                    }
                    self.give_back(descriptors);
                    ControlFlow::Break(())
                }
            };
            if standing == ControlFlow::Break(()) {
                self.send_replies();
                return self.end(client);
            }
        }
        self.unread.push_back(client);
    }

    /// Handles a message in the buffer.
    fn take(&mut self, client: Key, length: usize, mut descriptors: Vec<OwnedFd>) -> ControlFlow<()> {
        let count = descriptors.len();
        let file = match descriptors.pop() {
            Some(file) if descriptors.is_empty() => match file::identity(&file) {
                Ok(identity) => Some(self.received(file, identity)),
                Err(_) => return ControlFlow::Break(()),
            },
            Some(file) => {
                descriptors.push(file);
                self.give_back(descriptors);
                self.backend.note_malformed();
                return ControlFlow::Break(());
            }
            None => None,
        };
        match decode(&self.buffer[..length], count) {
            Ok(request) => self.backend.handle_message(client, request, file),
            Err(_) => {
                self.backend.note_malformed();
                ControlFlow::Break(())
            }
        }
    }

    /// Handles a message in the buffer whose descriptor was lost, because this process has too many.
    fn take_cut(&mut self, client: Key, length: usize) -> ControlFlow<()> {
        if self.refusals.is_due(self.now_ms, REPORT_MS) {
            self.supervisor.report("answered a request with BUSY: the limit of descriptors is reached");
        }
        match decode(&self.buffer[..length], 1) {
            Ok(request) => self.backend.handle_cut_message(client, request),
            Err(_) => {
                self.backend.note_malformed();
                ControlFlow::Break(())
            }
        }
    }

    fn received(&mut self, file: OwnedFd, identity: file::Identity) -> ClientFile<SiteFile> {
        let file::Identity { device, inode, mount, kind } = identity;
        let share = self.backend.share_of(device);
        self.backend.handle_backlog(share, self.closer.backlog(share));
        let mut file = SiteFile::from(file);
        file.found_at(share, b"", &self.returned);
        ClientFile { file, id: FileId { device, inode, mount }, kind: convert::kind(kind) }
    }

    /// Passes descriptors that are of no use to the threads that close them.
    fn give_back(&mut self, descriptors: Vec<OwnedFd>) {
        for file in descriptors {
            if let Ok(identity) = file::identity(&file) {
                drop(self.received(file, identity));
            }
        }
    }

    pub(super) fn send_replies(&mut self) {
        while let Some((client, reply)) = self.backend.poll_reply() {
            if let Some(endpoint) = self.endpoint.as_mut().filter(|endpoint| endpoint.client() == client) {
                endpoint.handle_reply(reply, &mut self.backend, self.now_ms);
                continue;
            }
            let Some(session) = self.sessions.get_mut(&client) else { continue };
            let sent = session.send(reply);
            note_call(Call::Send);
            if self.has_ended(client, sent) {
                self.end(client);
            }
        }
    }

    /// Whether a connection ends after replies were sent: it failed, or it was the last reply of a drain.
    pub(super) fn has_ended(&self, client: Key, sent: Sent) -> bool {
        let has_finished = self.draining && self.backend.is_idle(client);
        sent == Sent::Failed || (has_finished && sent == Sent::All)
    }

    pub(super) fn end(&mut self, client: Key) {
        self.sessions.remove(&client);
        self.backend.handle_gone(client);
    }
}
