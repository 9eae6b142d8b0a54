//! The folder of a run's results.
//!
//! A [`super::Driver`] has at most one: `run.json`, `report.html` and `report.json`, and in
//! `records/` a file of records for each level.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::{Error, Result};
use crate::record::file::Writer;
use crate::report::{self, REPORT_FILE};
use crate::results::{Run, folder as results};

/// The folder of record files in a folder of results.
const RECORDS: &str = "records";

/// A folder of results.
#[derive(Debug)]
pub(super) struct Out {
    folder: PathBuf,
}

impl Out {
    /// Makes the folder.
    ///
    /// Errors: usage, when it holds a run already; run, when it can't be made.
    pub(super) fn make(folder: &Path) -> Result<Self> {
        if folder.join(results::RUN_FILE).exists() {
            return Err(Error::usage(format!(
                "{} holds the results of another run: choose another folder",
                folder.display()
            )));
        }
        let records = folder.join(RECORDS);
        fs::create_dir_all(&records).map_err(|why| Error::file("make", &records, &why))?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// A writer of records for what is named so, and the name of its file in the folder.
    pub(super) fn records(&self, name: &str) -> Result<(Writer, String)> {
        let file: String = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
        let relative = format!("{RECORDS}/{file}.rec");
        Ok((Writer::create(&self.folder.join(&relative))?, relative))
    }

    /// The path of something in the folder.
    pub(super) fn path(&self, relative: &str) -> PathBuf {
        self.folder.join(relative)
    }

    /// Writes `run.json`.
    pub(super) fn save(&self, run: &Run) -> Result<()> {
        results::write(&self.folder, run)
    }

    /// Writes the report and says where it is.
    pub(super) fn report(&self, run: &Run) -> Result<()> {
        let path = self.folder.join(REPORT_FILE);
        report::write(std::slice::from_ref(run), &path)?;
        println!("report: {}", path.display());
        Ok(())
    }
}

/// Now, UTC, as RFC 3339 has it, to the second.
pub(super) fn now() -> String {
    rfc3339(SystemTime::now())
}

/// The calendar is that of an HTTP date, `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7).
fn rfc3339(time: SystemTime) -> String {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let http = httpdate::fmt_http_date(time);
    let month = MONTHS.find(&http[8..11]).unwrap_or(0) / 3 + 1;
    format!("{}-{month:02}-{}T{}Z", &http[12..16], &http[5..7], &http[17..25])
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339_has_them() {
        assert_eq!(rfc3339(UNIX_EPOCH), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(951_868_799)), "2000-02-29T23:59:59Z");
    }
}
