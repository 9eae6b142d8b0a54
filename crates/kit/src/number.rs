//! Numbers, times, sizes and shares as text.
//!
//! Tables, axes, sentences and the terminal use it. A value that is not finite becomes [`NONE`], never "NaN". Pure.

/// Stands for a missing figure.
pub const NONE: &str = "–";

/// The longest text from outside that is shown, characters.
const PLAIN_CHARS_MAX: usize = 2000;

/// Three significant digits, at most three after the point, with commas: 0.012, 1.23, 12.3, 1,234.
pub fn figure(value: f64) -> String {
    let size = value.abs();
    match () {
        () if !value.is_finite() => NONE.to_owned(),
        () if value == 0.0 => "0".to_owned(),
        () if size < 0.0005 => if value < 0.0 { ">−0.001" } else { "<0.001" }.to_owned(),
        () if size < 0.9995 => format!("{value:.3}"),
        () if size < 9.995 => format!("{value:.2}"),
        () if size < 99.95 => format!("{value:.1}"),
        () if size < 1e15 => commas(&format!("{value:.0}")),
        () => format!("{value:.1e}"),
    }
}

/// A whole number with commas.
pub fn count(value: u64) -> String {
    commas(&value.to_string())
}

fn commas(digits: &str) -> String {
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(rest) => ("−", rest),
        None => ("", digits),
    };
    let mut text = sign.to_owned();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share from 0 to 1 in percent; never "0 %" for more than none, nor "100 %" for less than all.
pub fn percent(share: f64) -> String {
    let hundredths = share * 100.0;
    match () {
        () if !share.is_finite() => NONE.to_owned(),
        () if hundredths == 0.0 => "0 %".to_owned(),
        () if hundredths > 0.0 && hundredths < 0.001 => "<0.001 %".to_owned(),
        () if hundredths < 0.1 => format!("{hundredths:.3} %"),
        () if hundredths < 1.0 => format!("{hundredths:.2} %"),
        () if hundredths > 99.9 && hundredths < 100.0 => {
            format!("{} %", (hundredths * 1000.0).floor() / 1000.0)
        }
        () => format!("{} %", figure(hundredths)),
    }
}

/// A time in its usual unit: 120 µs, 1.20 ms, 3.40 s.
pub fn time(time_ms: f64) -> String {
    match () {
        () if !time_ms.is_finite() => NONE.to_owned(),
        () if time_ms == 0.0 => "0 ms".to_owned(),
        () if time_ms.abs() < 0.0995 => format!("{} µs", figure(time_ms * 1000.0)),
        () if time_ms.abs() < 999.5 => format!("{} ms", figure(time_ms)),
        () => format!("{} s", figure(time_ms / 1000.0)),
    }
}

/// A value in the largest of these units, from which on it would be less than `least` of the unit before.
fn scaled(value: f64, units: [&'static str; 5], step: f64, least: f64) -> (f64, &'static str) {
    let steps = (0..4).take_while(|power| value / step.powi(*power) >= least).count();
    (value / step.powi(steps as i32), units[steps])
}

/// A size with a unit of powers of ten: 102 B, 15.3 kB, 3.00 GB.
pub fn size(bytes: f64) -> String {
    match scaled(bytes, ["B", "kB", "MB", "GB", "TB"], 1000.0, 999.5) {
        _ if !bytes.is_finite() => NONE.to_owned(),
        (value, "B") => format!("{value:.0} B"),
        (value, unit) => format!("{} {unit}", figure(value)),
    }
}

/// A size with a unit of powers of two, as people give memory: 512 MiB, 1.50 GiB.
pub fn binary_size(bytes: u64) -> String {
    match scaled(bytes as f64, ["B", "KiB", "MiB", "GiB", "TiB"], 1024.0, 1024.0) {
        (value, unit) if value.fract() == 0.0 => format!("{value} {unit}"),
        (value, unit) => format!("{} {unit}", figure(value)),
    }
}

/// Text from outside as it may be shown: no control characters, bounded.
pub fn plain(text: &str) -> String {
    let shown = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    let mut plain: String = shown.take(PLAIN_CHARS_MAX).collect();
    if text.chars().nth(PLAIN_CHARS_MAX).is_some() {
        plain.push('…');
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let cases = [
            (0.0, "0"),
            (0.0001, "<0.001"),
            (0.01234, "0.012"),
            (0.5, "0.500"),
            (0.9996, "1.00"),
            (1.234, "1.23"),
            (9.996, "10.0"),
            (99.96, "100"),
            (1234.5, "1,234"),
            (1_234_567.0, "1,234,567"),
            (-1234.0, "−1,234"),
            (f64::NAN, "–"),
            (f64::INFINITY, "–"),
            (1e300, "1.0e300"),
        ];
        for (value, text) in cases {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn times_sizes_and_shares_have_their_usual_units() {
        assert_eq!([time(0.0123), time(1.2), time(999.9)], ["12.3 µs", "1.20 ms", "1.00 s"]);
        assert_eq!([size(102.0), size(15_300.0), size(3e9)], ["102 B", "15.3 kB", "3.00 GB"]);
        assert_eq!(
            [binary_size(512 << 20), binary_size(3 << 29), binary_size(7)],
            ["512 MiB", "1.50 GiB", "7 B"]
        );
        assert_eq!([percent(0.5), percent(0.0012), percent(1.0)], ["50.0 %", "0.12 %", "100 %"]);
        assert_eq!([percent(1e-9), percent(0.999_999_9), percent(0.0)], ["<0.001 %", "99.999 %", "0 %"]);
    }

    #[test]
    fn text_from_outside_is_bounded_and_has_no_control_characters() {
        assert_eq!(plain("a\u{1b}[31mb\n"), "a\u{fffd}[31mb\u{fffd}");
        assert_eq!(plain(&"x".repeat(5000)).chars().count(), PLAIN_CHARS_MAX + 1);
    }
}
