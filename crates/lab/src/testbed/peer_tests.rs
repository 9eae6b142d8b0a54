//! Tests of what a `peers.toml` says.

use super::*;

fn read(text: &str) -> Result<Peers> {
    Source { name: "peers.toml".to_owned(), text }.peers()
}

fn recipe(peer: &Peer) -> &Recipe {
    match &peer.kind {
        Kind::Started(recipe) => recipe,
        Kind::Elsewhere { .. } => panic!("{peer:?} is not started"),
    }
}

#[test]
fn every_ready_made_server_is_right_and_has_its_name() {
    for (name, text) in READY_MADE {
        let peers = Source { name: format!("{name}.toml"), text }.peers().unwrap();
        assert_eq!(peers.servers.len(), 1, "{name}");
        let peer = ready_made(name).unwrap();
        assert_eq!(peer.name, name);
        let recipe = recipe(&peer);
        assert!(!recipe.version.is_empty(), "{name}");
        assert!(name == "flash" || recipe.package.is_some(), "{name}");
        // Each knows its folder, its port and that it is for this machine alone, in its command or in a file of its own.
        let commands = || recipe.command.iter().chain(&recipe.backend);
        let texts: String = commands().chain(recipe.files.values()).cloned().collect();
        for wanted in ["{root}", "{port}", "{address}", "{application", "{dynamic}"] {
            assert!(texts.contains(wanted), "{name} lacks {wanted}");
        }
        for file in recipe.files.keys() {
            let place = format!("{{folder}}/{file}");
            assert!(recipe.command.iter().any(|word| word.ends_with(&place)), "{name}");
        }
        // Every word in braces has a meaning, except the braces of the servers' own configuration.
        for text in commands().chain(recipe.files.values()).chain(recipe.set.values()) {
            let is_known = |name: &str| recipe.set.contains_key(name) || recipe.find.contains_key(name);
            assert_eq!(template::unknown(text, is_known), None, "{name}");
        }
    }
    assert!(ready_made("iis").is_none());
    assert_eq!(ready_made_names().len(), 12);
}

#[test]
fn a_whole_file_is_read() {
    let peers = read(
        r#"
        [testbed]
        root = "/srv/set"
        memory = "512MB"
        reads_per_s = 150
        cpu_percent = 20
        core = 0
        load_core = 1

        [[server]]
        name = "many threads"
        like = "apache-event"
        note = "2048 threads"
        set = { workers = "2048", processes = "16", threads = "128" }
        patience_s = 30

        [[server]]
        name = "mine"
        command = ["./mine", "--port={port}"]
        backend = ["./behind", "{socket}", "{module}"]
        env = { MODE = "fast" }
        ready = ""
        stop = "SIGQUIT"
        [[server.file]]
        name = "mine.conf"
        text = "root {root}"
        [server.find.module]
        paths = ["build/mine.so", "/usr/lib/mine.so"]
        build = "make"

        [[server]]
        name = "theirs"
        url = "http://127.0.0.1:8080"
        pid = 77
        "#,
    )
    .unwrap();
    let testbed = Testbed {
        root: Some("/srv/set".into()),
        core: Some(0),
        memory_bytes: Some(512_000_000),
        reads_per_s: Some(150),
        cpu_percent: Some(20),
        ..Testbed::default()
    };
    assert_eq!((&peers.testbed, peers.load_core), (&testbed, Some(1)));
    let [threads, mine, theirs] = &peers.servers[..] else { panic!("{peers:?}") };
    assert_eq!((threads.name.as_str(), threads.note.as_str()), ("many threads", "2048 threads"));
    assert_eq!(recipe(threads).set["threads"], "128");
    assert_eq!(recipe(threads).wait.patience, Duration::from_secs(30));
    assert!(recipe(threads).files["apache.conf"].contains("mpm_event"));
    assert_eq!(recipe(mine).command, ["./mine", "--port={port}"]);
    assert_eq!(recipe(mine).backend, ["./behind", "{socket}", "{module}"]);
    assert_eq!(recipe(mine).find["module"].paths, ["build/mine.so", "/usr/lib/mine.so"]);
    assert_eq!(recipe(mine).wait.path, None);
    assert_eq!(recipe(mine).stop, Some(Signal::QUIT));
    assert_eq!(recipe(mine).files["mine.conf"], "root {root}");
    assert_eq!(recipe(mine).env["MODE"], "fast");
    assert!(
        matches!(&theirs.kind, Kind::Elsewhere { url, pid: Some(77), .. } if url == "http://127.0.0.1:8080")
    );
}

#[test]
fn what_is_like_another_keeps_what_it_does_not_change() {
    let aio = ready_made("nginx-aio").unwrap();
    let nginx = ready_made("nginx").unwrap();
    assert_eq!(recipe(&aio).files, recipe(&nginx).files);
    assert_eq!((&*recipe(&aio).set["aio"], &*recipe(&aio).set["workers"]), ("aio threads;", "1"));
    let other = read("[[server]]\nname = \"n\"\nlike = \"nginx\"\n").unwrap();
    assert_eq!(other.servers[0].note, nginx.note);
    let two = read("[[server]]\nname = \"n\"\nlike = \"nginx\"\nset = { workers = \"2\" }\n").unwrap();
    assert_eq!(two.servers[0].note, "like nginx with workers 2");
}

#[test]
fn mistakes_are_shown_with_their_line_and_what_is_possible() {
    for (text, line, what) in [
        ("[[server]\n", 1, ""),
        ("[[server]]\nname = \"x\"\n\ncomand = [\"x\"]\n", 4, "unknown field `comand`, expected one of"),
        ("[[server]]\ncommand = [\"x\"]\n", 1, "missing field `name`"),
        ("[testbed]\ncores = 1\n", 2, "unknown field `cores`, expected one of"),
        (
            "[testbed]\n\nmemory = \"1 mile\"\n[[server]]\nname = \"x\"\nurl = \"u\"\n",
            3,
            "'1 mile': not a size",
        ),
        ("[testbed]\nreads_per_s = 0\n[[server]]\nname = \"x\"\nurl = \"u\"\n", 2, "would stop the disk"),
        ("[testbed]\nreads_per_s = -1\n", 2, "-1"),
        ("[testbed]\ncpu_percent = 0\n[[server]]\nname = \"x\"\nurl = \"u\"\n", 2, "would stop the server"),
        ("\n", 2, "0 servers are listed"),
        ("[[server]]\nname = \"\"\nurl = \"u\"\n", 2, "needs a name"),
        ("[[server]]\nname = \"x\"\n", 2, "neither command, url nor like"),
        ("[[server]]\nname = \"x\"\ncommand = []\n", 2, "neither command, url nor like"),
        (
            "[[server]]\nname = \"x\"\ncommand = [\"x\"]\nbackend = [\"{so}\"]\n",
            4,
            "there is no {so}; there are {root}",
        ),
        (
            "[[server]]\nname = \"x\"\n[server.find.SO]\npaths = [\"/x\"]\nbuild = \"make\"\n",
            3,
            "'SO' can't be set",
        ),
        ("[[server]]\nname = \"x\"\n[server.find.so]\npaths = []\nbuild = \"make\"\n", 3, "'so' has no path"),
        ("[[server]]\nname = \"x\"\nlike = \"iis\"\n", 3, "there are flash, nginx, nginx-aio, apache-event"),
        ("[[server]]\nname = \"x\"\nlike = \"nginx\"\nurl = \"u\"\n", 4, "leave out command and like"),
        ("[[server]]\nname = \"x\"\ncommand = [\"x\"]\npid = 7\n", 4, "has a pid and no url"),
        (
            "[[server]]\nname = \"x\"\ncommand = [\"x\",\n\"{prot}\"]\n",
            3,
            "there is no {prot}; there are {root}, {address}, {port}",
        ),
        ("[[server]]\nname = \"x\"\ncommand = [\"x\"]\nstop = \"STOP\"\n", 4, "there are TERM"),
        ("[[server]]\nname = \"x\"\ncommand = [\"x\"]\nready = \"index\"\n", 4, "must be a path"),
        ("[[server]]\nname = \"x\"\ncommand = [\"x\"]\nready = \"/ HTTP\"\n", 4, "must be a path"),
        ("[[server]]\nname = \"x\"\ncommand = [\"x\"]\npatience_s = 0\n", 4, "above 0"),
        ("[[server]]\nname = \"x\"\ncommand = [\"x\"]\npatience_s = nan\n", 4, "above 0"),
        ("[[server]]\nname = \"x\"\ncommand = [\"x\"]\nset = { port = \"1\" }\n", 4, "can't be set"),
        (
            "[[server]]\nname = \"x\"\nurl = \"u\"\n[[server]]\nname = \"x\"\nurl = \"u\"\n",
            5,
            "a server 'x' already",
        ),
        (
            "[[server]]\nname = \"x\"\ncommand = [\"x\"]\n[[server.file]]\nname = \"../x\"\ntext = \"\"\n",
            5,
            "plain one",
        ),
        (
            "[[server]]\nname = \"x\"\ncommand = [\"x\"]\n[[server.file]]\nname = \"server.log\"\ntext = \"\"\n",
            5,
            "not server.log",
        ),
    ] {
        let error = read(text).unwrap_err();
        let shown = error.to_string();
        assert!(
            shown.starts_with(&format!("peers.toml, line {line}: ")) && shown.contains(what),
            "{text}{shown}"
        );
        assert_eq!(error.exit_code(), 2);
    }
}

#[test]
fn files_that_are_no_lists_are_refused() {
    let missing = read_peers(Path::new("/not/there.toml")).unwrap_err();
    assert_eq!(missing.exit_code(), 1);
    assert!(missing.to_string().contains("/not/there.toml"), "{missing}");
    // Endless, and not UTF-8 or too long: never read to the end.
    assert!(read_peers(Path::new("/dev/zero")).is_err());
}
