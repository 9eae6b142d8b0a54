//! The file systems of names and ranges. Each has a share of the helpers, so that one that hangs leaves
//! helpers to the others. Called by [`backend`](crate::backend).

use std::collections::HashMap;

use crate::machine::FileId;
use crate::slab::SiteId;

/// Maximum number of shares. Further file systems belong to the last one.
pub const SHARES_MAX: usize = 8;

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted: an absolute path.
    pub path: Box<[u8]>,
    /// The device number that its files have.
    pub device: u64,
}

/// The shares of devices.
#[derive(Debug)]
pub(super) struct FileSystems {
    /// The longest paths first.
    mounts: Vec<Mount>,
    own_root: Option<FileId>,
    share_of: HashMap<u64, SiteId>,
    shares_len: usize,
    /// Shares with too many files that could not be closed.
    jammed: [bool; SHARES_MAX],
}

impl FileSystems {
    pub(super) fn new(mut mounts: Vec<Mount>, own_root: Option<FileId>) -> Self {
        mounts.sort_by_key(|mount| std::cmp::Reverse(mount.path.len()));
        Self { mounts, own_root, share_of: HashMap::new(), shares_len: 0, jammed: [false; SHARES_MAX] }
    }

    /// The device that a path beneath a client's root probably leads to: that of the innermost mounted file
    /// system, if the client sees the same file systems as the backend; otherwise that of the root. No
    /// look-up is made, because it could wait.
    pub(super) fn device_of(&self, root: FileId, path: &[u8]) -> u64 {
        // Not by the mount's number: in a mount namespace of its own, such as that of a service with a private /tmp, the
        // same root is another mount.
        if self.own_root.is_none_or(|own| (own.device, own.inode) != (root.device, root.inode)) {
            return root.device;
        }
        let holds = |mount: &&Mount| match path.strip_prefix(&*mount.path) {
            Some(rest) => rest.is_empty() || rest.starts_with(b"/") || mount.path.ends_with(b"/"),
            None => false,
        };
        self.mounts.iter().find(holds).map_or(root.device, |mount| mount.device)
    }

    pub(super) fn set_jammed(&mut self, share: SiteId, is_jammed: bool) {
        if let Some(known) = self.jammed.get_mut(usize::from(share.0)) {
            *known = is_jammed;
        }
    }

    pub(super) fn is_jammed(&self, share: SiteId) -> bool {
        self.jammed.get(usize::from(share.0)).copied().unwrap_or(false)
    }

    /// The share of a device. `add` makes another one; the first exists from the start.
    pub(super) fn share_of(&mut self, device: u64, add: impl FnOnce() -> SiteId) -> SiteId {
        if let Some(share) = self.share_of.get(&device) {
            return *share;
        }
        let last = SiteId((SHARES_MAX - 1) as u16);
        let share = match self.shares_len {
            0 => SiteId(0),
            // The map does not grow: a device that is not in it belongs to the last share.
            SHARES_MAX => return last,
            _ => add(),
        };
        self.shares_len += 1;
        self.share_of.insert(device, share);
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(inode: u64) -> FileId {
        FileId { device: 1, inode, mount: 1 }
    }

    #[test]
    fn a_path_belongs_to_the_innermost_mount() {
        let mount = |path: &str, device| Mount { path: path.as_bytes().into(), device };
        let mounts = vec![mount("/", 1), mount("/srv", 2), mount("/srv/www", 3)];
        let file_systems = FileSystems::new(mounts, Some(root(2)));
        let table =
            [("/etc", 1), ("/srv", 2), ("/srv/x", 2), ("/srv/www2", 2), ("/srv/www/a", 3), ("/srvx", 1)];
        for (path, device) in table {
            assert_eq!(file_systems.device_of(root(2), path.as_bytes()), device, "{path}");
            let elsewhere = FileId { mount: 7, ..root(2) };
            assert_eq!(
                file_systems.device_of(elsewhere, path.as_bytes()),
                device,
                "{path} in another namespace"
            );
            assert_eq!(file_systems.device_of(root(9), path.as_bytes()), 1, "{path} in another root");
        }
    }

    #[test]
    fn the_number_of_shares_is_bounded() {
        let mut file_systems = FileSystems::new(Vec::new(), None);
        let mut added = 0;
        let mut share = |device| {
            let share = file_systems.share_of(device, || {
                added += 1;
                SiteId(added)
            });
            usize::from(share.0)
        };
        let shares: Vec<usize> = (0..100).chain(0..100).map(&mut share).collect();
        assert_eq!(shares[..SHARES_MAX], (0..SHARES_MAX).collect::<Vec<_>>());
        assert!(shares[SHARES_MAX..100].iter().all(|share| *share == SHARES_MAX - 1));
        assert_eq!(shares[..100], shares[100..]);
    }
}
