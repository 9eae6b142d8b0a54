//! Lines of logs in the Common and the Combined Log Format.
//!
//! Only [`super`] calls it. Pure.
//!
//! `host ident user [10/Oct/2000:13:55:36 -0700] "GET /a.gif HTTP/1.0" 200 2326`, and in the
//! Combined Log Format after it the referer and the agent, which are not looked at. Source: Apache's
//! documentation, "Log Files"; the escapes in the request are those of Apache and nginx.

use super::{Entry, What, what_of};
use crate::workload::escaped;

/// Reads a line.
///
/// Errors: what in it is not as it should be.
pub(super) fn parse(line: &[u8]) -> Result<Entry, &'static str> {
    let begin = line.windows(2).position(|two| two == b" [").ok_or("no [time]")? + 2;
    let (time, rest) = line[begin..].split_at_checked(TIME_BYTES).ok_or("no [time]")?;
    let at_s = unix_seconds(time).ok_or("no time as in 10/Oct/2000:13:55:36 -0700")?;
    let rest = rest.strip_prefix(b"] \"").ok_or("no \"request\" after the time")?;
    let (request, rest) = unquoted(rest).ok_or("the request has no end")?;
    let mut columns = rest.split(|&byte| byte == b' ').filter(|column| !column.is_empty());
    let status = columns.next().filter(|column| column.len() == 3).and_then(number).ok_or("no status")?;
    let file_bytes = match columns.next() {
        Some(b"-") => 0,
        Some(digits) => number(digits).ok_or("no size")?,
        None => return Err("no size"),
    };
    // The status is below 1,000: it has three digits.
    Ok(Entry { at_s, what: answered(&request, status as u16, file_bytes) })
}

/// How a replay treats a request line with its answer.
pub(super) fn answered(request: &[u8], status: u16, file_bytes: u64) -> What {
    if request.starts_with(b"GET ") {
        what_of(status, file_bytes, || path_of(request))
    } else {
        What::OtherMethod
    }
}

/// Bytes of a time, without its brackets.
const TIME_BYTES: usize = 26;

const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// Unix seconds of `10/Oct/2000:13:55:36 -0700`; none before 1970 or after 2106.
fn unix_seconds(time: &[u8]) -> Option<u32> {
    has_form(time, b"../.../....:..:..:.. .....").then_some(())?;
    let month = MONTHS.iter().position(|&name| name == &time[3..6])? as i64 + 1;
    let local_s = seconds_since_1970([&time[7..11], &time[..2]], month, &time[12..20])?;
    let zone_s = (bounded(&time[22..24], 0, 23)? * 60 + bounded(&time[24..26], 0, 59)?) * 60;
    let zone_s = match time[21] {
        b'+' => zone_s,
        b'-' => -zone_s,
        _ => return None,
    };
    u32::try_from(local_s - zone_s).ok()
}

/// Whether a text has the bytes of a form where that has no point.
pub(super) fn has_form(text: &[u8], form: &[u8]) -> bool {
    text.len() == form.len() && text.iter().zip(form).all(|(byte, form)| *form == b'.' || byte == form)
}

/// The seconds from the first of 1970 to a year and day, of a month, and a time such as `13:55:36`.
pub(super) fn seconds_since_1970([year, day]: [&[u8]; 2], month: i64, clock: &[u8]) -> Option<i64> {
    let year = bounded(year, 1970, 2200)?;
    let day = bounded(day, 1, days_of(month, year))?;
    let (hour, minute) = (bounded(&clock[..2], 0, 23)?, bounded(&clock[3..5], 0, 59)?);
    // Second 60 is a leap second, which Unix time has not.
    let second = bounded(&clock[6..8], 0, 60)?;
    Some(days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// A whole number of digits alone, from `least` to `most`.
pub(super) fn bounded(digits: &[u8], least: u64, most: u64) -> Option<i64> {
    number(digits).filter(|value| (least..=most).contains(value)).map(|value| value as i64)
}

fn days_of(month: i64, year: i64) -> u64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from the first of 1970, in the Gregorian calendar: years begin with March, so that the leap
/// day is the last of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before_year = year * 365 + year / 4 - year / 100 + year / 400;
    // 719,468 days lie between the first of March of year 0 and 1970.
    before_year + (month * 153 + 2) / 5 + day - 1 - 719_468
}

/// A whole number of digits alone.
fn number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(digits).ok()?.parse().ok()).flatten()
}

/// The text before the closing quote, without its escapes, and the rest after it.
fn unquoted(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut plain = Vec::with_capacity(text.len());
    let mut at = 0;
    loop {
        match *text.get(at)? {
            b'"' => return Some((plain, &text[at + 1..])),
            b'\\' => {
                let (byte, length) = escape(&text[at..]);
                plain.push(byte);
                at += length;
            }
            byte => {
                plain.push(byte);
                at += 1;
            }
        }
    }
}

/// The byte that the escape in front stands for, and the escape's length; a backslash that is no
/// escape stands for itself.
fn escape(text: &[u8]) -> (u8, usize) {
    let hex = |at: usize| char::from(*text.get(at)?).to_digit(16);
    match text.get(1) {
        Some(b'x' | b'X') => match (hex(2), hex(3)) {
            (Some(high), Some(low)) => ((high << 4 | low) as u8, 4),
            _ => (b'\\', 1),
        },
        Some(&byte @ (b'"' | b'\\')) => (byte, 2),
        Some(b'n') => (b'\n', 2),
        Some(b'r') => (b'\r', 2),
        Some(b't') => (b'\t', 2),
        _ => (b'\\', 1),
    }
}

/// The path of `GET /a b.html HTTP/1.0`: what stands between method and version, which HTTP/0.9
/// lacks. None when it is no path, as in `GET *`.
fn path_of(request: &[u8]) -> Option<Box<str>> {
    let target = request.strip_prefix(b"GET ")?;
    let target = match target.iter().rposition(|&byte| byte == b' ') {
        Some(space) if target[space + 1..].starts_with(b"HTTP/") => &target[..space],
        _ => target,
    };
    let target = target.trim_ascii();
    // The absolute form (RFC 9112, section 3.2.2).
    let path = match target.split_at_checked(7) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(b"http://") => {
            rest.iter().position(|&byte| byte == b'/').map_or(b"/".as_slice(), |slash| &rest[slash..])
        }
        _ => target,
    };
    path.starts_with(b"/").then(|| escaped(path))
}

#[cfg(test)]
#[path = "clf_tests.rs"]
mod tests;
