//! The folder of a run's results.
//!
//! A [`super::Driver`] has at most one: `run.json`, `report.html` and `report.json`, `latency.hlog`, and
//! in `records/` a file of records for each phase, with `paths.txt`, which names the files by number.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::report::{self, REPORT_FILE};
use crate::results::{Run, folder as results};
use flash_kit::{Error, Result};
use flash_load::generator::Keep;
use flash_load::measure::Measures;
use flash_load::measure::PhaseFacts;
use flash_load::measure::hdr_log::HdrLog;
use flash_load::record::Record;
use flash_load::record::file::{PathsSeen, Writer};
use flash_load::workload::Catalogue;

const RECORDS: &str = "records";
const PATHS: &str = "paths.txt";
const HDR_LOG: &str = "latency.hlog";

/// A file that reserves room on the disk for the results, in case the records fill it.
const ROOM: &str = ".room";
/// The size of that room, bytes: enough for a run of a hundred levels and its report.
const ROOM_BYTES: usize = 8 << 20;

/// A folder of results. Once it has been made, no error in it ends a measurement: records that
/// cannot be kept are reported.
pub(super) struct Out {
    folder: PathBuf,
    /// None after an error.
    log: Option<HdrLog>,
    paths: PathsSeen,
    /// Files of records so far: the number makes their names differ.
    files: u32,
}

/// The file of records of a stream of a phase under way.
pub(super) struct PhaseFile {
    writer: Writer,
    /// Relative to the folder.
    name: String,
    started: SystemTime,
}

/// One file for each stream; none when nothing is kept.
#[derive(Default)]
pub(super) struct PhaseFiles(pub(super) Vec<PhaseFile>);

impl Keep for PhaseFiles {
    fn keep(&self, stream: usize, records: &[Record]) {
        if let Some(file) = self.0.get(stream) {
            file.writer.append(records);
        }
    }
}

impl Out {
    pub(super) fn check(folder: &Path) -> Result<()> {
        if folder.join(results::RUN_FILE).exists() {
            return Err(Error::usage(format!(
                "{} holds the results of another run: choose another folder",
                folder.display()
            )));
        }
        Ok(())
    }

    /// Makes the folder.
    ///
    /// Errors: run, when it cannot be made.
    pub(super) fn make(folder: &Path, catalogue: &Catalogue) -> Result<Self> {
        let records = folder.join(RECORDS);
        fs::create_dir_all(&records).map_err(|why| Error::file("make", &records, &why))?;
        let log = HdrLog::create(&folder.join(HDR_LOG), SystemTime::now())?;
        // A disk without room for it now may still have room for the results.
        if fs::write(folder.join(ROOM), vec![0; ROOM_BYTES]).is_err() {
            let _ = fs::remove_file(folder.join(ROOM));
        }
        Ok(Self { folder: folder.to_owned(), log: Some(log), paths: PathsSeen::new(catalogue), files: 0 })
    }

    pub(super) fn begin(&mut self, name: &str) -> PhaseFile {
        self.files += 1;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '.';
        let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
        let name = format!("{RECORDS}/{:03}-{plain}.rec", self.files);
        let started = SystemTime::now();
        PhaseFile { writer: Writer::create(&self.folder.join(&name), started), name, started }
    }

    /// Ends the file of a phase, and adds the phase to the log and the paths. Returns what could not be
    /// saved, in words.
    pub(super) fn end(
        &mut self,
        phase: PhaseFile,
        records: &[Record],
        facts: &PhaseFacts,
        measures: &mut Measures,
    ) -> Vec<String> {
        let mut lost = Vec::new();
        let kept = phase.writer.kept();
        measures.records = Some(phase.name);
        measures.records_lost = kept.lost;
        if let Some(why) = kept.why {
            lost.push(format!("{} of {} records are not kept: {why}", kept.lost, records.len()));
        }
        if let Some(mut log) = self.log.take() {
            match log.append(&facts.name, phase.started, facts.duration_ns, records) {
                Ok(()) => self.log = Some(log),
                Err(why) => lost.push(why.to_string()),
            }
        }
        self.paths.note(records);
        lost
    }

    pub(super) fn path(&self, relative: &str) -> PathBuf {
        self.folder.join(relative)
    }

    /// Writes `run.json`, if necessary into the reserved room.
    pub(super) fn save(&self, run: &Run) -> Result<()> {
        results::write(&self.folder, run).or_else(|why| {
            fs::remove_file(self.folder.join(ROOM)).map_err(|_| why)?;
            results::write(&self.folder, run)
        })
    }

    pub(super) fn list_paths(&self, catalogue: &Catalogue) -> Result<()> {
        let _ = fs::remove_file(self.folder.join(ROOM));
        self.paths.write(&self.folder.join(RECORDS).join(PATHS), catalogue)
    }

    /// Writes the report; gives its place.
    pub(super) fn report(&self, run: &Run, catalogue: &Catalogue) -> Result<PathBuf> {
        self.list_paths(catalogue)?;
        let path = self.folder.join(REPORT_FILE);
        report::write(std::slice::from_ref(run), &path)?;
        Ok(path)
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.folder.join(ROOM));
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

/// A folder for the results of `command` that is not there yet: `flash-COMMAND-DATE-TIME`.
pub fn default_folder(command: &str) -> PathBuf {
    let now: String = now().chars().filter(|c| c.is_ascii_digit() || *c == 'T').collect();
    format!("flash-{command}-{now}").into()
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
