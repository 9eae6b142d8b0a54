//! Numbered places whose keys go stale: a key of something freed never finds its successor.

/// The place of an item and its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// The key as one number, below 2^56 for the first 2^24 generations of a place.
    pub fn to_u64(self) -> u64 {
        u64::from(self.generation & 0xff_ffff) << 32 | u64::from(self.index)
    }

    /// The key of a number that [`Key::to_u64`] gave.
    pub fn from_u64(number: u64) -> Self {
        Self { index: number as u32, generation: (number >> 32) as u32 & 0xff_ffff }
    }
}

/// Items by key.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, item: T) -> Key {
        if let Some(index) = self.free.pop() {
            let place = &mut self.places[index as usize];
            place.1 = Some(item);
            return Key { index, generation: place.0 };
        }
        self.places.push((0, Some(item)));
        Key { index: (self.places.len() - 1) as u32, generation: 0 }
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let (generation, item) = self.places.get(key.index as usize)?;
        if *generation == key.generation { item.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let (generation, item) = self.places.get_mut(key.index as usize)?;
        if *generation == key.generation { item.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let (generation, item) = self.places.get_mut(key.index as usize)?;
        if *generation != key.generation {
            return None;
        }
        let item = item.take()?;
        *generation = (*generation + 1) & 0xff_ffff;
        self.free.push(key.index);
        Some(item)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.places
            .iter()
            .enumerate()
            .filter(|(_, (_, item))| item.is_some())
            .map(|(index, (generation, _))| Key { index: index as u32, generation: *generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&'b'));
        assert_eq!(slab.len(), 1);
        assert_eq!(slab.keys().collect::<Vec<_>>(), [second]);
    }

    #[test]
    fn a_key_survives_as_a_number() {
        let mut slab = Slab::new();
        for _ in 0..3 {
            let key = slab.insert(());
            assert_eq!(Key::from_u64(key.to_u64()), key);
            slab.remove(key);
        }
    }
}
