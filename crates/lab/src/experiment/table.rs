//! `flash experiment table`: the findings of several experiments as one table, for `docs/experiments.md`.
//!
//! It reads what the experiments left behind (`report.json`). In a document it replaces the rows between two
//! markers; the last column, why something does not hold here, is the only one that people write, and is kept.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::finding::{Finding, Verdict};
use super::write::FORMAT;
use crate::error::{Error, Result};
use crate::report::REPORT_FILE;
use crate::results::folder::write_whole;

/// What stands before and after the rows.
const BEGIN: &str = "<!-- findings: written by flash experiment table -->";
const END: &str = "<!-- end of findings -->";
const HEAD: &str = "| id | the paper | here | so it | why not |\n|---|---|---|---|---|\n";
/// Columns of a row.
const COLUMNS: usize = 5;
/// The longest report or document.
const BYTES_MAX: u64 = 16 << 20;

/// What `flash experiment table` is asked for.
#[derive(Clone, Debug)]
pub struct Table {
    /// Folders that experiments left behind.
    pub folders: Vec<PathBuf>,
    /// The document whose rows are replaced; without it they are printed.
    pub into: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Report {
    format: u32,
    #[serde(default)]
    quick: bool,
    #[serde(default)]
    started: String,
    #[serde(default)]
    findings: Vec<Finding>,
}

/// Prints the table, or writes it into the document.
///
/// Errors: usage, for no folders or one without a report of an experiment, or a document without markers; run, for
/// files that can't be read or written.
pub fn table(options: &Table) -> Result<()> {
    if options.folders.is_empty() {
        return Err(Error::usage("no folders: give those that `flash experiment NAME --out DIR` wrote"));
    }
    let mut findings = Vec::new();
    for folder in &options.folders {
        findings.extend(read(folder)?);
    }
    match &options.into {
        None => print!("{}", rows(&findings, &BTreeMap::new())),
        Some(path) => write_whole(path, &replaced(&text_of(path)?, &findings, path)?)?,
    }
    Ok(())
}

fn text_of(path: &Path) -> Result<String> {
    let bytes = fs::metadata(path).map_or(0, |about| about.len());
    if bytes > BYTES_MAX {
        return Err(Error::usage(format!("{} is larger than {BYTES_MAX} bytes", path.display())));
    }
    fs::read_to_string(path).map_err(|why| Error::file("read", path, &why))
}

/// The findings of a folder, with a word on how they were found.
fn read(folder: &Path) -> Result<Vec<(Finding, String)>> {
    let path = folder.join(REPORT_FILE).with_extension("json");
    let wrong = |why: &str| Error::usage(format!("{} is no report of an experiment: {why}", path.display()));
    let report: Report = serde_json::from_str(&text_of(&path)?).map_err(|why| wrong(&why.to_string()))?;
    if report.format != FORMAT || report.findings.is_empty() {
        return Err(wrong("it has no findings in a form that this program reads"));
    }
    let day = report.started.get(..10).unwrap_or_default().to_owned();
    let how = if report.quick { format!("{day}, quick") } else { day };
    Ok(report.findings.into_iter().map(|finding| (finding, how.clone())).collect())
}

/// The table with these reasons.
fn rows(findings: &[(Finding, String)], reasons: &BTreeMap<String, String>) -> String {
    let mut text = HEAD.to_owned();
    for (Finding { id, source, paper, ours, verdict }, how) in findings {
        // A reason is for what does not hold; what holds needs none.
        let reason = reasons.get(id).filter(|_| *verdict != Verdict::Holds);
        let cells = [
            id.clone(),
            format!("{paper} ({source})"),
            format!("{ours} ({how})"),
            format!("**{}**", verdict.words()),
            reason.cloned().unwrap_or_default(),
        ];
        let cells = cells.map(|cell| cell.replace('|', "/").replace('\n', " "));
        text += &format!("| {} |\n", cells.join(" | "));
    }
    text
}

/// The document with the rows between its markers replaced, and their reasons kept.
fn replaced(document: &str, findings: &[(Finding, String)], path: &Path) -> Result<String> {
    let parts = document.split_once(BEGIN).and_then(|(before, rest)| {
        let (old, after) = rest.split_once(END)?;
        Some((before, old, after))
    });
    let Some((before, old, after)) = parts else {
        return Err(Error::usage(format!(
            "{} has no place for the table: a line with {BEGIN} and one with {END}",
            path.display()
        )));
    };
    let mut reasons = BTreeMap::new();
    for line in old.lines() {
        let cells: Vec<&str> = line.trim().trim_start_matches('|').trim_end_matches('|').split('|').collect();
        if let [id, _, _, _, reason] = cells[..]
            && cells.len() == COLUMNS
        {
            reasons.insert(id.trim().to_owned(), reason.trim().to_owned());
        }
    }
    Ok(format!("{before}{BEGIN}\n{}{END}{after}", rows(findings, &reasons)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(id: &str, verdict: Verdict) -> (Finding, String) {
        let text = |text: &str| text.to_owned();
        let finding = Finding {
            id: text(id),
            source: text("p, 1"),
            paper: text("a|b"),
            ours: text("2 against 1"),
            verdict,
        };
        (finding, text("2026-11-21"))
    }

    #[test]
    fn rows_are_replaced_and_reasons_kept() {
        let path = Path::new("x.md");
        let empty = format!("before\n{BEGIN}\n{END}\nafter\n");
        let first = [finding("e/a", Verdict::DoesNotHold), finding("e/b", Verdict::Holds)];
        let written = replaced(&empty, &first, path).unwrap();
        let row = "| e/a | a/b (p, 1) | 2 against 1 (2026-11-21) | **does not hold** |  |\n";
        assert!(
            written.starts_with("before\n") && written.ends_with("after\n") && written.contains(row),
            "{written}"
        );

        let explained =
            written.replace("**does not hold** |  |", "**does not hold** | the disk is too fast |");
        let again = replaced(&explained, &first, path).unwrap();
        assert_eq!(again, explained, "the same findings leave the same text");
        let other = replaced(&explained, &[finding("e/a", Verdict::Holds)], path).unwrap();
        assert!(!other.contains("too fast") && !other.contains("e/b"), "{other}");
        assert_eq!(replaced("no markers", &first, path).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn only_reports_of_experiments_are_taken() {
        let folder = std::env::temp_dir().join(format!("flash-lab-table-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("report.json");
        for text in ["{}", "{\"format\": 1}", "{\"format\": 9, \"findings\": []}", "x"] {
            fs::write(&file, text).unwrap();
            assert_eq!(read(&folder).unwrap_err().exit_code(), 2, "{text}");
        }
        let found = serde_json::json!({ "format": FORMAT, "quick": true, "started": "2026-11-21T07:00:00Z",
            "findings": [finding("e/a", Verdict::CannotBeTold).0] });
        fs::write(&file, found.to_string()).unwrap();
        let read = read(&folder).unwrap();
        assert_eq!((read[0].0.verdict, read[0].1.as_str()), (Verdict::CannotBeTold, "2026-11-21, quick"));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(table(&Table { folders: Vec::new(), into: None }).unwrap_err().exit_code(), 2);
    }
}
