//! Prepares the start of a server: its folder, its command, its version.
//!
//! [`super::running`] calls it. It starts the server too, but does not wait for it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::SocketAddrV4;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use flash_waiting::program;

use super::peer::{Find, LOG, Recipe};
use super::{Testbed, template};
use flash_kit::{Error, Result};

/// How long the question for a version may take.
const VERSION_PATIENCE: Duration = Duration::from_secs(30);
/// The time between two looks at something that is waited for.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// Bytes read of the end of an output or a log.
pub(super) const LAST_BYTES: u64 = 4096;
/// Where programs are that PATH may lack for users.
const MORE_FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];
/// Names another program than this one for `{flash}`.
const FLASH: &str = "FLASH";
/// The socket of a server's backend, in the server's folder.
const SOCKET: &str = "backend.sock";
/// The files of the certificate and its key, in the server's folder.
const CERTIFICATE: &str = "lab.pem";
const CERTIFICATE_KEY: &str = "lab.key";
/// The flag of a UNIX socket that listens, in /proc/net/unix (`__SO_ACCEPTCON` of Linux).
const LISTENS: u64 = 1 << 16;

/// A fresh folder of temporary files, removed when dropped.
#[derive(Debug)]
pub(super) struct Folder(pub(super) PathBuf);

/// Numbers the folders of this process.
static FOLDERS: AtomicU32 = AtomicU32::new(0);

impl Folder {
    pub(super) fn make() -> Result<Self> {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        // An id comes again one day, and a lab that was killed left its folder: the time distinguishes them.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let name = format!("flash-lab-{}-{number}-{:x}", std::process::id(), now.as_micros());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).map_err(|why| Error::file("make", &path, &why))?;
        let folder = Self(path);
        // Servers change their user and still read and write here what root made for them.
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755))
            .map_err(|why| Error::file("open to all", &folder.0, &why))?;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(why) = fs::remove_dir_all(&self.0) {
            eprintln!("warning: {}", Error::file("remove", &self.0, &why));
        }
    }
}

/// The values of placeholders; the server passes dynamic requests to an application at `application`, if there is one.
///
/// Errors: usage, for `{core}` where the testbed has none, and for an application that the server does not use; run, for a file that is not found, and for a program that does not
/// know where it is itself.
pub(super) fn values(
    name: &str,
    recipe: &Recipe,
    testbed: &Testbed,
    root: &str,
    folder: &Path,
    (address, application): (SocketAddrV4, Option<SocketAddrV4>),
) -> Result<BTreeMap<String, String>> {
    let mut values = BTreeMap::new();
    let mut put = |name: &str, value: String| values.insert(name.to_owned(), value);
    put("root", root.to_owned());
    put("address", address.ip().to_string());
    put("port", address.port().to_string());
    put("folder", folder.display().to_string());
    put("log", folder.join(LOG).display().to_string());
    put("socket", socket(folder).display().to_string());
    for (placeholder, find) in recipe.find.iter().filter(|(name, _)| !recipe.set.contains_key(*name)) {
        put(placeholder, found(name, find)?.display().to_string());
    }
    let commands = || recipe.command.iter().chain(&recipe.backend).chain(&recipe.version);
    let texts = || commands().chain(recipe.files.values()).chain(recipe.set.values());
    if let (Some(address), Some(behind)) = (application, &testbed.application) {
        if !texts().any(|text| text.contains("{application")) {
            return Err(Error::usage(format!(
                "{name} passes no requests to an application: use {{application}} in its command or files (docs/peers.md)"
            )));
        }
        put("application", address.to_string());
        put("application_port", address.port().to_string());
        put("dynamic", behind.prefix.clone());
    }
    if testbed.certificate.is_some() {
        if !texts().any(|text| text.contains("{certificate}") || text.contains("{with tls}")) {
            return Err(Error::usage(format!(
                "{name} cannot be started with TLS: use {{certificate}} in its command or files (docs/peers.md)"
            )));
        }
        put("certificate", folder.join(CERTIFICATE).display().to_string());
        put("certificate_key", folder.join(CERTIFICATE_KEY).display().to_string());
    }
    match testbed.core {
        Some(core) => {
            put("core", core.to_string());
        }
        None if texts().any(|text| text.contains("{core}")) => {
            return Err(Error::usage(format!(
                "{name} uses {{core}}, and the testbed gives it none: set one"
            )));
        }
        None => {}
    }
    if texts().any(|text| text.contains("{flash}")) {
        put("flash", flash_program()?.display().to_string());
    }
    // A value of `set` can have placeholders in turn, also others of `set`, whose own are not filled in again.
    let mut all = recipe.set.clone();
    all.extend(values.clone());
    values.extend(recipe.set.iter().map(|(name, text)| (name.clone(), template::fill(text, &all))));
    Ok(values)
}

/// Writes the certificate of a testbed and its key, if it has one.
///
/// Errors: run, when they cannot be written.
pub(super) fn write_certificate(testbed: &Testbed, folder: &Path) -> Result<()> {
    let Some(certificate) = &testbed.certificate else { return Ok(()) };
    for (name, text) in [(CERTIFICATE, &certificate.pem), (CERTIFICATE_KEY, &certificate.key_pem)] {
        let path = folder.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|why| Error::file("write", &path, &why))?;
    }
    Ok(())
}

/// This very program, or the one that the environment's FLASH names.
///
/// Errors: run, when it is not found.
pub(crate) fn flash_program() -> Result<PathBuf> {
    match std::env::var_os(FLASH) {
        Some(path) => Ok(path.into()),
        None => std::env::current_exe().map_err(|why| Error::run(format!("cannot find this program: {why}"))),
    }
}

/// Where a server's backend listens.
pub(super) fn socket(folder: &Path) -> PathBuf {
    folder.join(SOCKET)
}

/// Whether a UNIX socket of any type at `path` listens. Asked of the kernel, since std connects to no `SOCK_SEQPACKET`
/// and a backend should see no client before its server.
pub(super) fn listens(path: &Path) -> bool {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    // "Num RefCount Protocol Flags Type St Inode Path" (proc(5)).
    let is_it = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let flags = fields.nth(3).and_then(|flags| u64::from_str_radix(flags, 16).ok());
        let is_here = fields.nth(3).is_some_and(|shown| Path::new(shown) == path);
        is_here && flags.is_some_and(|flags| flags & LISTENS != 0)
    };
    sockets.lines().any(is_it)
}

/// The first place where a file is.
///
/// Errors: run, when it is in none, with the command that builds it.
pub(super) fn found(name: &str, find: &Find) -> Result<PathBuf> {
    find.paths.iter().find_map(|path| near_this_program(path)).ok_or_else(|| {
        Error::run(format!(
            "cannot start {name}: there is no {}; build it with `{}`, or name it in a peers.toml by `set`",
            find.paths.join(" and no "),
            find.build
        ))
    })
}

/// A file below the folder of this program or one above it, or with an absolute path; none where there is none.
pub(super) fn near_this_program(path: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().unwrap_or_default();
    let mut places = program.ancestors().skip(1).map(|folder| folder.join(path));
    places.find(|path| path.is_file())
}

/// A command in a clean environment.
pub(super) fn command(
    name: &str,
    recipe: &Recipe,
    words: &[String],
    values: &BTreeMap<String, String>,
    folder: &Path,
) -> Result<Command> {
    let mut words = words.iter().map(|word| template::fill(word, values));
    let first = words.next().unwrap_or_default();
    let mut command = Command::new(program_path(name, recipe, &first)?);
    command.args(words).stdin(Stdio::null()).env_clear().env("PATH", search_path()).env("LANG", "C");
    for home in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
        command.env(home, folder);
    }
    command.envs(recipe.env.iter().map(|(name, value)| (name, template::fill(value, values))));
    Ok(command)
}

fn search_path() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let folders = std::env::split_paths(&path).chain(MORE_FOLDERS.map(PathBuf::from));
    std::env::join_paths(folders).unwrap_or(path)
}

pub(super) fn program_path(name: &str, recipe: &Recipe, program: &str) -> Result<PathBuf> {
    let is_program = |path: &Path| {
        fs::metadata(path).is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    };
    let found = if program.contains(['/', '{']) {
        // A path with a placeholder is checked once it is filled in.
        Some(PathBuf::from(program)).filter(|path| program.contains('{') || is_program(path))
    } else {
        std::env::split_paths(&search_path()).map(|folder| folder.join(program)).find(|path| is_program(path))
    };
    found.ok_or_else(|| {
        let advice = match &recipe.package {
            Some(package) => format!("install it (on Debian: apt-get install {package})"),
            None => "install it, or correct `command`".to_owned(),
        };
        Error::run(format!("cannot start {name}: there is no program {program}; {advice}"))
    })
}

/// Commands that run beside each other as results show them: without folders and ports of this run.
pub(super) fn shown(commands: &[&[String]], set: &BTreeMap<String, String>) -> String {
    let word = |word: &String| {
        let word = template::fill(word, set).replace("{flash}", "flash");
        let is_plain =
            !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || "'\"\\$;&|<>()".contains(c));
        if is_plain { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    let command = |words: &&[String]| words.iter().map(word).collect::<Vec<_>>().join(" ");
    let commands = commands.iter().filter(|words| !words.is_empty());
    commands.map(command).collect::<Vec<_>>().join(" & ")
}

/// Starts a server from a thread that lives until the sender is dropped: the kernel ends it with the
/// thread that started it, and callers' threads come and go.
pub(super) fn start_kept(
    mut command: Command,
    place: program::Placement,
) -> std::io::Result<(Child, Sender<()>)> {
    let (tell, told) = mpsc::channel();
    let (keeper, is_over) = mpsc::channel::<()>();
    thread::Builder::new().name("keeper".to_owned()).spawn(move || {
        let _ = tell.send(program::start(&mut command, place));
        // The groups' entrances are closed with it.
        drop(command);
        let _ = is_over.recv();
    })?;
    let child = told.recv().map_err(|_| std::io::Error::other("the thread that starts it ended"))??;
    Ok((child, keeper))
}

/// The first line of what a server says of its version; none when it says nothing in time.
pub(super) fn version(
    name: &str,
    recipe: &Recipe,
    values: &BTreeMap<String, String>,
    folder: &Path,
) -> Option<String> {
    let mut command = command(name, recipe, &recipe.version, values, folder).ok()?;
    let path = folder.join("version.txt");
    let out = File::create(&path).ok()?;
    command.stdout(out.try_clone().ok()?).stderr(out);
    let mut child = command.spawn().ok()?;
    let deadline = Instant::now() + VERSION_PATIENCE;
    while child.try_wait().ok()?.is_none() {
        if Instant::now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            break;
        }
        thread::sleep(LOOK);
    }
    let mut said = Vec::new();
    File::open(&path).and_then(|file| file.take(LAST_BYTES).read_to_end(&mut said)).ok()?;
    let said = String::from_utf8_lossy(&said);
    said.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}
