//! Runs over TLS and HTTP/2, against small servers of both.

use std::collections::HashMap;

use flash_http::h2::settings::MAX_CONCURRENT_STREAMS;
use flash_http::h2::{
    Decoder, Encoder, ErrorCode, FieldList, Frame, Indexing, ListLimits, PREFACE, frame, next_frame,
};
use rustls::{ServerConnection, StreamOwned};

use super::*;
use crate::tls::{Certificate, Client, ClientOptions, KeyKind, Version, server as tls_server};

/// The first file of class 3: 102,400 bytes.
const LARGE: u32 = 27;
const FRAME_BYTES: usize = 16_384;

/// The reply of a server of HTTP/2 to a request, by its number on the connection, from 1.
#[derive(Clone, Copy)]
pub(super) enum Reply {
    Answer,
    /// It says nothing.
    Silence,
    Reset(ErrorCode),
    /// It goes away, and handles streams up to this one.
    GoAway(u32),
    /// It sends these bytes instead.
    Bytes(&'static [u8]),
}

/// One connection of a server of HTTP/2, which keeps to the windows of its client.
struct Peer<S> {
    stream: S,
    input: Vec<u8>,
    decoder: Decoder,
    encoder: Encoder,
    window: i64,
    first_window: i64,
    windows: HashMap<u32, i64>,
    /// Streams whose request has a body under way, and the files that they ask for.
    receiving: HashMap<u32, u32>,
    /// Streams, files, and bytes sent of them.
    sending: Vec<(u32, Vec<u8>, usize)>,
    /// Requests without an answer.
    silent: usize,
    asked: usize,
    seen: Arc<Seen>,
}

/// The events that all connections of a server saw.
#[derive(Default)]
pub(super) struct Seen {
    connections: AtomicUsize,
    pub(super) resets: AtomicUsize,
    at_once_max: AtomicUsize,
    /// Bytes of bodies that clients sent.
    pub(super) uploaded_bytes: AtomicUsize,
    /// The fields of the last request beyond those that all have.
    pub(super) fields: Mutex<String>,
}

impl<S: Read + Write> Peer<S> {
    fn serve(stream: S, settings: &[(u16, u32)], seen: Arc<Seen>, reply: impl Fn(usize) -> Reply) {
        let mut peer = Self {
            stream,
            input: Vec::new(),
            decoder: Decoder::new(),
            encoder: Encoder::new(),
            window: 65_535,
            first_window: 65_535,
            windows: HashMap::new(),
            receiving: HashMap::new(),
            sending: Vec::new(),
            silent: 0,
            asked: 0,
            seen,
        };
        peer.seen.connections.fetch_add(1, Relaxed);
        let mut hello = Vec::new();
        frame::push_settings(&mut hello, settings);
        let mut preface = [0; PREFACE.len()];
        if peer.stream.write_all(&hello).is_err() || peer.stream.read_exact(&mut preface).is_err() {
            return;
        }
        assert_eq!(&preface, PREFACE);
        let mut buffer = vec![0; 1 << 16];
        while let Ok(bytes @ 1..) = peer.stream.read(&mut buffer) {
            peer.input.extend_from_slice(&buffer[..bytes]);
            let mut output = Vec::new();
            peer.take(&mut output, &reply);
            peer.send(&mut output);
            if peer.stream.write_all(&output).is_err() {
                return;
            }
        }
    }

    fn take(&mut self, output: &mut Vec<u8>, reply: &impl Fn(usize) -> Reply) {
        let input = std::mem::take(&mut self.input);
        let mut at = 0;
        while let Some((frame, length)) = next_frame(&input[at..]).expect("a proper client") {
            at += length;
            match frame {
                Frame::Headers { stream, fragment, ends_stream, ends_headers: true, .. } => {
                    let id = self.request(fragment);
                    if ends_stream {
                        self.reply(stream, id, output, reply);
                    } else {
                        self.receiving.insert(stream, id);
                    }
                }
                Frame::Data { stream, data, ends_stream, .. } => {
                    self.seen.uploaded_bytes.fetch_add(data.len(), Relaxed);
                    frame::push_window_update(output, 0, data.len() as u32);
                    if ends_stream {
                        let id = self.receiving.remove(&stream).expect("a head came before");
                        self.reply(stream, id, output, reply);
                    } else {
                        frame::push_window_update(output, stream, data.len() as u32);
                    }
                }
                Frame::Settings { payload } => {
                    for setting in payload.chunks(6) {
                        if setting[..2] == [0, 4] {
                            self.first_window =
                                i64::from(u32::from_be_bytes(setting[2..].try_into().unwrap()));
                        }
                    }
                    frame::push_settings_ack(output);
                }
                Frame::WindowUpdate { stream: 0, increment } => self.window += i64::from(increment),
                Frame::WindowUpdate { stream, increment } => {
                    *self.windows.entry(stream).or_default() += i64::from(increment);
                }
                Frame::Reset { .. } => drop(self.seen.resets.fetch_add(1, Relaxed)),
                Frame::SettingsAck => {}
                other => panic!("{other:?}"),
            }
        }
        self.input = input[at..].to_vec();
    }

    /// Reads a head; gives the number of the file that it asks for.
    fn request(&mut self, block: &[u8]) -> u32 {
        let mut list = FieldList::new();
        self.decoder.decode(block, ListLimits { bytes: 10_000, fields: 10 }, &mut list).unwrap();
        let fields: Vec<_> = list.iter().collect();
        let [method, scheme, authority, (b":path", path), ref more @ ..] = fields[..] else {
            panic!("{list:?}")
        };
        assert!(method.0 == b":method" && scheme.0 == b":scheme" && authority.0 == b":authority");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let more: Vec<_> = more.iter().map(|(name, value)| text(name) + "=" + &text(value)).collect();
        *self.seen.fields.lock().unwrap() =
            [text(method.1), text(authority.1)].into_iter().chain(more).collect::<Vec<_>>().join(" ");
        let path = text(path);
        (0..36).find(|&id| path.ends_with(&File::from_path_id(id).path())).unwrap()
    }

    fn reply(&mut self, stream: u32, id: u32, output: &mut Vec<u8>, reply: &impl Fn(usize) -> Reply) {
        self.asked += 1;
        match reply(self.asked) {
            Reply::Answer => {
                let body = body(id);
                let length = body.len().to_string();
                let encoder = &mut self.encoder;
                frame::push_headers(output, stream, false, |out| {
                    encoder.begin(out, 200);
                    encoder.field(out, b"content-length", length.as_bytes(), Indexing::Own);
                });
                *self.windows.entry(stream).or_default() += self.first_window;
                self.sending.push((stream, body, 0));
            }
            Reply::Silence => self.silent += 1,
            Reply::Reset(code) => frame::push_reset(output, stream, code),
            Reply::GoAway(last) => frame::push_goaway(output, last, ErrorCode::NO_ERROR, ""),
            Reply::Bytes(bytes) => output.extend_from_slice(bytes),
        }
        self.seen.at_once_max.fetch_max(self.silent + self.sending.len(), Relaxed);
    }

    /// Sends as much as the windows allow.
    fn send(&mut self, output: &mut Vec<u8>) {
        let (window, windows) = (&mut self.window, &mut self.windows);
        self.sending.retain_mut(|(stream, body, sent)| {
            let own = windows.get_mut(stream).unwrap();
            loop {
                let left = body.len() - *sent;
                let room = usize::try_from((*window).min(*own)).unwrap_or(0);
                let piece = left.min(FRAME_BYTES).min(room);
                if piece == 0 {
                    return true;
                }
                frame::push_data(output, *stream, &body[*sent..*sent + piece], piece == left);
                *sent += piece;
                *window -= piece as i64;
                *own -= piece as i64;
                if piece == left {
                    return false;
                }
            }
        });
    }
}

/// A server of HTTP/2 in clear.
pub(super) fn h2_server(
    settings: &'static [(u16, u32)],
    reply: impl Fn(usize) -> Reply + Send + Sync + 'static,
) -> (Target, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let shared = Arc::clone(&seen);
    (server(move |stream| Peer::serve(stream, settings, Arc::clone(&shared), &reply)), seen)
}

pub(super) fn over_h2(target: Target, streams_max: u32) -> Setup {
    Setup { protocol: Protocol::Http2 { streams_max }, connections_max: 1, ..setup(target) }
}

/// A server of TLS, whose connections `serve` has.
pub(super) fn secure_server(
    protocols: &[&[u8]],
    serve: impl Fn(StreamOwned<ServerConnection, TcpStream>) + Send + Sync + 'static,
) -> (Target, Certificate) {
    let certificate = Certificate::make(vec!["127.0.0.1".to_owned()], KeyKind::Ecdsa).unwrap();
    let config = tls_server::config(&certificate, protocols).unwrap();
    let plain = server(move |socket| {
        serve(StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), socket));
    });
    (Target { is_https: true, ..plain }, certificate)
}

/// Answers each request of HTTP/1.1 properly.
fn serve_h1(stream: StreamOwned<ServerConnection, TcpStream>) {
    let mut reader = BufReader::new(stream);
    while let Some(id) = request(&mut reader) {
        if reader.get_mut().write_all(&answer(id)).is_err() {
            return;
        }
    }
}

pub(super) fn secure(target: Target, options: &ClientOptions, protocol: &[u8]) -> Setup {
    Setup { tls: Some(Client::new(options, protocol).unwrap()), ..setup(target) }
}

#[test]
fn requests_at_once_share_a_connection() {
    let (target, seen) = h2_server(&[], |_| Reply::Answer);
    let (ran, _) = open(over_h2(target, 5), steady(2000, 0));
    assert_eq!((ran.records.len(), count(&ran, Outcome::Answered)), (2000, 2000));
    assert_eq!((ran.connections, flagged(&ran, REUSED)), (1, 1999));
    let at_once = seen.at_once_max.load(Relaxed);
    assert!((2..=5).contains(&at_once), "{at_once} requests at once");
    assert!(flagged(&ran, QUEUED) > 1900, "all others waited for a stream");
}

#[test]
fn a_server_may_allow_fewer_requests_at_once() {
    let (target, seen) = h2_server(&[(MAX_CONCURRENT_STREAMS, 2)], |_| Reply::Silence);
    let (ran, _) = drive(over_h2(target, 10), steady(8, 50 * MS), Pace::Open, 30_000, 100);
    assert_eq!(count(&ran, Outcome::Unanswered), 8);
    // One more if the setting came late, on a busy machine.
    let at_once = seen.at_once_max.load(Relaxed);
    assert!((2..=3).contains(&at_once), "{at_once}");
}

#[test]
fn clients_ask_over_few_connections() {
    let (target, seen) = h2_server(&[], |_| Reply::Answer);
    let setup = Setup { connections_max: 8, ..over_h2(target, 10) };
    let (ran, whole) = drive(setup, steady(3000, 0), closed(25, 0), 30_000, 10_000);
    assert_eq!(count(&ran, Outcome::Answered), 3000);
    assert!((1..=3).contains(&ran.connections), "{} connections", ran.connections);
    assert_eq!((seen.connections.load(Relaxed) as u64, whole.ended_early), (ran.connections, None));
    assert_eq!(ran.clients.iter().map(|client| client.answered).sum::<u64>(), 3000);
}

#[test]
fn a_connection_ends_after_its_requests() {
    let (target, _) = h2_server(&[], |_| Reply::Answer);
    let setup = Setup { requests_per_connection: Some(4), connections_max: 2, ..over_h2(target, 10) };
    let (ran, _) = open(setup, steady(100, 0));
    assert_eq!((count(&ran, Outcome::Answered), ran.connections), (100, 25));
}

#[test]
fn windows_grow_as_answers_come() {
    // Some 30 MB, twice the window of the connection.
    let (target, _) = h2_server(&[], |_| Reply::Answer);
    let demand = Steady { next: 0, count: 300, gap_ns: 0, first: LARGE };
    let stream = Stream { setup: over_h2(target, 20), demand: Box::new(Same(demand)), pace: closed(20, 0) };
    let phase = Phase::new(60_000 * MS, 10_000 * MS);
    let ran = run(vec![vec![stream]], &phase, &Stop::default(), None).unwrap();
    assert_eq!(count(&ran.streams[0], Outcome::Answered), 300);
    assert!(ran.streams[0].records.iter().all(|record| record.body_bytes == 102_400));
}

/// Asks for one file again and again.
struct Same(Steady);

impl Demand for Same {
    fn next_due_ns(&self) -> Option<u64> {
        (self.0.next < self.0.count).then_some(0)
    }

    fn take(&mut self) -> Option<Arrival> {
        self.next_due_ns()?;
        self.0.next += 1;
        Some(Arrival { path_id: self.0.first, intended_ns: 0 })
    }

    fn next_path(&mut self) -> Option<u32> {
        self.take().map(|arrival| arrival.path_id)
    }
}

#[test]
fn two_streams_of_requests_share_their_connections() {
    let (target, seen) = h2_server(&[], |_| Reply::Answer);
    let stream = |count| Stream {
        setup: over_h2(target.clone(), 100),
        demand: Box::new(steady(count, MS)),
        pace: Pace::Open,
    };
    let phase = Phase::new(5000 * MS, 10_000 * MS);
    let ran = run(vec![vec![stream(400), stream(100)]], &phase, &Stop::default(), None).unwrap();
    let [hot, cold] = &ran.streams[..] else { panic!("{ran:?}") };
    assert_eq!((count(hot, Outcome::Answered), count(cold, Outcome::Answered)), (400, 100));
    assert_eq!((hot.connections, cold.connections, seen.connections.load(Relaxed)), (1, 0, 1));
    let other = Stream { setup: setup(target.clone()), demand: Box::new(steady(1, 0)), pace: Pace::Open };
    let both = run(vec![vec![stream(1), other]], &phase, &Stop::default(), None);
    assert_eq!(both.unwrap_err().exit_code(), 2, "no two versions on one thread");
}

#[test]
fn unhandled_requests_are_sent_again() {
    // Every third is refused; every tenth ends the connection, which handled those before.
    let (target, _) = h2_server(&[], |number| match number {
        10.. => Reply::GoAway(17),
        3 | 6 | 9 => Reply::Reset(ErrorCode::REFUSED_STREAM),
        _ => Reply::Answer,
    });
    let setup = Setup { connections_max: 4, ..over_h2(target, 1) };
    let (ran, _) = drive(setup, steady(60, 0), closed(1, 0), 30_000, 10_000);
    assert_eq!(count(&ran, Outcome::Answered), 60);
    // Six of each connection are answered.
    assert_eq!((ran.connections, ran.retried), (10, 9 * 4 + 2));
}

#[test]
fn a_server_that_handles_nothing_is_not_asked_for_ever() {
    for reply in [Reply::GoAway(0), Reply::Reset(ErrorCode::REFUSED_STREAM)] {
        let (target, _) = h2_server(&[], move |_| reply);
        let (ran, _) = open(over_h2(target, 10), steady(20, 0));
        assert_eq!(count(&ran, Outcome::Reset), 20);
    }
}

#[test]
fn a_broken_protocol_is_garbage() {
    const CASES: [&[u8]; 5] = [
        // HTTP/1.1.
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
        // A head without a status, on stream 1.
        &[0, 0, 1, 1, 5, 0, 0, 0, 1, 0x84],
        // Data before a head.
        &[0, 0, 1, 0, 1, 0, 0, 0, 1, b'x'],
        // An answer to a request that was never sent.
        &[0, 0, 1, 1, 5, 0, 0, 1, 1, 0x88],
        // A header block that another frame interrupts.
        &[0, 0, 1, 1, 0, 0, 0, 0, 1, 0x88, 0, 0, 0, 4, 1, 0, 0, 0, 0],
    ];
    for bytes in CASES {
        let (target, _) = h2_server(&[], move |_| Reply::Bytes(bytes));
        let (ran, _) = open(over_h2(target, 1), steady(1, 0));
        assert_eq!(count(&ran, Outcome::Garbage), 1, "{bytes:?}: {:?}", ran.records);
    }
}

#[test]
fn an_aborted_request_costs_its_stream_only() {
    let (target, seen) = h2_server(&[], |number| if number == 5 { Reply::Silence } else { Reply::Answer });
    let setup = Setup { abort_after_ns: Some(300 * MS), retries_max: 1, ..over_h2(target, 10) };
    let (ran, _) = open(setup, steady(20, 20 * MS));
    assert_eq!((count(&ran, Outcome::Answered), ran.connections), (20, 1));
    assert_eq!((ran.retried, seen.resets.load(Relaxed)), (1, 1));
    let retried: Vec<_> = ran.records.iter().filter(|record| record.tries == 2).collect();
    assert!(matches!(retried[..], [record] if record.latency_ns() >= 300 * MS), "{retried:?}");
}

#[test]
fn http_2_over_tls_is_chosen_by_alpn() {
    let (target, _) = secure_server(&[b"h2", b"http/1.1"], |stream| {
        Peer::serve(stream, &[], Arc::default(), |_| Reply::Answer);
    });
    let client = Client::new(&ClientOptions::default(), b"h2").unwrap();
    let h2 = |target| Setup { tls: Some(client.clone()), ..over_h2(target, 10) };
    let (ran, _) = open(h2(target), steady(200, 0));
    assert_eq!((count(&ran, Outcome::Answered), ran.handshakes.len()), (200, 1));
    let (old, _) = secure_server(&[b"http/1.1"], serve_h1);
    let (ran, whole) = open(h2(old), steady(3, 0));
    assert_eq!(count(&ran, Outcome::NoHandshake), 3);
    assert!(whole.local_limit.unwrap().contains("no TLS session"), "the reason is kept");
}

#[test]
fn sessions_are_resumed_unless_that_is_off() {
    let (target, _) = secure_server(&[b"http/1.1"], serve_h1);
    for (no_resumption, version) in
        [(false, None), (false, Some(Version::Tls12)), (true, None), (true, Some(Version::Tls12))]
    {
        let options = ClientOptions { no_resumption, version, authorities: None };
        let secure = secure(target.clone(), &options, b"http/1.1");
        let each = Setup { requests_per_connection: Some(1), ..secure };
        let (ran, _) = drive(each, steady(30, 0), closed(1, 0), 30_000, 10_000);
        assert_eq!((count(&ran, Outcome::Answered), ran.connections), (30, 30), "{options:?}");
        let resumed = ran.handshakes.iter().filter(|handshake| handshake.is_resumed).count();
        assert_eq!((ran.handshakes.len(), resumed), (30, if no_resumption { 0 } else { 29 }), "{options:?}");
        assert!(ran.handshakes.iter().all(|handshake| handshake.took_ns > 0));
    }
}

#[test]
fn bodies_of_every_length_come_through_tls() {
    let (target, _) = secure_server(&[b"http/1.1"], serve_h1);
    let secure = secure(target, &ClientOptions::default(), b"http/1.1");
    let (ran, _) = open(secure.clone(), steady(500, 0));
    assert_eq!(count(&ran, Outcome::Answered), 500);
    let large = Steady { next: 0, count: 40, gap_ns: 0, first: LARGE };
    for read_bytes_per_s in [None, Some(20_000_000)] {
        let large = Steady { ..large };
        let stream = Stream {
            setup: Setup { read_bytes_per_s, ..secure.clone() },
            demand: Box::new(Same(large)),
            pace: closed(4, 0),
        };
        let phase = Phase::new(30_000 * MS, 10_000 * MS);
        let ran = run(vec![vec![stream]], &phase, &Stop::default(), None).unwrap();
        assert_eq!(count(&ran.streams[0], Outcome::Answered), 40, "{read_bytes_per_s:?}");
    }
}

#[test]
fn certificates_are_verified_only_if_that_is_asked_for() {
    let (target, certificate) = secure_server(&[b"http/1.1"], serve_h1);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, certificate: &Certificate| {
        let path = folder.path().join(name);
        std::fs::write(&path, &certificate.pem).unwrap();
        ClientOptions { authorities: Some(path), ..ClientOptions::default() }
    };
    let stranger = Certificate::make(vec!["127.0.0.1".to_owned()], KeyKind::Ecdsa).unwrap();
    let cases = [
        (ClientOptions::default(), Outcome::Answered),
        (file("own.pem", &certificate), Outcome::Answered),
        (file("other.pem", &stranger), Outcome::NoHandshake),
    ];
    for (options, outcome) in cases {
        let (ran, _) = open(secure(target.clone(), &options, b"http/1.1"), steady(3, 0));
        assert_eq!(count(&ran, outcome), 3, "{options:?}");
    }
}

#[test]
fn a_server_without_tls_makes_no_handshake() {
    let plain = Target { is_https: true, ..good_server() };
    let (ran, whole) = open(secure(plain, &ClientOptions::default(), b"http/1.1"), steady(3, 0));
    assert_eq!(count(&ran, Outcome::NoHandshake), 3);
    assert!(whole.local_limit.is_some());
}
