//! Owners of frames: an account and a quota for each owner and tier, and the rule by which an owner gives a frame.
//!
//! **The owner that gives a frame of a tier.** An owner that has reached its quota there gives one of its own before it takes
//! another. Otherwise, among the owners with a frame there that may leave:
//! 1. one that exceeds its quota, the one that exceeds it by most frames;
//! 2. else one without a quota, which was promised nothing: the one with most frames;
//! 3. else the one with most frames: quotas that add up to more than the tier cannot all be kept.
//!
//! Ties go to the lower number. Frames on their way out count as gone here, so that a step which brings an owner down to its
//! quota stops there; they count in the account, and against the quota, until their moves have ended. Clean copies belong to no
//! owner: they fill unused room, and are given up before any owner gives.

use super::config::{Config, NO_QUOTA};
use crate::Id;
use crate::evict::heap::{Heap, Positions};

/// How many owners are asked for one frame.
pub(super) const ASKED_MAX: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Account {
    /// Frames taken, those on their way out and in among them.
    charged: u32,
    /// Frames on their way out.
    leaving: u32,
    /// Frames that could be made to leave: those in the owner's order.
    movable: u32,
    quota: u32,
    /// Asked just now, and therefore out of the heap.
    is_asked: bool,
}

impl Account {
    fn staying(&self) -> u32 {
        self.charged - self.leaving
    }

    /// The greater, the sooner it gives. 0: it has nothing to give.
    fn rank(&self, owner: u16) -> u64 {
        if self.movable == 0 {
            return 0;
        }
        let (class, frames): (u64, u32) = match self.quota {
            NO_QUOTA => (2, self.staying()),
            quota if self.staying() > quota => (3, self.staying() - quota),
            _ => (1, self.staying()),
        };
        class << 48 | u64::from(frames) << 16 | u64::from(u16::MAX - owner)
    }
}

/// Owners asked for one frame, in turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    owners: [u16; ASKED_MAX],
    len: usize,
}

/// All accounts.
#[derive(Clone, Debug)]
pub struct Owners {
    /// By tier, then by owner.
    accounts: Vec<Account>,
    owners: usize,
    /// For each tier, owners by rank, the greatest on top (keys are inverted); empty where owners share one order.
    heaps: Vec<(Heap, Positions)>,
}

impl Owners {
    pub(super) fn new(config: &Config) -> Self {
        let (tiers, owners) = (config.tiers.len(), config.owners as usize);
        let nothing = Account { charged: 0, leaving: 0, movable: 0, quota: NO_QUOTA, is_asked: false };
        let mut heaps = vec![(Heap::default(), Positions::default()); if config.apart { tiers } else { 0 }];
        for (heap, positions) in &mut heaps {
            for owner in 0..config.owners {
                heap.push(positions, Id(owner), !0);
            }
        }
        Owners { accounts: vec![nothing; tiers * owners], owners, heaps }
    }

    /// Owners have numbers below this.
    pub fn len(&self) -> usize {
        self.owners
    }

    /// Whether there are none, which is never so.
    pub fn is_empty(&self) -> bool {
        self.owners == 0
    }

    /// Frames of a tier that an owner is charged for.
    pub fn charged(&self, owner: u16, tier: u8) -> u32 {
        self.account(owner, tier).charged
    }

    /// Its quota there; [`NO_QUOTA`] if it has none.
    pub fn quota(&self, owner: u16, tier: u8) -> u32 {
        self.account(owner, tier).quota
    }

    /// Its frames there that could be made to leave.
    pub fn movable(&self, owner: u16, tier: u8) -> u32 {
        self.account(owner, tier).movable
    }

    pub(super) fn leaving(&self, owner: u16, tier: u8) -> u32 {
        self.account(owner, tier).leaving
    }

    /// Whether it may take no other frame before it has given one.
    #[inline]
    pub(super) fn is_at_quota(&self, owner: u16, tier: u8) -> bool {
        let account = self.account(owner, tier);
        account.charged >= account.quota && account.quota != NO_QUOTA
    }

    /// The owner that a step should bring down to its quota, if one exceeds it and has something to give.
    pub(super) fn exceeding(&self, tier: u8) -> Option<u16> {
        let (heap, _) = self.heaps.get(usize::from(tier))?;
        let (key, owner) = heap.top()?;
        (!key >> 48 == 3).then_some(owner.0 as u16)
    }

    pub(super) fn set_quota(&mut self, owner: u16, tier: u8, quota: u32) {
        self.change(owner, tier, |account| account.quota = quota);
    }

    pub(super) fn charge(&mut self, owner: u16, tier: u8) {
        self.change(owner, tier, |account| account.charged += 1);
    }

    pub(super) fn release(&mut self, owner: u16, tier: u8) {
        self.change(owner, tier, |account| {
            assert!(account.charged > account.leaving, "what is given back was charged");
            account.charged -= 1;
        });
    }

    pub(super) fn leaves(&mut self, owner: u16, tier: u8) {
        self.change(owner, tier, |account| {
            account.leaving += 1;
            assert!(account.leaving <= account.charged, "what leaves was charged");
        });
    }

    pub(super) fn left(&mut self, owner: u16, tier: u8) {
        self.change(owner, tier, |account| {
            assert!(account.leaving > 0, "what has left was leaving");
            account.leaving -= 1;
        });
    }

    /// Counts one more of an owner's frames that may leave, or one less.
    pub(super) fn set_movable(&mut self, owner: u16, tier: u8, one_more: bool) {
        self.change(owner, tier, |account| {
            assert!(one_more || account.movable > 0, "what leaves an order was in it");
            account.movable = if one_more { account.movable + 1 } else { account.movable - 1 };
        });
    }

    /// The next owner that gives, one that was not asked yet; `None` when none has anything, or enough were asked.
    pub(super) fn next_giver(&mut self, tier: u8, asked: &mut Asked) -> Option<u16> {
        let (heap, positions) = self.heaps.get_mut(usize::from(tier))?;
        let (_, owner) = heap.top().filter(|(key, _)| *key != !0 && asked.len < ASKED_MAX)?;
        heap.remove(positions, owner);
        let owner = owner.0 as u16;
        asked.owners[asked.len] = owner;
        asked.len += 1;
        self.accounts[usize::from(tier) * self.owners + usize::from(owner)].is_asked = true;
        Some(owner)
    }

    /// Ends a search: the owners that were asked can be asked again.
    pub(super) fn end(&mut self, tier: u8, asked: Asked) {
        for &owner in &asked.owners[..asked.len] {
            let account = &mut self.accounts[usize::from(tier) * self.owners + usize::from(owner)];
            account.is_asked = false;
            let key = !account.rank(owner);
            let (heap, positions) = &mut self.heaps[usize::from(tier)];
            heap.push(positions, Id(u32::from(owner)), key);
        }
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        let heaps: u64 = self.heaps.iter().map(|(heap, positions)| heap.bytes() + positions.bytes()).sum();
        heaps + (self.accounts.capacity() * size_of::<Account>()) as u64
    }

    fn account(&self, owner: u16, tier: u8) -> &Account {
        &self.accounts[usize::from(tier) * self.owners + usize::from(owner)]
    }

    fn change(&mut self, owner: u16, tier: u8, change: impl FnOnce(&mut Account)) {
        let account = &mut self.accounts[usize::from(tier) * self.owners + usize::from(owner)];
        change(account);
        if let Some((heap, positions)) = self.heaps.get_mut(usize::from(tier))
            && !account.is_asked
        {
            heap.update(positions, Id(u32::from(owner)), !account.rank(owner));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::config::TierConfig;

    fn owners(owners: u32) -> Owners {
        let tiers = [TierConfig::memory(100), TierConfig::storage(1000)];
        Owners::new(&Config { owners, apart: true, ..Config::of(&tiers) })
    }

    fn give(owners: &mut Owners, owner: u16, frames: u32) {
        for _ in 0..frames {
            owners.charge(owner, 0);
            owners.set_movable(owner, 0, true);
        }
    }

    fn givers(owners: &mut Owners) -> Vec<u16> {
        let mut asked = Asked::default();
        let order = std::iter::from_fn(|| owners.next_giver(0, &mut asked)).collect();
        owners.end(0, asked);
        order
    }

    #[test]
    fn who_exceeds_gives_first_then_who_has_no_quota_then_who_has_most() {
        let mut owners = owners(6);
        for (owner, frames) in [(0, 30), (1, 10), (2, 5), (3, 9), (4, 9)] {
            give(&mut owners, owner, frames);
        }
        for (owner, quota) in [(0, 40), (1, 9), (2, 1)] {
            owners.set_quota(owner, 0, quota);
        }
        // 2 is four above its quota, 1 is one above; 3 and 4 have none, 3 is the lower number; 5 has nothing to give.
        assert_eq!(givers(&mut owners), [2, 1, 3, 4, 0]);
        assert_eq!(givers(&mut owners), [2, 1, 3, 4, 0], "asking changes nothing");
        assert_eq!(owners.exceeding(0), Some(2));
        (0..4).for_each(|_| owners.leaves(2, 0));
        assert_eq!(owners.exceeding(0), Some(1), "what is on its way out is gone already");
        assert!(owners.is_at_quota(2, 0), "but charged until it has left");
        owners.set_quota(1, 0, NO_QUOTA);
        assert_eq!((owners.exceeding(0), givers(&mut owners)), (None, vec![1, 3, 4, 0, 2]));
    }

    #[test]
    fn so_many_are_asked_and_no_more() {
        let mut owners = owners(20);
        (0..20).for_each(|owner| give(&mut owners, owner, 1));
        assert_eq!(givers(&mut owners), (0..ASKED_MAX as u16).collect::<Vec<_>>());
    }
}
