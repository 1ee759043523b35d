//! Deferred freeing of large tables: their entries are dropped a few at a time.
//!
//! Dropping a table of millions of small boxes at once takes milliseconds, during which no request would be served.

/// Boxes dropped in one piece of work.
const PIECE: usize = 32;
/// Tables with fewer boxes are dropped at once. Otherwise a small store that is cleared again and again would defer tables faster
/// than they are freed.
const SMALL: usize = 256;

/// A table whose entries can be dropped a few at a time.
trait Pile: Send + std::fmt::Debug {
    /// Drops some entries. Returns how many it dropped.
    fn shrink(&mut self) -> usize;
}

impl<T: Send + std::fmt::Debug> Pile for Vec<T> {
    fn shrink(&mut self) -> usize {
        let before = self.len();
        self.truncate(before.saturating_sub(PIECE));
        before - self.len()
    }
}

/// Tables that are no longer needed and whose memory is not freed yet.
#[derive(Debug, Default)]
pub struct DeferredFree {
    /// Each with its bytes for every entry.
    piles: Vec<(Box<dyn Pile>, u64)>,
    bytes: u64,
}

impl Clone for DeferredFree {
    /// A copy has no waste of its own.
    fn clone(&self) -> Self {
        DeferredFree::default()
    }
}

impl DeferredFree {
    /// Takes over a table that holds `bytes` together with its entries.
    pub(crate) fn add<T: Send + std::fmt::Debug + 'static>(&mut self, table: Vec<T>, bytes: u64) {
        if table.len() > SMALL {
            let bytes_each = bytes / table.len() as u64;
            self.bytes += bytes_each * table.len() as u64;
            self.piles.push((Box::new(table), bytes_each));
        }
    }

    /// Drops some of it.
    #[inline]
    pub fn shrink(&mut self) {
        if !self.piles.is_empty() {
            self.shrink_last();
        }
    }

    #[cold]
    fn shrink_last(&mut self) {
        let Some((pile, bytes_each)) = self.piles.last_mut() else { return };
        let dropped = pile.shrink();
        self.bytes -= *bytes_each * dropped as u64;
        if dropped < PIECE {
            self.piles.pop();
        }
    }

    /// Bytes that it still holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_shrinks_to_nothing_in_pieces() {
        let mut deferred_free = DeferredFree::default();
        let alive = std::sync::Arc::new(());
        deferred_free.add(vec![alive.clone(); 1000], 10_000);
        deferred_free.add(vec![Box::new(1u64); 10 * PIECE], 80 * PIECE as u64);
        deferred_free.add(Vec::<u8>::new(), 0);
        deferred_free.add(vec![alive.clone(); SMALL], 1000);
        assert_eq!(deferred_free.bytes(), 10_000 + 80 * PIECE as u64);
        assert_eq!(std::sync::Arc::strong_count(&alive), 1001, "what is small goes at once");
        let mut last = usize::MAX;
        for _ in 0..100 {
            let count = std::sync::Arc::strong_count(&alive);
            assert!(count <= last && (last == usize::MAX || last - count <= PIECE));
            last = count;
            deferred_free.shrink();
        }
        assert_eq!((deferred_free.bytes(), last, deferred_free.piles.len()), (0, 1, 0));
    }
}
