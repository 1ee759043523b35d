//! The items of one tenant in one tier, in no order.

use crate::Id;
use crate::deferred_free::DeferredFree;

/// Items per chunk, so that growing never copies more than one.
const CHUNK: usize = 1024;

/// Entered, left and drawn from in constant time. Memory: 4 bytes an item, and of the last chunk up to as much again.
#[derive(Clone, Debug, Default)]
pub struct Members {
    /// All full but the last.
    chunks: Vec<Vec<Id>>,
}

impl Members {
    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        match self.chunks.last() {
            Some(last) => (self.chunks.len() - 1) * CHUNK + last.len(),
            None => 0,
        }
    }

    /// The one at a position below [`Self::len`].
    #[inline]
    pub fn get(&self, at: usize) -> Id {
        self.chunks[at / CHUNK][at % CHUNK]
    }

    /// Adds an item; its position.
    pub fn push(&mut self, id: Id) -> u32 {
        let at = self.len();
        if at.is_multiple_of(CHUNK) {
            self.chunks.push(Vec::new());
        }
        self.chunks[at / CHUNK].push(id);
        at as u32
    }

    /// Takes the item at a position out; the one that stands there now, if any.
    pub fn swap_remove(&mut self, at: u32) -> Option<Id> {
        let at = at as usize;
        let last = self.chunks.last_mut()?.pop()?;
        if self.chunks.last().is_some_and(Vec::is_empty) {
            self.chunks.pop();
        }
        if at == self.len() {
            return None;
        }
        self.chunks[at / CHUNK][at % CHUNK] = last;
        Some(last)
    }

    /// Removes all members; their memory is freed a little at a time.
    pub fn clear_into(&mut self, deferred_free: &mut DeferredFree) {
        let bytes = self.bytes();
        deferred_free.add(std::mem::take(&mut self.chunks), bytes);
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        let last = self.chunks.last().map_or(0, Vec::capacity);
        let full = self.chunks.len().saturating_sub(1) * CHUNK;
        ((full + last) * size_of::<Id>() + self.chunks.capacity() * size_of::<Vec<Id>>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_a_vector(ops in prop::collection::vec((0u8..5, any::<u32>()), 0..4000)) {
            let mut members = Members::default();
            let mut model: Vec<Id> = Vec::new();
            for (number, (op, at)) in ops.into_iter().enumerate() {
                if op > 0 || model.is_empty() {
                    prop_assert_eq!(members.push(Id(number as u32)) as usize, model.len());
                    model.push(Id(number as u32));
                } else {
                    let at = at % model.len() as u32;
                    model.swap_remove(at as usize);
                    prop_assert_eq!(members.swap_remove(at), model.get(at as usize).copied());
                }
                prop_assert_eq!(members.len(), model.len());
            }
            for (at, &id) in model.iter().enumerate() {
                prop_assert_eq!(members.get(at), id);
            }
        }
    }
}
