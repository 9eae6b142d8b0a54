//! From the bytes of a log to its requests.
//!
//! Only [`super`] calls it. Malformed lines and those left out are counted, and never stop it.

use std::collections::HashMap;
use std::io::{self, BufRead, Read};
use std::path::Path;

use super::worldcup::{self, RECORD_BYTES};
use super::{AccessLog, Entry, REQUESTS_MAX, Timed, What, clf, json};
use crate::gzip;
use crate::workload::catalogue::Listed;
use crate::workload::lines::{Line, Lines, excerpt};
use crate::workload::list::FILES_MAX;
use flash_kit::{Error, Result};

const SHOWN: usize = 5;

/// Reads at most this many lines or records of a log.
pub(super) fn read(path: &Path, lines_max: u64) -> Result<AccessLog> {
    let source = gzip::open(path)?;
    let mut reading = Reading { unit: "line", ..Reading::default() };
    let ended = reading.read(source, lines_max);
    reading.finish(path, ended)
}

#[derive(Default)]
struct Reading {
    /// "line" or "record".
    unit: &'static str,
    units: u64,
    requests: Vec<Timed>,
    ids: HashMap<Box<str>, u32>,
    lengths: Vec<Option<u64>>,
    malformed: u64,
    malformed_shown: Vec<String>,
    other_methods: u64,
    other_statuses: u64,
    no_paths: u64,
    full: Option<String>,
}

impl Reading {
    fn read(&mut self, mut source: impl BufRead, units_max: u64) -> io::Result<()> {
        // No log in text has a zero byte; in a record the client's number begins with one.
        if source.fill_buf()?.contains(&0) {
            self.unit = "record";
            return self.read_records(source, units_max);
        }
        let mut lines = Lines::new(source);
        while self.units < units_max && self.full.is_none() {
            let Some(Line { bytes, .. }) = lines.next()? else { break };
            self.units += 1;
            match bytes {
                Some(bytes) if bytes.trim_ascii().is_empty() => {}
                Some(bytes) if bytes.starts_with(b"{") => self.take(json::parse(bytes), bytes),
                Some(bytes) => self.take(clf::parse(bytes), bytes),
                None => self.take(Err("too long"), b""),
            }
        }
        Ok(())
    }

    fn read_records(&mut self, mut source: impl BufRead, units_max: u64) -> io::Result<()> {
        while self.units < units_max && self.full.is_none() {
            let mut record = Vec::with_capacity(RECORD_BYTES);
            (&mut source).take(RECORD_BYTES as u64).read_to_end(&mut record)?;
            if record.is_empty() {
                break;
            }
            self.units += 1;
            let entry = match record.as_slice().try_into() {
                Ok(record) => worldcup::parse(record),
                Err(_) => Err("cut short"),
            };
            self.take(entry, &record);
        }
        Ok(())
    }

    fn take(&mut self, entry: std::result::Result<Entry, &'static str>, bytes: &[u8]) {
        let Entry { at_s, what } = match entry {
            Ok(entry) => entry,
            Err(why) => {
                self.malformed += 1;
                if self.malformed_shown.len() < SHOWN {
                    let shown = format!("{} {}: {why}: {}", self.unit, self.units, excerpt(bytes));
                    self.malformed_shown.push(shown);
                }
                return;
            }
        };
        match what {
            What::Get { path, file_bytes } => self.add(at_s, path, file_bytes),
            What::OtherMethod => self.other_methods += 1,
            What::OtherStatus => self.other_statuses += 1,
            What::NoPath => self.no_paths += 1,
        }
    }

    fn add(&mut self, at_s: u32, path: Box<str>, file_bytes: Option<u64>) {
        let path_id = match self.ids.get(&path) {
            Some(&path_id) => path_id,
            None if self.ids.len() == FILES_MAX => {
                self.full = Some(format!("{FILES_MAX} files"));
                return;
            }
            None => {
                let path_id = self.lengths.len() as u32;
                self.ids.insert(path, path_id);
                self.lengths.push(None);
                path_id
            }
        };
        if self.requests.len() == REQUESTS_MAX {
            self.full = Some(format!("{REQUESTS_MAX} requests"));
            return;
        }
        let length = &mut self.lengths[path_id as usize];
        *length = (*length).max(file_bytes);
        self.requests.push(Timed { at_s, path_id });
    }

    fn finish(mut self, path: &Path, ended: io::Result<()>) -> Result<AccessLog> {
        let mut warnings = self.warnings(&path.display().to_string());
        if let Err(why) = ended {
            warnings.push(format!(
                "{} cannot be read beyond {} {}: {why}; what comes before is used",
                path.display(),
                self.unit,
                self.units
            ));
        }
        if self.requests.is_empty() {
            let why = if warnings.is_empty() { String::new() } else { format!(": {}", warnings.join("; ")) };
            return Err(Error::run(format!(
                "{} has no GET with status 200, 206 or 304 in the Common or Combined Log Format, the World Cup 98 \
                 format or Flash's own JSON{why}",
                path.display()
            )));
        }
        let mut files: Vec<_> = self.ids.into_iter().map(|(path, path_id)| (path_id, path)).collect();
        files.sort_unstable_by_key(|(path_id, _)| *path_id);
        let files = files.into_iter().zip(self.lengths);
        let files = files.map(|((_, path), file_bytes)| Listed { path, file_bytes }).collect();
        self.requests.shrink_to_fit();
        let mut log = AccessLog { requests: self.requests, files, warnings };
        let early = log.sort();
        if early > 0 {
            let (name, all) = (path.display(), log.len());
            log.warnings.push(format!("{name}: {early} of {all} requests stand after a later one; sorted"));
        }
        Ok(log)
    }

    /// Warnings about lines that were not used.
    fn warnings(&self, name: &str) -> Vec<String> {
        let (unit, units) = (self.unit, self.units);
        let mut warnings = Vec::new();
        if self.malformed > 0 {
            let more = if self.malformed > SHOWN as u64 { "; ..." } else { "" };
            let shown = self.malformed_shown.join("; ");
            warnings
                .push(format!("{name}: {} of {units} {unit}s are malformed ({shown}{more})", self.malformed));
        }
        let reasons = [
            (self.other_methods, "not GET"),
            (self.other_statuses, "with a status other than 200, 206 and 304"),
            (self.no_paths, "without a path"),
        ];
        let left_out: u64 = reasons.iter().map(|(count, _)| count).sum();
        if left_out > 0 {
            let reasons = reasons.iter().filter(|(count, _)| *count > 0);
            let reasons: Vec<_> = reasons.map(|(count, reason)| format!("{count} {reason}")).collect();
            let reasons = reasons.join(", ");
            warnings.push(format!("{name}: {left_out} of {units} {unit}s are left out: {reasons}"));
        }
        if let Some(bound) = &self.full {
            warnings.push(format!(
                "{name}: only what comes before {unit} {units} is used: it has {bound}, the most"
            ));
        }
        warnings
    }
}
