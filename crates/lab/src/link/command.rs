//! `flash link`: commands on the two sides of a link.
//!
//! The command line calls it. All text of its own goes to standard error, because standard output belongs to the client's
//! command.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use flash_kit::processes::{Stat, exit_code};
use flash_kit::{Error, Result, Stop, interrupt};
use flash_waiting::program::{self, Signal};

use super::counters::{Counters, Counts};
use super::settings::{CLIENT, SERVER, Settings};
use super::{Link, Side, describe};

/// How long the server's command may take until it listens, and until it has ended.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two looks at it.
const LOOK: Duration = Duration::from_millis(20);
/// Descriptors of each command, as for servers of the testbed.
const DESCRIPTORS: u64 = 131_072;
/// The exit code without a client's command, which only a signal ends.
const EXIT_INTERRUPTED: u8 = 130;

#[derive(Clone, Debug)]
pub struct LinkOptions {
    pub settings: Settings,
    /// A command of the shell for the server's side; without one, nothing is started there.
    pub server: Option<String>,
    /// The program of the client's side and its arguments; without one, the link stays until a signal.
    pub client: Vec<String>,
    /// The file for the counts.
    pub json: Option<PathBuf>,
}

/// The file that `--json` names.
#[derive(Serialize)]
struct Document {
    to_client_total: Counts,
    to_server_total: Counts,
    #[serde(flatten)]
    counters: Counters,
}

/// Makes the link, runs the commands, prints the counts, and ends what is left of the server's command. Returns the exit
/// code of the client's command: 128 and the signal's number where a signal ended it.
///
/// Errors: usage, for settings out of their bounds; run, if the link cannot be made, or a command cannot be started, or the server's
/// ends before it listens on a TCP port.
pub fn run(options: &LinkOptions) -> Result<u8> {
    let stop = interrupt::watch()?;
    let link = Link::start(&options.settings)?;
    eprint!(
        "link: the server's side is {SERVER}, the client's {CLIENT}\n{}",
        describe::settings(&options.settings)
    );
    let server =
        options.server.as_ref().map(|command| Program::start_server(&link, command, &stop)).transpose()?;
    let code = match options.client.split_first() {
        Some((name, arguments)) => {
            let mut command = Command::new(name);
            command.args(arguments);
            let mut client = Program::start(&link.client, command)?;
            while client.is_alive() && !stop.is_set() {
                thread::sleep(LOOK);
            }
            client.end().map_or(1, exit_code)
        }
        None => {
            invite(&link);
            wait_for_signal(server.as_ref(), &stop)?;
            EXIT_INTERRUPTED
        }
    };
    let counters = link.counters()?;
    drop(server);
    eprint!("{}", describe::counters(&options.settings, &counters));
    if let Some(path) = &options.json {
        let document = Document {
            to_client_total: counters.to_client.total(),
            to_server_total: counters.to_server.total(),
            counters,
        };
        let text = serde_json::to_string_pretty(&document).unwrap_or_default() + "\n";
        fs::write(path, text).map_err(|why| Error::file("write", path, &why))?;
    }
    Ok(code)
}

/// Says how other programs enter the sides.
fn invite(link: &Link) {
    for side in [&link.server, &link.client] {
        eprintln!("to run a command on the {}'s side: nsenter --net={} COMMAND", side.name, side.path());
    }
    eprintln!("the link stays until Ctrl-C");
}

fn wait_for_signal(server: Option<&Program>, stop: &Stop) -> Result<()> {
    while !stop.is_set() {
        if server.is_some_and(|server| !server.is_alive()) {
            return Err(Error::run("the server's command has ended"));
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// A command on one side. Dropped, it is ended, with its process group. Until then it is not waited for, so that its
/// number, and that of its group, are its own.
#[derive(Debug)]
struct Program {
    /// None once it has ended and was waited for.
    child: Option<Child>,
}

impl Program {
    fn start(side: &Side, mut command: Command) -> Result<Self> {
        command.env("LINK_SERVER", SERVER.to_string()).env("LINK_CLIENT", CLIENT.to_string());
        let place = program::Placement {
            core: None,
            groups: Vec::new(),
            descriptors: DESCRIPTORS,
            network: Some(side.entrance()?),
            parent_death: Signal::KILL,
        };
        let name = command.get_program().display().to_string();
        let started = program::start(&mut command, place);
        let child = started.map_err(|why| Error::run(format!("cannot start {name}: {why}")))?;
        Ok(Self { child: Some(child) })
    }

    /// Starts the server's command and waits until a program on its side listens.
    fn start_server(link: &Link, text: &str, stop: &Stop) -> Result<Self> {
        let mut command = Command::new("/bin/sh");
        // Standard output belongs to the client's command, whose results the user may want to pass on.
        command.args(["-c", text]).stdin(Stdio::null()).stdout(std::io::stderr());
        let server = Self::start(&link.server, command)?;
        let deadline = Instant::now() + PATIENCE;
        while !link.server.has_listener()? {
            let failed = match () {
                () if !server.is_alive() => "ended",
                () if stop.is_set() => "was interrupted",
                () if Instant::now() >= deadline => "did nothing for 10 s",
                () => {
                    thread::sleep(LOOK);
                    continue;
                }
            };
            return Err(Error::run(format!(
                "the server's command {failed} before it listened on a TCP port of {SERVER} or all addresses: {text}"
            )));
        }
        Ok(server)
    }

    fn is_alive(&self) -> bool {
        let stat = self.child.as_ref().and_then(|child| Stat::read(child.id()));
        stat.is_some_and(|stat| !stat.is_zombie)
    }

    /// Ends it and the rest of its process group; none if its status cannot be learned.
    fn end(&mut self) -> Option<ExitStatus> {
        let group = self.child.as_ref()?.id();
        let deadline = Instant::now() + PATIENCE;
        let _ = program::signal_group(group, Signal::TERM);
        while self.is_alive() && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        let _ = program::signal_group(group, Signal::KILL);
        self.child.take()?.wait().ok()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}
