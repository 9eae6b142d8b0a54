//! The wires of the suites. A test speaks HTTP/1.1 in clear text whatever the wire is: for TLS and HTTP/2 a carrier, as threads of
//! the test, takes its bytes to the server and back, as a gateway does. So one text of a test is about every wire.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;

use flash_http::h2::frame::{
    push_data, push_headers, push_ping, push_settings, push_settings_ack, push_window_update,
};
use flash_http::h2::{
    Decoder, Encoder, FieldList, Frame, Indexing, ListLimits, PREFACE, Setting, next_frame,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::{PATIENCE, wire};

/// The wire between the clients of a suite and their servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// HTTP/1.1 in clear text.
    Plain,
    /// HTTP/1.1 over TLS.
    Tls,
    /// HTTP/2 over TLS.
    Http2,
}

/// Whether a test is only about HTTP/1.1 in clear text; prints the reason.
pub(crate) fn only_plain(why: &str) -> bool {
    let skipped = wire() != Wire::Plain;
    if skipped {
        super::skip(&format!("not over {:?}: {why}", wire()));
    }
    skipped
}

/// Whether a test is not about HTTP/2; prints the reason.
pub(crate) fn not_http2(why: &str) -> bool {
    let skipped = wire() == Wire::Http2;
    if skipped {
        super::skip(&format!("not over {:?}: {why}", wire()));
    }
    skipped
}

/// A connection to a server that takes HTTP/1.1 in clear text.
pub(crate) fn connect(address: SocketAddr, own: Option<IpAddr>) -> io::Result<TcpStream> {
    let stream = match own {
        None => TcpStream::connect_timeout(&address, PATIENCE)?,
        Some(own) => flash_prompt::net::connect_from(address, Some(own), None)?.into(),
    };
    // Until the connection is made, calls block.
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    if wire() == Wire::Plain { Ok(stream) } else { carry(stream) }
}

/// The files of a certificate of `localhost` and of its key, for the servers of this suite.
pub(crate) fn certificate() -> &'static [PathBuf; 2] {
    static FILES: OnceLock<[PathBuf; 2]> = OnceLock::new();
    FILES.get_or_init(|| {
        let folder = format!("{}/{}-{:?}", env!("CARGO_TARGET_TMPDIR"), std::process::id(), wire());
        let folder = PathBuf::from(folder);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let made =
            Command::new(env!("CARGO_BIN_EXE_flash")).args(["tls", "self-signed"]).arg(&folder).output();
        let made = made.unwrap();
        assert!(made.status.success(), "{made:?}");
        ["flash.pem", "flash.key"].map(|name| folder.join(name))
    })
}

/// The lines of a config file that offer the same address over TLS.
pub(crate) fn config_lines(listen: &str) -> String {
    let [certificate, key] = certificate();
    format!("listen_tls = {listen}\ncertificate = [{certificate:?}]\ncertificate_key = [{key:?}]\n")
}

fn client_config() -> Arc<ClientConfig> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let make = || {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&certificate()[0]).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        let protocol: &[u8] = if wire() == Wire::Http2 { b"h2" } else { b"http/1.1" };
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config)
    };
    CONFIG.get_or_init(make).clone()
}

/// The parts of a carrier that its threads share.
struct Carrier {
    local: TcpStream,
    server: TcpStream,
    tls: Mutex<ClientConnection>,
    /// To the thread that sends; None is the end.
    sender: Sender<Option<Vec<u8>>>,
    streams: Mutex<Streams>,
    changed: Condvar,
}

/// The state of a connection of HTTP/2.
#[derive(Default)]
struct Streams {
    /// The streams that have no whole answer yet, in the order of their requests.
    waiting: VecDeque<Waiting>,
    /// How many bytes the server takes: on the connection, on new streams, and on each open one.
    window: i64,
    first_window: i64,
    windows: BTreeMap<u32, i64>,
    is_over: bool,
}

/// A request and its answer in the words of HTTP/1.1, as far as it has come.
struct Waiting {
    stream: u32,
    is_head: bool,
    closes: bool,
    is_chunked: bool,
    bytes: Vec<u8>,
    end: Option<End>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    Reset,
}

/// Puts a carrier before a connection. If the handshake fails, the result has ended.
fn carry(mut server: TcpStream) -> io::Result<TcpStream> {
    server.set_read_timeout(Some(PATIENCE))?;
    server.set_write_timeout(Some(PATIENCE))?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let local = listener.accept()?.0;
    near.set_nodelay(true)?;
    local.set_nodelay(true)?;
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    let mut tls = ClientConnection::new(client_config(), name).map_err(io::Error::other)?;
    tls.set_buffer_limit(None);
    while tls.is_handshaking() {
        if tls.complete_io(&mut server).is_err() {
            return Ok(near);
        }
    }
    server.set_read_timeout(None)?;
    let (sender, outgoing) = channel();
    let streams = Streams { window: 65_535, first_window: 65_535, ..Streams::default() };
    let carrier = Arc::new(Carrier {
        local,
        server,
        tls: Mutex::new(tls),
        sender,
        streams: Mutex::new(streams),
        changed: Condvar::new(),
    });
    if wire() == Wire::Http2 {
        let mut hello = PREFACE.to_vec();
        push_settings(&mut hello, &[]);
        carrier.send(&hello);
    } else {
        carrier.send(&[]);
    }
    let (up, out) = (carrier.clone(), carrier.clone());
    thread::spawn(move || out.send_all(&outgoing));
    thread::spawn(move || up.carry_up());
    thread::spawn(move || carrier.carry_down());
    Ok(near)
}

impl Carrier {
    /// Encrypts bytes and passes them on.
    fn send(&self, plain: &[u8]) {
        let mut tls = self.tls.lock().unwrap();
        let _ = tls.writer().write_all(plain);
        let mut bytes = Vec::new();
        while tls.wants_write() && tls.write_tls(&mut bytes).is_ok() {}
        // Under the lock, so that records stay in order.
        let _ = self.sender.send(Some(bytes));
    }

    fn send_all(&self, outgoing: &Receiver<Option<Vec<u8>>>) {
        while let Ok(Some(bytes)) = outgoing.recv() {
            if (&self.server).write_all(&bytes).is_err() {
                return;
            }
        }
        let _ = self.server.shutdown(Shutdown::Write);
    }

    /// Takes the bytes of the test to the server.
    fn carry_up(&self) {
        let mut requests =
            Requests { encoder: Encoder::new(), next: 1, input: Vec::new(), body: Upload::None };
        let mut buffer = [0; 64 * 1024];
        while let Ok(bytes @ 1..) = (&self.local).read(&mut buffer) {
            if wire() == Wire::Http2 {
                requests.input.extend_from_slice(&buffer[..bytes]);
                requests.go_on(self);
            } else {
                self.send(&buffer[..bytes]);
            }
        }
        self.tls.lock().unwrap().send_close_notify();
        self.send(&[]);
        let _ = self.sender.send(None);
    }

    /// Takes the bytes of the server to the test, and ends as the server does.
    fn carry_down(&self) {
        let mut frames = Frames { decoder: Decoder::new(), input: Vec::new() };
        let mut buffer = [0; 64 * 1024];
        let was_reset = loop {
            match (&self.server).read(&mut buffer) {
                Ok(0) => break false,
                Ok(bytes) => match self.take(&buffer[..bytes], &mut frames) {
                    Ok(true) => {}
                    Ok(false) | Err(_) => break false,
                },
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break true,
            }
        };
        self.streams.lock().unwrap().is_over = true;
        self.changed.notify_all();
        if was_reset {
            // The other threads hold the socket too, so only a reset of the other side ends it at once.
            let _ = flash_prompt::net::reset(&self.local);
        }
        let _ = self.local.shutdown(if was_reset { Shutdown::Both } else { Shutdown::Write });
        let _ = self.sender.send(None);
    }

    /// Takes records of the server. False if nothing follows them.
    fn take(&self, mut records: &[u8], frames: &mut Frames) -> io::Result<bool> {
        while !records.is_empty() {
            let (mut plain, has_ended) = (Vec::new(), {
                let mut tls = self.tls.lock().unwrap();
                tls.read_tls(&mut records)?;
                tls.process_new_packets().map_err(io::Error::other)?.peer_has_closed()
            });
            // Stops with an error once no more is there, and with 0 after the end.
            let _ = self.tls.lock().unwrap().reader().read_to_end(&mut plain);
            if wire() == Wire::Http2 {
                frames.input.extend_from_slice(&plain);
                if !frames.go_on(self)? {
                    return Ok(false);
                }
            } else {
                (&self.local).write_all(&plain)?;
            }
            if has_ended {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes what is known of the first answers. False if the connection is to end.
    fn deliver(&self) -> io::Result<bool> {
        loop {
            let (bytes, ends) = {
                let mut streams = self.streams.lock().unwrap();
                let Some(first) = streams.waiting.front_mut() else { return Ok(true) };
                let (bytes, end) = (std::mem::take(&mut first.bytes), first.end);
                let ends = end == Some(End::Reset) || (end.is_some() && first.closes);
                match end {
                    Some(_) => drop(streams.waiting.pop_front()),
                    None if bytes.is_empty() => return Ok(true),
                    None => {}
                }
                (bytes, ends)
            };
            (&self.local).write_all(&bytes)?;
            if ends {
                return Ok(false);
            }
        }
    }
}

/// The requests of a test on their way into frames.
struct Requests {
    encoder: Encoder,
    next: u32,
    input: Vec<u8>,
    body: Upload,
}

/// The body that is being carried, and its stream.
#[derive(Clone, Copy)]
enum Upload {
    None,
    Length(u32, usize),
    Chunked(u32),
}

impl Requests {
    /// Carries all that is complete.
    fn go_on(&mut self, carrier: &Carrier) {
        loop {
            match self.body {
                Upload::None => {
                    let Some(end) = self.input.windows(4).position(|four| four == b"\r\n\r\n") else {
                        return;
                    };
                    let head: Vec<u8> = self.input.drain(..end + 4).collect();
                    self.open(carrier, &String::from_utf8_lossy(&head));
                }
                Upload::Length(stream, left) => {
                    let piece: Vec<u8> = self.input.drain(..left.min(self.input.len())).collect();
                    let left = left - piece.len();
                    data(carrier, stream, &piece, left == 0);
                    self.body = if left == 0 { Upload::None } else { Upload::Length(stream, left) };
                    if left > 0 {
                        return;
                    }
                }
                Upload::Chunked(stream) => {
                    let Some(end) = self.input.windows(2).position(|two| two == b"\r\n") else { return };
                    let line = String::from_utf8_lossy(&self.input[..end]).into_owned();
                    let bytes = usize::from_str_radix(line.trim(), 16).expect("the length of a chunk");
                    if self.input.len() < end + 2 + bytes + 2 {
                        return;
                    }
                    let piece = self.input[end + 2..end + 2 + bytes].to_vec();
                    self.input.drain(..end + 2 + bytes + 2);
                    data(carrier, stream, &piece, bytes == 0);
                    self.body = if bytes == 0 { Upload::None } else { Upload::Chunked(stream) };
                }
            }
        }
    }

    /// Opens a stream for a head.
    fn open(&mut self, carrier: &Carrier, head: &str) {
        let mut lines = head.trim_end().split("\r\n");
        let mut line = lines.next().unwrap_or_default().split(' ');
        let (method, path) = (line.next().unwrap_or_default(), line.next().unwrap_or_default());
        let fields = lines.filter_map(|line| line.split_once(':'));
        let fields: Vec<(String, &str)> =
            fields.map(|(name, value)| (name.to_lowercase(), value.trim())).collect();
        let field = |wanted: &str| fields.iter().find(|(name, _)| name == wanted).map(|(_, value)| *value);
        let is_of_http1 = |name: &str| {
            ["host", "connection", "keep-alive", "transfer-encoding", "upgrade", "te"].contains(&name)
        };
        let length = field("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
        let is_chunked = field("transfer-encoding").is_some();
        let stream = self.next;
        self.next += 2;
        self.body = match length {
            _ if is_chunked => Upload::Chunked(stream),
            0 => Upload::None,
            _ => Upload::Length(stream, length),
        };
        {
            let mut streams = carrier.streams.lock().unwrap();
            let first_window = streams.first_window;
            streams.windows.insert(stream, first_window);
            streams.waiting.push_back(Waiting {
                stream,
                is_head: method == "HEAD",
                closes: field("connection") == Some("close"),
                is_chunked: false,
                bytes: Vec::new(),
                end: None,
            });
        }
        let pseudo = [(":method", method), (":scheme", "https"), (":path", path)];
        let authority = field("host").map(|host| (":authority", host));
        let rest =
            fields.iter().filter(|(name, _)| !is_of_http1(name)).map(|(name, value)| (&**name, *value));
        let all: Vec<(&str, &str)> = pseudo.into_iter().chain(authority).chain(rest).collect();
        let mut bytes = Vec::new();
        push_headers(&mut bytes, stream, matches!(self.body, Upload::None), |out| {
            for (name, value) in all {
                self.encoder.field(out, name.as_bytes(), value.as_bytes(), Indexing::Shared);
            }
        });
        carrier.send(&bytes);
    }
}

/// Carries a part of a body as the server takes it. The rest of one that it does not want is dropped.
fn data(carrier: &Carrier, stream: u32, mut piece: &[u8], is_last: bool) {
    let mut bytes = Vec::new();
    while !piece.is_empty() {
        let mut streams = carrier.streams.lock().unwrap();
        let room = loop {
            let room = streams.windows.get(&stream).map(|window| (*window).min(streams.window).min(16_384));
            match room {
                None => return,
                Some(_) if streams.is_over => return,
                Some(room @ 1..) => break room as usize,
                Some(_) => streams = carrier.changed.wait(streams).unwrap(),
            }
        };
        let (now, later) = piece.split_at(room.min(piece.len()));
        streams.window -= now.len() as i64;
        *streams.windows.get_mut(&stream).unwrap() -= now.len() as i64;
        drop(streams);
        bytes.clear();
        push_data(&mut bytes, stream, now, is_last && later.is_empty());
        carrier.send(&bytes);
        piece = later;
        if is_last && piece.is_empty() {
            return;
        }
    }
    if is_last {
        push_data(&mut bytes, stream, &[], true);
        carrier.send(&bytes);
    }
}

/// The frames of a server on their way into answers.
struct Frames {
    decoder: Decoder,
    input: Vec<u8>,
}

impl Frames {
    /// Takes each complete frame. False if the connection is to end.
    fn go_on(&mut self, carrier: &Carrier) -> io::Result<bool> {
        let mut replies = Vec::new();
        loop {
            let input = std::mem::take(&mut self.input);
            let wrong = |e| io::Error::other(format!("{e:?}"));
            let Some((frame, taken)) = next_frame(&input).map_err(|(e, _)| wrong(e))? else {
                self.input = input;
                return Ok(true);
            };
            self.frame(carrier, &frame, &mut replies);
            if !replies.is_empty() {
                carrier.send(&replies);
                replies.clear();
            }
            self.input = input[taken..].to_vec();
            if !carrier.deliver()? {
                return Ok(false);
            }
        }
    }

    fn frame(&mut self, carrier: &Carrier, frame: &Frame<'_>, replies: &mut Vec<u8>) {
        let mut streams = carrier.streams.lock().unwrap();
        match *frame {
            // Flash sends each head in one frame.
            Frame::Headers { stream, fragment, ends_stream, .. } => {
                let mut list = FieldList::new();
                let limits = ListLimits { bytes: 1 << 20, fields: 1_000 };
                self.decoder.decode(fragment, limits, &mut list).expect("a header block");
                streams.head(stream, &list, ends_stream);
            }
            Frame::Data { stream, data, ends_stream, flow_bytes } => {
                streams.data(stream, data, ends_stream);
                if flow_bytes > 0 {
                    push_window_update(replies, 0, flow_bytes as u32);
                    if !ends_stream {
                        push_window_update(replies, stream, flow_bytes as u32);
                    }
                }
            }
            Frame::Reset { stream, .. } => streams.end(stream, End::Reset),
            Frame::Settings { payload } => {
                let _ = flash_http::h2::settings::each_setting(payload, |setting| {
                    if let Setting::InitialWindow(bytes) = setting {
                        let more = i64::from(bytes) - streams.first_window;
                        streams.first_window += more;
                        streams.windows.values_mut().for_each(|window| *window += more);
                    }
                    Ok(())
                });
                push_settings_ack(replies);
            }
            Frame::Ping { is_ack: false, data } => push_ping(replies, true, data),
            Frame::WindowUpdate { stream: 0, increment } => streams.window += i64::from(increment),
            Frame::WindowUpdate { stream, increment } => {
                if let Some(window) = streams.windows.get_mut(&stream) {
                    *window += i64::from(increment);
                }
            }
            _ => {}
        }
        drop(streams);
        carrier.changed.notify_all();
    }
}

impl Streams {
    fn of(&mut self, stream: u32) -> Option<&mut Waiting> {
        self.waiting.iter_mut().find(|waiting| waiting.stream == stream)
    }

    fn head(&mut self, stream: u32, list: &FieldList, ends_stream: bool) {
        let Some(waiting) = self.of(stream) else { return };
        let field = |wanted: &[u8]| list.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value);
        let status = String::from_utf8_lossy(field(b":status").unwrap_or_default()).into_owned();
        waiting.bytes.extend_from_slice(format!("HTTP/1.1 {status} Status\r\n").as_bytes());
        for (name, value) in list.iter().filter(|(name, _)| !name.starts_with(b":")) {
            let words = name.split(|byte| *byte == b'-').map(|word| {
                let mut word = word.to_vec();
                word[..1].make_ascii_uppercase();
                word
            });
            let name = words.collect::<Vec<_>>().join(&b'-');
            [&name[..], b": ", value, b"\r\n"].iter().for_each(|part| waiting.bytes.extend_from_slice(part));
        }
        let is_interim = status.starts_with('1');
        let has_no_length = field(b"content-length").is_none() && !matches!(&*status, "204" | "304");
        waiting.is_chunked = has_no_length && !waiting.is_head && !is_interim;
        if waiting.is_chunked {
            waiting.bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        if waiting.closes && !is_interim {
            waiting.bytes.extend_from_slice(b"Connection: close\r\n");
        }
        waiting.bytes.extend_from_slice(b"\r\n");
        if ends_stream {
            self.end(stream, End::Whole);
        }
    }

    fn data(&mut self, stream: u32, data: &[u8], ends_stream: bool) {
        let Some(waiting) = self.of(stream) else { return };
        if waiting.is_chunked && !data.is_empty() {
            waiting.bytes.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
        }
        waiting.bytes.extend_from_slice(data);
        if waiting.is_chunked && !data.is_empty() {
            waiting.bytes.extend_from_slice(b"\r\n");
        }
        if ends_stream {
            self.end(stream, End::Whole);
        }
    }

    fn end(&mut self, stream: u32, end: End) {
        self.windows.remove(&stream);
        if let Some(waiting) = self.of(stream) {
            if waiting.is_chunked && end == End::Whole && waiting.end.is_none() {
                waiting.bytes.extend_from_slice(b"0\r\n\r\n");
            }
            // A server resets a stream after its whole answer if it does not want the rest of the request.
            waiting.end.get_or_insert(end);
        }
    }
}
