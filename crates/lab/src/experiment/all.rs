//! `flash experiment all`: every experiment in a folder of its own, unattended, and one page about all of them.
//!
//! Each experiment is a process of this program, so that one that fails ends no other. Those whose results are whole are not run
//! again. The shortest come first: a night that ends early then has the most of them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::judge::judge_folder;
use super::plan::{Plan, minutes};
use super::table::{self, Folder};
use super::{EXPERIMENTS, Experiment, Options, check, plan, quiet};
use crate::report::REPORT_FILE;
use crate::results::folder::{self, RUN_FILE, write_whole};
use crate::testbed::wait_for;
use flash_kit::processes::exit_code;
use flash_kit::{Ending, Error, Result, Stop, interrupt};
use flash_waiting::program::{self, Placement, Signal};

/// The page and the table of all experiments.
const PAGE: &str = "index.html";
const TABLE: &str = "table.md";
/// The output of an experiment, in its folder.
const PRINTED: &str = "printed.txt";
/// How long all experiments together wait for a quiet machine.
const PATIENCE: Duration = Duration::from_secs(3600);
/// The least descriptors of an experiment; it raises its limit itself.
const DESCRIPTORS: u64 = 1024;

/// The part of an experiment's report that says whether it is whole.
#[derive(Deserialize)]
struct Report {
    experiment: String,
    #[serde(default)]
    quick: bool,
    memory_bytes: Option<u64>,
    /// Reports of earlier versions do not have it.
    #[serde(default)]
    is_interrupted: bool,
}

/// An experiment, its plan and its folder.
struct Part {
    experiment: &'static Experiment,
    plan: Plan,
    folder: PathBuf,
    is_whole: bool,
}

/// All experiments, the shortest first.
///
/// Errors: usage, for a folder with results of another kind.
fn parts(options: &Options) -> Result<Vec<Part>> {
    let part = |experiment: &'static Experiment| {
        let folder = options.folder.join(experiment.name);
        let is_whole = is_whole(&folder, experiment.name, options)?;
        Ok(Part { experiment, plan: plan(experiment, &of_one(experiment, options)), folder, is_whole })
    };
    let mut parts = EXPERIMENTS.iter().map(part).collect::<Result<Vec<_>>>()?;
    parts.sort_by(|a, b| a.plan.run_s().total_cmp(&b.plan.run_s()));
    Ok(parts)
}

/// The options of one experiment: the user's logs are only for the one that replays them.
fn of_one(experiment: &Experiment, options: &Options) -> Options {
    let logs = if experiment.name == super::REPLAYS { options.logs.clone() } else { Vec::new() };
    Options { logs, ..options.clone() }
}

fn is_whole(folder: &Path, name: &str, options: &Options) -> Result<bool> {
    let Some(text) = folder::text(folder, &REPORT_FILE.replace(".html", ".json"))? else { return Ok(false) };
    let Ok(report) = serde_json::from_str::<Report>(&text) else { return Ok(false) };
    let is_alike = report.experiment == name
        && report.quick == options.quick
        && report.memory_bytes == Some(options.memory_bytes);
    if !is_alike {
        return Err(Error::usage(format!(
            "{} holds the results of another experiment, with other --quick or --memory: choose another --out",
            folder.display()
        )));
    }
    Ok(!report.is_interrupted)
}

/// The order of the experiments and how long they take, in words.
///
/// Errors: as [`all`].
pub fn describe_all(options: &Options) -> Result<String> {
    let options = &options.settled()?;
    check(options)?;
    let parts = parts(options)?;
    let line = |part: &Part| {
        let takes = if part.is_whole { "whole".to_owned() } else { minutes(part.plan.run_s()) };
        format!("{:13} {takes:>8}\n", part.experiment.name)
    };
    let text: String = parts.iter().map(line).collect();
    Ok(format!("{text}{:13} {:>8}, without making file sets, once\n", "all", minutes(left_s(&parts))))
}

fn left_s(parts: &[Part]) -> f64 {
    parts.iter().filter(|part| !part.is_whole).map(|part| part.plan.run_s()).sum()
}

/// Runs every experiment that is not whole, and writes the page and the table of all.
///
/// Errors: usage, for invalid options; run, if experiments failed, after the others, or the page cannot be written.
pub fn all(options: &Options) -> Result<Ending> {
    let options = &options.settled()?;
    check(options)?;
    let parts = parts(options)?;
    let stop = interrupt::watch()?;
    fs::create_dir_all(&options.folder).map_err(|why| Error::file("make", &options.folder, &why))?;
    let mut patience = PATIENCE;
    let mut failed = Vec::new();
    let mut warnings = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let (name, left) = (part.experiment.name, minutes(left_s(&parts[number..])));
        let at = format!("{} of {}: {name}", number + 1, parts.len());
        if part.is_whole {
            eprintln!("{at} is whole");
            continue;
        }
        if stop.is_set() {
            break;
        }
        eprintln!("{at}, about {}; {left} left", minutes(part.plan.run_s()));
        let busy = if options.no_wait { None } else { quiet::wait(&stop, &mut patience) };
        if let Some(busy) = busy {
            eprintln!("warning: {busy}");
            warnings.push(format!("{name} began while {busy}."));
        }
        if !stop.is_set()
            && let Err(why) = run(part, options, &stop)
        {
            eprintln!("{name}: {why}");
            failed.push(format!("{name}: {why}"));
        }
    }
    let page = write(&parts, options, warnings.into_iter().chain(failed.clone()).collect())?;
    println!("report: {}", page.display());
    match failed.as_slice() {
        _ if stop.is_set() => Ok(Ending::Interrupted),
        [] => Ok(Ending::Done),
        _ => Err(Error::run(format!("{} of {} failed: {}", failed.len(), parts.len(), failed.join("; ")))),
    }
}

/// Runs one experiment to its end, which a signal brings forward.
///
/// Errors: run, with the last line that it printed.
fn run(part: &Part, options: &Options, stop: &Stop) -> Result<()> {
    let folder = &part.folder;
    make_room(folder)?;
    fs::create_dir_all(folder).map_err(|why| Error::file("make", folder, &why))?;
    let path = folder.join(PRINTED);
    let cannot = |why: std::io::Error| Error::file("write", &path, &why);
    let printed = File::create(&path).map_err(cannot)?;
    let program =
        std::env::current_exe().map_err(|why| Error::run(format!("cannot find this program: {why}")))?;
    let mut command = Command::new(program);
    command.args(words(part, options)).stdin(std::process::Stdio::null());
    command.stdout(printed.try_clone().map_err(cannot)?).stderr(printed);
    let place = Placement {
        core: None,
        groups: Vec::new(),
        descriptors: DESCRIPTORS,
        network: None,
        parent_death: Signal::TERM,
    };
    let began = Instant::now();
    let ended =
        program::start(&mut command, place).and_then(|mut child| wait_for(&mut child, stop, Signal::INT));
    let ended = ended.map_err(|why| Error::run(format!("cannot run it: {why}")))?;
    eprintln!("{} took {}", part.experiment.name, minutes(began.elapsed().as_secs_f64()));
    if ended.success() || stop.is_set() {
        return Ok(());
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it printed nothing");
    Err(Error::run(format!("exit code {}: {last}", exit_code(ended))))
}

/// Moves results that are not whole aside.
fn make_room(folder: &Path) -> Result<()> {
    if !folder.join(RUN_FILE).exists() {
        return Ok(());
    }
    let aside = |number: u32| folder.with_extension(format!("broken-off-{number}"));
    let free = (1..).map(aside).find(|path| !path.exists()).unwrap_or_default();
    eprintln!("{} was broken off: it is now {}", folder.display(), free.display());
    fs::rename(folder, &free).map_err(|why| Error::file("rename", folder, &why))
}

/// The command line of one experiment.
fn words(part: &Part, options: &Options) -> Vec<String> {
    let options = &of_one(part.experiment, options);
    let path = |path: &Path| path.display().to_string();
    let mut words = vec!["experiment".to_owned(), part.experiment.name.to_owned()];
    let mut put = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    put("out", path(&part.folder));
    put("sets", path(&options.sets.clone().unwrap_or_else(|| options.folder.join("sets"))));
    put("seed", options.seed.to_string());
    put("peers", if options.peers.is_empty() { "none".to_owned() } else { options.peers.join(",") });
    put("memory", options.memory_bytes.to_string());
    put("reads", options.reads_per_s.to_string());
    options.files.iter().for_each(|files| put("files", path(files)));
    options.logs.iter().for_each(|log| put("log", path(log)));
    options.rounds.iter().for_each(|rounds| put("rounds", rounds.to_string()));
    options.duration_s.iter().for_each(|s| put("duration", format!("{}ms", (s * 1000.0).ceil() as u64)));
    options.core.iter().for_each(|core| put("server-core", core.to_string()));
    if !options.cores.is_empty() {
        put("cores", options.cores.iter().map(usize::to_string).collect::<Vec<_>>().join(","));
    }
    if options.quick {
        words.push("--quick".to_owned());
    }
    words
}

/// Writes the page and the table of the experiments that have results.
fn write(parts: &[Part], options: &Options, mut warnings: Vec<String>) -> Result<PathBuf> {
    let mut folders: Vec<Folder> = Vec::new();
    for part in parts.iter().filter(|part| part.folder.join(RUN_FILE).exists()) {
        match judge_folder(&part.folder) {
            Ok(folder) => folders.push(folder),
            Err(why) => warnings.push(why.to_string()),
        }
    }
    let link = |id: &str| format!("{}/{REPORT_FILE}#findings", id.split('/').next().unwrap_or(id));
    let judged: Vec<_> = folders.iter().flat_map(|folder| folder.judged.clone()).collect();
    write_whole(&options.folder.join(TABLE), &table::markdown(&judged, "", &link))?;
    let page = options.folder.join(PAGE);
    write_whole(&page, &table::page(&folders, &warnings, &link))?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::tests::CommandLine;
    use super::*;

    fn settled(folder: &Path, more: &[&str]) -> Options {
        let words = ["experiment", "all", "--quick", "--out", folder.to_str().unwrap()];
        CommandLine::parse_from(words.iter().chain(more)).options.settled().unwrap()
    }

    #[test]
    fn the_shortest_come_first_and_each_gets_its_options() {
        let temporary = tempfile::tempdir().unwrap();
        let more =
            ["--rounds", "7", "--duration", "1500ms", "--log", "a.log", "--peers", "none", "--cores", "1,2"];
        let options = settled(temporary.path(), &more);
        let parts = parts(&options).unwrap();
        assert_eq!(parts.len(), EXPERIMENTS.len());
        assert!(parts.is_sorted_by(|a, b| a.plan.run_s() <= b.plan.run_s()));
        for part in &parts {
            let one = CommandLine::parse_from(words(part, &options)).options.settled().unwrap();
            assert_eq!((one.name.as_str(), &one.folder), (part.experiment.name, &part.folder));
            assert_eq!((one.rounds, one.duration_s, one.quick), (Some(7), Some(1.5), true));
            assert_eq!((&one.cores, one.core, one.peers.len()), (&options.cores, options.core, 0));
            assert_eq!(one.sets.unwrap(), temporary.path().join("sets"));
            assert_eq!(one.logs.len(), usize::from(one.name == "site-logs"));
        }
    }

    #[test]
    fn whole_experiments_are_not_run_again_and_others_are_moved_aside() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("cwnd");
        fs::create_dir(&folder).unwrap();
        let options = settled(temporary.path(), &[]);
        let whole = || parts(&options).map(|parts| parts.iter().filter(|part| part.is_whole).count());
        let write = |is_interrupted: bool, quick: bool| {
            let report = serde_json::json!({ "experiment": "cwnd", "quick": quick,
                "memory_bytes": options.memory_bytes, "is_interrupted": is_interrupted });
            fs::write(folder.join("report.json"), report.to_string()).unwrap();
        };
        assert_eq!(whole().unwrap(), 0);
        write(false, true);
        assert_eq!(whole().unwrap(), 1);
        write(true, true);
        assert_eq!(whole().unwrap(), 0, "a signal ended it");
        write(false, false);
        assert_eq!(whole().unwrap_err().exit_code(), 2, "the full form");

        make_room(&folder).unwrap();
        assert!(folder.exists(), "nothing was measured there");
        for number in 1..=2 {
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(RUN_FILE), "").unwrap();
            make_room(&folder).unwrap();
            let aside = temporary.path().join(format!("cwnd.broken-off-{number}"));
            assert!(!folder.exists() && aside.join(RUN_FILE).exists());
        }
    }

    #[test]
    fn the_page_has_a_row_for_each_finding_measured_or_not() {
        let temporary = tempfile::tempdir().unwrap();
        let options = settled(temporary.path(), &[]);
        let page =
            write(&parts(&options).unwrap(), &options, vec!["cwnd: exit code 1: x".to_owned()]).unwrap();
        let text = fs::read_to_string(page).unwrap();
        assert!(text.contains("cwnd: exit code 1") && text.contains("not measured"), "{text}");
        let markdown = fs::read_to_string(temporary.path().join(TABLE)).unwrap();
        let rows = markdown.lines().filter(|line| line.contains("| [")).count();
        assert_eq!(rows, super::super::claims_of_all().len());
    }
}
