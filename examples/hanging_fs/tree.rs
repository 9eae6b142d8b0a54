//! The files and folders of `hanging_fs`, in memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fs, io};

use fuser::{Errno, FileAttr, FileType, INodeNo};

/// How far the clock of this file system is behind. A file that has just changed on another host is not stored, because it could change
/// again unnoticed.
const BEHIND: Duration = Duration::from_secs(3600);

/// A file or a folder.
pub(crate) enum Node {
    File { content: Arc<[u8]>, modified: SystemTime },
    Folder(BTreeMap<String, u64>),
    Gone,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Tree {
    /// Indexed by inode number, from 1.
    nodes: Vec<Node>,
}

impl Tree {
    pub(crate) fn add(&mut self, path: &Path) -> io::Result<u64> {
        let at = self.nodes.len();
        let metadata = fs::metadata(path)?;
        if metadata.is_file() {
            self.nodes.push(Node::File { content: fs::read(path)?.into(), modified: metadata.modified()? });
        } else {
            self.nodes.push(Node::Folder(BTreeMap::new()));
            let mut children = BTreeMap::new();
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                children.insert(entry.file_name().to_string_lossy().into_owned(), self.add(&entry.path())?);
            }
            self.nodes[at] = Node::Folder(children);
        }
        Ok(at as u64 + 1)
    }

    pub(crate) fn node(&self, number: INodeNo) -> Result<&Node, Errno> {
        match self.nodes.get((number.0 as usize).wrapping_sub(1)) {
            Some(Node::Gone) => Err(Errno::ESTALE),
            found => found.ok_or(Errno::ENOENT),
        }
    }

    pub(crate) fn child(&self, parent: INodeNo, name: &str) -> Result<INodeNo, Errno> {
        match self.node(parent)? {
            Node::Folder(children) => children.get(name).copied().map(INodeNo).ok_or(Errno::ENOENT),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub(crate) fn attributes(&self, number: INodeNo) -> Result<FileAttr, Errno> {
        let (kind, perm, size, modified) = match self.node(number)? {
            Node::File { content, modified } => {
                (FileType::RegularFile, 0o644, content.len() as u64, *modified - BEHIND)
            }
            _ => (FileType::Directory, 0o755, 0, SystemTime::UNIX_EPOCH),
        };
        Ok(FileAttr {
            ino: number,
            size,
            blocks: size.div_ceil(512),
            atime: modified,
            mtime: modified,
            ctime: modified,
            crtime: modified,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    pub(crate) fn find(&self, path: &str) -> Result<INodeNo, Errno> {
        let mut names = path.split('/').filter(|name| !name.is_empty());
        names.try_fold(INodeNo::ROOT, |parent, name| self.child(parent, name))
    }

    pub(crate) fn put(&mut self, path: &str, text: &str) -> Result<(), Errno> {
        let number = self.find(path)?;
        self.nodes[number.0 as usize - 1] =
            Node::File { content: text.as_bytes().into(), modified: SystemTime::now() };
        Ok(())
    }

    pub(crate) fn create(&mut self, parent: INodeNo, name: String) -> Result<INodeNo, Errno> {
        let number = self.nodes.len() as u64 + 1;
        match self.nodes.get_mut((parent.0 as usize).wrapping_sub(1)) {
            Some(Node::Folder(children)) => children.insert(name, number),
            _ => return Err(Errno::ENOTDIR),
        };
        self.nodes.push(Node::File { content: [].into(), modified: SystemTime::now() });
        Ok(INodeNo(number))
    }

    /// Changes the content of a file.
    pub(crate) fn edit(&mut self, number: INodeNo, edit: impl FnOnce(&mut Vec<u8>)) -> Result<(), Errno> {
        let Node::File { content, .. } = self.node(number)? else { return Err(Errno::EISDIR) };
        let mut changed = content.to_vec();
        edit(&mut changed);
        let file = Node::File { content: changed.into(), modified: SystemTime::now() };
        self.nodes[number.0 as usize - 1] = file;
        Ok(())
    }

    pub(crate) fn remove(&mut self, path: &str) -> Result<(), Errno> {
        let (folder, name) = path.rsplit_once('/').ok_or(Errno::EINVAL)?;
        let (folder, old) = (self.find(folder)?, self.find(path)?);
        self.nodes[old.0 as usize - 1] = Node::Gone;
        if let Node::Folder(children) = &mut self.nodes[folder.0 as usize - 1] {
            children.remove(name);
        }
        Ok(())
    }

    pub(crate) fn replace(&mut self, path: &str, text: &str) -> Result<(), Errno> {
        let (folder, name) = path.rsplit_once('/').ok_or(Errno::EINVAL)?;
        let (folder, old) = (self.find(folder)?, self.find(path)?);
        self.nodes[old.0 as usize - 1] = Node::Gone;
        self.nodes.push(Node::File { content: text.as_bytes().into(), modified: SystemTime::now() });
        let new = self.nodes.len() as u64;
        if let Node::Folder(children) = &mut self.nodes[folder.0 as usize - 1] {
            children.insert(name.to_owned(), new);
        }
        Ok(())
    }
}
