//! `flash fileset`: makes file sets with known content.

use std::path::PathBuf;
use std::process::ExitCode;

use flash_lab::Error;
use flash_lab::fileset::{self, Amount, Options, Set};
use flash_server::config::units::parse_size_bytes;

/// What the set looks like.
#[derive(Clone, Debug)]
enum Layout {
    Specweb99,
    Trace(PathBuf),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Goes on where an earlier run ended. DIR/manifest.txt lists the files and their lengths, and with \
                  trace:FILE the path that the trace has for each."
)]
pub(crate) struct Fileset {
    /// specweb99: directories of 36 files, 102 bytes to 900 KB, 5.1 MB each. trace:FILE: a file for each in a
    /// trace (Common or Combined Log Format or World Cup 98, also gzipped), as long as seen there
    #[arg(value_parser = layout)]
    layout: Layout,

    /// The folder of the set; made when missing
    #[arg(value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,

    /// specweb99: the fewest directories that hold this many bytes. trace:FILE: only the files of the first
    /// requests, as many as ask for this many bytes
    #[arg(long, value_name = "SIZE", value_parser = parse_size_bytes)]
    size: Option<u64>,

    /// specweb99: this many directories
    #[arg(long, value_name = "N", conflicts_with = "size")]
    directories: Option<u32>,

    /// What the contents depend on; who checks them needs the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

fn layout(text: &str) -> Result<Layout, String> {
    match text.split_once(':') {
        None if text == "specweb99" => Ok(Layout::Specweb99),
        Some(("trace", file)) if !file.is_empty() => Ok(Layout::Trace(file.into())),
        _ => Err("write specweb99 or trace:FILE".to_owned()),
    }
}

impl Fileset {
    pub(crate) fn run(self) -> ExitCode {
        crate::lab::finish(self.make())
    }

    fn make(self) -> flash_lab::Result<()> {
        let set = match (self.layout, self.directories, self.size) {
            (Layout::Specweb99, Some(directories), _) => Set::Specweb99(Amount::Directories(directories)),
            (Layout::Specweb99, None, Some(size)) => Set::Specweb99(Amount::Bytes(size)),
            (Layout::Specweb99, None, None) => {
                return Err(Error::usage("how large is the set to be? Give --size or --directories"));
            }
            (Layout::Trace(_), Some(_), _) => {
                return Err(Error::usage("--directories is for specweb99; a trace has --size"));
            }
            (Layout::Trace(file), None, dataset_bytes) => Set::Trace { file, dataset_bytes },
        };
        fileset::run(&Options { folder: self.dir, set, seed: self.seed })
    }
}
