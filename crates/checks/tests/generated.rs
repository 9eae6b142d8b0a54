//! Runs the checks with generated inputs: the tokens that each parser looks for, combined and partly damaged.

use std::fmt;

use flash_engine::{
    FileKind, FileRange, FileStat, Finding, JobId, ListingForm, ListingOrder, NameFacts, Opened, Outcome,
    ServerId, SiteId, Task, UpstreamId,
};
use flash_prompt::OwnedFd;
use flash_prompt::names::{FileState, NameHash};
use flash_prompt::table::{BlockKey, Extent};
use flash_worker::codec::encode;
use flash_worker::control::{InForce, Notice};
use flash_worker::gateway_protocol::{Connect, GatewayReply};
use flash_worker::store_protocol::{self, Answer, FromWorker, Learned, Request, ToWorker};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;

/// Cases per test. Their costs differ; all tests together take some seconds in an unoptimized build.
const CASES: u32 = 2_000;

/// Bytes that a failure prints as text.
#[derive(Clone)]
struct Input(Vec<u8>);

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

type Bytes = BoxedStrategy<Vec<u8>>;

fn run(check: flash_checks::Check, input: impl Strategy<Value = Vec<u8>>) {
    // Inputs worth keeping belong in fuzz/corpus, where libFuzzer finds them too.
    let config = ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
    let checked = TestRunner::new(config).run(&damaged(input).prop_map(Input), |input| {
        check(&input.0);
        Ok(())
    });
    if let Err(error) = checked {
        panic!("{error}");
    }
}

/// Leaves half of the inputs as they are; in the others some bytes are changed, inserted or cut off.
fn damaged(input: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let damage = (
        any::<prop::sample::Index>(),
        prop_oneof![any::<u8>(), select(b"\r\n\0 \t,:;\"0/%.-".to_vec())],
        0..4u8,
    );
    (input, prop_oneof![Just(Vec::new()), vec(damage, 1..3)]).prop_map(|(mut input, damages)| {
        for (index, byte, kind) in damages {
            let at = index.index(input.len() + 1);
            match kind {
                0 => input.truncate(at),
                1 => input.insert(at, byte),
                2 if at < input.len() => drop(input.remove(at)),
                _ if at < input.len() => input[at] = byte,
                _ => {}
            }
        }
        input
    })
}

fn one(texts: &'static [&'static str]) -> Bytes {
    select(texts).prop_map(|text| text.as_bytes().to_vec()).boxed()
}

fn several(piece: Bytes, most: usize) -> Bytes {
    vec(piece, 0..=most).prop_map(|pieces| pieces.concat()).boxed()
}

/// Concatenates the parts.
fn all(parts: Vec<Bytes>) -> Bytes {
    parts.prop_map(|parts| parts.concat()).boxed()
}

const TARGETS: &[&str] = &[
    "/",
    "/a",
    "/a%20b?c=d?e",
    "/?",
    "*",
    "http://a",
    "http://a:80/b?c",
    "HTTPS://[::1]?x",
    "https://",
    "http:///",
    "a:443",
    "/%",
    "//x",
    "/\"<>",
    "http://%41%/",
    "http://u@h/",
    "/0123456789012345678901234567890",
];
const FIELDS: &[&str] = &[
    "Host: a\r\n",
    "Host: b:80\r\n",
    "host:[::1]\r\n",
    "Host:\r\n",
    "Host: a:65536\r\n",
    "Content-Length: 5\r\n",
    "content-length: 0\r\n",
    "Content-Length: 5, 5\r\n",
    "Content-Length: 18446744073709551615\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "TRANSFER-ENCODING: Chunked\r\n",
    "Transfer-Encoding:\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive, x\r\n",
    "Expect: 100-continue\r\n",
    "Expect: x\r\n",
    "Expect: ,\r\n",
    "Accept: a \r\n",
    "Accept:b\r\n",
    "Accept-Encoding: br\r\n",
    "If-Match: \"a\"\r\n",
    "If-None-Match: *\r\n",
    "Range: bytes=0-\r\n",
    "If-Range: \"a\"\r\n",
    "If-Modified-Since: x\r\n",
    "If-Unmodified-Since: \t x\t\r\n",
    "Referer: r\r\n",
    "User-Agent: \u{e9}\r\n",
    "X: y\r\n",
    " folded\r\n",
    "A : b\r\n",
    ": b\r\n",
    "no colon\r\n",
    "A: b\n",
    "A: b\r",
    "\r\n",
];

#[test]
fn requests() {
    run(
        flash_checks::request,
        all(vec![
            one(&["", "", "\r\n", "\r\n\r\n", "\r\n\r\n\r\n"]),
            one(&["GET ", "GET ", "HEAD ", "OPTIONS ", "POST ", "CONNECT ", "get ", "X-Y ", "G@T ", " "]),
            one(TARGETS),
            one(&[
                " HTTP/1.1\r\n",
                " HTTP/1.1\r\n",
                " HTTP/1.0\r\n",
                " HTTP/1.7\r\n",
                " HTTP/2.0\r\n",
                " HTTP/1.1\n",
                "\r\n",
            ]),
            one(&["Host: a\r\n", "Host: a\r\n", ""]),
            several(one(FIELDS), 6),
            one(&["\r\n", "\r\n", "\r\nGET / HTTP/1.1\r\n", "\n", ""]),
        ]),
    );
}

#[test]
fn requests_at_the_limits() {
    // Sizes around the limits of 32 KiB for a head, 100 fields and 8 KiB for a target.
    let config = ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() };
    let sizes = (8_185..8_195usize, 95..104usize, 200..340usize);
    TestRunner::new(config)
        .run(&sizes, |(target, fields, value)| {
            let field = format!("X: {}\r\n", "v".repeat(value));
            let head =
                format!("GET /{} HTTP/1.1\r\nHost: a\r\n{}\r\n", "t".repeat(target), field.repeat(fields));
            flash_checks::request(head.as_bytes());
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", field.repeat(fields));
            flash_checks::request(head.as_bytes());
            Ok(())
        })
        .unwrap();
}

#[test]
fn answers() {
    let field = one(&[
        "Content-Length: 5\r\n",
        "content-length: 0\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 18446744073709551615\n",
        "Transfer-Encoding: chunked\r\n",
        "TRANSFER-ENCODING: Chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Connection: close\r\n",
        "Connection: Keep-Alive, x-y\r\n",
        "Connection: set-cookie,, Upgrade\n",
        "Upgrade: x\r\n",
        "Status: 404 Not Found\r\n",
        "status:304\n",
        "Status: 101\n",
        "Status: 2000\n",
        "Location: /a\n",
        "Set-Cookie: a\r\n",
        "X-Y:\r\n",
        "X-Accel-Redirect: /a%2fb/..?c\r\n",
        "X-Accel-Redirect: /a/%2E./..\r\n",
        "X-Accel-Redirect: @a\r\n",
        "X-Accel-Limit: 1\r\n",
        "X-Sendfile: /a%\r\n",
        "Server: a\r\n",
        "Date: a\n",
        "TE: a\r\n",
        "A: \t\u{e9} \n",
        " folded\r\n",
        "A : b\r\n",
        "no colon\n",
        "A: b\r",
    ]);
    let http = all(vec![
        one(&["http\n", "http\n", "head\n", "upgrade\n"]),
        one(&["HTTP/1.1 ", "HTTP/1.1 ", "HTTP/1.1 ", "HTTP/1.0 ", "HTTP/1.7 ", "HTTP/2.0 ", "\r\n"]),
        one(&["200", "200", "206", "204", "304", "404", "101", "103", "099", "600", "2000", ""]),
        one(&[" OK\r\n", " \r\n", "\r\n", "\n", " \t\u{e9}\r\n", "x\r\n"]),
    ]);
    let start = prop_oneof![3 => http, 2 => one(&["cgi\n", "cgi\n", "cgi head\n", "cgi upgrade\n"])].boxed();
    let end = one(&["\r\n", "\r\n", "\r\nHTTP/1.1 200 OK\r\n\r\n", "\n", ""]);
    run(flash_checks::answer, all(vec![start, several(field, 5), end]));
}

#[test]
fn bodies() {
    run(
        flash_checks::body,
        all(vec![
            several(
                one(&[
                    "1\r\nx\r\n",
                    "5\r\n0\r\n\r\n\r\n",
                    "a;b=c\r\n0123456789\r\n",
                    "00F\r\n0123456789abcde\r\n",
                    "2;\"\t\"\r\n\r\n\r\n",
                    "ffffffffffffffff\r\n",
                    "00000000000000001\r\nx\r\n",
                    "1;\r\nx",
                    ";",
                    "\r\n",
                    "3\r\nab",
                ]),
                5,
            ),
            one(&["0\r\n", "000;x\r\n", "0", ""]),
            several(one(&["A: b\r\n", "a:\t\r\n", "A\r\n", " a: b\r\n", ": b\r\n", "a:b\n"]), 3),
            one(&["\r\n", "\r\nGET", "\r", ""]),
        ]),
    );
}

#[test]
fn bodies_at_the_limits() {
    run(
        flash_checks::body,
        prop_oneof![
            (250..260usize).prop_map(|length| format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(length))),
            (8_180..8_200usize).prop_map(|length| format!("0\r\na:{}\r\n\r\n", "t".repeat(length))),
            (12..20usize).prop_map(|length| format!("{}1\r\nx\r\n0\r\n\r\n", "0".repeat(length))),
        ]
        .prop_map(String::into_bytes),
    );
}

fn small_or_any() -> BoxedStrategy<String> {
    let end = u64::MAX - 3..=u64::MAX;
    prop_oneof![
        6 => (0..60u64).prop_map(|n| n.to_string()),
        1 => Just(String::new()),
        1 => end.prop_map(|n| n.to_string()),
        1 => any::<u128>().prop_map(|n| n.to_string()),
        1 => (0..60u64).prop_map(|n| format!("{n:030}")),
    ]
    .boxed()
}

#[test]
fn ranges() {
    let file_bytes = prop_oneof![
        3 => 0..50u64,
        1 => 900..1_100u64,
        // About as long as all parts together.
        2 => 1_500..30_000u64,
        1 => u64::MAX - 3..=u64::MAX,
    ];
    // Ranges apart from each other, so that many are left after joining.
    let apart = (0..3_000u64, 0..3u64).prop_map(|(at, more)| format!("{}-{}", 5 * at, 5 * at + more));
    let forwards = (0..60u64, 0..12u64).prop_map(|(first, more)| format!("{first}-{}", first + more));
    let any = (small_or_any(), small_or_any()).prop_map(|(first, last)| format!("{first}-{last}"));
    let other = select(vec!["", "", "x", "5", "1 - 2", "--"]).prop_map(str::to_owned);
    let few = vec(prop_oneof![30 => forwards, 2 => any, 1 => other], 0..19);
    let many = prop_oneof![4 => vec(apart.clone(), 12..60), 1 => vec(apart, 190..210)];
    let set = prop_oneof![2 => few, 1 => many];
    let separator = select(vec![",", ",", ", ", ",\t,"]);
    let unit = select(vec!["bytes=", "bytes=", "bytes=", "ByTeS=", "items=", ""]);
    run(
        flash_checks::range,
        (file_bytes, unit, set, separator).prop_map(|(file_bytes, unit, set, separator)| {
            format!("{file_bytes}\n{unit}{}", set.join(separator)).into_bytes()
        }),
    );
}

#[test]
fn conditions() {
    const DATES: &[&str] = &[
        "Sun, 06 Nov 1994 08:49:36 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:38 1994",
        "x",
        "",
    ];
    const TAGS: &[&str] =
        &["\"a,b\"", "W/\"a,b\"", "\"x\"", "W/\"y\"", "*", "\"", "a,b", "w/\"a,b\"", "\"a b\"", ""];
    let list = several(all(vec![one(TAGS), one(&[",", ", ", " ,,\t", "", " "])]), 3);
    let line = prop_oneof![
        all(vec![one(&["If-Match: ", "If-None-Match: "]), list]),
        all(vec![one(&["If-Modified-Since: ", "If-Unmodified-Since: "]), one(DATES)]),
        all(vec![one(&["If-Range: "]), prop_oneof![one(DATES), one(TAGS)].boxed()]),
    ];
    let line = all(vec![one(&["\n"]), line.boxed()]);
    run(
        flash_checks::conditional,
        all(vec![
            one(&["784111777 784111777", "784111777 784111778", "-1 0", "x"]),
            one(&[" \"a,b\"\n", " \"x\"\n", "\n"]),
            one(&[
                "GET / HTTP/1.1",
                "GET / HTTP/1.1",
                "HEAD / HTTP/1.0",
                "OPTIONS * HTTP/1.1",
                "POST / HTTP/1.1",
            ]),
            several(line, 4),
        ]),
    );
}

#[test]
fn dates() {
    let moment = prop_oneof![0..=253_402_300_799i64, 0..4_102_444_800i64, any::<i64>()];
    run(flash_checks::date, moment.prop_map(|unix_s| unix_s.to_string().into_bytes()));
    let date = (
        select(vec!["Sun, ", "Thu, ", "Thursday, ", "Sun ", "Thu "]),
        select(vec![
            "01 Jan 1970 ",
            "29 Feb 2024 ",
            "29 Feb 2100 ",
            "06-Nov-94 ",
            "29-Feb-68 ",
            "Nov  6 ",
            "Nov 06 ",
        ]),
        (0..26u8, 0..62u8, 0..62u8).prop_map(|(h, m, s)| format!("{h:02}:{m:02}:{s:02}")),
        select(vec![" GMT", " 1994", " 9999", " 1969", " UTC", ""]),
    );
    run(
        flash_checks::date,
        date.prop_map(|(weekday, day, time, end)| format!("{weekday}{day}{time}{end}").into_bytes()),
    );
}

#[test]
fn paths() {
    let piece = prop_oneof![
        8 => one(&[
            "/", "/", ".", "..", "a", "%2e", "%2E%2e", "/../", "%2F", "%5c", "%00", "%", "%4", "%41", "%25", "%c3%a9",
            ".well-known", "?", "\\", ":", "\"<", "%+1",
        ]),
        1 => vec(any::<u8>(), 0..3).boxed(),
    ];
    run(flash_checks::path, all(vec![one(&["/", "/", "/", "//", ""]), several(piece.boxed(), 14)]));
}

#[test]
fn preferences() {
    let name = one(&[
        "gzip",
        "br",
        "zstd",
        "x-gzip",
        "identity",
        "*",
        "BR",
        "deflate",
        "application/json",
        "text/html",
        "text/*",
        "application/*",
        "*/*",
        "",
    ]);
    let parameter = one(&[
        "",
        "",
        ";q=0",
        ";q=1",
        ";q=0.5",
        " ; Q=0.501",
        ";q=0.001",
        ";q=1.000",
        ";q=1.001",
        ";q=.5",
        ";q=",
        ";v=1",
        ";q =0",
        ";q=0.1234",
    ]);
    let element = all(vec![name, parameter.clone(), parameter, one(&[",", ", ", "", " ,\t,"])]);
    run(
        flash_checks::negotiate,
        all(vec![one(&["\n", "br\n", "gzip\n", "br zstd gzip\n", "zstd gzip\n"]), several(element, 5)]),
    );
}

fn stat() -> impl Strategy<Value = FileStat> {
    let kind = select(vec![FileKind::Regular, FileKind::Directory, FileKind::Special]);
    (kind, any::<[u64; 3]>(), any::<[i128; 2]>()).prop_map(
        |(kind, [device, inode, size_bytes], [modified_ns, changed_ns])| FileStat {
            kind,
            device,
            inode,
            size_bytes,
            modified_ns,
            changed_ns,
        },
    )
}

/// A message as one end encodes it, with the descriptors that it needs.
fn message() -> Bytes {
    let id = || any::<u64>().prop_map(JobId::from_u64);
    let path = || vec(any::<u8>(), 0..40);
    let file = || std::sync::Arc::new(std::fs::File::open("/dev/null").unwrap().into());
    let task = (id(), 0..11u8, any::<u16>(), path(), any::<bool>(), any::<u64>(), 0..600_000u64).prop_map(
        move |(id, kind, site, path, json, offset, length_bytes)| {
            let task: Task<OwnedFd> = match kind {
                0 => Task::Find { site: SiteId(site), path: path.into() },
                1 => {
                    let order = ListingOrder::ALL[offset as usize % ListingOrder::ALL.len()];
                    let (path, form) = (path.into(), ListingForm { json, order, coding: None });
                    Task::List { site: SiteId(site), path, form, with_readme: !json }
                }
                2 => Task::Fill { file: file(), block: offset, name: None },
                3 => Task::Warm { site: SiteId(site), path: path.into(), block: offset },
                4 => Task::Load { file: file(), offset, length_bytes },
                5 => Task::Touch { root: file(), path: path.into() },
                6 => Task::WarmFile { path: path.into(), part: FileRange::From { offset, length_bytes } },
                7 => Task::WarmFile { path: path.into(), part: FileRange::Last { length_bytes } },
                8 => Task::Write { file: file(), offset, bytes: path.into() },
                9 => Task::GiveBack { file: file(), offset, length_bytes: (!json).then_some(length_bytes) },
                _ => Task::Read { file: file(), offset, length_bytes },
            };
            let needs_descriptor = task.file().is_some();
            (encode(&(id, &task)), usize::from(needs_descriptor))
        },
    );
    let opened = || {
        (stat(), any::<bool>()).prop_map(|(stat, is_open)| Opened {
            stat,
            file: is_open.then(|| std::fs::File::open("/dev/null").unwrap().into()),
        })
    };
    let outcome = (id(), 0..10u8, opened(), vec(prop::option::of(opened()), 3), path(), any::<i32>())
        .prop_map(|(id, kind, plain, coded, path, number)| {
            let coded: [_; 3] = coded.try_into().unwrap();
            let outcome: Outcome<OwnedFd> = match (kind, plain) {
                (0, Opened { file: Some(file), stat }) => {
                    Outcome::Listed(file, stat, number.unsigned_abs().into())
                }
                (0 | 1, plain) => Outcome::Found(Finding::File { plain, coded, path }),
                (2, _) if number < 0 => Outcome::Found(Finding::Script),
                (2, _) => Outcome::Found(Finding::Redirect),
                (3, _) => Outcome::Found(Finding::Missing),
                (4, _) => Outcome::Loaded,
                (5, Opened { stat, .. }) => Outcome::Bytes(path, stat),
                (6, _) => Outcome::Failed(number),
                (7, _) => Outcome::Exhausted,
                (8, _) if number < 0 => Outcome::Unsupported,
                (8, _) => Outcome::Written,
                _ => Outcome::Lost,
            };
            (encode(&(id, &outcome)), outcome.files().count())
        });
    prop_oneof![task, outcome]
        .prop_map(|(bytes, needed)| [&[needed as u8], bytes.as_slice()].concat())
        .boxed()
}

#[test]
fn messages_to_and_from_helpers() {
    run(flash_checks::protocol, message());
}

#[test]
fn messages_to_and_from_the_supervisor() {
    let raw = (0..26u8, vec(any::<u8>(), 0..12)).prop_map(|(tag, rest)| [&[tag], rest.as_slice()].concat());
    let text = prop_oneof!["\\PC{0,20}", "[aä]{4090,4100}"];
    let notice = (0..8u8, any::<u64>(), text, any::<bool>()).prop_map(|(kind, number, text, seccomp)| {
        encode(&match kind {
            0 => Notice::Ready(InForce { landlock: seccomp.then_some(number as u8), seccomp }),
            1 => Notice::WantHelper,
            2 => Notice::EndHelper(number),
            3 => Notice::Report(text),
            4 => Notice::Stats(number, text),
            5 => Notice::Stalls(number, text),
            6 => Notice::WantRotation,
            _ => Notice::Pong,
        })
    });
    run(flash_checks::control, prop_oneof![raw, notice]);
}

#[test]
fn messages_of_the_store() {
    let number = || prop_oneof![Just(0u32), Just(1), any::<u32>()];
    let key = (any::<[u64; 3]>(), any::<[i64; 2]>(), number()).prop_map(
        |([device, inode, size_bytes], [modified_ns, changed_ns], block)| BlockKey {
            file: FileState { device, inode, size_bytes, modified_ns, changed_ns },
            block,
        },
    );
    let text = || vec(any::<u8>(), 0..40);
    let named = (any::<[u64; 3]>(), any::<[i64; 2]>(), text(), text()).prop_map(
        |([device, inode, size_bytes], [modified_ns, changed_ns], root, path)| Request::Named {
            file: FileState { device, inode, size_bytes, modified_ns, changed_ns },
            root,
            path,
        },
    );
    let learned =
        (any::<[u64; 2]>(), any::<u64>(), any::<bool>()).prop_map(|([site, path], found_ms, is_watched)| {
            let name = NameHash([site, path]);
            let subtree = is_watched.then_some(NameHash([path, site]));
            Learned { name, facts: NameFacts::Missing, found_ms, subtree }
        });
    let request = prop_oneof![
        named,
        learned.clone().prop_map(Request::Learned),
        learned.prop_map(|learned| Request::Filled(Some(learned))),
        (key, number()).prop_map(|(key, length)| Request::Want(key, length)),
        select(vec![Request::Filled(None), Request::Failed, Request::NoMemory, Request::GiveUp]),
    ];
    let answer = prop_oneof![
        (any::<u64>(), number()).prop_map(|(offset, length)| Answer::Fill(Extent { offset, length })),
        select(vec![Answer::There, Answer::Joined, Answer::Refused, Answer::GivenUp]),
    ];
    let notice = (number(), number()).prop_map(|(slot, uses)| match uses {
        0 => store_protocol::Notice::Released(slot),
        uses => store_protocol::Notice::Used(slot, uses),
    });
    let from_worker = vec(notice, 0..20).prop_map(FromWorker::Notices);
    let to_worker = prop_oneof![Just(ToWorker::Registered), vec(number(), 0..20).prop_map(ToWorker::Leaving)];
    let message = prop_oneof![
        request.prop_map(|message| (0u8, encode(&message))),
        answer.prop_map(|message| (1, encode(&message))),
        from_worker.prop_map(|message| (2, encode(&message))),
        to_worker.prop_map(|message| (3, encode(&message))),
    ];
    run(flash_checks::store, message.prop_map(|(kind, bytes)| [&[kind], bytes.as_slice()].concat()));
}

#[test]
fn messages_of_the_gateway() {
    let server = || {
        any::<[u16; 2]>().prop_map(|[upstream, server]| ServerId { upstream: UpstreamId(upstream), server })
    };
    let message = prop_oneof![
        (any::<u64>(), server()).prop_map(|(link, server)| encode(&Connect { link, server })),
        (any::<u64>(), any::<i32>())
            .prop_map(|(link, errno)| encode(&GatewayReply::NotConnected { link, errno })),
        any::<u64>().prop_map(|link| encode(&GatewayReply::Connected { link })),
        (server(), any::<bool>()).prop_map(|(server, is_up)| encode(&GatewayReply::Probed { server, is_up })),
    ];
    run(flash_checks::gateway, message);
}

#[test]
fn events_of_inotify() {
    let mask = prop_oneof![8 => (0..16u32).prop_map(|bit| 1 << bit), 2 => any::<u32>()];
    let name =
        select(vec![&b""[..], b"a\0\0\0", b"index.html\0\0\0\0\0\0", b"\xff\xfe\0", b"abcd", b"\0\0\0\0"]);
    let event = (any::<i32>(), mask, any::<bool>(), name).prop_map(|(watch, mask, is_directory, name)| {
        let mask = mask | u32::from(is_directory) << 30;
        let words = [watch as u32, mask, 0, name.len() as u32].map(u32::to_ne_bytes);
        [&words.concat()[..], name].concat()
    });
    run(flash_checks::inotify, vec(event, 0..8).prop_map(|events| events.concat()));
}

#[test]
fn events_of_fanotify() {
    let mask = prop_oneof![8 => (0..16u32).prop_map(|bit| 1 << bit), 2 => any::<u32>()];
    let name = select(vec![&b"\0"[..], b".\0", b"a\0\0\0", b"index.html\0", b"\xff\xfe\0", b"abcd"]);
    let record = (0..4u8, any::<[u8; 8]>(), vec(any::<u8>(), 0..20), any::<u32>(), name);
    let record = record.prop_map(|(kind, file_system, handle, handle_kind, name)| {
        let length = (20 + handle.len() + name.len()) as u16;
        let numbers = [handle.len() as u32, handle_kind].map(u32::to_ne_bytes).concat();
        [&[kind, 0][..], &length.to_ne_bytes(), &file_system, &numbers, &handle, name].concat()
    });
    let event = (mask, any::<bool>(), vec(record, 0..3)).prop_map(|(mask, is_directory, records)| {
        let records = records.concat();
        let mask = u64::from(mask | u32::from(is_directory) << 30);
        let head = (24 + records.len() as u32).to_ne_bytes();
        [&head[..], &[3, 0], &24u16.to_ne_bytes(), &mask.to_ne_bytes(), &[0; 8], &records].concat()
    });
    run(flash_checks::fanotify, vec(event, 0..8).prop_map(|events| events.concat()));
}

#[test]
fn questions_to_the_warm_endpoint() {
    let target =
        one(&["/", "/a", "/a%20b", "/../x", "/%2e%2E/", "/%", "/a?root=/srv", "/a?root=%2Fsrv%2F..", "/a?b"]);
    let field = one(&[
        "Host: a\r\n",
        "Host: [unix:/a]\r\n",
        "Range: bytes=0-5\r\n",
        "Range: bytes=-5\r\n",
        "Content-Length: 1\r\n",
        "Connection: close\r\n",
    ]);
    let method = one(&["GET ", "GET ", "HEAD ", "POST "]);
    let version = one(&[" HTTP/1.1\r\nHost: a\r\n", " HTTP/1.1\r\n", " HTTP/1.0\r\n"]);
    let request = all(vec![method, target, version, several(field, 2), one(&["\r\n"])]);
    let pair = select(vec![
        ("SCRIPT_FILENAME", "/a b"),
        ("SCRIPT_FILENAME", "/../b/"),
        ("DOCUMENT_ROOT", "/srv"),
        ("REQUEST_URI", "/%41?b"),
        ("HTTP_RANGE", "bytes=5-"),
        ("REQUEST_METHOD", "HEAD"),
    ]);
    let params = vec(pair, 0..4).prop_map(|pairs| {
        let pair = |(name, value): (&str, &str)| {
            [&[name.len() as u8, value.len() as u8], name.as_bytes(), value.as_bytes()].concat()
        };
        pairs.into_iter().flat_map(pair).collect::<Vec<u8>>()
    });
    let content = prop_oneof![
        4 => params,
        2 => select(vec![vec![0, 2, 0, 0, 0, 0, 0, 0], vec![0, 2, 1, 0, 0, 0, 0, 0], vec![0, 3, 1, 0, 0, 0, 0, 0]]),
        2 => Just(Vec::new()),
    ];
    let record = (select(vec![1u8, 1, 2, 4, 4, 4, 5, 9, 11]), 0..3u8, content, 0..3u8).prop_map(
        |(kind, id, content, padding)| {
            let head = [1, kind, 0, id, 0, content.len() as u8, padding, 0];
            [&head[..], &content, &vec![0; padding.into()]].concat()
        },
    );
    let division = || vec(any::<u8>(), 1);
    let http = all(vec![division().prop_map(|byte| vec![byte[0] & !1]).boxed(), several(request, 3)]);
    let fastcgi = all(vec![
        division().prop_map(|byte| vec![byte[0] | 1]).boxed(),
        vec(record, 0..8).prop_map(|records| records.concat()).boxed(),
    ]);
    run(flash_checks::warm, prop_oneof![http, fastcgi]);
}

#[test]
fn responses_of_fastcgi_applications() {
    let content = prop_oneof![4 => vec(any::<u8>(), 0..12), 2 => Just(vec![0; 8]), 1 => Just(Vec::new())];
    let kind = select(vec![(6u8, 1u8), (6, 1), (7, 1), (7, 1), (11, 0), (10, 0), (6, 2), (5, 1)]);
    let record = (kind, content, 0..3u8).prop_map(|((kind, id), content, padding)| {
        let head = [1, kind, 0, id, 0, content.len() as u8, padding, 0];
        [&head[..], &content, &vec![0; padding.into()]].concat()
    });
    let records = vec(record, 0..6).prop_map(|records| records.concat()).boxed();
    let end = one(&[
        "",
        "\x01\x03\0\x01\0\x08\0\0\0\0\0\x07\0\0\0\0",
        "\x01\x03\0\x01\0\x08\x01\0\0\0\0\0\x02\0\0\0P",
        "\x01\x03\0\x01\0\x07\0\0\0\0\0\0\0\0\0",
    ]);
    run(flash_checks::fastcgi_response, all(vec![records, end]));
}

#[test]
fn hot_lists() {
    let field = prop_oneof![
        8 => one(&["0", "7", "4294967295", "/srv/a", "/srv/b", "/a", "/a%09b", "/%25", "/%00", "%", "+1", ""]),
        1 => vec(any::<u8>(), 0..6).boxed(),
    ]
    .boxed();
    let good = all(vec![one(&["0", "3"]), one(&["\t/srv/a\t/", "\t/srv/b\t/", "\t\t/"]), field.clone()]);
    let other = all(vec![field.clone(), one(&["\t"]), field.clone(), one(&["\t", ""]), field]);
    let line = all(vec![prop_oneof![3 => good, 1 => other].boxed(), one(&["\n", "\n", "\r\n", ""])]);
    let header =
        one(&["flash hot list 1\n", "flash hot list 1\n", "flash hot list 1", "flash hot list 2\n", ""]);
    run(flash_checks::hot_list, all(vec![header, several(line, 12)]));
}

#[test]
fn config_files() {
    let key = flash_server::config::options::OPTIONS.iter().map(|spec| spec.key).collect::<Vec<_>>();
    let key = select(key).prop_map(|key| key.as_bytes().to_vec()).boxed();
    let value = one(&[
        "1",
        "0",
        "256",
        "1_000",
        "0xff",
        "-1",
        "99999999999999999999",
        "1.5",
        "true",
        "\"true\"",
        "\"1s\"",
        "\"250ms\"",
        "\"64KiB\"",
        "\".\"",
        "\"gone\"",
        "\"json\"",
        "\"-\"",
        "[]",
        "[\"127.0.0.1:0\", \"[::1]:80\"]",
        "[\":80\"]",
        "[\"index.html\"]",
        "[\"a\", \"a\"]",
        "\"\\u001b[2J\"",
        "{ a = 1 }",
        "'''1s'''",
        "1979-05-27",
        "\"\"",
    ]);
    let any = all(vec![key, one(&[" = ", "=", " "]), value, one(&["\n", "\r\n", " # \u{fc}\n"])]);
    let good = one(&[
        "root = \".\"\n",
        "index = [\"a.html\", \"\u{fc}\"]\n",
        "browse = true\n",
        "workers = 0x10\n",
        "freshness = '250ms'\n",
        "listen = [\"127.0.0.1:0\", \"[::1]:80\"]\n",
        "cache_memory = 1_000\n",
        "least_rate = \"1MiB\"\n",
        "log_file = \"-\"\n",
        "log_format = \"json\"\n",
        "log_file = \"a\\tb\"\n",
        "types = { a = \"b/c; d=\\\"\" }\n",
    ]);
    let line = prop_oneof![4 => good, 1 => any].boxed();
    let site = one(&[
        "[[site]]\nhosts = [\"a.org\", \"*.a.org\"]\nroot = \".\"\n",
        "[[site]]\nroot = \"/\"\nhosts = [\"[::0:1]\"]\n",
        "[types]\nmjs = \"text/javascript\"\n",
        "[[site]]\n",
        "hosts = [\"a.org\", \"*.a.org\"]\n",
        "hosts = [\"A.org.\"]\n",
        "hosts = [\"[::0:1]\", \"b:80\"]\n",
        "root = \".\"\n",
        "root = \"/\"\n",
        "index = []\n",
        "[types]\n",
        "mjs = \"text/javascript\"\n",
        "MJS = \"a/b\"\n",
        "\".x\" = \"a/b\"\n",
        "[site]\n",
        "[log]\nformat = 1\n",
        "\"\\u001b\" = 1\n",
    ]);
    run(flash_checks::config, all(vec![several(line, 4), several(site, 4)]));
}

fn frame() -> Bytes {
    let kind = prop_oneof![0..10u8, Just(16), any::<u8>()];
    let flags = select(vec![0, 1, 4, 5, 8, 9, 0x20, 0x2d, 0xff_u8]);
    let stream = select(vec![0, 1, 1, 3, 0x8000_0001_u32]);
    let payload = prop_oneof![
        vec(any::<u8>(), 0..20),
        select(vec![vec![0; 4], vec![0; 5], vec![0; 6], vec![0; 8], vec![1; 4], b"\0\0\0\x01\x10".to_vec()]),
    ];
    (kind, flags, stream, payload)
        .prop_map(|(kind, flags, stream, payload)| {
            let head = [&[0, 0, payload.len() as u8, kind, flags][..], &stream.to_be_bytes()].concat();
            [head, payload].concat()
        })
        .boxed()
}

#[test]
fn frames() {
    run(flash_checks::frames, several(frame(), 6));
}

#[test]
fn tls() {
    // The first flight has some 1,400 bytes, the second some 100.
    let place = prop_oneof![0..64_u16, 0..1_800_u16, Just(1_500)];
    let change = (place, prop_oneof![Just(0), any::<u8>()])
        .prop_map(|(at, add)| [&at.to_be_bytes()[..], &[add]].concat());
    // Old and new clients; handshakes in the loop, elsewhere, and helped with.
    let kind = (select(vec![0_u8, 1, 4, 5, 12, 13]), 0..8_u8).prop_map(|(kind, pieces)| kind | pieces << 5);
    let changed =
        (kind, vec(change, 0..3)).prop_map(|(kind, changes)| [&[kind][..], &changes.concat()].concat());
    let raw = (select(vec![0_u8, 4]), vec(any::<u8>(), 0..60))
        .prop_map(|(away, bytes)| [&[2 | away, 22, 3, 1, 0, 40][..], &bytes].concat());
    run(flash_checks::tls, prop_oneof![4 => changed, 1 => raw]);
}

#[test]
fn header_blocks() {
    let string = prop_oneof![
        vec(any::<u8>(), 0..8).prop_map(|text| [&[text.len() as u8][..], &text].concat()),
        vec(select(b"\x1f\x07\xff\x8c\xf1\xe3".to_vec()), 0..6).prop_map(|text| [
            &[text.len() as u8 | 0x80][..],
            &text
        ]
        .concat()),
        Just([&[0x7f, 0x80, 0x04][..], &[b'v'; 127 + 512]].concat()),
    ];
    let piece = prop_oneof![
        (0x80..0x90u8).prop_map(|index| vec![index]),
        (0xbc..0xc8u8).prop_map(|index| vec![index]),
        (select(vec![0, 0x10, 0x40, 0x0f, 0x41]), string.clone(), string.clone()).prop_map(
            |(first, name, value)| match first {
                0 | 0x10 | 0x40 => [vec![first], name, value].concat(),
                0x0f => [vec![first, 0x10], value].concat(),
                other => [vec![other], value].concat(),
            }
        ),
        select(vec![vec![0x20], vec![0x3f, 0xe1, 0x1f], vec![0x3f, 0x45], vec![0x3f, 0xe2, 0x1f]]),
    ];
    let block = vec(piece, 0..8).prop_map(|pieces| {
        let block = pieces.concat();
        [&(block.len() as u16).to_be_bytes()[..], &block].concat()
    });
    run(flash_checks::hpack, several(block.boxed(), 5));
}

#[test]
fn requests_of_http_2() {
    let part = one(&[
        "\x1f:method=POST",
        "\x1f:path=*",
        "\x1f:path=/%2f..//x?y#z",
        "\x1f:scheme=https",
        "\x1f:authority=b",
        "\x1f:authority=[::1]:443",
        "\x1f:protocol=websocket",
        "\x1fhost=a",
        "\x1fhost=c",
        "\x1fcontent-length=5",
        "\x1fcontent-length=0",
        "\x1ftransfer-encoding=chunked",
        "\x1fconnection=x",
        "\x1fte=trailers",
        "\x1fcookie=a=b",
        "\x1fx=a\r\nb: c",
        "\x1fx\r\ny=z",
        "\x1fUpper=x",
        "\x1fuser-agent=\u{e9}",
        "\x1fexpect=100-continue",
        "\x1fmax-forwards=2",
        "\x1fx-request-id=abc",
        "\x1f=x",
        "\x1fa b=x",
        "\x1fa:b=x",
    ]);
    let usual = [
        one(&["\x1f:method=GET", "\x1f:method=GET", "\x1f:method=OPTIONS", "\x1f:method=CONNECT", ""]),
        one(&["\x1f:scheme=http", "\x1f:scheme=http", ""]),
        one(&["\x1f:path=/", "\x1f:path=/a?b", ""]),
        one(&["\x1f:authority=a", "\x1f:authority=a:80", ""]),
    ];
    let parts = [one(&["e", "e", "x"])].into_iter().chain(usual).chain([several(part, 5)]).collect();
    run(flash_checks::h2_request, all(parts));
}
