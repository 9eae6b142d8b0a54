//! Durations as people write them: `250ms`, `13.3s`, `2m`, `1h`, `0`.
//!
//! The options of the lab's commands and the phases of a schedule use this one grammar. The server's configuration
//! has its own, in whole milliseconds. Pure.

/// The longest duration, seconds: a year.
const SECONDS_MAX: f64 = 365.0 * 86_400.0;

/// The forms of a duration; the end of every error.
pub const FORMS: &str = "write a number and a unit: 250ms, 13.3s, 2m or 1h";

/// Units, in seconds.
const UNITS: [(&str, f64); 4] = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// Reads a duration, in seconds: digits, perhaps a point and digits, and a unit. Only 0 needs no unit.
///
/// # Errors
///
/// Says why the text is no duration and which forms are right.
pub fn seconds(text: &str) -> Result<f64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || part.is_empty() || part.contains('.') {
        return Err(format!("not a duration; {FORMS}"));
    }
    // Digits and at most one point: this parses, and is at worst infinite.
    let value: f64 = number.parse().map_err(|_| format!("not a duration; {FORMS}"))?;
    let unit_s = match UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, unit_s)) => *unit_s,
        None if unit.is_empty() && value == 0.0 => 1.0,
        None if unit.is_empty() => return Err(format!("the unit is missing; {FORMS}")),
        None => return Err(format!("not a duration; {FORMS}")),
    };
    let duration_s = value * unit_s;
    if duration_s > SECONDS_MAX {
        return Err(format!("longer than a year; {FORMS}"));
    }
    Ok(duration_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        let cases = [
            ("0", 0.0),
            ("0s", 0.0),
            ("250ms", 0.25),
            ("5s", 5.0),
            ("13.3s", 13.3),
            ("2m", 120.0),
            ("0.5h", 1800.0),
            ("007s", 7.0),
            ("8760h", SECONDS_MAX),
        ];
        for (text, expected_s) in cases {
            assert_eq!(seconds(text), Ok(expected_s), "{text}");
        }
    }

    #[test]
    fn wrong_durations_are_refused_with_the_right_forms() {
        for text in [
            "", "s", ".", "5", "5 s", "-5s", "+5s", "1e3s", "infs", "nans", ".5s", "5.s", "1.2.3s", "5S",
            "5sec", " 5s", "ms5", "5s5", "٣s", "8761h", "é",
        ] {
            let why = seconds(text).unwrap_err();
            assert!(why.ends_with("250ms, 13.3s, 2m or 1h"), "{text}: {why}");
        }
        assert!(seconds(&("9".repeat(400) + "s")).unwrap_err().starts_with("longer than a year"));
        assert!(seconds("5").unwrap_err().starts_with("the unit is missing"));
    }
}
