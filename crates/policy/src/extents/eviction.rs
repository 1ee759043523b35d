//! Eviction order of blocks and groups, one per share and all by one policy; and the blocks that plans in flight hold.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use tiermem_base::Rng;

use super::geometry::Geometry;
use super::shares::Share;
use crate::Id;
use crate::evict::{Departure, Domain, Evict, Item, Origin, Touch};

/// The order of eviction. `O` orders two domains for each share: its groups, and its blocks.
///
/// Numbers there: a group's, and then its slots'. So one policy orders both, and its state grows as the cache fills.
#[derive(Debug)]
pub(super) struct Eviction<O> {
    order: O,
    rng: Rng,
    /// Requests so far: the clock of the policy.
    requests: u64,
    group_slots: u32,
    group_shift: u32,
    /// Whether blocks are ordered as well as groups: not where a group is one block.
    two_levels: bool,
    /// Blocks that plans in flight speak of, and their groups, by their numbers; how many plans.
    held: HashMap<u32, u32, BuildHasherDefault<IdHasher>>,
}

/// Hashes a number; the table is only asked, never walked.
#[derive(Default)]
struct IdHasher(u64);

impl std::hash::Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }
    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number);
    }
    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

fn groups_of(share: Share) -> Domain {
    Domain(2 * u32::from(share.0))
}

fn blocks_of(share: Share) -> Domain {
    Domain(2 * u32::from(share.0) + 1)
}

impl<O: Evict> Eviction<O> {
    /// The order of an empty cache.
    pub fn new(geometry: &Geometry, order: O, rng: Rng) -> Self {
        Eviction {
            order,
            rng,
            requests: 0,
            group_slots: geometry.group_slots(),
            group_shift: geometry.group_slots().trailing_zeros(),
            two_levels: geometry.class_bytes(0) < geometry.group_bytes(),
            held: HashMap::default(),
        }
    }

    fn group_id(&self, group: u32) -> Id {
        Id(group * (self.group_slots + 1))
    }

    fn block_id(&self, slot: u32) -> Id {
        Id(slot + (slot >> self.group_shift) + 1)
    }

    /// A request comes.
    pub fn tick(&mut self) {
        self.requests += 1;
    }

    /// A block was used.
    pub fn used(&mut self, slot: u32, share: Share, write: bool) {
        let touch = Touch { now: self.requests, write };
        self.order.hit(self.group_id(slot >> self.group_shift), touch, || groups_of(share));
        if self.two_levels {
            self.order.hit(self.block_id(slot), touch, || blocks_of(share));
        }
    }

    /// A group is a share's from now on.
    pub fn group_comes(&mut self, group: u32, share: Share) {
        let now = self.requests;
        let item = Item { key: u64::from(group), size: self.group_slots, dirty: false, now };
        self.order.insert(self.group_id(group), groups_of(share), Origin::Admitted(item));
    }

    /// A group leaves its share and belongs to no share.
    pub fn group_goes(&mut self, group: u32, share: Share, why: Departure) {
        self.order.remove(self.group_id(group), groups_of(share), why);
    }

    /// A block of `pieces` pieces enters the order; `piece` is its place in its volume.
    pub fn block_comes(&mut self, slot: u32, share: Share, piece: u64, pieces: u64, write: bool) {
        let now = self.requests;
        let touch = Touch { now, write };
        self.order.hit(self.group_id(slot >> self.group_shift), touch, || groups_of(share));
        if self.two_levels {
            let item = Item { key: piece, size: pieces as u32, dirty: write, now };
            self.order.insert(self.block_id(slot), blocks_of(share), Origin::Admitted(item));
        }
    }

    /// A block leaves the order.
    pub fn block_goes(&mut self, slot: u32, share: Share, why: Departure) {
        debug_assert!(!self.is_held(slot), "no plan in flight speaks of it");
        if self.two_levels {
            self.order.remove(self.block_id(slot), blocks_of(share), why);
        }
    }

    /// The next victim among the blocks of a share, by its slot: one that `may_go` accepts and no plan in flight holds. `None`
    /// where a group is one block.
    pub fn next_block(&mut self, share: Share, may_go: impl Fn(u32) -> bool) -> Option<u32> {
        let per_group = self.group_slots + 1;
        let slot_of = |id: Id| id.0 - id.0 / per_group - 1;
        let held = &self.held;
        let may_go = |id: Id| !held.contains_key(&id.0) && may_go(slot_of(id));
        let next = || self.order.victim(blocks_of(share), self.requests, &mut self.rng, may_go);
        self.two_levels.then(next).flatten().map(slot_of)
    }

    /// The next victim among the groups of a share that `may_go` accepts.
    pub fn next_group(&mut self, share: Share, may_go: impl Fn(u32) -> bool) -> Option<u32> {
        let per_group = self.group_slots + 1;
        let held = &self.held;
        let may_go = |id: Id| !held.contains_key(&id.0) && may_go(id.0 / per_group);
        let victim = self.order.victim(groups_of(share), self.requests, &mut self.rng, may_go);
        victim.map(|id| id.0 / per_group)
    }

    /// Visits a share's groups that go next, coldest first; none where the policy cannot tell ([`Evict::coldest`]).
    pub fn coldest_groups(&self, share: Share, count: usize, mut each: impl FnMut(u32)) {
        let per_group = self.group_slots + 1;
        self.order.coldest(groups_of(share), count, |id| each(id.0 / per_group));
    }

    /// Visits up to `count` of a share's next victims among its blocks, by their slots, coldest first; none where the policy has
    /// no cold end ([`Evict::coldest`]).
    pub fn coldest_blocks(&self, share: Share, count: usize, mut each: impl FnMut(u32)) {
        let per_group = self.group_slots + 1;
        if self.two_levels {
            self.order.coldest(blocks_of(share), count, |id| each(id.0 - id.0 / per_group - 1));
        }
    }

    fn held_ids(&self, slot: u32) -> [u32; 2] {
        [self.block_id(slot).0, self.group_id(slot >> self.group_shift).0]
    }

    /// A plan in flight speaks of a block: it and its group stay.
    pub fn hold(&mut self, slot: u32) {
        for id in self.held_ids(slot) {
            *self.held.entry(id).or_default() += 1;
        }
    }

    /// Ends one hold of a block.
    pub fn let_go(&mut self, slot: u32) {
        for id in self.held_ids(slot) {
            let Some(count) = self.held.get_mut(&id) else {
                debug_assert!(false, "{id} is let go as often as it was held");
                continue;
            };
            *count -= 1;
            if *count == 0 {
                self.held.remove(&id);
            }
        }
    }

    /// Whether a plan in flight speaks of a block.
    pub fn is_held(&self, slot: u32) -> bool {
        self.held.contains_key(&self.block_id(slot).0)
    }

    /// Whether blocks are held more often than `times`.
    pub fn is_held_beyond(&self, times: usize) -> bool {
        // A block is held under its own number and under its group's.
        self.held.values().map(|count| *count as usize).sum::<usize>() > 2 * times
    }

    /// Bytes of state held.
    pub fn metadata_bytes(&self) -> u64 {
        self.order.metadata_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evict::lru::{Bump, Lru};

    const ALL: Share = Share(0);

    /// Two groups of four slots, each with the blocks at its first two slots.
    fn eviction() -> Eviction<Lru> {
        let geometry = Geometry::new(&[16 << 10], Some(64 << 10), 128 << 10).unwrap();
        let mut eviction = Eviction::new(&geometry, Lru::new([1.0, 1.0], Bump::Always), Rng::seeded(1));
        for group in 0..2 {
            eviction.group_comes(group, ALL);
            for slot in 4 * group..4 * group + 2 {
                eviction.tick();
                eviction.block_comes(slot, ALL, u64::from(slot), 1, false);
            }
        }
        eviction
    }

    #[test]
    fn the_one_used_longest_ago_goes_unless_it_is_held_or_refused() {
        let mut eviction = eviction();
        assert_eq!(
            (eviction.next_block(ALL, |_| true), eviction.next_group(ALL, |_| true)),
            (Some(0), Some(0))
        );
        eviction.hold(0);
        assert_eq!(
            (eviction.next_block(ALL, |_| true), eviction.next_group(ALL, |_| true)),
            (Some(1), Some(1))
        );
        assert_eq!(eviction.next_block(ALL, |slot| slot > 4), Some(5));
        assert_eq!(eviction.next_group(ALL, |group| group == 0), None);
        eviction.let_go(0);
        eviction.used(0, ALL, false);
        assert_eq!(
            (eviction.next_block(ALL, |_| true), eviction.next_group(ALL, |_| true)),
            (Some(1), Some(1))
        );
        eviction.block_goes(1, ALL, Departure::Evicted);
        eviction.group_goes(1, ALL, Departure::Evicted);
        assert_eq!(
            (eviction.next_block(ALL, |_| true), eviction.next_group(ALL, |_| true)),
            (Some(4), Some(0))
        );
        let mut named = Vec::new();
        eviction.coldest_blocks(ALL, 2, |slot| named.push(slot));
        eviction.coldest_groups(ALL, 9, |group| named.push(group));
        assert_eq!(named, [4, 5, 0]);
    }

    #[test]
    fn a_block_is_held_as_often_as_plans_speak_of_it() {
        let mut eviction = eviction();
        eviction.hold(1);
        eviction.hold(1);
        eviction.let_go(1);
        assert!(eviction.is_held(1) && !eviction.is_held(0));
        assert!(eviction.is_held_beyond(0) && !eviction.is_held_beyond(1));
        eviction.let_go(1);
        assert!(!eviction.is_held(1) && !eviction.is_held_beyond(0));
    }
}
