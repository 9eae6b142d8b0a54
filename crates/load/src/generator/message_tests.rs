//! Runs with methods, fields and bodies of requests.

use super::wire::{Reply, h2_server, over_h2, secure, secure_server};
use super::*;
use crate::generator::message::{Message, Options};
use crate::tls::ClientOptions;
use crate::workload::catalogue::{Listed, Methods};

fn message(words: &[&str]) -> Arc<Message> {
    #[derive(clap::Parser)]
    struct CommandLine {
        #[command(flatten)]
        options: Options,
    }
    let words = std::iter::once("load").chain(words.iter().copied());
    let options = <CommandLine as clap::Parser>::try_parse_from(words).unwrap().options;
    Arc::new(Message::new(&options).unwrap())
}

/// Requests for a path of unknown length.
fn asking(target: Target, words: &[&str]) -> Setup {
    let listed = vec![Listed { path: "/dir00000/class0_1".into(), file_bytes: None }];
    let catalogue = Arc::new(Catalogue::listed(listed));
    Setup { message: message(words), catalogue, verify: false, ..setup(target) }
}

/// Asks for the first paths of a list in turn.
struct Listing {
    steady: Steady,
    paths: u32,
}

impl Demand for Listing {
    fn next_due_ns(&self) -> Option<u64> {
        self.steady.next_due_ns()
    }

    fn take(&mut self) -> Option<Arrival> {
        let arrival = self.steady.take()?;
        Some(Arrival { path_id: arrival.path_id % self.paths, ..arrival })
    }

    fn next_path(&mut self) -> Option<u32> {
        self.take().map(|arrival| arrival.path_id)
    }
}

fn ask(setup: Setup, count: u64, pace: Pace) -> StreamRan {
    let demand = Box::new(Listing { steady: steady(count, 0), paths: setup.catalogue.len() });
    let stream = Stream { setup, demand, pace };
    let phase = Phase::new(30_000 * MS, 10_000 * MS);
    run(vec![vec![stream]], &phase, &Stop::default(), None).unwrap().streams.remove(0)
}

/// Reads requests with their bodies, and answers each with what `reply` gives for its head and the length of its body.
fn serve(stream: impl Read + Write, reply: impl Fn(&str, usize) -> Vec<u8>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        assert!(body.iter().all(|byte| *byte == b'x'));
        if reader.get_mut().write_all(&reply(&head, body.len())).is_err() {
            return;
        }
    }
}

#[test]
fn methods_fields_and_bodies_reach_a_server_of_http_1() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    for (bytes, words) in [(3, &["-H", "Host: other", "-H", "X-A: b c"][..]), (3 << 20, &["-X", "PUT"])] {
        for is_secure in [false, true] {
            let shared = Arc::clone(&seen);
            let reply = move |head: &str, length: usize| {
                shared.lock().unwrap().push((head.to_owned(), length));
                // RFC 9110 section 15.2: a client skips interim answers.
                b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n".to_vec()
            };
            let body = "x".repeat(bytes);
            let words = [words, &["--body", &body]].concat();
            let setup = if is_secure {
                let (target, _) = secure_server(&[b"http/1.1"], move |stream| serve(stream, &reply));
                secure(target.clone(), &ClientOptions::default(), b"http/1.1")
            } else {
                setup(server(move |stream| serve(stream, &reply)))
            };
            let Setup { target, tls, .. } = setup;
            let ran = ask(Setup { tls, ..asking(target, &words) }, 6, closed(2, 0));
            assert_eq!((count(&ran, Outcome::Answered), ran.connections), (6, 2), "{:?}", ran.records);
            let seen = std::mem::take(&mut *seen.lock().unwrap());
            assert_eq!(seen.len(), 6);
            for (head, length) in seen {
                assert_eq!(length, bytes);
                let (method, end) = if bytes == 3 {
                    ("POST", "Host: other\r\nX-A: b c\r\nContent-Length: 3\r\n\r\n".to_owned())
                } else {
                    ("PUT", format!("\r\nContent-Length: {bytes}\r\n\r\n"))
                };
                assert!(head.starts_with(method) && head.ends_with(&end), "{head}");
            }
        }
    }
}

#[test]
fn an_answer_to_head_ends_with_its_head() {
    let target = server(|stream| {
        serve(stream, |head, _| {
            assert!(head.starts_with("HEAD "));
            b"HTTP/1.1 200 OK\r\nContent-Length: 1234567\r\n\r\n".to_vec()
        });
    });
    // The length of the file is known, and is not that of the answer.
    let setup = Setup { message: message(&["-X", "HEAD"]), verify: false, ..setup(target) };
    let ran = ask(setup, 40, closed(2, 0));
    assert_eq!((count(&ran, Outcome::Answered), ran.connections), (40, 2));
}

#[test]
fn a_request_that_may_have_been_handled_is_sent_once() {
    // Each connection answers one request as if it would stay, and ends as the next one comes.
    let target = server(|stream| {
        let told = AtomicUsize::new(0);
        answer_all(stream, move |id| (told.fetch_add(1, Ordering::SeqCst) == 0).then(|| answer(id)));
    });
    for (words, is_idempotent) in
        [(&["-X", "POST"][..], false), (&["-X", "PATCH"], false), (&["-X", "DELETE"], true)]
    {
        let ran = ask(asking(target.clone(), words), 20, closed(1, 0));
        let lost = count(&ran, Outcome::ClosedEarly) + count(&ran, Outcome::Reset);
        assert_eq!(count(&ran, Outcome::Answered) + lost, 20);
        assert_eq!((lost > 0, ran.retried > 0), (!is_idempotent, is_idempotent), "{words:?}");
    }
}

#[test]
fn an_answer_before_the_end_of_the_body_counts() {
    let target = server(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        stream.write_all(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno").unwrap();
        // Otherwise the rest of the body would reset the connection.
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = std::io::copy(&mut reader, &mut std::io::sink());
    });
    let body = "x".repeat(20 << 20);
    let ran = ask(asking(target, &["--body", &body]), 4, closed(1, 0));
    assert!(ran.records.iter().all(|record| record.status == 413), "{:?}", ran.records);
    assert_eq!((count(&ran, Outcome::Status), ran.connections), (4, 4), "no request follows an unsent body");
}

#[test]
fn bodies_keep_to_the_windows_of_http_2() {
    for bytes in [5, 1 << 20] {
        let (target, seen) = h2_server(&[(4, 1000)], |_| Reply::Answer);
        let body = "x".repeat(bytes);
        let words = ["-H", "X-A: b", "-H", "Host: other", "--body", &body];
        let Setup { protocol, connections_max, .. } = over_h2(target.clone(), 10);
        let setup = Setup { protocol, connections_max, ..asking(target, &words) };
        let ran = ask(setup, 30, closed(5, 0));
        assert_eq!((count(&ran, Outcome::Answered), ran.connections), (30, 1), "{:?}", ran.records);
        assert_eq!(seen.uploaded_bytes.load(Relaxed), 30 * bytes);
        assert_eq!(*seen.fields.lock().unwrap(), format!("POST other x-a=b content-length={bytes}"));
    }
}

#[test]
fn http_2_sends_unhandled_requests_again_whatever_their_method_is() {
    let (target, _) = h2_server(&[], |number| match number {
        3 => Reply::Reset(flash_http::h2::ErrorCode::REFUSED_STREAM),
        _ => Reply::Answer,
    });
    let Setup { protocol, connections_max, .. } = over_h2(target.clone(), 1);
    let setup = Setup { protocol, connections_max, ..asking(target, &["--body", "xx"]) };
    let ran = ask(setup, 10, closed(1, 0));
    assert_eq!((count(&ran, Outcome::Answered), ran.retried), (10, 1));
}

#[test]
fn each_path_of_a_list_has_its_method() {
    let target = server(|stream| {
        serve(stream, |head, _| {
            let is_right = head.starts_with("GET /g ") || head.starts_with("DELETE /d ");
            let status = if is_right { "200 OK" } else { "500 Wrong" };
            format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
        });
    });
    let listed = |path: &str| Listed { path: path.into(), file_bytes: None };
    let methods = Methods { names: vec!["DELETE".into()], of_paths: vec![0, 1] };
    let catalogue = Catalogue::listed(vec![listed("/g"), listed("/d")]).with_methods(methods);
    let setup = Setup { catalogue: Arc::new(catalogue), verify: false, ..setup(target) };
    let ran = ask(setup, 50, closed(2, 0));
    assert_eq!(count(&ran, Outcome::Answered), 50, "{:?}", ran.records);
}
