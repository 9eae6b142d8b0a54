//! `flash experiment judge`: the verdicts of experiments that were run before, by the rules of this program.
//!
//! It computes the findings again from the measurements that each experiment kept (`run.json`, `inside.json`, also
//! compressed), never from verdicts that were written then. In a document each finding has a section: the tool writes
//! the part between the finding's two markers and leaves the words around it to people. A document with the markers of a table
//! gets the table of all findings instead; the sections are then in a document for each experiment, in a folder with its name.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::data::Data;
use super::finding::Finding;
use super::plan::Scale;
use super::table::{self, Folder, Judged};
use super::write::{FORMAT, INSIDE_FILE};
use super::{MEMORY_BYTES, Options, RENAMED, find};
use crate::report::REPORT_FILE;
use crate::results::folder::{self, write_whole};
use crate::testbed::ready_made;
use flash_kit::text::capital;
use flash_kit::{Error, Result};

/// Before a finding that a document has, with its id in between; and after it.
const BEGIN: (&str, &str) = ("<!-- finding ", " -->");
const END: &str = "<!-- end of finding -->";
/// New findings are put in before this line.
const MORE: &str = "<!-- more findings -->";
/// Around the table of all findings.
const TABLE: (&str, &str) = ("<!-- table of findings -->\n", "<!-- end of table -->");
const BYTES_MAX: u64 = 16 << 20;

/// The report that an experiment wrote: how it was run.
#[derive(Deserialize)]
struct Report {
    format: u32,
    experiment: String,
    #[serde(default)]
    quick: bool,
    memory_bytes: Option<u64>,
    #[serde(default)]
    logs: Vec<PathBuf>,
}

/// Prints the findings, or writes them into the document and the documents of its experiments.
///
/// Errors: usage, for no folders or one without an experiment, or a document without markers; run, for files that
/// cannot be read or written.
pub fn judge(options: &Options) -> Result<()> {
    if options.dirs.is_empty() {
        return Err(Error::usage("no folders: give those that `flash experiment NAME --out DIR` wrote"));
    }
    let mut judged = Vec::new();
    for folder in &options.dirs {
        let new = judge_folder(folder)?.judged;
        // The last run of an experiment in the list counts.
        judged.retain(|old: &Judged| new.iter().all(|new| new.finding.id != old.finding.id));
        judged.extend(new);
    }
    let Some(path) = &options.into else {
        judged.iter().for_each(|judged| println!("{}", section(judged)));
        return Ok(());
    };
    let text = document(path)?;
    let Some((before, old, after)) = around_table(&text) else {
        return write_whole(path, &replaced(text, &judged, path)?);
    };
    let details = path.with_extension("");
    fs::create_dir_all(&details).map_err(|why| Error::file("make", &details, &why))?;
    for of_one in judged.chunk_by(|a, b| name_of(&a.finding.id) == name_of(&b.finding.id)) {
        let name = name_of(&of_one[0].finding.id);
        let path = details.join(format!("{name}.md"));
        let text = if path.exists() { document(&path)? } else { format!("# {name}\n\n{MORE}\n") };
        write_whole(&path, &replaced(text, of_one, &path)?)?;
    }
    let folder = details.file_name().unwrap_or_default().to_string_lossy();
    // A heading without its slash is the anchor of its section.
    let link = |id: &str| format!("{folder}/{}.md#{}", name_of(id), id.replace('/', ""));
    write_whole(path, &format!("{before}{}{}\n{after}", TABLE.0, table::markdown(&judged, old, &link)))
}

/// The name of the experiment that a finding is of.
fn name_of(id: &str) -> &str {
    id.split('/').next().unwrap_or(id)
}

/// The text before the table of all findings, the table, and the text from its end on; none in a document without one.
fn around_table(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once(TABLE.0)?;
    let end = rest.find(TABLE.1)?;
    Some((before, &rest[..end], &rest[end..]))
}

fn document(path: &Path) -> Result<String> {
    let bytes = fs::metadata(path).map_or(0, |about| about.len());
    if bytes > BYTES_MAX {
        return Err(Error::usage(format!("{} is larger than {BYTES_MAX} bytes", path.display())));
    }
    fs::read_to_string(path).map_err(|why| Error::file("read", path, &why))
}

/// The findings of an experiment, from what it measured.
///
/// Errors: as [`judge`].
pub(super) fn judge_folder(folder: &Path) -> Result<Folder> {
    let wrong = |why: &str| {
        Error::usage(format!("{} holds no experiment that can be judged: {why}", folder.display()))
    };
    let name = format!("{}.json", REPORT_FILE.trim_end_matches(".html"));
    let text = folder::text(folder, &name)?.ok_or_else(|| wrong(&format!("it has no {name}")))?;
    let report: Report = serde_json::from_str(&text).map_err(|why| wrong(&format!("{name}: {why}")))?;
    if report.format != FORMAT {
        return Err(wrong(&format!("{name} has format {}, this program reads {FORMAT}", report.format)));
    }
    let renamed = RENAMED.iter().find(|(old, _)| *old == report.experiment);
    let experiment = find(renamed.map_or(report.experiment.as_str(), |(_, new)| *new))?;
    let run = folder::read(folder)?;
    let inside = match folder::text(folder, INSIDE_FILE)? {
        Some(text) => serde_json::from_str(&text).map_err(|why| wrong(&format!("{INSIDE_FILE}: {why}")))?,
        None => Vec::new(),
    };
    let names = run.subjects.iter().map(|subject| subject.name.clone());
    let Report { quick, memory_bytes, logs, .. } = report;
    let memory_bytes = memory_bytes.unwrap_or(MEMORY_BYTES);
    // In the table of ready-made servers Flash's own name is for all of its variants, which the plan knows.
    let peers = names.filter(|name| ready_made(name).is_some()).collect();
    let plan = experiment.plan(&Scale { quick, memory_bytes, peers, logs });
    let day = run.started.get(..10).unwrap_or_default();
    let rounds = run.settings.get("rounds").map(|rounds| format!(", {rounds} rounds")).unwrap_or_default();
    let how = format!("Measured {day}{rounds}{}", if quick { ", quick" } else { "" });
    let findings = experiment.findings(Data { run: &run, inside: &inside }, &plan);
    let judged = findings.into_iter().map(|finding| Judged { finding, how: how.clone() }).collect();
    Ok(Folder { name: experiment.name, is_quick: quick, run, judged })
}

/// The part of a finding's section that the tool writes, with its markers.
fn part(Judged { finding, how }: &Judged) -> String {
    let Finding { id, source, paper, ours, .. } = finding;
    let verdict = capital(&finding.text());
    let mut text = format!("{}{id}{}\n*{paper}* ({source}).\n\n**{verdict}.** {how}:\n\n", BEGIN.0, BEGIN.1);
    for figures in ours.split("; ") {
        text += &format!("- {figures}\n");
    }
    text + END + "\n"
}

/// The whole section of a finding that a document does not have yet.
fn section(judged: &Judged) -> String {
    format!("### {}\n\n{}", judged.finding.id, part(judged))
}

/// The document with these findings in their places, and new ones at the end.
fn replaced(mut document: String, all: &[Judged], path: &Path) -> Result<String> {
    for judged in all {
        let begin = format!("{}{}{}", BEGIN.0, judged.finding.id, BEGIN.1);
        let place = document.find(&begin).and_then(|from| {
            let length = document[from..].find(END)? + END.len();
            Some(from..from + length)
        });
        if let Some(place) = place {
            document.replace_range(place, part(judged).trim_end());
        } else if let Some(at) = document.find(MORE) {
            document.insert_str(at, &format!("{}\n", section(judged)));
        } else {
            return Err(Error::usage(format!(
                "{} has no place for {}: add a line {MORE}",
                path.display(),
                judged.finding.id
            )));
        }
    }
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::super::finding::{Columns, Verdict};
    use super::super::tests::options;
    use super::*;
    use crate::results::{FORMAT as RUN_FORMAT, Subject};

    fn judged(id: &str, verdict: Verdict, why: Option<&str>) -> Judged {
        let text = |text: &str| text.to_owned();
        let (id, source, paper) = (text(id), text("p, 1"), text("It is fast"));
        let (ours, why, columns) = (text("2 against 1"), why.map(text), Columns::default());
        let finding = Finding { id, source, paper, ours, verdict, why, columns };
        Judged { finding, how: text("Measured 2026-11-21") }
    }

    #[test]
    fn figures_are_replaced_and_words_kept() {
        let path = Path::new("x.md");
        let empty = format!("before\n{MORE}\nafter\n");
        let few = || judged("e/a", Verdict::CannotBeTold, Some("overloaded in 3 of 3 rounds"));
        let both = [few(), judged("e/b", Verdict::Holds, None)];
        let written = replaced(empty, &both, path).unwrap();
        let expected = "### e/a\n\n<!-- finding e/a -->\n*It is fast* (p, 1).\n\n\
                        **Cannot be told: overloaded in 3 of 3 rounds.** Measured 2026-11-21:\n\n- 2 against 1\n";
        assert!(written.starts_with("before\n") && written.contains(expected), "{written}");
        assert!(written.ends_with(&format!("{MORE}\nafter\n")), "{written}");

        let explained = written.replacen(END, &format!("{END}\n\nThe disk is too fast."), 1);
        assert_eq!(
            replaced(explained.clone(), &both, path).unwrap(),
            explained,
            "the same findings, the same text"
        );
        let again = replaced(explained, &[judged("e/a", Verdict::DoesNotHold, None)], path).unwrap();
        assert!(again.contains("**Does not hold.** Measured") && !again.contains("overloaded"), "{again}");
        assert!(again.contains("The disk is too fast.") && again.contains("### e/b"), "{again}");
        assert_eq!(replaced("no markers".to_owned(), &both, path).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn only_folders_of_experiments_are_judged_and_by_their_measurements() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report.json");
        for text in ["{}", "{\"format\": 9, \"experiment\": \"trace\"}", "x"] {
            fs::write(&file, text).unwrap();
            assert_eq!(judge_folder(folder.path()).err().unwrap().exit_code(), 2, "{text}");
        }
        let claim = serde_json::json!({ "format": FORMAT, "quick": true, "experiment": "trace",
            "findings": [judged("trace/amped-first", Verdict::Holds, None).finding] });
        fs::write(&file, claim.to_string()).unwrap();
        let run = serde_json::json!({ "format": RUN_FORMAT, "command": "experiment", "command_line": [],
            "started": "2026-11-21T07:00:00Z", "machine": crate::results::Machine::default(), "workload": "",
            "arrivals": "", "settings": { "rounds": "3" }, "subjects": [Subject::of("AMPED", "")], "ratios": [],
            "notes": [] });
        fs::write(folder.path().join("run.json"), run.to_string()).unwrap();
        let Folder { judged, .. } = judge_folder(folder.path()).unwrap();
        assert_eq!(judged[0].finding.id, "site-logs/amped-first", "by its name of today");
        assert_eq!(judged[0].finding.verdict, Verdict::CannotBeTold, "nothing was measured");
        assert_eq!(judged[0].how, "Measured 2026-11-21, 3 rounds, quick");
        assert_eq!(judge(&options("judge")).unwrap_err().exit_code(), 2);
    }
}
