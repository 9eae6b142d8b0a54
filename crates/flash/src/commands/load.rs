//! `flash load`: sends load to one server.

use std::process::ExitCode;

use flash_kit::Result;
use flash_lab::drive;
use flash_lab::drive::once::{self, Arrive, CLIENTS, Load as Options, LoadOne, Rate, Spacing};
use flash_load::workload::{Link, PhasePlan, Sessions, Spec};
use flash_units::{parse_duration_s, parse_rate_bits};

use super::drive_args::MORE;

#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Load {
    /// Server to load, such as http://127.0.0.1:8080, or one file of it
    #[arg(value_hint = clap::ValueHint::Url)]
    url: String,

    /// Files to request: specweb99, pareto, uniform, zipf:ALPHA, list:FILE (in turn), log:FILE or single:PATH [default: the path of URL]
    #[arg(long, value_name = "WORKLOAD", help_heading = "Workload")]
    workload: Option<Spec>,

    /// Closed loop: N clients, each of which waits for an answer before its next request [default: 64]
    #[arg(long, value_name = "N", help_heading = "Arrivals")]
    clients: Option<u32>,

    /// Pause between an answer and the next request of a client, or on average of a user who comes back
    #[arg(long, value_name = "TIME", value_parser = parse_duration_s, default_value = "0s", help_heading = "Arrivals")]
    think: f64,

    /// Open loop: N requests per second
    #[arg(long, value_name = "N", conflicts_with = "clients", help_heading = "Arrivals")]
    rate: Option<f64>,

    /// Open loop: this fraction of the capacity, which is measured first
    #[arg(long, value_name = "LEVEL", conflicts_with_all = ["clients", "rate"], help_heading = "Arrivals")]
    load: Option<f64>,

    /// Open loop: phases such as 25s@1.2,25s@0.2 (fractions of the capacity) or 5s@4000/s, one of W1 to W9, or persistent
    #[arg(long, value_name = "PHASES", conflicts_with_all = ["clients", "rate", "load"], help_heading = "Arrivals")]
    phases: Option<PhasePlan>,

    /// Partly-open: users arrive as above, and each makes N requests on average, the next one --think after an answer
    #[arg(long, value_name = "N", conflicts_with = "clients", help_heading = "Arrivals")]
    session: Option<f64>,

    /// Open loop: intervals between requests, poisson (random) or fixed (equal)
    #[arg(
        long,
        value_enum,
        default_value = "poisson",
        hide_possible_values = true,
        help_heading = "Arrivals"
    )]
    arrivals: Spacing,

    /// Capacity in requests per second, for --load and --phases [default: measured]
    #[arg(long, value_name = "N", help_heading = "Arrivals")]
    capacity: Option<f64>,

    /// The same, as the rate of the bottleneck link, such as 10Mbit: load 1 is the request rate that fills it
    #[arg(long, value_name = "RATE", value_parser = parse_rate_bits, conflicts_with = "capacity", help_heading = "Arrivals")]
    link: Option<u64>,

    /// Process ID of the server, to measure its CPU time and memory
    #[arg(long, value_name = "PID", help_heading = "Run")]
    pid: Option<u32>,

    #[command(flatten)]
    drive: drive::Options,
}

impl Load {
    pub(crate) fn run(self) -> ExitCode {
        crate::lab::finish_run(self.options().and_then(once::run))
    }

    fn options(self) -> Result<Options> {
        let (url, workload) = match self.workload {
            Some(workload) => (self.url, workload),
            None => split_path(&self.url),
        };
        let spacing = self.arrivals;
        let is_log = matches!(workload, Spec::Log { .. });
        let arrive = match (self.rate, self.load, self.phases, self.clients) {
            (Some(rate), ..) => Arrive::Open { rate: Rate::PerSecond(rate), spacing },
            (_, Some(level), ..) => Arrive::Open { rate: Rate::Level(level), spacing },
            (_, _, Some(plan), _) => Arrive::Phases { plan, spacing },
            (_, _, _, None) if is_log => Arrive::Log,
            (_, _, _, clients) => Arrive::Closed { clients: clients.unwrap_or(CLIENTS), think_s: self.think },
        };
        let capacity = match (self.capacity, self.link) {
            (Some(per_s), _) => LoadOne::PerSecond(per_s),
            (None, Some(rate_bits_per_s)) => LoadOne::Link(Link::new(rate_bits_per_s)),
            (None, None) => LoadOne::Searched,
        };
        let mut options = self.drive.of_command("load", workload);
        options.users.sessions =
            self.session.map(|requests_mean| Sessions { requests_mean, think_mean_s: self.think });
        Ok(Options { options, url, pid: self.pid, arrive, capacity })
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
