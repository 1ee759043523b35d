//! Coverage of a read: which of its bytes have arrived.

/// A server that scatters its chunks over more separate stretches than this is up to no good.
const STRETCHES_MAX: usize = 4096;

/// The stretches of a range that were covered, each once. Chunks in order make one stretch and no allocation beyond it.
#[derive(Clone, Debug, Default)]
pub(super) struct Cover {
    /// First byte and the byte behind the last, ascending, with gaps between them.
    stretches: Vec<(u64, u64)>,
}

impl Cover {
    /// Adds `start..end`, which is not empty; `false` when part of it was there, or when there are too many stretches.
    pub(super) fn add(&mut self, start: u64, end: u64) -> bool {
        let at = self.stretches.partition_point(|(_, other_end)| *other_end < start);
        // The first stretch that reaches `start`, and the one behind it, are all that may touch the new one.
        match self.stretches.get(at).copied() {
            Some((_, before_end)) if before_end == start => {
                let after = self.stretches.get(at + 1).copied();
                match after {
                    Some((after_start, _)) if after_start < end => return false,
                    Some((after_start, after_end)) if after_start == end => {
                        self.stretches[at].1 = after_end;
                        self.stretches.remove(at + 1);
                    }
                    _ => self.stretches[at].1 = end,
                }
            }
            Some((after_start, _)) if after_start < end => return false,
            Some((after_start, _)) if after_start == end => self.stretches[at].0 = start,
            _ if self.stretches.len() == STRETCHES_MAX => return false,
            _ => self.stretches.insert(at, (start, end)),
        }
        true
    }

    /// Whether all of `start..end` was covered.
    pub(super) fn is_whole(&self, start: u64, end: u64) -> bool {
        self.stretches == [(start, end)]
    }

    /// Bytes of memory held besides itself.
    pub(super) fn memory_bytes(&self) -> usize {
        self.stretches.capacity() * size_of::<(u64, u64)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_scattered_cover_is_bounded() {
        let mut cover = Cover::default();
        for at in 0..STRETCHES_MAX as u64 {
            assert!(cover.add(2 * at, 2 * at + 1));
        }
        assert!(!cover.add(1 << 20, (1 << 20) + 1));
        assert!(cover.add(1, 2), "what joins its neighbours is no new stretch");
    }

    proptest! {
        /// Against one mark per byte.
        #[test]
        fn it_knows_every_byte(ranges in prop::collection::vec((0u64..40, 1u64..8), 0..40)) {
            let (mut cover, mut marks) = (Cover::default(), [false; 48]);
            for (start, len) in ranges {
                let bytes = start as usize..(start + len) as usize;
                let free = marks[bytes.clone()].iter().all(|mark| !mark);
                prop_assert_eq!(cover.add(start, start + len), free);
                if free {
                    marks[bytes].fill(true);
                }
                for (start, end) in [(0, 40), (3, 9), (start, start + len)] {
                    let exactly = (0..48).all(|at| marks[at as usize] == (start..end).contains(&at));
                    prop_assert_eq!(cover.is_whole(start, end), exactly);
                }
            }
        }
    }
}
