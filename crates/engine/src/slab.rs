//! A slab of items with generation-checked keys: the key of a freed item never finds the item that took its
//! place. All modules of the engine use it. The key types for sites, exchanges, clients and versions are here
//! too, so that modules can share them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The place of an item and its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// The key as one number, below 2^56. Only the low 24 bits of the generation are kept.
    pub fn to_u64(self) -> u64 {
        u64::from(self.generation & 0xff_ffff) << 32 | u64::from(self.index)
    }

    /// The key from a number that [`Key::to_u64`] returned.
    pub fn from_u64(number: u64) -> Self {
        Self { index: number as u32, generation: (number >> 32) as u32 & 0xff_ffff }
    }
}

/// A site, as an index into [`Rules::sites`](crate::Rules::sites).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SiteId(pub u16);

/// The key of an exchange, used by jobs and wires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ExchangeKey(pub(crate) Key);

/// The key of a body that the spool holds, used by jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SpooledKey {
    /// The body of a request.
    Request(ExchangeKey),
    /// The body of an answer.
    Answer(ExchangeKey),
}

impl SpooledKey {
    pub(crate) fn exchange(self) -> ExchangeKey {
        match self {
            SpooledKey::Request(exchange) | SpooledKey::Answer(exchange) => exchange,
        }
    }
}

/// A client address as a number, used by jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClientNumber(pub(crate) u64);

impl ClientNumber {
    /// The number of an address. An IPv6 /64 is one client.
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            // IPv6 addresses with this prefix are multicast, so no client has one.
            IpAddr::V4(ip) => 0xffff_0000_0000_0000 | u64::from(ip.to_bits()),
            IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64,
        })
    }
}

/// The number of a pair of a stored and a given password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PasswordPair(pub(crate) u128);

/// The number of one state of a file; never used twice in a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct VersionId(pub(crate) u64);

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
        let key = self.reserve();
        self.put_back(key, item);
        key
    }

    /// Makes the key of a new item, as if it were lent.
    pub(crate) fn reserve(&mut self) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            (self.places.len() - 1) as u32
        });
        Key { index, generation: self.places[index as usize].0 }
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

    /// Takes an item out for a while. Its key stays reserved until the item is put back or freed.
    pub(crate) fn lend(&mut self, key: Key) -> Option<T> {
        let (generation, item) = self.places.get_mut(key.index as usize)?;
        if *generation == key.generation { item.take() } else { None }
    }

    /// Puts a lent item back.
    pub(crate) fn put_back(&mut self, key: Key, item: T) {
        self.places[key.index as usize].1 = Some(item);
    }

    /// Frees the place of a lent item.
    pub(crate) fn free_lent(&mut self, key: Key) {
        if let Some((generation, None)) = self.places.get_mut(key.index as usize)
            && *generation == key.generation
        {
            *generation = (*generation + 1) & 0xff_ffff;
            self.free.push(key.index);
        }
    }

    /// The key of the item at a place, counted from 0 to [`Slab::places`].
    pub(crate) fn key_at(&self, index: usize) -> Option<Key> {
        let (generation, item) = self.places.get(index)?;
        item.as_ref().map(|_| Key { index: index as u32, generation: *generation })
    }

    /// The number of places, used or free.
    pub(crate) fn places(&self) -> usize {
        self.places.len()
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
    fn a_lent_item_keeps_its_key() {
        let mut slab = Slab::new();
        let key = slab.insert('a');
        assert_eq!(slab.lend(key), Some('a'));
        assert_eq!((slab.get(key), slab.len()), (None, 1));
        let other = slab.insert('b');
        assert_ne!(other, key);
        slab.put_back(key, 'c');
        assert_eq!(slab.get(key), Some(&'c'));
        slab.lend(key);
        slab.free_lent(key);
        slab.free_lent(key);
        assert_eq!(slab.len(), 1);
        assert_eq!(slab.get(key), None);
    }

    #[test]
    fn a_key_can_be_restored_from_its_number() {
        let mut slab = Slab::new();
        for _ in 0..3 {
            let key = slab.insert(());
            assert_eq!(Key::from_u64(key.to_u64()), key);
            slab.remove(key);
        }
    }
    #[test]
    fn a_client_is_an_address_or_an_ipv6_network() {
        let number = |text: &str| ClientNumber::of(text.parse().expect("an address"));
        assert_eq!(number("192.0.2.1"), number("::ffff:192.0.2.1"));
        assert_ne!(number("192.0.2.1"), number("192.0.2.2"));
        assert_eq!(number("2001:db8::1"), number("2001:db8::2"));
        assert_ne!(number("2001:db8::1"), number("2001:db8:0:1::1"));
    }
}
