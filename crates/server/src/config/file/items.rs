//! The TOML types of values: the texts that a value of each kind has in the file.

use std::ops::Range;

use toml::de::DeValue;

use super::super::error::Refusal;
use super::super::kind::{Bounds, Kind, TextFormat, Unit};
use super::Value;

/// Why a value has the wrong TOML type, and where.
type Wrong = (Range<usize>, Refusal);

fn wrong_type(kind: Kind, value: &Value<'_>, help: Option<String>) -> Wrong {
    (value.span(), Refusal::new(format!("must be {}", kind.file_form())).helped(help))
}

/// A text of a value, with its place.
type Item = (String, Range<usize>);

/// The texts in a value, if the value has the TOML type of the kind.
pub(super) fn items(kind: Kind, value: &Value<'_>) -> Result<Vec<Item>, Wrong> {
    let text = value.get_ref().as_str();
    match (kind, text, value.get_ref().as_array()) {
        (Kind::Command, Some(text), _) if text.contains(' ') => {
            let words: Vec<_> = text.split(' ').filter(|word| !word.is_empty()).collect();
            let help = format!("with arguments, write `{words:?}`");
            Err((value.span(), Refusal::new("is one word, the program").helped(help)))
        }
        // One server, or one program, needs no brackets.
        (Kind::Command | Kind::Servers, Some(text), _) => Ok(vec![(text.to_owned(), value.span())]),
        (Kind::Fields, _, _) => fields(value),
        (Kind::Numbers(bounds), _, Some(array)) => {
            array.iter().map(|item| Ok((scalar(Kind::Number(bounds), item)?, item.span()))).collect()
        }
        (_, _, Some(array)) if kind.is_list() || matches!(kind, Kind::Command | Kind::Servers) => {
            let number = |item: &Value<'_>| {
                let takes_numbers = kind == Kind::Texts(TextFormat::ErrorStatus);
                item.get_ref().as_integer().filter(|_| takes_numbers).map(|number| number.to_string())
            };
            let text = |item: &Value<'_>| match item.get_ref().as_str() {
                Some(text) => Ok((text.to_owned(), item.span())),
                None if number(item).is_some() => Ok((number(item).unwrap_or_default(), item.span())),
                None if kind == Kind::Command => Err(wrong_type(kind, item, None)),
                None => Err((item.span(), Refusal::new("must be in quotes"))),
            };
            array.iter().map(text).collect()
        }
        _ if kind.is_list() || matches!(kind, Kind::Command | Kind::Servers) => {
            Err(wrong_type(kind, value, text.map(|text| format!("write `[{text:?}]`"))))
        }
        _ => Ok(vec![(scalar(kind, value)?, value.span())]),
    }
}

/// The fields in a table, each with one value or a list of them.
fn fields(value: &Value<'_>) -> Result<Vec<Item>, Wrong> {
    let wrong = |value: &Value<'_>| wrong_type(Kind::Fields, value, None);
    let mut fields = Vec::new();
    for (name, value) in value.get_ref().as_table().ok_or_else(|| wrong(value))? {
        let one = std::slice::from_ref(value);
        let values = value.get_ref().as_array().map_or(one, |array| array);
        for value in values {
            let refusal = || Refusal::new("must be a text in quotes, or a list of them");
            let text = value.get_ref().as_str().ok_or_else(|| (value.span(), refusal()))?;
            fields.push((format!("{}: {text}", name.get_ref()), value.span()));
        }
    }
    Ok(fields)
}

/// The text of a value that is no list.
fn scalar(kind: Kind, value: &Value<'_>) -> Result<String, Wrong> {
    let wrong = |help| Err(wrong_type(kind, value, help));
    let unit = match kind {
        Kind::Number(Bounds { unit, .. }) | Kind::AutoNumber(Bounds { unit, .. }) => Some(unit),
        _ => None,
    };
    match (value.get_ref(), kind, unit) {
        (DeValue::Boolean(yes), Kind::Switch | Kind::AutoSwitch, _) => Ok(yes.to_string()),
        (DeValue::Integer(number), _, Some(Unit::BitsPerS)) => {
            wrong(Some(format!("add a unit: write `\"{}Mbit\"`", number.as_str())))
        }
        (DeValue::Integer(number), _, Some(Unit::Millis)) => {
            let number = number.as_str();
            wrong(Some(format!("add a unit: write `\"{number}ms\"`, `\"{number}s\"` or `\"{number}m\"`")))
        }
        // A number above 64 bits is out of bounds, and no number is one of several words: the text is refused later.
        (DeValue::Integer(number), Kind::Number(_) | Kind::AutoNumber(_) | Kind::OneOf(_), _) => {
            let parsed = i64::from_str_radix(number.as_str(), number.radix());
            Ok(parsed.map_or_else(|_| number.as_str().to_owned(), |number| number.to_string()))
        }
        (DeValue::String(text), Kind::Switch, _) if matches!(text.as_ref(), "true" | "false") => {
            wrong(Some(format!("write `{text}`, without quotes")))
        }
        (DeValue::String(text), _, Some(Unit::Count)) => {
            wrong(text.parse::<u64>().is_ok().then(|| format!("write `{text}`, without quotes")))
        }
        (DeValue::String(text), _, _) if kind != Kind::Switch => Ok(text.to_string()),
        _ => wrong(None),
    }
}
