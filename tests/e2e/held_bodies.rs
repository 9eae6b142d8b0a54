//! Request bodies are held until they are complete, and answers until their clients have read them: a slow client keeps
//! no server busy, and what is too long for memory goes to a file.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::harness::upstream::{Peer, Running, Upstream, config, framed, ok, post_head, proxy, start};
use crate::harness::{Folder, Launch, SmallDisk, only_plain, pattern, stats_at, wait_until};

const BODY_BYTES: usize = 3_000_000;
const CHUNK_BYTES: usize = 50_021;

/// A server that answers with the length of the body, and whether all of it is that of `pattern`.
fn counting() -> Running {
    Upstream::tcp().answer(|request| {
        let is_right = request.body == pattern(request.body.len(), 7);
        ok(format!("{} {} {is_right}", request.body.len(), request.field("Content-Length").unwrap_or("none")))
    })
}

#[test]
fn a_slow_upload_keeps_no_server_busy() {
    let folder = Folder::with_hello();
    let upstream = counting();
    // One connection, so a request that had it would keep others waiting.
    // On a busy machine the other uploads take their time.
    let patient = "head_timeout = \"10m\"\n".to_owned();
    let server = start(&folder, &(patient + &proxy("/app/", &upstream.address, "connections_max = 1")));
    let body = pattern(BODY_BYTES, 7);
    let mut slow = Vec::new();
    for _ in 0..5 {
        let mut client = Peer::client(&server);
        client.send(&framed(&post_head("/app/slow"), &body, None)[..1_000_000]);
        slow.push(client);
    }
    for number in 0..20 {
        let short = pattern(number * 1_000, 7);
        let answer = Peer::client(&server).post("/app/quick", &short);
        assert_eq!(answer.brief(), (200, format!("{0} {0} true", short.len())));
    }
    assert_eq!(upstream.connections(), 1);
    for mut client in slow {
        client.send(&framed(&post_head("/app/slow"), &body, None)[1_000_000..]);
        assert_eq!(client.message().brief(), (200, format!("{BODY_BYTES} {BODY_BYTES} true")));
    }
    assert_eq!(server.stderr(), "");
}

/// More than the buffers of the sockets between two processes hold.
const LONG_ANSWER_BYTES: usize = 16 << 20;

#[test]
fn slow_readers_keep_no_server_busy() {
    if only_plain("the carrier reads for a slow client") {
        return;
    }
    let folder = Folder::with_hello();
    let long = Arc::new(pattern(LONG_ANSWER_BYTES, 5));
    let answer = long.clone();
    let upstream = Upstream::tcp().answer(move |request| match request.target() {
        "/app/long" => framed("HTTP/1.1 200 OK\r\n", &answer, None),
        "/app/chunks" => framed("HTTP/1.1 200 OK\r\n", &answer, Some(CHUNK_BYTES)),
        _ => ok("short"),
    });
    let control = folder.path("control.sock");
    // One connection, so a reader that had it would keep all others waiting.
    let routes = config(&folder, &proxy("/app/", &upstream.address, "connections_max = 1"));
    let server = Launch::configured(&folder, &routes).arg("--control").arg(&control).start();
    let slow: Vec<Peer> = ["/app/long", "/app/chunks", "/app/long"]
        .map(|target| {
            let mut client = Peer::client(&server);
            client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
            client
        })
        .into();
    let held = || stats_at(&control)["sum"]["upstreams"]["bodies"].as_u64().unwrap();
    wait_until("all answers to be held", || held() == slow.len() as u64);
    for _ in 0..20 {
        assert_eq!(Peer::client(&server).get("/app/short").brief(), (200, "short".to_owned()));
    }
    assert_eq!(held(), slow.len() as u64, "they still wait");
    for mut client in slow {
        let answer = client.message();
        assert!(answer.status() == 200 && answer.body == *long, "{} bytes", answer.body.len());
    }
    let spooled = || stats_at(&control)["sum"]["upstreams"]["spool_bytes"].as_u64().unwrap();
    wait_until("the file to be free again", || spooled() == 0 && held() == 0);
    assert_eq!(server.stderr(), "");
}

#[test]
fn a_chunked_body_arrives_with_its_length() {
    let folder = Folder::with_hello();
    let upstream = counting();
    let server = start(&folder, &proxy("/app/", &upstream.address, ""));
    let mut client = Peer::client(&server);
    for bytes in [0, 5, 200_000, BODY_BYTES] {
        client.send(framed(&post_head("/app/x"), &pattern(bytes, 7), Some(CHUNK_BYTES)));
        assert_eq!(client.message().brief(), (200, format!("{bytes} {bytes} true")));
    }
    assert_eq!(server.stderr(), "");
}

#[test]
fn files_of_bodies_are_bounded_and_left_with_the_client() {
    let folder = Folder::with_hello();
    let upstream = counting();
    let control = folder.path("control.sock");
    let top = "spool_max = \"1MiB\"\n";
    let routes = config(&folder, &(top.to_owned() + &proxy("/app/", &upstream.address, "")));
    let server = Launch::configured(&folder, &routes).arg("--control").arg(&control).start();
    let spooled = || stats_at(&control)["sum"]["upstreams"]["spool_bytes"].as_u64().unwrap();
    let long = framed(&post_head("/app/long"), &pattern(BODY_BYTES, 7), None);
    // One client has half of the file at most.
    let mut client = Peer::client(&server);
    let mut sender = client.sender();
    let sends = thread::spawn(move || drop(sender.write_all(&long)));
    let page = client.message();
    assert_eq!(page.status(), 503, "{page:?}");
    assert!(String::from_utf8_lossy(&page.body).contains("could not hold the request body"), "{page:?}");
    drop(client);
    sends.join().unwrap();
    let mut client = Peer::client(&server);
    client.send(&framed(&post_head("/app/x"), &pattern(BODY_BYTES, 7), None)[..400_000]);
    wait_until("a part to be in the file", || spooled() > 0);
    drop(client);
    wait_until("it to be free again", || spooled() == 0);
    assert_eq!(Peer::client(&server).post("/app/x", &pattern(300_000, 7)).status(), 200);
}

#[test]
fn a_full_disk_costs_long_bodies_only() {
    let folder = Folder::with_hello();
    let place = folder.write("spool/x", "").parent().unwrap().to_owned();
    let Some(disk) = SmallDisk::mount(&place) else { return };
    let upstream = counting();
    let routes = format!("spool = {place:?}\n") + &proxy("/app/", &upstream.address, "");
    let server = start(&folder, &routes);
    let filler = place.join("filler");
    fs::write(&filler, vec![b'x'; SmallDisk::BYTES - (32 << 10)]).unwrap();
    let mut client = Peer::client(&server);
    client.send(framed(&post_head("/app/x"), &pattern(BODY_BYTES / 10, 7), None));
    assert_eq!(client.message().status(), 503);
    assert_eq!(Peer::client(&server).post("/app/x", &pattern(60_000, 7)).status(), 200, "it fits in memory");
    fs::remove_file(&filler).unwrap();
    assert_eq!(Peer::client(&server).post("/app/x", &pattern(300_000, 7)).status(), 200);
    server.wait_for_stderr("the file system failed (No space left on device (os error 28))");
    drop(server);
    drop(disk);
}

#[test]
fn without_a_place_for_files_bodies_are_passed_on_as_they_come() {
    let folder = Folder::with_hello();
    let upstream = counting();
    let routes = "spool = \"/nonexistent\"\n".to_owned() + &proxy("/app/", &upstream.address, "");
    let server = start(&folder, &routes);
    server.wait_for_stderr("cannot create a file in /nonexistent");
    assert_eq!(Peer::client(&server).post("/app/x", &pattern(BODY_BYTES, 7)).status(), 200);
}

#[test]
fn slow_uploads_hold_their_room_for_a_limited_time() {
    // More than a third client can hold while two others have their shares, less than it can alone.
    const FAIR_BYTES: usize = 1_500_000;
    let folder = Folder::with_hello();
    let upstream = counting();
    let top = "spool_max = \"8MiB\"\nclient_exempt = []\nbody_timeout = \"3s\"\n".to_owned();
    let server = start(&folder, &(top + &proxy("/app/", &upstream.address, "")));
    let long = framed(&post_head("/app/slow"), &pattern(FAIR_BYTES, 7), None);
    let slow = (0..14).map(|number| {
        let mut client = Peer::client_from([127, 0, 0, 2 + number % 2].into(), &server);
        // One that finds no room is refused.
        let _ = client.try_send(&long[..400_000]);
        let mut sender = client.sender();
        // Each byte would begin another `head_timeout`.
        thread::spawn(move || {
            while sender.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(50));
            }
        });
        client
    });
    let slow: Vec<Peer> = slow.collect();
    wait_until("another client to find room", || {
        let mut client = Peer::client_from([127, 0, 0, 4].into(), &server);
        let _ = client.try_send(framed(&post_head("/app/fair"), &pattern(FAIR_BYTES, 7), None));
        client.receive().is_ok_and(|answer| answer.status() == 200)
    });
    let statuses: Vec<u16> = slow.into_iter().map(|mut client| client.message().status()).collect();
    let late = statuses.iter().filter(|status| **status == 408).count();
    assert!(late >= 4 && statuses.iter().all(|status| [408, 503].contains(status)), "{statuses:?}");
}

#[test]
fn the_file_system_gets_the_room_of_bodies_back() {
    let folder = Folder::with_hello();
    let place = folder.write("spool/x", "").parent().unwrap().to_owned();
    let upstream = counting();
    let routes = format!("spool = {place:?}\n") + &proxy("/app/", &upstream.address, "");
    let server = start(&folder, &routes);
    let worker = server.sole("worker");
    let file = fs::read_dir(format!("/proc/{worker}/fd")).unwrap().flatten().map(|entry| entry.path());
    let file = file.into_iter().find(|path| fs::read_link(path).is_ok_and(|file| file.starts_with(&place)));
    let file = file.expect("the file for bodies");
    let held_bytes = || fs::metadata(&file).unwrap().blocks() * 512;
    for _ in 0..2 {
        let mut client = Peer::client(&server);
        client.send(&framed(&post_head("/app/x"), &pattern(BODY_BYTES, 7), None)[..BODY_BYTES - 100_000]);
        wait_until("the body to be in the file", || held_bytes() > 2 << 20);
        client.reset();
        // Where there are no holes, 1 MiB is kept.
        wait_until("its room to be given back", || held_bytes() <= 1 << 20);
    }
    assert_eq!(Peer::client(&server).post("/app/x", &pattern(BODY_BYTES, 7)).status(), 200);
    assert_eq!(server.stderr(), "");
}
