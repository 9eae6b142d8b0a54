//! `flash fileset`: creates file sets with known contents.

use std::path::PathBuf;
use std::process::ExitCode;

use flash_kit::Error;
use flash_load::files::heavy_tail::Trace;
use flash_load::fileset::{self, Amount, Options, Set};
use flash_units::parse_memory_bytes;

/// The layout of the set.
#[derive(Clone, Debug)]
enum Layout {
    Specweb99,
    Pareto,
    Log(PathBuf),
}

#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Continues an interrupted run. DIR/manifest.txt lists the files and their lengths, and with log:FILE the \
                  path of each in the log.\n\n\
                  SIZE is a whole number of bytes, or has a unit: 64KiB or 3GB.\n\n\
                  Exit codes: 0 done, 1 failed, 2 usage error."
)]
pub(crate) struct Fileset {
    /// specweb99: directories of 36 files, 102 bytes to 900 KB, 5.1 MB per directory. pareto: lengths with a heavy tail, 475
    /// bytes to 2 MB, 5 KB on average. log:FILE: one file for each
    /// path of an access log (Common, Combined or World Cup 98 format, also gzipped), with its length
    #[arg(value_parser = layout)]
    layout: Layout,

    /// Folder of the set; created if missing
    #[arg(value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,

    /// specweb99: as many directories as hold SIZE. pareto: as many files as hold SIZE [default: 25MB]. log:FILE: only the start of the log, until its files add up to
    /// SIZE
    #[arg(long, value_name = "SIZE", value_parser = parse_memory_bytes)]
    size: Option<u64>,

    /// specweb99: N directories
    #[arg(long, value_name = "N", conflicts_with = "size")]
    directories: Option<u32>,

    /// Seed of the contents; --verify needs the same one
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

fn layout(text: &str) -> Result<Layout, String> {
    match text.split_once(':') {
        None if text == "specweb99" => Ok(Layout::Specweb99),
        None if text == "pareto" => Ok(Layout::Pareto),
        Some(("log", file)) if !file.is_empty() => Ok(Layout::Log(file.into())),
        Some(("trace", _)) => Err("a set for an access log is named log:FILE, not trace:FILE".to_owned()),
        _ => Err("write specweb99, pareto or log:FILE".to_owned()),
    }
}

impl Fileset {
    pub(crate) fn run(self) -> ExitCode {
        crate::lab::finish(self.make())
    }

    fn make(self) -> flash_kit::Result<()> {
        let set = match (self.layout, self.directories, self.size) {
            (Layout::Specweb99, Some(directories), _) => Set::Specweb99(Amount::Directories(directories)),
            (Layout::Specweb99, None, Some(size)) => Set::Specweb99(Amount::Bytes(size)),
            (Layout::Specweb99, None, None) => {
                return Err(Error::usage("the set has no size: give --size or --directories"));
            }
            (Layout::Pareto | Layout::Log(_), Some(_), _) => {
                return Err(Error::usage("--directories is only for specweb99; the other sets have --size"));
            }
            (Layout::Pareto, None, size) => {
                Set::Pareto { set_bytes: size.unwrap_or(fileset::PARETO_BYTES), trace: Trace::WorldCup }
            }
            (Layout::Log(file), None, dataset_bytes) => Set::Log { file, dataset_bytes },
        };
        fileset::run(&Options { folder: self.dir, set, seed: self.seed })
    }
}
