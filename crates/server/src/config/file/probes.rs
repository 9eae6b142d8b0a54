//! Reads the keys of a route for probes of its servers: `probe` and `probe_interval`.

use toml::de::DeTable;

use super::super::error::{ConfigErrorKind, Problem};
use super::super::routes::{self, Probe};
use super::super::values::Kind;
use super::keys::{INTERVAL, Number, PROBE};
use super::{Reader, refused};

/// A shorter interval would be a load of its own, and a longer one would find out too late.
const NUMBER: Number<Probe> = Number {
    key: INTERVAL,
    kind: Kind::Duration { least_ms: 100, most_ms: 3_600_000 },
    default: 5_000,
    field: |probe| &mut probe.interval_ms,
};

impl Reader {
    /// How the servers of the route of this table are probed.
    pub(super) fn probe(&mut self, table: &DeTable<'_>) -> Option<Probe> {
        let find = |name: &str| table.iter().find(|(key, _)| key.get_ref() == name);
        let Some((_, value)) = find(PROBE) else {
            if let Some((key, _)) = find(INTERVAL) {
                let why = format!("`{PROBE}` is missing");
                let problem = Problem::at(key.span(), format!("`{INTERVAL}` without `{PROBE}`"), why);
                let problem = problem.helped(format!("add a line such as `{PROBE} = \"/health\"`"));
                self.problems.push(problem.of(ConfigErrorKind::Key));
            }
            return None;
        };
        let mut probe = Probe { target: String::new(), interval_ms: NUMBER.default };
        if let Some((_, value)) = find(INTERVAL) {
            self.number(&NUMBER, &mut probe, value);
        }
        let Some(text) = value.get_ref().as_str() else {
            self.wrong(PROBE, value.span(), "must be a text in quotes");
            return None;
        };
        match routes::probe_target(text) {
            Ok(target) => Some(Probe { target, ..probe }),
            Err(refusal) => {
                self.problems.push(refused(PROBE, value.span(), refusal));
                None
            }
        }
    }
}
