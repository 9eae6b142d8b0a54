//! A client of HTTP/2: frames of its own, header blocks by the codec of `flash_http`, and checks of everything that comes.

use std::collections::{BTreeMap, VecDeque};

use flash_http::h2::{Decoder, Encoder, FieldList, Indexing, ListLimits, PREFACE};

use super::Client;

const FRAME_HEAD_BYTES: usize = 9;
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const PRIORITY_UPDATE: u8 = 16;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
const WINDOW_BYTES: i64 = 65_535;

/// Something that the server has sent on a stream, or that ends the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The fields of a head, as lines of HTTP/1.
    Head(u32, String),
    Data(u32, Vec<u8>),
    End(u32),
    Reset(u32, u32),
    GoAway(u32, u32),
    Pong([u8; 8]),
    Ping([u8; 8]),
    WindowUpdate(u32, u32),
    Settings,
    SettingsAck,
}

/// A whole answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) is_whole: bool,
    pub(crate) reset: Option<u32>,
}

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.head[9..12].parse().expect("a status")
    }
}

/// The state of a connection of HTTP/2 as its client sees it.
pub(crate) struct H2Codec {
    encoder: Encoder,
    decoder: Decoder,
    inbox: Vec<u8>,
    pub(crate) next_stream: u32,
    /// How much the server may still send: on the connection, and on each stream.
    window: i64,
    first_window: i64,
    windows: BTreeMap<u32, i64>,
    /// For each SETTINGS that is not acknowledged, by how much and of which streams the windows shrink.
    shrinking: VecDeque<(i64, Vec<u32>)>,
    ended: BTreeMap<u32, bool>,
    /// Whether windows grow as data comes.
    pub(crate) grows_windows: bool,
    /// Frames that answer the server's, still to be sent.
    pub(crate) replies: Vec<u8>,
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

impl H2Codec {
    pub(crate) fn new() -> Self {
        Self {
            encoder: Encoder::new(),
            decoder: Decoder::new(),
            inbox: Vec::new(),
            next_stream: 1,
            window: WINDOW_BYTES,
            first_window: WINDOW_BYTES,
            windows: BTreeMap::new(),
            shrinking: VecDeque::new(),
            ended: BTreeMap::new(),
            grows_windows: true,
            replies: Vec::new(),
        }
    }

    /// The preface, with settings.
    pub(crate) fn preface(&mut self, first_window: u32) -> Vec<u8> {
        [&PREFACE[..], &self.settings(first_window)].concat()
    }

    /// SETTINGS with the first window of streams.
    pub(crate) fn settings(&mut self, first_window: u32) -> Vec<u8> {
        let difference = i64::from(first_window) - self.first_window;
        if difference > 0 {
            self.windows.values_mut().for_each(|window| *window += difference);
            self.shrinking.push_back((0, Vec::new()));
        } else {
            // The server can have sent more before it knows.
            self.shrinking.push_back((difference, self.windows.keys().copied().collect()));
        }
        self.first_window = first_window.into();
        frame(SETTINGS, 0, 0, &[&[0, 4][..], &first_window.to_be_bytes()].concat())
    }

    /// SETTINGS with the size of the table of header fields.
    pub(crate) fn table_size(&mut self, bytes: u32) -> Vec<u8> {
        self.shrinking.push_back((0, Vec::new()));
        frame(SETTINGS, 0, 0, &[&[0, 1][..], &bytes.to_be_bytes()].concat())
    }

    /// A header block.
    pub(crate) fn block(&mut self, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        for (name, value) in fields {
            let indexing = if name.starts_with(":p") { Indexing::Own } else { Indexing::Shared };
            self.encoder.field(&mut block, name.as_bytes(), value.as_bytes(), indexing);
        }
        block
    }

    /// Opens a stream with these fields. Returns its number and its frame.
    pub(crate) fn open(&mut self, fields: &[(&str, &str)], ends_stream: bool) -> (u32, Vec<u8>) {
        let stream = self.next_stream;
        self.next_stream += 2;
        self.windows.insert(stream, self.first_window);
        let block = self.block(fields);
        let flags = END_HEADERS | if ends_stream { END_STREAM } else { 0 };
        (stream, frame(HEADERS, flags, stream, &block))
    }

    /// Opens a stream with a request in the words of HTTP/1. The frames of a body say where it ends.
    pub(crate) fn open_words(&mut self, words: &[u8], ends_stream: bool) -> (u32, Vec<u8>) {
        let text = String::from_utf8_lossy(words).into_owned();
        let mut lines = text.split("\r\n");
        let mut line = lines.next().unwrap_or_default().split(' ');
        let (method, path) = (line.next().unwrap_or_default(), line.next().unwrap_or_default());
        let fields: Vec<(String, &str)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value))
            .collect();
        let host = fields.iter().find(|(name, _)| name == "host").map_or("", |(_, value)| value);
        let pseudo = [(":method", method), (":scheme", "http"), (":path", path), (":authority", host)];
        let is_other = |name: &str| name != "host" && name != "transfer-encoding";
        let others =
            fields.iter().filter(|(name, _)| is_other(name)).map(|(name, value)| (name.as_str(), *value));
        let all: Vec<_> = pseudo.into_iter().chain(others).collect();
        self.open(&all, ends_stream)
    }

    /// Grows the window of a stream, or of the connection.
    pub(crate) fn grow(&mut self, stream: u32, bytes: u32) -> Vec<u8> {
        if stream == 0 {
            self.window += i64::from(bytes);
        } else if let Some(window) = self.windows.get_mut(&stream) {
            *window += i64::from(bytes);
        }
        frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
    }

    /// The client no longer wants a stream.
    pub(crate) fn reset(&mut self, stream: u32) -> Vec<u8> {
        self.ended.insert(stream, true);
        frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
    }

    /// Reads bytes of the server.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<Vec<Heard>, String> {
        self.inbox.extend_from_slice(bytes);
        let mut heard = Vec::new();
        loop {
            let Some(head) = self.inbox.first_chunk::<FRAME_HEAD_BYTES>() else { return Ok(heard) };
            let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *head;
            let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
            if length > 16_384 {
                return Err(format!("a frame of {length} bytes"));
            }
            if self.inbox.len() < FRAME_HEAD_BYTES + length {
                return Ok(heard);
            }
            let rest = self.inbox.split_off(FRAME_HEAD_BYTES + length);
            let frame = std::mem::replace(&mut self.inbox, rest);
            let stream = u32::from_be_bytes([s0, s1, s2, s3]);
            self.take((kind, flags, stream), &frame[FRAME_HEAD_BYTES..], &mut heard)
                .map_err(|why| format!("stream {stream}: {why}"))?;
        }
    }

    fn take(
        &mut self,
        (kind, flags, stream): (u8, u8, u32),
        payload: &[u8],
        heard: &mut Vec<Heard>,
    ) -> Result<(), String> {
        let number = |at: usize| {
            payload.get(at..at + 4).map(|four| u32::from_be_bytes(four.try_into().expect("4 bytes")))
        };
        if stream > 0 && (stream.is_multiple_of(2) || stream >= self.next_stream) {
            return Err("a frame of a stream that was not opened".into());
        }
        let was_reset = self.ended.get(&stream) == Some(&true);
        if stream > 0
            && self.ended.get(&stream) == Some(&false)
            && kind != RST_STREAM
            && kind != WINDOW_UPDATE
        {
            return Err(format!("a frame of kind {kind} after the end of its stream"));
        }
        match kind {
            DATA => {
                let bytes = payload.len() as i64;
                self.window -= bytes;
                let of_stream = self.windows.get_mut(&stream).ok_or("data of no stream")?;
                *of_stream -= bytes;
                if bytes > 0 && (self.window < 0 || (*of_stream < 0 && !was_reset)) {
                    return Err("more data than the window".into());
                }
                if self.grows_windows && bytes > 0 {
                    let updates = [self.grow(0, bytes as u32), self.grow(stream, bytes as u32)].concat();
                    self.replies.extend(updates);
                }
                if !was_reset && bytes > 0 {
                    heard.push(Heard::Data(stream, payload.to_vec()));
                }
            }
            HEADERS => {
                if flags & END_HEADERS == 0 {
                    return Err("a head in several frames".into());
                }
                let (mut list, limits) = (FieldList::new(), ListLimits { bytes: 60_000, fields: 200 });
                self.decoder.decode(payload, limits, &mut list).map_err(|bad| bad.0)?;
                let mut head = String::new();
                for (at, (name, value)) in list.iter().enumerate() {
                    let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
                    match (at, &*name) {
                        (0, ":status") => head = format!("HTTP/1.1 {value} x\r\n"),
                        (0, _) | (_, ":status") => return Err("a head without its status".into()),
                        _ if name.chars().any(char::is_uppercase) => {
                            return Err(format!("capitals in {name}"));
                        }
                        _ => head += &format!("{name}: {value}\r\n"),
                    }
                }
                if !was_reset {
                    heard.push(Heard::Head(stream, head + "\r\n"));
                }
            }
            RST_STREAM => {
                if !was_reset {
                    heard.push(Heard::Reset(stream, number(0).ok_or("a short frame")?));
                }
                self.ended.insert(stream, true);
            }
            SETTINGS if flags & 1 == 1 => {
                let (difference, streams) = self.shrinking.pop_front().unwrap_or_default();
                for stream in streams {
                    *self.windows.entry(stream).or_default() += difference;
                }
                heard.push(Heard::SettingsAck);
            }
            SETTINGS => {
                self.replies.extend(frame(SETTINGS, 1, 0, &[]));
                heard.push(Heard::Settings);
            }
            PING => {
                let data = payload.try_into().map_err(|_| "a PING of another length")?;
                if flags & 1 == 0 {
                    self.replies.extend(frame(PING, 1, 0, payload));
                }
                heard.push(if flags & 1 == 1 { Heard::Pong(data) } else { Heard::Ping(data) });
            }
            GOAWAY => {
                let (last, code) = (number(0).ok_or("a short frame")?, number(4).ok_or("a short frame")?);
                heard.push(Heard::GoAway(last, code));
            }
            WINDOW_UPDATE => heard.push(Heard::WindowUpdate(stream, number(0).ok_or("a short frame")?)),
            _ => return Err(format!("a frame of kind {kind}")),
        }
        if flags & END_STREAM != 0 && matches!(kind, DATA | HEADERS) {
            self.ended.entry(stream).or_insert(false);
            if !was_reset {
                heard.push(Heard::End(stream));
            }
        }
        Ok(())
    }

    /// The last `count` streams whose answers are complete or that were reset.
    pub(crate) fn has_ended(&self, stream: u32) -> bool {
        self.ended.contains_key(&stream)
    }
}

/// A client and its connection.
pub(crate) struct H2Client {
    pub(crate) client: Client,
    pub(crate) codec: H2Codec,
    pub(crate) heard: VecDeque<Heard>,
}

impl H2Client {
    /// A client that has sent its preface and a request is to follow.
    pub(crate) fn new(client: Client) -> Self {
        let mut codec = H2Codec::new();
        client.send(codec.preface(WINDOW_BYTES as u32));
        Self { client, codec, heard: VecDeque::new() }
    }

    pub(crate) fn send(&self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.client.send(frame(kind, flags, stream, payload));
    }

    /// Sends a GET.
    pub(crate) fn get(&mut self, path: &str) -> u32 {
        self.ask("GET", path, &[])
    }

    /// Sends a request without a body.
    pub(crate) fn ask(&mut self, method: &str, path: &str, fields: &[(&str, &str)]) -> u32 {
        self.begin((method, path), fields, true)
    }

    /// Sends the head of a request.
    pub(crate) fn begin(
        &mut self,
        (method, path): (&str, &str),
        fields: &[(&str, &str)],
        ends_stream: bool,
    ) -> u32 {
        let pseudo = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "h")];
        let all: Vec<_> = pseudo.into_iter().chain(fields.iter().copied()).collect();
        let (stream, frame) = self.codec.open(&all, ends_stream);
        self.client.send(frame);
        stream
    }

    /// Reads what has come, and answers it.
    pub(crate) fn hear(&mut self) {
        let bytes = self.client.take_bytes();
        let heard = self.codec.read(&bytes).unwrap_or_else(|why| panic!("{why}"));
        self.heard.extend(heard);
        if !self.client.is_closed() {
            self.client.send(std::mem::take(&mut self.codec.replies));
        }
    }

    /// Takes what has come of the answer on a stream.
    pub(crate) fn take(&mut self, stream: u32) -> Answer {
        self.hear();
        let mut answer = Answer::default();
        self.heard.retain(|heard| {
            match heard {
                Heard::Head(of, head) if *of == stream => answer.head = head.clone(),
                Heard::Data(of, data) if *of == stream => answer.body.extend_from_slice(data),
                Heard::End(of) if *of == stream => answer.is_whole = true,
                Heard::Reset(of, code) if *of == stream => answer.reset = Some(*code),
                _ => return true,
            }
            false
        });
        answer
    }

    /// Takes the code of the GOAWAY that has come.
    pub(crate) fn goaway(&mut self) -> Option<u32> {
        self.hear();
        let codes: Vec<u32> = self
            .heard
            .iter()
            .filter_map(|heard| if let Heard::GoAway(_, code) = heard { Some(*code) } else { None })
            .collect();
        codes.last().copied()
    }
}
