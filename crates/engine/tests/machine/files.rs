//! A file system in memory: paths, files, and which of their pages are in memory.

use std::borrow::Cow;
use std::cell::{Ref, RefCell, RefMut};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::rc::Rc;
use std::sync::OnceLock;

use flash_engine::{FileKind, FileStat, LookUpError, Opened, Resident, SiteId, Want};

use super::{Count, Counted, START_WALL_NS};

pub(crate) const KIB: u64 = 1024;
pub(crate) const MIB: u64 = 1024 * KIB;
pub(crate) const PAGE_BYTES: u64 = 4 * KIB;

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Bytes(Vec<u8>),
    /// This many bytes, made from a seed, for files that are too large to keep in memory.
    Pattern(u64, u64),
    /// This many bytes of the noise, from an offset: cheap to make and to compare.
    Noise(usize, u64),
}

/// The bytes that [`Content::Noise`] is cut from.
pub(crate) const NOISE_BYTES: usize = 8 << 20;

fn noise() -> &'static [u8] {
    static NOISE: OnceLock<Vec<u8>> = OnceLock::new();
    NOISE.get_or_init(|| (0..NOISE_BYTES as u64 / 8).flat_map(|at| pattern(0, at)).collect())
}

impl Content {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Pattern(_, len) | Content::Noise(_, len) => *len,
        }
    }

    /// The bytes from `start` to `end`.
    pub(crate) fn slice(&self, start: u64, end: u64) -> Vec<u8> {
        match self {
            Content::Bytes(bytes) => bytes[start as usize..end as usize].to_vec(),
            Content::Noise(at, _) => noise()[at + start as usize..at + end as usize].to_vec(),
            Content::Pattern(seed, _) => {
                let mut bytes = Vec::with_capacity((end - start + 16) as usize);
                (start / 8..end.div_ceil(8)).for_each(|at| bytes.extend_from_slice(&pattern(*seed, at)));
                bytes.drain(..(start % 8) as usize);
                bytes.truncate((end - start) as usize);
                bytes
            }
        }
    }

    pub(crate) fn whole(&self) -> Vec<u8> {
        self.slice(0, self.len())
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Content::Bytes(text.as_bytes().to_vec())
    }
}

/// Eight bytes that differ from their neighbours and from those of other seeds.
fn pattern(seed: u64, word: u64) -> [u8; 8] {
    let mixed = (word + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed.wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed ^ (mixed >> 29)).to_le_bytes()
}

/// Which pages are in memory.
#[derive(Clone, Debug)]
pub(crate) enum Residency {
    All,
    Pages(HashSet<u64>),
    /// The kernel cannot report it without blocking.
    Unknown,
}

/// A file, for as long as a name or a descriptor refers to it.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) content: Content,
    pub(crate) stat: FileStat,
    pub(crate) residency: Residency,
    /// Reading the file fails.
    pub(crate) fails: bool,
    /// The largest size that the file ever had.
    size_max_bytes: u64,
}

impl Inode {
    pub(crate) fn update(&mut self, content: Content, now_ns: i128) {
        self.content = content;
        self.stat.size_bytes = self.content.len();
        self.stat.modified_ns = now_ns;
        self.stat.changed_ns = now_ns;
        self.size_max_bytes = self.size_max_bytes.max(self.stat.size_bytes);
    }

    /// Whether all of the file can be read at once.
    pub(crate) fn is_resident(&self) -> bool {
        let size_bytes = self.stat.size_bytes;
        let told = !matches!(self.residency, Residency::Unknown);
        told && !self.fails && (size_bytes == 0 || self.resident_bytes(0, size_bytes) == size_bytes)
    }

    /// How many of `length` bytes at `offset` are in memory, up to the first gap.
    fn resident_bytes(&self, offset: u64, length: u64) -> u64 {
        let Residency::Pages(pages) = &self.residency else { return length };
        let last = (offset + length - 1) / PAGE_BYTES;
        let gap = (offset / PAGE_BYTES..=last).find(|page| !pages.contains(page));
        gap.map_or(length, |page| (page * PAGE_BYTES).saturating_sub(offset))
    }

    /// Writes into a file of bytes.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let Content::Bytes(content) = &mut self.content else { panic!("only a file of bytes is written") };
        let offset = offset as usize;
        content.resize(content.len().max(offset + bytes.len()), 0);
        content[offset..][..bytes.len()].copy_from_slice(bytes);
        self.stat.size_bytes = content.len() as u64;
        self.size_max_bytes = self.size_max_bytes.max(self.stat.size_bytes);
    }

    /// Makes a hole in a file of bytes, or cuts it off. A byte that is gone can be told from one that was never written.
    pub(crate) fn give_back(&mut self, offset: u64, length_bytes: Option<u64>) {
        let Content::Bytes(content) = &mut self.content else { panic!("only a file of bytes is written") };
        let start = content.len().min(offset as usize);
        match length_bytes {
            Some(bytes) => {
                let end = content.len().min((offset + bytes) as usize);
                content[start..end].fill(0);
            }
            None => content.truncate(start),
        }
        self.stat.size_bytes = content.len() as u64;
    }

    pub(crate) fn load(&mut self, offset: u64, length: u64) {
        if let Residency::Pages(pages) = &mut self.residency
            && length > 0
        {
            pages.extend(offset / PAGE_BYTES..=(offset + length - 1) / PAGE_BYTES);
        }
    }

    pub(crate) fn evict(&mut self) {
        if !matches!(self.residency, Residency::Unknown) {
            self.residency = Residency::Pages(HashSet::new());
        }
    }
}

/// An open file.
#[derive(Debug)]
pub(crate) struct FileHandle {
    pub(crate) inode: Rc<RefCell<Inode>>,
    /// Whether only helpers can reach the file (it is open with `O_PATH`).
    is_place: bool,
    _counted: Counted,
}

impl FileHandle {
    pub(crate) fn stat(&self) -> FileStat {
        self.inode.borrow().stat
    }

    /// The state of the file as the worker sees it.
    pub(crate) fn stat_cached(&self) -> io::Result<FileStat> {
        if self.is_place { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(self.stat()) }
    }

    pub(crate) fn read_resident(&self, offset: u64, buffer: &mut [u8]) -> io::Result<Resident> {
        if self.is_place {
            return Ok(Resident::Unknown);
        }
        let inode = self.inode.borrow();
        let length = buffer.len() as u64;
        assert!(offset + length <= inode.size_max_bytes, "a read beyond every size that the file ever had");
        if inode.fails {
            return Err(io::Error::from_raw_os_error(5));
        }
        let left = inode.stat.size_bytes.saturating_sub(offset).min(length);
        if left == 0 {
            return Ok(Resident::Bytes(0));
        }
        if matches!(inode.residency, Residency::Unknown) {
            return Ok(Resident::Unknown);
        }
        let n = inode.resident_bytes(offset, left);
        if n == 0 {
            return Ok(Resident::Absent);
        }
        buffer[..n as usize].copy_from_slice(&inode.content.slice(offset, offset + n));
        Ok(Resident::Bytes(n as usize))
    }

    /// Reads as a helper does. Returns fewer bytes at the end of the file.
    pub(crate) fn read(&self, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let inode = self.inode.borrow();
        if inode.fails {
            return Err(io::Error::from_raw_os_error(5));
        }
        let end = (offset + length).min(inode.stat.size_bytes);
        Ok(if offset < end { inode.content.slice(offset, end) } else { Vec::new() })
    }
}

#[derive(Debug)]
struct Entry {
    node: Node,
    /// Whether a look-up of the name can be answered from memory.
    cached: bool,
}

#[derive(Clone, Debug)]
enum Node {
    File(Rc<RefCell<Inode>>),
    Directory(FileStat),
    Special(FileStat),
    Error(LookUpError),
}

/// The file system of all sites.
#[derive(Debug)]
pub(crate) struct Files {
    /// The root of each site. A site that is not listed has its root at the top.
    pub(crate) roots: Vec<String>,
    /// Path prefixes on a file system that may depend on another process or host (NFS, FUSE). The worker
    /// neither looks up nor reads nor checks these files.
    pub(crate) places: Vec<String>,
    entries: BTreeMap<Vec<u8>, Entry>,
    /// Whether a look-up of an absent name is answered from memory.
    pub(crate) missing_cached: bool,
    /// Names that a helper found to be missing.
    missing_known: HashSet<Vec<u8>>,
    /// Names are evicted at once: no look-up is ever answered from memory, even after a helper's look-up.
    pub(crate) names_thrash: bool,
    pub(crate) open: Count,
    inodes: u64,
    /// The clock of the file system. Tests move it with [`Files::tick`].
    pub(crate) now_ns: i128,
}

impl Files {
    pub(crate) fn new() -> Self {
        let mut files = Self {
            roots: Vec::new(),
            places: Vec::new(),
            entries: BTreeMap::new(),
            missing_cached: true,
            missing_known: HashSet::new(),
            names_thrash: false,
            open: Count::default(),
            inodes: 0,
            // A day old, so that no file is racy.
            now_ns: START_WALL_NS - 86_400_000_000_000,
        };
        files.add_directory(".");
        files
    }

    /// Moves the clock that time stamps are made from.
    pub(crate) fn tick(&mut self) {
        self.now_ns += 100_000_000;
    }

    fn new_stat(&mut self, kind: FileKind, size_bytes: u64) -> FileStat {
        self.inodes += 1;
        FileStat {
            kind,
            device: 1,
            inode: self.inodes,
            size_bytes,
            modified_ns: self.now_ns,
            changed_ns: self.now_ns,
        }
    }

    /// Adds a file whose name and content are in memory. Replaces an existing file as a rename does.
    pub(crate) fn add(&mut self, path: &str, content: impl Into<Content>) {
        let handle = self.anonymous(content.into());
        self.put(path, Node::File(Rc::clone(&handle.inode)));
    }

    /// Adds a file of which nothing is in memory, not even its name.
    pub(crate) fn add_cold(&mut self, path: &str, content: impl Into<Content>) {
        self.add(path, content);
        self.forget_name(path);
        self.inode(path).evict();
    }

    /// Makes a file without a name.
    pub(crate) fn anonymous(&mut self, content: Content) -> FileHandle {
        let stat = self.new_stat(FileKind::Regular, content.len());
        let size_max_bytes = content.len();
        let inode = Inode { content, stat, residency: Residency::All, fails: false, size_max_bytes };
        FileHandle { inode: Rc::new(RefCell::new(inode)), is_place: false, _counted: self.open.up() }
    }

    /// Gives a file a second name.
    pub(crate) fn link(&mut self, path: &str, new_path: &str) {
        let Some(Entry { node, .. }) = self.entries.get(path.as_bytes()) else { panic!("no {path}") };
        let node = node.clone();
        self.put(new_path, node);
    }

    pub(crate) fn add_directory(&mut self, path: &str) {
        let stat = self.new_stat(FileKind::Directory, 4096);
        self.put(path, Node::Directory(stat));
        // A path with a final slash must be a directory.
        if path != "." {
            self.put(&format!("{path}/"), Node::Directory(stat));
        }
    }

    pub(crate) fn add_special(&mut self, path: &str) {
        let stat = self.new_stat(FileKind::Special, 0);
        self.put(path, Node::Special(stat));
    }

    pub(crate) fn add_error(&mut self, path: &str, error: LookUpError) {
        self.put(path, Node::Error(error));
    }

    fn put(&mut self, path: &str, node: Node) {
        self.lose_name(path);
        self.entries.insert(path.as_bytes().to_vec(), Entry { node, cached: true });
    }

    pub(crate) fn remove(&mut self, path: &str) {
        self.lose_name(path);
        self.entries.remove(path.as_bytes());
    }

    /// A file that loses a name has other times.
    fn lose_name(&mut self, path: &str) {
        if let Some(Entry { node: Node::File(inode), .. }) = self.entries.get(path.as_bytes()) {
            inode.borrow_mut().stat.changed_ns += 1;
        }
    }

    /// Evicts a name from memory.
    pub(crate) fn forget_name(&mut self, path: &str) {
        if let Some(entry) = self.entries.get_mut(path.as_bytes()) {
            entry.cached = false;
        }
        self.missing_known.remove(path.as_bytes());
    }

    /// Whether a look-up of this name is answered from memory.
    pub(crate) fn is_cached(&self, path: &str) -> bool {
        match self.entries.get(path.as_bytes()) {
            _ if self.names_thrash || self.is_place(path.as_bytes()) => false,
            Some(entry) => entry.cached,
            None => self.missing_cached || self.missing_known.contains(path.as_bytes()),
        }
    }

    /// The file under a name.
    pub(crate) fn inode(&self, path: &str) -> RefMut<'_, Inode> {
        match &self.entries.get(path.as_bytes()).expect("the test added this file").node {
            Node::File(inode) => inode.borrow_mut(),
            other => panic!("{other:?} is not a file"),
        }
    }

    pub(crate) fn look(&self, path: &str) -> Ref<'_, Inode> {
        match &self.entries.get(path.as_bytes()).expect("the test added this file").node {
            Node::File(inode) => inode.borrow(),
            other => panic!("{other:?} is not a file"),
        }
    }

    /// Writes to the file in place.
    pub(crate) fn overwrite(&mut self, path: &str, content: impl Into<Content>) {
        self.tick();
        let now_ns = self.now_ns;
        self.inode(path).update(content.into(), now_ns);
    }

    pub(crate) fn open_cached(
        &mut self,
        site: SiteId,
        path: &[u8],
        want: Want,
    ) -> Result<Opened<FileHandle>, LookUpError> {
        let path = &self.full(site, path)[..];
        match self.entries.get(path) {
            _ if self.names_thrash || self.is_place(path) => Err(LookUpError::WouldWait),
            Some(entry) if !entry.cached => Err(LookUpError::WouldWait),
            None if !self.missing_cached && !self.missing_known.contains(path) => Err(LookUpError::WouldWait),
            _ => self.open(path, want),
        }
    }

    /// Opens as a helper does. Afterwards the name is in memory.
    pub(crate) fn open_waiting(
        &mut self,
        site: SiteId,
        path: &[u8],
        want: Want,
    ) -> Result<Opened<FileHandle>, LookUpError> {
        let path = &self.full(site, path)[..];
        match self.entries.get_mut(path) {
            Some(entry) => entry.cached = true,
            None => drop(self.missing_known.insert(path.to_vec())),
        }
        self.open(path, want)
    }

    /// Whether only helpers can reach this path.
    pub(crate) fn is_place(&self, path: &[u8]) -> bool {
        self.places.iter().any(|place| path.starts_with(place.as_bytes()))
    }

    /// Whether every change of a path of a site is told where its directory is watched.
    pub(crate) fn reports_changes(&self, site: SiteId, path: &[u8]) -> bool {
        !self.is_place(&self.full(site, path))
    }

    fn full<'p>(&self, site: SiteId, path: &'p [u8]) -> Cow<'p, [u8]> {
        match self.roots.get(usize::from(site.0)) {
            Some(root) => [root.as_bytes(), path].concat().into(),
            None => path.into(),
        }
    }

    fn open(&self, path: &[u8], want: Want) -> Result<Opened<FileHandle>, LookUpError> {
        match self.entries.get(path).map(|entry| &entry.node) {
            None => Err(LookUpError::Missing),
            Some(Node::Error(error)) => Err(*error),
            Some(Node::Directory(stat) | Node::Special(stat)) => Ok(Opened { stat: *stat, file: None }),
            Some(Node::File(inode)) => {
                let file = (want == Want::Content).then(|| FileHandle {
                    inode: Rc::clone(inode),
                    is_place: self.is_place(path),
                    _counted: self.open.up(),
                });
                Ok(Opened { stat: inode.borrow().stat, file })
            }
        }
    }
}
