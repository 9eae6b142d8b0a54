//! The folder of a run: `run.json` in it, written and read.
//!
//! The commands that measure write one; the report and `flash experiment judge` read several, compressed or not.

use std::fs;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;

use super::{FORMAT, Run};
use flash_kit::{Error, Result};
use flash_load::gzip;

pub const RUN_FILE: &str = "run.json";

/// A larger file was not written by the lab: its records are kept elsewhere.
const BYTES_MAX: u64 = 256 << 20;

/// The part that is read first, since the rest may mean something else in another format.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

/// Writes `run.json` into `folder`, which is made when missing. An older one is replaced only by a
/// whole one.
///
/// Errors: run, when the folder or the file cannot be written.
pub fn write(folder: &Path, run: &Run) -> Result<()> {
    let path = folder.join(RUN_FILE);
    let text = serde_json::to_string_pretty(run).map_err(|why| {
        Error::run(format!("cannot put the results for {} into words: {why}", path.display()))
    })?;
    fs::create_dir_all(folder).map_err(|why| Error::file("make", folder, &why))?;
    write_whole(&path, &(text + "\n"))
}

/// Writes a file beside its place and then puts it there, so that a full disk leaves the old one.
///
/// Errors: run, when it cannot be written.
pub fn write_whole(path: &Path, text: &str) -> Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = Path::new(&part);
    let written = fs::write(part, text).and_then(|()| fs::rename(part, path));
    written.map_err(|why| {
        let _ = fs::remove_file(part);
        Error::file("write", path, &why)
    })
}

/// The text of a file of `folder`, or of the same name with `.gz` and compressed; none when there is neither.
///
/// Errors: run, for a file that cannot be read or is larger than the lab writes.
pub fn text(folder: &Path, name: &str) -> Result<Option<String>> {
    let plain = folder.join(name);
    let path = if plain.exists() { plain } else { folder.join(format!("{name}.gz")) };
    if !path.exists() {
        return Ok(None);
    }
    let mut text = String::new();
    let read = gzip::open(&path)?.take(BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|why| Error::file("read", &path, &why))?;
    if text.len() as u64 > BYTES_MAX {
        let path = path.display();
        return Err(Error::run(format!("{path} is larger than {BYTES_MAX} bytes: the lab did not write it")));
    }
    Ok(Some(text))
}

/// Reads `run.json` of `folder`, or `run.json.gz`.
///
/// Errors: usage, for a folder without results; run, for a file that cannot be read, is of another
/// format or is damaged.
pub fn read(folder: &Path) -> Result<Run> {
    let path = folder.join(RUN_FILE);
    let Some(text) = text(folder, RUN_FILE)? else {
        return Err(Error::usage(format!(
            "{} holds no {RUN_FILE}: give a folder that a command of the lab wrote, such as `flash profile`",
            folder.display()
        )));
    };
    let damaged = |why: serde_json::Error| {
        Error::run(format!("{} is damaged or not from the lab: {why}", path.display()))
    };
    let head: Head = serde_json::from_str(&text).map_err(damaged)?;
    if head.format != FORMAT {
        return Err(Error::run(format!(
            "{} has format {}, this program reads {FORMAT}: report it with the program that measured it",
            path.display(),
            head.format
        )));
    }
    serde_json::from_str(&text).map_err(damaged)
}
