//! The dynamic share of a workload: requests that an application answers.
//!
//! As in SPECweb99, a dynamic request is for a file of the workload, with the
//! same popularity: the application answers with a page that contains the file (`examples/application.rs`). Pure.

use flash_kit::{Error, Result};

/// The path prefix of dynamic requests, unless the user gives another one.
pub(super) const PREFIX: &str = "/dynamic/";

/// Reads a share of the requests, such as `30%`: above 0 and at most 1.
pub(super) fn parse_share(text: &str) -> std::result::Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
    let percent = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0);
    percent
        .map(|percent| percent / 100.0)
        .ok_or_else(|| "write one above 0% and at most 100%, as in 30%".to_owned())
}

/// A prefix that [`check_prefix`] allows.
pub(super) fn checked_prefix(text: &str) -> Result<String> {
    check_prefix(text).map(|()| text.to_owned())
}

/// Refuses a prefix that could not stand as it is in a request and in the configuration of each server.
///
/// Errors: usage.
pub fn check_prefix(prefix: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_".contains(c);
    let is_whole = prefix.len() > 2 && prefix.starts_with('/') && prefix.ends_with('/');
    if is_whole && !prefix.contains("//") && prefix.chars().all(is_plain) {
        return Ok(());
    }
    Err(Error::usage(format!(
        "a path prefix of '{prefix}': it must begin and end with a slash, as in {PREFIX}, and be of letters, digits, - and _"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_prefixes_are_read() {
        assert_eq!((parse_share("30%"), parse_share("100%")), (Ok(0.3), Ok(1.0)));
        for share in ["30", "0%", "101%", "NaN%", "x%"] {
            parse_share(share).unwrap_err();
        }
        check_prefix(PREFIX).unwrap();
        check_prefix("/a/b-c/").unwrap();
        for prefix in ["", "/", "//", "/a", "a/", "/a b/", "/a//b/", "/{a}/"] {
            assert_eq!(check_prefix(prefix).unwrap_err().exit_code(), 2, "{prefix}");
        }
    }
}
