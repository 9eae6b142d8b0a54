//! `flash qdisc`: the queueing discipline that sends Flash's bands in order.

use std::process::ExitCode;

use flash_server::qdisc::{self, Kind, Task};
use flash_units::parse_rate_bits;

const MORE: &str = "\
Prints the commands of tc that set the discipline, and runs them only with --apply. A server with --schedule srpt gives its \
connections priorities; the kernel sends by them only with such a discipline, and only where packets wait. So RATE must be \
that of the bottleneck or slightly less, and then packets wait here. Without --kind, takes the first kind that this kernel \
has: prio, htb, fq. It finds out in a network namespace of its own.

--undo removes a discipline that --apply set, also in part; the kernel then sets its default again. A discipline that \
somebody else set is never changed. --apply and --undo need CAP_NET_ADMIN and the program tc (iproute2). See \
docs/overload.md.

RATE is a whole number with kbit, Mbit or Gbit.

Exit codes: 0 done, 1 failed, 2 usage error.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE, override_usage = "flash qdisc DEV --rate RATE [--kind KIND] [--apply]\n       flash qdisc DEV --undo")]
pub(crate) struct Qdisc {
    /// Network device that leads to the clients
    #[arg(value_name = "DEV")]
    device: String,

    /// Rate of the bottleneck between the device and the clients
    #[arg(long, value_name = "RATE", value_parser = parse_rate_bits, required_unless_present = "undo")]
    rate: Option<u64>,

    /// Kind of discipline
    #[arg(long, value_name = "KIND", value_parser = Kind::ALL.map(Kind::word))]
    kind: Option<String>,

    /// Run the commands
    #[arg(long)]
    apply: bool,

    /// Remove the discipline again
    #[arg(long, conflicts_with_all = ["rate", "kind", "apply"])]
    undo: bool,
}

impl Qdisc {
    pub(crate) fn run(self) -> ExitCode {
        let kind = self.kind.and_then(|word| Kind::ALL.into_iter().find(|kind| kind.word() == word));
        let task = match self.rate {
            Some(rate_bits_per_s) => Task::Set { rate_bits_per_s, kind, applies: self.apply },
            None => Task::Undo,
        };
        let mut printed = ExitCode::SUCCESS;
        let done = qdisc::run(&self.device, task, &mut |text| printed = crate::output::print(text));
        match done {
            Ok(()) => printed,
            Err(why) => {
                eprintln!("error: {why}");
                ExitCode::FAILURE
            }
        }
    }
}
