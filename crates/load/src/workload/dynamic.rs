//! The dynamic share of a workload: requests that an application answers.
//!
//! The commands make a [`Dynamic`] from their options. As in SPECweb99, a dynamic request is for a file of the workload, with the
//! same popularity: the application answers with a page that contains the file (`examples/application.rs`). Pure.

use std::fmt;

use flash_kit::{Error, Result};

/// The path prefix of dynamic requests, unless the user gives another one.
pub const PREFIX: &str = "/dynamic/";

#[derive(Clone, Debug, PartialEq)]
pub struct Dynamic {
    share: f64,
    prefix: String,
}

impl Dynamic {
    /// A share of the requests, as in `30%`, below a prefix such as [`PREFIX`].
    ///
    /// Errors: usage, for text that is no share above 0 and at most 100 %; for a prefix as in [`check_prefix`].
    pub fn new(share: &str, prefix: &str) -> Result<Self> {
        let percent = share.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
        let Some(percent) = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0) else {
            return Err(Error::usage(format!(
                "a dynamic share of '{share}': write one above 0% and at most 100%, as in 30%"
            )));
        };
        check_prefix(prefix)?;
        Ok(Self { share: percent / 100.0, prefix: prefix.to_owned() })
    }

    pub fn share(&self) -> f64 {
        self.share
    }

    /// The beginning of their paths; it begins and ends with a slash.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl fmt::Display for Dynamic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} % of the requests dynamic, below {}", (self.share * 1e4).round() / 1e2, self.prefix)
    }
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
        let dynamic = Dynamic::new("30%", PREFIX).unwrap();
        assert_eq!((dynamic.share(), dynamic.prefix()), (0.3, "/dynamic/"));
        assert_eq!(dynamic.to_string(), "30 % of the requests dynamic, below /dynamic/");
        assert_eq!(Dynamic::new("100%", "/a/b-c/").unwrap().share(), 1.0);
        for (share, prefix) in [
            ("30", PREFIX),
            ("0%", PREFIX),
            ("101%", PREFIX),
            ("NaN%", PREFIX),
            ("x%", PREFIX),
            ("5%", ""),
            ("5%", "/"),
            ("5%", "//"),
            ("5%", "/a"),
            ("5%", "a/"),
            ("5%", "/a b/"),
            ("5%", "/a//b/"),
            ("5%", "/{a}/"),
        ] {
            assert_eq!(Dynamic::new(share, prefix).unwrap_err().exit_code(), 2, "{share} {prefix}");
        }
    }
}
