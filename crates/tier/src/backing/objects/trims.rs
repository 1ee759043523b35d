//! Trims smaller than chunks: only a whole chunk can be freed, so its trimmed
//! parts are recorded until all of it is trimmed, or something is written there.

use std::collections::{HashMap, VecDeque};

use super::layout::ChunkRange;

/// Most chunks remembered, and most pieces of each. Trims in random order free nothing.
const CHUNKS_MAX: usize = 4096;
const PIECES_MAX: usize = 64;

/// What was trimmed of chunks of which not all was.
#[derive(Default)]
pub(super) struct Trims {
    /// Ranges of bytes, ascending; none touches the next.
    pieces: HashMap<u64, Vec<(usize, usize)>>,
    order: VecDeque<u64>,
}

impl Trims {
    /// A part of a chunk of `chunk_bytes` bytes is trimmed; true if now all of it is, which is then forgotten.
    pub fn add(&mut self, part: ChunkRange, chunk_bytes: usize) -> bool {
        let ChunkRange { chunk, from, to, .. } = part;
        if to - from == chunk_bytes {
            self.forget(chunk);
            return true;
        }
        if !self.pieces.contains_key(&chunk) {
            if self.order.len() >= CHUNKS_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.pieces.remove(&oldest);
            }
            self.order.push_back(chunk);
        }
        let pieces = self.pieces.entry(chunk).or_default();
        // Pieces that it touches are merged with it.
        let first = pieces.partition_point(|piece| piece.1 < from);
        let last = pieces.partition_point(|piece| piece.0 <= to);
        let touched = pieces[first..last].iter();
        let (from, to) = touched.fold((from, to), |all, piece| (all.0.min(piece.0), all.1.max(piece.1)));
        pieces.splice(first..last, [(from, to)]);
        let (is_whole, is_too_much) = (to - from == chunk_bytes, pieces.len() > PIECES_MAX);
        if is_whole || is_too_much {
            self.forget(chunk);
        }
        is_whole
    }

    /// A part of a chunk is written.
    pub fn written(&mut self, part: ChunkRange) {
        let pieces = self.pieces.get(&part.chunk);
        if pieces.is_some_and(|pieces| pieces.iter().any(|(from, to)| *from < part.to && part.from < *to)) {
            self.forget(part.chunk);
        }
    }

    fn forget(&mut self, chunk: u64) {
        if self.pieces.remove(&chunk).is_some() {
            self.order.retain(|it| *it != chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHUNK_BYTES: usize = 12;

    fn part(chunk: u64, from: usize, to: usize) -> ChunkRange {
        ChunkRange { chunk, from, to, at: 0 }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut trims = Trims::default();
        for chunk in 0..=CHUNKS_MAX as u64 {
            assert!(!trims.add(part(chunk, 0, 6), CHUNK_BYTES));
        }
        assert!(!trims.add(part(0, 6, 12), CHUNK_BYTES));
        assert!(trims.add(part(CHUNKS_MAX as u64, 6, 12), CHUNK_BYTES));
        let scattered = (0..=PIECES_MAX).map(|at| part(1 << 40, 2 * at, 2 * at + 1));
        assert!(!scattered.into_iter().any(|part| trims.add(part, 1000)));
        assert!(!trims.pieces.contains_key(&(1 << 40)));
        assert_eq!(trims.pieces.len(), trims.order.len());
    }

    proptest! {
        /// A chunk is given back when all its bytes were trimmed since one of them was written, and no sooner.
        #[test]
        fn only_what_was_trimmed_is_given_back(
            steps in prop::collection::vec((0u64..2, 0..CHUNK_BYTES, 1..CHUNK_BYTES, any::<bool>()), 1..60),
        ) {
            let mut trims = Trims::default();
            let mut trimmed = [[false; CHUNK_BYTES]; 2];
            for (chunk, from, bytes, is_trim) in steps {
                let to = (from + bytes).min(CHUNK_BYTES);
                let naive = &mut trimmed[chunk as usize];
                if !is_trim {
                    trims.written(part(chunk, from, to));
                    if naive[from..to].contains(&true) {
                        naive.fill(false);
                    }
                    continue;
                }
                naive[from..to].fill(true);
                let is_whole = !naive.contains(&false);
                prop_assert_eq!(trims.add(part(chunk, from, to), CHUNK_BYTES), is_whole);
                if is_whole {
                    naive.fill(false);
                }
            }
        }
    }
}
