//! A client's request: its words, and its meaning for a given file by the rules of the RFCs.

use crate::bounded::Beside;
use crate::disk::Disk;
use crate::rng::Rng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Options,
    Post,
    Unknown,
}

/// A precondition.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    NoneMatch(String),
    Match(String),
    ModifiedSince(i64),
    UnmodifiedSince(i64),
}

/// `Accept-Encoding`, and the accepted codings as indices of [`CODINGS`], best first; 3 stands for no coding.
type Encoding = (&'static str, &'static [usize]);

const ENCODINGS: [Encoding; 8] = [
    ("gzip", &[2, 3]),
    ("br, gzip", &[0, 2, 3]),
    ("gzip, zstd, br", &[0, 1, 2, 3]),
    ("br;q=0.5, gzip;q=0.9", &[2, 0, 3]),
    ("identity", &[3]),
    ("gzip;q=0.5, identity", &[3, 2]),
    ("identity;q=0, gzip", &[2]),
    ("*;q=0", &[]),
];

/// A request and its progress.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// An index of [`Disk::targets`]; None for a malformed request.
    pub(crate) target: Option<usize>,
    pub(crate) method: Method,
    /// Whether the request is for a host without a site.
    pub(crate) astray: bool,
    pub(crate) json: bool,
    pub(crate) encoding: Option<Encoding>,
    /// First and last byte of each range, as written.
    pub(crate) ranges: Vec<(Option<u64>, Option<u64>)>,
    pub(crate) if_range: Option<Condition>,
    pub(crate) condition: Option<Condition>,
    /// The client asks for the connection to be closed.
    pub(crate) closes: bool,
    pub(crate) http10: bool,
    pub(crate) has_body: bool,
    /// A head that is never completed, one of many that use up the room for input.
    pub(crate) hoards: bool,
    pub(crate) bytes: Vec<u8>,
    /// The stream of the request, if its connection has several.
    pub(crate) stream: u16,
    /// The turn by which it must be answered, whatever the others of its connection wait for.
    pub(crate) promised_turn: Option<u64>,
    /// Where it ends, counted in all bytes that its client sends.
    pub(crate) end_at: u64,
    pub(crate) first_ms: u64,
    pub(crate) whole_ms: u64,
    /// The turn in which its last byte arrived.
    pub(crate) whole_turn: Option<u64>,
    /// The requests that were unanswered meanwhile.
    pub(crate) beside: Beside,
}

/// Shorter than the longest head allowed.
const HOARD_BYTES: usize = 31_000;

const MALFORMED: [&[u8]; 8] = [
    b"BAD\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/3.7\r\nHost: h\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\nbad field\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"\0\x01\x02 /\r\n\r\n",
];

impl Ask {
    pub(crate) fn malformed(rng: &mut Rng) -> Self {
        let mut ask = Self::plain(None);
        ask.bytes = match rng.below(10) {
            8 => format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "x".repeat(9_000)).into_bytes(),
            9 => format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "x".repeat(40_000)).into_bytes(),
            n => MALFORMED[n as usize].to_vec(),
        };
        ask
    }

    fn plain(target: Option<usize>) -> Self {
        Self {
            target,
            method: Method::Get,
            astray: false,
            json: false,
            encoding: None,
            ranges: Vec::new(),
            if_range: None,
            condition: None,
            closes: false,
            http10: false,
            has_body: false,
            hoards: false,
            bytes: Vec::new(),
            stream: 0,
            promised_turn: None,
            end_at: 0,
            first_ms: u64::MAX,
            whole_ms: u64::MAX,
            whole_turn: None,
            beside: Beside::default(),
        }
    }

    /// A plain GET of a target.
    pub(crate) fn simple(disk: &Disk, target: usize) -> Self {
        let mut ask = Self::plain(Some(target));
        ask.word(disk, &mut Rng::new(0));
        ask
    }

    /// A plain HEAD of a target.
    pub(crate) fn head(disk: &Disk, target: usize) -> Self {
        let mut ask = Self::plain(Some(target));
        ask.method = Method::Head;
        ask.word(disk, &mut Rng::new(0));
        ask
    }

    /// The beginning of a head that never ends.
    pub(crate) fn hoarding() -> Self {
        let mut ask = Self::plain(None);
        ask.hoards = true;
        ask.bytes = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}", "x".repeat(HOARD_BYTES)).into_bytes();
        ask
    }

    /// The same request, as sent on a connection of several streams.
    pub(crate) fn on_a_stream(self, rng: &mut Rng, disk: &Disk) -> Self {
        let mut ask = Self { closes: false, http10: false, has_body: false, ..self };
        ask.word(disk, rng);
        ask
    }

    /// Whether it is a plain GET.
    pub(crate) fn is_simple(&self) -> bool {
        let conditional = self.condition.is_some() || !self.ranges.is_empty();
        self.method == Method::Get && self.encoding.is_none() && !conditional && !self.has_body
    }

    /// A GET with any accepted codings.
    pub(crate) fn coded(rng: &mut Rng, disk: &Disk, target: usize) -> Self {
        let mut ask = Self::plain(Some(target));
        ask.encoding = Some(rng.pick(&ENCODINGS));
        ask.word(disk, rng);
        ask
    }

    /// A random valid request for a target.
    pub(crate) fn random(rng: &mut Rng, disk: &Disk, target: usize, unrouted: bool) -> Self {
        let mut ask = Self::plain(Some(target));
        if rng.chance(45) {
            ask.word(disk, rng);
            return ask;
        }
        ask.method = match rng.below(20) {
            0..3 => Method::Head,
            3 => Method::Options,
            4 => Method::Post,
            5 => Method::Unknown,
            _ => Method::Get,
        };
        ask.astray = unrouted && rng.chance(10);
        ask.json = rng.chance(20);
        ask.encoding = rng.chance(65).then(|| rng.pick(&ENCODINGS));
        ask.closes = rng.chance(5);
        ask.http10 = rng.chance(8);
        ask.has_body = rng.chance(12);
        let places = disk.files_of(target);
        let any = |rng: &mut Rng| {
            // Any state that the file ever had, as in the conditional request of an old cache.
            let named = &disk.named[places[rng.place(places.len())]];
            let state = &named.states[rng.place(named.states.len())];
            state.file.as_ref().map(|(stat, _)| *stat)
        };
        if !places.is_empty() && rng.chance(35) {
            let size_bytes = any(rng).map_or(1_000, |stat| stat.size_bytes);
            ask.ranges = random_ranges(rng, size_bytes);
            if rng.chance(30) {
                ask.if_range = any(rng).map(|stat| match rng.below(2) {
                    0 => Condition::Match(disk.etag(&stat, rng.place(4))),
                    _ => Condition::ModifiedSince(seconds(stat.modified_ns)),
                });
            }
        }
        if !places.is_empty() && rng.chance(35) {
            ask.condition = any(rng).map(|stat| {
                let tag = match rng.below(6) {
                    0 => "*".to_owned(),
                    1 => "\"none\"".to_owned(),
                    _ => disk.etag(&stat, rng.place(4)),
                };
                let date_s = seconds(stat.modified_ns) + rng.between(0, 2) as i64 - 1;
                match rng.below(5) {
                    0 | 1 => Condition::NoneMatch(tag),
                    2 => Condition::Match(tag),
                    3 => Condition::ModifiedSince(date_s),
                    _ => Condition::UnmodifiedSince(date_s),
                }
            });
        }
        ask.word(disk, rng);
        ask
    }

    fn word(&mut self, disk: &Disk, rng: &mut Rng) {
        use std::fmt::Write as _;
        let Some(target) = self.target.map(|target| &disk.targets[target]) else { return };
        let method = match self.method {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Options => "OPTIONS",
            Method::Post => "POST",
            Method::Unknown => "BREW",
        };
        let host = match (self.astray, target.site) {
            (true, _) => "elsewhere",
            (false, 0) => "h",
            (false, _) => rng.pick(&["b.example", "B.example:80", "x.c.example"]),
        };
        let version = if self.http10 { "HTTP/1.0" } else { "HTTP/1.1" };
        let mut text = format!("{method} {} {version}\r\nHost: {host}\r\n", target.path);
        let mut field = |name: &str, value: &str| {
            let _ = write!(text, "{name}: {value}\r\n");
        };
        if self.json {
            field("Accept", "application/json");
        }
        if let Some((value, _)) = self.encoding {
            field("Accept-Encoding", value);
        }
        if !self.ranges.is_empty() {
            let number = |n: &Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
            let specs: Vec<String> = self
                .ranges
                .iter()
                .map(|(first, last)| format!("{}-{}", number(first), number(last)))
                .collect();
            field("Range", &format!("bytes={}", specs.join(", ")));
        }
        match &self.if_range {
            Some(Condition::Match(tag)) => field("If-Range", tag),
            Some(Condition::ModifiedSince(date_s)) => field("If-Range", &date(*date_s)),
            _ => {}
        }
        match &self.condition {
            Some(Condition::NoneMatch(tags)) => field("If-None-Match", tags),
            Some(Condition::Match(tags)) => field("If-Match", tags),
            Some(Condition::ModifiedSince(date_s)) => field("If-Modified-Since", &date(*date_s)),
            Some(Condition::UnmodifiedSince(date_s)) => field("If-Unmodified-Since", &date(*date_s)),
            None => {}
        }
        match (self.closes, self.http10) {
            (true, false) => field("Connection", "close"),
            (false, true) => field("Connection", "keep-alive"),
            _ => {}
        }
        let mut body = String::new();
        if self.has_body {
            if rng.chance(50) || self.http10 {
                body = "b".repeat(rng.pick(&[1, 10, 5_000]));
                field("Content-Length", &body.len().to_string());
            } else {
                field("Transfer-Encoding", "chunked");
                body = "5\r\nhello\r\n3;x=y\r\nyou\r\n0\r\n\r\n".to_owned();
            }
            if !self.http10 && rng.chance(30) {
                field("Expect", "100-continue");
            }
        }
        self.bytes = format!("{text}\r\n{body}").into_bytes();
    }

    /// The sibling that this client must be sent, as an index of [`CODINGS`], if these siblings exist. 3
    /// stands for the plain file, None if the client accepts none of them.
    pub(crate) fn coding(&self, there: [bool; 3]) -> Option<usize> {
        if there == [false; 3] {
            return Some(3);
        }
        let Some((_, takes)) = self.encoding else { return Some(3) };
        takes.iter().copied().find(|place| *place == 3 || there[*place])
    }

    /// The requested parts of a file of this size. None if all of it is requested; an empty list if the
    /// requested parts do not exist.
    pub(crate) fn parts(&self, size_bytes: u64) -> Option<Vec<(u64, u64)>> {
        // An empty file is always sent whole.
        if self.ranges.is_empty() || self.method != Method::Get || size_bytes == 0 {
            return None;
        }
        let mut parts: Vec<(u64, u64)> = Vec::new();
        for (first, last) in &self.ranges {
            let (start, end) = match (first, last) {
                (Some(first), Some(last)) => (*first, (last + 1).min(size_bytes)),
                (Some(first), None) => (*first, size_bytes),
                (None, last) => (size_bytes.saturating_sub(last.unwrap_or(0)), size_bytes),
            };
            if start < end {
                parts.push((start, end));
            }
        }
        // Parts that touch are sent as one, at the position of the earliest.
        while let Some((a, b)) = touching(&parts) {
            let gone = parts.remove(b);
            parts[a] = (parts[a].0.min(gone.0), parts[a].1.max(gone.1));
        }
        Some(parts)
    }
}

fn touching(parts: &[(u64, u64)]) -> Option<(usize, usize)> {
    let pairs = (0..parts.len()).flat_map(|a| (a + 1..parts.len()).map(move |b| (a, b)));
    pairs.into_iter().find(|(a, b)| parts[*a].0 <= parts[*b].1 && parts[*b].0 <= parts[*a].1)
}

fn random_ranges(rng: &mut Rng, size_bytes: u64) -> Vec<(Option<u64>, Option<u64>)> {
    let mut one = || {
        let first = rng.below(size_bytes + size_bytes / 8 + 2);
        match rng.below(5) {
            0 => (Some(first), None),
            1 => (None, Some(rng.below(size_bytes + 3))),
            2 => (Some(first), Some(first)),
            _ => (Some(first), Some(first + rng.below(size_bytes + 1))),
        }
    };
    let mut ranges = vec![one()];
    for _ in 0..3 {
        ranges.push(one());
    }
    let count = if rng.chance(60) { 1 } else { rng.between(2, 4) };
    ranges.truncate(count as usize);
    ranges
}

pub(crate) fn seconds(ns: i128) -> i64 {
    ns.div_euclid(1_000_000_000) as i64
}

/// A date as HTTP writes it.
pub(crate) fn date(seconds: i64) -> String {
    let since = std::time::Duration::from_secs(seconds.max(0) as u64);
    httpdate::fmt_http_date(std::time::SystemTime::UNIX_EPOCH + since)
}
