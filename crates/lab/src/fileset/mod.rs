//! Makes file sets with known content: `flash fileset`.
//!
//! It runs once before a measurement and may wait for the disk as long as it likes. It goes on
//! where an earlier run ended, and never writes into a folder that holds another set.

pub mod content;
pub mod layout;

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use indicatif::{ProgressBar, ProgressStyle};

use crate::error::{Error, Result};
use content::{LINE_BYTES, content_matches};
use layout::{DIRECTORIES_MAX, DIRECTORY_BYTES, FILES_PER_DIRECTORY, File};

/// The name of the list of files, in the folder of the set.
pub const MANIFEST: &str = "manifest.txt";

/// What a file takes on the disk beyond its length: the rest of its last block, and its share
/// of inode and directory.
const OVERHEAD_BYTES: u64 = 4096 + 256;

/// How large a set is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// The fewest directories that hold this many bytes.
    Bytes(u64),
    /// This many directories.
    Directories(u32),
}

/// What `flash fileset specweb99` is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder of the set; made when missing.
    pub folder: PathBuf,
    /// How large it is to be.
    pub amount: Amount,
    /// What the content depends on beside the file's number; checks need the same.
    pub seed: u64,
}

/// Makes or completes the set, prints what it did, and leaves a manifest.
///
/// Errors: usage, for an impossible amount or a folder with another set; run, for a full disk or
/// a failed write.
pub fn run(options: &Options) -> Result<()> {
    let directories = match options.amount {
        Amount::Bytes(set_bytes) => layout::directories_for(set_bytes),
        Amount::Directories(directories) => u64::from(directories),
    };
    if directories == 0 || directories > u64::from(DIRECTORIES_MAX) {
        return Err(Error::usage(format!(
            "cannot make {directories} directories: 1 to {DIRECTORIES_MAX} are possible"
        )));
    }
    let directories = directories as u32;
    fs::create_dir_all(&options.folder).map_err(|why| Error::file("make", &options.folder, &why))?;
    check_manifest(options, directories)?;

    let files = || (0..directories * FILES_PER_DIRECTORY).map(File::from_path_id);
    let mut missing = Vec::new();
    for file in files() {
        if !is_complete(options, file)? {
            missing.push(file);
        }
    }
    let missing_bytes: u64 = missing.iter().map(|file| file.file_bytes()).sum();
    check_room(&options.folder, missing_bytes + missing.len() as u64 * OVERHEAD_BYTES)?;
    write_manifest(options, directories)?;
    write_files(options, &missing, missing_bytes)?;
    println!(
        "{}: {directories} directories, {} files, {} bytes, seed {}; {} files ({missing_bytes} bytes) written now",
        options.folder.display(),
        u64::from(directories) * u64::from(FILES_PER_DIRECTORY),
        u64::from(directories) * DIRECTORY_BYTES,
        options.seed,
        missing.len(),
    );
    Ok(())
}

fn manifest_head(seed: u64) -> String {
    format!("# flash fileset specweb99, seed {seed}: path, bytes")
}

/// Refuses a folder that holds a set made otherwise: its files would be mixed with the new ones.
fn check_manifest(options: &Options, directories: u32) -> Result<()> {
    let path = options.folder.join(MANIFEST);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(Error::file("read", &path, &why)),
    };
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default();
    if head != manifest_head(options.seed) {
        return Err(Error::usage(format!(
            "{} holds another set (its manifest says '{head}'): choose another folder or its seed",
            options.folder.display()
        )));
    }
    let before = lines.count() as u64 / u64::from(FILES_PER_DIRECTORY);
    if before > u64::from(directories) {
        return Err(Error::usage(format!(
            "{} holds a larger set, of {before} directories: remove it or choose another folder",
            options.folder.display()
        )));
    }
    Ok(())
}

/// Whether a file is there already: its length, first line and last bytes are right. Files are
/// written front to back, so one that was cut short fails by its length.
fn is_complete(options: &Options, file: File) -> Result<bool> {
    let path = options.folder.join(file.path());
    let mut opened = match fs::File::open(&path) {
        Ok(opened) => opened,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(why) => return Err(Error::file("open", &path, &why)),
    };
    let mut check = || -> io::Result<bool> {
        let mut bytes = [0; LINE_BYTES as usize];
        if opened.metadata()?.len() != file.file_bytes() {
            return Ok(false);
        }
        for offset_bytes in [0, file.file_bytes() - LINE_BYTES] {
            opened.seek(SeekFrom::Start(offset_bytes))?;
            opened.read_exact(&mut bytes)?;
            if !content_matches(options.seed, file.path_id(), offset_bytes, &bytes) {
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
            "{} has no room for the set: {needed_bytes} bytes are needed, {free} are free",
            folder.display()
        ))),
        Some(_) => Ok(()),
        None => {
            eprintln!("warning: `df` did not tell the free room of {}; going on", folder.display());
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

fn write_manifest(options: &Options, directories: u32) -> Result<()> {
    let path = options.folder.join(MANIFEST);
    let mut text = manifest_head(options.seed) + "\n";
    for file in (0..directories * FILES_PER_DIRECTORY).map(File::from_path_id) {
        text += &format!("{} {}\n", file.path(), file.file_bytes());
    }
    fs::write(&path, text).map_err(|why| Error::file("write", &path, &why))
}

fn write_files(options: &Options, files: &[File], total_bytes: u64) -> Result<()> {
    let style = "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(total_bytes).with_style(style);
    let mut bytes = Vec::new();
    let mut directory_made = None;
    for file in files {
        let path = options.folder.join(file.path());
        if directory_made != Some(file.directory) {
            let parent = options.folder.join(format!("dir{:05}", file.directory));
            fs::create_dir_all(&parent).map_err(|why| Error::file("make", &parent, &why))?;
            directory_made = Some(file.directory);
        }
        content::fill(options.seed, file.path_id(), &mut bytes);
        let written = fs::File::create(&path).and_then(|mut f| f.write_all(&bytes));
        written.map_err(|why| Error::file("write", &path, &why))?;
        bar.inc(bytes.len() as u64);
    }
    bar.finish_and_clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that is removed at the end of its test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("flash-lab-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }

        fn options(&self, directories: u32, seed: u64) -> Options {
            Options { folder: self.0.clone(), amount: Amount::Directories(directories), seed }
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn makes_the_files_and_lists_them() {
        let folder = Folder::new("makes");
        run(&folder.options(2, 5)).unwrap();
        let manifest = fs::read_to_string(folder.0.join(MANIFEST)).unwrap();
        assert_eq!(manifest.lines().count(), 1 + 72);
        for line in manifest.lines().skip(1) {
            let (path, file_bytes) = line.split_once(' ').unwrap();
            let length = fs::metadata(folder.0.join(path)).unwrap().len();
            assert_eq!(length.to_string(), file_bytes);
        }
        let bytes = fs::read(folder.0.join("dir00001/class2_3")).unwrap();
        assert!(content_matches(5, 36 + 18 + 2, 0, &bytes));
    }

    #[test]
    fn goes_on_where_it_ended() {
        let folder = Folder::new("goes-on");
        run(&folder.options(1, 5)).unwrap();
        let (cut, wrong) = (folder.0.join("dir00000/class3_9"), folder.0.join("dir00000/class0_1"));
        fs::File::options().write(true).open(&cut).unwrap().set_len(1000).unwrap();
        fs::write(&wrong, vec![b'?'; 102]).unwrap();
        let kept = folder.0.join("dir00000/class1_1");
        let before = fs::metadata(&kept).unwrap().modified().unwrap();
        run(&folder.options(2, 5)).unwrap();
        assert!(content_matches(5, 35, 0, &fs::read(&cut).unwrap()));
        assert!(content_matches(5, 0, 0, &fs::read(&wrong).unwrap()));
        assert_eq!(fs::metadata(&kept).unwrap().modified().unwrap(), before);
        assert!(folder.0.join("dir00001/class3_9").exists());
    }

    #[test]
    fn does_not_mix_sets() {
        let folder = Folder::new("mix");
        run(&folder.options(2, 5)).unwrap();
        assert_eq!(run(&folder.options(2, 6)).unwrap_err().exit_code(), 2);
        assert_eq!(run(&folder.options(1, 5)).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn refuses_what_can_not_be() {
        let folder = Folder::new("refuses");
        let amounts =
            [Amount::Directories(0), Amount::Directories(DIRECTORIES_MAX + 1), Amount::Bytes(u64::MAX)];
        for amount in amounts {
            let options = Options { folder: folder.0.clone(), amount, seed: 1 };
            assert_eq!(run(&options).unwrap_err().exit_code(), 2);
        }
        let full = check_room(Path::new("/"), u64::MAX).unwrap_err();
        assert!(full.exit_code() == 1 && full.to_string().contains("no room"), "{full}");
        assert!(free_bytes(Path::new("/")).is_some_and(|free| free > 0));
    }
}
