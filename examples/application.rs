//! A reference application: an HTTP/1.1 server for a route of Flash (`docs/applications.md`), and the dynamic part of the lab's
//! workloads. `flash compare --dynamic` and `flash interfere --slow-application` start it behind the servers that they start.
//!
//! `application ADDRESS FOLDER`, where ADDRESS is `127.0.0.1:3000` or `unix:/run/app.sock`, answers GET and HEAD below
//! `/dynamic/`:
//!
//! | request | answer |
//! |---|---|
//! | `/dynamic/dir00000/class0_1` | the file of FOLDER in an HTML page with an advertisement, another one each time. SPECweb99's dynamic GET does this, also without escaping the file |
//! | `/dynamic/?bytes=N` | N bytes |
//! | `/dynamic/sleep?ms=N` | one line, after N milliseconds; `ms=N` delays the other answers too |
//!
//! Each connection has a thread with a small stack, so a request that waits costs some ten KiB, and one that reads from a
//! slow disk delays no other. A client that leaves is noticed when its answer is sent.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use clap::Parser;
use flash_prompt::net;
use flash_waiting::{local, process};

/// Connections at once; further ones are closed at once.
const CONNECTIONS_MAX: usize = 8192;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;
/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 8192;
/// The longest answer, without the page around it.
const BYTES_MAX: u64 = 64 << 20;
/// The longest delay.
const DELAY_MS_MAX: u64 = 60_000;
/// How long a connection may be idle, and how long a client may read nothing.
const PATIENCE: Duration = Duration::from_secs(600);
/// Enough for the calls of a connection, in a build without optimizations too.
const STACK_BYTES: usize = 96 * 1024;
/// The bytes that are written at once.
const PIECE_BYTES: usize = 16 * 1024;
/// Advertisements to choose from, as in SPECweb99.
const ADVERTISEMENTS: u64 = 360;

/// Counts the pages.
static PAGES: AtomicU64 = AtomicU64::new(0);
/// Connections now.
static CONNECTIONS: AtomicUsize = AtomicUsize::new(0);

/// A reference application: pages with files of a folder, answers of any length, and answers after a delay.
#[derive(Debug, Parser)]
struct Application {
    /// Where to listen: 127.0.0.1:3000 (port 0 is any free port), or unix:/run/app.sock
    address: String,

    /// The folder whose files the pages contain
    folder: PathBuf,

    /// The beginning of each path; it begins and ends with a slash
    #[arg(long, default_value = "/dynamic/")]
    prefix: String,
}

/// A request that can be answered.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    is_head: bool,
    path: String,
    query: String,
    /// Whether another request may follow on the connection.
    keep_alive: bool,
}

/// The reason for an answer without content, as its status.
type Refusal = &'static str;

const BAD_REQUEST: Refusal = "400 Bad Request";
const NOT_FOUND: Refusal = "404 Not Found";

/// The content of an answer: `length_bytes` of `middle` between two texts.
struct Content {
    kind: &'static str,
    before: String,
    middle: Box<dyn Read>,
    length_bytes: u64,
    after: &'static str,
}

fn main() -> ExitCode {
    let application = Application::parse();
    let address = application.address.clone();
    match serve(application) {
        Ok(never) => match never {},
        Err(why) => {
            eprintln!("error: cannot listen on {address}: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Accepts connections for as long as the process lives.
///
/// Errors: those of listening.
fn serve(application: Application) -> io::Result<std::convert::Infallible> {
    let _ = process::raise_descriptor_limit();
    let application = Arc::new(application);
    if let Some(path) = application.address.strip_prefix("unix:") {
        let listener = UnixListener::from(local::listen_bytes(Path::new(path), 0o666)?);
        println!("listening on {}", application.address);
        listener.set_nonblocking(false)?;
        loop {
            let stream = listener.accept().and_then(|(stream, _)| {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(stream)
            });
            begin(stream, &application, UnixStream::try_clone);
        }
    }
    let address: SocketAddr = application.address.parse().map_err(io::Error::other)?;
    net::probe(address)?;
    let listener = TcpListener::from(net::listen(address, BACKLOG)?);
    println!("listening on {}", listener.local_addr()?);
    listener.set_nonblocking(false)?;
    loop {
        let stream = listener.accept().and_then(|(stream, _)| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(stream)
        });
        begin(stream, &application, TcpStream::try_clone);
    }
}

/// Gives a connection a thread. One that cannot have one is closed.
fn begin<S: Read + Write + Send + 'static>(
    stream: io::Result<S>,
    application: &Arc<Application>,
    another: fn(&S) -> io::Result<S>,
) {
    let pair = stream.and_then(|stream| Ok((another(&stream)?, stream)));
    let Ok((input, output)) = pair else {
        // Out of descriptors or memory: some connections will end.
        return thread::sleep(Duration::from_millis(10));
    };
    if CONNECTIONS.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
        CONNECTIONS.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let application = Arc::clone(application);
    let work = move || {
        // A client that leaves or stalls ends its connection, and nothing else.
        let _ = application.converse(BufReader::with_capacity(1024, input), output);
        CONNECTIONS.fetch_sub(1, Ordering::Relaxed);
    };
    if thread::Builder::new().stack_size(STACK_BYTES).spawn(work).is_err() {
        CONNECTIONS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Application {
    /// Answers the requests of a connection, one after the other.
    fn converse(&self, mut input: impl BufRead, mut output: impl Write) -> io::Result<()> {
        while let Some(request) = read_request(&mut input)? {
            let (answer, is_head, keep_alive) = match request {
                Ok(request) => (self.answer(&request), request.is_head, request.keep_alive),
                Err(refusal) => (Err(refusal), false, false),
            };
            // Made for each answer: a connection that waits has no buffer.
            let mut output = BufWriter::with_capacity(PIECE_BYTES, &mut output);
            let end = if keep_alive { "" } else { "Connection: close\r\n" };
            match answer {
                Ok(content) => content.write(&mut output, is_head, end)?,
                Err(refusal) => write!(output, "HTTP/1.1 {refusal}\r\nContent-Length: 0\r\n{end}\r\n")?,
            }
            output.flush()?;
            if !keep_alive {
                break;
            }
        }
        Ok(())
    }

    /// Makes an answer, after its delay.
    fn answer(&self, request: &Request) -> Result<Content, Refusal> {
        let path = request.path.strip_prefix(&self.prefix).ok_or(NOT_FOUND)?;
        let number = |name: &str, most: u64| {
            let given = request.query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            let number = given.map(|text| text.parse().ok().filter(|number| *number <= most));
            number.map(|number| number.ok_or(BAD_REQUEST)).transpose()
        };
        let (delay_ms, bytes) = (number("ms", DELAY_MS_MAX)?, number("bytes", BYTES_MAX)?);
        if let Some(delay_ms) = delay_ms {
            thread::sleep(Duration::from_millis(delay_ms));
        }
        let text = |before: String, length_bytes| Content {
            kind: "text/plain",
            before,
            middle: Box::new(io::repeat(b'x')),
            length_bytes,
            after: "",
        };
        match (path, bytes) {
            (_, Some(bytes)) => Ok(text(String::new(), bytes)),
            ("sleep", None) => Ok(text(format!("slept for {} ms\n", delay_ms.unwrap_or_default()), 0)),
            (_, None) => self.page(path),
        }
    }

    /// The page with a file.
    fn page(&self, path: &str) -> Result<Content, Refusal> {
        let is_plain =
            |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains(['%', '\0', '\\']);
        if !path.split('/').all(is_plain) {
            return Err(NOT_FOUND);
        }
        let place = self.folder.join(path);
        // Before it is opened: a FIFO would wait for a writer.
        let about = fs::metadata(&place).map_err(|_| NOT_FOUND)?;
        if !about.is_file() || about.len() > BYTES_MAX {
            return Err(NOT_FOUND);
        }
        let file = File::open(&place).map_err(|_| NOT_FOUND)?;
        let advertisement = PAGES.fetch_add(1, Ordering::Relaxed) % ADVERTISEMENTS;
        let before = format!(
            "<!DOCTYPE html>\n<html><head><title>Dynamic GET</title></head>\n<body>\n\
             <p>Advertisement {advertisement} of {ADVERTISEMENTS}\n<pre>\n"
        );
        let after = "\n</pre>\n</body></html>\n";
        Ok(Content { kind: "text/html", before, middle: Box::new(file), length_bytes: about.len(), after })
    }
}

impl Content {
    /// Writes the head of the answer and, unless it is for HEAD, the content.
    ///
    /// Errors: those of writing; a file that has become shorter. The connection is over then.
    fn write(self, output: &mut impl Write, is_head: bool, end: &str) -> io::Result<()> {
        let Self { kind, before, middle, length_bytes, after } = self;
        let all_bytes = before.len() as u64 + length_bytes + after.len() as u64;
        write!(
            output,
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {all_bytes}\r\nCache-Control: no-store\r\n{end}\r\n"
        )?;
        if is_head {
            return Ok(());
        }
        output.write_all(before.as_bytes())?;
        if io::copy(&mut middle.take(length_bytes), output)? != length_bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        output.write_all(after.as_bytes())
    }
}

/// Reads the head of a request; none at the end of the connection.
///
/// Errors: those of reading, also for a connection that ends within a head.
fn read_request(input: &mut impl BufRead) -> io::Result<Option<Result<Request, Refusal>>> {
    let mut head = Vec::new();
    let mut input = input.take(HEAD_BYTES_MAX as u64);
    loop {
        let begin = head.len();
        if input.read_until(b'\n', &mut head)? == 0 {
            return match head.len() {
                0 => Ok(None),
                HEAD_BYTES_MAX => Ok(Some(Err("431 Request Header Fields Too Large"))),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        if matches!(&head[begin..], b"\r\n" | b"\n") {
            return Ok(Some(parse(&head)));
        }
    }
}

/// Parses a head. A request with a body is refused, since nothing here reads one.
fn parse(head: &[u8]) -> Result<Request, Refusal> {
    let text = std::str::from_utf8(head).map_err(|_| BAD_REQUEST)?;
    let mut lines = text.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(BAD_REQUEST);
    };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return Err(BAD_REQUEST);
    }
    if !matches!(method, "GET" | "HEAD") {
        return Err("405 Method Not Allowed");
    }
    let mut keep_alive = version == "HTTP/1.1";
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        let has_body = name.eq_ignore_ascii_case("content-length") && value != "0";
        if has_body || name.eq_ignore_ascii_case("transfer-encoding") {
            return Err("413 Content Too Large");
        }
        let closes = value.split(',').any(|option| option.trim().eq_ignore_ascii_case("close"));
        keep_alive &= !(name.eq_ignore_ascii_case("connection") && closes);
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (path, query) = (path.to_owned(), query.to_owned());
    Ok(Request { is_head: method == "HEAD", path, query, keep_alive })
}
