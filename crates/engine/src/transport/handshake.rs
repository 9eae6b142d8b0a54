//! The handshake of an encrypted connection, step by step.

use std::io::{self, ErrorKind};

use super::Transport;
use crate::machine::{Handshake, Machine};

/// Maximum number of receives in one step of a handshake.
const HANDSHAKE_RECEIVES_MAX: u32 = 8;

/// The result of a step of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeStep {
    Done(Handshake),
    /// The client has to send more.
    Waits,
    /// There may be more to receive.
    Yields,
    /// The client does not speak TLS but something that begins with a letter, such as HTTP.
    Plain,
    /// The client broke the protocol, or accepts nothing that this server offers.
    Failed,
    /// The client closed the connection.
    Left,
}

impl<S> Transport<S> {
    /// Continues the handshake of an encrypted connection. Its first requests may have come along with the end of the
    /// handshake, and no event will report them.
    pub(crate) fn continue_handshake<M: Machine<Socket = S>>(&mut self, machine: &mut M) -> HandshakeStep {
        for _ in 0..HANDSHAKE_RECEIVES_MAX {
            match self.take_back(machine) {
                Ok(true) => {}
                Ok(false) => return HandshakeStep::Waits,
                Err(e) => return self.failed(e),
            }
            let Some(tls) = &mut self.tls else { return HandshakeStep::Plain };
            if let Some(handshake) = tls.layer.handshake() {
                return HandshakeStep::Done(handshake);
            }
            if !self.readable {
                return HandshakeStep::Waits;
            }
            let is_first = !tls.has_received;
            let mut is_plain = false;
            // The record layer must not see such bytes: it would answer with an alert, which the client does not understand.
            let pulled = self.pull(machine, |bytes| {
                is_plain = is_first && bytes.first().is_some_and(u8::is_ascii_alphabetic);
                if is_plain { Err(ErrorKind::InvalidData.into()) } else { Ok(()) }
            });
            match pulled {
                Ok(0) => return HandshakeStep::Left,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == ErrorKind::InvalidData && is_plain => {
                    self.tls = None;
                    return HandshakeStep::Plain;
                }
                Err(e) => return self.failed(e),
            }
        }
        HandshakeStep::Yields
    }

    /// Takes over what was computed elsewhere, and sends what the record layer answers. False while it is under way.
    fn take_back<M: Machine<Socket = S>>(&mut self, machine: &mut M) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        let taken = tls.layer.take_back();
        if self.flush(machine).is_err() {
            return Err(ErrorKind::ConnectionReset.into());
        }
        taken
    }

    fn failed(&mut self, why: io::Error) -> HandshakeStep {
        let is_of_layer = why.kind() == ErrorKind::InvalidData;
        if let Some(tls) = &mut self.tls {
            tls.failure = Some(why);
        }
        if is_of_layer { HandshakeStep::Failed } else { HandshakeStep::Left }
    }
}
