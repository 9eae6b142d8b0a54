//! Times and sizes as nginx writes them.

/// Seconds of a time such as `30s`, `1h30m` or `500ms`, rounded up.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let (mut total_ms, mut rest) = (0_u64, text.trim());
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let (unit, unit_ms) = [
            ("ms", 1),
            ("s", 1_000),
            ("m", 60_000),
            ("h", 3_600_000),
            ("d", 86_400_000),
            ("w", 604_800_000),
            ("M", 2_592_000_000),
            ("y", 31_536_000_000),
            ("", 1_000),
        ]
        .into_iter()
        .find(|(unit, _)| rest.starts_with(unit))?;
        total_ms = total_ms.checked_add(number.checked_mul(unit_ms)?)?;
        rest = rest[unit.len()..].trim_start();
    }
    Some(total_ms.div_ceil(1_000))
}

/// Bytes of a size such as `512`, `8k`, `10m` or `1g`.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// A size as Flash writes it.
pub(super) fn size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    whole.map_or_else(|| format!("{bytes}B"), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// The Cache-Control of `expires`; empty for none.
pub(super) fn expires(args: &[String]) -> Option<String> {
    let [value] = args else { return None };
    Some(match value.as_str() {
        "off" => String::new(),
        "epoch" => "no-cache".to_owned(),
        "max" => "max-age=315360000".to_owned(),
        value => match value.strip_prefix('-') {
            Some(time) => seconds(time).map(|_| "no-cache".to_owned())?,
            None => format!("max-age={}", seconds(value.trim_start_matches('+'))?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_have_their_units() {
        assert_eq!(seconds("1h30m"), Some(5_400));
        assert_eq!(seconds("30d"), Some(2_592_000));
        assert_eq!(seconds("1M"), Some(2_592_000));
        assert_eq!(seconds("65"), Some(65));
        assert_eq!(seconds("1ms"), Some(1));
        assert!(
            ["", "x", "1x", "99999999999999999999", "9999999999999999y"]
                .iter()
                .all(|text| seconds(text).is_none())
        );
        assert_eq!(bytes("10m").map(size).as_deref(), Some("10MiB"));
        assert_eq!(bytes("1000").map(size).as_deref(), Some("1000B"));
        assert_eq!(bytes("1x"), None);
    }

    #[test]
    fn expires_is_cache_control() {
        let of = |text: &str| expires(&[text.to_owned()]);
        assert_eq!(of("1y").as_deref(), Some("max-age=31536000"));
        assert_eq!(of("-1").as_deref(), Some("no-cache"));
        assert_eq!(of("off").as_deref(), Some(""));
        assert_eq!(of("$map"), None);
        assert_eq!(of("@15h"), None);
    }
}
