//! `flash fileset`: makes file sets with known content.

use std::path::PathBuf;
use std::process::ExitCode;

use flash_lab::fileset::{self, Amount, Options};
use flash_server::config::units::parse_size_bytes;

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Layout {
    /// Directories of 36 files, 102 bytes to 900 KB, 5.1 MB each
    Specweb99,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Goes on where an earlier run ended. DIR/manifest.txt lists the files and their lengths."
)]
pub(crate) struct Fileset {
    /// What the set looks like
    layout: Layout,

    /// The folder of the set; made when missing
    #[arg(value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,

    /// The fewest directories that hold this many bytes
    #[arg(long, value_name = "SIZE", value_parser = parse_size_bytes, required_unless_present = "directories")]
    size: Option<u64>,

    /// This many directories
    #[arg(long, value_name = "N", conflicts_with = "size")]
    directories: Option<u32>,

    /// What the contents depend on; who checks them needs the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl Fileset {
    pub(crate) fn run(self) -> ExitCode {
        let Layout::Specweb99 = self.layout;
        let amount = match (self.directories, self.size) {
            (Some(directories), _) => Amount::Directories(directories),
            (None, size) => Amount::Bytes(size.unwrap_or_default()),
        };
        crate::lab::finish(fileset::run(&Options { folder: self.dir, amount, seed: self.seed }))
    }
}
