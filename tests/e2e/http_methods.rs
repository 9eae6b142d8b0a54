//! Methods, versions, forms of target, `Host`, `Connection`, `Expect`, and the form of errors.

use crate::harness::{Answer, Client, Folder, Launch, not_http2};

const ALLOW: &str = "GET, HEAD, OPTIONS";

#[test]
fn each_method_is_answered_or_refused() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let mut client = server.client();
    let table = [
        ("GET", "/hello.txt", 200),
        ("GET", "/gone.txt", 404),
        ("OPTIONS", "/hello.txt", 204),
        ("OPTIONS", "*", 204),
        ("POST", "/hello.txt", 405),
        ("PUT", "/hello.txt", 405),
        ("DELETE", "/hello.txt", 405),
        ("PATCH", "/hello.txt", 405),
        ("TRACE", "/hello.txt", 405),
        ("POST", "/gone.txt", 405),
        ("BREW", "/hello.txt", 501),
        ("get", "/hello.txt", 501),
        ("GETT", "/hello.txt", 501),
        ("PROPFIND", "/hello.txt", 501),
        ("M-SEARCH", "/hello.txt", 501),
    ];
    for (method, target, status) in table {
        let page = client.request(method, target, &[]);
        assert_eq!(page.status, status, "{method} {target}");
        let allow = [204, 405].contains(&status).then_some(ALLOW);
        assert_eq!(page.field("Allow"), allow, "{method} {target}");
    }
    client.assert_kept();
}

#[test]
fn connect_is_refused_in_authority_form_too() {
    if not_http2("it has other forms of targets") {
        return;
    }
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    for target in ["example.org:443", "/hello.txt"] {
        let page = server.client().request("CONNECT", target, &[]);
        assert_eq!((page.status, page.must("Allow")), (405, ALLOW), "{target}");
    }
}

#[test]
fn head_sends_the_head_of_get_without_a_body() {
    let folder = Folder::with_hello();
    folder.www("large.bin", vec![b'x'; 300_000]);
    folder.www("empty", "");
    folder.www("page.html", "<p>page");
    folder.www("page.html.gz", "squeezed");
    folder.www("dir/index.html", "<p>index");
    folder.www("list/a.txt", "x");
    let server = Launch::new(&folder).args(["--browse"]).start();
    let mut client = server.client();
    let targets = [
        "/hello.txt",
        "/large.bin",
        "/empty",
        "/page.html",
        "/dir/",
        "/dir",
        "/list/",
        "/gone.txt",
        "/%00",
        "/.hidden",
    ];
    for target in targets {
        for fields in [&[][..], &["Accept-Encoding: gzip"], &["Accept: application/json"]] {
            let whole = client.request("GET", target, fields);
            let head = client.request("HEAD", target, fields);
            assert_eq!(head.status, whole.status, "{target} {fields:?}");
            assert_eq!(head.fields_but_date(), whole.fields_but_date(), "{target} {fields:?}");
            let length = whole.body.len().to_string();
            assert_eq!(head.must("Content-Length"), length, "{target} {fields:?}");
        }
    }
    client.assert_kept();
}

/// A request, the status of its answer, and whether the connection persists.
type Case = (&'static str, u16, bool);

fn check(table: &[Case]) {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    for (request, status, kept) in table {
        let mut client = server.client();
        client.send(request);
        let answer = match request.starts_with("HEAD") {
            true => Answer::HeadOnly,
            false => Answer::Whole,
        };
        let page = client.expect(answer);
        assert_eq!(page.status, *status, "{request:?}: {}", page.text());
        assert_eq!(page.says_close(), !kept, "{request:?} {page:?}");
        if *kept {
            client.assert_kept();
        } else {
            client.assert_closed();
        }
    }
}

#[test]
fn the_version_decides_whether_a_connection_persists() {
    if not_http2("its connections always persist") {
        return;
    }
    check(&[
        ("GET /hello.txt HTTP/1.1\r\nHost: h\r\n\r\n", 200, true),
        ("GET /hello.txt HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 200, false),
        ("GET /hello.txt HTTP/1.1\r\nHost: h\r\nConnection: CLOSE\r\n\r\n", 200, false),
        ("GET /hello.txt HTTP/1.1\r\nHost: h\r\nConnection: x, close ,y\r\n\r\n", 200, false),
        ("GET /hello.txt HTTP/1.1\r\nHost: h\r\nConnection: x\r\nConnection: close\r\n\r\n", 200, false),
        ("GET /hello.txt HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\n\r\n", 200, true),
        ("GET /hello.txt HTTP/1.1\r\nHost: h\r\nConnection: close, keep-alive\r\n\r\n", 200, false),
        ("GET /gone.txt HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 404, false),
        ("HEAD /hello.txt HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 200, false),
        ("GET /hello.txt HTTP/1.9\r\nHost: h\r\n\r\n", 200, true),
        ("GET /hello.txt HTTP/1.0\r\n\r\n", 200, false),
        ("GET /hello.txt HTTP/1.0\r\nHost: h\r\n\r\n", 200, false),
        ("GET /gone.txt HTTP/1.0\r\n\r\n", 404, false),
        ("GET /hello.txt HTTP/2.0\r\nHost: h\r\n\r\n", 505, false),
        ("GET /hello.txt HTTP/0.9\r\nHost: h\r\n\r\n", 505, false),
        ("GET /hello.txt HTTP/1\r\nHost: h\r\n\r\n", 400, false),
        ("GET /hello.txt HTTP/1.10\r\nHost: h\r\n\r\n", 400, false),
        ("GET /hello.txt http/1.1\r\nHost: h\r\n\r\n", 400, false),
        ("GET /hello.txt HTTP/1.1 \r\nHost: h\r\n\r\n", 400, false),
        ("GET /hello.txt\r\n\r\n", 400, false),
        ("GET\r\n\r\n", 400, false),
    ]);
}

#[test]
fn bytes_after_the_last_request_are_not_answered() {
    if not_http2("its connections always persist") {
        return;
    }
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let next = "GET /hello.txt HTTP/1.1\r\nHost: h\r\n\r\n";
    for last in [
        "GET /hello.txt HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        "GET /gone.txt HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        "GET /hello.txt HTTP/1.0\r\n\r\n",
    ] {
        let mut client = server.client();
        client.send([last, next, next].concat());
        assert!(client.page().says_close(), "{last:?}");
        client.assert_closed();
    }
}

#[test]
fn http10_keeps_a_connection_on_request() {
    if not_http2("its connections always persist") {
        return;
    }
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let mut client = server.client();
    for target in ["/hello.txt", "/gone.txt", "/hello.txt"] {
        client.send(format!("GET {target} HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
        let page = client.page();
        let said = page.must("Connection").to_ascii_lowercase();
        assert_eq!(said, "keep-alive", "{target}");
    }
    client.assert_kept();
}

#[test]
fn the_forms_of_a_target() {
    if not_http2("it has other forms of targets") {
        return;
    }
    check(&[
        ("GET http://h/hello.txt HTTP/1.1\r\nHost: h\r\n\r\n", 200, true),
        ("GET HTTP://h:80/hello.txt?q HTTP/1.1\r\nHost: other\r\n\r\n", 200, true),
        ("GET https://h/hello.txt HTTP/1.1\r\nHost: h\r\n\r\n", 200, true),
        ("GET http://[::1]:8080/hello.txt HTTP/1.1\r\nHost: h\r\n\r\n", 200, true),
        ("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n", 404, true),
        ("GET http://h?q HTTP/1.1\r\nHost: h\r\n\r\n", 404, true),
        ("GET /hello.txt?a=b?c&%zz HTTP/1.1\r\nHost: h\r\n\r\n", 200, true),
        ("GET /hello.txt? HTTP/1.1\r\nHost: h\r\n\r\n", 200, true),
        ("GET http:///hello.txt HTTP/1.1\r\nHost: h\r\n\r\n", 400, false),
        ("GET http://u@h/hello.txt HTTP/1.1\r\nHost: h\r\n\r\n", 400, false),
        ("GET http://h:port/hello.txt HTTP/1.1\r\nHost: h\r\n\r\n", 400, false),
        ("GET ftp://h/hello.txt HTTP/1.1\r\nHost: h\r\n\r\n", 400, false),
        ("GET hello.txt HTTP/1.1\r\nHost: h\r\n\r\n", 400, false),
        ("GET * HTTP/1.1\r\nHost: h\r\n\r\n", 400, false),
        ("GET /hello.txt#part HTTP/1.1\r\nHost: h\r\n\r\n", 400, false),
        ("GET  /hello.txt HTTP/1.1\r\nHost: h\r\n\r\n", 400, false),
        ("GET /hello.txt  HTTP/1.1\r\nHost: h\r\n\r\n", 400, false),
        ("GET /hel lo.txt HTTP/1.1\r\nHost: h\r\n\r\n", 400, false),
        ("GET /hell\u{f6}.txt HTTP/1.1\r\nHost: h\r\n\r\n", 400, false),
        ("GET\t/hello.txt HTTP/1.1\r\nHost: h\r\n\r\n", 400, false),
        ("GET  HTTP/1.1\r\nHost: h\r\n\r\n", 400, false),
    ]);
}

#[test]
fn host_is_required_once_and_well_formed() {
    if not_http2("its connections always persist") {
        return;
    }
    check(&[
        ("GET /hello.txt HTTP/1.1\r\nhOST:h\r\n\r\n", 200, true),
        ("GET /hello.txt HTTP/1.1\r\nHost: h:8080\r\n\r\n", 200, true),
        ("GET /hello.txt HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", 200, true),
        ("GET /hello.txt HTTP/1.1\r\n\r\n", 400, false),
        ("GET http://h/hello.txt HTTP/1.1\r\n\r\n", 400, false),
        ("GET /hello.txt HTTP/1.1\r\nHost: \r\n\r\n", 400, false),
        ("GET /hello.txt HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400, false),
        ("GET /hello.txt HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, false),
        ("GET /hello.txt HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400, false),
        ("GET /hello.txt HTTP/1.1\r\nHost: a, b\r\n\r\n", 400, false),
        ("GET /hello.txt HTTP/1.1\r\nHost: a b\r\n\r\n", 400, false),
        ("GET /hello.txt HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, false),
        ("GET /hello.txt HTTP/1.1\r\nHost: u@a\r\n\r\n", 400, false),
        ("GET /hello.txt HTTP/1.1\r\nHost: a:1:2\r\n\r\n", 400, false),
        ("GET /hello.txt HTTP/1.1\r\nHost: [::1\r\n\r\n", 400, false),
        ("GET /hello.txt HTTP/1.1\r\nHost: a:99999\r\n\r\n", 400, false),
    ]);
}

#[test]
fn a_client_that_expects_100_gets_it() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let mut client = server.client();
    for framing in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        let fields = [framing, "Expect: 100-Continue"];
        client.send(Client::request_bytes("GET", "/hello.txt", &fields));
        let interim = client.page();
        assert_eq!(interim.status, 100, "{framing}");
        assert!(interim.body.is_empty());
        client.send(match framing {
            "Content-Length: 5" => "12345",
            _ => "5\r\n12345\r\n0\r\n\r\n",
        });
        assert_eq!(client.page().brief(), (200, "hello\n".into()), "{framing}");
    }
    client.assert_kept();
}

#[test]
fn no_100_is_sent_without_need() {
    if not_http2("its connections always persist") {
        return;
    }
    check(&[
        // The final answer is known: RFC 9110, section 10.1.1.
        (
            "POST /hello.txt HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
            405,
            false,
        ),
        (
            "BREW /hello.txt HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
            501,
            false,
        ),
        (
            "GET /hello.txt HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n",
            413,
            false,
        ),
        // There is no body to wait for.
        ("GET /hello.txt HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n", 200, true),
        (
            "GET /hello.txt HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n",
            200,
            true,
        ),
        // HTTP/1.0 has no interim answers.
        ("GET /hello.txt HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n12", 200, false),
        ("GET /hello.txt HTTP/1.1\r\nHost: h\r\nExpect: the-unexpected\r\n\r\n", 417, false),
    ]);
}

#[test]
fn a_body_already_under_way_needs_no_100() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let mut client = server.client();
    let fields = ["Content-Length: 5", "Expect: 100-continue"];
    let mut bytes = Client::request_bytes("GET", "/hello.txt", &fields);
    bytes.extend(b"12345");
    client.send(bytes);
    let mut page = client.page();
    // RFC 9110, section 10.1.1: the server may omit or send it then.
    if page.status == 100 {
        page = client.page();
    }
    assert_eq!(page.brief(), (200, "hello\n".into()));
    client.assert_kept();
}

#[test]
fn errors_have_a_short_body_in_html_or_json() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let mut client = server.client();
    // Fields, and whether the answer is JSON.
    let table: [(&[&str], bool); 10] = [
        (&[], false),
        (&["Accept: */*"], false),
        (&["Accept: text/html"], false),
        (&["Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"], false),
        (&["Accept: application/json;q=0.5, text/html"], false),
        (&["Accept: application/json;q=0"], false),
        (&["Accept: application/json"], true),
        (&["Accept: application/json, text/html;q=0.9"], true),
        (&["Accept: application/json, */*"], true),
        (&["Accept: text/html;q=0.1", "Accept: application/json"], true),
    ];
    let targets =
        [("GET", "/gone", 404), ("GET", "/%zz", 400), ("POST", "/hello.txt", 405), ("BREW", "/", 501)];
    for (accept, is_json) in table {
        for (method, target, status) in targets {
            let page = client.request(method, target, accept);
            assert_eq!(page.status, status, "{method} {target} {accept:?}");
            assert!((1..2000).contains(&page.body.len()), "short: {}", page.text());
            if is_json {
                assert_eq!(page.must("Content-Type"), "application/json", "{accept:?}");
                assert_eq!(page.json()["status"], status, "{}", page.text());
            } else {
                assert_eq!(page.must("Content-Type"), "text/html; charset=utf-8", "{accept:?}");
                let text = page.text();
                assert!(text.contains(&status.to_string()), "{text}");
            }
        }
    }
    client.assert_kept();
}

#[test]
fn an_error_that_depends_on_accept_has_vary() {
    // Any cache may keep a 404 (RFC 9110, section 15.1), and must know not to give the JSON one to a browser (section
    // 12.5.5).
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    for fields in [&[][..], &["Accept: application/json"]] {
        let page = server.get_with("/gone", fields);
        assert_eq!(page.status, 404);
        assert_eq!(page.must("Vary"), "Accept", "{fields:?}");
    }
}

#[test]
fn an_error_page_repeats_no_input() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    for target in ["/<script>x</script>", "/%3Cscript%3Ex", "/%3Cscript%3Ex/../%zz"] {
        let page = server.get(target);
        assert!([400, 404].contains(&page.status), "{target}");
        assert!(!page.text().contains("<script"), "{}", page.text());
    }
}
