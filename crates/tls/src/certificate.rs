//! The dates of a certificate (RFC 5280, section 4.1.2.5). `rustls` checks certificates of others but not our own, so this
//! reads the few fields that an operator is told of. Called by [`bundle`](crate::bundle).

/// Tags of DER (X.690, section 8).
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The dates of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The first second in which it is valid, since 1970 (UTC).
    pub from_s: i64,
    /// The last second in which it is valid, since 1970 (UTC).
    pub until_s: i64,
}

impl Certificate {
    /// Reads the dates of a certificate in DER. None if it is none.
    #[must_use]
    pub fn of_der(der: &[u8]) -> Option<Self> {
        let (mut certificate, _) = element(der, SEQUENCE)?;
        let (mut fields, _) = element(certificate, SEQUENCE)?;
        if fields.first() == Some(&VERSION) {
            fields = any(fields)?.2;
        }
        // Serial number, algorithm, issuer.
        for _ in 0..3 {
            fields = any(fields)?.2;
        }
        (certificate, _) = element(fields, SEQUENCE)?;
        let (tag, from, rest) = any(certificate)?;
        let from_s = seconds(tag, from)?;
        let (tag, until, _) = any(rest)?;
        Some(Self { from_s, until_s: seconds(tag, until)? })
    }
}

/// The tag and content of the first element, and the rest.
fn any(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&short, rest) = rest.split_first()?;
    let (length, rest) = match short {
        0..=127 => (usize::from(short), rest),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(short - 0x80))?;
            (length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// The content of the first element, which must have this tag, and the rest.
fn element(der: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = any(der)?;
    (tag == wanted).then_some((content, rest))
}

/// The time of `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn seconds(tag: u8, text: &[u8]) -> Option<i64> {
    let digits = text.strip_suffix(b"Z")?;
    let number = |from: usize, length: usize| {
        let part = digits.get(from..from + length)?;
        part.iter()
            .all(u8::is_ascii_digit)
            .then(|| part.iter().fold(0, |n, digit| n * 10 + i64::from(digit - b'0')))
    };
    let (year, at) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year = number(0, 2)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, 2)
        }
        (GENERALIZED_TIME, 14) => (number(0, 4)?, 4),
        _ => return None,
    };
    let [month, day, hour, minute, second] = [0, 2, 4, 6, 8].map(|offset| number(at + offset, 2));
    let (month, day) = (month?, day?);
    ((1..=12).contains(&month) && (1..=31).contains(&day))
        .then_some(days(year, month, day) * 86_400 + hour? * 3600 + minute? * 60 + second?)
}

/// Days since 1970 of a date (of the proleptic Gregorian calendar).
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that a leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days_of_month = (153 * month + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + days_of_month - 719_468
}

/// A second since 1970 as a date: `2026-11-24`.
#[must_use]
pub fn date(second: i64) -> String {
    let day = second.div_euclid(86_400);
    let mut year = 1970 + day.div_euclid(366);
    while days(year + 1, 1, 1) <= day {
        year += 1;
    }
    let mut month = 1;
    while month < 12 && days(year, month + 1, 1) <= day {
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", day - days(year, month, 1) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_and_written() {
        for (text, second, written) in [
            (&b"700101000000Z"[..], 0, "1970-01-01"),
            (b"261124184500Z", 1_795_545_900, "2026-11-24"),
            (b"20510301000000Z", 2_561_241_600, "2051-03-01"),
            (b"240229235959Z", 1_709_251_199, "2024-02-29"),
            (b"491231235959Z", 2_524_607_999, "2049-12-31"),
            (b"500101000000Z", -631_152_000, "1950-01-01"),
        ] {
            let tag = if text.len() == 13 { UTC_TIME } else { GENERALIZED_TIME };
            let read = seconds(tag, text).expect("a time");
            assert_eq!((read, date(read).as_str()), (second, written));
        }
        for wrong in [&b"2611241845Z"[..], b"261324184500Z", b"26112418450xZ", b"261124184500", b""] {
            assert_eq!(seconds(UTC_TIME, wrong), None);
        }
    }

    #[test]
    fn anything_is_read_without_a_panic() {
        for bytes in
            [&[][..], &[0x30], &[0x30, 0x80], &[0x30, 0x84, 255, 255, 255, 255], &[0x30, 3, 0x30, 1, 0xa0]]
        {
            assert_eq!(Certificate::of_der(bytes), None);
        }
    }
}
