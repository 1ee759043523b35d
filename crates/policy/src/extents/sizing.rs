//! How large the blocks are that a miss allocates.

use std::ops::Range;

use super::geometry::Geometry;

/// What a miss brings in beside what it needs: for reads and for writes the class of block around it, as far as nothing there is
/// cached. A read fetches all of that; a write allocates it, and fetches it if it must fetch at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Around {
    /// For reads.
    pub read: Option<u8>,
    /// For writes.
    pub write: Option<u8>,
}

/// The rule by which a missing range of pieces becomes blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizing {
    /// What the request misses and no more, in the largest blocks that fit it (Yang 2024, Algorithm 2).
    Request,
    /// The same for what was widened.
    Around(Around),
    /// Whichever of these serves the volume best at the moment: [`super::observed`].
    Observed(Prices),
}

/// What it costs to ask the backing store, as far as that decides how much to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices {
    /// Nanoseconds a request.
    pub request_ns: u64,
    /// Nanoseconds 1024 bytes.
    pub kib_ns: u64,
}

impl Default for Prices {
    /// A store a millisecond away behind ten gigabits.
    fn default() -> Self {
        Prices { request_ns: 1_000_000, kib_ns: 820 }
    }
}

impl Around {
    /// The class for an operation.
    #[inline]
    pub fn class(self, write: bool) -> Option<u8> {
        if write { self.write } else { self.read }
    }

    /// The range of pieces to look at for a request of these pieces.
    #[inline]
    pub fn widen(self, geometry: &Geometry, write: bool, pieces: Range<u64>) -> Range<u64> {
        let Some(class) = self.class(write) else { return pieces };
        let around = geometry.class_pieces(usize::from(class));
        pieces.start / around * around..pieces.end.next_multiple_of(around)
    }
}

/// Divides a missing range of pieces into aligned blocks, always the largest that begins here and fits: so few blocks as can
/// be, and none that covers anything outside.
///
/// Yang 2024, Algorithm 2, with the search begun again at the largest size after each block.
pub fn divide(geometry: &Geometry, missing: Range<u64>, mut each: impl FnMut(u64, usize)) {
    let mut at = missing.start;
    while at < missing.end {
        let fits = |&class: &usize| {
            let pieces = geometry.class_pieces(class);
            at.is_multiple_of(pieces) && at + pieces <= missing.end
        };
        // The smallest block is one piece, which always fits.
        let class = (0..geometry.classes()).rev().find(fits).unwrap_or(0);
        each(at, class);
        at += geometry.class_pieces(class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_example() {
        let sizes = [32, 64, 128, 256].map(|kib: u64| kib << 10);
        let geometry = Geometry::new(&sizes, None, 1 << 30).unwrap();
        let mut blocks = Vec::new();
        // 32 KiB to 128 KiB are missing: one block of 32 KiB, one of 64 KiB.
        divide(&geometry, 1..4, |piece, class| blocks.push((piece, class)));
        assert_eq!(blocks, [(1, 0), (2, 1)]);
        blocks.clear();
        divide(&geometry, 3..29, |piece, class| blocks.push((piece, class)));
        assert_eq!(blocks, [(3, 0), (4, 2), (8, 3), (16, 3), (24, 2), (28, 0)]);
    }
}
