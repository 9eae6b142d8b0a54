//! Tests of routes: their servers and programs, and the text of every error.

use super::*;

const ROUTES: &str = r#"
[[route]]
prefix = "/"
proxy = "[::1]:80"

[[site]]
hosts = ["a.example"]
root = "www"

[[site.route]]
extension = "PHP"
fastcgi = "unix:/run/php/php-fpm.sock"
body_max = "64MiB"
stream_bodies = true
stream_answers = true
answer_timeout = "5m"

[[site.route]]
prefix = "/api/"
proxy = ["10.0.0.1:3000", "unix:/run/app.sock"]
weights = [1, 1000]
files_first = true
compress = true
probe = "/health?full"
connect_timeout = "250ms"
connections_max = 8
idle_max = 0
queue_max = 16
"#;

#[test]
fn a_site_that_would_send_programs_of_another_one_is_reported() {
    const PHP: &str = "extension = \"php\"\nfastcgi = \"unix:/run/php.sock\"\n";
    let folder = Folder::new();
    fs::create_dir(folder.path().join("other")).unwrap();
    let warnings = |b: &str| {
        let text = format!(
            "[[site]]\nhosts = [\"a.example\"]\nroot = \"www\"\n[[site.route]]\n{PHP}\n[[site]]\nhosts = [\"b.example\"]\n{b}"
        );
        folder.sources(&text).load().unwrap().warnings()
    };
    let found = warnings("root = \"www\"\n");
    let [warning] = &found[..] else { panic!("{found:?}") };
    assert!(warning.starts_with("site b.example sends the source of .php files in /"), "{warning}");
    assert_eq!(warnings("root = \".\"\n").len(), 1, "the directory above");
    for right in [
        format!("root = \"www\"\n[[site.route]]\n{PHP}"),
        "root = \"www\"\n[[site.route]]\nprefix = \"/\"\nproxy = \"127.0.0.1:3000\"\n".to_owned(),
        "root = \"other\"\n".to_owned(),
    ] {
        assert_eq!(warnings(&right), Vec::<String>::new());
    }
}

#[test]
fn routes_belong_to_their_site_in_their_order() {
    let folder = Folder::new();
    let mut sources = folder.sources(ROUTES);
    flag(&mut sources, "root", &["www"]);
    let settings = sources.load().unwrap();
    folder.check_printed(&settings);
    let [of_default, of_site] = &settings.sites[..] else { panic!() };
    let first = Route {
        protocol: UpstreamProtocol::Http,
        servers: vec![ServerAddress::Tcp("[::1]:80".parse().unwrap())],
        weights: Vec::new(),
        body_bytes_max: 10_000_000,
        files_first: false,
        compress: false,
        stream_bodies: false,
        stream_answers: false,
        connect_timeout_ms: 5_000,
        answer_timeout_ms: 60_000,
        connections_max: 128,
        idle_max: 65_536,
        queue_max: 512,
        paths: RoutePaths::Prefix("/".to_owned()),
        tls: None,
        probe: None,
        program: None,
    };
    assert_eq!(of_default.routes, vec![first.clone()]);
    let [php, api] = &of_site.routes[..] else { panic!() };
    let expected = Route {
        protocol: UpstreamProtocol::FastCgi,
        servers: vec![ServerAddress::Unix("/run/php/php-fpm.sock".into())],
        body_bytes_max: 64 << 20,
        stream_bodies: true,
        stream_answers: true,
        answer_timeout_ms: 300_000,
        idle_max: 0,
        paths: RoutePaths::Extension("php".to_owned()),
        ..first.clone()
    };
    assert_eq!(*php, expected);
    let app = ServerAddress::Unix("/run/app.sock".into());
    let expected = Route {
        servers: vec![ServerAddress::Tcp("10.0.0.1:3000".parse().unwrap()), app],
        weights: vec![1, 1000],
        files_first: true,
        compress: true,
        probe: Some(Probe { target: "/health?full".to_owned(), interval_ms: 5_000 }),
        connect_timeout_ms: 250,
        connections_max: 8,
        idle_max: 0,
        queue_max: 16,
        paths: RoutePaths::Prefix("/api/".to_owned()),
        ..first
    };
    assert_eq!(*api, expected);
    assert_eq!(Settings::from_toml(&settings.to_toml()).unwrap(), settings);
    let error = folder.error(ROUTES);
    assert!(error.contains("2:1") && error.contains("there is no default site"), "{error}");
}

#[test]
fn servers_over_tls() {
    let folder = Folder::new();
    let settings = folder.load(
        "[[route]]\nprefix = \"/a/\"\nproxy = [\"https://10.0.0.1\", \"https://[::1]\", \"https://[::1]:8443/\", \"10.0.0.1:80\"]\nserver_name = \"a.example\"\nroots = \"www/ca.pem\"\n\
                [[route]]\nprefix = \"/b/\"\nproxy = \"https://10.0.0.1:1\"\nverify = false\n",
    );
    folder.check_printed(&settings);
    let [a, b] = &settings.sites[0].routes[..] else { panic!() };
    let names: Vec<String> = a.servers.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["https://10.0.0.1:443", "https://[::1]:443", "https://[::1]:8443", "10.0.0.1:80"]);
    let (server_name, roots) = (Some("a.example".to_owned()), Some(folder.path().join("www/ca.pem")));
    assert_eq!(a.tls, Some(RouteTls { verify: true, server_name, roots }));
    assert_eq!(b.tls, Some(RouteTls { verify: false, server_name: None, roots: None }));
    let [warning] = &settings.warnings()[..] else { panic!("{:?}", settings.warnings()) };
    assert!(warning.starts_with("verify = false: anyone on the way to https://10.0.0.1:1"), "{warning}");
    assert_eq!(Settings::from_toml(&settings.to_toml()).unwrap(), settings);
}

#[test]
fn routes_with_programs() {
    let folder = Folder::new();
    let user = current_user();
    let file = format!(
        "[[route]]\nprefix = \"/cgi-bin/\"\ncgi = \"www\"\nmemory_max = \"4MiB\"\nauthorization = true\nuser = {user:?}\n\
                [[route]]\nextension = \"php\"\napp = [\"true\", \"-n\"]\nprocesses = 2\nconnections_max = 3\nuser = {user:?}\n"
    );
    let settings = folder.load(&file);
    let [cgi, app] = &settings.sites[0].routes[..] else { panic!() };
    let program = Program {
        processes: 1,
        memory_bytes_max: 4 << 20,
        authorization: true,
        run_as: privileges::is_root().then(|| RunAs { name: user.clone(), uid: 0, gid: 0, groups: vec![0] }),
        runs: Runs::Cgi(folder.path().join("www")),
    };
    assert_eq!((cgi.program.as_ref(), cgi.connections_max, cgi.idle_max), (Some(&program), 16, 0));
    assert_eq!((cgi.protocol, &cgi.servers[..]), (UpstreamProtocol::FastCgi, &[ServerAddress::Program][..]));
    let program = Program {
        processes: 2,
        memory_bytes_max: 1 << 30,
        authorization: false,
        runs: Runs::App(vec!["true".to_owned(), "-n".to_owned()]),
        ..program
    };
    assert_eq!((app.program.as_ref(), app.connections_max), (Some(&program), 3));
    assert_eq!((&app.servers[..], app.connections_of_worker()), (&[ServerAddress::Program][..], 6));
    assert_eq!(Settings::from_toml(&settings.to_toml()).unwrap(), settings);
}

/// The name of the user that runs this test.
fn current_user() -> String {
    let output = std::process::Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_program_that_its_user_cannot_start_is_refused() {
    let folder = Folder::new();
    let file = |name: &str, text: &str, mode: u32| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        path
    };
    let user = current_user();
    let route = |line: &str, user: &str| format!("[[route]]\nprefix = \"/x/\"\n{line}\nuser = {user:?}\n");
    let broken = file("broken", "#!/none/python\n", 0o755);
    for (line, why) in [
        ("app = \"php-cgj\"".to_owned(), "no such program in /usr/local/sbin"),
        (format!("app = {:?}", file("plain", "", 0o644)), "cannot execute it: permission denied"),
        (format!("app = [{broken:?}, \"x\"]"), "its interpreter `/none/python`: No such file"),
        (format!("cgi = {broken:?}"), "not a directory"),
    ] {
        let error = folder.error(&route(&line, &user));
        assert!(
            error.contains("cannot start `") && error.contains(why) && error.contains("3:"),
            "{line}: {error}"
        );
    }
    if !privileges::is_root() {
        return;
    }
    // Its owner could.
    let private = file("private", "#!/bin/sh\n", 0o700);
    let error = folder.error(&route(&format!("app = {private:?}"), "nobody"));
    assert!(error.contains("user `nobody` cannot execute it"), "{error}");
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let error = folder.error(&route(&format!("cgi = {closed:?}"), "nobody"));
    assert!(error.contains("user `nobody` cannot enter it"), "{error}");
    for (key, value) in [("app", "true"), ("cgi", "www")] {
        let error = folder.error(&format!("[[route]]\nprefix = \"/x/\"\n{key} = {value:?}\n"));
        assert!(error.contains(&format!("`{key}` without `user`, started by root")), "{error}");
        assert!(error.contains("user = \"www-data\""), "{error}");
    }
    let settings = folder.load(&format!("user = \"nobody\"\n{}", route("app = \"true\"", "nobody")));
    let [warning] = &settings.warnings()[..] else { panic!("{:?}", settings.warnings()) };
    assert!(warning.starts_with("`true` has the user of the workers"), "{warning}");
}

#[test]
fn no_index_file_is_a_script_whose_source_could_be_sent() {
    let folder = Folder::new();
    let config = |index: &str| {
        format!("index = [{index}]\n[[route]]\nextension = \"php\"\nfastcgi = \"unix:/run/php.sock\"\n")
    };
    for index in ["\"index.php\"", "\"index.php\", \"index.html\"", "\"index.html\", \"php\"", ""] {
        assert_eq!(folder.load(&config(index)).sites[0].routes.len(), 1, "{index}");
    }
    for later in ["index.php", "a.b.PHP"] {
        let error = folder.error(&config(&format!("\"index.html\", \"{later}\"")));
        assert!(error.contains("2:1") && error.contains(&format!("source of `{later}`")), "{error}");
    }
}

#[test]
fn routes_that_no_request_reaches_are_reported() {
    let folder = Folder::new();
    let warnings = |prefixes: &[(&str, &str)]| {
        let route = |(prefix, more): &(&str, &str)| {
            format!("[[route]]\nprefix = \"{prefix}\"\nproxy = \"127.0.0.1:3000\"\n{more}\n")
        };
        folder.load(&prefixes.iter().map(route).collect::<String>()).warnings().join("\n")
    };
    assert_eq!(warnings(&[("/api/v2/", ""), ("/api/", ""), ("/app/..x", ""), ("/50%", ""), ("/", "")]), "");
    for (prefixes, why) in [
        (
            &[("/api", ""), ("/api/v2/", "")][..],
            "its route for /api/v2/: an earlier route, for /api, has its paths",
        ),
        (&[("/", "files_first = true"), ("/api/", "")], "an earlier route, for /, has its paths"),
        (&[("//api/", "")], "paths are compared without empty segments"),
        (&[("/a/../b/", "")], "its route for /a/../b/: paths are compared without"),
        (&[("/a%20b/", "")], "it is compared with decoded paths; write the characters themselves"),
    ] {
        let warnings = warnings(prefixes);
        assert!(warnings.starts_with("the default site never uses") && warnings.contains(why), "{warnings}");
    }
}

#[test]
fn a_proxy_to_flash_itself_is_reported() {
    let folder = Folder::new();
    let warnings = |listen: &str, server: &str| {
        let route = format!("[[route]]\nprefix = \"/api/\"\nproxy = \"{server}\"\n");
        folder.load(&format!("listen = [\"{listen}\"]\n{route}")).warnings().join("\n")
    };
    for (listen, server) in [
        ("127.0.0.1:80", "127.0.0.1:80"),
        ("0.0.0.0:80", "127.0.0.1:80"),
        ("[::]:80", "[::1]:80"),
        ("unix:/run/flash.sock", "unix:/run/flash.sock"),
    ] {
        let found = warnings(listen, server);
        assert!(found.contains(&format!("requests to {server}, where Flash itself listens")), "{found}");
    }
    for (listen, server) in [
        ("127.0.0.1:80", "127.0.0.1:81"),
        ("0.0.0.0:80", "10.0.0.1:80"),
        ("unix:/run/flash.sock", "unix:/run/app.sock"),
    ] {
        assert_eq!(warnings(listen, server), "");
    }
}

#[test]
fn settings_of_routes_that_cannot_take_effect_are_reported() {
    let folder = Folder::new();
    let warnings = |top: &str, route: &str| {
        let file = format!(
            "workers = 2\n{top}\n[[route]]\nextension = \"php\"\nfastcgi = \"unix:/run/php.sock\"\n{route}"
        );
        folder.load(&file).warnings()
    };
    let [warning] = &warnings("spool_max = \"1GiB\"", "body_max = \"400MiB\"")[..] else { panic!() };
    assert!(warning.contains("400MiB") && warning.contains("spool_max leaves 102"), "{warning}");
    for (top, route) in [
        ("spool_max = \"1GiB\"", "body_max = \"100MiB\""),
        ("spool_max = \"1GiB\"", "body_max = \"400MiB\"\nstream_bodies = true"),
        ("spool = \"off\"", "body_max = \"400MiB\""),
        ("index = [\"index.php\"]", ""),
        ("index = [\"index.html\", \"a.html\"]", ""),
    ] {
        assert_eq!(warnings(top, route), Vec::<String>::new(), "{top} {route}");
    }
    let [warning] = &warnings("index = [\"index.php\", \"index.html\"]", "")[..] else { panic!() };
    assert!(warning.starts_with("the default site never tries index.html"), "{warning}");
}

#[test]
fn routes_need_an_event_loop_and_are_bounded() {
    let folder = Folder::new();
    let routes = |architecture: &str| {
        format!("architecture = \"{architecture}\"\n[[route]]\nprefix = \"/\"\nproxy = \"127.0.0.1:1\"\n")
    };
    assert_eq!(folder.load(&routes("sped")).sites[0].routes.len(), 1);
    for architecture in ["mp", "mt"] {
        let error = folder.error(&routes(architecture));
        assert!(error.contains("2:1") && error.contains("`route` cannot be used here"), "{error}");
        assert!(error.contains("only `amped` and `sped` have an event loop"), "{error}");
    }
    let site = |n| format!("[[site]]\nhosts = [\"h{n}\"]\nroot = \"www\"\n");
    let route = "[[site.route]]\nprefix = \"/\"\nproxy = \"127.0.0.1:1\"\n";
    let many = |count| (0..2).map(|n| site(n) + &route.repeat(count)).collect::<String>();
    assert_eq!(folder.load(&many(128)).routes().count(), 256);
    assert!(folder.error(&many(129)).contains("too many routes in the whole file: at most 256"));
}

/// Each wrong route, and the texts that its error must contain.
const WRONG_ROUTES: &[(&str, &[&str])] = &[
    (
        "proxy = \"127.0.0.1:1\"",
        &["incomplete route", "`prefix` or `extension` is missing", "prefix = \"/api/\""],
    ),
    (
        "prefix = \"/\"",
        &["incomplete route", "`proxy`, `fastcgi`, `app` or `cgi` is missing", "proxy = \"127.0.0.1:3000\""],
    ),
    (
        "prefix = \"/\"\nextension = \"php\"\nproxy = \"127.0.0.1:1\"",
        &["a route has `prefix` or `extension`, not both", "write two routes"],
    ),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nfastcgi = \"127.0.0.1:1\"",
        &["a route has `proxy` or `fastcgi`, not both"],
    ),
    ("prefix = \"api\"\nproxy = \"127.0.0.1:1\"", &["must begin with `/`", "write `/api`"]),
    ("prefix = 1\nproxy = \"127.0.0.1:1\"", &["must be a text in quotes"]),
    ("extension = \".php\"\nproxy = \"127.0.0.1:1\"", &["without its dot", "write `php`"]),
    ("extension = \"a/b\"\nproxy = \"127.0.0.1:1\"", &["must be a file extension"]),
    ("prefix = \"/\"\nproxy = 1", &["wrong value for `proxy`", "must be a list of addresses"]),
    ("prefix = \"/\"\nproxy = []", &["name at least one server"]),
    ("prefix = \"/\"\nproxy = [\"127.0.0.1:1\", \"127.0.0.1:1\"]", &["3:25", "given twice"]),
    ("prefix = \"/\"\nproxy = \"127.0.0.1:0\"", &["the port must not be 0"]),
    ("prefix = \"/\"\nproxy = \"10.0.0.1\"", &["must be an address and a port", "add the port"]),
    ("prefix = \"/\"\nproxy = \"localhost:3000\"", &["did you mean `127.0.0.1:3000`?"]),
    ("prefix = \"/\"\nproxy = \"http://10.0.0.1:3000/x\"", &["did you mean `10.0.0.1:3000`?"]),
    (
        "prefix = \"/\"\nproxy = \"app.example:3000\"",
        &["write an address instead of a host name: Flash does not resolve names"],
    ),
    ("prefix = \"/\"\nfastcgi = \"/run/x.sock\"", &["write `unix:/run/x.sock`"]),
    ("prefix = \"/\"\nfastcgi = \"unix:x.sock\"", &["must be an absolute path after `unix:`"]),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nstream_bodies = 1",
        &["wrong value for `stream_bodies`", "must be true or false, without quotes"],
    ),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nbody_max = \"1X\"",
        &["wrong value for `body_max`", "not a size"],
    ),
    ("prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nconnect_timeout = 5", &["must be a duration in quotes"]),
    ("prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nconnections_max = 0", &["must be from 1 to 65536"]),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nqueue = 1",
        &["unknown key `queue` in a route", "not a setting of a route"],
    ),
    ("prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nfastcg = 1", &["did you mean `fastcgi`?"]),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nbrowse = true",
        &["move `browse` above the first route of its site"],
    ),
    ("prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nuser = \"x\"", &["applies to a route with `app` or `cgi`"]),
    ("prefix = \"/\"\ncgi = \"www\"\nprocesses = 2", &["applies to a route with `app`"]),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nweights = [1, 2]",
        &["wrong value for `weights`", "must be a list with a number from 1 to 1000 for each server"],
    ),
    ("prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nweights = [0]", &["wrong value for `weights`"]),
    (
        "prefix = \"/\"\ncgi = \"www\"\nidle_max = 1",
        &["wrong key `idle_max`", "applies to a route with `proxy` or `fastcgi` or `app`"],
    ),
    ("prefix = \"/\"\nfastcgi = \"127.0.0.1:1\"\nprobe = \"/\"", &["applies to a route with `proxy`"]),
    ("prefix = \"/\"\ncgi = \"www\"\nprobe_interval = \"1s\"", &["applies to a route with `proxy`"]),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nprobe_interval = \"1s\"",
        &[
            "`probe_interval` without `probe`",
            "`probe` is missing",
            "add a line such as `probe = \"/health\"`",
        ],
    ),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nprobe = \"health\"",
        &["wrong value for `probe`", "must begin with `/`", "write `/health`"],
    ),
    ("prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nprobe = 1", &["must be a text in quotes"]),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nprobe = \"/a b\"",
        &["wrong value for `probe`", "without spaces", "%20 for a space"],
    ),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nprobe = \"/a\\r\\nX: y\"",
        &["wrong value for `probe`", "control characters"],
    ),
    (
        "prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nprobe = \"/\"\nprobe_interval = \"99ms\"",
        &["wrong value for `probe_interval`", "100ms"],
    ),
    ("prefix = \"/\"\ncgi = \"www\"\nweights = [1]", &["applies to a route with `proxy` or `fastcgi`"]),
    (
        "prefix = \"/\"\nproxy = \"https://backend.example:8443\"",
        &[
            "Flash does not resolve names",
            "write `https://ADDRESS:8443`, and `server_name = \"backend.example\"` in the route",
        ],
    ),
    (
        "prefix = \"/\"\nproxy = \"https://10.0.0.1/api\"",
        &["the servers of a route get the paths of its requests", "write `https://10.0.0.1`"],
    ),
    ("prefix = \"/\"\nproxy = \"https://10.0.0.1:0\"", &["the port must not be 0"]),
    (
        "prefix = \"/\"\nfastcgi = \"https://10.0.0.1:9000\"",
        &["wrong value for `fastcgi`", "FastCGI has no form over TLS", "or use `proxy`"],
    ),
    ("prefix = \"/\"\napp = \"true\"\nverify = false", &["applies to a route with `proxy`"]),
    (
        "prefix = \"/\"\nproxy = \"10.0.0.1:443\"\nserver_name = \"a\"",
        &["`server_name` without a server over TLS", "begins with `https://`"],
    ),
    (
        "prefix = \"/\"\nproxy = \"https://10.0.0.1\"\nserver_name = \"a:443\"",
        &["wrong value for `server_name`", "without a port"],
    ),
    (
        "prefix = \"/\"\nproxy = \"https://10.0.0.1\"\nverify = false\nroots = \"ca.pem\"",
        &["`roots` with `verify = false`", "remove one of the two lines"],
    ),
    (
        "extension = \"php\"\nfastcgi = \"127.0.0.1:1\"\nfiles_first = true",
        &["`files_first` with `extension`", "are scripts of the route", "a rule with `fallback`"],
    ),
    (
        "prefix = \"/\"\ncgi = \"www\"\nfiles_first = true",
        &["`files_first` with `cgi`", "a program could be sent instead of run"],
    ),
    ("prefix = \"/\"\ncgi = \"gone\"", &["cannot start `", "/gone`", "no such file or directory"]),
    ("prefix = \"/\"\ncgi = 1", &["wrong value for `cgi`"]),
    ("prefix = \"/\"\ncgi = \"\"", &["wrong value for `cgi`", "must not be empty"]),
    ("prefix = \"/\"\napp = \"/\"", &["cannot start `/`", "not a file"]),
    ("prefix = \"/\"\napp = []", &["must be a program, or a list of a program and its arguments, in quotes"]),
    ("prefix = \"/\"\napp = \"python3 /x.py\"", &["is one word", "write `[\"python3\", \"/x.py\"]`"]),
    ("prefix = \"/\"\napp = \"x\"\nprocesses = 0", &["must be from 1 to 64"]),
    ("prefix = \"/\"\napp = \"x\"\nuser = \"no such user\"", &["must be a user"]),
    ("prefix = \"/\"\napp = \"x\"\nuser = \"nosuchuser\"", &["cannot run as `nosuchuser`"]),
    ("prefix = \"/\"\nproxy = \"127.0.0.1:1\"\nworkers = 2", &["move `workers` to the top of the file"]),
];

#[test]
fn wrong_routes_say_what_to_write() {
    let folder = Folder::new();
    for (route, parts) in WRONG_ROUTES {
        let error = folder.error(&format!("[[route]]\n{route}\n"));
        for part in *parts {
            assert!(error.contains(part), "{route}\n--- must contain: {part}\n--- is:\n{error}");
        }
    }
    let path = format!("[[route]]\nprefix = \"/\"\nproxy = \"unix:/{}\"", "x".repeat(107));
    assert!(folder.error(&path).contains("a path of at most 107 bytes"));
    assert!(folder.error("[route]\nprefix = \"/\"").contains("write `[[site.route]]`, in double brackets"));
    assert!(folder.error("[[routes]]\nprefix = \"/\"").contains("did you mean `route`?"));
}
