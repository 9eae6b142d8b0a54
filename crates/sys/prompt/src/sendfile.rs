//! Parts of files that the kernel sends from the page cache: sendfile(2).
//!
//! An alternative to a read and a send, to be measured, never the default: the kernel has no form of it
//! that does not wait. It is asked first what is in memory, and no more is sent; but a page may be
//! evicted between the question and the call, or its read may be under way still, and a mark that an
//! earlier reader left makes the kernel read ahead. What was taken but not received yet are the pages
//! themselves: a file that is changed in place changes what is under way.

use std::io;

use rustix::fd::AsFd;
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::file::{Resident, resident_start};

/// What came of sending a head and a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Head and part together: of so many bytes offered, the socket took so many; fewer mean that it
    /// has no more room.
    Took {
        /// The head, and what is in memory of the part.
        offered: usize,
        /// What was taken.
        sent: usize,
    },
    /// The first byte of the part is not in memory; nothing was sent.
    Absent,
    /// The kernel does not tell what is in memory, or cannot send this file; nothing was sent.
    Unknown,
    /// The file ends before the part; nothing was sent.
    Ended,
    /// Reading the file failed; nothing was sent.
    Failed,
}

/// Sends `head`, then what is in memory of `length` bytes of `file` at `offset`, as far as it is there
/// without a gap.
///
/// Errors: those of the socket; `WouldBlock` when it has no room.
pub fn send_resident(
    socket: impl AsFd,
    head: &[u8],
    file: impl AsFd,
    offset: u64,
    length: usize,
) -> io::Result<Sent> {
    match resident_start(&file, offset, length) {
        Ok(Resident::Bytes(length)) => send_behind_by(&socket, head, length, |from, left| {
            let mut at = offset + from;
            sendfile(&socket, &file, Some(&mut at), left)
        }),
        Ok(Resident::Absent) => Ok(Sent::Absent),
        Ok(Resident::Unknown) => Ok(Sent::Unknown),
        Err(_) => Ok(Sent::Failed),
    }
}

/// Sends `head`, then `length` bytes by `send_part`, which is given how many of them were sent and how many
/// are left. It may wait or not: that, the caller decides.
///
/// Errors: those of the socket; `WouldBlock` when it has no room.
pub fn send_behind_by(
    socket: impl AsFd,
    head: &[u8],
    length: usize,
    mut send_part: impl FnMut(u64, usize) -> Result<usize, Errno>,
) -> io::Result<Sent> {
    let offered = head.len() + length;
    let mut sent = 0;
    if !head.is_empty() {
        // The segment waits for the first bytes of the file.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT | SendFlags::MORE;
        sent = send(&socket, head, flags)?;
        if sent < head.len() {
            return Ok(Sent::Took { offered, sent });
        }
    }
    // Short of all, only the next call tells a full socket from a file that has become shorter.
    while sent < offered {
        match send_part((sent - head.len()) as u64, offered - sent) {
            Ok(0) if sent == 0 => return Ok(Sent::Ended),
            Ok(0) => return Ok(Sent::Took { offered: sent, sent }),
            Ok(n) => sent += n,
            Err(Errno::INTR) => {}
            Err(_) if sent > 0 => break,
            // Not from this file system.
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
    fn a_head_and_what_is_in_memory_go_out_in_order() {
        let (server, mut client) = connection();
        let bytes: Vec<u8> = (0..20_000_u32).map(|n| (n % 251) as u8).collect();
        let file = file(&bytes);
        let sent = send_resident(&server, b"head", &file, 100, 15_000).expect("sent");
        if sent == Sent::Unknown {
            return println!("skipped: this kernel or file system does not tell what is in memory");
        }
        assert_eq!(sent, Sent::Took { offered: 15_004, sent: 15_004 });
        let mut received = vec![0; 15_004];
        client.read_exact(&mut received).expect("received");
        assert_eq!((&received[..4], &received[4..]), (&b"head"[..], &bytes[100..15_100]));
    }

    #[test]
    fn a_file_that_ends_early_is_told_from_a_socket_without_room() {
        let (server, mut client) = connection();
        let mut file = file(b"short");
        let ended = Sent::Took { offered: 4 + 5, sent: 4 + 5 };
        assert_eq!(send_behind(&server, b"head", &file, 0, 100).expect("sent"), ended);
        assert_eq!(send_behind(&server, b"", &file, 5, 100).expect("sent"), Sent::Ended);
        // Now the socket is the one that gives out first.
        file.write_all(&vec![7; 32 << 20]).expect("written");
        let full = send_behind(&server, b"", &file, 0, 32 << 20).expect("sent");
        let Sent::Took { offered, sent } = full else { panic!("{full:?}") };
        assert!(offered == 32 << 20 && sent < offered, "{full:?}");
        let e = send_behind(&server, b"head", &file, 0, 100).expect_err("no room for the head");
        assert_eq!(e.kind(), io::ErrorKind::WouldBlock);
        drop(server);
        let mut all = Vec::new();
        client.read_to_end(&mut all).expect("received");
        assert_eq!(all.len(), 4 + 5 + sent);
    }
}
