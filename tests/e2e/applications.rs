//! Real applications behind routes: PHP by FastCGI, and Node by HTTP over a Unix socket.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::harness::documented::{block, code};
use crate::harness::upstream::{Peer, Program, Upstream, framed, ok, post_head, proxy, start};
use crate::harness::{
    Folder, Server, is_root, not_http2, of_a_program, only_plain, pattern, skip, wait_until,
};

/// PHP-FPM as Debian and others install it: with its version in its name.
fn php_fpm() -> Option<PathBuf> {
    let found = ["/usr/sbin", "/usr/local/sbin", "/usr/bin"].into_iter().flat_map(fs::read_dir).flatten();
    let programs = found.flatten().map(|entry| entry.path());
    let mut programs: Vec<_> = programs
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("php-fpm")))
        .collect();
    programs.sort();
    programs.pop()
}

/// A server that passes `.php` to PHP-FPM, which runs as the user of this test. None if it is not installed.
fn with_php(folder: &Folder) -> Option<(Program, Server)> {
    with_php_and(folder, |socket| {
        format!("index = [\"index.php\"]\n[[route]]\nextension = \"php\"\nfastcgi = \"{socket}\"\n")
    })
}

/// PHP-FPM, and a server with the settings for its socket.
fn with_php_and(folder: &Folder, settings: impl FnOnce(&str) -> String) -> Option<(Program, Server)> {
    let Some(program) = php_fpm() else {
        skip("needs php-fpm");
        return None;
    };
    let socket = folder.path("fpm.sock");
    let user = if is_root() { "user = root\ngroup = root\n" } else { "" };
    let pool = format!(
        "[global]\ndaemonize = no\nerror_log = {}\n[www]\n{user}listen = {}\nlisten.mode = 0666\npm = static\n\
         pm.max_children = 3\nsecurity.limit_extensions =\n",
        folder.path("fpm-errors.log").display(),
        socket.display()
    );
    let mut command = Command::new(program);
    // Without the machine's php.ini. Debian's has no field for the version either.
    command.args(["-n", "-d", "expose_php=0", "-F", "-y"]).arg(folder.write("fpm.conf", pool));
    if is_root() {
        command.arg("-R");
    }
    let php = Program::start(command, &socket, &folder.path("fpm.log"));
    let server = start(folder, &settings(&format!("unix:{}", socket.display())));
    Some((php, server))
}

/// Runs the command of a block of `docs/applications.md` at this server, and compares the output with that of the block.
#[track_caller]
pub(crate) fn assert_as_documented(server: &Server, block: &str) {
    let (command, expected) = block.strip_prefix("$ ").unwrap().split_once('\n').unwrap();
    let command = command.replace("127.0.0.1:8080", &server.addresses[0].to_string());
    let output = Command::new("sh").args(["-c", &command]).env("no_proxy", "*").output().unwrap();
    if output.status.code() == Some(127) {
        return skip("needs curl");
    }
    let undated = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with("Date: "));
        lines.map(|line| line.trim_end().to_owned()).collect()
    };
    assert_eq!(undated(&String::from_utf8_lossy(&output.stdout)), undated(expected), "{command}");
}

#[test]
fn php_answers_as_documented() {
    if only_plain("the documents show curl with plain HTTP") {
        return;
    }
    let folder = Folder::with_hello();
    folder.www("hello.php", code("docs/applications.md", "php"));
    let Some((_php, server)) = with_php(&folder) else { return };
    assert_as_documented(&server, &block("docs/applications.md", "php_answers_as_documented"));
}

#[test]
fn node_answers_as_documented() {
    if only_plain("the documents show curl with plain HTTP") {
        return;
    }
    let folder = Folder::with_hello();
    let socket = folder.path("node.sock");
    let listen = code("docs/applications.md", "js").replace("3000, \"127.0.0.1\"", &format!("{socket:?}"));
    let Some((_node, server)) = with_node(&folder, &listen) else { return };
    assert_as_documented(&server, &block("docs/applications.md", "node_answers_as_documented"));
}

#[test]
fn php_answers_by_fastcgi() {
    let folder = Folder::with_hello();
    folder.www("hello.php", "<?php echo \"Hello from PHP, \", $_GET[\"name\"] ?? \"you\", \"\\n\";");
    folder.www("length.php", "<?php header(\"Content-Length: 5\"); http_response_code(201); echo \"12345\";");
    folder.www("index.php", "<?php echo \"index of \", $_SERVER[\"SCRIPT_NAME\"];");
    folder.www("d/index.php", "<?php echo \"index of \", $_SERVER[\"SCRIPT_NAME\"];");
    let info = "<?php foreach ([\"SCRIPT_NAME\", \"PATH_INFO\", \"QUERY_STRING\", \"REQUEST_URI\", \"REMOTE_ADDR\", \
                \"HTTP_X_TEST\", \"HTTP_HOST\"] as $name) echo $name, \"=\", $_SERVER[$name] ?? \"unset\", \"\\n\";";
    folder.www("info.php", info);
    folder.www("old/info.php.bak", "a copy");
    let Some((_php, server)) = with_php(&folder) else { return };
    let mut client = Peer::client(&server);
    let hello = client.get("/hello.php");
    assert_eq!(hello.brief(), (200, "Hello from PHP, you\n".into()));
    assert!(hello.field("Content-Type").unwrap().starts_with("text/html"), "{hello:?}");
    assert_eq!(client.get("/hello.php?name=A%26da").text(), "Hello from PHP, A&da\n");
    let length = client.get("/length.php");
    assert_eq!((length.brief(), length.is_chunked()), ((201, "12345".into()), false));
    // The client's connection continues after each answer.
    assert_eq!(client.get("/").brief(), (200, "index of /index.php".into()));
    assert_eq!(client.get("/d/?x").brief(), (200, "index of /d/index.php".into()));
    let info = client.get_with("/info.php/a%20b/c?q=1&r", &["X-Test: 7"]);
    let expected = "SCRIPT_NAME=/info.php\nPATH_INFO=/a b/c\nQUERY_STRING=q=1&r\n\
                    REQUEST_URI=/info.php/a%20b/c?q=1&r\nREMOTE_ADDR=127.0.0.1\nHTTP_X_TEST=7\nHTTP_HOST=e2e.test\n";
    assert_eq!(info.brief(), (200, expected.into()));
    assert!(client.get("/info.php").text().contains("\nPATH_INFO=unset\n"));
    // The folder without an index script, and files beside scripts.
    assert_eq!(client.get("/hello.txt").brief(), (200, "hello\n".into()));
    assert_eq!(client.get("/old/info.php.bak").text(), "a copy");
    assert_eq!(client.get("/missing.php").status(), 404);
    assert_eq!(server.stderr(), "");
}

#[test]
fn a_script_of_php_answers_for_missing_files() {
    const PAGE: &str = "<?php echo $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['REQUEST_URI'], \
                        ' ', $_GET['p'] ?? '', ' ', file_get_contents('php://input');";
    let folder = Folder::with_hello();
    for path in ["index.php", "wp-admin/index.php", "wp-login.php"] {
        folder.www(path, PAGE);
    }
    folder.www("style.css", "body {}");
    folder.www(".htaccess", "secret");
    let documented = block("docs/applications.md", "a_script_of_php_answers_for_missing_files");
    let settings = |socket: &str| documented.replace("unix:/run/php/php8.2-fpm.sock", socket);
    let Some((_php, server)) = with_php_and(&folder, settings) else { return };
    let mut client = Peer::client(&server);
    for _ in 0..3 {
        for (target, text) in [
            ("/style.css", "body {}"),
            ("/hello.txt", "hello\n"),
            ("/", "/index.php GET /  "),
            ("/2026/11/a-post/?p=7", "/index.php GET /2026/11/a-post/?p=7 7 "),
            ("/none.css", "/index.php GET /none.css  "),
            ("/none.php", "/index.php GET /none.php  "),
            ("/wp-admin/", "/wp-admin/index.php GET /wp-admin/  "),
            ("/wp-login.php", "/wp-login.php GET /wp-login.php  "),
        ] {
            assert_eq!(client.get(target).brief(), (200, text.to_owned()), "{target}");
        }
        assert_eq!(client.get("/.htaccess").status(), 404);
        assert_eq!(client.post("/wp-json/x", b"body").text(), "/index.php POST /wp-json/x  body");
        assert_eq!(client.post("/style.css", b"body").status(), 405);
        client = Peer::client(&server);
    }
    // Flash notices files that come and go.
    folder.www("new.css", "new");
    wait_until("the new file", || Peer::client(&server).get("/new.css").text() == "new");
    fs::remove_file(folder.path("www/new.css")).unwrap();
    wait_until("its absence", || Peer::client(&server).get("/new.css").text().starts_with("/index.php"));
    assert_eq!(server.stderr(), "");
}

#[test]
fn files_answer_before_an_application() {
    let folder = Folder::with_hello();
    folder.www("assets/app.js", "code");
    let body = pattern(300_000, 1);
    folder.www("large", &body);
    let upstream = Upstream::tcp().answer(|request| ok(format!("{} {}", request.line, request.body.len())));
    let server = start(&folder, &proxy("/", &upstream.address, "files_first = true"));
    for _ in 0..3 {
        let mut client = Peer::client(&server);
        assert_eq!(client.get("/hello.txt").brief(), (200, "hello\n".to_owned()));
        assert_eq!(client.get("/assets/app.js").brief(), (200, "code".to_owned()));
        assert!(client.get("/large").body == body);
        assert_eq!(client.get("/users/7?x").text(), "GET /users/7?x HTTP/1.1 0");
        assert_eq!(client.post("/users", &body).text(), "POST /users HTTP/1.1 300000");
        assert_eq!(client.post("/hello.txt", b"").status(), 405);
        assert_eq!(Peer::client(&server).get("/assets").status(), 301);
    }
    assert_eq!(server.stderr(), "");
}

/// Files that are no scripts, and what PHP would do with them.
fn with_traps(folder: &Folder) {
    folder.www("a.php", "<?php echo \"a ran \", $_SERVER[\"PATH_INFO\"] ?? \"\";");
    folder.www("index.php", "<?php echo \"index ran\";");
    folder.www("up/photo.png", "<?php echo \"the picture ran\";");
    folder.www("a.php.gz", "source");
    folder.www("a.php.br", "source");
    let outside = folder.write("outside.php", "<?php echo \"outside ran\";");
    std::os::unix::fs::symlink(&outside, folder.path("www/out.txt")).unwrap();
    std::os::unix::fs::symlink(&outside, folder.path("www/out.php")).unwrap();
}

/// Only scripts run, whatever the path.
fn assert_no_trap(server: &Server) {
    let mut client = Peer::client(server);
    for _ in 0..2 {
        for (path, text) in
            [("/a.php", "a ran "), ("/a.php/x.php", "a ran /x.php"), ("/", "index ran"), ("/?x", "index ran")]
        {
            assert_eq!(client.get(path).brief(), (200, text.into()), "{path}");
        }
        for path in [
            "/up/photo.png/x.php",
            "/up/photo.png%2Fx.php",
            "/up/photo.png/.php",
            "/out.txt/x.php",
            "/out.php",
            "/out.php/x.php",
            "/none.php",
            "/none.php/a.php",
            "/up/",
            "/a.php.gz",
            "/a.php.br",
            "/A.php.GZ",
        ] {
            let answer = client.get_with(path, &["Accept-Encoding: gzip, br"]);
            assert_eq!(answer.status(), 404, "{path}: {answer:?}");
        }
    }
    assert_eq!(client.get("/up/photo.png").status(), 200);
    assert_eq!(client.get("/x%2F..%2Fa.php").status(), 400);
}

#[test]
fn php_fpm_runs_nothing_but_scripts_of_the_site() {
    let folder = Folder::with_hello();
    with_traps(&folder);
    let Some((_php, server)) = with_php(&folder) else { return };
    assert_no_trap(&server);
}

#[test]
fn php_cgi_runs_nothing_but_scripts_of_the_site() {
    if !Command::new("php-cgi").arg("-v").output().is_ok_and(|output| output.status.success()) {
        return skip("needs php-cgi");
    }
    let folder = Folder::with_hello();
    with_traps(&folder);
    let route =
        format!("[[route]]\nextension = \"php\"\napp = \"php-cgi\"\nprocesses = 1\n{}\n", of_a_program());
    let server = start(&folder, &format!("index = [\"index.php\"]\n{route}"));
    assert_no_trap(&server);
}

#[test]
fn paths_that_an_application_could_read_differently_are_refused() {
    let folder = Folder::with_hello();
    let upstream = Upstream::tcp();
    let routes = format!(
        "[[route]]\nprefix = \"/admin/\"\nproxy = \"127.0.0.1:1\"\n{}",
        proxy("/api/", &upstream.address, "")
    );
    let _upstream = upstream.answer(|message| ok(message.target()));
    let server = start(&folder, &routes);
    let mut client = Peer::client(&server);
    for path in [
        "/admin/..%2fapi/x",
        "/admin/../api/x",
        "/api/%2e%2e/admin/",
        "/api/..%5Cadmin",
        "/api%2fx",
        "//api/x",
    ] {
        assert_eq!(client.get(path).status(), 400, "{path}");
    }
    for path in ["/api/a%2Fb?c=%2e%2e/", "/api/%20%C3%A9", "/api/http://host//x"] {
        assert_eq!(client.get(path).brief(), (200, path.into()));
    }
}

#[test]
fn php_gets_bodies_and_long_answers_arrive() {
    let folder = Folder::with_hello();
    folder.www(
        "count.php",
        "<?php echo strlen(file_get_contents(\"php://input\")), \" \", $_SERVER[\"CONTENT_LENGTH\"];",
    );
    folder.www("echo.php", "<?php readfile(\"php://input\");");
    folder.www("form.php", "<?php echo $_SERVER[\"REQUEST_METHOD\"], \" \", $_POST[\"a\"];");
    let Some((_php, server)) = with_php(&folder) else { return };
    let mut client = Peer::client(&server);
    // Around the length of a record's content, and beyond.
    for bytes in [0, 1, 65_534, 65_535, 65_536, 1_000_000] {
        let body = pattern(bytes, 1);
        assert_eq!(client.post("/count.php", &body).brief(), (200, format!("{bytes} {bytes}")));
        let echo = client.post("/echo.php", &body);
        assert!(echo.status() == 200 && echo.body == body, "{} of {bytes} bytes", echo.body.len());
    }
    let head = post_head("/form.php") + "Content-Type: application/x-www-form-urlencoded\r\n";
    client.send(framed(&head, b"b=2&a=%2B1", None));
    assert_eq!(client.message().brief(), (200, "POST +1".into()));
    // PHP gets the length of a chunked body, which is known at its end.
    let body = pattern(300_000, 2);
    client.send(framed(&post_head("/count.php"), &body, Some(70_000)));
    assert_eq!(client.message().brief(), (200, "300000 300000".into()));
    assert_eq!(server.stderr(), "");
}

const NODE: &str = r#"
const http = require("http"), socket = process.argv[2];
http.createServer((request, response) => {
    if (request.url == "/api/echo") return request.pipe(response);
    let bytes = 0;
    request.on("data", data => bytes += data.length);
    request.on("end", () => {
        response.setHeader("X-Address", request.headers["x-forwarded-for"]);
        response.end(`${request.method} ${request.url} ${request.headers.host} ${bytes}\n`);
    });
}).on("upgrade", (request, socket) => {
    socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    socket.pipe(socket);
}).listen(socket);
"#;

/// A server that passes `/api/` to a Node program, which listens at `node.sock`, its argument. None if Node is not installed.
fn with_node(folder: &Folder, program: &str) -> Option<(Program, Server)> {
    if !Command::new("node").arg("--version").output().is_ok_and(|output| output.status.success()) {
        skip("needs node");
        return None;
    }
    let socket = folder.path("node.sock");
    let mut command = Command::new("node");
    command.arg(folder.write("server.js", program)).arg(&socket);
    let node = Program::start(command, &socket, &folder.path("node.log"));
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    let route = format!("[[route]]\nprefix = \"/api/\"\nproxy = \"unix:{}\"\n", socket.display());
    Some((node, start(folder, &route)))
}

#[test]
fn node_answers_over_a_unix_socket() {
    if not_http2("it has no upgrades") {
        return;
    }
    let folder = Folder::with_hello();
    let Some((_node, server)) = with_node(&folder, NODE) else { return };
    let mut client = Peer::client(&server);
    let answer = client.get("/api/a%20b?c");
    assert_eq!(answer.brief(), (200, "GET /api/a%20b?c e2e.test 0\n".into()));
    assert_eq!(answer.field("X-Address"), Some("127.0.0.1"));
    let body = pattern(2_000_000, 1);
    for chunk_bytes in [None, Some(70_000)] {
        client.send(framed(&post_head("/api/x"), &body, chunk_bytes));
        assert_eq!(client.message().brief(), (200, "POST /api/x e2e.test 2000000\n".into()));
        // An answer that begins before the end of the body is the last one of its connection.
        let mut client = Peer::client(&server);
        let mut sender = client.sender();
        let request = framed(&post_head("/api/echo"), &body, chunk_bytes);
        let sends = std::thread::spawn(move || std::io::Write::write_all(&mut sender, &request));
        let echo = client.message();
        assert!(echo.status() == 200 && echo.body == body, "{} bytes", echo.body.len());
        sends.join().unwrap().unwrap();
    }
    assert_eq!(client.get("/hello.txt").brief(), (200, "hello\n".into()));
    let upgrade = client.get_with("/api/ws", &["Connection: Upgrade", "Upgrade: echo"]);
    assert_eq!(upgrade.status(), 101);
    for round in 0..10 {
        let sent = pattern(1_000, round);
        client.send(&sent);
        assert!(client.exactly(1_000) == sent);
    }
    assert_eq!(server.stderr(), "");
}
