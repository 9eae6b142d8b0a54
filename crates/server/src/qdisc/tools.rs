//! Runs `tc`, on a device or in a namespace for trials.
//!
//! Called by the parent module alone. It decides nothing.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::{Command, Stdio};

use flash_waiting::network::Namespace;

use super::plan::{self, OBJECT_PATH, Scheme, Step};
use super::{QdiscError, refuse};

/// Where `tc` is. Ordinary users often have neither folder in their `PATH`.
const FOLDERS: [&str; 2] = ["/usr/sbin/tc", "/sbin/tc"];
/// Longest name of a device, in bytes (`IFNAMSIZ` without its end).
const NAME_BYTES_MAX: usize = 15;
const LISTED_MAX: usize = 16;

/// Checks that this namespace has the device.
pub(super) fn check_device(device: &str) -> Result<(), QdiscError> {
    // Not by /sys/class/net, which shows the devices of the namespace that mounted it.
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    // Two lines of headings, then "NAME: ..." (proc(5)).
    let names: Vec<_> =
        text.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    if names.contains(&device) && device.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    let listed = names.iter().take(LISTED_MAX).copied().collect::<Vec<_>>().join(", ");
    refuse(format!("there is no network device `{}`; there are: {listed}", device.escape_debug()))
}

/// The disciplines of a device, as `tc` prints them.
pub(super) fn show(device: &str) -> Result<Vec<u8>, QdiscError> {
    tc(&format!("-json qdisc show dev {device}"))
}

/// Carries out one step on the device that it names.
pub(super) fn carry_out(step: &Step) -> Result<(), QdiscError> {
    match step {
        Step::Tc(words) => tc(words).map(drop),
        Step::Object(bytes) => {
            write_object(bytes).map_err(|why| QdiscError(format!("cannot write `{OBJECT_PATH}`: {why}")))
        }
    }
}

/// Writes the file where no other user can place one. The kernel needs it only while `tc` loads it, but it is the same
/// for every device, and another run may be loading it now: it is replaced as a whole, and stays.
fn write_object(bytes: &[u8]) -> io::Result<()> {
    let path = Path::new(OBJECT_PATH);
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let new = path.with_extension(std::process::id().to_string());
    fs::write(&new, bytes).and_then(|()| fs::rename(&new, path)).inspect_err(|_| drop(fs::remove_file(&new)))
}

fn tc(words: &str) -> Result<Vec<u8>, QdiscError> {
    let run = |program: &str| {
        Command::new(program).args(words.split(' ')).env("LC_ALL", "C").stdin(Stdio::null()).output()
    };
    let is_missing = |done: &io::Result<_>| matches!(done, Err(why) if why.kind() == io::ErrorKind::NotFound);
    let first = run("tc");
    let done = FOLDERS.iter().fold(first, |done, path| if is_missing(&done) { run(path) } else { done });
    let command = format!("tc {words}");
    match done {
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            refuse("the program `tc` is missing; install iproute2")
        }
        Err(why) => refuse(format!("cannot run `{command}`: {why}")),
        Ok(output) if output.status.success() => Ok(output.stdout),
        Ok(output) => {
            // Usage, if it prints some, is long; the first line has the reason.
            let text = String::from_utf8_lossy(&output.stderr);
            let why = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
            refuse(format!("`{command}` failed: {}", why.escape_debug()))
        }
    }
}

/// Whether all commands of a scheme work, tried on the loopback device of a namespace where they concern nobody. That has no
/// discipline afterwards.
pub(super) fn try_out(place: &Namespace, scheme: Scheme, rate_bits_per_s: u64) -> Result<(), QdiscError> {
    let all = || {
        let done = plan::steps("lo", rate_bits_per_s, scheme).iter().try_for_each(carry_out);
        // Fails if the first command failed.
        let _ = carry_out(&plan::removal("lo"));
        done
    };
    place.run(all).map_err(|why| QdiscError(format!("cannot enter a namespace: {why}")))?
}
