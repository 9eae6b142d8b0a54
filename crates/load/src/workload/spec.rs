//! The name of a workload on the command line.
//!
//! The commands parse it; [`super::Workload::open`] makes the workload. Pure.

use std::path::PathBuf;
use std::str::FromStr;

use flash_kit::{Error, Result};

/// The largest alpha: with it, one request in a thousand is for any but the first file.
const ALPHA_MAX: f64 = 10.0;

#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    /// SPECweb99's static part: `specweb99` (see [`super::choice::Choice::Specweb99`]).
    Specweb99,
    /// Lengths with a heavy tail: `pareto`, each file of `flash fileset pareto` equally often, as
    /// [`super::choice::Choice::Deck`] has it (see [`crate::files::heavy_tail`]).
    Pareto,
    /// Every file equally often: `uniform`.
    Uniform,
    /// The file on place R of the list as often as 1/R^alpha: `zipf:ALPHA`.
    Zipf {
        /// 0 to 10; 0 is uniform.
        alpha: f64,
    },
    /// The requests of a log: `log:FILE` (see [`super::access_log`]).
    Log {
        /// A log in common or combined format, or of the World Cup 98; also gzipped.
        file: PathBuf,
    },
    /// The lines of a list in turn, then again: `list:FILE`.
    List { file: PathBuf },
    /// One path over and over: `single:PATH`.
    Single {
        /// The path, with or without a slash in front.
        path: String,
    },
}

impl FromStr for Spec {
    type Err = Error;

    /// Errors: usage, for a name that is none or that lacks its value.
    fn from_str(text: &str) -> Result<Self> {
        let (name, value) = match text.split_once(':') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let usage = |why: &str| Err(Error::usage(format!("workload '{text}': {why}")));
        match (name, value) {
            ("specweb99", None) => Ok(Self::Specweb99),
            ("pareto", None) => Ok(Self::Pareto),
            ("uniform", None) => Ok(Self::Uniform),
            ("zipf", Some(alpha)) => match alpha.parse() {
                Ok(alpha) if (0.0..=ALPHA_MAX).contains(&alpha) => Ok(Self::Zipf { alpha }),
                _ => usage(&format!("alpha must be a number from 0 to {ALPHA_MAX}, as in zipf:0.8")),
            },
            ("zipf", None) => usage("alpha is missing: write zipf:ALPHA, as in zipf:1"),
            ("log", Some(file)) if !file.is_empty() => Ok(Self::Log { file: file.into() }),
            ("log", _) => usage("the file is missing: write log:FILE"),
            ("trace", _) => usage("a workload from an access log is named log:FILE, not trace:FILE"),
            ("list", Some(file)) if !file.is_empty() => Ok(Self::List { file: file.into() }),
            ("list", _) => usage("the file is missing: write list:FILE"),
            ("single", Some(path)) if !path.is_empty() => Ok(Self::Single { path: path.to_owned() }),
            ("single", _) => usage("the path is missing: write single:PATH"),
            ("specweb99" | "pareto" | "uniform", Some(_)) => usage(&format!("{name} takes no value")),
            _ => usage("write specweb99, pareto, uniform, zipf:ALPHA, list:FILE, log:FILE or single:PATH"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (text, expected) in [
            ("specweb99", Spec::Specweb99),
            ("pareto", Spec::Pareto),
            ("uniform", Spec::Uniform),
            ("zipf:0.8", Spec::Zipf { alpha: 0.8 }),
            ("log:logs/a:b.gz", Spec::Log { file: "logs/a:b.gz".into() }),
            ("list:a.txt", Spec::List { file: "a.txt".into() }),
            ("single:/a?b:c", Spec::Single { path: "/a?b:c".to_owned() }),
        ] {
            assert_eq!(text.parse::<Spec>().unwrap(), expected);
        }
    }

    #[test]
    fn wrong_names_say_what_would_be_right() {
        for (text, part) in [
            ("", "write specweb99, pareto, uniform"),
            ("Uniform", "write specweb99, pareto, uniform"),
            ("pareto:1", "pareto takes no value"),
            ("uniform:", "uniform takes no value"),
            ("zipf", "write zipf:ALPHA"),
            ("zipf:", "from 0 to 10"),
            ("zipf:-1", "from 0 to 10"),
            ("zipf:NaN", "from 0 to 10"),
            ("zipf:inf", "from 0 to 10"),
            ("log:", "write log:FILE"),
            ("trace:access.log", "is named log:FILE"),
            ("single", "write single:PATH"),
            ("list:", "write list:FILE"),
        ] {
            let error = text.parse::<Spec>().unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains(part), "{text}: {error}");
        }
    }
}
