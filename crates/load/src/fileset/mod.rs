//! Makes file sets with known content: `flash fileset`.
//!
//! It runs once before a measurement and may wait for the disk as long as it likes. It goes on
//! where an earlier run ended, and never writes into a folder that holds another set.

mod plan;

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use indicatif::{ProgressBar, ProgressStyle};

use crate::files::MANIFEST;
use crate::files::content::{self, LINE_BYTES, part_matches};
use crate::files::heavy_tail::Trace;
use flash_kit::number::size;
use flash_kit::{Error, Result};
use plan::Plan;

/// The space that a file takes on the disk beyond its length: the rest of its last block, and its share
/// of inode and directory.
const OVERHEAD_BYTES: u64 = 4096 + 256;

/// Bytes that are made and written at once; whole lines.
const PART_BYTES: u64 = 16_384 * LINE_BYTES;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Set {
    /// Directories of 36 files (see [`crate::files::layout`]).
    Specweb99(Amount),
    /// Files whose lengths have a heavy tail: as many as hold `set_bytes`.
    Pareto {
        /// Enough for one file or more. With fewer files the longest is shorter.
        set_bytes: u64,
        trace: Trace,
    },
    /// A file for each that a log asks for, of the length seen there, for those who have a log and
    /// not its files. The manifest has the log's path for each.
    Log {
        file: PathBuf,
        /// Only the files of the first requests, as many as request this many bytes together.
        dataset_bytes: Option<u64>,
    },
}

/// The size of a set of heavy-tailed lengths by default: 5,000 files, of which the longest has 1.6 MB.
pub const PARETO_BYTES: u64 = 25_000_000;

/// How large a SPECweb99 set is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// The fewest directories that hold this many bytes.
    Bytes(u64),
    Directories(u32),
}

/// The arguments of `flash fileset`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder of the set; made when missing.
    pub folder: PathBuf,
    pub set: Set,
    /// The seed of the contents; a check needs the same one.
    pub seed: u64,
}

/// Makes or completes the set, prints what it did, and leaves a manifest.
///
/// Errors: usage, for an impossible amount or a folder with another set; run, for a log that cannot
/// be read, a full disk or a failed write.
pub fn run(options: &Options) -> Result<()> {
    let plan = Plan::new(&options.set, options.seed)?;
    fs::create_dir_all(&options.folder).map_err(|why| Error::file("make", &options.folder, &why))?;
    let manifest = plan.manifest();
    check_manifest(&options.folder, &plan, &manifest)?;

    let mut missing = Vec::new();
    for path_id in 0..plan.len() {
        if !is_complete(options, &plan, path_id)? {
            missing.push(path_id);
        }
    }
    let bytes = missing.iter().map(|&path_id| plan.file_bytes(path_id));
    let missing_bytes = bytes.fold(0, u64::saturating_add);
    let overhead_bytes = missing.len() as u64 * OVERHEAD_BYTES + manifest.len() as u64;
    check_room(&options.folder, missing_bytes.saturating_add(overhead_bytes))?;
    write_manifest(&options.folder, &manifest)?;
    write_files(options, &plan, &missing, missing_bytes)?;
    println!(
        "{}: {}, seed {}; {} files ({}) written now",
        options.folder.display(),
        plan.summary,
        options.seed,
        missing.len(),
        size(missing_bytes as f64),
    );
    Ok(())
}

/// Refuses a folder that holds a set made otherwise: its files would be mixed with the new ones.
fn check_manifest(folder: &Path, plan: &Plan, manifest: &str) -> Result<()> {
    let path = folder.join(MANIFEST);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(Error::file("read", &path, &why)),
    };
    let head = text.lines().next().unwrap_or_default();
    let folder = folder.display();
    if head != plan.head {
        return Err(Error::usage(format!(
            "{folder} holds another set (its manifest says '{head}'): choose another folder or its seed"
        )));
    }
    if manifest.starts_with(&text) {
        return Ok(());
    }
    Err(Error::usage(if text.starts_with(manifest) {
        let files = text.lines().count() - 1;
        format!("{folder} holds a larger set, of {files} files: remove it or choose another folder")
    } else {
        format!("{folder} holds a set with other files, by its manifest: remove it or choose another folder")
    }))
}

/// Whether a file is there already: its length, first line and last bytes are right. Files are
/// written front to back, so one that was cut short fails by its length.
fn is_complete(options: &Options, plan: &Plan, path_id: u32) -> Result<bool> {
    let path = options.folder.join(plan.path(path_id));
    let mut opened = match fs::File::open(&path) {
        Ok(opened) => opened,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(why) => return Err(Error::file("open", &path, &why)),
    };
    let file_bytes = plan.file_bytes(path_id);
    let mut check = || -> io::Result<bool> {
        let mut buffer = [0; LINE_BYTES as usize];
        if opened.metadata()?.len() != file_bytes {
            return Ok(false);
        }
        let length = file_bytes.min(LINE_BYTES);
        for offset_bytes in [0, file_bytes - length] {
            let bytes = &mut buffer[..length as usize];
            opened.seek(SeekFrom::Start(offset_bytes))?;
            opened.read_exact(bytes)?;
            if !part_matches(options.seed, path_id, file_bytes, offset_bytes, bytes) {
                return Ok(false);
            }
        }
        Ok(true)
    };
    check().map_err(|why| Error::file("read", &path, &why))
}

/// Refuses to begin what the disk has no room for.
fn check_room(folder: &Path, needed_bytes: u64) -> Result<()> {
    match free_bytes(folder) {
        Some(free) if free < needed_bytes => Err(Error::run(format!(
            "{} has no room for the set: {} are needed, {} are free",
            folder.display(),
            size(needed_bytes as f64),
            size(free as f64)
        ))),
        Some(_) => Ok(()),
        None => {
            eprintln!("warning: `df` did not report the free space of {}; continuing", folder.display());
            Ok(())
        }
    }
}

/// Free bytes of the disk that holds `folder`, as df(1) knows them.
fn free_bytes(folder: &Path) -> Option<u64> {
    let output = Command::new("df").arg("-Pk").arg("--").arg(folder).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let free_kib: u64 = text.lines().nth(1)?.split_ascii_whitespace().nth(3)?.parse().ok()?;
    free_kib.checked_mul(1024)
}

/// Puts the manifest in its place at once: one that was cut short would pass for another set's.
fn write_manifest(folder: &Path, manifest: &str) -> Result<()> {
    let (path, part) = (folder.join(MANIFEST), folder.join("manifest.txt.part"));
    fs::write(&part, manifest).map_err(|why| Error::file("write", &part, &why))?;
    fs::rename(&part, &path).map_err(|why| Error::file("replace", &path, &why))
}

fn write_files(options: &Options, plan: &Plan, path_ids: &[u32], total_bytes: u64) -> Result<()> {
    let style = "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(total_bytes).with_style(style);
    let mut folder_made = PathBuf::new();
    let mut part = Vec::new();
    for &path_id in path_ids {
        let path = options.folder.join(plan.path(path_id));
        let folder = path.parent().unwrap_or(&options.folder);
        if folder != folder_made {
            fs::create_dir_all(folder).map_err(|why| Error::file("make", folder, &why))?;
            folder_made = folder.to_path_buf();
        }
        let mut write = || -> io::Result<()> {
            let mut file = fs::File::create(&path)?;
            let (mut at, end) = (0, plan.file_bytes(path_id));
            while at < end {
                let next = end.min(at + PART_BYTES);
                content::fill_part(options.seed, path_id, at..next, &mut part);
                file.write_all(&part)?;
                bar.inc(next - at);
                at = next;
            }
            Ok(())
        };
        write().map_err(|why| Error::file("write", &path, &why))?;
    }
    bar.finish_and_clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::files::layout::DIRECTORIES_MAX;

    /// A folder that is removed at the end of its test. The set is in its `set`.
    struct Folder(TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn set(&self) -> PathBuf {
            self.0.path().join("set")
        }

        fn options(&self, directories: u32, seed: u64) -> Options {
            Options { folder: self.set(), set: Set::Specweb99(Amount::Directories(directories)), seed }
        }
    }

    #[test]
    fn makes_the_files_and_lists_them() {
        let folder = Folder::new();
        run(&folder.options(2, 5)).unwrap();
        let manifest = fs::read_to_string(folder.set().join(MANIFEST)).unwrap();
        assert_eq!(manifest.lines().count(), 1 + 72);
        for line in manifest.lines().skip(1) {
            let (path, file_bytes) = line.split_once(' ').unwrap();
            let length = fs::metadata(folder.set().join(path)).unwrap().len();
            assert_eq!(length.to_string(), file_bytes);
        }
        let bytes = fs::read(folder.set().join("dir00001/class2_3")).unwrap();
        assert!(content::content_matches(5, 36 + 18 + 2, 0, &bytes));
    }

    #[test]
    fn goes_on_where_it_ended() {
        let folder = Folder::new();
        run(&folder.options(1, 5)).unwrap();
        let (cut, wrong) = (folder.set().join("dir00000/class3_9"), folder.set().join("dir00000/class0_1"));
        fs::File::options().write(true).open(&cut).unwrap().set_len(1000).unwrap();
        fs::write(&wrong, vec![b'?'; 102]).unwrap();
        let kept = folder.set().join("dir00000/class1_1");
        let before = fs::metadata(&kept).unwrap().modified().unwrap();
        run(&folder.options(2, 5)).unwrap();
        assert!(content::content_matches(5, 35, 0, &fs::read(&cut).unwrap()));
        assert!(content::content_matches(5, 0, 0, &fs::read(&wrong).unwrap()));
        assert_eq!(fs::metadata(&kept).unwrap().modified().unwrap(), before);
        assert!(folder.set().join("dir00001/class3_9").exists());
    }

    #[test]
    fn does_not_mix_sets() {
        let folder = Folder::new();
        run(&folder.options(2, 5)).unwrap();
        assert_eq!(run(&folder.options(2, 6)).unwrap_err().exit_code(), 2);
        assert_eq!(run(&folder.options(1, 5)).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn refuses_what_can_not_be() {
        let folder = Folder::new();
        let amounts =
            [Amount::Directories(0), Amount::Directories(DIRECTORIES_MAX + 1), Amount::Bytes(u64::MAX)];
        for amount in amounts {
            let options = Options { folder: folder.set(), set: Set::Specweb99(amount), seed: 1 };
            assert_eq!(run(&options).unwrap_err().exit_code(), 2);
        }
        let full = check_room(Path::new("/"), u64::MAX).unwrap_err();
        assert!(full.exit_code() == 1 && full.to_string().contains("no room"), "{full}");
        assert!(free_bytes(Path::new("/")).is_some_and(|free| free > 0));
    }

    #[test]
    fn makes_files_with_a_heavy_tail() {
        let folder = Folder::new();
        let options = |set_bytes| Options {
            folder: folder.set(),
            set: Set::Pareto { set_bytes, trace: Trace::WorldCup },
            seed: 5,
        };
        run(&options(100_000)).unwrap();
        let manifest = fs::read_to_string(folder.set().join(MANIFEST)).unwrap();
        let mut lines = manifest.lines();
        assert_eq!(lines.next(), Some("# flash fileset pareto, seed 5: path, bytes"));
        let sizes: Vec<u64> = lines
            .map(|line| {
                let (path, bytes) = line.split_once(' ').unwrap();
                let length = fs::metadata(folder.set().join(path)).unwrap().len();
                assert_eq!(bytes.parse(), Ok(length));
                length
            })
            .collect();
        assert_eq!(sizes, crate::files::heavy_tail::TRACE_LIKE.lengths_bytes(20), "100 KB by a mean of 5 KB");
        assert!(run(&options(200_000)).unwrap_err().to_string().contains("holds a set with other files"));
        assert_eq!(run(&options(2)).unwrap_err().exit_code(), 2);
    }

    /// Files of 2,000,000, 0, 5 and 70 bytes, in this order.
    const LOG: [(&str, u16, &str); 5] = [
        ("/big?x=1", 200, "2000000"),
        ("/unknown", 304, "-"),
        ("/a b", 200, "5"),
        ("/a b", 206, "1"),
        ("/last", 200, "70"),
    ];

    fn log_options(folder: &Folder, dataset_bytes: Option<u64>) -> Options {
        let file = folder.0.path().join("log");
        let line = |(path, status, bytes): &(&str, u16, &str)| {
            format!("h - - [10/Oct/2000:10:00:00 +0000] \"GET {path} HTTP/1.0\" {status} {bytes}\n")
        };
        fs::write(&file, LOG.iter().map(line).collect::<String>()).unwrap();
        Options { folder: folder.set(), set: Set::Log { file, dataset_bytes }, seed: 5 }
    }

    #[test]
    fn makes_a_file_for_each_of_a_log() {
        let folder = Folder::new();
        let cut = log_options(&folder, Some(2_000_000));
        run(&cut).unwrap();
        let head = "# flash fileset log, seed 5: path, bytes, original path\n";
        let cut_list = format!("{head}t/000/000000 2000000 /big?x=1\nt/000/000001 0 /unknown\n");
        assert_eq!(fs::read_to_string(folder.set().join(MANIFEST)).unwrap(), cut_list);

        let big = folder.set().join("t/000/000000");
        assert!(part_matches(5, 0, 2_000_000, 0, &fs::read(&big).unwrap()));
        let before = fs::metadata(&big).unwrap().modified().unwrap();
        run(&log_options(&folder, None)).unwrap();
        assert_eq!(fs::metadata(&big).unwrap().modified().unwrap(), before, "goes on");
        let list = format!("{cut_list}t/000/000002 5 /a%20b\nt/000/000003 70 /last\n");
        assert_eq!(fs::read_to_string(folder.set().join(MANIFEST)).unwrap(), list);
        for (path_id, file_bytes) in [(0, 2_000_000), (1, 0), (2, 5), (3, 70)] {
            let bytes = fs::read(folder.set().join(format!("t/000/00000{path_id}"))).unwrap();
            assert_eq!(bytes.len() as u64, file_bytes);
            assert!(part_matches(5, path_id, file_bytes, 0, &bytes));
        }
        assert!(run(&cut).unwrap_err().to_string().contains("holds a larger set, of 4 files"));
        assert_eq!(run(&folder.options(1, 5)).unwrap_err().exit_code(), 2, "another kind of set");
        fs::write(folder.set().join(MANIFEST), format!("{head}t/000/000000 7 /other\n")).unwrap();
        assert!(run(&cut).unwrap_err().to_string().contains("holds a set with other files"));
    }
}
