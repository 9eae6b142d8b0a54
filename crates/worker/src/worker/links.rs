//! Connections to the servers of routes: taking them from the gateway and watching them. Called by the event loop.

use std::io;

use flash_engine::Key;
use flash_prompt::OwnedFd;
use flash_prompt::epoll::Watch;

use super::{Worker, kind, token};
use crate::calls::{Call, note_call};
use crate::gateway::GatewayEvent;
use crate::socket::Socket;

impl Worker {
    /// Takes the connections that the gateway has made, and the results of its probes.
    pub(super) fn receive_from_gateway(&mut self) {
        for event in self.sys.gateway.receive() {
            match event {
                GatewayEvent::Link((link, made)) => self.take_link(link, made),
                GatewayEvent::Probed(server, is_up) => {
                    self.engine.handle_probed(&mut self.sys, server, is_up);
                }
            }
        }
    }

    /// Reports the connections that were not made for want of a gateway.
    pub(super) fn fail_links(&mut self) {
        for (link, made) in self.sys.gateway.take_failed() {
            self.take_link(link, made);
        }
    }

    fn take_link(&mut self, link: Key, made: io::Result<OwnedFd>) {
        let watched = made.map(Socket::link).and_then(|socket| {
            let watched =
                self.mechanism.add(&socket, token(kind::UPSTREAM, link.to_u64()), Watch::Connection);
            note_call(Call::Watch);
            // Whatever its reason, the server is not at fault.
            watched.map(|()| socket).map_err(io::Error::other)
        });
        match watched {
            Ok(socket) => self.engine.handle_connected(&mut self.sys, link, socket),
            Err(why) => self.engine.handle_not_connected(&mut self.sys, link, &why),
        }
    }
}
