//! `flash qdisc`: the queueing discipline of a network device that sends Flash's bands in order (docs/overload.md).
//!
//! Called by the subcommand alone; no part of a running server knows it. [`run`] reads which discipline the device has,
//! finds the first scheme that this kernel has (`tools`), makes the commands (`plan`), and prints, runs or undoes them. It
//! replaces only a default of the kernel, and removes only disciplines with its own handles.
//!
//! It runs the program `tc` of iproute2 instead of sending netlink messages itself: an operator can read, repeat and undo
//! the very commands, and the encoding of five kinds of discipline stays out of this program.

mod object;
mod plan;
mod present;
#[cfg(test)]
mod tests;
mod tools;

use std::fmt;

use flash_waiting::network::Namespace;
use flash_waiting::sandbox::privileges;

use plan::{Scheme, Step};
use present::Present;

/// The lowest rate, in bits per second: a hundredth of it is a rate that `htb` can keep.
const RATE_BITS_MIN: u64 = 64_000;
/// The highest rate, in bits per second.
const RATE_BITS_MAX: u64 = 100_000_000_000;

/// A kind of queueing discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Strict priority (tc-prio(8)), below a limit of the rate (tc-tbf(8)).
    Prio,
    /// Classes with priorities, and a hundredth of the rate for each (tc-htb(8)).
    Htb,
    /// Three bands with weights, and fair queueing in each (tc-fq(8), Linux 6.7 and iproute2 6.7), below a limit of the
    /// rate.
    Fq,
}

impl Kind {
    /// All kinds, the preferred first.
    pub const ALL: [Kind; 3] = [Kind::Prio, Kind::Htb, Kind::Fq];

    /// Its name for `tc`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kind::Prio => "prio",
            Kind::Htb => "htb",
            Kind::Fq => "fq",
        }
    }
}

/// The task of [`run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Print the commands, and with `applies` run them.
    Set {
        /// The rate of the uplink in bits per second.
        rate_bits_per_s: u64,
        /// The kind, or the first that this kernel has.
        kind: Option<Kind>,
        /// Whether to run the commands.
        applies: bool,
    },
    /// Remove the discipline that an earlier run set, so that the device has the kernel's default again.
    Undo,
}

/// The reason why nothing was set, or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QdiscError(String);

impl fmt::Display for QdiscError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for QdiscError {}

fn refuse<T>(why: impl Into<String>) -> Result<T, QdiscError> {
    Err(QdiscError(why.into()))
}

/// Carries out `task` on `device`. Passes the text for the user to `say`, before the commands of the text are run.
///
/// # Errors
///
/// A device or a rate that cannot be; a discipline that somebody else set; no `tc`; no privilege; a kernel without the
/// kind. Then the device has the discipline that it had before, or the kernel's default if that was removed.
pub fn run(device: &str, task: Task, say: &mut dyn FnMut(&str)) -> Result<(), QdiscError> {
    tools::check_device(device)?;
    let present = present::parse(&tools::show(device)?).map_err(QdiscError)?;
    match task {
        Task::Undo => undo(device, &present, say),
        Task::Set { rate_bits_per_s, kind, applies } => {
            if !(RATE_BITS_MIN..=RATE_BITS_MAX).contains(&rate_bits_per_s) {
                return refuse("the rate must be from 64kbit to 100Gbit");
            }
            set(&Wanted { device, rate_bits_per_s, kind, applies }, &present, say)
        }
    }
}

/// The task of [`set`].
struct Wanted<'a> {
    device: &'a str,
    rate_bits_per_s: u64,
    kind: Option<Kind>,
    applies: bool,
}

fn set(wanted: &Wanted<'_>, present: &Present, say: &mut dyn FnMut(&str)) -> Result<(), QdiscError> {
    let device = wanted.device;
    if let Present::Foreign(there) = present {
        return refuse(format!(
            "`{device}` has the queueing discipline {there}, which Flash did not set; if nobody needs it, remove it \
             with `tc qdisc del dev {device} root`"
        ));
    }
    if wanted.applies {
        check_privilege()?;
    }
    let chosen = choose(wanted.kind, wanted.rate_bits_per_s)?;
    let mut steps = Vec::new();
    if matches!(present, Present::Ours(_)) {
        steps.push(plan::removal(device));
    }
    let builds_from = steps.len();
    steps.extend(plan::steps(device, wanted.rate_bits_per_s, chosen.0));
    say(&text(wanted, present, chosen, &steps));
    if !wanted.applies {
        return Ok(());
    }
    apply(device, &steps, builds_from)?;
    say(&format!("# Done. `flash qdisc {device} --undo` restores the kernel's default.\n"));
    Ok(())
}

/// The text before the steps are run. `is_tried` is whether the scheme was tried on this kernel.
fn text(
    wanted: &Wanted<'_>,
    present: &Present,
    (scheme, is_tried): (Scheme, bool),
    steps: &[Step],
) -> String {
    let mut text = format!("# {} has {present}. {}\n", wanted.device, scheme.remark());
    if !is_tried {
        text += "# Not tried on this kernel, which needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN).\n";
    }
    steps.iter().for_each(|step| text += &step.shown());
    if !wanted.applies {
        text += "# The device was not changed: run this with --apply, or the commands yourself.\n";
    }
    text
}

/// Runs the steps. If one fails, removes all that the steps from `builds_from` on have set.
fn apply(device: &str, steps: &[Step], builds_from: usize) -> Result<(), QdiscError> {
    let mut is_set = false;
    for (number, step) in steps.iter().enumerate() {
        if let Err(QdiscError(why)) = tools::carry_out(step) {
            let default = "the device has the kernel's default";
            let after = match is_set.then(|| tools::carry_out(&plan::removal(device))) {
                None if number < builds_from.max(1) => "nothing was changed".to_owned(),
                None => format!("the discipline of an earlier run was removed: {default}"),
                Some(Ok(())) => format!("the other commands were undone: {default}"),
                Some(Err(QdiscError(why))) => format!("the other commands could not be undone: {why}"),
            };
            return refuse(format!(
                "{why}\n{after}; `--kind` chooses another kind, and as root flash finds one that this kernel has"
            ));
        }
        // An object file is not the device's.
        is_set |= number >= builds_from && matches!(step, Step::Tc(_));
    }
    Ok(())
}

fn undo(device: &str, present: &Present, say: &mut dyn FnMut(&str)) -> Result<(), QdiscError> {
    match present {
        Present::Ours(_) => {
            check_privilege()?;
            let step = plan::removal(device);
            say(&step.shown());
            tools::carry_out(&step)?;
            let now = present::parse(&tools::show(device)?).map_err(QdiscError)?;
            say(&format!("# {device} has {now} again.\n"));
            Ok(())
        }
        Present::Default(_) => {
            say(&format!("# Nothing to undo: {device} has {present}.\n"));
            Ok(())
        }
        Present::Foreign(there) => refuse(format!(
            "`{device}` has the queueing discipline {there}, which Flash did not set; it stays"
        )),
    }
}

fn check_privilege() -> Result<(), QdiscError> {
    if privileges::has_net_admin() {
        return Ok(());
    }
    refuse("needs CAP_NET_ADMIN: run it as root, or run the commands that it prints without --apply as root")
}

/// The scheme to use, and whether it was tried on this kernel. Without the privilege to try, the first of the kind.
fn choose(kind: Option<Kind>, rate_bits_per_s: u64) -> Result<(Scheme, bool), QdiscError> {
    let wanted: Vec<_> =
        Scheme::all().into_iter().filter(|scheme| kind.is_none_or(|kind| scheme.kind() == kind)).collect();
    // Without the privilege, or without namespaces, it cannot be tried.
    let Ok(place) = Namespace::make() else { return Ok((wanted[0], false)) };
    let mut reasons = String::new();
    for scheme in wanted {
        match tools::try_out(&place, scheme, rate_bits_per_s) {
            Ok(()) => return Ok((scheme, true)),
            Err(QdiscError(why)) => reasons += &format!("\n{}: {why}", scheme.name()),
        }
    }
    let advice = "use `--egress` or `--srpt-dscp` instead, or another kernel or iproute2 (docs/overload.md)";
    refuse(format!("this kernel or this tc has no such queueing discipline; {advice}{reasons}"))
}
