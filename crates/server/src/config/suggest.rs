//! "Did you mean": the known name nearest to a mistyped one.
//!
//! Called by `config::file`, `config::environment` and `config::values` for an unknown name. It must not decide what is an error:
//! it only finds a help line for one.

/// The candidate nearest to the mistyped `given`, or `None` if none is near.
///
/// Case, `-` and `_` do not count as differences: `Cache-Memory` is `cache_memory`.
pub(super) fn nearest<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = plain(given);
    // At most a third of the letters may differ, and at least one: beyond that a suggestion only confuses.
    let slips_max = (given.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&given, &plain(candidate)), candidate))
        .filter(|(slips, _)| *slips <= slips_max)
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

/// The help line that goes with [`nearest`].
pub(super) fn did_you_mean<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(given, candidates).map(|name| format!("did you mean `{name}`?"))
}

/// A name in the form in which it is compared.
fn plain(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["freshness", "workers", "cache_memory", "root"];

    #[test]
    fn near_names_are_found() {
        assert_eq!(nearest("freshnes", NAMES), Some("freshness"));
        assert_eq!(nearest("frehsness", NAMES), Some("freshness"));
        assert_eq!(nearest("worker", NAMES), Some("workers"));
        assert_eq!(nearest("Cache-Memory", NAMES), Some("cache_memory"));
        assert_eq!(nearest("rot", NAMES), Some("root"));
    }

    #[test]
    fn far_names_are_not() {
        assert_eq!(nearest("tls", NAMES), None);
        assert_eq!(nearest("", NAMES), None);
        assert_eq!(nearest("x", NAMES), None);
    }
}
