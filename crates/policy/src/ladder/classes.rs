//! Size classes: the slot size for an item, by its bytes (Wang 2024, section 5.1.6).

/// Bytes of a page, the unit given to a class.
pub const PAGE_BYTES: u64 = 64 << 10;
/// Addresses count in units of this many bytes.
pub const UNIT_BYTES: u64 = 16;
/// Units in a page.
pub const PAGE_UNITS: u32 = (PAGE_BYTES / UNIT_BYTES) as u32;
/// Bytes of a granule, the unit of runs: large items. A page that one run ends on can be the first of another.
pub const GRANULE_BYTES: u64 = 4 << 10;
/// Units in a granule.
pub const GRANULE_UNITS: u32 = (GRANULE_BYTES / UNIT_BYTES) as u32;
/// Granules in a page.
pub const PAGE_GRANULES: u32 = (PAGE_BYTES / GRANULE_BYTES) as u32;
/// The smallest slot.
const SLOT_UNITS_MIN: u32 = 4;
/// The largest number of classes: with the class of runs they fit a mask of 128 bits.
const CLASSES_MAX: usize = 120;

/// A size class; the one behind the last holds runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(pub u8);

impl Class {
    /// The position in arrays per class.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The place that an item of a given size needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// A slot of a class.
    Slot(Class),
    /// A run of this many granules in a row. It is longer than a page, so that at most one begins on each page.
    Run(u32),
}

impl Fit {
    /// Pages that it takes where it begins with one.
    pub fn pages(self) -> u32 {
        match self {
            Fit::Slot(_) => 1,
            Fit::Run(granules) => granules.div_ceil(PAGE_GRANULES),
        }
    }
}

/// The table of classes.
#[derive(Clone, Debug)]
pub struct SizeClasses {
    units: Vec<u32>,
    /// For each number of units up to a page, the smallest class that holds it.
    by_units: Vec<u8>,
}

impl SizeClasses {
    /// Classes from 64 B to 64 KiB, each about `factor` times the one before. Every class takes the largest slot
    /// that fits a page as often, so no page has a tail that a slightly larger class could use.
    ///
    /// `factor` is brought into `[1.05, 4]`.
    pub fn geometric(factor: f64) -> Self {
        let factor = if factor.is_finite() { factor.clamp(1.05, 4.0) } else { 1.08 };
        let mut units = Vec::new();
        let mut size = f64::from(SLOT_UNITS_MIN);
        while units.len() < CLASSES_MAX {
            let slots_per_page = PAGE_UNITS / (size.ceil() as u32).min(PAGE_UNITS);
            let widened = PAGE_UNITS / slots_per_page;
            if units.last().is_none_or(|&last| widened > last) {
                units.push(widened);
            }
            if widened == PAGE_UNITS {
                break;
            }
            size = (size * factor).max(f64::from(widened + 1));
        }
        let mut by_units = vec![0u8; PAGE_UNITS as usize + 1];
        let mut class = 0;
        for (wanted, slot) in by_units.iter_mut().enumerate() {
            while units[class] < wanted as u32 {
                class += 1;
            }
            *slot = class as u8;
        }
        SizeClasses { units, by_units }
    }

    /// Classes of slots; runs not counted.
    pub fn count(&self) -> usize {
        self.units.len()
    }

    /// The class of runs.
    pub fn runs(&self) -> Class {
        Class(self.units.len() as u8)
    }

    /// The place that an item of `bytes` needs.
    #[inline]
    pub fn fit(&self, bytes: u64) -> Fit {
        let units = bytes.div_ceil(UNIT_BYTES);
        match self.by_units.get(units as usize) {
            Some(&class) => Fit::Slot(Class(class)),
            None => Fit::Run(bytes.div_ceil(GRANULE_BYTES) as u32),
        }
    }

    /// Bytes that an item of this fit occupies.
    pub fn fit_bytes(&self, fit: Fit) -> u64 {
        match fit {
            Fit::Slot(class) => u64::from(self.slot_units(class)) * UNIT_BYTES,
            Fit::Run(granules) => u64::from(granules) * GRANULE_BYTES,
        }
    }

    /// Bytes of the place that an item of `bytes` gets.
    pub fn place_bytes(&self, bytes: u64) -> u64 {
        self.fit_bytes(self.fit(bytes))
    }

    /// Units that an item of this fit occupies.
    #[inline]
    pub fn fit_units(&self, fit: Fit) -> u32 {
        match fit {
            Fit::Slot(class) => self.slot_units(class),
            Fit::Run(granules) => granules.saturating_mul(GRANULE_UNITS),
        }
    }

    /// The class that an item of this fit is listed under.
    pub fn class(&self, fit: Fit) -> Class {
        match fit {
            Fit::Slot(class) => class,
            Fit::Run(_) => self.runs(),
        }
    }

    /// Units of one slot.
    #[inline]
    pub fn slot_units(&self, class: Class) -> u32 {
        self.units[class.index()]
    }

    /// Slots in one page.
    #[inline]
    pub fn slots_per_page(&self, class: Class) -> u32 {
        PAGE_UNITS / self.units[class.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_sequence_spans_64_bytes_to_a_page() {
        let classes = SizeClasses::geometric(1.08);
        assert_eq!(classes.slot_units(Class(0)), 4);
        assert_eq!(*classes.units.last().unwrap(), PAGE_UNITS);
        assert!(classes.units.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(classes.fit(PAGE_BYTES + 1), Fit::Run(17));
        assert_eq!((Fit::Run(17).pages(), Fit::Run(32).pages(), Fit::Slot(Class(9)).pages()), (2, 2, 1));
    }

    proptest! {
        #[test]
        fn every_size_gets_the_smallest_class_that_holds_it(factor in 1.0f64..3.0, bytes in 0u64..=PAGE_BYTES) {
            let classes = SizeClasses::geometric(factor);
            let Fit::Slot(class) = classes.fit(bytes) else { panic!("a slot") };
            prop_assert!(u64::from(classes.slot_units(class)) * UNIT_BYTES >= bytes);
            prop_assert!(class.0 == 0 || u64::from(classes.slot_units(Class(class.0 - 1))) * UNIT_BYTES < bytes);
            // A page's tail is smaller than its number of slots: nothing larger would fit as often.
            prop_assert!(PAGE_UNITS % classes.slot_units(class) < classes.slots_per_page(class));
        }
    }
}
