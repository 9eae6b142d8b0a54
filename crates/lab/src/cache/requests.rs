//! The requests of a simulation: the files in the order of requests, and the blocks that a cache keeps files in.
//!
//! [`super::run`] makes them from a workload or a log, [`super::simulate`] replays them against policies. Pure.

/// The length of the blocks of a large file; smaller ones are one block of their own length. One read of the disk loads a
/// block.
pub const BLOCK_BYTES: u64 = 512 << 10;

/// A part of the files that a cache keeps or drops as a whole: a file, or a part of a large one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Numbered from 0.
    pub(super) number: u32,
    /// 1 or more.
    pub(super) bytes: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Requests {
    files: Vec<File>,
    /// The files, in the order of the requests.
    pub(super) asked: Vec<u32>,
    blocks: u32,
}

#[derive(Clone, Copy, Debug)]
struct File {
    bytes: u64,
    first_block: u32,
}

impl Requests {
    /// Requests for whole files, numbered in the order of their lengths; none when there are more blocks than numbers.
    pub(super) fn new(lengths: impl Iterator<Item = u64>, asked: Vec<u32>) -> Option<Self> {
        let (mut files, mut blocks) = (Vec::new(), 0_u32);
        for bytes in lengths {
            files.push(File { bytes, first_block: blocks });
            blocks =
                u32::try_from(bytes.div_ceil(BLOCK_BYTES)).ok().and_then(|more| blocks.checked_add(more))?;
        }
        // The last number means none in lists.
        (blocks < u32::MAX).then_some(Self { files, asked, blocks })
    }

    pub(super) fn blocks(&self) -> usize {
        self.blocks as usize
    }

    pub(super) fn asked_bytes(&self) -> u64 {
        self.uses().iter().zip(&self.files).filter(|(uses, _)| **uses > 0).map(|(_, file)| file.bytes).sum()
    }

    pub(super) fn asked_files(&self) -> usize {
        self.uses().iter().filter(|uses| **uses > 0).count()
    }

    /// The blocks of a file. An empty file has none.
    pub(super) fn blocks_of(&self, file: u32) -> impl Iterator<Item = Block> + use<> {
        let File { bytes, first_block } = self.files[file as usize];
        let count = bytes.div_ceil(BLOCK_BYTES);
        (0..count as u32).map(move |index| Block {
            number: first_block + index,
            bytes: (bytes - u64::from(index) * BLOCK_BYTES).min(BLOCK_BYTES),
        })
    }

    /// All blocks in the order of their numbers, and how often each is asked for.
    pub(super) fn asked_blocks(&self) -> Vec<(Block, u64)> {
        let uses = self.uses();
        let of_file = |file: usize| self.blocks_of(file as u32).map(move |block| (block, file));
        (0..self.files.len()).flat_map(of_file).map(|(block, file)| (block, uses[file])).collect()
    }

    fn uses(&self) -> Vec<u64> {
        let mut uses = vec![0; self.files.len()];
        self.asked.iter().for_each(|file| uses[*file as usize] += 1);
        uses
    }
}
