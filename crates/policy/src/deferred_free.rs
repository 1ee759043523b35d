//! Memory that is given back by and by: dropping tables of millions of small boxes at once takes milliseconds, in which
//! nobody would be served.

/// Boxes dropped in one piece of work.
const PIECE: usize = 32;
/// Tables of so few boxes are dropped at once. Else who clears a small store again and again makes waste faster than it goes.
const SMALL: usize = 256;

/// A table whose entries can be dropped some at a time.
trait Pile: Send + std::fmt::Debug {
    /// Drops some entries; how many it dropped.
    fn shrink(&mut self) -> usize;
}

impl<T: Send + std::fmt::Debug> Pile for Vec<T> {
    fn shrink(&mut self) -> usize {
        let before = self.len();
        self.truncate(before.saturating_sub(PIECE));
        before - self.len()
    }
}

/// Tables that nobody needs any more.
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
    /// Takes a table over that holds so many bytes with its entries.
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
