//! Pinned values: a reply under way sends them piece by piece from their place in memory.
//!
//! A client may never read its reply, so pins are bounded ([`may_hold`]), and a place that only replies hold goes before any item
//! ([`HeldPlaces::first_to_give`]): its bytes are copied out if there is memory for replies, else its client loses all of its pins,
//! and the caller must disconnect it ([`PinnedValues::take_robbed`]).

use tiermem_policy::ladder::{HeldPlaces, Loc, may_hold};

use super::ItemRef;
use super::contents::Contents;
use super::pin::{Bytes, Held, Holder, Pin, client_of};

/// Room made by one request at least, where others need it: more than one place, so that pins do not last as long as requests.
const GIVEN_BYTES: u64 = 256 << 10;

/// The pinned values of an engine, with what holds their places.
#[derive(Debug)]
pub struct PinnedValues<'a> {
    pub(super) contents: &'a mut Contents,
}

impl Contents {
    /// Its pinned values.
    #[inline]
    pub fn pinned_values(&mut self) -> PinnedValues<'_> {
        PinnedValues { contents: self }
    }
}

impl PinnedValues<'_> {
    /// Clients that lost their pinned values since the last call: they must be disconnected.
    #[inline]
    pub fn take_robbed(&mut self) -> Vec<u32> {
        self.contents.pins.take_robbed()
    }

    /// Sets how many bytes of pinned values may be copied for others to have their places.
    #[inline]
    pub fn set_copied_bytes_max(&mut self, bytes: usize) {
        self.contents.pins.set_copied_bytes_max(bytes);
    }

    /// Keeps an item's bytes in place. `None` when it is not in memory, or when too many bytes are pinned already.
    pub fn pin(&mut self, item: ItemRef, holder: Holder) -> Option<Pin> {
        if self.contents.staged.value(item).is_some() {
            return None;
        }
        let residents = self.contents.shard.ladder().residents();
        let (loc, place_bytes) = (residents.nodes().loc(item.0), residents.place_bytes(item.0));
        let header = self.contents.items.header(loc);
        let (len, offset) = (header.value_len as usize, header.value_offset());
        let capacity = self.contents.shard.ladder().config().levels[usize::from(loc.tier)].capacity_bytes;
        let key = (client_of(holder), loc.tier);
        let pins = &mut self.contents.pins;
        let own = pins.by_holder.get(&key).copied().unwrap_or(0);
        let all = pins.tier_bytes.get(&loc.tier).copied().unwrap_or(0);
        // The store's own pins end soon: clients do not keep it from one.
        let all = if holder == Holder::Store { own } else { all };
        if !may_hold((capacity as f64 * pins.share) as u64, all, own, place_bytes)
            && (holder != Holder::Store || own > 0)
        {
            return None;
        }
        pins.next += 1;
        let number = pins.next;
        *pins.by_holder.entry(key).or_default() += place_bytes;
        *pins.tier_bytes.entry(loc.tier).or_default() += place_bytes;
        pins.by_place.entry(loc).or_default().push(number);
        pins.held.insert(number, Held { holder, len, bytes: Bytes::InPlace { loc, offset, place_bytes } });
        let tenant = if let Holder::Client(_, tenant) = holder { tenant } else { None };
        let held = self.contents.shard.item(item.0).pin(tenant);
        debug_assert_eq!(held, loc, "an item is pinned where it lies");
        Some(Pin { number, len })
    }

    /// Gives a pinned value free.
    pub fn unpin(&mut self, pin: Pin) {
        let Some(held) = self.contents.pins.held.remove(&pin.number) else { return };
        self.end(pin.number, held);
    }

    fn end(&mut self, number: u64, Held { holder, len, bytes }: Held) {
        match bytes {
            Bytes::InPlace { loc, offset, place_bytes } => {
                debug_assert!(
                    self.is_as_it_was(loc, offset, len) || self.contents.items.tiers.keeps(loc.tier),
                    "a pinned value stays where it is, and as it is"
                );
                self.contents.pins.uncount(number, holder, loc, place_bytes);
                self.contents.shard.unpin(loc);
            }
            Bytes::Copied(_) if holder != Holder::Store => self.contents.pins.copied_bytes -= len,
            Bytes::Copied(_) | Bytes::Lost => {}
        }
    }

    /// Whether an item of this form lies at a pinned place still, though its key may be gone.
    fn is_as_it_was(&self, loc: Loc, offset: usize, len: usize) -> bool {
        let header = self.contents.items.header(loc);
        (header.value_offset(), header.value_len as usize) == (offset, len)
    }

    /// Takes all values pinned at a place out of it.
    fn give_place(&mut self, loc: Loc) {
        for number in self.contents.pins.by_place.get(&loc).cloned().unwrap_or_default() {
            let Some(&Held { holder, len, bytes: Bytes::InPlace { offset, place_bytes, .. } }) =
                self.contents.pins.held.get(&number)
            else {
                continue;
            };
            self.contents.items.tiers.charge_read(loc.tier, len);
            if self.contents.pins.take_out(number, self.contents.items.tiers.bytes(loc, offset, len)) {
                self.contents.pins.uncount(number, holder, loc, place_bytes);
                self.contents.shard.unpin(loc);
            } else if let Holder::Client(slot, _) = holder {
                self.rob(slot);
            }
        }
    }

    /// A client loses all of its pins.
    pub(super) fn rob(&mut self, slot: u32) {
        let is_its = |held: &Held| client_of(held.holder) == Some(slot) && !matches!(held.bytes, Bytes::Lost);
        let numbers: Vec<u64> = self
            .contents
            .pins
            .held
            .iter()
            .filter(|(_, held)| is_its(held))
            .map(|(number, _)| *number)
            .collect();
        for number in numbers {
            let Some(held) = self.contents.pins.held.get_mut(&number) else { continue };
            let bytes = core::mem::replace(&mut held.bytes, Bytes::Lost);
            let was = Held { holder: held.holder, len: held.len, bytes };
            self.end(number, was);
        }
        self.contents.pins.robbed.push(slot);
    }

    /// Where others need room, gives places up that only replies hold.
    #[inline]
    pub(super) fn give_held(&mut self) {
        if !self.contents.pins.by_place.is_empty() {
            self.give_places(GIVEN_BYTES, false);
        }
    }

    /// An item was refused: gives so many bytes of places up. Whether there were any.
    pub(super) fn give_refused(&mut self, bytes: u64) -> bool {
        self.give_places(bytes, true)
    }

    #[cold]
    fn give_places(&mut self, bytes: u64, refused: bool) -> bool {
        let mut given = 0;
        while given < bytes
            && let Some(loc) = HeldPlaces::of(self.contents.shard.ladder()).first_to_give(refused)
            && self.contents.pins.by_place.contains_key(&loc)
        {
            given +=
                self.contents.shard.ladder().residents().level(usize::from(loc.tier)).place_bytes(loc.unit);
            self.give_place(loc);
        }
        given > 0
    }

    /// Before an item gets new bytes: where it is pinned and there may be no second place, it has its own for itself again.
    pub(super) fn give_own(&mut self, loc: Loc, refused: bool) -> bool {
        let is_pinned = self.contents.pins.by_place.contains_key(&loc);
        let gives = is_pinned
            && (refused || HeldPlaces::of(self.contents.shard.ladder()).needs_room(usize::from(loc.tier)));
        if gives {
            self.give_place(loc);
        }
        gives
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Condition, EngineConfig, Eviction, Expiry, ValueKind};
    use tiermem_base::{Bytes as Size, TierKind, TierSpec};
    use tiermem_policy::ladder::Eviction as LadderEviction;

    const VALUE_BYTES: usize = 100_000;

    fn contents(eviction: Eviction) -> Contents {
        let tiers = vec![TierSpec::new(TierKind::Dram, Size(8 << 20))];
        let mut config = EngineConfig { pinned_share: 1.0 / 4.0, ..EngineConfig::new(tiers) };
        if eviction == Eviction::Forbidden {
            config.ladder.eviction = LadderEviction::Forbidden;
        }
        Contents::new(&config).unwrap()
    }

    fn put(contents: &mut Contents, key: u32, byte: u8) -> bool {
        let value = (ValueKind::String, &[byte; VALUE_BYTES][..]);
        contents.set(0, key.to_string().as_bytes(), value, Condition::Always, Expiry::Never).is_ok()
    }

    fn pin(contents: &mut Contents, key: u32, client: u32) -> Option<Pin> {
        let key = key.to_string();
        let id = contents.find(0, key.as_bytes(), contents.items.hash(0, key.as_bytes()))?;
        PinnedValues { contents }.pin(ItemRef(id), Holder::Client(client, None))
    }

    fn keys(contents: &Contents) -> u64 {
        contents.keys.sum()
    }

    #[test]
    fn pinned_bytes_are_bounded_in_all_and_for_each_client_and_stay_when_their_key_goes() {
        let mut contents = contents(Eviction::AllKeys);
        assert!((0..40).all(|key| put(&mut contents, key, key as u8)));
        let mut pins: Vec<(u32, Pin)> = Vec::new();
        for client in 0..8 {
            let own = (0..40).filter_map(|key| Some((key, pin(&mut contents, key, client)?)));
            pins.extend(own.collect::<Vec<_>>());
        }
        let (bytes, bound) = (contents.pins.bytes(), 2 << 20);
        assert!(bytes > bound * 3 / 4 && bytes <= bound, "{bytes}");
        assert!(contents.pins.by_holder.values().all(|&own| own <= bound / 4));
        assert!(contents.pins.by_holder.len() >= 4);
        contents.flush(None);
        for (key, pin) in &pins {
            assert_eq!(contents.pins.bytes_of(pin, &contents.items), Some(&[*key as u8; VALUE_BYTES][..]));
        }
        pins.into_iter().for_each(|(_, pin)| PinnedValues { contents: &mut contents }.unpin(pin));
        assert!(
            contents.pins.bytes() == 0 && contents.pins.by_holder.is_empty() && contents.pins.held.is_empty()
        );
        assert_eq!(HeldPlaces::of(contents.shard.ladder()).first_to_give(true), None);
    }

    /// Values that replies hold, of which one at least was taken out of its place once others have overwritten all.
    fn overwritten(eviction: Eviction, copied_bytes_max: usize) -> (Contents, Vec<(u32, Pin)>) {
        let mut contents = contents(eviction);
        let count = (0..200)
            .take_while(|&key| put(&mut contents, key, 0) && keys(&contents) == u64::from(key) + 1)
            .count();
        contents.pins.set_copied_bytes_max(copied_bytes_max);
        let live: Vec<u32> = (0..200)
            .filter(|key| {
                contents
                    .find(0, key.to_string().as_bytes(), contents.items.hash(0, key.to_string().as_bytes()))
                    .is_some()
            })
            .collect();
        let pins: Vec<(u32, Pin)> =
            live.iter().filter_map(|&key| Some((key % 4, pin(&mut contents, key, key % 4)?))).collect();
        assert!(pins.len() > 8, "{count} {}", pins.len());
        let before = keys(&contents);
        for round in 1..4 {
            for &key in &live {
                assert!(put(&mut contents, key, round), "{key} of round {round}");
            }
        }
        assert!(keys(&contents) + 2 >= before, "{before} before, {} after", keys(&contents));
        (contents, pins)
    }

    #[test]
    fn what_only_replies_hold_is_copied_out_when_others_need_room() {
        for eviction in [Eviction::AllKeys, Eviction::Forbidden] {
            let (mut contents, pins) = overwritten(eviction, usize::MAX);
            assert!(contents.pins.copied_bytes() > 0 && contents.pins.take_robbed().is_empty());
            for (_, pin) in &pins {
                assert_eq!(
                    contents.pins.bytes_of(pin, &contents.items),
                    Some(&[0; VALUE_BYTES][..]),
                    "the reply is as it was"
                );
            }
            pins.into_iter().for_each(|(_, pin)| PinnedValues { contents: &mut contents }.unpin(pin));
            assert_eq!((contents.pins.bytes(), contents.pins.copied_bytes()), (0, 0));
        }
    }

    #[test]
    fn without_memory_for_copies_its_client_loses_all_pins_and_the_store_none_of_its_room() {
        for eviction in [Eviction::AllKeys, Eviction::Forbidden] {
            let (mut contents, pins) = overwritten(eviction, VALUE_BYTES);
            let robbed = contents.pins.take_robbed();
            assert!(!robbed.is_empty());
            assert!(contents.pins.copied_bytes() <= VALUE_BYTES);
            for (client, pin) in &pins {
                let expected = (!robbed.contains(client)).then_some(&[0; VALUE_BYTES][..]);
                assert_eq!(contents.pins.bytes_of(pin, &contents.items), expected);
            }
            pins.into_iter().for_each(|(_, pin)| PinnedValues { contents: &mut contents }.unpin(pin));
            assert_eq!((contents.pins.bytes(), contents.pins.copied_bytes()), (0, 0));
        }
    }
}
