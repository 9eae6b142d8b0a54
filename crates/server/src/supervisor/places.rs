//! Files in which each worker of all generations has a place of its own: one announces which workers use the uplink, another
//! counts the requests that they are answering. Each generation has a range of places, so that workers that drain after a
//! reload count too.

use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use flash_prompt::sharers::{SHARERS_MAX, word_at};
use flash_waiting::store_file;

use super::outbox::Shared;

/// The places of a generation: the most workers that it can have.
const PLACES: usize = 256;

/// A file that begins with a word for each place, and the ranges that generations have.
#[derive(Debug)]
pub(super) struct PlacesFile {
    pub(super) file: Shared,
    /// The ranges in use. A generation that ends drops its own.
    ranges: Vec<Rc<Range<usize>>>,
}

#[derive(Debug)]
pub(super) struct Places {
    file: Shared,
    range: Rc<Range<usize>>,
}

impl PlacesFile {
    /// Creates a file of zeros, with this name for people. All of it is in memory, so that no access of a worker can fail.
    pub(super) fn new(name: &CStr, length_bytes: u64) -> io::Result<Self> {
        let file = store_file::create(name, length_bytes)?;
        store_file::write(&file, 0, &vec![0; length_bytes as usize])?;
        Ok(Self { file: Arc::new(file), ranges: Vec::new() })
    }

    /// Places that no other generation has.
    ///
    /// Errors: if there are none, which the bound on configurations that drain prevents.
    pub(super) fn places(&mut self) -> io::Result<Places> {
        self.ranges.retain(|range| Rc::strong_count(range) > 1);
        let mut starts = (0..SHARERS_MAX).step_by(PLACES);
        let start = starts.find(|start| self.ranges.iter().all(|range| range.start != *start));
        let start =
            start.ok_or_else(|| io::Error::other("too many configurations share the workers' files"))?;
        // A worker that was killed may have left its word.
        store_file::write(&self.file, word_at(start), &[0; PLACES * size_of::<u32>()])?;
        let range = Rc::new(start..start + PLACES);
        self.ranges.push(Rc::clone(&range));
        Ok(Places { file: Arc::clone(&self.file), range })
    }
}

impl Places {
    /// The place of the worker with this number, and the file.
    pub(super) fn of(&self, worker: usize) -> (u64, Shared) {
        ((self.range.start + worker) as u64, Arc::clone(&self.file))
    }

    /// Sets the word of a worker. The file is in memory, so this cannot fail.
    pub(super) fn set(&self, worker: usize, word: u32) {
        let _ = store_file::write(&self.file, word_at(self.range.start + worker), &word.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use flash_prompt::sharers::{SHARERS_FILE_BYTES, Sharers};

    use super::*;

    #[test]
    fn generations_have_places_of_their_own_until_they_end() {
        let mut uplink = PlacesFile::new(c"uplink", SHARERS_FILE_BYTES).expect("a file");
        let [old, new] = [(); 2].map(|()| uplink.places().expect("places"));
        let of = |places: &Places| Sharers::map(&*places.file, places.range.start + 3).expect("mapped");
        let [first, second] = [of(&old), of(&new)];
        assert_eq!((first.announce(true), second.announce(true)), (0, 1));
        old.set(3, 0);
        assert_eq!(second.announce(true), 0);
        let start = old.range.start;
        drop(old);
        assert_eq!(uplink.places().expect("places").range.start, start);
        let many: Vec<_> = std::iter::from_fn(|| uplink.places().ok()).collect();
        assert_eq!(many.len(), SHARERS_MAX / PLACES - 1);
    }
}
