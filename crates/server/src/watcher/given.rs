//! The start of a watcher. Called by [`watcher`](super).

use std::io;

use flash_prompt::OwnedFd;
use flash_prompt::names::NamesReader;
use flash_worker::control::{Order, receive_order};

use crate::config::Settings;
use crate::control::unexpected;

/// The things that the supervisor gives to a watcher.
pub(super) struct Given {
    /// The folder of each site, if it is there and on a local file system.
    pub(super) folders: Vec<Option<OwnedFd>>,
    pub(super) names: NamesReader,
    pub(super) keeper: Option<OwnedFd>,
    /// A queue of fanotify, if the supervisor could make one.
    pub(super) queue: Option<OwnedFd>,
}

impl Given {
    /// Receives it, until the watcher must begin.
    pub(super) fn receive(control: &OwnedFd, settings: &Settings) -> io::Result<Self> {
        let (mut names, mut keeper, mut queue) = (None, None, None);
        let mut folders: Vec<Option<OwnedFd>> = settings.folders().map(|_| None).collect();
        loop {
            match receive_order(control)? {
                Order::Root { site, is_local: true, folder } => {
                    if let Some(slot) = folders.get_mut(site) {
                        *slot = Some(folder);
                    }
                }
                // Another host or process that has the files can change them unnoticed.
                Order::Root { .. } => {}
                Order::Fanotify(file) => queue = Some(file),
                Order::NamesTable(file) => names = Some(NamesReader::map(file)?),
                Order::Keeper(channel) => keeper = Some(channel),
                Order::Begin => break,
                other => return Err(unexpected(&other)),
            }
        }
        let names =
            names.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a watcher without names"))?;
        Ok(Self { folders, names, keeper, queue })
    }
}
