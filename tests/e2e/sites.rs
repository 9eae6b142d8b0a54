//! The tasks of `docs/sites.md`, with their files, commands and clients, as they are written there.

use std::fmt::Display;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::upstream::Program;
use crate::harness::{
    Folder, Launch, PATIENCE, address_to_give, only_plain, skip, skips, wait_until, without_settings,
};

/// The blocks of a document that belong to a test, in their order.
fn blocks(document: &str, test: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let text = fs::read_to_string(path).expect(document);
    let mark = format!("<!-- checked by: {test} -->\n```");
    let of_block = |rest: &str| {
        let (_, rest) = rest.split_once('\n').expect("a language");
        rest.split("```").next().unwrap_or_default().to_owned()
    };
    text.split(&mark).skip(1).map(of_block).collect()
}

/// The names and addresses of the document, and those of a test.
#[derive(Default)]
struct Stand(Vec<(&'static str, String)>);

impl Stand {
    fn with(mut self, written: &'static str, real: &dyn Display) -> Self {
        self.0.push((written, real.to_string()));
        self
    }

    fn real(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (written, real)| text.replace(written, real))
    }

    fn written(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (written, real)| text.replace(real, written))
    }

    /// Runs the commands of a transcript in a folder, and compares what they print. Those that read a log are repeated until it has
    /// what they expect.
    #[track_caller]
    fn follow(&self, transcript: &str, folder: &Path, variables: &[(&str, PathBuf)]) {
        let program = Path::new(env!("CARGO_BIN_EXE_flash")).parent().expect("a folder");
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
        for part in transcript.split("$ ").filter(|part| !part.is_empty()) {
            let (command, expected) = part.split_once('\n').expect("a line");
            let run = || {
                let mut shell = Command::new("sh");
                shell.args(["-c", &self.real(command)]).current_dir(folder).env("PATH", &path);
                without_settings(&mut shell);
                shell
                    .env("no_proxy", "*")
                    .env("PIP_CONFIG_FILE", "/dev/null")
                    .env_remove("PIP_EXTRA_INDEX_URL");
                let output = shell.envs(variables.iter().cloned()).output().expect("sh");
                self.written(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()))
            };
            let (began, is_repeated) = (Instant::now(), command.starts_with("grep "));
            let mut printed = run();
            while is_repeated && printed != expected && began.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(50));
                printed = run();
            }
            assert_eq!(printed, expected, "{command}");
        }
    }
}

/// The number of workers depends on the machine.
fn with_workers(transcript: &str) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = if cores == 1 { "1 worker".to_owned() } else { format!("{cores} workers") };
    transcript.replace("2 workers", &workers)
}

/// Whether the test cannot run here: the documents use curl, plain HTTP, and the default architecture.
fn lacks(programs: &[&str]) -> bool {
    if only_plain("the documents show curl with plain HTTP")
        || skips(&["sped", "mp", "mt"], "the documents show the default architecture")
    {
        return true;
    }
    let is_missing = |program: &&&str| Command::new(program).arg("--version").output().is_err();
    if let Some(program) = programs.iter().find(is_missing) {
        skip(&format!("{program} is not installed"));
        return true;
    }
    false
}

/// Writes a repository of Debian and an index of Python with one package each, by the programs that make them.
fn write_packages(mirror: &Path) {
    const SCRIPT: &str = r#"
set -e
mkdir -p debian/pool debian/dists/stable/main/binary-all debian/dists/stable/main/binary-amd64 pypi/simple/hello-mirror package/DEBIAN
printf 'Package: hello-mirror\nVersion: 1.0\nArchitecture: all\nMaintainer: A <a@example.org>\nDescription: a test\n' > package/DEBIAN/control
dpkg-deb --root-owner-group -b package debian/pool/hello-mirror_1.0_all.deb > /dev/null
rm -r package
cd debian
dpkg-scanpackages -m pool 2> /dev/null > dists/stable/main/binary-all/Packages
cp dists/stable/main/binary-all/Packages dists/stable/main/binary-amd64/Packages
(
    LC_ALL=C date -u '+Date: %a, %d %b %Y %H:%M:%S UTC'
    echo 'Suite: stable'; echo 'Codename: stable'; echo 'Components: main'; echo 'Architectures: all amd64'; echo 'SHA256:'
    cd dists/stable
    for file in main/binary-*/Packages; do
        echo " $(sha256sum "$file" | cut -d' ' -f1) $(stat -c %s "$file") $file"
    done
) > Release.new
mv Release.new dists/stable/Release
cd ..
python3 - <<'END'
import base64, hashlib, zipfile
files = {"hello_mirror.py": "print('hi')\n",
         "hello_mirror-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: hello-mirror\nVersion: 1.0\n",
         "hello_mirror-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
record = ""
with zipfile.ZipFile("pypi/simple/hello-mirror/hello_mirror-1.0-py3-none-any.whl", "w") as wheel:
    for name, text in files.items():
        wheel.writestr(name, text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(text)}\n"
    wheel.writestr("hello_mirror-1.0.dist-info/RECORD", record + "hello_mirror-1.0.dist-info/RECORD,,\n")
END
"#;
    let output = Command::new("sh").args(["-c", SCRIPT]).current_dir(mirror).output().expect("sh");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The settings of apt with folders of its own, and one source.
fn write_apt(folder: &Folder, source: &str) -> PathBuf {
    let apt = folder.path("apt");
    for name in ["state/lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d"] {
        fs::create_dir_all(apt.join(name)).unwrap();
    }
    fs::write(apt.join("status"), "").unwrap();
    fs::write(apt.join("etc/sources.list"), format!("{source}\n")).unwrap();
    let lines = ["", "::State", "::State::status", "::Cache", "::Etc", "::Etc::sourcelist", "::Log"]
        .iter()
        .zip(["", "state", "status", "cache", "etc", "etc/sources.list", ""]);
    let lines = lines.map(|(key, name)| format!("Dir{key} \"{}\";\n", apt.join(name).display()));
    let more = "Dir::Etc::sourceparts \"-\";\nAPT::Architecture \"amd64\";\nAPT::Sandbox::User \"root\";\nAcquire::Languages \"none\";\n";
    folder.write("apt.conf", lines.collect::<String>() + more)
}

#[test]
fn the_commands_of_the_readme_serve_a_mirror() {
    if skips(&["sped", "mp", "mt"], "the document uses the default")
        || only_plain("the document uses plain HTTP")
    {
        return;
    }
    let folder = Folder::with_hello();
    let stand = Stand::default()
        .with("/var/log/flash", &folder.path("logs").display())
        .with("/srv/mirror", &folder.path("www").display())
        .with("0.0.0.0:80", &"127.0.0.1:0");
    let [commands] = &blocks("README.md", "the_commands_of_the_readme_serve_a_mirror")[..] else {
        panic!("one block")
    };
    let commands = stand.real(commands);
    let (make, serve) = commands.trim().split_once('\n').expect("two commands");
    assert!(Command::new("sh").args(["-c", make]).status().expect("sh").success());
    let words = serve.strip_prefix("flash serve ").expect("flash serve").split(' ');
    let server = words.fold(Launch::bare(), |launch, word| launch.arg(word)).start();
    assert!(server.get("/").text().contains("hello.txt"), "a listing");
    assert_eq!(server.get("/hello.txt").status, 200);
    let has_line =
        || fs::read_to_string(folder.path("logs/access.log")).is_ok_and(|log| log.contains("/hello.txt"));
    wait_until("the line", has_line);
}

#[test]
fn a_package_mirror_moves_from_nginx() {
    if lacks(&["apt-get", "dpkg-deb", "dpkg-scanpackages", "python3", "pip", "curl"]) {
        return;
    }
    let folder = Folder::new();
    let mirror = folder.path("www");
    write_packages(&mirror);
    let address = address_to_give();
    let parts = blocks("docs/sites.md", "a_package_mirror_moves_from_nginx");
    let [nginx, migration, clients, update] = &parts[..] else { panic!("{parts:?}") };
    fs::create_dir(folder.path("client")).unwrap();
    let stand = Stand::default()
        .with("/etc/nginx/sites-available/mirror", &folder.path("mirror").display())
        .with("/srv/mirror", &mirror.display())
        .with("/etc/flash", &folder.path("").display().to_string().trim_end_matches('/'))
        .with("listen 8080", &format!("listen {address}"))
        .with("0.0.0.0:8080", &address)
        .with("127.0.0.1:8080", &address);
    folder.write("mirror", stand.real(nginx));
    stand.follow(&with_workers(migration), &folder.path("client"), &[]);
    let config = fs::read_to_string(folder.path("flash.toml")).unwrap();
    let _server = Launch::configured(&folder, &config).start();
    let source = stand.real("deb [trusted=yes] http://127.0.0.1:8080/debian stable main");
    let apt = [("APT_CONFIG", write_apt(&folder, &source))];
    stand.follow(clients, &folder.path("client"), &apt);
    stand.follow(update, &folder.path("client"), &apt);
}

#[test]
fn an_app_of_a_single_page_has_an_api_for_users() {
    if lacks(&["node", "curl"]) {
        return;
    }
    let folder = Folder::new();
    let page = "<!doctype html><script type=\"module\" src=\"/assets/index-3f2a9c1b.js\"></script>\n";
    folder.www("index.html", page);
    folder.www("assets/index-3f2a9c1b.js", "console.log('hello')");
    // `ann`, whose password is `secret`, stored by `htpasswd -B`.
    let users = folder.write("users", "ann:$2y$05$h6UM9HCarBAVMwnRiQYRuOYeRV4x/6TcBjwooJMlnuMEYyNSMmXa.\n");
    fs::set_permissions(users, fs::Permissions::from_mode(0o600)).unwrap();
    let parts = blocks("docs/sites.md", "an_app_of_a_single_page_has_an_api_for_users");
    let [config, api, check, clients] = &parts[..] else { panic!("{parts:?}") };
    let (own, of_api) = (address_to_give(), address_to_give());
    let stand = Stand::default()
        .with("/srv/app", &folder.path("www").display())
        .with("/etc/flash", &folder.path("").display().to_string().trim_end_matches('/'))
        .with("127.0.0.1:3000", &of_api)
        .with("127.0.0.1:8080", &own);
    let ready = format!("require('net').createServer().listen('{}');\n", folder.path("ready.sock").display());
    let port = format!("listen({}, ", of_api.port());
    let script = folder.write("api.js", api.replace("listen(3000, ", &port) + &ready);
    let mut command = Command::new("node");
    command.arg(script);
    let _api = Program::start(command, &folder.path("ready.sock"), &folder.path("api.log"));
    folder.write("flash.toml", stand.real(config));
    stand.follow(&with_workers(check), &folder.path(""), &[]);
    let _server = Launch::configured(&folder, &stand.real(config)).start();
    stand.follow(clients, &folder.path(""), &[]);
}

#[test]
fn map_tiles_are_served_behind_haproxy() {
    if lacks(&["curl"]) {
        return;
    }
    let haproxy = Path::new("/usr/sbin/haproxy");
    if !haproxy.exists() {
        return skip("haproxy or curl is not installed");
    }
    let folder = Folder::new();
    folder.www("tiles/3/1/2.png", "a tile");
    folder.www("export/world.zip", "the world");
    let parts = blocks("docs/sites.md", "map_tiles_are_served_behind_haproxy");
    let [proxy, config, clients] = &parts[..] else { panic!("{parts:?}") };
    let (own, of_proxy) = (address_to_give(), address_to_give());
    let stand = Stand::default()
        .with("/srv/tiles", &folder.path("www").display())
        .with("/var/log/flash/access.log", &folder.path("access.log").display())
        .with("127.0.0.1:8081", &own)
        .with("127.0.0.1:8080", &of_proxy);
    let _server = Launch::configured(&folder, &stand.real(config)).start();
    let ready = format!("bind {of_proxy}\n    bind {}", folder.path("ready.sock").display());
    let proxy = stand.real(proxy).replace(&format!("bind {of_proxy}"), &ready);
    let mut command = Command::new(haproxy);
    command.arg("-db").arg("-f").arg(folder.write("haproxy.cfg", proxy));
    let _haproxy = Program::start(command, &folder.path("ready.sock"), &folder.path("haproxy.log"));
    stand.follow(clients, &folder.path(""), &[]);
}
