//! Pins: places that must stay as they are while a reply is sent from them.

use std::collections::BTreeMap;

use super::Loc;

/// The state of a place after a reply releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    /// Another reply still holds it, or none did.
    Held,
    /// It is its item's alone again.
    Unpinned,
    /// Its item has left it meanwhile: it is free.
    Left,
}

/// Places held by replies under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Pins {
    /// How many hold it, and whether its item has left.
    places: BTreeMap<Loc, (u32, bool)>,
}

impl Pins {
    /// Another one holds a place.
    pub fn hold(&mut self, loc: Loc) {
        self.places.entry(loc).or_insert((0, false)).0 += 1;
    }

    /// A reply releases a place.
    pub fn release(&mut self, loc: Loc) -> Released {
        let Some((count, left)) = self.places.get_mut(&loc) else { return Released::Held };
        *count -= 1;
        if *count > 0 {
            return Released::Held;
        }
        let released = if *left { Released::Left } else { Released::Unpinned };
        self.places.remove(&loc);
        released
    }

    /// Notes that the item of a place leaves. Returns whether a reply holds the place.
    pub fn note_left(&mut self, loc: Loc) -> bool {
        let pin = self.places.get_mut(&loc);
        pin.map(|(_, left)| *left = true).is_some()
    }

    /// Whether no place is held.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_to_let_go_is_told_what_became_of_the_place() {
        let (mut pins, loc) = (Pins::default(), Loc { tier: 1, unit: 16 });
        assert_eq!(pins.release(loc), Released::Held);
        assert!(!pins.note_left(loc));
        pins.hold(loc);
        pins.hold(loc);
        assert_eq!((pins.release(loc), pins.release(loc)), (Released::Held, Released::Unpinned));
        assert!(pins.is_empty());
        pins.hold(loc);
        assert!(pins.note_left(loc) && !pins.is_empty());
        assert_eq!(pins.release(loc), Released::Left);
    }
}
