//! Per-item state in chunks: growing copies nothing, and each chunk can be charged when it appears.

use crate::Id;
use crate::deferred_free::DeferredFree;

/// Items per chunk. A chunk of 8-byte cells is 32 KiB.
pub const CHUNK_ITEMS: usize = 4096;

/// A growing array with one cell per item number.
#[derive(Clone, Debug, Default)]
pub struct Column<T> {
    chunks: Vec<Box<[T]>>,
}

impl<T: Copy + Default> Column<T> {
    /// Makes sure that `id` has a cell.
    pub fn grow_to(&mut self, id: Id) {
        while self.chunks.len() * CHUNK_ITEMS <= id.index() {
            self.chunks.push(vec![T::default(); CHUNK_ITEMS].into_boxed_slice());
        }
    }

    /// The cell of `id`, which [`Self::grow_to`] has made.
    #[inline]
    pub fn get(&self, id: Id) -> T {
        self.chunks[id.index() / CHUNK_ITEMS][id.index() % CHUNK_ITEMS]
    }

    /// The cell of `id` in its place.
    #[inline]
    pub fn cell(&self, id: Id) -> &T {
        &self.chunks[id.index() / CHUNK_ITEMS][id.index() % CHUNK_ITEMS]
    }

    /// The cell of `id` to change.
    #[inline]
    pub fn at(&mut self, id: Id) -> &mut T {
        &mut self.chunks[id.index() / CHUNK_ITEMS][id.index() % CHUNK_ITEMS]
    }

    /// Changes every cell.
    pub fn each(&mut self, change: impl FnMut(&mut T)) {
        self.chunks.iter_mut().flatten().for_each(change);
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.chunks.len() * CHUNK_ITEMS * size_of::<T>() + self.chunks.capacity() * size_of::<Box<[T]>>())
            as u64
    }
}

/// Items per chunk of a [`SparseColumn`]: few, for its chunks come one by one, wherever one item is written to, and each is
/// charged to a tier at once.
pub const SPARSE_ITEMS: usize = 64;

impl<T: Send + std::fmt::Debug + Copy + Default + 'static> Column<T> {
    /// Empties it.
    pub fn clear_into(&mut self, deferred_free: &mut DeferredFree) {
        let bytes = self.bytes();
        deferred_free.add(std::mem::take(&mut self.chunks), bytes);
    }
}

/// A column in which most chunks may stay empty: state that few items have.
#[derive(Clone, Debug, Default)]
pub struct SparseColumn<T> {
    chunks: Vec<Option<Box<[T]>>>,
    held: usize,
}

impl<T: Copy + Default> SparseColumn<T> {
    /// The cell of `id`, or the default where nothing was ever written near it.
    #[inline]
    pub fn get(&self, id: Id) -> T {
        match self.chunks.get(id.index() / SPARSE_ITEMS) {
            Some(Some(chunk)) => chunk[id.index() % SPARSE_ITEMS],
            _ => T::default(),
        }
    }

    /// Makes sure that `id` has a place in the list of chunks.
    pub fn grow_to(&mut self, id: Id) {
        let chunks = id.index() / SPARSE_ITEMS + 1;
        if self.chunks.len() < chunks {
            self.chunks.reserve_exact(chunks - self.chunks.len());
            self.chunks.resize_with(chunks, || None);
        }
    }

    /// The cell of `id` to change; makes its chunk.
    pub fn at(&mut self, id: Id) -> &mut T {
        self.grow_to(id);
        let chunk = id.index() / SPARSE_ITEMS;
        let held = &mut self.held;
        let cells = self.chunks[chunk].get_or_insert_with(|| {
            *held += 1;
            vec![T::default(); SPARSE_ITEMS].into_boxed_slice()
        });
        &mut cells[id.index() % SPARSE_ITEMS]
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.held * SPARSE_ITEMS * size_of::<T>() + self.chunks.capacity() * size_of::<Option<Box<[T]>>>())
            as u64
    }
}

impl<T: Send + std::fmt::Debug + Copy + Default + 'static> SparseColumn<T> {
    /// Empties it.
    pub fn clear_into(&mut self, deferred_free: &mut DeferredFree) {
        let bytes = self.bytes();
        deferred_free.add(std::mem::take(&mut self.chunks), bytes);
        self.held = 0;
    }
}

/// Bits, one per item number.
#[derive(Clone, Debug, Default)]
pub struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// Makes sure that `id` has a bit.
    pub fn grow_to(&mut self, id: Id) {
        let words = id.index() / 64 + 1;
        if self.words.len() < words {
            // In whole chunks, so that the vector is not grown at every 64th item.
            let words = words.next_multiple_of(CHUNK_ITEMS / 64);
            self.words.reserve_exact(words - self.words.len());
            self.words.resize(words, 0);
        }
    }

    /// The bit of `id`.
    #[inline]
    pub fn get(&self, id: Id) -> bool {
        self.words[id.index() / 64] >> (id.index() % 64) & 1 == 1
    }

    /// The word that holds the bit of `id`, if it has one.
    #[inline]
    pub fn word(&self, id: Id) -> Option<&u64> {
        self.words.get(id.index() / 64)
    }

    /// Writes the bit of `id`.
    #[inline]
    pub fn set(&mut self, id: Id, value: bool) {
        let bit = 1u64 << (id.index() % 64);
        let word = &mut self.words[id.index() / 64];
        *word = if value { *word | bit } else { *word & !bit };
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.words.capacity() * 8) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparse_column_costs_only_the_chunks_that_were_written() {
        let mut column = SparseColumn::<u64>::default();
        assert_eq!(column.get(Id(1 << 20)), 0);
        *column.at(Id(1 << 20)) = 9;
        assert_eq!(column.get(Id(1 << 20)), 9);
        assert_eq!(column.get(Id(3)), 0);
        let lists = (1 << 20) / SPARSE_ITEMS * size_of::<Option<Box<[u64]>>>();
        assert!(column.bytes() <= (SPARSE_ITEMS * 8 + 2 * lists) as u64);
    }

    #[test]
    fn bits_are_independent() {
        let mut bits = Bits::default();
        bits.grow_to(Id(200));
        bits.set(Id(64), true);
        bits.set(Id(65), true);
        bits.set(Id(64), false);
        assert!(!bits.get(Id(64)) && bits.get(Id(65)) && !bits.get(Id(66)));
    }
}
