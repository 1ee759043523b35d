//! Place of an item in the log, in 31 bits, so that an item on flash costs one index entry of memory and no node.

/// Pages that a log can have: [`LogPlace`] has 26 bits for them.
pub const PAGES_MAX: u32 = 1 << 26;

/// How warm an item can be.
pub const HEAT_MAX: u32 = 3;

const HEAT_SHIFT: u32 = 29;
const SPAN_SHIFT: u32 = 26;

/// Pages that an item may cover, by the three bits that say so: it is read at once, and not much more than it.
const SPANS: [u32; 8] = [1, 2, 3, 4, 8, 32, 128, u32::MAX];

/// Bits 0..26 the page in which the item begins, 26..29 how many pages it covers (roughly), 29..31 how warm it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogPlace(pub u32);

impl LogPlace {
    /// The place of a cold item that begins in `page` and covers `pages`.
    pub fn new(page: u32, pages: u32) -> Self {
        debug_assert!(page < PAGES_MAX);
        let span = SPANS.iter().position(|&span| pages <= span).unwrap_or(SPANS.len() - 1) as u32;
        LogPlace(page | span << SPAN_SHIFT)
    }

    /// The page in which the item begins.
    #[inline]
    pub fn page(self) -> u32 {
        self.0 & (PAGES_MAX - 1)
    }

    /// Pages to read so that the whole item is among them; the segment's end may come before.
    pub fn pages(self) -> u32 {
        SPANS[(self.0 >> SPAN_SHIFT & 7) as usize]
    }

    /// Hits since it was written, up to [`HEAT_MAX`], and less what surviving its segment has cost.
    pub fn heat(self) -> u32 {
        self.0 >> HEAT_SHIFT & HEAT_MAX
    }

    /// This place with another heat.
    pub fn with_heat(self, heat: u32) -> Self {
        LogPlace(self.0 & !(HEAT_MAX << HEAT_SHIFT) | heat.min(HEAT_MAX) << HEAT_SHIFT)
    }

    /// Whether both name the same item's bytes, however warm.
    pub fn is_same(self, other: LogPlace) -> bool {
        self.with_heat(0) == other.with_heat(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_do_not_touch_each_other(page in 0..PAGES_MAX, pages in 1u32..2000, heat in 0u32..9) {
            let place = LogPlace::new(page, pages).with_heat(heat);
            prop_assert_eq!(place.page(), page);
            prop_assert!(place.pages() >= pages);
            prop_assert_eq!(place.heat(), heat.min(HEAT_MAX));
            prop_assert!(place.0 >> 31 == 0);
            prop_assert!(place.is_same(place.with_heat(0)) && !place.is_same(LogPlace::new(page ^ 1, pages)));
        }
    }
}
