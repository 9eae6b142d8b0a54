//! Draws the results of runs: one HTML file, the same figures as JSON, a short table for the terminal.
//! `flash report` calls it, and so does every command that measures, at its end.
//!
//! It computes no measure: figures come from [`crate::results`], and only ratios of two of them are
//! added. Names and texts in runs come from outside and are escaped.

mod details;
mod format;
mod levels;
mod page;
mod sentence;
mod shapes;
mod summary;
mod terminal;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::run_of;
mod view;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::results::{FORMAT, Run, folder};
use flash_kit::{Error, Result};
pub use format::{Format, text, warnings};
use view::View;

/// The name of the page, in the folder of a run; the JSON beside it has its own extension.
pub const REPORT_FILE: &str = "report.html";

/// No report lays more runs over one another.
const RUNS_MAX: usize = 64;

#[derive(Clone, Debug)]
pub struct Options {
    /// Folders with a `run.json`; their runs are laid over one another.
    pub folders: Vec<PathBuf>,
    /// The page; the JSON goes beside it. Without it, [`REPORT_FILE`] in the first folder.
    pub out: Option<PathBuf>,
}

/// Reads the runs, writes the report, and prints its path.
///
/// Errors: usage, for a folder without results or an impossible name; run, for a file that cannot be
/// read or written.
pub fn run(options: &Options) -> Result<()> {
    let Some(first) = options.folders.first() else {
        return Err(Error::usage("no folders: give those that a command of the lab wrote"));
    };
    if options.folders.len() > RUNS_MAX {
        return Err(Error::usage(format!(
            "{} folders: at most {RUNS_MAX} fit one report",
            options.folders.len()
        )));
    }
    let path = options.out.clone().unwrap_or_else(|| first.join(REPORT_FILE));
    check_name(&path)?;
    let runs = options.folders.iter().map(|folder| folder::read(folder)).collect::<Result<Vec<Run>>>()?;
    write(&runs, &path)?;
    println!("{}", path.display());
    Ok(())
}

/// The JSON would overwrite a page of that name.
pub(crate) fn check_name(path: &Path) -> Result<()> {
    let extension = path.extension().unwrap_or_default();
    if extension != "html" && extension != "htm" {
        return Err(Error::usage(format!(
            "cannot write the page to {}: its name must end with .html",
            path.display()
        )));
    }
    Ok(())
}

/// Writes the page to `path`, and the JSON beside it.
///
/// Errors: run, when a file cannot be written.
pub fn write(runs: &[Run], path: &Path) -> Result<()> {
    folder::write_whole(path, &html(runs))?;
    folder::write_whole(&path.with_extension("json"), &json(runs))
}

/// The page: one file that needs nothing else.
pub fn html(runs: &[Run]) -> String {
    page::page(&View::new(runs)).into_string()
}

/// The figures of the tables of [`html`], section by section, and the words around them.
pub fn json(runs: &[Run]) -> String {
    let view = View::new(runs);
    let of_run = |run: &Run| {
        json!({
            "command": run.command,
            "command_line": run.command_line,
            "started": run.started,
            "machine": run.machine,
            "workload": run.workload,
            "arrivals": run.arrivals,
            "settings": run.settings,
            "notes": run.notes,
        })
    };
    let report = json!({
        "format": FORMAT,
        "runs": runs.iter().map(of_run).collect::<Vec<Value>>(),
        "subjects": summary::subjects(&view).json(),
        "level": view.level,
        "warnings": summary::warnings(&view),
        "summary": sentence::sentence(&view),
        "parts": page::sections(&view).iter().map(flash_kit::section::Section::json).collect::<Vec<Value>>(),
    });
    format!("{report:#}\n")
}

/// The short table of a run for a terminal of 100 columns, with a line end: one line for each level of
/// each subject, then failures by kind, ratios, warnings and notes.
pub fn table(run: &Run) -> String {
    terminal::table(run)
}
