//! Where the files of a SPECweb99 file set are, and how long each is.
//!
//! The file set, the load and the checks of replies all number the same files by it, so a
//! reply that belongs to another file is noticed. Pure.
//!
//! The set is the one of `papers/`: directories of 36 files, nine sizes in each of four classes
//! whose units are 102, 1,024, 10,240 and 102,400 bytes; file F of a class has F units.

pub const CLASSES: u32 = 4;
pub const FILES_PER_CLASS: u32 = 9;
pub const FILES_PER_DIRECTORY: u32 = CLASSES * FILES_PER_CLASS;
/// Bytes in a directory: 1 + 2 + … + 9 units of each class.
pub const DIRECTORY_BYTES: u64 = 45 * (102 + 1_024 + 10_240 + 102_400);
/// The most directories that the names have room for.
pub const DIRECTORIES_MAX: u32 = 100_000;

/// Bytes of a class's unit.
const UNIT_BYTES: [u64; CLASSES as usize] = [102, 1_024, 10_240, 102_400];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct File {
    /// From 0.
    pub directory: u32,
    /// From 0 to 3.
    pub class: u32,
    /// Number in its class, from 1 to 9.
    pub number: u32,
}

impl File {
    /// The file with number `path_id`, counted through the directories in order.
    pub const fn from_path_id(path_id: u32) -> Self {
        let within = path_id % FILES_PER_DIRECTORY;
        Self {
            directory: path_id / FILES_PER_DIRECTORY,
            class: within / FILES_PER_CLASS,
            number: within % FILES_PER_CLASS + 1,
        }
    }

    pub fn path_id(self) -> u32 {
        self.directory * FILES_PER_DIRECTORY + self.class * FILES_PER_CLASS + self.number - 1
    }

    pub const fn file_bytes(self) -> u64 {
        UNIT_BYTES[self.class as usize] * self.number as u64
    }

    /// Its path under the folder of the set, without a slash in front.
    pub fn path(self) -> String {
        format!("dir{:05}/class{}_{}", self.directory, self.class, self.number)
    }
}

/// The directories that a set of at least `set_bytes` has.
pub fn directories_for(set_bytes: u64) -> u64 {
    set_bytes.div_ceil(DIRECTORY_BYTES).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_what_the_papers_say() {
        let files: Vec<_> = (0..FILES_PER_DIRECTORY).map(File::from_path_id).collect();
        assert_eq!(files.iter().map(|f| f.file_bytes()).sum::<u64>(), DIRECTORY_BYTES);
        assert_eq!(files[0].file_bytes(), 102);
        assert_eq!(files[35].file_bytes(), 921_600);
        assert_eq!(files[35].path(), "dir00000/class3_9");
        assert_eq!(directories_for(3_000_000_000), 586);
    }

    #[test]
    fn numbers_and_files_are_the_same_thing() {
        for path_id in [0, 1, 35, 36, 12_345, DIRECTORIES_MAX * FILES_PER_DIRECTORY - 1] {
            assert_eq!(File::from_path_id(path_id).path_id(), path_id);
        }
    }
}
