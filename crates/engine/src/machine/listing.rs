//! The forms of a directory listing: the engine chooses one for a request, and a helper makes it.

use flash_http::negotiate::Coding;
use serde::{Deserialize, Serialize};

/// Names of the files that introduce a directory, the first choice first. A listing shows the text of one.
pub const README_NAMES: [&str; 4] = ["README.md", "README", "README.txt", "README.html"];

/// A form of a listing. There are few, so that clients cannot fill the memory with variants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ListingForm {
    /// As JSON instead of HTML.
    pub json: bool,
    /// The order of the entries.
    pub order: ListingOrder,
    /// The coding in which it is compressed.
    #[serde(with = "places")]
    pub coding: Option<Coding>,
}

/// Codings as their places in [`Coding::ALL`].
mod places {
    use flash_http::negotiate::Coding;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(coding: &Option<Coding>, to: S) -> Result<S::Ok, S::Error> {
        coding.map(|coding| coding.place() as u8).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Coding>, D::Error> {
        let Some(place) = Option::<u8>::deserialize(from)? else { return Ok(None) };
        let coding = Coding::ALL.get(usize::from(place)).copied();
        coding.map(Some).ok_or_else(|| D::Error::custom("no such coding"))
    }
}

/// The order of the entries of a listing. Directories come before files in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ListingOrder {
    /// The column.
    pub key: ListingKey,
    /// Whether the last, the largest or the newest comes first.
    pub descending: bool,
}

/// A column by which a listing can be ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ListingKey {
    /// The name.
    #[default]
    Name,
    /// The size of files.
    Size,
    /// The time of the last change.
    Time,
}

impl ListingOrder {
    /// All orders.
    pub const ALL: [Self; 6] = [
        Self { key: ListingKey::Name, descending: false },
        Self { key: ListingKey::Name, descending: true },
        Self { key: ListingKey::Size, descending: false },
        Self { key: ListingKey::Size, descending: true },
        Self { key: ListingKey::Time, descending: false },
        Self { key: ListingKey::Time, descending: true },
    ];

    /// The order that the first `sort=` of a query asks for; the default for any other query.
    #[must_use]
    pub fn of_query(query: Option<&[u8]>) -> Self {
        let asked = query.and_then(|query| query.split(|byte| *byte == b'&').find_map(value_of_sort));
        Self::ALL.into_iter().find(|order| asked == Some(order.word().as_bytes())).unwrap_or_default()
    }

    /// The value of `sort` in a query.
    #[must_use]
    pub fn word(self) -> &'static str {
        match (self.key, self.descending) {
            (ListingKey::Name, false) => "name",
            (ListingKey::Name, true) => "-name",
            (ListingKey::Size, false) => "size",
            (ListingKey::Size, true) => "-size",
            (ListingKey::Time, false) => "time",
            (ListingKey::Time, true) => "-time",
        }
    }

    /// Whether requests without a query get it.
    pub(crate) fn is_default(self) -> bool {
        self == Self::default()
    }
}

fn value_of_sort(parameter: &[u8]) -> Option<&[u8]> {
    parameter.strip_prefix(b"sort=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_one_of_six_orders() {
        let word = |query: &str| ListingOrder::of_query(Some(query.as_bytes())).word();
        for order in ListingOrder::ALL {
            assert_eq!(ListingOrder::of_query(Some(format!("sort={}", order.word()).as_bytes())), order);
        }
        assert_eq!(word("a=b&sort=-time&sort=size&c"), "-time");
        for other in
            ["", "sort", "sort=", "sort=Size", "sort=%2Dsize", "sort=-size%20", "resort=size", "size"]
        {
            assert_eq!(word(other), "name", "{other}");
        }
        assert_eq!(ListingOrder::of_query(None).word(), "name");
    }
}
