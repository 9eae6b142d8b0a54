//! Sizes, durations and rates as people write them: `512MiB`, `1.5G`, `250ms`, `1d`, `10Mbit`.
//!
//! The one place that turns such text into a number, and back. The server's configuration, the lab and the command line
//! call it. It must not know any option, its bounds, or the source of the text. Pure.

/// A unit: its names, the first as it is written, and its factor.
type Unit = (&'static [&'static str], u64);

/// How one kind of quantity is written.
struct Grammar {
    /// The kind, for errors.
    noun: &'static str,
    /// The valid forms, for the end of every error.
    forms: &'static str,
    /// The units, in the order in which [`exact`] prefers them. Upper and lower case are the same.
    units: &'static [Unit],
    /// The factor of a number without a unit; none if only 0 needs no unit.
    plain: Option<u64>,
}

/// Sizes in bytes. A single letter is a power of two, as in systemd, nginx and Docker.
static SIZE: Grammar = Grammar {
    noun: "size",
    forms: "write a number of bytes, or a number and a unit: 64KiB, 512M, 1.5GiB or 3GB",
    units: &[
        (&["TiB", "T"], 1 << 40),
        (&["GiB", "G"], 1 << 30),
        (&["MiB", "M"], 1 << 20),
        (&["KiB", "K"], 1 << 10),
        (&["TB"], 1_000_000_000_000),
        (&["GB"], 1_000_000_000),
        (&["MB"], 1_000_000),
        (&["kB"], 1_000),
        (&["B"], 1),
    ],
    plain: Some(1),
};

/// Durations in milliseconds.
static DURATION: Grammar = Grammar {
    noun: "duration",
    forms: "write a number and a unit: 250ms, 1.5s, 2m, 1h or 1d",
    units: &[
        (&["h", "hour", "hours"], 3_600_000),
        (&["m", "min", "minute", "minutes"], 60_000),
        (&["s", "sec", "second", "seconds"], 1_000),
        (&["ms"], 1),
        (&["d", "day", "days"], 86_400_000),
    ],
    plain: None,
};

/// Durations in nanoseconds.
static FINE_DURATION: Grammar = Grammar {
    noun: "duration",
    forms: "write a number and a unit: 100us, 0.5ms, 1.5s, 2m, 1h or 1d",
    units: &[
        (&["d", "day", "days"], 86_400_000_000_000),
        (&["h", "hour", "hours"], 3_600_000_000_000),
        (&["m", "min", "minute", "minutes"], 60_000_000_000),
        (&["s", "sec", "second", "seconds"], 1_000_000_000),
        (&["ms"], 1_000_000),
        (&["us", "µs"], 1_000),
        (&["ns"], 1),
    ],
    plain: None,
};

/// Rates in bits per second.
static RATE: Grammar = Grammar {
    noun: "rate",
    forms: "write a number and a unit: 500kbit, 10Mbit or 1.5Gbit (per second)",
    units: &[
        (&["Gbit", "Gbit/s"], 1_000_000_000),
        (&["Mbit", "Mbit/s"], 1_000_000),
        (&["kbit", "kbit/s"], 1_000),
        (&["bit", "bit/s"], 1),
    ],
    plain: None,
};

/// A number without a unit below this is refused as a size of memory. Whoever writes 512 means mebibytes.
const PLAIN_MEMORY_LEAST_BYTES: u64 = 64 << 10;

/// Digits after the point that count.
const DECIMALS_MAX: usize = 9;

/// Reads a size such as `100`, `64KiB`, `512M` or `1.5GB`, in bytes. A size too large for 64 bits is `u64::MAX`.
///
/// # Errors
///
/// The reason why the text is not a size, and the valid forms.
pub fn parse_size_bytes(text: &str) -> Result<u64, String> {
    parse(text, &SIZE)
}

/// Reads a size of memory or of files, in bytes, as [`parse_size_bytes`] does. A small number needs a unit.
///
/// # Errors
///
/// Also for a number without a unit that is too small to be meant in bytes.
pub fn parse_memory_bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_size_bytes(text)?;
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain && bytes > 0 && bytes < PLAIN_MEMORY_LEAST_BYTES {
        return Err(format!("{bytes} is {bytes} bytes; did you mean {bytes}MiB? (if not, write {bytes}B)"));
    }
    Ok(bytes)
}

/// Reads a duration such as `250ms`, `1.5s`, `1d` or `0`, in milliseconds. A duration too long for 64 bits is `u64::MAX`.
///
/// # Errors
///
/// The reason why the text is not a duration, and the valid forms.
pub fn parse_duration_ms(text: &str) -> Result<u64, String> {
    parse(text, &DURATION)
}

/// Reads a duration such as `100us`, `0.5ms` or `1s`, in nanoseconds. A duration too long for 64 bits is `u64::MAX`.
///
/// # Errors
///
/// The reason why the text is not a duration, and the valid forms.
pub fn parse_duration_ns(text: &str) -> Result<u64, String> {
    parse(text, &FINE_DURATION)
}

/// Reads a duration of at most a year, in seconds.
///
/// # Errors
///
/// The reason why the text is not such a duration, and the valid forms.
pub fn parse_duration_s(text: &str) -> Result<f64, String> {
    const YEAR_NS: u64 = 365 * 86_400_000_000_000;
    match parse_duration_ns(text)? {
        ns if ns > YEAR_NS => Err(format!("longer than a year; {}", FINE_DURATION.forms)),
        ns => Ok(ns as f64 / 1e9),
    }
}

/// Reads a rate such as `10Mbit`, `1.5gbit` or `0`, in bits per second. A rate too large for 64 bits is `u64::MAX`.
///
/// # Errors
///
/// The reason why the text is not a rate, and the valid forms.
pub fn parse_rate_bits(text: &str) -> Result<u64, String> {
    parse(text, &RATE)
}

/// A size in bytes, as [`parse_size_bytes`] reads it, in the largest unit that is exact.
#[must_use]
pub fn size_text(size_bytes: u64) -> String {
    exact(size_bytes, &SIZE).unwrap_or_else(|| "0".to_owned())
}

/// A duration in milliseconds, as [`parse_duration_ms`] reads it, in the largest unit up to hours that is exact.
#[must_use]
pub fn duration_text(duration_ms: u64) -> String {
    exact(duration_ms, &DURATION).unwrap_or_else(|| "0s".to_owned())
}

/// A rate in bits per second, as [`parse_rate_bits`] reads it, in the largest unit that is exact.
#[must_use]
pub fn rate_text(bits_per_s: u64) -> String {
    exact(bits_per_s, &RATE).unwrap_or_else(|| "0".to_owned())
}

/// Reads digits, perhaps a point and digits, perhaps a space, and a unit.
fn parse(text: &str, grammar: &Grammar) -> Result<u64, String> {
    let Grammar { noun, forms, units, .. } = grammar;
    let wrong = || format!("not a {noun}; {forms}");
    let (whole, rest) = digits(text);
    let (decimals, rest) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest),
        None => ("0", rest),
    };
    if whole.is_empty() || decimals.is_empty() {
        return Err(wrong());
    }
    let name = rest.strip_prefix(' ').filter(|unit| !unit.is_empty()).unwrap_or(rest);
    let is_named = |known: &&str| known.eq_ignore_ascii_case(name);
    let is_zero = whole.bytes().chain(decimals.bytes()).all(|digit| digit == b'0');
    let factor = match units.iter().find(|(names, _)| names.iter().any(is_named)) {
        Some((_, factor)) => *factor,
        None if name.is_empty() && is_zero => 1,
        None if name.is_empty() && !text.contains('.') => {
            grammar.plain.ok_or_else(|| format!("the unit is missing; {forms}"))?
        }
        None if name.is_empty() => return Err(format!("the unit is missing; {forms}")),
        None => return Err(wrong()),
    };
    let value = scaled(whole, decimals, factor);
    let (names, least) = units.iter().min_by_key(|(_, factor)| *factor).expect("every grammar has units");
    if value == 0 && !is_zero {
        return Err(format!("less than {least}{}; {forms}", names[0]));
    }
    Ok(value)
}

/// The leading digits and the rest.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// A number times a factor, rounded down. A number too large for 64 bits counts as the largest: it exceeds every bound, and
/// the error about the bound is clearer than "not a number".
fn scaled(whole: &str, decimals: &str, factor: u64) -> u64 {
    let whole: u64 = whole.parse().unwrap_or(u64::MAX);
    let decimals = &decimals[..decimals.len().min(DECIMALS_MAX)];
    let part: u128 = decimals.parse().expect("a few digits");
    let part = part * u128::from(factor) / 10u128.pow(decimals.len() as u32);
    // The part is less than the factor.
    whole.saturating_mul(factor).saturating_add(part as u64)
}

/// The value in the first unit that divides it; `None` for zero, which has no unit of its own.
fn exact(value: u64, grammar: &Grammar) -> Option<String> {
    let (names, factor) =
        grammar.units.iter().find(|(_, factor)| value != 0 && value.is_multiple_of(*factor))?;
    Some(format!("{}{}", value / factor, names[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let cases = [
            ("0", 0),
            ("100", 100),
            ("100B", 100),
            ("10kB", 10_000),
            ("10KB", 10_000),
            ("64KiB", 65_536),
            ("64K", 65_536),
            ("64k", 65_536),
            ("512M", 512 << 20),
            ("512m", 512 << 20),
            ("1G", 1 << 30),
            ("1.5G", 3 << 29),
            ("512MB", 512_000_000),
            ("512mb", 512_000_000),
            ("512 MiB", 512 << 20),
            ("0.5GB", 500_000_000),
            ("3GB", 3_000_000_000),
            ("1TiB", 1 << 40),
            ("1TB", 1_000_000_000_000),
            ("0.1KiB", 102),
            ("99999999999TiB", u64::MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_size_is_refused_with_the_forms() {
        for text in
            ["", "KiB", "-1", "+1", "1.5", ".5M", "1.M", "1.2.3M", "1e3M", "1KiB/s", "64  KiB", "64 ", "٣M"]
        {
            let why = parse_size_bytes(text).unwrap_err();
            assert!(why.ends_with(SIZE.forms), "{text}: {why}");
        }
        assert!(parse_size_bytes("0.1B").unwrap_err().starts_with("less than 1B"));
    }

    #[test]
    fn a_small_number_is_no_size_of_memory() {
        assert_eq!(
            parse_memory_bytes("512").unwrap_err(),
            "512 is 512 bytes; did you mean 512MiB? (if not, write 512B)"
        );
        for (text, bytes) in [("0", 0), ("512B", 512), ("65536", 65_536), ("512M", 512 << 20)] {
            assert_eq!(parse_memory_bytes(text), Ok(bytes), "{text}");
        }
        assert!(parse_memory_bytes("x").is_err());
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        let cases = [
            ("0", 0),
            ("0s", 0),
            ("250ms", 250),
            ("5s", 5_000),
            ("5sec", 5_000),
            ("5S", 5_000),
            ("250MS", 250),
            ("5M", 300_000),
            ("10 seconds", 10_000),
            ("1 minute", 60_000),
            ("2Hours", 7_200_000),
            ("1 day", 86_400_000),
            ("1.5s", 1_500),
            ("2m", 120_000),
            ("2min", 120_000),
            ("0.5h", 1_800_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
            ("007s", 7_000),
            ("18446744073709551615h", u64::MAX),
            ("99999999999999999999999s", u64::MAX),
        ];
        for (text, ms) in cases {
            assert_eq!(parse_duration_ms(text), Ok(ms), "{text}");
        }
        for text in ["", "s", ".", "5", "-5s", "+5s", ".5s", "5.s", "5mo", "5s ", " 5s", "ms5", "5s5", "٣s"]
        {
            let why = parse_duration_ms(text).unwrap_err();
            assert!(why.ends_with(DURATION.forms), "{text}: {why}");
        }
        assert!(parse_duration_ms("5").unwrap_err().starts_with("the unit is missing"));
        assert!(parse_duration_ms("0.4ms").unwrap_err().starts_with("less than 1ms"));
    }

    #[test]
    fn fine_durations_are_read() {
        let cases = [("50ms", 50_000_000), ("0.5ms", 500_000), ("100us", 100_000), ("1µs", 1_000), ("0", 0)];
        for (text, ns) in cases {
            assert_eq!(parse_duration_ns(text), Ok(ns), "{text}");
        }
        assert_eq!(parse_duration_s("13.3s"), Ok(13.3));
        assert_eq!(parse_duration_s("8760h"), Ok(365.0 * 86_400.0));
        for text in ["8761h".to_owned(), "9".repeat(400) + "s"] {
            assert!(parse_duration_s(&text).unwrap_err().starts_with("longer than a year"), "{text}");
        }
        for text in ["1e3s", "infs", "nans", "é", "1.2.3s", "5"] {
            assert!(parse_duration_s(text).unwrap_err().ends_with(FINE_DURATION.forms), "{text}");
        }
    }

    #[test]
    fn rates_are_read_as_people_write_them() {
        let cases = [
            ("0", 0),
            ("10Mbit", 10_000_000),
            ("10mbit", 10_000_000),
            ("10 Mbit/s", 10_000_000),
            ("1.5Mbit", 1_500_000),
            ("1500kbit", 1_500_000),
            ("1gbit", 1_000_000_000),
            ("1 GBIT/S", 1_000_000_000),
        ];
        for (text, bits) in cases {
            assert_eq!(parse_rate_bits(text), Ok(bits), "{text}");
        }
        assert!(parse_rate_bits("10").unwrap_err().contains("the unit is missing"));
        for text in ["", "Mbit", "10MB", "10M", "10mbps", "-1mbit", "1e3mbit"] {
            assert!(parse_rate_bits(text).unwrap_err().contains("not a rate"), "{text}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let values = [0, 1, 250, 999, 1_000, 1_500, 60_000, 90_000, 3_600_000, 5_000_000, 1 << 20, 1 << 40];
        for value in values {
            assert_eq!(parse_duration_ms(&duration_text(value)), Ok(value));
            assert_eq!(parse_size_bytes(&size_text(value)), Ok(value));
            assert_eq!(parse_rate_bits(&rate_text(value)), Ok(value));
        }
        let texts = [90_000, 0, 86_400_000].map(duration_text);
        assert_eq!(texts, ["90s", "0s", "24h"]);
        assert_eq!([64 << 20, 3_000_000_000, 100].map(size_text), ["64MiB", "3GB", "100B"]);
    }
}
