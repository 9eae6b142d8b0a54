//! HTTP/2: files, errors, flow control, priorities, and the ends of connections.

use flash_engine::limits::{H2_DRAIN_MS, H2_SETTINGS_ACK_MS, H2_STREAMS_MAX, LINGER_MS, RATE_WINDOW_MS};
use flash_engine::{LogFormat, LogRules};

use crate::machine::h2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, H2Client, HEADERS, Heard, PRIORITY_UPDATE, frame,
};
use crate::machine::world::{HEAD_MS, IDLE_MS, rules};
use crate::machine::{Content, KIB, MIB, World};

/// A client of HTTP/2 whose settings are exchanged.
pub(crate) fn connect(world: &mut World) -> H2Client {
    let mut client = H2Client::new(world.connect());
    world.run();
    client.hear();
    world.run();
    assert!(client.heard.contains(&Heard::Settings) && client.heard.contains(&Heard::SettingsAck));
    client.heard.clear();
    client
}

/// Runs the world, and lets the client read, until nothing more comes.
pub(crate) fn exchange(world: &mut World, client: &mut H2Client) {
    loop {
        world.run();
        let before = client.heard.len();
        client.hear();
        if client.heard.len() == before && client.codec.replies.is_empty() && !world.is_busy() {
            return;
        }
    }
}

#[test]
fn files_errors_and_heads() {
    let mut world = World::new();
    world.machine.files.add("a.html", "hello");
    world.machine.files.add_directory("d");
    let mut client = connect(&mut world);
    for round in 0..4 {
        let hello = client.get("/a.html");
        let head = client.ask("HEAD", "/a.html", &[]);
        let part = client.ask("GET", "/a.html", &[("range", "bytes=1-2")]);
        let missing = client.get("/none");
        let listing = client.ask("GET", "/d/", &[("accept", "application/json")]);
        let posted = client.ask("POST", "/a.html", &[]);
        let connect = {
            let (stream, frame) = client.codec.open(&[(":method", "CONNECT"), (":authority", "h:443")], true);
            client.client.send(frame);
            stream
        };
        exchange(&mut world, &mut client);
        let hello = client.take(hello);
        assert_eq!(
            (hello.status(), &hello.body[..], hello.is_whole),
            (200, &b"hello"[..], true),
            "round {round}"
        );
        assert!(hello.head.contains("\r\ncontent-length: 5\r\n"), "{}", hello.head);
        assert!(hello.head.contains("\r\nserver: flash\r\ndate: "), "{}", hello.head);
        let head = client.take(head);
        assert_eq!((head.head.clone(), &head.body[..], head.is_whole), (hello.head.clone(), &b""[..], true));
        let part = client.take(part);
        assert_eq!((part.status(), &part.body[..]), (206, &b"el"[..]));
        let etag = hello
            .head
            .split("\r\n")
            .find_map(|line| line.strip_prefix("etag: "))
            .expect("an etag")
            .to_owned();
        let known = client.ask("GET", "/a.html", &[("if-none-match", &etag)]);
        exchange(&mut world, &mut client);
        assert_eq!(client.take(known).status(), 304);
        assert_eq!(client.take(missing).status(), 404);
        let listing = client.take(listing);
        assert!(listing.status() == 200 && listing.body.starts_with(b"JSON of /d/"), "{listing:?}");
        assert_eq!(client.take(posted).status(), 405);
        let connect = client.take(connect);
        assert!(connect.status() == 405 && connect.head.contains("\r\nallow: GET, HEAD, OPTIONS\r\n"));
    }
    assert!(world.engine.counters().known_hits > 0, "repeated requests are known");
    assert_eq!(world.engine.counters().http2.connections, 1);
    world.end();
}

#[test]
fn a_known_request_makes_no_call_but_receive_and_send() {
    let mut world = World::new();
    world.machine.files.add("a.html", "hello");
    let mut client = connect(&mut world);
    for _ in 0..3 {
        let stream = client.get("/a.html");
        exchange(&mut world, &mut client);
        assert_eq!(client.take(stream).body, b"hello");
    }
    let before = (world.machine.calls, world.engine.counters().known_hits);
    let streams: Vec<_> = (0..20).map(|_| client.get("/a.html")).collect();
    world.run();
    let after = (world.machine.calls, world.engine.counters().known_hits);
    assert_eq!(after.1 - before.1, 20);
    assert_eq!(after.0.sends - before.0.sends, 1, "all answers leave together");
    assert_eq!((after.0.look_ups, after.0.stats), (before.0.look_ups, before.0.stats));
    for stream in streams {
        assert_eq!(client.take(stream).body, b"hello");
    }
    world.end();
}

#[test]
fn a_cold_stream_delays_no_hot_one() {
    let mut world = World::by_hand();
    world.machine.files.add("hot", "hot");
    world.auto = true;
    world.get("/hot");
    world.auto = false;
    world.machine.files.add_cold("cold", "cold");
    let mut client = connect(&mut world);
    let cold = client.get("/cold");
    world.run();
    for _ in 0..5 {
        let hot = client.get("/hot");
        world.turn();
        assert_eq!(client.take(hot).body, b"hot");
    }
    while world.engine.counters().jobs_running > 0 {
        world.finish_job();
    }
    exchange(&mut world, &mut client);
    assert_eq!(client.take(cold).body, b"cold");
    world.end();
}

#[test]
fn both_windows_bound_an_answer() {
    let mut world = World::new();
    world.machine.files.add("big", Content::Pattern(7, 300 * KIB));
    let mut client = connect(&mut world);
    client.codec.grows_windows = false;
    let stream = client.get("/big");
    exchange(&mut world, &mut client);
    assert_eq!(client.take(stream).body.len(), 65_535, "as much as the windows allow");
    let of_stream = client.codec.grow(stream, 100_000);
    client.client.send(of_stream);
    exchange(&mut world, &mut client);
    assert_eq!(client.take(stream).body.len(), 0, "the window of the connection is used up");
    let other = client.get("/big");
    let of_connection = client.codec.grow(0, 150_000);
    client.client.send(of_connection);
    exchange(&mut world, &mut client);
    let (first, second) = (client.take(stream).body.len(), client.take(other).body.len());
    assert_eq!((first, second), (100_000, 50_000), "the one with fewer bytes left goes first");
    // A larger first window counts for streams that are open.
    let settings = client.codec.settings(400_000);
    client.client.send(settings);
    let of_connection = client.codec.grow(0, 1_000_000);
    client.client.send(of_connection);
    exchange(&mut world, &mut client);
    let whole = client.take(stream);
    assert_eq!(65_535 + 100_000 + whole.body.len() as u64, 300 * KIB);
    assert!(whole.is_whole && client.take(other).body.len() as u64 + 50_000 == 300 * KIB);
    world.end();
}

#[test]
fn urgent_and_short_answers_go_first() {
    let mut world = World::new();
    for (name, bytes) in [("long", 400 * KIB), ("short", 100 * KIB), ("other", 400 * KIB)] {
        world.machine.files.add(name, Content::Pattern(bytes, bytes));
        world.get(&format!("/{name}"));
    }
    let order = |fields: [&'static str; 3], update: Option<(usize, &'static str)>, world: &mut World| {
        let mut client = connect(world);
        let grow = client.codec.grow(0, 10 << 20);
        client.client.send(grow);
        let settings = client.codec.settings(1 << 20);
        client.client.send(settings);
        let mut streams = Vec::new();
        for (path, field) in ["/long", "/short", "/other"].iter().zip(fields) {
            streams.push(client.ask("GET", path, &[("priority", field)]));
        }
        if let Some((at, value)) = update {
            let payload = [&streams[at].to_be_bytes()[..], value.as_bytes()].concat();
            client.send(PRIORITY_UPDATE, 0, 0, &payload);
        }
        exchange(world, &mut client);
        let mut seen = Vec::new();
        for heard in &client.heard {
            if let Heard::End(stream) = heard {
                seen.push(streams.iter().position(|other| other == stream).expect("a stream"));
            }
        }
        let data = |heard: &Heard| if let Heard::Data(stream, _) = heard { Some(*stream) } else { None };
        let all: Vec<u32> = client.heard.iter().filter_map(data).collect();
        let switches = all.windows(2).filter(|pair| pair[0] != pair[1]).count();
        (seen, switches)
    };
    assert_eq!(order(["", "", ""], None, &mut world), (vec![1, 0, 2], 2));
    assert_eq!(order(["u=1", "u=3", "u=0"], None, &mut world), (vec![2, 0, 1], 2));
    assert_eq!(order(["u=1", "u=3", "u=0"], Some((1, "u=0")), &mut world), (vec![1, 2, 0], 2));
    let (ends, switches) = order(["u=2, i", "u=5", "u=2, i"], None, &mut world);
    assert_eq!(ends[2], 1);
    assert!(switches > 20, "they share: {switches}");
    world.end();
}

#[test]
fn bodies_without_a_meaning_are_read() {
    let mut world = World::new();
    world.machine.files.add("a", "a");
    let mut client = connect(&mut world);
    let stream = client.begin(("GET", "/a"), &[("expect", "100-continue")], false);
    exchange(&mut world, &mut client);
    assert_eq!(client.take(stream).status(), 100);
    client.send(DATA, 0x8, stream, b"\x02body\0\0");
    exchange(&mut world, &mut client);
    assert_eq!(client.take(stream).head, "", "the body is not over");
    client.send(HEADERS, END_HEADERS | END_STREAM, stream, b"\x00\x01t\x01r");
    exchange(&mut world, &mut client);
    let answer = client.take(stream);
    assert!(answer.is_whole && answer.status() == 200);
    // Such a body has a bound and a deadline.
    let stream = client.begin(("GET", "/a"), &[], false);
    let mut answer = client.take(stream);
    for _ in 0..80 {
        client.send(DATA, 0, stream, &[b'x'; 16_384]);
        exchange(&mut world, &mut client);
        answer = client.take(stream);
        if answer.is_whole {
            break;
        }
    }
    assert_eq!((answer.status(), answer.reset), (413, Some(0)));
    let stream = client.begin(("GET", "/a"), &[], false);
    exchange(&mut world, &mut client);
    world.advance(HEAD_MS + 100);
    let answer = client.take(stream);
    assert_eq!((answer.status(), answer.reset), (408, Some(0)));
    world.end();
}

#[test]
fn malformed_requests_end_their_stream_only() {
    let mut world = World::new();
    world.machine.files.add("a", "a");
    let mut client = connect(&mut world);
    let mut bad = Vec::new();
    for field in [
        ("connection", "x"),
        ("transfer-encoding", "chunked"),
        ("Upper", "x"),
        ("a", "b\r\nc: d"),
        ("te", "x"),
    ] {
        bad.push(client.ask("GET", "/a", &[field]));
    }
    bad.push(client.ask("GET", "/a", &[("content-length", "3")]));
    let short = client.begin(("GET", "/a"), &[("content-length", "3")], false);
    client.send(DATA, END_STREAM, short, b"ab");
    bad.push(short);
    let good = client.get("/a");
    exchange(&mut world, &mut client);
    for stream in bad {
        let answer = client.take(stream);
        assert_eq!((answer.reset, &answer.head[..]), (Some(1), ""), "stream {stream}");
    }
    assert_eq!(client.take(good).body, b"a");
    let long = client.ask("GET", &format!("/{}", "x".repeat(9_000)), &[]);
    exchange(&mut world, &mut client);
    assert_eq!(client.take(long).status(), 414);
    world.end();
}

#[test]
fn a_head_can_come_in_pieces_and_a_late_one_ends_the_connection() {
    let mut world = World::new();
    world.machine.files.add("a", "a");
    let mut client = connect(&mut world);
    let (stream, whole) = client
        .codec
        .open(&[(":method", "GET"), (":scheme", "http"), (":path", "/a"), (":authority", "h")], true);
    let block = &whole[9..];
    let bytes = [
        frame(HEADERS, END_STREAM, stream, &block[..2]),
        frame(CONTINUATION, 0, stream, &block[2..4]),
        frame(CONTINUATION, END_HEADERS, stream, &block[4..]),
    ]
    .concat();
    client.client.send_pieces(bytes.chunks(1).map(<[u8]>::to_vec));
    exchange(&mut world, &mut client);
    assert_eq!(client.take(stream).body, b"a");
    client.send(HEADERS, END_STREAM, stream + 2, &block[..2]);
    world.run();
    world.advance(HEAD_MS + 100);
    assert_eq!(client.goaway(), Some(0));
    world.advance(LINGER_MS + 100);
    assert!(client.client.is_closed());
    world.end();
}

#[test]
fn silent_clients_lose_their_connection() {
    let mut world = World::new();
    world.machine.files.add("a", "a");
    // Nothing behind the preface.
    let silent = world.connect();
    silent.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    // Settings that are not acknowledged.
    let mut rude = H2Client::new(world.connect());
    // One that is idle.
    let mut idle = connect(&mut world);
    idle.get("/a");
    exchange(&mut world, &mut idle);
    world.advance(HEAD_MS.max(H2_SETTINGS_ACK_MS) + 100);
    rude.heard.extend(rude.codec.read(&rude.client.take_bytes()).expect("frames"));
    assert!(rude.heard.iter().any(|heard| matches!(heard, Heard::GoAway(_, 4))));
    world.advance(LINGER_MS + 100);
    assert!(silent.is_closed() && rude.client.is_closed() && !idle.client.is_closed());
    world.advance(IDLE_MS);
    assert_eq!(idle.goaway(), Some(0));
    idle.client.end();
    world.run();
    assert!(idle.client.is_closed());
    world.end();
}

#[test]
fn a_client_that_does_not_read_is_reset() {
    let mut world = World::new();
    world.machine.files.add("big", Content::Pattern(1, MIB));
    let mut client = connect(&mut world);
    client.codec.grows_windows = false;
    client.get("/big");
    exchange(&mut world, &mut client);
    world.advance(2 * RATE_WINDOW_MS + 200);
    assert!(client.client.is_closed(), "its window stays closed");
    let mut client = connect(&mut world);
    client.client.set_room(1_000);
    client.get("/big");
    world.run();
    client.client.wire().unacknowledged = 1_000;
    world.advance(2 * RATE_WINDOW_MS + 200);
    assert!(client.client.is_closed(), "its socket stays full");
    world.end();
}

#[test]
fn a_client_that_ends_before_its_windows_open_is_closed_at_once() {
    let mut world = World::new();
    world.machine.files.add("big", Content::Pattern(1, MIB));
    let mut client = connect(&mut world);
    client.codec.grows_windows = false;
    client.get("/big");
    exchange(&mut world, &mut client);
    client.client.end();
    world.run();
    assert!(client.client.is_closed());
    world.end();
}

#[test]
fn a_drain_loses_no_request() {
    let mut world = World::new();
    world.machine.files.add("a", "a");
    world.machine.files.add("big", Content::Pattern(2, 200 * KIB));
    let mut busy = connect(&mut world);
    busy.codec.grows_windows = false;
    let big = busy.get("/big");
    exchange(&mut world, &mut busy);
    let mut idle = connect(&mut world);
    let stream = idle.get("/a");
    exchange(&mut world, &mut idle);
    idle.take(stream);
    world.engine.handle_drain(&mut world.machine);
    world.run();
    let bytes = idle.client.take_bytes();
    let heard = idle.codec.read(&bytes).expect("frames");
    assert!(heard.contains(&Heard::GoAway(0x7fff_ffff, 0)), "{heard:?}");
    // A request that was on its way is served, and then the connection ends.
    let late = idle.get("/a");
    exchange(&mut world, &mut idle);
    assert_eq!(idle.take(late).body, b"a");
    assert!(idle.heard.contains(&Heard::GoAway(late, 0)), "{:?}", idle.heard);
    idle.client.end();
    world.run();
    assert!(idle.client.is_closed());
    // An answer under way is completed, and no further request is served.
    let grow = [busy.codec.grow(0, 1 << 20), busy.codec.grow(big, 10_000)].concat();
    busy.client.send(grow);
    world.run();
    world.advance(H2_DRAIN_MS + 100);
    let refused = busy.get("/a");
    let grow = busy.codec.grow(big, 1 << 20);
    busy.client.send(grow);
    exchange(&mut world, &mut busy);
    let answer = busy.take(big);
    assert!(answer.is_whole);
    assert_eq!(busy.take(refused).head, "");
    assert!(busy.heard.contains(&Heard::GoAway(big, 0)), "{:?}", busy.heard);
    world.end();
}

#[test]
fn a_drain_serves_the_first_request_of_a_new_connection() {
    let mut world = World::new();
    world.machine.files.add("a", "a");
    let mut clients = [connect(&mut world), connect(&mut world)];
    world.engine.handle_drain(&mut world.machine);
    clients.iter_mut().for_each(|client| exchange(&mut world, client));
    let [first, silent] = &mut clients;
    // As long as a client needs for its certificate checks and its request.
    world.advance(H2_DRAIN_MS / 2);
    exchange(&mut world, first);
    let stream = first.get("/a");
    exchange(&mut world, first);
    assert_eq!(first.take(stream).body, b"a");
    assert!(first.heard.contains(&Heard::GoAway(stream, 0)), "{:?}", first.heard);
    assert!(silent.heard.is_empty(), "{:?}", silent.heard);
    world.advance(H2_DRAIN_MS);
    exchange(&mut world, silent);
    assert!(silent.heard.contains(&Heard::GoAway(0, 0)), "{:?}", silent.heard);
    clients.iter().for_each(|client| client.client.end());
    world.run();
    assert!(world.engine.is_drained());
    world.end();
}

#[test]
fn other_beginnings_are_not_http_2() {
    for (first, is_h2) in [
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", true),
        ("PRI * HTTP/2.0\r\n\r\nSX\r\n\r\n", false),
        ("PRI * HTTP/2.0\r\nHost: h\r\n\r\n", false),
        ("GET * HTTP/2.0\r\n\r\nSM\r\n\r\n", false),
    ] {
        let mut world = World::new();
        let client = world.connect();
        client.send_pieces(first.bytes().map(|byte| vec![byte]));
        world.run();
        let is_settings = client.received().get(3) == Some(&4);
        assert_eq!(is_settings, is_h2, "{first}");
        world.end();
    }
    // Not behind a request, and not if it is switched off.
    let mut world = World::new();
    let client = world.connect();
    client.get("/");
    world.run();
    client.take_bytes();
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    world.run();
    assert_eq!(client.take_one().status, 505);
    let mut world = World::with(flash_engine::Rules { http2: false, ..rules() });
    let client = world.connect();
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    world.run();
    assert_eq!(client.take_one().status, 505);
}

#[test]
fn the_log_has_the_version_and_what_clients_abandon() {
    let mut world = World::with(flash_engine::Rules { log: LogRules::of(LogFormat::Combined), ..rules() });
    world.machine.files.add("a", "hello");
    world.machine.files.add("big", Content::Pattern(3, 200 * KIB));
    let mut client = connect(&mut world);
    client.codec.grows_windows = false;
    let stream = client.get("/a");
    let big = client.get("/big");
    exchange(&mut world, &mut client);
    assert_eq!(client.take(stream).status(), 200);
    let reset = client.codec.reset(big);
    client.client.send(reset);
    exchange(&mut world, &mut client);
    let lines = &world.machine.log;
    assert!(lines[0].contains("\"GET /a HTTP/2.0\" 200 5 "), "{lines:?}");
    assert!(lines[1].contains("\"GET /big HTTP/2.0\" 200 6"), "{lines:?}");
    assert_eq!(world.engine.counters().responses_cut, 1);
    world.end();
}

#[test]
fn streams_beyond_the_bound_are_refused_and_the_rest_is_served() {
    let mut world = World::by_hand();
    let mut client = connect(&mut world);
    let mut streams = Vec::new();
    for number in 0..H2_STREAMS_MAX + 3 {
        world.machine.files.add_cold(&format!("c{number}"), "cold");
        streams.push(client.get(&format!("/c{number}")));
    }
    world.run();
    let answers: Vec<_> = streams.iter().map(|stream| client.take(*stream)).collect();
    assert!(answers[H2_STREAMS_MAX..].iter().all(|answer| answer.reset == Some(7)), "refused");
    assert!(answers[..H2_STREAMS_MAX].iter().all(|answer| answer.reset.is_none()));
    world.auto = true;
    exchange(&mut world, &mut client);
    assert!(streams[..H2_STREAMS_MAX].iter().all(|stream| client.take(*stream).body == b"cold"));
    world.end();
}
