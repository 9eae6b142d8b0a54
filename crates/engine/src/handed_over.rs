//! File bytes that helpers have handed over, shared by all exchanges that waited for them, and their total
//! size. [`body`](crate::body) slows down reads while the total is high.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The total of the bytes held.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandedOverTotal(Arc<AtomicU64>);

/// Bytes from a helper, counted in the total until the last owner drops them.
#[derive(Clone, Debug)]
pub(crate) struct HandedOver(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    bytes: Vec<u8>,
    total: HandedOverTotal,
}

impl HandedOverTotal {
    /// Bytes held now.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds bytes to the total for as long as they are held.
    pub(crate) fn hold(&self, bytes: Vec<u8>) -> HandedOver {
        self.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        HandedOver(Arc::new(Counted { bytes, total: self.clone() }))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.total.0.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
    }
}

impl Deref for HandedOver {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_counts_once_however_many_share_it() {
        let total = HandedOverTotal::default();
        let first = total.hold(vec![0; 100]);
        let shared = first.clone();
        let second = total.hold(vec![0; 10]);
        drop(first);
        assert_eq!((total.bytes(), shared.len()), (110, 100));
        drop((shared, second));
        assert_eq!(total.bytes(), 0);
    }
}
