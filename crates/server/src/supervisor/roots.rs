//! The sites' roots, opened once for all processes of a configuration.
//!
//! Only the supervisor opens them, through children that may hang in its place: a root that does not
//! answer delays no start, and the other roles get descriptors, never a path to walk.

use std::io;
use std::path::{Path, PathBuf};

use flash_sys::prompt::epoll::{Epoll, Watch};
use flash_sys::waiting::root::{Opening, Root, Unopened, open_roots};
use flash_sys::{AsFd, OwnedFd};

use crate::config::{ROOT_PATIENCE, Site};
use crate::control::{Order, send_order};

/// The roots of a configuration.
#[derive(Debug)]
pub(super) struct Roots {
    /// Each path once.
    slots: Vec<(PathBuf, Slot)>,
    /// The slot of each site.
    of_sites: Vec<usize>,
}

#[derive(Debug)]
enum Slot {
    Open(Root),
    /// With the number that its answer is heard under.
    Hangs(u64, Opening),
    Failed,
}

impl Roots {
    /// Opens the roots of `sites`. Gives what the operator should know of them.
    pub(super) fn open(sites: &[Site], epoll: &Epoll, numbers: &mut u64) -> io::Result<(Self, Vec<String>)> {
        let mut paths: Vec<&Path> = sites.iter().map(|site| site.root.as_path()).collect();
        paths.sort_unstable();
        paths.dedup();
        let slot_of = |site: &Site| paths.binary_search(&site.root.as_path()).unwrap_or(0);
        let mut roots = Self { slots: Vec::new(), of_sites: sites.iter().map(slot_of).collect() };
        let mut news = Vec::new();
        for (path, opened) in paths.iter().zip(open_roots(paths.iter().copied(), ROOT_PATIENCE)) {
            let slot = match opened {
                Ok(root) => Slot::Open(root),
                Err(Unopened::Hangs(opening)) => {
                    news.push(format!("{} does not answer; until it does, it gets 503", path.display()));
                    *numbers += 1;
                    epoll.add(&opening, *numbers, Watch::Input)?;
                    Slot::Hangs(*numbers, opening)
                }
                Err(Unopened::Failed(e)) => {
                    news.push(format!("cannot open {}: {e}; until a reload it gets 503", path.display()));
                    Slot::Failed
                }
            };
            roots.slots.push((path.to_path_buf(), slot));
        }
        Ok((roots, news))
    }

    /// Gives a role the roots that there are, in the order of the sites.
    pub(super) fn give(&self, channel: impl AsFd) -> io::Result<()> {
        for (site, slot) in self.of_sites.iter().enumerate() {
            if let Slot::Open(root) = &self.slots[*slot].1 {
                let folder = root.folder.try_clone()?;
                send_order(&channel, &Order::Root { site, is_local: root.is_local, folder })?;
            }
        }
        Ok(())
    }

    /// Takes a late answer, if `number` is the one of a root that had not answered. Gives what the
    /// operator should know.
    pub(super) fn hear(&mut self, number: u64, epoll: &Epoll) -> Option<String> {
        let is_heard = |slot: &Slot| matches!(slot, Slot::Hangs(other, _) if *other == number);
        let (path, slot) = self.slots.iter_mut().find(|(_, slot)| is_heard(slot))?;
        let Slot::Hangs(_, opening) = slot else { return None };
        let answer = opening.take();
        if answer.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock) {
            return None;
        }
        // Its descriptor is closed with it.
        let _ = epoll.remove(&*opening);
        let (found, news) = match answer {
            Ok(root) => (Slot::Open(root), format!("{} answers", path.display())),
            Err(e) => {
                (Slot::Failed, format!("cannot open {}: {e}; until a reload it gets 503", path.display()))
            }
        };
        *slot = found;
        Some(news)
    }

    /// Those under which workers look files up by themselves.
    pub(super) fn local(&self) -> impl Iterator<Item = &OwnedFd> {
        self.slots.iter().filter_map(|(_, slot)| match slot {
            Slot::Open(root) if root.is_local => Some(&root.folder),
            _ => None,
        })
    }

    /// How many there are that may wait for somebody else, or do.
    pub(super) fn others_len(&self) -> usize {
        self.slots.len() - self.local().count()
    }
}
