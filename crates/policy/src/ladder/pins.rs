//! Places that must stay as they are while a reply is sent from them.

use super::{Holder, Ladder, Loc};
use crate::Id;

impl Ladder {
    /// Keeps the item's bytes where they are, even beyond its removal, until `unpin` of its place. A move under
    /// way is given up.
    pub fn pin(&mut self, id: Id) -> Loc {
        self.abort_move(id);
        let place = self.places.get(id);
        *self.places.at(id) = place.with_pinned(true);
        self.pins.entry(place.loc()).or_insert((0, false)).0 += 1;
        place.loc()
    }

    /// Lets go of a pinned place.
    pub fn unpin(&mut self, loc: Loc) {
        let Some((count, left)) = self.pins.get_mut(&loc) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        let left = *left;
        self.pins.remove(&loc);
        let slots = &mut self.levels[usize::from(loc.tier)].slots;
        if left {
            slots.release(loc.unit);
        } else if let Holder::Item(id) = slots.pages().holder_at(loc.unit) {
            let place = self.places.get(id);
            *self.places.at(id) = place.with_pinned(false);
        }
    }
}
