//! Files that may be compressed with gzip: access logs and kept results.
//!
//! [`crate::workload`] and the lab's results open them here.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use flash_kit::{Error, Result};
use flate2::bufread::MultiGzDecoder;

/// The first bytes of a gzip file (RFC 1952, section 2.3.1).
const MAGIC: &[u8] = &[0x1f, 0x8b];

/// Opens a file and decompresses it while it is read, if its first bytes are those of gzip. A small file can decompress
/// to a very large one: the caller bounds how much it reads.
///
/// Errors: run, when the file cannot be opened or read.
pub fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    let file = File::open(path).map_err(|why| Error::file("open", path, &why))?;
    let mut source = BufReader::new(file);
    let is_gzip = source.fill_buf().map_err(|why| Error::file("read", path, &why))?.starts_with(MAGIC);
    Ok(if is_gzip { Box::new(BufReader::new(MultiGzDecoder::new(source))) } else { Box::new(source) })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn plain_and_compressed_files_read_alike() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(b"a line\n").unwrap();
        for bytes in [b"a line\n".to_vec(), encoder.finish().unwrap()] {
            std::fs::write(&path, bytes).unwrap();
            let mut text = String::new();
            open(&path).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "a line\n");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(open(&path).is_err());
    }
}
