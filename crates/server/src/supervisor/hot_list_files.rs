//! The files of the list of hot files: the list that the first worker loads, and its next version, which the keeper writes and which takes
//! the place of the list when the server ends. Called by `store.rs`, and by `prepare.rs`, which opens them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use flash_waiting::file;
use flash_waiting::guarded::GuardedFile;
use flash_waiting::successor::Bequest;

use super::estate::Estate;
use super::outbox::Shared;
use crate::config::{FilePath, Settings};
use crate::hot_list::LIST_BYTES_MAX;

/// A [`HotList`] that is loaded, as the next program takes it over.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeftList {
    to_save: usize,
    folder: usize,
    owner: Option<u32>,
    name: FilePath,
}

#[derive(Debug, Default)]
pub(super) struct HotList {
    /// In memory, until a worker of the first configuration has it.
    pub(super) to_load: Option<Shared>,
    /// The next version of the list, open for writing.
    pub(super) to_save: Option<Shared>,
    /// The place of the list, until the next version is in use.
    place: Option<GuardedFile>,
}

impl HotList {
    /// The list named by the settings, if any.
    ///
    /// Errors: as of [`HotList::open`].
    pub(super) fn of(settings: &Settings) -> io::Result<Self> {
        settings.cache_list.as_deref().map_or(Ok(Self::default()), Self::open)
    }

    /// Reads the list, if it exists, and creates the next version beside it.
    ///
    /// Errors: one of both cannot be opened.
    fn open(path: &Path) -> io::Result<Self> {
        let cannot = |e: io::Error| {
            let advice =
                "choose a file in a folder of root, or of the user who starts Flash, or remove cache_list";
            io::Error::new(
                e.kind(),
                format!("cannot open the list of hot files {}: {e}; {advice}", path.display()),
            )
        };
        let place = GuardedFile::find(path).map_err(cannot)?;
        let mut text = Vec::new();
        if let Some(file) = place.read().map_err(cannot)? {
            File::from(file).take(LIST_BYTES_MAX).read_to_end(&mut text).map_err(cannot)?;
        }
        let to_load = Arc::new(file::memory_file(&text)?);
        let to_save = Arc::new(place.create_next().map_err(cannot)?);
        Ok(Self::from_parts(to_load, to_save, place))
    }

    /// A list from its current and its next version, and its place.
    pub(super) fn from_parts(to_load: Shared, to_save: Shared, place: GuardedFile) -> Self {
        Self { to_load: Some(to_load), to_save: Some(to_save), place: Some(place) }
    }

    /// The parts of a list, for another process.
    pub(super) fn into_parts(mut self) -> Option<(Shared, Shared, GuardedFile)> {
        Some((self.to_load.take()?, self.to_save.take()?, self.place.take()?))
    }

    /// Leaves it to the next program.
    pub(super) fn leave(&self, bequest: &mut Bequest) -> io::Result<Option<LeftList>> {
        let (Some(to_save), Some(place)) = (&self.to_save, &self.place) else { return Ok(None) };
        let (folder, owner, name) = place.parts();
        Ok(Some(LeftList {
            to_save: bequest.add(&**to_save)?,
            folder: bequest.add(folder)?,
            owner,
            name: name.to_owned().into(),
        }))
    }

    /// Takes over that of an earlier program.
    pub(super) fn adopt(
        LeftList { to_save, folder, owner, name }: LeftList,
        estate: &mut Estate,
    ) -> io::Result<Self> {
        let to_save = Arc::new(estate.take(to_save)?);
        let place = GuardedFile::from_parts(estate.take(folder)?, owner, &name)?;
        Ok(Self { to_load: None, to_save: Some(to_save), place: Some(place) })
    }

    /// Puts the next version in place of the list, which the keeper has written.
    pub(super) fn use_next(&mut self) -> io::Result<()> {
        self.place.take().map_or(Ok(()), |place| place.use_next())
    }
}

impl Drop for HotList {
    fn drop(&mut self) {
        self.place.iter().for_each(GuardedFile::drop_next);
    }
}
