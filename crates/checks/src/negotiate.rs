//! Negotiation: `flash_http::negotiate` agrees with RFC 9110 sections 12.4.2, 12.5.1 and 12.5.3, and with its
//! own documentation where they leave a choice.

use flash_http::negotiate::{accept_encoding, prefers_json};
use flash_http::{Choice, Coding};

use crate::text::{elements, is_field_value, split_line, trim_blanks};

/// Checks `input`: a line with the available codings, followed by the value of `Accept-Encoding` or of
/// `Accept`.
pub fn negotiate(input: &[u8]) {
    let (there, field) = split_line(input);
    if !is_field_value(field) {
        return;
    }
    let names: Vec<&[u8]> = there.split(|&byte| byte == b' ').collect();
    let weights = weights(field);
    let acceptable = accept_encoding(Some(field));
    let choice = acceptable.choose(|coding| names.contains(&coding.token().as_bytes()));
    assert_eq!(choice, expected_choice(&weights, &names));
    for coding in Coding::ALL {
        assert_eq!(acceptable.accepts(coding), weight_of(&weights, coding).unwrap_or(0) > 0, "{coding:?}");
    }
    assert_eq!(prefers_json(Some(field)), expected_json(&weights));
}

/// A name in lower case and its weight in thousandths.
type Weighted = (Vec<u8>, u32);

/// Elements without a name or with a malformed weight are skipped.
fn weights(field: &[u8]) -> Vec<Weighted> {
    let weighted = |element: &[u8]| {
        let mut parts = element.split(|&byte| byte == b';').map(trim_blanks);
        let name = parts.next()?.to_ascii_lowercase();
        let mut weight = 1000;
        for parameter in parts.map(<[u8]>::to_ascii_lowercase) {
            if let Some(value) = parameter.strip_prefix(b"q=") {
                weight = thousandths(value)?;
            }
        }
        (!name.is_empty()).then_some((name, weight))
    };
    elements(field).filter_map(weighted).collect()
}

/// `qvalue` of section 12.4.2.
fn thousandths(value: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(value).ok()?;
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = decimals.len() <= 3 && decimals.bytes().all(|byte| byte.is_ascii_digit());
    let decimals: u32 = format!("{decimals:0<3}").parse().ok().filter(|_| is_digits)?;
    match (whole, decimals) {
        ("0", _) => Some(decimals),
        ("1", 0) => Some(1000),
        _ => None,
    }
}

/// If a name occurs more than once, its last weight counts.
fn named(weights: &[Weighted], name: &str) -> Option<u32> {
    weights.iter().rfind(|(found, _)| found == name.as_bytes()).map(|(_, weight)| *weight)
}

fn weight_of(weights: &[Weighted], coding: Coding) -> Option<u32> {
    let named = match coding {
        Coding::Gzip => weights.iter().rfind(|(name, _)| name == b"gzip" || name == b"x-gzip").map(|w| w.1),
        _ => named(weights, coding.token()),
    };
    named.or_else(|| self::named(weights, "*"))
}

/// The choice with the highest weight among the available and acceptable ones. Among equals, coded variants
/// win, in the order of [`Coding::ALL`]. A plain file that the field does not mention comes after every
/// coding that it names.
fn expected_choice(weights: &[Weighted], there: &[&[u8]]) -> Choice {
    let is_there = |coding: &Coding| there.contains(&coding.token().as_bytes());
    let mut choices: Vec<(u32, Choice)> = Coding::ALL
        .into_iter()
        .filter(is_there)
        .map(|coding| (2 * weight_of(weights, coding).unwrap_or(0), Choice::Coded(coding)))
        .collect();
    let identity = named(weights, "identity").or_else(|| named(weights, "*"));
    choices.push((identity.map_or(1, |weight| 2 * weight), Choice::Identity));
    // The sort is stable, so equal weights keep their order.
    choices.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    match choices[0] {
        (0, _) => Choice::NotAcceptable,
        (_, choice) => choice,
    }
}

fn expected_json(weights: &[Weighted]) -> bool {
    // The most precise range decides; among equally precise ones, the highest weight.
    let of = |ranges: [&str; 3]| {
        let weight = |range: &str| weights.iter().filter(|w| w.0 == range.as_bytes()).map(|w| w.1).max();
        let mut found =
            ranges.into_iter().zip([3, 2, 1]).filter_map(|(r, precision)| Some((weight(r)?, precision)));
        found.next().unwrap_or((0, 0))
    };
    let json = of(["application/json", "application/*", "*/*"]);
    json.0 > 0 && json > of(["text/html", "text/*", "*/*"])
}
