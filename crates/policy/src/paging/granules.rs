//! Which of a program's mappings are divided into granules, so that references are told of parts of them, and how large granules are.

/// Mappings that a process is divided into at most: the kernel allows 65,530 by default (`vm.max_map_count`), and the program needs some.
const MAPPINGS_MAX: u64 = 48 << 10;
/// A range of which so small a part is in memory was reserved, not used, and stays whole where it is larger than [`RESERVED_BYTES`].
const USED_ONE_OF: u64 = 16;
const RESERVED_BYTES: u64 = 64 << 20;

/// Granules of one process. Their size only grows, so that what was divided stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granules {
    bytes: u64,
}

impl Granules {
    /// Of this size to begin with, a power of two.
    pub fn of(bytes: u64) -> Self {
        Granules { bytes }
    }

    /// Whether a mapping of so many bytes, of which so many are in memory, is worth dividing.
    pub fn divide(self, mapping_bytes: u64, resident_bytes: u64) -> bool {
        let is_used = mapping_bytes <= RESERVED_BYTES || resident_bytes >= mapping_bytes / USED_ONE_OF;
        mapping_bytes > self.bytes && is_used
    }

    /// The size for dividing so many bytes more in a process that has so many mappings; `None` if it can have no more.
    pub fn size(&mut self, bytes: u64, mappings: u64) -> Option<u64> {
        let room = MAPPINGS_MAX.checked_sub(mappings).filter(|room| *room > 0)?;
        while bytes / self.bytes > room {
            self.bytes *= 2;
        }
        Some(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granules_grow_with_what_is_divided_and_never_shrink() {
        let mut granules = Granules::of(64 << 10);
        assert_eq!(granules.size(3 << 30, 0), Some(64 << 10));
        assert_eq!(granules.size(3 << 30, 1), Some(128 << 10));
        assert_eq!(granules.size(1 << 20, 0), Some(128 << 10));
        assert_eq!(granules.size(1 << 20, MAPPINGS_MAX), None);
        assert_eq!(granules.size(1 << 40, MAPPINGS_MAX + 1), None);
        assert_eq!(granules.size(8 << 20, MAPPINGS_MAX - 1), Some(8 << 20));
    }

    #[test]
    fn what_is_reserved_or_small_stays_whole() {
        let granules = Granules::of(64 << 10);
        assert!(!granules.divide(64 << 10, 64 << 10) && granules.divide(128 << 10, 0));
        assert!(granules.divide(RESERVED_BYTES, 0) && !granules.divide(16 << 30, (1 << 30) - 1));
        assert!(granules.divide(16 << 30, 1 << 30));
    }
}
