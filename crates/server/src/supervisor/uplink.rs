//! The file in which the workers of all generations announce that they use the uplink: each generation has a range of
//! places in it, so that workers that drain after a reload have their part of the rate too.

use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use flash_prompt::sharers::{SHARERS_FILE_BYTES, SHARERS_MAX, word_at};
use flash_waiting::store_file;
use flash_worker::control::Order;

use super::outbox::{Outbox, Shared};

/// The places of a generation: the most workers that it can have.
const PLACES: usize = 256;

/// The file, and the ranges that generations have.
#[derive(Debug)]
pub(super) struct Uplink {
    file: Shared,
    /// The ranges in use. A generation that ends drops its own.
    ranges: Vec<Rc<Range<usize>>>,
}

/// The places of a generation.
#[derive(Debug)]
pub(super) struct UplinkPlaces {
    file: Shared,
    range: Rc<Range<usize>>,
}

impl Uplink {
    /// Creates the file. All of it is in memory, so that no access of a worker can fail.
    pub(super) fn new() -> io::Result<Self> {
        let file = store_file::create(c"flash-uplink", SHARERS_FILE_BYTES)?;
        store_file::write(&file, 0, &[0; SHARERS_FILE_BYTES as usize])?;
        Ok(Self { file: Arc::new(file), ranges: Vec::new() })
    }

    /// Places that no other generation has.
    ///
    /// Errors: if there are none, which the bound on configurations that drain prevents.
    pub(super) fn places(&mut self) -> io::Result<UplinkPlaces> {
        self.ranges.retain(|range| Rc::strong_count(range) > 1);
        let mut starts = (0..SHARERS_MAX).step_by(PLACES);
        let start = starts.find(|start| self.ranges.iter().all(|range| range.start != *start));
        let start = start.ok_or_else(|| io::Error::other("too many configurations use the uplink"))?;
        // A worker that was killed may have left its announcement.
        store_file::write(&self.file, word_at(start), &[0; PLACES * size_of::<u32>()])?;
        let range = Rc::new(start..start + PLACES);
        self.ranges.push(Rc::clone(&range));
        Ok(UplinkPlaces { file: Arc::clone(&self.file), range })
    }
}

impl UplinkPlaces {
    /// Gives the file to the worker with this number.
    pub(super) fn give(&self, worker: usize, orders: &mut Outbox) -> io::Result<()> {
        let place = self.range.start + worker;
        orders.give_at_start(Order::Uplink(place as u64, Arc::clone(&self.file)))
    }

    /// Takes back the announcement of a worker that has ended.
    pub(super) fn clear(&self, worker: usize) {
        // The file is in memory, so this cannot fail.
        let _ = store_file::write(&self.file, word_at(self.range.start + worker), &[0; 4]);
    }
}

#[cfg(test)]
mod tests {
    use flash_prompt::sharers::Sharers;

    use super::*;

    #[test]
    fn generations_have_places_of_their_own_until_they_end() {
        let mut uplink = Uplink::new().expect("a file");
        let [old, new] = [(); 2].map(|()| uplink.places().expect("places"));
        let of = |places: &UplinkPlaces| Sharers::map(&*places.file, places.range.start + 3).expect("mapped");
        let [first, second] = [of(&old), of(&new)];
        assert_eq!((first.announce(true), second.announce(true)), (0, 1));
        old.clear(3);
        assert_eq!(second.announce(true), 0);
        let start = old.range.start;
        drop(old);
        assert_eq!(uplink.places().expect("places").range.start, start);
        let many: Vec<_> = std::iter::from_fn(|| uplink.places().ok()).collect();
        assert_eq!(many.len(), SHARERS_MAX / PLACES - 1);
    }
}
