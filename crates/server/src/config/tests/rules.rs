//! Tests of rules for paths, and the text of every error.

use std::os::unix::fs::PermissionsExt;

use flash_engine::{AliasOf, Bandwidth, Concurrency, Rate, Rates, SiteId, SiteRules};

use super::*;
use crate::config::path_rules;

#[test]
fn rules_belong_to_their_site_in_their_order() {
    let folder = Folder::new();
    let settings = folder.load(
        r#"
        root = "www"
        [[rule]]
        set = { X-Frame-Options = "DENY" }
        add = { Link = ["</a>", "</b>"] }
        remove = ["Server", "ETag"]
        errors = true
        allow = ["loopback", "10.0.0.0/8"]
        deny = ["10.1.0.0/16"]
        [[rule]]
        path = "/old/*/x"
        redirect = "https://example.org/$1?y"
        [[site]]
        hosts = ["example.org"]
        root = "www"
        [[site.rule]]
        path = "/a"
        redirect = "/b"
        status = 308
        [[site.rule]]
        path = "/user/*"
        rewrite = "/profiles/$1%20.html?of=$1"
        [[site.rule]]
        hashed = true
        cors = ["https://A.example", "http://localhost:3000"]
        [[site.rule]]
        path = "/profiles/*"
        except = ["*.js", "*.css"]
        try_extensions = ["HTML", "htm"]
        fallback = "/no one.html"
        "#,
    );
    let field = |name: &str, value: &str| HeadField { name: name.to_owned(), value: value.to_owned() };
    let [all, old] = &settings.sites[0].rules[..] else { panic!("{:?}", settings.sites[0].rules) };
    assert_eq!((all.path.as_str(), &all.set[..]), ("*", &[field("X-Frame-Options", "DENY")][..]));
    assert_eq!((&all.add[..], all.errors), (&[field("Link", "</a>"), field("Link", "</b>")][..], true));
    assert_eq!((&all.remove[..], &all.redirect), (&["Server".to_owned(), "ETag".to_owned()][..], &None));
    assert_eq!(
        (&old.redirect, old.status),
        (&Some("https://example.org/$1?y".into()), RedirectStatus::Found)
    );
    assert_eq!(settings.sites[1].rules[0].status, RedirectStatus::Permanent);
    let [_, user, assets, profile] = &settings.sites[1].rules[..] else {
        panic!("{:?}", settings.sites[1].rules)
    };
    assert_eq!(user.rewrite.as_deref(), Some("/profiles/$1%20.html?of=$1"));
    assert_eq!(
        (assets.hashed, &assets.cors[..]),
        (true, &["https://a.example".to_owned(), "http://localhost:3000".to_owned()][..])
    );
    assert!(assets.set.is_empty(), "it says what it does");
    assert_eq!(profile.fallback.as_deref(), Some("/no one.html"));
    assert_eq!(profile.try_extensions, ["HTML", "htm"]);
    assert_eq!(profile.except, ["*.js", "*.css"]);
}

/// Rules that are wrong, and parts of what is said about each.
const WRONG_RULES: &[(&str, &[&str])] = &[
    ("path = \"/a\"", &["incomplete rule", "it does nothing", "add a line such as `set"]),
    (
        "path = \"a\"\nredirect = \"/b\"",
        &["wrong value for `path`", "must begin with `/` or `*`", "write `/a`"],
    ),
    ("path = \"/*********\"\nredirect = \"/b\"", &["8 `*`"]),
    ("set = \"x\"", &["must be a table of fields, such as { \"Cache-Control\" = \"no-cache\" }"]),
    ("allow = []", &["wrong value for `allow`", "name at least one network"]),
    ("deny = [\"10.0.0.1/8\"]", &["did you mean `10.0.0.0/8`?"]),
    ("users = \"open\"", &["`users`", "every user of this machine can reach", "chmod o="]),
    ("users = \"wrong\"", &["`users`", "line 2: the password of bob: its form is none of bcrypt"]),
    ("users = \"www/users\"", &["`users`", "it lies beneath the root", "move it to another folder"]),
    ("users = \"none\"", &["`users`", "cannot read"]),
    ("rate = \"10\"", &["must be a number of requests from 1 to 1000000 in a second", "write it as 10/s"]),
    ("total_rate = \"0/m\"", &["wrong value for `total_rate`", "must be a number of requests"]),
    ("concurrency = 0", &["wrong value for `concurrency`", "must be from 1 to 1000000"]),
    ("total_concurrency = \"10\"", &["wrong value for `total_concurrency`", "must be a whole number"]),
    ("bandwidth = 10", &["must be a rate in quotes, such as \"10Mbit\""]),
    ("total_bandwidth = \"1kbit\"", &["wrong value for `total_bandwidth`", "must be from 64kbit to 100Gbit"]),
    ("rate = 10", &["must be a rate in quotes, such as \"10/s\" or \"100/m\""]),
    ("rate = \"10/s\"\nburst = 0", &["must be from 1 to 1000000"]),
    ("total_rate = \"10/s\"\nburst = 5", &["`burst` without `rate`", "has no effect"]),
    ("set = {}", &["name at least one field"]),
    ("set = { Age = 1 }", &["must be a text in quotes, or a list of them"]),
    (
        "set = { \"Content-Type\" = \"x\" }",
        &["`Content-Type` follows from the answer", "write it in `[types]`"],
    ),
    ("add = { Transfer-Encoding = \"x\" }", &["`Transfer-Encoding` follows from the answer"]),
    ("remove = [\"content-length\"]", &["`content-length` follows from the answer"]),
    ("set = { Strict-Transport-Security = \"max-age=1\" }", &["set `hsts` instead"]),
    ("remove = [\"a b\"]", &["must be the name of a field, such as Cache-Control"]),
    ("set = { ETag = \"x\" }", &["`ETag` differs from file to file; a rule can only remove it"]),
    ("set = { Vary = \"x\" }", &["`Vary` in `set`", "write it in `add`"]),
    ("remove = [\"vary\"]", &["`Vary` in `remove`"]),
    ("set = { X = \"a\\r\\nY: b\" }", &["the value of `X` must be a text of ASCII, in one line"]),
    ("set = { X = \"\" }", &["the value of `X` must be a text"]),
    ("redirect = \"b\"", &["must be a path that begins with one `/`"]),
    ("redirect = \"//b\"", &["must be a path that begins with one `/`"]),
    ("redirect = \"https://x.example$1\"", &["must have a host of its own", "`https://example.org/$1`"]),
    ("redirect = \"/a b\"", &["encode other bytes, such as %20"]),
    ("path = \"/a*\"\nredirect = \"/b/$2\"", &["`$2` in `redirect`", "`path` has 1 `*`"]),
    ("redirect = \"/a\"\nstatus = 304", &["must be 301, 302, 303, 307 or 308"]),
    ("set = { X = \"1\" }\nstatus = 301", &["`status` without `redirect`"]),
    ("redirect = \"https://x.example/\"\nerrors = true", &["`errors` without `set`, `add` or `remove`"]),
    (
        "path = \"/*\"\nredirect = \"/a/$1\"",
        &["redirects in a circle", "a client at /x is redirected without an end"],
    ),
    ("path = \"/%41\"\nredirect = \"/%2541\"", &["redirects in a circle"]),
    ("rewrite = \"https://example.org/\"", &["must be a path that begins with one `/`"]),
    ("rewrite = \"/a#b\"", &["must be a path, with or without a query"]),
    ("path = \"/*\"\nrewrite = \"/../a?b=$1\"", &["wrong value for `rewrite`"]),
    ("hashed = false", &["incomplete rule", "it does nothing"]),
    ("cors = []", &["wrong value for `cors`"]),
    ("cors = \"*\"", &["must be a list of origins, such as [\"https://www.example.org\"]"]),
    ("cors = [\"a.example\"]", &["must be the origin of pages, such as https://www.example.org"]),
    ("cors = [\"https://a.example/x\"]", &["has no path", "write `https://a.example`"]),
    ("cors = [\"*\", \"https://a.example\"]", &["`*` stands for all origins, so the others have no effect"]),
    ("path = \"/a\"\nrewrite = \"/b/$1\"", &["`$1` in `rewrite`", "`path` has 0 `*`"]),
    ("rewrite = \"/a\"\nredirect = \"/b\"", &["`rewrite` beside `redirect`"]),
    ("fallback = \"/a\"\nredirect = \"/b\"", &["`fallback` beside `redirect`"]),
    (
        "allow = [\"loopback\"]\ndeny = [\"10.0.0.0/8\", \"loopback\"]",
        &["wrong value for `deny`", "none would be admitted"],
    ),
    ("set = { X-A = \"1\" }\nremove = [\"x-a\"]", &["`x-a` in `remove`", "`set` has it too"]),
    ("try_extensions = [\"html\"]\nredirect = \"/b\"", &["`try_extensions` beside `redirect`"]),
    ("try_extensions = []", &["wrong value for `try_extensions`", "name 1 to 8 extensions"]),
    ("try_extensions = [\".html\"]", &["must be an extension without its dot", "write `html`"]),
    ("try_extensions = \"html\"", &["must be a list of extensions"]),
    (
        "try_extensions = [\"html\", \"PHP\"]\n[[route]]\nextension = \"php\"\nfastcgi = \"unix:/run/php.sock\"",
        &["cannot try `PHP`", "its files are scripts of a route"],
    ),
    (
        "try_extensions = [\"html\"]\nfallback = \"/i.php\"\n[[route]]\nextension = \"php\"\nfastcgi = \"unix:/run/php.sock\"",
        &["`try_extensions` beside a script", "/i.php answers for the missing files"],
    ),
    (
        "path = \"/a/*\"\ntry_extensions = [\"html\"]\n[[rule]]\nfallback = \"/i.php\"\n[[route]]\nextension = \"php\"\nfastcgi = \"unix:/run/php.sock\"",
        &["`try_extensions` beside a script"],
    ),
    (
        "path = \"/a\"\nrewrite = \"/b\"\nfallback = \"/c\"",
        &["`fallback` beside `rewrite`", "a rule for the new path"],
    ),
    (
        "path = \"/a/*\"\nexcept = [\"/a*\"]\nfallback = \"/b\"",
        &["wrong value for `except`", "/a* has all paths of the rule"],
    ),
    ("except = \"/a\"\nfallback = \"/b\"", &["must be a list of paths, such as [\"/api/*\"]"]),
    ("except = [\"a\"]\nfallback = \"/b\"", &["must begin with `/` or `*`"]),
    ("rewrite = \"/a%zz\"", &["wrong value for `rewrite`"]),
    ("rewrite = \"/a/../../b\"", &["wrong value for `rewrite`"]),
    (
        "error_page = \"/404.PHP\"\n[[route]]\nextension = \"php\"\nfastcgi = \"unix:/run/php.sock\"",
        &["cannot show `/404.PHP`", "its source would be shown"],
    ),
    ("fallback = \"index.html\"", &["must begin with `/`", "write `/index.html`"]),
    ("fallback = \"/\"", &["must be a whole path without empty names"]),
    ("fallback = \"/a/.b\"", &["must not lead to a hidden file"]),
    (
        "path = \"/a/*\"\nfallback = \"/b\"\n[[rule]]\nfallback = \"/c\"",
        &["a fallback that has a fallback", "if /b is missing, /c would have to answer"],
    ),
    ("alias = \"www\"", &["`alias` for other paths", "`path` must be a folder and `/*`, such as /docs/*"]),
    ("path = \"/*\"\nalias = \"www\"", &["`alias` for other paths"]),
    ("path = \"/a*\"\nalias = \"www\"", &["`alias` for other paths"]),
    ("path = \"/a/*/*\"\nalias = \"www\"", &["`alias` for other paths"]),
    ("path = \"/a/*\"\nalias = \"none\"", &["cannot serve `/DIR/none`", "no such file or directory"]),
    ("path = \"/a/*\"\nalias = \"secret\"", &["cannot serve `/DIR/secret`", "not a directory"]),
    ("path = \"/a/*\"\nalias = \"www\"\nredirect = \"/b\"", &["`alias` beside `redirect`"]),
    (
        "path = \"/a/*\"\nalias = \"www\"\nrewrite = \"/b\"",
        &["`alias` beside `rewrite`", "a rule for the new path"],
    ),
    (
        "path = \"/a/*\"\nalias = \"other\"\n[[rule]]\nusers = \"other/users\"",
        &["cannot use `/DIR/other/users` as `users`", "it lies beneath the root or an alias"],
    ),
    (
        "auth = \"/auth\"",
        &["cannot ask `/auth`", "no route of the site has this path", "add a route for its server"],
    ),
    (
        "auth = \"/b\"\n[[route]]\nprefix = \"/a\"\nproxy = \"127.0.0.1:1\"",
        &["cannot ask `/b`", "no route of the site has this path"],
    ),
    ("auth = \"auth\"", &["must begin with `/`"]),
    ("auth = \"/a\"\nauth_fields = []", &["wrong value for `auth_fields`", "name at least one field"]),
    ("auth = \"/a\"\nauth_fields = [\"X-Accel-Expires\"]", &["no server can give it"]),
    ("auth_fields = [\"X-User\"]\nallow = [\"::1\"]", &["`auth_fields` without `auth`", "has no effect"]),
    (
        "auth = \"/a\"\nauth_fields = [\"X User\"]",
        &["must be the name of a field with letters, digits and `-`"],
    ),
    (
        "auth = \"/a\"\nauth_fields = [\"x_user\"]",
        &["must be the name of a field with letters, digits and `-`"],
    ),
    (
        "auth = \"/a\"\nauth_fields = [\"X-Forwarded-For\"]",
        &["follows from the request, and no server can give it"],
    ),
    (
        "auth = \"/a\"\nauth_fields = [\"Content-Length\"]",
        &["follows from the request, and no server can give it"],
    ),
    ("statuses = [404]\nfallback = \"/a\"", &["`statuses` without `error_page`"]),
    ("error_page = \"/none.html\"", &["cannot show `/none.html`", "no such file or directory"]),
    ("error_page = \"/folder\"", &["cannot show `/folder`", "it is no file"]),
    ("error_page = \"/out.html\"", &["cannot show `/out.html`"]),
    ("error_page = \"/large.html\"", &["it has more than 64KiB"]),
    ("error_page = \"/bytes.html\"", &["it is no text in UTF-8"]),
    ("error_page = \"/404.html\"\nstatuses = [200]", &["must be the status of an error"]),
    ("error_page = \"/404.html\"\nstatuses = [\"3xx\"]", &["must be the status of an error"]),
    ("set = { X = \"1\" }\nbrowse = true", &["move `browse` above the first rule of its site"]),
    ("set = { X = \"1\" }\nworkers = 1", &["move `workers` to the top of the file"]),
    (
        "set = { X = \"1\" }\nredirct = \"/a\"",
        &["unknown key `redirct` in a rule", "did you mean `redirect`?"],
    ),
];

#[test]
fn wrong_rules_say_what_to_write() {
    let folder = Folder::new();
    let www = folder.path().join("www");
    fs::create_dir(www.join("folder")).unwrap();
    fs::create_dir(folder.path().join("other")).unwrap();
    fs::write(www.join("large.html"), vec![b'x'; 64 * 1024 + 1]).unwrap();
    fs::write(www.join("bytes.html"), b"\xff").unwrap();
    fs::write(folder.path().join("secret"), "secret").unwrap();
    let ann = "ann:$2y$05$h6UM9HCarBAVMwnRiQYRuOYeRV4x/6TcBjwooJMlnuMEYyNSMmXa.\n";
    for (name, text, mode) in [
        ("open", ann.to_owned(), 0o644),
        ("www/users", ann.to_owned(), 0o600),
        ("other/users", ann.to_owned(), 0o600),
        ("wrong", format!("{ann}bob:secret\n"), 0o600),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    std::os::unix::fs::symlink("../secret", www.join("out.html")).unwrap();
    for (rule, parts) in WRONG_RULES {
        let error = folder.error(&format!("root = \"www\"\n[[rule]]\n{rule}\n"));
        for part in *parts {
            assert!(error.contains(part), "{rule}\n--- must contain: {part}\n--- is:\n{error}");
        }
    }
    let site = "[[site]]\nhosts = [\"example.org\"]\nroot = \"www\"\n[[site.rule]]\npath = \"/*\"\n";
    assert!(
        folder.error(&format!("{site}redirect = \"https://Example.org:443/$1\"")).contains("in a circle")
    );
    folder.load(&format!("{site}redirect = \"https://www.example.org/$1\""));
}

#[test]
fn extensions_of_other_paths_stand_beside_a_script_for_missing_files() {
    let php = "[[route]]\nextension = \"php\"\nfastcgi = \"unix:/run/php.sock\"\n";
    let rules = "[[rule]]\npath = \"/docs/*\"\ntry_extensions = [\"html\"]\n[[rule]]\npath = \"/blog/*\"\nfallback = \"/i.php\"\n";
    let settings = Folder::new().load(&format!("root = \"www\"\n{rules}{php}"));
    assert_eq!(settings.sites[0].rules.len(), 2);
}

#[test]
fn circles_of_redirects_through_several_sites_are_found() {
    let folder = Folder::new();
    let site = |host: &str, path: &str, target: &str| {
        format!(
            "[[site]]\nhosts = [\"{host}\"]\nroot = \"www\"\n[[site.rule]]\npath = \"{path}\"\nredirect = \"{target}\"\n"
        )
    };
    let plain = site("a.example", "/*", "https://www.a.example/$1");
    for others in [
        site("www.a.example", "/*", "http://A.example:8080/$1"),
        site("*.a.example", "/*", "https://a.example/$1"),
        site("www.a.example", "/*", "https://b.example/$1")
            + &site("b.example", "/*", "https://a.example/$1"),
    ] {
        let warnings = folder.load(&format!("{plain}{others}")).warnings().join("\n");
        assert!(warnings.contains("site a.example and others redirect in a circle"), "{others}: {warnings}");
    }
    for others in [
        site("www.a.example", "/only", "https://www.a.example/other"),
        site("www.a.example", "/*", "https://c.example/$1"),
        // An address that no site names can be that of another server.
        "[[rule]]\npath = \"/*\"\nredirect = \"https://a.example/$1\"\n".to_owned(),
    ] {
        let default = if others.starts_with("[[rule]]") { "root = \"www\"\n" } else { "" };
        let warnings = folder.load(&format!("{default}{others}{plain}")).warnings().join("\n");
        assert!(!warnings.contains("circle"), "{others}: {warnings}");
    }
}

#[test]
fn a_rate_has_a_burst() {
    let folder = Folder::new();
    let rates = |text: &str| {
        let settings = folder.load(&format!("root = \"www\"\n[[rule]]\n{text}"));
        path_rules(&settings.sites[0].rules, SiteId(0)).rules()[0].rates
    };
    let rate = |interval_us, burst| Some(Rate { interval_us, burst });
    assert_eq!(rates("rate = \"5/s\"").of_client, rate(200_000, 5));
    assert_eq!(rates("rate = \"6/m\"\nburst = 1").of_client, rate(10_000_000, 1));
    let both = Rates { of_client: rate(3_600, 1_000_000), of_all: rate(1, 1_000_000) };
    assert_eq!(rates("rate = \"1000000/h\"\ntotal_rate = \"1000000/s\""), both);
}

#[test]
fn the_requests_of_a_client_and_of_all_are_bounded_apart() {
    let folder = Folder::new();
    let bounds = |text: &str| {
        let settings = folder.load(&format!("root = \"www\"\n[[rule]]\n{text}"));
        path_rules(&settings.sites[0].rules, SiteId(0)).rules()[0].concurrency
    };
    assert_eq!(bounds("concurrency = 5"), Concurrency { of_client: Some(5), of_all: None });
    assert_eq!(bounds("total_concurrency = 100"), Concurrency { of_client: None, of_all: Some(100) });
    assert_eq!(bounds("rate = \"1/s\""), Concurrency::default());
}

#[test]
fn the_bandwidth_of_a_client_and_of_all_are_bounded_apart() {
    let folder = Folder::new();
    let bounds = |text: &str| {
        let settings = folder.load(&format!("root = \"www\"\n[[rule]]\n{text}"));
        path_rules(&settings.sites[0].rules, SiteId(0)).rules()[0].bandwidth
    };
    let both = Bandwidth { of_client: Some(1_000_000), of_all: Some(12_500_000_000) };
    assert_eq!(bounds("bandwidth = \"8Mbit\"\ntotal_bandwidth = \"100Gbit\""), both);
    assert_eq!(bounds("total_bandwidth = \"64kbit\"").of_all, Some(8_000));
    assert_eq!(bounds("rate = \"1/s\""), Bandwidth::default());
}

#[test]
fn rules_that_no_request_reaches_are_reported() {
    let folder = Folder::new();
    let warnings = |rules: &[(&str, &str)]| {
        let rule =
            |(path, target): &(&str, &str)| format!("[[rule]]\npath = \"{path}\"\nredirect = \"{target}\"\n");
        let rules: String = rules.iter().map(rule).collect();
        folder.load(&format!("root = \"www\"\n{rules}")).warnings().join("\n")
    };
    assert_eq!(warnings(&[("/a", "/1"), ("/a*", "/2"), ("/b/*", "/3")]), "");
    for later in ["/a", "/a/*", "/a/*/b"] {
        let warning = warnings(&[("/a*", "/1"), (later, "/2")]);
        let never =
            format!("the default site never redirects {later}: an earlier rule, for /a*, has its paths");
        assert!(warning.contains(&never), "{warning}");
    }
    assert!(warnings(&[("/a", "/1"), ("/a", "/2")]).contains("never redirects /a"));
    let warnings = |text: &str| folder.load(&format!("root = \"www\"\n{text}")).warnings().join("\n");
    let fallback = "[[rule]]\npath = \"/a/*\"\nfallback = \"/a/x\"\n";
    let rewrite = "[[rule]]\npath = \"/a/*\"\nrewrite = \"/b\"\n";
    let redirect = "[[rule]]\npath = \"/a/*\"\nredirect = \"/c\"\n";
    let elsewhere = "[[rule]]\npath = \"/d\"\nrewrite = \"/a/d\"\n";
    let redirected = |verb: &str| format!("never {verb} /a/*: the rule for /a/* redirects its paths");
    assert_eq!(warnings(&format!("{fallback}{rewrite}")), "", "each kind for itself");
    assert!(warnings(&format!("{rewrite}{redirect}")).contains(&redirected("rewrites")));
    assert!(warnings(&format!("{fallback}{redirect}")).contains(&redirected("uses its fallback for")));
    assert_eq!(
        warnings(&format!("{elsewhere}{fallback}{redirect}")),
        "",
        "a rewritten path is not redirected"
    );
    let excepting = "[[rule]]\npath = \"/a/*\"\nexcept = [\"*.js\"]\nrewrite = \"/b\"\n";
    assert_eq!(warnings(&format!("{excepting}{rewrite}")), "", "the first does not have all paths");
    assert!(warnings(&format!("{rewrite}{rewrite}")).contains("the default site never rewrites /a/*"));
    assert!(warnings(&format!("{fallback}{fallback}")).contains("never uses its fallback for /a/*"));
    let trying = "[[rule]]\npath = \"/a/*\"\ntry_extensions = [\"html\"]\n";
    assert_eq!(warnings(&format!("{trying}{fallback}")), "", "each kind for itself");
    assert!(warnings(&format!("{trying}{trying}")).contains("never tries its extensions for /a/*"));
    let users = folder.path().join("users");
    fs::write(&users, "ann:$2y$05$h6UM9HCarBAVMwnRiQYRuOYeRV4x/6TcBjwooJMlnuMEYyNSMmXa.\n").unwrap();
    fs::set_permissions(users, fs::Permissions::from_mode(0o600)).unwrap();
    for (key, never) in [
        ("users = \"users\"", "never asks for the users of /a/*: an earlier rule, for *, has its paths"),
        (
            "auth = \"/ask/x\"",
            "never asks the server of `auth` about /a/*: an earlier rule, for *, has its paths",
        ),
    ] {
        let route = "[[route]]\nprefix = \"/ask/\"\nproxy = \"127.0.0.1:9\"\n";
        let (all, some) = (format!("[[rule]]\n{key}\n"), format!("[[rule]]\npath = \"/a/*\"\n{key}\n"));
        assert!(warnings(&format!("{all}{some}{route}")).contains(never), "{key}");
        assert!(!warnings(&format!("{some}{all}{redirect}{route}")).contains("never asks"), "{key}");
    }
    for (path, why) in [
        ("/a//b", "without empty segments"),
        ("/a/../b*", "without empty segments"),
        ("/a/..", "without empty segments"),
        ("/a%20b", "with decoded paths"),
    ] {
        let warning = warnings(&format!("[[rule]]\npath = \"{path}\"\nset = {{ X-A = \"1\" }}\n"));
        assert!(
            warning.contains(&format!("never applies its rule for {path}: ")) && warning.contains(why),
            "{warning}"
        );
    }
    for path in ["/a/..b", "/a/.*", "/100%", "/a/*/b", "*.html"] {
        assert_eq!(
            warnings(&format!("[[rule]]\npath = \"{path}\"\nset = {{ X-A = \"1\" }}\n")),
            "",
            "{path}"
        );
    }
    let route = "[[route]]\nprefix = \"/a/\"\nproxy = \"127.0.0.1:9\"\n";
    let behind = "never looks for files of /a/*: the route for /a/ has its paths";
    assert!(warnings(&format!("{fallback}{route}")).contains(behind));
    assert_eq!(warnings(&format!("{fallback}{route}files_first = true\n")), "");
    let alias = "[[rule]]\npath = \"/a/*\"\nalias = \"www\"\n";
    assert!(warnings(&format!("{alias}{alias}")).contains("never uses its alias for /a/*"));
}

#[test]
fn error_pages_are_read_at_the_start() {
    let folder = Folder::new();
    fs::write(folder.path().join("www/404.html"), "<p>none").unwrap();
    let settings = folder.load(
        r#"
        root = "www"
        [[rule]]
        error_page = "/404.html"
        statuses = [404, "5xx"]
        "#,
    );
    let [rule] = &settings.sites[0].rules[..] else { panic!("{:?}", settings.sites[0].rules) };
    assert_eq!(
        (rule.error_page.as_deref(), rule.error_html.as_deref()),
        (Some("/404.html"), Some("<p>none"))
    );
    assert_eq!(rule.statuses, ["404", "5xx"]);
    let rules = path_rules(&settings.sites[0].rules, SiteId(0));
    let page = rules.rules()[0].error_page.as_ref().unwrap();
    assert_eq!(page.statuses, [404..=404, 500..=599]);
}

#[test]
fn aliases_are_numbered_after_all_sites() {
    let folder = Folder::new();
    ["a", "b", "c"].iter().for_each(|name| fs::create_dir(folder.path().join(name)).unwrap());
    let secret = folder.path().join("secret");
    fs::write(&secret, "ann:$2y$05$h6UM9HCarBAVMwnRiQYRuOYeRV4x/6TcBjwooJMlnuMEYyNSMmXa.\n").unwrap();
    fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).unwrap();
    let settings = folder.load(
        r#"
        root = "www"
        [[rule]]
        path = "/one/*"
        alias = "a"
        users = "secret"
        [[rule]]
        path = "/two/*"
        except = ["/two/three/*"]
        alias = "b"
        [[site]]
        hosts = ["example.org"]
        root = "c"
        [[site.rule]]
        path = "/one/*"
        alias = "a"
        "#,
    );
    let names = |settings: &Settings| -> Vec<String> {
        let name = |folder: &FilePath| folder.file_name().unwrap().to_str().unwrap().to_owned();
        settings.folders().map(name).collect()
    };
    assert_eq!(names(&settings), ["www", "c", "a", "b", "a"]);
    let bare = settings.without_rules();
    assert_eq!(names(&bare), names(&settings), "each process has the same numbers");
    assert!(bare.sites[0].rules.iter().all(|rule| rule.users.is_none()));
    for settings in [&settings, &bare] {
        let sites = crate::convert::sites(settings);
        let place = |site: &SiteRules| {
            let AliasOf { site, prefix } = site.alias_of.clone()?;
            Some((site.0, String::from_utf8(prefix).unwrap()))
        };
        let places: Vec<_> = sites.iter().map(place).collect();
        let alias = |site, prefix: &str| Some((site, prefix.to_owned()));
        assert_eq!(places, [None, None, alias(0, "/one"), alias(0, "/two"), alias(1, "/one")]);
        let aliases =
            |site: usize| sites[site].paths.rules().iter().filter_map(|rule| rule.alias).collect::<Vec<_>>();
        assert_eq!((aliases(0), aliases(1)), (vec![SiteId(2), SiteId(3)], vec![SiteId(4)]));
    }
}

#[test]
fn aliases_have_a_bound() {
    let folder = Folder::new();
    let rules = |count: usize| -> String {
        (0..count).map(|number| format!("[[rule]]\npath = \"/{number}/*\"\nalias = \"www\"\n")).collect()
    };
    folder.load(&format!("root = \"www\"\n{}", rules(1_024)));
    let error = folder.error(&format!("root = \"www\"\n{}", rules(1_025)));
    assert!(error.contains("too many aliases") && error.contains("at most 1024"), "{error}");
}
