//! Numbers of the counters as short texts. Called by the table of `flash stats`.

/// Shows counts as they are, or per second.
#[derive(Clone, Copy)]
pub(super) struct Amounts {
    /// The time of the counts, for amounts per second.
    pub(super) seconds: Option<f64>,
}

impl Amounts {
    pub(super) fn of(self, count: u64) -> String {
        match self.seconds {
            None => grouped(count),
            Some(_) if count == 0 => "0".to_owned(),
            Some(seconds) => match count as f64 / seconds {
                rate if rate >= 99.95 => format!("{}/s", grouped(rate.round() as u64)),
                rate => format!("{rate:.1}/s"),
            },
        }
    }

    /// The total time spent in a state, or with a known length of time the average number of things in that state.
    pub(super) fn time(self, ms: u64) -> String {
        match self.seconds {
            None => span(ms),
            Some(seconds) => format!("{:.1}", ms as f64 / 1000.0 / seconds),
        }
    }

    pub(super) fn bytes(self, bytes: u64) -> String {
        match self.seconds {
            None => size(bytes as f64),
            Some(seconds) => format!("{}/s", size(bytes as f64 / seconds)),
        }
    }
}

/// `1,234,567`; `1.234e10` from ten billion on.
pub(super) fn grouped(number: u64) -> String {
    if number >= 10_000_000_000 {
        return format!("{:.3e}", number as f64);
    }
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `12.3 MiB`.
pub(super) fn size(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024.0 {
        return format!("{bytes:.0} B");
    }
    let (mut value, mut unit) = (bytes / 1024.0, 0);
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `3d04h`, `4h05m`, `5m06s` or `7.8s`.
pub(super) fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, _) => format!("{:.1}s", ms as f64 / 1000.0),
        (0, 0, minutes, seconds) => format!("{minutes}m{seconds:02}s"),
        (0, hours, minutes, _) => format!("{hours}h{minutes:02}m"),
        (days, hours, ..) => format!("{days}d{hours:02}h"),
    }
}

pub(super) fn share(part: u64, of: u64) -> String {
    if of == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 / of as f64 * 100.0) }
}

pub(super) fn optional(number: Option<f64>) -> String {
    match number {
        None => "-".to_owned(),
        Some(number) if number >= 1000.0 => grouped(number.round() as u64),
        Some(number) => format!("{number:.2}"),
    }
}
