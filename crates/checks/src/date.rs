//! Dates: a written date can be read back in all three formats of RFC 9110 section 5.6.7, and nothing else is
//! accepted.

use flash_http::date::{http_date, iso_date, log_date, parse_http_date};

use crate::text::{is_field_value, number};

const LAST_S: i64 = 253_402_300_799;
const DAY_S: i64 = 86_400;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Checks `input`, a time in seconds since 1970 or a date.
pub fn date(input: &[u8]) {
    if let Some(unix_s) = number(input) {
        written(unix_s);
    }
    if let Some(unix_s) = parse_http_date(input) {
        assert!((0..=LAST_S).contains(&unix_s));
        let Forms { imf, rfc850, asctime, asctime_zero, .. } = forms(unix_s);
        let is_of_it = [imf, rfc850, asctime, asctime_zero].iter().any(|form| form.as_bytes() == input);
        assert!(is_of_it || !is_field_value(input), "read as {unix_s}");
        written(unix_s);
    }
}

fn written(unix_s: i64) {
    // A time outside the range is written as the nearest one within it.
    let held_s = unix_s.clamp(0, LAST_S);
    let Forms { year, imf, rfc850, asctime, log, iso, .. } = forms(held_s);
    assert_eq!(http_date(unix_s).as_slice(), imf.as_bytes());
    assert_eq!(log_date(unix_s).as_slice(), log.as_bytes());
    assert_eq!(iso_date(unix_s).as_slice(), iso.as_bytes());
    assert_eq!(parse_http_date(imf.as_bytes()), Some(held_s));
    assert_eq!(parse_http_date(asctime.as_bytes()), Some(held_s));
    if (1970..2070).contains(&year) {
        assert_eq!(parse_http_date(rfc850.as_bytes()), Some(held_s), "{rfc850}");
    }
}

/// A time in every format.
struct Forms {
    year: i64,
    imf: String,
    rfc850: String,
    asctime: String,
    /// With a zero where RFC 9110 demands a space.
    asctime_zero: String,
    log: String,
    iso: String,
}

/// Counts years and months from 1970-01-01, a Thursday.
fn forms(unix_s: i64) -> Forms {
    let weekday = DAYS[((unix_s / DAY_S + 4) % 7) as usize];
    let (mut day, mut year, mut month) = (unix_s / DAY_S, 1970, 0);
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    while day >= 365 + i64::from(is_leap(year)) {
        day -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let days_of = |month: usize| match month {
        1 => 28 + i64::from(is_leap(year)),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    };
    while day >= days_of(month) {
        day -= days_of(month);
        month += 1;
    }
    let (day, name, in_day) = (day + 1, MONTHS[month], unix_s % DAY_S);
    let time = format!("{:02}:{:02}:{:02}", in_day / 3_600, in_day / 60 % 60, in_day % 60);
    let short = &weekday[..3];
    Forms {
        year,
        imf: format!("{short}, {day:02} {name} {year:04} {time} GMT"),
        rfc850: format!("{weekday}, {day:02}-{name}-{:02} {time} GMT", year % 100),
        asctime: format!("{short} {name} {day:2} {time} {year:04}"),
        asctime_zero: format!("{short} {name} {day:02} {time} {year:04}"),
        log: format!("{day:02}/{name}/{year:04}:{time} +0000"),
        iso: format!("{year:04}-{:02}-{day:02}T{time}Z", month + 1),
    }
}
