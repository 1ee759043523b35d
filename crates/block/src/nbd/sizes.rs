//! Sizes of requests.

use super::wire::PAYLOAD_BYTES_PORTABLE;

/// The largest minimum block size that may be announced.
const MINIMUM_BYTES_MAX: u32 = 1 << 16;
/// The least preferred block size that may be announced.
const PREFERRED_BYTES_MIN: u32 = 1 << 9;

/// Sizes of requests that an export takes (section "Size constraints"), in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of this power of two, which is at most 64 KiB.
    pub minimum: u32,
    /// Multiples of this power of two are served best.
    pub preferred: u32,
    /// The longest payload of one request.
    pub payload_max: u32,
}

impl Default for BlockSizes {
    /// The defaults where nothing was announced.
    fn default() -> Self {
        BlockSizes { minimum: 1, preferred: 4096, payload_max: PAYLOAD_BYTES_PORTABLE }
    }
}

impl BlockSizes {
    /// Whether they may be announced.
    pub fn are_sound(&self) -> bool {
        self.minimum.is_power_of_two()
            && self.minimum <= MINIMUM_BYTES_MAX
            && self.preferred.is_power_of_two()
            && self.preferred >= self.minimum.max(PREFERRED_BYTES_MIN)
            && self.payload_max >= self.preferred
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sound_sizes_may_be_announced() {
        assert!(BlockSizes::default().are_sound());
        for (minimum, preferred, payload_max, sound) in [
            (512, 512, 512, true),
            (1 << 16, 1 << 16, u32::MAX, true),
            (1 << 17, 1 << 17, u32::MAX, false),
            (0, 4096, 1 << 20, false),
            (3, 4096, 1 << 20, false),
            (4096, 512, 1 << 20, false),
            (1, 256, 1 << 20, false),
            (1, 4096, 4095, false),
        ] {
            assert_eq!(BlockSizes { minimum, preferred, payload_max }.are_sound(), sound);
        }
    }
}
