//! The files that a workload draws from, numbered from 0.
//!
//! Workloads choose numbers, the load turns them into requests and checks answers by them.

use crate::files::content::part_matches;
use crate::files::layout::{DIRECTORY_BYTES, FILES_PER_DIRECTORY, File};

/// A list of files: their paths and what is known of their contents.
#[derive(Clone, Debug)]
pub struct Catalogue {
    files: Files,
    /// The seed of the contents, when they are those of `flash fileset`.
    content_seed: Option<u64>,
    /// The number that the first of these files has in the set that was made.
    first_content: u32,
    /// The beginning of the paths of dynamic requests, without its last slash; none without such requests.
    dynamic: Option<Box<str>>,
    methods: Methods,
}

/// The methods that a list gives for its paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Methods {
    /// Each once.
    pub(crate) names: Vec<Box<str>>,
    /// The method of each path: its place in the names, from 1, and 0 for one without. Empty where none has one.
    pub(crate) of_paths: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Files {
    /// The SPECweb99 set with this many directories: nothing is stored for each file.
    Specweb99 {
        directories: u32,
    },
    Listed(Vec<Listed>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// As it stands in a request, with a slash in front.
    pub path: Box<str>,
    pub file_bytes: Option<u64>,
}

impl Catalogue {
    /// The set of `flash fileset specweb99` with this many directories, made with `content_seed`.
    pub fn specweb99(directories: u32, content_seed: Option<u64>) -> Self {
        Self { content_seed, ..Self::of(Files::Specweb99 { directories }) }
    }

    pub fn listed(files: Vec<Listed>) -> Self {
        Self::of(Files::Listed(files))
    }

    fn of(files: Files) -> Self {
        Self { files, content_seed: None, first_content: 0, dynamic: None, methods: Methods::default() }
    }

    /// The same, where the list gives methods.
    pub(crate) fn with_methods(self, methods: Methods) -> Self {
        Self { methods, ..self }
    }

    /// The methods that paths have: see [`Catalogue::method_number`].
    pub(crate) fn methods(&self) -> &[Box<str>] {
        &self.methods.names
    }

    /// The method of a path: its place in [`Catalogue::methods`], from 1; 0 for one without a method of its own.
    #[inline]
    pub(crate) fn method_number(&self, path_id: u32) -> usize {
        if self.methods.of_paths.is_empty() {
            return 0;
        }
        self.methods.of_paths.get(self.file_of(path_id).0 as usize).map_or(0, |number| usize::from(*number))
    }

    /// The same, and as many dynamic requests: that for file N has the number N plus the number of files, and its path is
    /// the file's behind `prefix`, which ends with a slash. Their answers have no known length or content.
    pub fn with_dynamic(self, prefix: &str) -> Self {
        Self { dynamic: Some(prefix.trim_end_matches('/').into()), ..self }
    }

    /// These files with the contents of `flash fileset`, whose set was made with `seed` and has them
    /// from number `first` on.
    pub fn with_contents(self, seed: Option<u64>, first: u32) -> Self {
        Self { content_seed: seed, first_content: first, ..self }
    }

    pub fn content_seed(&self) -> Option<u64> {
        self.content_seed
    }

    pub fn len(&self) -> u32 {
        match &self.files {
            Files::Specweb99 { directories } => directories * FILES_PER_DIRECTORY,
            Files::Listed(files) => files.len() as u32,
        }
    }

    /// The number of the first dynamic request; none without such requests.
    pub fn first_dynamic(&self) -> Option<u32> {
        self.dynamic.as_ref().map(|_| self.len())
    }

    /// The numbers of files and of dynamic requests: those below this one.
    pub fn path_ids_end(&self) -> u32 {
        self.len() + self.first_dynamic().unwrap_or(0)
    }

    /// The number of the file, and the beginning of the path, of path `path_id`.
    fn file_of(&self, path_id: u32) -> (u32, &str) {
        match &self.dynamic {
            Some(prefix) if path_id >= self.len() => (path_id - self.len(), prefix),
            _ => (path_id, ""),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the path of file `path_id`, or of a dynamic request, with a slash in front.
    pub fn write_path(&self, path_id: u32, into: &mut Vec<u8>) {
        use std::io::Write;
        let (path_id, prefix) = self.file_of(path_id);
        into.extend_from_slice(prefix.as_bytes());
        match &self.files {
            Files::Specweb99 { .. } => {
                let File { directory, class, number } = File::from_path_id(path_id);
                // Writing to memory does not fail.
                let _ = write!(into, "/dir{directory:05}/class{class}_{number}");
            }
            Files::Listed(files) => into.extend_from_slice(files[path_id as usize].path.as_bytes()),
        }
    }

    /// The path of file `path_id` of a list; empty for SPECweb99's, which are not stored.
    pub fn listed_path(&self, path_id: u32) -> &str {
        match &self.files {
            Files::Specweb99 { .. } => "",
            Files::Listed(files) => &files[path_id as usize].path,
        }
    }

    pub fn file_bytes(&self, path_id: u32) -> Option<u64> {
        match &self.files {
            _ if self.first_dynamic().is_some_and(|first| path_id >= first) => None,
            Files::Specweb99 { .. } => Some(File::from_path_id(path_id).file_bytes()),
            Files::Listed(files) => files[path_id as usize].file_bytes,
        }
    }

    /// The length of all files, when all are known.
    pub fn dataset_bytes(&self) -> Option<u64> {
        match &self.files {
            Files::Specweb99 { directories } => Some(u64::from(*directories) * DIRECTORY_BYTES),
            Files::Listed(files) => files.iter().map(|file| file.file_bytes).sum(),
        }
    }

    /// Whether contents can be checked.
    pub fn knows_contents(&self) -> bool {
        self.content_seed.is_some()
    }

    /// Whether `bytes` are what stands at `offset_bytes` of file `path_id`; true when unknown.
    pub fn content_matches(&self, path_id: u32, offset_bytes: u64, bytes: &[u8]) -> bool {
        let (Some(seed), Some(file_bytes)) = (self.content_seed, self.file_bytes(path_id)) else {
            return true;
        };
        part_matches(seed, path_id + self.first_content, file_bytes, offset_bytes, bytes)
    }
}
