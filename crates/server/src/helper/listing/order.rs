//! The order of the entries of a listing. Pure.

use std::cmp::Ordering;

use flash_engine::{ListingKey, ListingOrder};

use super::Entry;

/// Compares two entries. Directories come first in every order, and an unknown size or time comes last.
pub(super) fn compare(a: &Entry, b: &Entry, order: ListingOrder) -> Ordering {
    let directed = |ordering: Ordering| if order.descending { ordering.reverse() } else { ordering };
    let by_name = || a.natural.cmp(&b.natural).then_with(|| a.name.cmp(&b.name));
    let within = || match order.key {
        ListingKey::Name => directed(by_name()),
        ListingKey::Size => known_first(a.size_bytes, b.size_bytes, directed).then_with(by_name),
        ListingKey::Time => known_first(a.modified_s, b.modified_s, directed).then_with(by_name),
    };
    b.directory.cmp(&a.directory).then_with(within)
}

fn known_first<T: Ord>(a: Option<T>, b: Option<T>, directed: impl Fn(Ordering) -> Ordering) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => directed(a.cmp(&b)),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

/// The form of a name by whose bytes it has its place: numbers count by their value, and the case of ASCII letters only between
/// names that are otherwise equal. For a number there is a zero, its length and its digits.
pub(super) fn natural(name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len() + 8);
    let mut rest = name;
    while let Some(first) = rest.first() {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            key.push(first.to_ascii_lowercase());
            rest = &rest[1..];
            continue;
        }
        let (number, others) = rest.split_at(digits);
        let zeros = number.iter().take_while(|digit| **digit == b'0').count();
        let significant = &number[zeros..];
        // No name is longer than 255 bytes.
        key.extend([b'0', significant.len() as u8]);
        key.extend_from_slice(significant);
        rest = others;
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_by_their_value() {
        let sorted = [
            "",
            "-",
            "0",
            "00",
            "1",
            "01",
            "2.txt",
            "10.txt",
            "File1",
            "file1",
            "file2",
            "file2a",
            "file10",
            "file10.1",
            "file10.9",
            "file10.10",
            "file18446744073709551617",
            "file99999999999999999999",
            "filea",
            "README",
            "readme",
            "v1.9-2",
            "v1.10-1",
            "\u{e9}",
        ];
        for (place, a) in sorted.iter().enumerate() {
            for (other, b) in sorted.iter().enumerate() {
                let by_name = ListingOrder::of_query(None);
                let [one, another] = [a, b].map(|name| entry(name, false, None, None));
                let (ordering, expected) = (compare(&one, &another, by_name), place.cmp(&other));
                // `0` and `00` are the same number, as are `1` and `01`: their bytes decide.
                assert_eq!(ordering == Ordering::Equal, a == b, "{a} {b}");
                if !["0", "00", "1", "01"].contains(a) {
                    assert_eq!(ordering, expected, "{a} {b}");
                }
            }
        }
    }

    fn entry(name: &str, directory: bool, size_bytes: Option<u64>, modified_s: Option<i64>) -> Entry {
        Entry { name: name.into(), natural: natural(name.as_bytes()), directory, size_bytes, modified_s }
    }

    #[test]
    fn each_order_has_directories_first_and_the_unknown_last() {
        let mut entries = [
            entry("a10", false, Some(5), Some(30)),
            entry("a9", false, Some(5), Some(20)),
            entry("b", false, Some(70), Some(10)),
            entry("c", false, None, None),
            entry("d10", true, None, Some(1)),
            entry("d9", true, None, Some(2)),
        ];
        for (word, expected) in [
            ("name", ["d9", "d10", "a9", "a10", "b", "c"]),
            ("-name", ["d10", "d9", "c", "b", "a10", "a9"]),
            ("size", ["d9", "d10", "a9", "a10", "b", "c"]),
            ("-size", ["d9", "d10", "b", "a9", "a10", "c"]),
            ("time", ["d10", "d9", "b", "a9", "a10", "c"]),
            ("-time", ["d9", "d10", "a10", "a9", "b", "c"]),
        ] {
            let order = ListingOrder::of_query(Some(format!("sort={word}").as_bytes()));
            entries.sort_by(|a, b| compare(a, b, order));
            let names = entries.each_ref().map(|entry| String::from_utf8_lossy(&entry.name).into_owned());
            assert_eq!(names, expected, "{word}");
        }
    }
}
