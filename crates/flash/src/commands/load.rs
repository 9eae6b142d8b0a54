//! `flash load`: drives one server.

use std::process::ExitCode;

use flash_lab::drive::once::{self, Arrive, CLIENTS, Load as Options, Rate, Spacing};
use flash_lab::workload::{PhasePlan, Spec};

use super::drive_args::{DriveArgs, MORE, seconds};

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Arrival {
    /// Independent of each other
    Poisson,
    /// Evenly spaced
    Fixed,
}

#[derive(Debug, clap::Args)]
#[command(after_help = MORE)]
pub(crate) struct Load {
    /// The server, such as http://127.0.0.1:8080; without --workload its path is asked for
    #[arg(value_hint = clap::ValueHint::Url)]
    url: String,

    /// What is asked for: specweb99, uniform, zipf:ALPHA, trace:FILE or single:PATH
    #[arg(long, value_name = "WHAT", help_heading = "Workload")]
    workload: Option<Spec>,

    /// Closed loop: so many clients, each asking again after its answer [default: 64]
    #[arg(long, value_name = "N", help_heading = "Arrivals")]
    clients: Option<u32>,

    /// Clients of a closed loop think so long before they ask again
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "0s", help_heading = "Arrivals")]
    think: f64,

    /// Open loop: so many requests a second
    #[arg(long, value_name = "N", conflicts_with = "clients", help_heading = "Arrivals")]
    rate: Option<f64>,

    /// Open loop: this fraction of the capacity, which is found first
    #[arg(long, value_name = "LEVEL", conflicts_with_all = ["clients", "rate"], help_heading = "Arrivals")]
    load: Option<f64>,

    /// Open loop in phases, such as 25s@1.2,25s@0.2 (fractions of the capacity), 5s@4000/s, or W1 to W9
    #[arg(long, value_name = "PHASES", conflicts_with_all = ["clients", "rate", "load"], help_heading = "Arrivals")]
    phases: Option<PhasePlan>,

    /// How the arrivals of an open loop are spread
    #[arg(long, value_enum, default_value = "poisson", help_heading = "Arrivals")]
    arrivals: Arrival,

    /// Requests a second that level 1 stands for [default: found by infinite demand]
    #[arg(long, value_name = "N", help_heading = "Arrivals")]
    capacity: Option<f64>,

    /// The server's process, to measure what it uses
    #[arg(long, value_name = "PID", help_heading = "Run")]
    pid: Option<u32>,

    #[command(flatten)]
    drive: DriveArgs,
}

impl Load {
    pub(crate) fn run(self) -> ExitCode {
        let (url, workload) = match self.workload {
            Some(workload) => (self.url, workload),
            None => split_path(&self.url),
        };
        let spacing = match self.arrivals {
            Arrival::Poisson => Spacing::Poisson,
            Arrival::Fixed => Spacing::Fixed,
        };
        let is_trace = matches!(workload, Spec::Trace { .. });
        let arrive = match (self.rate, self.load, self.phases, self.clients) {
            (Some(rate), ..) => Arrive::Open { rate: Rate::PerSecond(rate), spacing },
            (_, Some(level), ..) => Arrive::Open { rate: Rate::Level(level), spacing },
            (_, _, Some(plan), _) => Arrive::Phases { plan, spacing },
            (_, _, _, None) if is_trace => Arrive::Trace,
            (_, _, _, clients) => Arrive::Closed { clients: clients.unwrap_or(CLIENTS), think_s: self.think },
        };
        let load = Options {
            options: self.drive.options("load", workload),
            url,
            pid: self.pid,
            arrive,
            capacity_per_s: self.capacity,
        };
        crate::lab::finish_run(once::run(load))
    }
}

/// The server of a URL, and its path as the only file.
fn split_path(url: &str) -> (String, Spec) {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let path = url[authority..].find('/').map_or(url.len(), |at| authority + at);
    let (server, path) = url.split_at(path);
    (server.to_owned(), Spec::Single { path: if path.is_empty() { "/" } else { path }.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_url_is_what_is_asked_for() {
        let single = |path: &str| Spec::Single { path: path.to_owned() };
        let server = "http://h:1".to_owned();
        assert_eq!(split_path("http://h:1/a/b?c"), (server.clone(), single("/a/b?c")));
        assert_eq!(split_path("http://h:1"), (server, single("/")));
    }
}
