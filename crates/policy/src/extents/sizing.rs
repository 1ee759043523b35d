//! Sizes of the blocks that a miss allocates.

use std::ops::Range;

use tiermem_base::latency_curve::{NETWORK_STORE, Point};

use super::geometry::Geometry;

/// The bytes that a miss brings in around its own: for reads and for writes the class of block around it, as far as nothing there
/// is cached. A read fetches all of that; a write allocates it, and fetches it if it must fetch at all.
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
    /// The same rule for what the request misses, widened by [`Around`].
    Around(Around),
    /// Whichever of these serves the volume best at the moment: [`super::observed`].
    Observed(Observation),
}

/// What observed sizing goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The store's speed until it is measured.
    pub believed: RequestCost,
    /// How much of clients' time it is worth that a MiB less is moved from the store or to it, in nanoseconds.
    pub mib_price_ns: u64,
}

/// About as long as a store behind ten gigabits a second is busy with a MiB, which others may want of it.
pub const MIB_PRICE_NS: u64 = 1_000_000;

impl Default for Observation {
    fn default() -> Self {
        Observation { believed: RequestCost::default(), mib_price_ns: MIB_PRICE_NS }
    }
}

/// The time that a request to the backing store costs, as far as that decides how much to request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestCost {
    /// Nanoseconds a request.
    pub request_ns: u64,
    /// Nanoseconds 1024 bytes.
    pub kib_ns: u64,
}

impl RequestCost {
    /// The cost of a store with this curve, one way.
    pub fn of(store: &Point) -> Self {
        // In whole nanoseconds, so that sums are the same in any order; a store too slow for that costs as much as can be summed
        // up.
        let most = (u64::MAX >> 20) as f64;
        let kib_ns = (1024.0 / store.bandwidth_gb_per_s).round().min(most) as u64;
        RequestCost { request_ns: store.latency().0, kib_ns }
    }
}

impl Default for RequestCost {
    /// The costs of a store behind a network, the default.
    fn default() -> Self {
        RequestCost::of(&NETWORK_STORE.read)
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
    fn a_request_costs_what_the_curve_says() {
        assert_eq!(RequestCost::default(), RequestCost { request_ns: 1_000_000, kib_ns: 819 });
        let none = Point { latency_ns: 0.0, bandwidth_gb_per_s: 0.0 };
        assert_eq!(RequestCost::of(&none).kib_ns, u64::MAX >> 20);
    }

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
