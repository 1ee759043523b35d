//! Geometry of the block cache: units, pieces, blocks, groups, frames, and how addresses and space are divided into them.

/// Bytes of a unit, for which validity and dirtiness are kept.
pub const UNIT_BYTES: u64 = 4096;
/// The smallest block size that can be asked for.
pub const BLOCK_BYTES_MIN: u64 = UNIT_BYTES;
/// The largest.
pub const BLOCK_BYTES_MAX: u64 = 4 << 20;
/// Pieces of a frame at most: a look-up visits the blocks of one frame that begin before the address.
const FRAME_PIECES_MAX: u64 = 16;
/// Slots at most: their numbers, and those of the eviction orders, fit into an [`crate::Id`].
const SLOTS_MAX: u64 = (crate::Id::COUNT_MAX / 2) as u64;

/// A set of sizes that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// No block size was given.
    #[error("give at least one block size, such as 64KiB")]
    NoSizes,
    /// A block size is not allowed.
    #[error("a block of {0} bytes is not possible: block sizes are powers of two from 4 KiB to 4 MiB")]
    Size(u64),
    /// The sizes are not ascending.
    #[error("block sizes must ascend, each given once, and {1} stands behind {0}")]
    Order(u64, u64),
    /// A group cannot hold the largest block, or is no power of two.
    #[error(
        "a group of {group} bytes is not possible: it is a power of two, at least the largest block ({largest} bytes)"
    )]
    Group {
        /// As asked.
        group: u64,
        /// The largest block size.
        largest: u64,
    },
    /// The cache is too small.
    #[error("a cache of {capacity} bytes is too small: it needs at least {wanted} ({least} groups)")]
    TooSmall {
        /// As asked.
        capacity: u64,
        /// The least.
        wanted: u64,
        /// In groups.
        least: u64,
    },
    /// The cache is too large for blocks this small.
    #[error(
        "a cache of {capacity} bytes is too large for blocks of {piece}: the limit is {limit}, larger blocks have a higher one"
    )]
    TooLarge {
        /// As asked.
        capacity: u64,
        /// The smallest block size.
        piece: u64,
        /// The most.
        limit: u64,
    },
}

/// How addresses and the cache's space are divided.
///
/// A *unit* is 4 KiB. A *piece* is the smallest block. A *block* is an aligned extent of one of the sizes, its *class*. The cache's
/// space is *groups*, each given to blocks of one class, and a group is *slots* of a piece each. A *frame* is an aligned region of
/// addresses whose blocks the index keeps together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// log2 of a piece's bytes.
    piece_shift: u32,
    /// log2 of each class's pieces, ascending.
    classes: Vec<u8>,
    /// log2 of a group's slots.
    group_shift: u32,
    /// log2 of a frame's pieces.
    frame_shift: u32,
    groups: u32,
}

impl Geometry {
    /// A cache of `capacity_bytes`, rounded down to whole groups, with blocks of these sizes.
    pub fn new(
        sizes_bytes: &[u64],
        group_bytes: Option<u64>,
        capacity_bytes: u64,
    ) -> Result<Self, GeometryError> {
        let (&[piece, ..], &[.., largest]) = (sizes_bytes, sizes_bytes) else {
            return Err(GeometryError::NoSizes);
        };
        for &size in sizes_bytes {
            if !size.is_power_of_two() || !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&size) {
                return Err(GeometryError::Size(size));
            }
        }
        if let Some(pair) = sizes_bytes.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(GeometryError::Order(pair[0], pair[1]));
        }
        let group = group_bytes.unwrap_or(largest);
        if !group.is_power_of_two() || !(largest..=4 * BLOCK_BYTES_MAX).contains(&group) {
            return Err(GeometryError::Group { group, largest });
        }
        // With fewer, a request could not find room in addition to the blocks it has just been given.
        let least = sizes_bytes.len() as u64 + 1;
        let groups = capacity_bytes / group;
        if groups < least {
            let wanted = least * group;
            return Err(GeometryError::TooSmall { capacity: capacity_bytes, wanted, least });
        }
        let limit = SLOTS_MAX * piece;
        if groups * group > limit {
            return Err(GeometryError::TooLarge { capacity: capacity_bytes, piece, limit });
        }
        Ok(Geometry {
            piece_shift: piece.trailing_zeros(),
            classes: sizes_bytes.iter().map(|size| (size / piece).trailing_zeros() as u8).collect(),
            group_shift: (group / piece).trailing_zeros(),
            frame_shift: (largest / piece).min(FRAME_PIECES_MAX).trailing_zeros(),
            groups: groups as u32,
        })
    }

    /// The same geometry for a cache of `groups` groups.
    pub fn smaller(&self, groups: u32) -> Self {
        Geometry { groups, ..self.clone() }
    }

    /// Block sizes.
    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    /// Bytes of a block of this class.
    pub fn class_bytes(&self, class: usize) -> u64 {
        1 << (self.piece_shift + u32::from(self.classes[class]))
    }

    /// Pieces of a block of this class.
    #[inline]
    pub fn class_pieces(&self, class: usize) -> u64 {
        1 << self.classes[class]
    }

    /// Bytes of a piece: the smallest block.
    #[inline]
    pub fn piece_bytes(&self) -> u64 {
        1 << self.piece_shift
    }

    /// Units of a piece.
    #[inline]
    pub fn piece_units(&self) -> u64 {
        self.piece_bytes() / UNIT_BYTES
    }

    /// Bytes of a group.
    pub fn group_bytes(&self) -> u64 {
        self.piece_bytes() << self.group_shift
    }

    /// Groups of the cache.
    pub fn groups(&self) -> u32 {
        self.groups
    }

    /// Slots of the cache.
    pub fn slots(&self) -> u32 {
        self.groups << self.group_shift
    }

    /// Bytes of the cache.
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.groups) * self.group_bytes()
    }

    /// Slots of a group.
    #[inline]
    pub fn group_slots(&self) -> u32 {
        1 << self.group_shift
    }

    /// The group in which a slot lies.
    #[inline]
    pub fn group_of(&self, slot: u32) -> u32 {
        slot >> self.group_shift
    }

    /// The first slot of a group.
    #[inline]
    pub fn first_slot(&self, group: u32) -> u32 {
        group << self.group_shift
    }

    /// Where a slot's bytes lie in the cache.
    #[inline]
    pub fn slot_at(&self, slot: u32) -> u64 {
        u64::from(slot) << self.piece_shift
    }

    /// The piece in which a byte of a volume lies.
    #[inline]
    pub fn piece_of(&self, offset: u64) -> u64 {
        offset >> self.piece_shift
    }

    /// log2 of a frame's pieces.
    #[inline]
    pub fn frame_shift(&self) -> u32 {
        self.frame_shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    #[test]
    fn the_published_sizes_make_groups_of_eight_slots() {
        let sizes = [32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB];
        let geometry = Geometry::new(&sizes, None, (1 << 30) + 5).unwrap();
        assert_eq!(geometry.groups(), 4096);
        assert_eq!(geometry.group_slots(), 8);
        assert_eq!(geometry.capacity_bytes(), 1 << 30);
        assert_eq!(geometry.class_pieces(3), 8);
        assert_eq!(geometry.piece_units(), 8);
        assert_eq!((0..4).map(|class| geometry.class_bytes(class)).collect::<Vec<_>>(), sizes);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let sizes = |sizes: &[u64]| Geometry::new(sizes, None, 1 << 30).unwrap_err();
        assert_eq!(sizes(&[]), GeometryError::NoSizes);
        assert_eq!(sizes(&[2048]), GeometryError::Size(2048));
        assert_eq!(sizes(&[8 << 20]), GeometryError::Size(8 << 20));
        assert_eq!(sizes(&[48 * KIB]), GeometryError::Size(48 * KIB));
        assert_eq!(sizes(&[64 * KIB, 32 * KIB]), GeometryError::Order(64 * KIB, 32 * KIB));
        assert_eq!(sizes(&[64 * KIB, 64 * KIB]), GeometryError::Order(64 * KIB, 64 * KIB));
        let group = Geometry::new(&[64 * KIB], Some(32 * KIB), 1 << 30).unwrap_err();
        assert_eq!(group, GeometryError::Group { group: 32 * KIB, largest: 64 * KIB });
        assert!(matches!(Geometry::new(&[64 * KIB], None, 64 * KIB), Err(GeometryError::TooSmall { .. })));
        assert!(matches!(Geometry::new(&[4 * KIB], None, 1 << 42), Err(GeometryError::TooLarge { .. })));
    }
}
