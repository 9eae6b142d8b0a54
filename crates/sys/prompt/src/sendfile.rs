//! Sends parts of files from the page cache by sendfile(2).
//!
//! This is an alternative to a read and a send, for measurements and never the default, because sendfile(2)
//! has no form that cannot block. The kernel is first asked which pages are in memory, and each whether it is read;
//! no others are sent. But a page can be evicted between the calls, and a mark left by an earlier reader can make the
//! kernel read ahead.
//! The socket holds the pages themselves until the client has received them, so a file changed in place changes the
//! bytes in flight.

use std::io;

use rustix::fd::AsFd;
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::file::{Resident, read_start};

/// The result of sending a head and a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Bytes offered and bytes accepted, counting head and part together. Less than offered means that the
    /// socket has no more room.
    Took {
        /// The length of the head plus the resident bytes of the part.
        offered: usize,
        /// The bytes that the socket accepted.
        sent: usize,
    },
    /// The first byte of the part is not in memory; no byte was sent.
    Absent,
    /// The kernel does not report residency, or it cannot send this file; no byte was sent.
    Unknown,
    /// The file ends before the part; no byte was sent.
    Ended,
    /// Reading the file failed; no byte was sent.
    Failed,
}

/// Sends `head`, then `length` bytes of `file` at `offset`, as far as they are in memory without a gap.
///
/// Errors: any of the socket; `WouldBlock` if it has no room.
pub fn send_resident(
    socket: impl AsFd,
    head: &[u8],
    file: impl AsFd,
    offset: u64,
    length: usize,
) -> io::Result<Sent> {
    match read_start(&file, offset, length) {
        Ok(Resident::Bytes(length)) => send_behind_by(&socket, head, length, |from, left| {
            let mut at = offset + from;
            sendfile(&socket, &file, Some(&mut at), left)
        }),
        Ok(Resident::Absent) => Ok(Sent::Absent),
        Ok(Resident::Unknown) => Ok(Sent::Unknown),
        Err(_) => Ok(Sent::Failed),
    }
}

/// Sends `head`, then `length` bytes through `send_part`, which gets the number of bytes already sent and the
/// number left. The caller thereby decides whether the call can block.
///
/// Errors: any of the socket; `WouldBlock` if it has no room.
pub fn send_behind_by(
    socket: impl AsFd,
    head: &[u8],
    length: usize,
    mut send_part: impl FnMut(u64, usize) -> Result<usize, Errno>,
) -> io::Result<Sent> {
    let offered = head.len() + length;
    let mut sent = 0;
    if !head.is_empty() {
        // `MORE` makes the segment wait for the first bytes of the file.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT | SendFlags::MORE;
        sent = send(&socket, head, flags)?;
        if sent < head.len() {
            return Ok(Sent::Took { offered, sent });
        }
    }
    // After a short send, only the next call can distinguish a full socket from a file that has become
    // shorter.
    while sent < offered {
        match send_part((sent - head.len()) as u64, offered - sent) {
            Ok(0) if sent == 0 => return Ok(Sent::Ended),
            Ok(0) => return Ok(Sent::Took { offered: sent, sent }),
            Ok(n) => sent += n,
            Err(Errno::INTR) => {}
            Err(_) if sent > 0 => break,
            // This file system does not support the call.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => return Ok(Sent::Unknown),
            Err(Errno::IO) => return Ok(Sent::Failed),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(Sent::Took { offered, sent })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let (server, _) = listener.accept().expect("accepted");
        server.set_nonblocking(true).expect("a flag set");
        (server, client)
    }

    /// A file without a name, on the disk of the sources.
    fn file(bytes: &[u8]) -> File {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("sendfile-{}-{number}.tmp", std::process::id());
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        std::fs::write(&path, bytes).expect("written");
        let file = File::options().read(true).write(true).open(&path).expect("opened");
        std::fs::remove_file(&path).expect("removed");
        file
    }

    fn send_behind(
        socket: &TcpStream,
        head: &[u8],
        file: &File,
        from: u64,
        length: usize,
    ) -> io::Result<Sent> {
        send_behind_by(socket, head, length, |sent, left| {
            sendfile(socket, file, Some(&mut (from + sent)), left)
        })
    }

    #[test]
    fn the_head_and_resident_bytes_are_sent_in_order() {
        let (server, mut client) = connection();
        let bytes: Vec<u8> = (0..20_000_u32).map(|n| (n % 251) as u8).collect();
        let file = file(&bytes);
        let sent = send_resident(&server, b"head", &file, 100, 15_000).expect("sent");
        if sent == Sent::Unknown {
            return crate::skipping::skip("this kernel or file system does not report residency");
        }
        assert_eq!(sent, Sent::Took { offered: 15_004, sent: 15_004 });
        let mut received = vec![0; 15_004];
        client.read_exact(&mut received).expect("received");
        assert_eq!((&received[..4], &received[4..]), (&b"head"[..], &bytes[100..15_100]));
    }

    #[test]
    fn a_file_that_ends_early_is_distinguished_from_a_full_socket() {
        let (server, mut client) = connection();
        let mut file = file(b"short");
        let ended = Sent::Took { offered: 4 + 5, sent: 4 + 5 };
        assert_eq!(send_behind(&server, b"head", &file, 0, 100).expect("sent"), ended);
        assert_eq!(send_behind(&server, b"", &file, 5, 100).expect("sent"), Sent::Ended);
        // Now the socket runs out of room before the file ends.
        file.write_all(&vec![7; 32 << 20]).expect("written");
        let full = send_behind(&server, b"", &file, 0, 32 << 20).expect("sent");
        let Sent::Took { offered, mut sent } = full else { panic!("{full:?}") };
        assert!(offered == 32 << 20 && sent < offered, "{full:?}");
        // Bytes that the client's side takes meanwhile make room for more.
        let mut fill = |head: &[u8]| loop {
            match send_behind(&server, head, &file, 0, 32 << 20) {
                Ok(Sent::Took { sent: more, .. }) => sent += more,
                other => break other.expect_err("no room").kind(),
            }
        };
        assert_eq!(fill(b""), io::ErrorKind::WouldBlock);
        assert_eq!(fill(b"head"), io::ErrorKind::WouldBlock, "no room for the head");
        drop(server);
        let mut all = Vec::new();
        client.read_to_end(&mut all).expect("received");
        assert_eq!(all.len(), 4 + 5 + sent);
    }
}
