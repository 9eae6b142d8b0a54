//! From the target to a file: decoded once, never outside the root, never hidden, never a special file.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::Duration;

use crate::harness::{Folder, Launch, Server, not_http2, only_plain, skip};

fn check(server: &Server, table: &[(&str, u16, &str)]) {
    let mut client = server.client();
    let mut wrong = Vec::new();
    for (target, status, text) in table {
        let page = client.get(target);
        if page.status != *status || (*status == 200 && page.text() != *text) {
            wrong.push(format!("{target}: {} {:?}", page.status, page.text()));
        }
        if page.says_close() {
            client = server.client();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn paths_are_decoded_once() {
    let folder = Folder::with_hello();
    folder.www("a b.txt", "space");
    folder.www("a+b.txt", "plus");
    folder.www("100%.txt", "percent");
    folder.www("%41.txt", "an escape by name");
    folder.www("q?m.txt", "question");
    folder.www("h#h.txt", "hash");
    folder.www("\u{fc}ber.txt", "umlaut");
    folder.www("back\\slash.txt", "backslash");
    folder.www("a;b=c,d.txt", "delimiters");
    folder.www("..two", "two dots");
    folder.www("sub/deep/x.txt", "deep");
    let latin = std::ffi::OsStr::from_bytes(b"latin-\xfc");
    std::fs::write(folder.served(latin), "no UTF-8").unwrap();
    let server = Launch::new(&folder).start();
    check(
        &server,
        &[
            ("/hello.txt", 200, "hello\n"),
            ("/%68ello%2Etxt", 200, "hello\n"),
            ("/hello%2etxt", 200, "hello\n"),
            ("/a%20b.txt", 200, "space"),
            ("/a+b.txt", 200, "plus"),
            ("/a%2Bb.txt", 200, "plus"),
            ("/100%25.txt", 200, "percent"),
            ("/%2541.txt", 200, "an escape by name"),
            ("/A.txt", 404, ""),
            ("/%41.txt", 404, ""),
            ("/q%3Fm.txt", 200, "question"),
            ("/q?m.txt", 404, ""),
            ("/h%23h.txt", 200, "hash"),
            ("/%C3%BCber.txt", 200, "umlaut"),
            ("/%c3%bcber.txt", 200, "umlaut"),
            ("/%FCber.txt", 404, ""),
            ("/latin-%FC", 200, "no UTF-8"),
            ("/back%5Cslash.txt", 200, "backslash"),
            ("/back\\slash.txt", 200, "backslash"),
            ("/a;b=c,d.txt", 200, "delimiters"),
            ("/sub/deep/x.txt?a=/../..", 200, "deep"),
            ("//hello.txt", 200, "hello\n"),
            ("/./hello.txt", 200, "hello\n"),
            ("/sub//deep///x.txt", 200, "deep"),
            ("/sub/./deep/x.txt", 200, "deep"),
            ("/sub/../hello.txt", 200, "hello\n"),
            ("/sub/%2e%2E/hello.txt", 200, "hello\n"),
            ("/sub/deep/../../hello.txt", 200, "hello\n"),
            ("/gone/../hello.txt", 200, "hello\n"),
            ("/HELLO.txt", 404, ""),
            ("/hello.txt/", 404, ""),
            ("/hello.txt/x", 404, ""),
            ("/hello.txt/.", 404, ""),
            ("/hello.txt%20", 404, ""),
            ("/", 404, ""),
        ],
    );
}

#[test]
fn invalid_escapes_and_escaping_paths_get_400() {
    let folder = Folder::with_hello();
    folder.www("sub/x.txt", "x");
    folder.write("secret.txt", "secret");
    let server = Launch::new(&folder).start();
    check(
        &server,
        &[
            ("/%00", 400, ""),
            ("/hello.txt%00", 400, ""),
            ("/hello.txt%00.html", 400, ""),
            ("/..%2Fsecret.txt", 400, ""),
            ("/%2e%2E%2fsecret.txt", 400, ""),
            ("/sub%2F..%2F..%2Fsecret.txt", 400, ""),
            ("/%2F..%2Fsecret.txt", 400, ""),
            ("/%", 400, ""),
            ("/%4", 400, ""),
            ("/%zz", 400, ""),
            ("/%4g", 400, ""),
            ("/%+1", 400, ""),
            ("/%%41", 400, ""),
            ("/hello.txt%", 400, ""),
            ("/..", 400, ""),
            ("/../", 400, ""),
            ("/../secret.txt", 400, ""),
            ("/../www/hello.txt", 400, ""),
            ("/%2e%2e/secret.txt", 400, ""),
            ("/.%2e/secret.txt", 400, ""),
            ("/sub/../../secret.txt", 400, ""),
            ("/sub/../../www/hello.txt", 400, ""),
            ("/./../secret.txt", 400, ""),
            ("//../secret.txt", 400, ""),
            ("/../../../../../../../../etc/passwd", 400, ""),
            // A doubly encoded name is a name that does not exist.
            ("/%252e%252e/secret.txt", 404, ""),
            ("/..%255csecret.txt", 404, ""),
            ("/%c0%ae%c0%ae/secret.txt", 404, ""),
        ],
    );
}

/// Like nginx, or as an operator sets it.
#[test]
fn an_encoded_slash_is_a_slash_or_an_error() {
    let folder = Folder::with_hello();
    folder.www("@scope/name", "package");
    folder.www("sub/.hidden", "hidden");
    folder.www(".git/config", "hidden");
    folder.www("evil.example/index.html", "index");
    let root = folder.path("www");
    let config = format!(
        "root = {root:?}\nlisten = [\"127.0.0.1:0\"]\n[[site]]\nhosts = [\"strict.test\"]\nroot = {root:?}\nencoded_slash = \"refuse\"\n"
    );
    let server = Launch::configured(&folder, &config).start();
    let table = [
        ("/@scope%2Fname", 200, "package"),
        ("/@scope%2fname", 200, "package"),
        ("/%40scope%2F%2Fname", 200, "package"),
        ("/%2Fhello.txt", 200, "hello\n"),
        ("/@scope%2F..%2Fhello.txt", 200, "hello\n"),
        ("/%2F", 404, ""),
        ("/@scope%2Fname%2F", 404, ""),
        ("/@scope%252Fname", 404, ""),
        ("/sub%2F.hidden", 404, ""),
        ("/sub%2F%2Ehidden", 404, ""),
        ("/%2F.git%2Fconfig", 404, ""),
        ("/@scope%2F%2e%2e%2F.git%2Fconfig", 404, ""),
    ];
    check(&server, &table);
    // It must not become the address of another server.
    for target in ["/%2Fevil.example", "/%2F%2Fevil.example", "//%2Fevil.example"] {
        let page = server.get(target);
        assert_eq!((page.status, page.must("Location")), (301, "/evil.example/"), "{target}");
    }
    let mut client = server.client();
    let mut strict = |target: &str| {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: strict.test\r\n\r\n"));
        client.page()
    };
    for (target, _, _) in table {
        let status = if target == "/@scope%252Fname" { 404 } else { 400 };
        assert_eq!(strict(target).status, status, "{target}");
    }
    assert_eq!(strict("/@scope/name").text(), "package");
    drop(server);
    let server = Launch::new(&folder).args(["--encoded-slash", "refuse"]).start();
    assert_eq!(server.get("/@scope%2Fname").status, 400);
}

/// A file is served under any bytes. Only heads and pages escape them.
#[test]
fn names_may_hold_any_byte_except_nul() {
    let folder = Folder::with_hello();
    let bytes = |name: &'static [u8]| std::ffi::OsStr::from_bytes(name);
    for name in [&b"\xff"[..], b"\x01a", b"a\nb", b"\r\nX:y", b"\x1b[2J", b"\x7f", b" ", b"\xc3\x28"] {
        std::fs::write(folder.served(bytes(name)), name).unwrap();
    }
    std::fs::create_dir(folder.served(bytes(b"d\r\nSet-Cookie: x=y\xff"))).unwrap();
    let server = Launch::new(&folder).start();
    let mut client = server.client();
    for (target, content) in [
        ("/%FF", &b"\xff"[..]),
        ("/%ff", b"\xff"),
        ("/%01a", b"\x01a"),
        ("/a%0Ab", b"a\nb"),
        ("/%0d%0aX:y", b"\r\nX:y"),
        ("/%1b[2J", b"\x1b[2J"),
        ("/%7F", b"\x7f"),
        ("/%20", b" "),
        ("/%C3(", b"\xc3\x28"),
    ] {
        let page = client.get(target);
        assert_eq!((page.status, &page.body[..]), (200, content), "{target}");
    }
    for target in ["/%02", "/%FE", "/a%0A", "/a%0D%0Ab"] {
        assert_eq!(client.get(target).status, 404, "{target}");
    }
    let page = client.get("/d%0D%0ASet-Cookie:%20x=y%FF");
    assert_eq!((page.status, page.must("Location")), (301, "/d%0D%0ASet-Cookie%3A%20x=y%FF/"));
    assert_eq!(page.field("Set-Cookie"), None);
    client.assert_kept();
    assert_eq!(server.stderr(), "");
}

#[test]
fn symlinks_lead_nowhere_outside_the_root() {
    let folder = Folder::with_hello();
    folder.www("sub/x.txt", "x");
    folder.write("secret/s.txt", "secret");
    let www = |name: &str| folder.served(name);
    symlink("hello.txt", www("inside")).unwrap();
    symlink("sub", www("inside-dir")).unwrap();
    symlink("../hello.txt", www("sub/up")).unwrap();
    symlink("sub/../hello.txt", www("winding")).unwrap();
    symlink("inside", www("twice")).unwrap();
    symlink("../secret/s.txt", www("outside")).unwrap();
    symlink("../secret", www("outside-dir")).unwrap();
    symlink(folder.path("secret/s.txt"), www("absolute")).unwrap();
    symlink("/etc", www("etc")).unwrap();
    symlink("../www/hello.txt", www("out-and-in")).unwrap();
    symlink("outside", www("twice-outside")).unwrap();
    symlink("loop-b", www("loop-a")).unwrap();
    symlink("loop-a", www("loop-b")).unwrap();
    symlink("nowhere", www("dangling")).unwrap();
    symlink("/proc/self/root", www("magic")).unwrap();
    symlink("/proc/self/fd/0", www("stdin")).unwrap();
    symlink("/dev/zero", www("zero")).unwrap();
    let server = Launch::new(&folder).args(["--browse"]).start();
    check(
        &server,
        &[
            ("/inside", 200, "hello\n"),
            ("/inside-dir/x.txt", 200, "x"),
            ("/inside-dir", 301, ""),
            ("/sub/up", 200, "hello\n"),
            ("/winding", 200, "hello\n"),
            ("/twice", 200, "hello\n"),
            ("/outside", 404, ""),
            ("/outside-dir", 404, ""),
            ("/outside-dir/", 404, ""),
            ("/outside-dir/s.txt", 404, ""),
            ("/absolute", 404, ""),
            ("/etc/passwd", 404, ""),
            ("/etc/", 404, ""),
            ("/out-and-in", 404, ""),
            ("/twice-outside", 404, ""),
            ("/loop-a", 404, ""),
            ("/loop-a/x", 404, ""),
            ("/dangling", 404, ""),
            ("/magic/etc/passwd", 404, ""),
            ("/stdin", 404, ""),
            ("/zero", 404, ""),
        ],
    );
    // The root itself may be reached by a symlink.
    symlink(folder.path("www"), folder.path("link")).unwrap();
    let server = Launch::bare().arg(folder.path("link")).args(["--listen", "127.0.0.1:0"]).start();
    check(&server, &[("/hello.txt", 200, "hello\n"), ("/outside", 404, "")]);
}

#[test]
fn a_root_with_slash_or_dots_is_the_same() {
    let folder = Folder::with_hello();
    folder.www("sub/x", "x");
    for root in [folder.path("www/"), folder.path("www/sub/.."), folder.path("./www/.")] {
        let server = Launch::bare().arg(root).args(["--listen", "127.0.0.1:0"]).workers(1).start();
        assert_eq!(server.get("/hello.txt").text(), "hello\n");
    }
}

#[test]
fn dotfiles_get_404() {
    let folder = Folder::with_hello();
    let hidden = [".env", ".git/config", "sub/.htpasswd", "sub/.cache/x.txt", ".well-known-too/x"];
    for name in hidden {
        folder.www(name, "hidden");
    }
    folder.www("...", "hidden");
    folder.www(".well-known/acme-challenge/token", "token");
    folder.www(".well-known/.hidden", "hidden");
    let server = Launch::new(&folder).args(["--browse"]).start();
    check(
        &server,
        &[
            ("/.env", 404, ""),
            ("/%2eenv", 404, ""),
            ("/%2Eenv", 404, ""),
            ("//.env", 404, ""),
            ("/sub/../.env", 404, ""),
            ("/.git", 404, ""),
            ("/.git/", 404, ""),
            ("/.git/config", 404, ""),
            ("/.git/../hello.txt", 200, "hello\n"),
            ("/sub/.htpasswd", 404, ""),
            ("/sub/.cache/x.txt", 404, ""),
            ("/...", 404, ""),
            ("/.well-known/acme-challenge/token", 200, "token"),
            ("/%2ewell-known/acme-challenge/token", 200, "token"),
            ("/.well-known/.hidden", 404, ""),
            ("/.well-known-too/x", 404, ""),
        ],
    );
    // An existing hidden file is indistinguishable from a missing one.
    let there = server.get("/.env");
    let not_there = server.get("/.not-there");
    assert_eq!(there.body, not_there.body);
    assert_eq!(there.fields_but_date(), not_there.fields_but_date());
}

#[test]
fn special_files_are_refused_and_never_opened() {
    let folder = Folder::with_hello();
    let fifo = folder.served("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    folder.www("dir/x", "x");
    assert!(Command::new("mkfifo").arg(folder.served("dir/index.html")).status().unwrap().success());
    let _listener = UnixListener::bind(folder.served("socket")).unwrap();
    symlink("fifo", folder.served("link")).unwrap();
    let server = Launch::new(&folder).arg("--browse").helpers(["--helpers-max", "1"]).start();
    // A writer waits for a reader: if Flash opened the FIFO for reading, it would write.
    let mut writer =
        Command::new("sh").arg("-c").arg("exec echo lost > \"$1\"").arg("sh").arg(&fifo).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    for _ in 0..3 {
        check(
            &server,
            &[
                ("/fifo", 403, ""),
                ("/link", 403, ""),
                ("/socket", 403, ""),
                ("/fifo/", 404, ""),
                ("/hello.txt", 200, "hello\n"),
            ],
        );
        // An index that is not a file is ignored.
        let page = server.get("/dir/");
        assert!([200, 403, 404].contains(&page.status), "{page:?}");
        // No helper hangs on it.
        assert_eq!(server.get("/looked-for-the-first-time").status, 404);
    }
    assert!(writer.try_wait().unwrap().is_none(), "the FIFO was opened for reading");
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert_eq!(server.stderr(), "");
}

#[test]
fn devices_are_refused() {
    let folder = Folder::with_hello();
    for (name, kind, major, minor) in [("zero", "c", "1", "5"), ("disk", "b", "7", "77")] {
        let made =
            Command::new("mknod").arg(folder.served(name)).args([kind, major, minor]).output().unwrap();
        if !made.status.success() {
            return skip("devices need root to be made");
        }
    }
    let server = Launch::new(&folder).start();
    check(&server, &[("/zero", 403, ""), ("/disk", 403, ""), ("/hello.txt", 200, "hello\n")]);
}

#[test]
fn directories_redirect_to_themselves_and_nowhere_else() {
    if not_http2("it has other forms of targets") {
        return;
    }
    let folder = Folder::with_hello();
    let names = [
        "sub",
        "a b",
        "\u{fc}",
        "x%41",
        "q?",
        "h#",
        "co:lon",
        "back\\slash",
        "quo\"te",
        "<b>",
        "a&b",
        "semi;colon",
    ];
    for name in names {
        folder.www(&format!("{name}/index.html"), "index");
    }
    folder.www("evil.example/x/index.html", "index");
    let server = Launch::new(&folder).start();
    let table = [
        ("/sub", "/sub/"),
        ("/sub?a=b&c", "/sub/?a=b&c"),
        ("/sub?", "/sub/?"),
        ("/a%20b", "/a%20b/"),
        ("/%C3%BC", "/%C3%BC/"),
        ("/x%2541", "/x%2541/"),
        ("/q%3F", "/q%3F/"),
        ("/h%23", "/h%23/"),
        ("/quo%22te", "/quo%22te/"),
        ("/%3Cb%3E", "/%3Cb%3E/"),
        ("/back%5Cslash", "/back%5Cslash/"),
        ("/back\\slash", "/back%5Cslash/"),
        ("//sub", "/sub/"),
        ("/./sub", "/sub/"),
        ("/evil.example/..//sub", "/sub/"),
        ("//evil.example", "/evil.example/"),
        ("///evil.example/x", "/evil.example/x/"),
        ("//evil.example/x", "/evil.example/x/"),
        ("/.//evil.example", "/evil.example/"),
        ("/sub/..//evil.example", "/evil.example/"),
    ];
    let mut client = server.client();
    for (target, location) in table {
        let page = client.get(target);
        assert!([301, 308].contains(&page.status), "{target}: {page:?}");
        assert_eq!(page.must("Location"), location, "{target}");
        let next = client.get(page.must("Location"));
        let is_index = location.contains("evil.example/") && !location.ends_with("/x/");
        assert_eq!(next.status, if is_index { 404 } else { 200 }, "{target} -> {location}");
    }
    for name in ["co:lon", "a&b", "semi;colon"] {
        let page = client.get(&format!("/{name}"));
        assert_eq!(page.status, 301, "{name}");
        assert_eq!(client.get(page.must("Location")).text(), "index", "{name}");
    }
    // The redirect names this server, whether by target or by `Host`.
    client.send("GET http://evil.example/sub HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert_eq!(client.page().must("Location"), "/sub/");
}

#[test]
fn a_query_cannot_break_out_of_a_redirect() {
    let folder = Folder::new();
    folder.www("sub/index.html", "index");
    let server = Launch::new(&folder).start();
    let page = server.get("/sub?%0d%0aSet-Cookie:x=y&<script>");
    let location = page.must("Location").to_owned();
    assert!(location.starts_with("/sub/?%0d%0aSet-Cookie:x=y&"), "{location}");
    assert_eq!(page.field("Set-Cookie"), None);
    assert!(!page.text().contains("<script>"), "{}", page.text());
}

#[test]
fn names_too_long_for_a_file_get_404() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let mut client = server.client();
    let longest = "n".repeat(255);
    folder.www(&longest, "long");
    assert_eq!(client.get(&format!("/{longest}")).text(), "long");
    for target in [
        format!("/{}", "n".repeat(256)),
        format!("/{}", "n".repeat(5000)),
        format!("/{}", "d/".repeat(3000)),
        format!("/{}", "%41".repeat(2000)),
        format!("/hello.txt/{}", "n".repeat(300)),
    ] {
        assert_eq!(client.get(&target).status, 404, "{target}");
    }
    client.assert_kept();
    assert_eq!(server.stderr(), "");
}

#[test]
fn unreadable_files_get_403() {
    if only_plain("the key of the certificate belongs to another user") {
        return;
    }
    let folder = Folder::with_hello();
    let private = folder.www("private.txt", "private");
    folder.www("closed/x.txt", "x");
    for (path, mode) in [(&private, "000"), (&folder.served("closed"), "700")] {
        assert!(Command::new("chmod").arg(mode).arg(path).status().unwrap().success());
    }
    if std::fs::read(&private).is_err() {
        return skip("needs root, to run the server as another user");
    }
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    if !can_run_flash(&nobody) {
        return skip("setpriv is not there, or the program is out of reach for others");
    }
    let server = Launch::new(&folder).user(None).through(nobody).start();
    check(
        &server,
        &[
            ("/private.txt", 403, ""),
            ("/closed/x.txt", 403, ""),
            ("/hello.txt", 200, "hello\n"),
            ("/gone", 404, ""),
        ],
    );
}

/// Whether `flash --version` works when started through these words.
pub(crate) fn can_run_flash(words: &[&str]) -> bool {
    let flash = env!("CARGO_BIN_EXE_flash");
    let done = Command::new(words[0]).args(&words[1..]).args([flash, "--version"]).output();
    done.is_ok_and(|output| output.status.success())
}
