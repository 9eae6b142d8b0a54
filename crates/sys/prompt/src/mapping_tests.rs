//! Mappings are sent as far as they are in memory, stay within their bounds, and a file that becomes shorter
//! does no harm.

use std::fs::File;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

const CHUNK_BYTES: u64 = 64 * 1024;

fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
    let (server, _) = listener.accept().expect("accepted");
    server.set_nonblocking(true).expect("a flag set");
    (server, client)
}

/// A file without a name, on the disk of the sources.
fn file(bytes: &[u8]) -> Arc<File> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("mapping-{}-{}.tmp", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::write(&path, bytes).expect("written");
    let file = File::options().read(true).write(true).open(&path).expect("opened");
    std::fs::remove_file(&path).expect("removed");
    Arc::new(file)
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n % 251) as u8).collect()
}

fn part(version: u64, size_bytes: u64, offset: u64, length: usize) -> MappedPart {
    MappedPart { version, size_bytes, offset, length }
}

fn residency_is_known(file: &Arc<File>) -> bool {
    let told = reports_residency(&**file).is_ok();
    if !told {
        crate::skipping::skip("this kernel does not report residency");
    }
    told
}

#[test]
fn every_part_of_every_chunk_is_sent_after_its_head() {
    let (server, mut client) = connection();
    let bytes = pattern(2 * CHUNK_BYTES as usize + 777);
    let file = file(&bytes);
    if !residency_is_known(&file) {
        return;
    }
    let mut mappings = Mappings::new(CHUNK_BYTES, 16);
    for (offset, length) in
        [(0, 1), (1, 9_000), (4_096, 4_096), (65_535, 1), (65_536, 20_000), (131_072, 777)]
    {
        let sent = mappings.send(&server, b"head", &file, part(1, bytes.len() as u64, offset, length));
        assert_eq!(sent.expect("sent"), Sent::Took { offered: 4 + length, sent: 4 + length });
        let mut received = vec![0; 4 + length];
        client.read_exact(&mut received).expect("received");
        let expected = &bytes[offset as usize..offset as usize + length];
        assert!(received[..4] == *b"head" && received[4..] == *expected, "{length} bytes at {offset}");
    }
    assert_eq!((mappings.chunks.len(), mappings.bytes), (3, bytes.len() as u64));
}

#[test]
fn the_least_recently_used_chunks_are_unmapped_above_either_bound() {
    let (server, mut client) = connection();
    let bytes = pattern(CHUNK_BYTES as usize);
    let file = file(&bytes);
    if !residency_is_known(&file) {
        return;
    }
    let mut send = |mappings: &mut Mappings<File>, version| {
        mappings.send(&server, b"", &file, part(version, CHUNK_BYTES, 0, 10)).expect("sent");
        client.read_exact(&mut [0; 10]).expect("received");
        let mut versions: Vec<u64> = mappings.chunks.keys().map(|(version, _)| *version).collect();
        versions.sort_unstable();
        versions
    };
    let mut by_count = Mappings::bounded(CHUNK_BYTES, 3, u64::MAX);
    let mut by_bytes = Mappings::bounded(CHUNK_BYTES, 100, 3 * CHUNK_BYTES);
    for mappings in [&mut by_count, &mut by_bytes] {
        for version in [1, 2, 3, 1] {
            send(mappings, version);
        }
        assert_eq!(send(mappings, 4), [1, 3, 4], "chunk 2 was the least recently used");
        assert_eq!(send(mappings, 2), [1, 2, 4]);
        assert_eq!((mappings.bytes, mappings.by_use.len()), (3 * CHUNK_BYTES, 3));
    }
    drop((by_count, by_bytes));
    assert_eq!(Arc::strong_count(&file), 1, "no mapping is left that keeps the file open");
}

#[test]
fn a_file_that_has_become_shorter_causes_no_signal() {
    let (server, _client) = connection();
    let file = file(&pattern(20_000));
    if !residency_is_known(&file) {
        return;
    }
    let mut mappings = Mappings::new(CHUNK_BYTES, 16);
    let whole = part(1, 20_000, 0, 20_000);
    assert!(matches!(mappings.send(&server, b"", &file, whole), Ok(Sent::Took { sent: 20_000, .. })));
    let mapping = &mappings.chunks[&(1, 0)].mapping;
    file.set_len(5_000).expect("cut");
    // Beyond the resident range, as if a page had been evicted after the check.
    assert_eq!(mapping.send(&server, b"", 8_192, 1_000).expect("an answer"), Sent::Ended);
    let cut = mapping.send(&server, b"head", 0, 20_000).expect("an answer");
    assert!(matches!(cut, Sent::Ended | Sent::Took { .. }), "{cut:?}");
    if let Sent::Took { offered, sent } = cut {
        assert!(offered == sent && sent <= 4 + 8_192, "{cut:?}");
    }
    // If a part of a folio is left, all of it counts as resident.
    let beyond = mappings.send(&server, b"", &file, part(1, 20_000, 8_192, 1_000)).expect("an answer");
    assert!(matches!(beyond, Sent::Absent | Sent::Ended), "{beyond:?}");
}

#[test]
fn absent_pages_are_not_sent() {
    let (server, mut client) = connection();
    let file = file(&pattern(3 * 4_096));
    if !residency_is_known(&file) {
        return;
    }
    file.sync_all().expect("on the disk");
    rustix::fs::fadvise(&*file, 0, None, rustix::fs::Advice::DontNeed).expect("forgotten");
    let mut mappings = Mappings::new(CHUNK_BYTES, 16);
    let whole = part(1, 3 * 4_096, 0, 3 * 4_096);
    match mappings.send(&server, b"head", &file, whole).expect("an answer") {
        Sent::Absent => {}
        Sent::Took { .. } => return crate::skipping::skip("this file system evicts nothing"),
        other => panic!("{other:?}"),
    }
    // The first page is read again, through another descriptor and without readahead.
    super::super::file::mark_random(&*file).expect("marked");
    rustix::io::pread(&*file, &mut [0; 1], 0).expect("read");
    let sent = mappings.send(&server, b"head", &file, whole).expect("an answer");
    if let Sent::Took { offered, sent } = sent
        && offered < 4 + 3 * 4_096
    {
        assert_eq!((offered, sent), (4 + 4_096, 4 + 4_096));
        client.read_exact(&mut vec![0; sent]).expect("received");
    } else {
        crate::skipping::skip(&format!("in part: this file system reads more than requested: {sent:?}"));
    }
}

#[test]
fn an_o_path_descriptor_cannot_be_mapped() {
    let (server, _client) = connection();
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    let place = rustix::fs::open("/proc/version", flags, rustix::fs::Mode::empty()).expect("a place");
    let mut mappings = Mappings::new(CHUNK_BYTES, 16);
    let sent = mappings.send(&server, b"head", &Arc::new(place), part(1, 10, 0, 10)).expect("an answer");
    assert_eq!((sent, mappings.chunks.len()), (Sent::Unknown, 0));
}
