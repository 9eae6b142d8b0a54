//! Dates in the three formats of HTTP (RFC 9110 section 5.6.7) and in the formats of logs.
//!
//! Called by the engine for heads, and by `server` for logs. It must not read a clock.

/// The last second with a four-digit year: 9999-12-31T23:59:59Z.
const LAST_S: i64 = 253_402_300_799;
const DAY_S: i64 = 86_400;
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
/// Starting with 1970-01-01, a Thursday.
const WEEKDAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];

/// A time in UTC, split into its parts.
struct Civil {
    year: u16,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
    weekday: u8,
}

/// Splits a time. Times before 1970 or after 9999 are clamped, because HTTP cannot represent them and a file
/// with such a time must not stop the server.
fn civil(unix_s: i64) -> Civil {
    let unix_s = unix_s.clamp(0, LAST_S);
    let (days, in_day) = (unix_s / DAY_S, unix_s % DAY_S);
    // Converts days to a date by eras of 400 years that begin on 1 March, so that the leap day comes last
    // (proleptic Gregorian calendar; there are 719,468 days from 0000-03-01 to 1970-01-01).
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    Civil {
        year: (era * 400 + year_of_era + i64::from(month <= 2)) as u16,
        month: month as u8,
        day: (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u8,
        hour: (in_day / 3_600) as u8,
        minute: (in_day / 60 % 60) as u8,
        second: (in_day % 60) as u8,
        weekday: (days % 7) as u8,
    }
}

impl Civil {
    fn month_name(&self) -> &'static [u8; 3] {
        MONTHS[usize::from(self.month - 1)]
    }
}

/// Writes `value` at `at` with leading zeros, `N` digits wide.
fn digits<const N: usize>(out: &mut [u8], at: usize, value: u16) {
    let mut value = value;
    for byte in out[at..at + N].iter_mut().rev() {
        *byte = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

fn time_of_day(out: &mut [u8], at: usize, civil: &Civil) {
    digits::<2>(out, at, civil.hour.into());
    digits::<2>(out, at + 3, civil.minute.into());
    digits::<2>(out, at + 6, civil.second.into());
}

/// Formats an IMF-fixdate: `Sun, 06 Nov 1994 08:49:37 GMT`. `unix_s` is in seconds since 1970.
pub fn http_date(unix_s: i64) -> [u8; 29] {
    let civil = civil(unix_s);
    let mut out = *b"Thu, 00 Jan 0000 00:00:00 GMT";
    out[..3].copy_from_slice(WEEKDAYS[usize::from(civil.weekday)]);
    digits::<2>(&mut out, 5, civil.day.into());
    out[8..11].copy_from_slice(civil.month_name());
    digits::<4>(&mut out, 12, civil.year);
    time_of_day(&mut out, 17, &civil);
    out
}

/// Parses a date in any of the three formats of RFC 9110 section 5.6.7 into seconds since 1970. None if it
/// has none of them or is before 1970; such a field must be ignored. Two-digit years stand for 1970 to 2069.
pub fn parse_http_date(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok()?;
    // `httpdate` accepts any byte between the date and the time of the second format.
    let time = text.trim_ascii_end().strip_suffix(" GMT");
    if time.is_some_and(|time| time.as_bytes().iter().nth_back(8) != Some(&b' ')) {
        return None;
    }
    let moment = httpdate::parse_http_date(text).ok()?;
    let since = moment.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

/// Formats a date for the combined log format: `20/Nov/2026:23:17:00 +0000`.
pub fn log_date(unix_s: i64) -> [u8; 26] {
    let civil = civil(unix_s);
    let mut out = *b"00/Jan/0000:00:00:00 +0000";
    digits::<2>(&mut out, 0, civil.day.into());
    out[3..6].copy_from_slice(civil.month_name());
    digits::<4>(&mut out, 7, civil.year);
    time_of_day(&mut out, 12, &civil);
    out
}

/// Formats a date for JSON logs, RFC 3339: `2026-11-20T23:17:00Z`.
pub fn iso_date(unix_s: i64) -> [u8; 20] {
    let civil = civil(unix_s);
    let mut out = *b"0000-00-00T00:00:00Z";
    digits::<4>(&mut out, 0, civil.year);
    digits::<2>(&mut out, 5, civil.month.into());
    digits::<2>(&mut out, 8, civil.day.into());
    time_of_day(&mut out, 11, &civil);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn http(unix_s: i64) -> String {
        String::from_utf8(http_date(unix_s).to_vec()).unwrap()
    }

    #[test]
    fn known_dates() {
        // The example of RFC 9110 section 5.6.7.
        assert_eq!(http(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(http(4_107_542_400), "Mon, 01 Mar 2100 00:00:00 GMT");
        assert_eq!(http(LAST_S), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn times_out_of_range_are_clamped() {
        assert_eq!(http_date(-1), http_date(0));
        assert_eq!(http_date(i64::MIN), http_date(0));
        assert_eq!(http_date(i64::MAX), http_date(LAST_S));
    }

    #[test]
    fn log_dates() {
        assert_eq!(&log_date(1_795_216_620), b"20/Nov/2026:23:17:00 +0000");
        assert_eq!(&iso_date(1_795_216_620), b"2026-11-20T23:17:00Z");
    }

    #[test]
    fn three_formats_are_read() {
        for text in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            assert_eq!(parse_http_date(text.as_bytes()), Some(784_111_777), "{text}");
        }
    }

    #[test]
    fn invalid_dates_are_refused() {
        for text in [
            "",
            "0",
            "Sun",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1894 08:49:37 GMT",
            "Sunday, 06-Nov-94T08:49:37 GMT",
            " GMT",
            "\u{e9}",
        ] {
            assert_eq!(parse_http_date(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_http_date(b"Sun, 06 Nov 1994 08:49:37 GM\xff"), None);
    }

    proptest! {
        #[test]
        fn round_trip(unix_s in 0..=LAST_S) {
            prop_assert_eq!(parse_http_date(&http_date(unix_s)), Some(unix_s));
        }

        #[test]
        fn agrees_with_httpdate(unix_s in 0..=LAST_S) {
            let moment = std::time::UNIX_EPOCH + std::time::Duration::from_secs(unix_s as u64);
            prop_assert_eq!(http(unix_s), httpdate::fmt_http_date(moment));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse_http_date(&bytes);
        }

        #[test]
        fn almost_valid_dates_never_panic(unix_s in 0..=LAST_S, at in 0usize..29, byte: u8) {
            let mut bytes = http_date(unix_s);
            bytes[at] = byte;
            let _ = parse_http_date(&bytes);
        }
    }
}
