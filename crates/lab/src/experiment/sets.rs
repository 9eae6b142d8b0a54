//! The file sets of an experiment: existing sets are found, missing sets are made.
//!
//! [`super::rounds`] asks for them before it starts a server. Writing a set blocks on the disk.

use std::fs;
use std::path::{Path, PathBuf};

use super::Options;
use super::plan::{FileChoice, Plan, Set};
use crate::testbed::Disk;
use flash_kit::{Error, Result};
use flash_load::files::MANIFEST;
use flash_load::files::heavy_tail::Trace;
use flash_load::files::layout::FILES_PER_DIRECTORY;
use flash_load::fileset::{self, Amount};
use flash_load::workload::{self, Spec, Workload};
use flash_waiting::sandbox::privileges;

/// The seed of contents and of made-up logs.
const SEED: u64 = 1;

/// A set on this machine's disk.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    /// The folder that servers serve.
    pub(super) root: PathBuf,
    /// The log that is replayed; none where a workload draws the files.
    log: Option<PathBuf>,
}

/// The sets of a plan.
pub(super) struct Sets {
    pub(super) ready: Vec<Ready>,
    /// The disk that they are on, which is mounted as long as this; or why they are on none.
    pub(super) disk: Result<Option<Disk>>,
}

impl Sets {
    /// Makes or completes the sets of a plan. Those of servers with a slow disk are on a [`Disk`].
    ///
    /// Errors: as [`ready`]. That no disk can be mounted is none: the sets are in the folder itself then.
    pub(super) fn of(plan: &Plan, options: &Options) -> Result<Self> {
        let folder = options.sets.clone().unwrap_or_else(|| options.folder.join("sets"));
        let is_bounded = plan.scenes.iter().any(|scene| scene.is_bounded);
        // Without root there are no bounds either, which is said elsewhere.
        let has_disk = is_bounded && options.files.is_none() && privileges::is_root();
        let disk = has_disk.then(|| Disk::mount(&folder, &options.cores)).transpose();
        let mounted = disk.as_ref().ok().and_then(Option::as_ref);
        let root = mounted.map_or(folder.as_path(), Disk::root);
        let made = plan.sets.iter().map(|set| ready(set, root, options.files.as_deref()));
        let ready = made.collect::<Result<_>>()?;
        mounted.map_or(Ok(()), Disk::sync)?;
        Ok(Self { ready, disk })
    }
}

/// Makes or completes a set in the folder. The user's own SPECweb99 set is used unchanged.
///
/// Errors: run, for a full disk; usage, for a set that is too small or a file that is not a log.
fn ready(set: &Set, folder: &Path, files: Option<&Path>) -> Result<Ready> {
    let make = |name: &str, set: fileset::Set| {
        let root = folder.join(name);
        fileset::run(&fileset::Options { folder: root.clone(), set, seed: SEED })?;
        Ok(root)
    };
    let replayed = |name: &str, log: PathBuf| {
        let root = make(name, fileset::Set::Log { file: log.clone(), dataset_bytes: None })?;
        Ok(Ready { root, log: Some(log) })
    };
    fs::create_dir_all(folder).map_err(|why| Error::file("make", folder, &why))?;
    match set {
        Set::Specweb99 { directories } => {
            let root = files.map_or_else(|| folder.join("specweb99"), Path::to_path_buf);
            if directories_of(&root) < *directories {
                if files.is_some() {
                    return Err(Error::usage(format!(
                        "{} has fewer than the {directories} directories that the experiment needs: complete it by `flash \
                         fileset specweb99`, or give less memory",
                        root.display()
                    )));
                }
                make("specweb99", fileset::Set::Specweb99(Amount::Directories(*directories)))?;
            }
            Ok(Ready { root, log: None })
        }
        Set::Lengths(lengths) => {
            let log = folder.join("lengths.log");
            let line = |(number, bytes): (usize, &u64)| {
                format!("127.0.0.1 - - [01/Mar/1999:00:00:00 +0000] \"GET /{number} HTTP/1.0\" 200 {bytes}\n")
            };
            let lines: String = lengths.iter().enumerate().map(line).collect();
            fs::write(&log, lines).map_err(|why| Error::file("write", &log, &why))?;
            // Sets with other lengths get folders of their own.
            let name: Vec<String> = lengths.iter().map(u64::to_string).collect();
            let root = make(
                &format!("lengths-{}", name.join("-")),
                fileset::Set::Log { file: log, dataset_bytes: None },
            )?;
            Ok(Ready { root, log: None })
        }
        Set::Made(made) => {
            let name = format!("{}-{}", made.name, made.dataset_bytes);
            let log = folder.join(format!("{name}.log"));
            made.write(&log, SEED)?;
            replayed(&name, log)
        }
        Set::Pareto { set_bytes, trace } => {
            let name = match trace {
                Trace::WorldCup => format!("pareto-{set_bytes}"),
                Trace::Nasa => format!("nasa-{set_bytes}"),
            };
            let root = make(&name, fileset::Set::Pareto { set_bytes: *set_bytes, trace: *trace })?;
            Ok(Ready { root, log: None })
        }
        Set::Log(log) => {
            let stem = log.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            // Another log of that name, or this one after it has grown, gets a set of its own.
            let bytes = fs::metadata(log).map_or(0, |about| about.len());
            replayed(&format!("log-{stem}-{bytes}"), log.clone())
        }
    }
}

/// The number of directories of a SPECweb99 set; 0 for a folder that holds none.
fn directories_of(root: &Path) -> u32 {
    let text = fs::read_to_string(root.join(MANIFEST)).unwrap_or_default();
    let head = workload::manifest_head("specweb99", SEED);
    let is_specweb99 = text.lines().next().is_some_and(|first| first == head);
    if is_specweb99 { (text.lines().count() - 1) as u32 / FILES_PER_DIRECTORY } else { 0 }
}

impl Ready {
    /// The workload of a point on this set.
    ///
    /// Errors: as [`Workload::open`].
    pub(super) fn workload(&self, files: FileChoice) -> Result<(Spec, Workload)> {
        let (spec, options) = self.options(files);
        let workload = Workload::open(&spec, &options)?;
        Ok((spec, workload))
    }

    pub(super) fn options(&self, files: FileChoice) -> (Spec, workload::Options) {
        let manifest = Some(self.root.join(MANIFEST));
        let plain = workload::Options { manifest, ..workload::Options::default() };
        match files {
            FileChoice::Directories(directories) => {
                (Spec::Specweb99, workload::Options { directories: Some(directories), ..plain })
            }
            FileChoice::File(number) => (Spec::Single { path: format!("/t/000/{number:06}") }, plain),
            FileChoice::Pareto => (Spec::Pareto, plain),
            FileChoice::Replay => {
                let file = self.log.clone().unwrap_or_default();
                (Spec::Log { file }, workload::Options { log_loop: true, ..plain })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flash_load::workload::access_log::made::MadeLog;

    #[test]
    fn sets_are_made_once_and_asked_for() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("sets");
        let web = ready(&Set::Specweb99 { directories: 2 }, &folder, None).unwrap();
        let again = ready(&Set::Specweb99 { directories: 1 }, &folder, None).unwrap();
        assert_eq!((&again.root, directories_of(&web.root)), (&web.root, 2), "a larger one does");
        let (spec, workload) = web.workload(FileChoice::Directories(1)).unwrap();
        assert_eq!((spec, workload.catalogue().len()), (Spec::Specweb99, 36));
        let small = ready(&Set::Specweb99 { directories: 3 }, &folder, Some(&web.root)).unwrap_err();
        assert_eq!(small.exit_code(), 2);

        let lengths = ready(&Set::Lengths(vec![100, 5_000]), &folder, None).unwrap();
        let (_, second) = lengths.workload(FileChoice::File(1)).unwrap();
        assert_eq!((second.catalogue().len(), second.catalogue().file_bytes(0)), (1, Some(5_000)));

        let line = |n| format!("1.1.1.1 - - [01/Mar/2026:00:00:00 +0000] \"GET /{n} HTTP/1.1\" 200 900\n");
        let log = temporary.path().join("access.log");
        for files in [3, 2, 5] {
            fs::write(&log, (0..files).map(line).collect::<String>()).unwrap();
            let ready = ready(&Set::Log(log.clone()), &folder, None).unwrap();
            let (_, replay) = ready.workload(FileChoice::Replay).unwrap();
            assert_eq!(replay.catalogue().len(), files, "a log of this name and another length was there");
        }

        let (name, dataset_bytes) = ("made".to_owned(), 200_000);
        let made = MadeLog { name, dataset_bytes, median_bytes: 2_000.0, alpha: 1.0, requests_per_file: 4 };
        let made = ready(&Set::Made(made), &folder, None).unwrap();
        let (_, replay) = made.workload(FileChoice::Replay).unwrap();
        assert!(replay.warnings().is_empty() && replay.catalogue().dataset_bytes() >= Some(200_000));
    }
}
