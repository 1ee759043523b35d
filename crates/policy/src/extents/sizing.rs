//! How large the blocks are that a miss allocates.

use std::ops::Range;

use super::geometry::Geometry;

/// The rule by which a missing range of pieces becomes blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizing {
    /// What the request misses and no more, in the largest blocks that fit it (Yang 2023, Algorithm 2).
    Request,
    /// As `Request`, after what is missing was widened to the borders of the block of this class around it, as far as
    /// nothing there is cached. A read fetches all of it.
    Around(u8),
}

impl Sizing {
    /// The range of pieces to look at for a request of these pieces.
    pub fn widen(self, geometry: &Geometry, pieces: Range<u64>) -> Range<u64> {
        match self {
            Sizing::Request => pieces,
            Sizing::Around(class) => {
                let around = geometry.class_pieces(usize::from(class));
                pieces.start / around * around..pieces.end.next_multiple_of(around)
            }
        }
    }
}

/// Divides a missing range of pieces into aligned blocks, always the largest that begins here and fits: so few blocks as can
/// be, and none that covers anything outside.
///
/// Yang 2023, Algorithm 2, with the search begun again at the largest size after each block.
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
