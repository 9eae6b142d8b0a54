//! The list of hot files: the keeper saves it on shutdown, and a worker loads its files on startup, in its order.
//!
//! It is text with one line per block: the block's number in its file, the root of the site and the path below it, separated by
//! tabs. Bytes of both that are not plain text are written as `%XX`. An invalid line is skipped.

use std::path::Path;

use flash_engine::form_of_block;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};

/// The first line, which names the format.
const HEADER: &str = "flash hot list 1";
/// Bytes that must be escaped in a line.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');
pub(crate) const LIST_BYTES_MAX: u64 = 64 << 20;
pub(crate) const LINES_MAX: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hot<B> {
    pub(crate) root: B,
    /// Path below the root, beginning with a slash.
    pub(crate) path: B,
    pub(crate) block: u32,
}

#[cfg(any(test, feature = "fuzzing"))]
impl Hot<Vec<u8>> {
    fn as_ref(&self) -> Hot<&[u8]> {
        Hot { root: &self.root, path: &self.path, block: self.block }
    }
}

/// The saved list, from the most to the least valuable block, and the number of its blocks.
pub(crate) fn write<'h>(blocks: impl Iterator<Item = Hot<&'h [u8]>>) -> (Vec<u8>, u64) {
    let mut text = HEADER.to_owned();
    let mut count = 0;
    for Hot { root, path, block } in blocks.take(LINES_MAX) {
        let [root, path] = [root, path].map(|bytes| percent_encode(bytes, ESCAPED));
        let line = format!("\n{block}\t{root}\t{path}");
        if (text.len() + line.len()) as u64 >= LIST_BYTES_MAX {
            break;
        }
        text.push_str(&line);
        count += 1;
    }
    text.push('\n');
    (text.into_bytes(), count)
}

/// The blocks of a list whose site has one of these roots, with the number of the first such root.
pub(crate) fn read<'t>(text: &'t [u8], roots: &[&Path]) -> impl Iterator<Item = (usize, Hot<Vec<u8>>)> + 't {
    let roots: Vec<Vec<u8>> = roots.iter().map(|root| root.as_os_str().as_encoded_bytes().to_vec()).collect();
    let mut lines = text.split(|byte| *byte == b'\n');
    let is_list = lines.next() == Some(HEADER.as_bytes());
    lines.take(if is_list { LINES_MAX } else { 0 }).filter_map(move |line| {
        let hot = parse(line)?;
        Some((roots.iter().position(|root| *root == hot.root)?, hot))
    })
}

fn parse(line: &[u8]) -> Option<Hot<Vec<u8>>> {
    let mut fields = line.split(|byte| *byte == b'\t');
    let block: u32 = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    // Compressed forms are made when they are asked for.
    let is_of_file = form_of_block(0, block.into()).is_none();
    let root: Vec<u8> = percent_decode(fields.next()?).collect();
    let path: Vec<u8> = percent_decode(fields.next()?).collect();
    let is_path = path.starts_with(b"/") && !path.contains(&0);
    (is_of_file && is_path && fields.next().is_none()).then_some(Hot { root, path, block })
}

/// The blocks of a list, as site numbers, paths and block numbers.
#[cfg(feature = "fuzzing")]
#[must_use]
pub fn read_all(text: &[u8], roots: &[&Path]) -> Vec<(usize, Vec<u8>, u32)> {
    read(text, roots).map(|(site, hot)| (site, hot.path, hot.block)).collect()
}

/// A list, read and written.
#[cfg(feature = "fuzzing")]
#[must_use]
pub fn again(text: &[u8], roots: &[&Path]) -> Vec<u8> {
    let blocks: Vec<_> = read(text, roots).map(|(_, hot)| hot).collect();
    write(blocks.iter().map(Hot::as_ref)).0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hot(root: &str, path: &[u8], block: u32) -> Hot<Vec<u8>> {
        Hot { root: root.as_bytes().to_vec(), path: path.to_vec(), block }
    }

    #[test]
    fn what_is_saved_is_loaded_in_its_order() {
        let blocks = [hot("/srv/a", b"/x\ty", 3), hot("/srv/b", b"/100%\n\xff", 0), hot("/gone", b"/z", 1)];
        let (text, count) = write(blocks.iter().map(Hot::as_ref));
        assert_eq!(count, 3);
        let read: Vec<_> = read(&text, &[Path::new("/srv/b"), Path::new("/srv/a")]).collect();
        assert_eq!(read, [(1, blocks[0].clone()), (0, blocks[1].clone())]);
    }

    #[test]
    fn bad_lines_are_ignored_one_by_one() {
        let text =
            b"flash hot list 1\n0\t/r\t/a\nx\t/r\t/a\n0\t/r\n\n0\t/r\ta\n0\t/r\t/a\t/b\n1\t/r\t/b%00\n\
            99999999999\t/r\t/a\n4294967295\t/r\t/a\n2\t/r\t/b\n\xff\xfe\t\t";
        let found: Vec<_> = read(text, &[Path::new("/r")]).map(|(_, hot)| hot).collect();
        assert_eq!(found, [hot("/r", b"/a", 0), hot("/r", b"/b", 2)]);
        assert_eq!(read(b"another list\n0\t/r\t/a\n", &[Path::new("/r")]).count(), 0);
        assert_eq!(read(b"", &[Path::new("/r")]).count(), 0);
    }
}
