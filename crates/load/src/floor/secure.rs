//! A connection of the floor through TLS: the record layer that Flash uses, and nothing between it and the ready reply.

use std::io::{BufRead, ErrorKind, Write};
use std::sync::Arc;

use flash_prompt::OwnedFd;
use flash_prompt::net;
use rustls::{ServerConfig, ServerConnection};

use crate::tls::Socket;
use flash_kit::{Error, Result};

pub(super) struct Session {
    tls: ServerConnection,
}

impl Session {
    /// Errors: run, for a configuration that serves nobody.
    pub(super) fn new(config: &Arc<ServerConfig>) -> Result<Self> {
        let tls = ServerConnection::new(Arc::clone(config));
        let mut tls = tls.map_err(|why| Error::run(format!("cannot serve TLS: {why}")))?;
        // A reply is encrypted as a whole.
        tls.set_buffer_limit(None);
        Ok(Self { tls })
    }

    /// Receives and answers; gives false when the connection is over.
    pub(super) fn answer(&mut self, fd: &OwnedFd, cipher: &mut [u8], reply: &[u8]) -> bool {
        loop {
            // A rest of an earlier reply goes first.
            while self.tls.wants_write() {
                match self.tls.write_tls(&mut Socket(fd)) {
                    Ok(_) => {}
                    Err(why) => return why.kind() == ErrorKind::WouldBlock,
                }
            }
            let received = match net::recv(fd, cipher) {
                Ok(0) => return false,
                Ok(bytes) => bytes,
                Err(why) => return why.kind() == ErrorKind::WouldBlock,
            };
            if !self.take(&cipher[..received], reply) {
                return false;
            }
        }
    }

    /// Decrypts, and writes a reply for what was a request.
    fn take(&mut self, mut cipher: &[u8], reply: &[u8]) -> bool {
        while !cipher.is_empty() {
            let taken = self.tls.read_tls(&mut cipher).is_ok();
            let Some(state) = self.tls.process_new_packets().ok().filter(|_| taken) else { return false };
            if state.plaintext_bytes_to_read() > 0 {
                let mut reader = self.tls.reader();
                let bytes = reader.fill_buf().map_or(0, <[u8]>::len);
                reader.consume(bytes);
                if bytes > 0 && self.tls.writer().write_all(reply).is_err() {
                    return false;
                }
            }
        }
        true
    }
}
