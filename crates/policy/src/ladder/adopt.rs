//! Adoption of items that lie in memory already: those of a tier whose memory outlived the process.

use super::{Fit, GRANULE_BYTES, Ladder, Loc, NewItem, PAGE_BYTES, UNIT_BYTES};
use crate::{Id, Now};

impl Ladder {
    /// Takes up an item where it lies, in a place of `place_bytes`; the inverse of [`super::Transit::remove`]. It enters its list as a
    /// new item of that tier does. `None`, and nothing done, where the place is not free, is none that the ladder would give
    /// out, or there is no memory left for the item's metadata.
    ///
    /// Before anything is admitted; the places of a page in ascending order.
    pub fn adopt(&mut self, loc: Loc, place_bytes: u64, item: &NewItem, now: Now) -> Option<Id> {
        let fit = if place_bytes <= PAGE_BYTES {
            match self.transit.residents.classes.fit(place_bytes) {
                Fit::Slot(class)
                    if self.transit.residents.classes.fit_bytes(Fit::Slot(class)) == place_bytes =>
                {
                    Fit::Slot(class)
                }
                _ => return None,
            }
        } else if place_bytes.is_multiple_of(GRANULE_BYTES) {
            Fit::Run(u32::try_from(place_bytes / GRANULE_BYTES).ok()?)
        } else {
            return None;
        };
        if item.bytes > place_bytes || loc.byte_offset() + place_bytes > u64::from(u32::MAX) * UNIT_BYTES {
            return None;
        }
        let id = self.new_id()?;
        if !self.transit.residents.levels.get_mut(usize::from(loc.tier))?.slots.adopt(loc.unit, fit, id) {
            self.transit.residents.nodes.leave(id);
            return None;
        }
        self.enter(id, loc, item, now);
        Some(id)
    }
}
