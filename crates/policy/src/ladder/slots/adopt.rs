//! Adoption of places that were chosen before: those of items which outlived the process.

use super::{Page, PageState, Slots};
use crate::Id;
use crate::ladder::classes::{Fit, GRANULE_UNITS, PAGE_GRANULES, PAGE_UNITS};

impl Slots {
    /// Takes the place at `unit` for `id`, which must be the page's last so far. `false`, and nothing done, where it is
    /// not free or no such place.
    pub fn adopt(&mut self, unit: u32, fit: Fit, id: Id) -> bool {
        let (at, within) = (unit / PAGE_UNITS, unit % PAGE_UNITS);
        match fit {
            Fit::Slot(class) => {
                let units = self.classes.slot_units(class);
                let slot = within / units;
                if within % units != 0 || slot >= self.classes.slots_per_page(class) {
                    return false;
                }
                if self.supply.are_free(at * PAGE_GRANULES..(at + 1) * PAGE_GRANULES) {
                    self.give(at, class);
                }
                let ours =
                    |page: &Page| page.state() == PageState::Slots && page.class() == class && !page.draining;
                let taken = self.pages.get(at).is_some_and(ours) && self.pages.page(at).take_at(slot, id);
                if taken {
                    self.by_class.note_taken(at, &mut self.pages);
                }
                taken
            }
            Fit::Run(count) => {
                let first = unit / GRANULE_UNITS;
                let granules = first..first.saturating_add(count);
                let free = unit.is_multiple_of(GRANULE_UNITS) && self.supply.are_free(granules.clone());
                if free {
                    self.give_run(granules, id);
                }
                free
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::classes::SizeClasses;
    use proptest::prelude::*;
    use std::sync::Arc;

    proptest! {
        /// A tier that adopts the places of another has the same accounts, and goes on giving out the free ones.
        #[test]
        fn a_tier_taken_up_is_the_tier_it_was(ops in prop::collection::vec((0u8..6, 0u64..150_000, any::<prop::sample::Index>()), 1..200)) {
            let classes = Arc::new(SizeClasses::geometric(1.3));
            let mut slots = Slots::new(classes.clone(), 24);
            let mut held: std::collections::BTreeMap<u32, Fit> = Default::default();
            for (number, (what, bytes, pick)) in ops.into_iter().enumerate() {
                let fit = classes.fit(if what == 0 { bytes } else { bytes % 3000 });
                if what < 4 {
                    held.extend(slots.take(fit, Id(number as u32)).map(|unit| (unit, fit)));
                } else if !held.is_empty() {
                    let unit = *held.keys().nth(pick.index(held.len())).unwrap();
                    held.remove(&unit);
                    slots.release(unit);
                }
            }
            let mut again = Slots::new(classes.clone(), 24);
            for (&unit, &fit) in &held {
                prop_assert!(again.adopt(unit, fit, Id(unit)));
                prop_assert!(!again.adopt(unit, fit, Id(unit)), "a place is taken once");
            }
            while slots.close_empty_page() {}
            prop_assert_eq!(again.free_bytes(), slots.free_bytes());
            prop_assert_eq!(again.supply().used(), slots.supply().used());
            let mut taken: Vec<(u32, u64)> = held.iter().map(|(&unit, &fit)| (unit, classes.fit_bytes(fit))).collect();
            let small = classes.fit(100);
            while let Some(unit) = again.take(small, Id(0)) {
                taken.push((unit, classes.fit_bytes(small)));
            }
            taken.sort_unstable();
            prop_assert!(taken.windows(2).all(|pair| u64::from(pair[0].0) * 16 + pair[0].1 <= u64::from(pair[1].0) * 16));
            for &unit in held.keys() {
                again.release(unit);
            }
        }
    }
}
