//! Durations and sizes as users write them: `250ms`, `5s`, `64KiB`.
//!
//! The one place that turns such text into milliseconds or bytes, and back. Called by `config::values` and by subcommands of
//! the binary that take a duration or a size. It must not know any option or the source of the text.

/// The forms of a duration, for the end of every error about one.
const DURATION_FORMS: &str = "write a whole number and a unit: 250ms, 5s, 2m or 1h";

/// The forms of a size, for the end of every error about one.
const SIZE_FORMS: &str = "write a whole number of bytes, or one with a unit: 64KiB, 1MiB, 2GiB, 3GB";

/// Units of durations in milliseconds, the largest first.
const DURATION_UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Units of sizes in bytes: the binary ones first, the largest first, so that [`size_text`] prefers
/// them.
const SIZE_UNITS: [(&str, u64); 10] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("KB", 1_000),
    ("B", 1),
];

/// The forms of a rate, for the end of every error about one.
const RATE_FORMS: &str = "write a whole number and a unit: 500kbit, 10Mbit or 1Gbit (per second)";

/// Units of rates in bits per second, the largest first.
const RATE_UNITS: [(&str, u64); 4] =
    [("Gbit", 1_000_000_000), ("Mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)];

/// Reads a rate such as `10Mbit` or `0`, in bits per second. A rate too large for 64 bits is `u64::MAX`.
///
/// # Errors
///
/// The reason why the text is not a rate, and the valid forms.
pub fn parse_rate_bits(text: &str) -> Result<u64, String> {
    let (digits, unit) = split(text);
    let amount = amount(digits).ok_or_else(|| format!("not a rate; {RATE_FORMS}"))?;
    match unit {
        "" if amount == 0 => Ok(0),
        "" => Err(format!("the unit is missing; {RATE_FORMS}")),
        _ => multiply(amount, unit, &RATE_UNITS).ok_or_else(|| format!("not a rate; {RATE_FORMS}")),
    }
}

/// A rate in bits per second, as [`parse_rate_bits`] reads it, in the largest unit that is exact.
#[must_use]
pub fn rate_text(bits_per_s: u64) -> String {
    exact(bits_per_s, &RATE_UNITS).unwrap_or_else(|| "0".to_owned())
}

/// Reads a duration such as `250ms`, `5s`, `2m`, `1h` or `0`, in milliseconds. A duration too long for 64 bits is
/// `u64::MAX`.
///
/// # Errors
///
/// The reason why the text is not a duration, and the valid forms.
pub fn parse_duration_ms(text: &str) -> Result<u64, String> {
    let (digits, unit) = split(text);
    let amount = amount(digits).ok_or_else(|| format!("not a duration; {DURATION_FORMS}"))?;
    if unit.is_empty() && amount == 0 {
        return Ok(0);
    }
    if unit.is_empty() {
        return Err(format!("the unit is missing; {DURATION_FORMS}"));
    }
    multiply(amount, unit, &DURATION_UNITS).ok_or_else(|| format!("not a duration; {DURATION_FORMS}"))
}

/// Reads a size such as `100`, `64KiB`, `1MiB` or `3GB`, in bytes. A size too large for 64 bits is `u64::MAX`.
///
/// # Errors
///
/// The reason why the text is not a size, and the valid forms.
pub fn parse_size_bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = split(text);
    let amount = amount(digits).ok_or_else(|| format!("not a size; {SIZE_FORMS}"))?;
    if unit.is_empty() {
        return Ok(amount);
    }
    multiply(amount, unit, &SIZE_UNITS).ok_or_else(|| format!("not a size; {SIZE_FORMS}"))
}

/// A duration in milliseconds, as [`parse_duration_ms`] reads it, in the largest unit that is exact.
#[must_use]
pub fn duration_text(duration_ms: u64) -> String {
    exact(duration_ms, &DURATION_UNITS).unwrap_or_else(|| "0s".to_owned())
}

/// A size in bytes, as [`parse_size_bytes`] reads it, in the largest unit that is exact.
#[must_use]
pub fn size_text(size_bytes: u64) -> String {
    exact(size_bytes, &SIZE_UNITS).unwrap_or_else(|| "0".to_owned())
}

/// The leading digits and the rest.
fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// The digits as a number. A number too large for 64 bits counts as the largest: it exceeds every bound, and the
/// error about the bound is clearer than "not a number".
fn amount(digits: &str) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    Some(digits.parse().unwrap_or(u64::MAX))
}

/// The product, or `None` when there is no such unit. Saturates, for the reason given at [`amount`].
fn multiply(amount: u64, unit: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    Some(amount.saturating_mul(*factor))
}

/// The value in the largest unit that divides it; `None` for zero, which has no unit of its own.
fn exact(value: u64, units: &[(&str, u64)]) -> Option<String> {
    let (name, factor) = units.iter().find(|(_, factor)| value != 0 && value.is_multiple_of(*factor))?;
    Some(format!("{}{name}", value / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_written() {
        for (text, bits) in
            [("0", 0), ("10Mbit", 10_000_000), ("1500kbit", 1_500_000), ("1Gbit", 1_000_000_000)]
        {
            assert_eq!(parse_rate_bits(text), Ok(bits), "{text}");
            assert_eq!(parse_rate_bits(&rate_text(bits)), Ok(bits), "{text}");
        }
        assert!(parse_rate_bits("10").unwrap_err().contains("the unit is missing"));
        for text in ["", "Mbit", "10MB", "1.5Mbit", "10 Mbit"] {
            assert!(parse_rate_bits(text).unwrap_err().contains("not a rate"), "{text}");
        }
    }

    #[test]
    fn durations_are_read() {
        let cases = [
            ("0", 0),
            ("0s", 0),
            ("250ms", 250),
            ("5s", 5_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("007s", 7_000),
        ];
        for (text, expected_ms) in cases {
            assert_eq!(parse_duration_ms(text), Ok(expected_ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_the_forms() {
        for text in
            ["", "s", "5", "5 s", "-5s", "+5s", "1.5s", "5S", "5sec", "5s ", " 5s", "ms5", "5s5", "٣s"]
        {
            let why = parse_duration_ms(text).unwrap_err();
            assert!(why.ends_with("250ms, 5s, 2m or 1h"), "{text}: {why}");
        }
        assert!(parse_duration_ms("5").unwrap_err().starts_with("the unit is missing"));
        assert_eq!(parse_duration_ms("18446744073709551615h"), Ok(u64::MAX));
        assert_eq!(parse_duration_ms("99999999999999999999999s"), Ok(u64::MAX));
    }

    #[test]
    fn sizes_are_read() {
        let cases = [
            ("0", 0),
            ("100", 100),
            ("100B", 100),
            ("10kB", 10_000),
            ("10KB", 10_000),
            ("64KiB", 65_536),
            ("1MiB", 1_048_576),
            ("1MB", 1_000_000),
            ("2GiB", 2_147_483_648),
            ("3GB", 3_000_000_000),
            ("1TiB", 1 << 40),
            ("1TB", 1_000_000_000_000),
        ];
        for (text, expected_bytes) in cases {
            assert_eq!(parse_size_bytes(text), Ok(expected_bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_the_forms() {
        for text in ["", "KiB", "64M", "64k", "64 KiB", "-1", "1.5MiB", "64mib", "1KiB/s"] {
            let why = parse_size_bytes(text).unwrap_err();
            assert!(why.contains("64KiB, 1MiB, 2GiB, 3GB"), "{text}: {why}");
        }
        assert_eq!(parse_size_bytes("99999999999TiB"), Ok(u64::MAX));
    }

    #[test]
    fn what_is_written_reads_back() {
        for value in [0, 1, 250, 999, 1_000, 1_500, 60_000, 90_000, 3_600_000, 5_000_000, 1 << 20, 1 << 40] {
            assert_eq!(parse_duration_ms(&duration_text(value)), Ok(value));
            assert_eq!(parse_size_bytes(&size_text(value)), Ok(value));
        }
        assert_eq!(duration_text(90_000), "90s");
        assert_eq!(duration_text(0), "0s");
        assert_eq!(size_text(64 << 20), "64MiB");
        assert_eq!(size_text(3_000_000_000), "3GB");
        assert_eq!(size_text(100), "100B");
    }
}
