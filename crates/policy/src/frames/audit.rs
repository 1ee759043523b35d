//! Audit of the machine: its state counted again from the frames and the moves, for tests. The time is proportional to the number
//! of frames.

use super::cell::{DIRTY, Frame, MOVING, WRITING, ZERO};
use super::config::TIERS_MAX;
use super::state::{Kind, State};
use crate::evict::Evict;
use std::collections::BTreeMap;

impl<E: Evict> State<E> {
    /// Holds every invariant against a count from scratch; panics if one does not hold.
    pub fn audit(&self) {
        let mut used = BTreeMap::<(u16, u8), u32>::new();
        let mut leaving = BTreeMap::<(u16, u8), u32>::new();
        let mut movable = BTreeMap::<(u16, u8), u32>::new();
        let mut copies = [0u32; TIERS_MAX];
        let mut pinned = 0;
        for number in 0..self.cells.len() {
            let frame = Frame(number);
            let cell = self.cells.get(frame);
            let live = self.moves.find(u64::from(number)).map(|(_, one)| one.what);
            assert_eq!(cell.is(MOVING | WRITING), live.is_some(), "{frame:?} knows of its move");
            assert!(!(cell.is(MOVING) && cell.is(WRITING)), "{frame:?} has one move");
            assert!(live.is_none_or(|what| what.from == cell.tier()), "{frame:?} moves from where it lies");
            if let Some(copy) = cell.copy() {
                copies[usize::from(copy)] += 1;
                assert!(cell.tier().is_some_and(|tier| tier < copy), "{frame:?} lies above its copy");
                assert!(!cell.is(DIRTY | ZERO), "{frame:?} has a copy of what it holds");
            }
            assert!(!(cell.is(DIRTY) && cell.is(ZERO)), "{frame:?} is zero or written");
            pinned += u32::from(cell.pins() > 0);
            let Some(tier) = cell.tier() else {
                assert!(cell.pins() == 0 && !cell.is(DIRTY), "{frame:?} lies nowhere");
                continue;
            };
            assert!(cell.pins() == 0 || self.is_in_place(tier), "{frame:?} is pinned in place");
            *used.entry((cell.owner, tier)).or_default() += 1;
            if self.order.holds(tier) && !cell.is(MOVING) && cell.pins() == 0 {
                *movable.entry((cell.owner, tier)).or_default() += 1;
            }
        }
        for (_, one, is_void) in self.moves.under_way() {
            let what = one.what;
            let ends = [what.from.filter(|_| is_void), what.to];
            ends.into_iter().flatten().for_each(|tier| *used.entry((what.owner, tier)).or_default() += 1);
            let back = what.gives_back(is_void).into_iter().flatten();
            back.for_each(|tier| *leaving.entry((what.owner, tier)).or_default() += 1);
            assert!(what.to.is_some() || what.kind == Kind::Drop, "only what is zero goes nowhere");
        }
        assert_eq!(pinned, self.pinned, "pinned frames");
        if let Some(heat) = &self.heat {
            let may_move = |number: &u32| {
                let cell = self.cells.get(Frame(*number));
                !cell.is(MOVING) && cell.pins() == 0
            };
            let listed = (0..self.cells.len()).filter(may_move);
            let listed =
                listed.filter_map(|number| Some((Frame(number), self.cells.get(Frame(number)).tier()?)));
            heat.audit(listed);
        }
        self.audit_accounts(&used, &leaving, &movable, &copies);
    }

    fn audit_accounts(
        &self,
        used: &BTreeMap<(u16, u8), u32>,
        leaving: &BTreeMap<(u16, u8), u32>,
        movable: &BTreeMap<(u16, u8), u32>,
        copies: &[u32; TIERS_MAX],
    ) {
        let (space, owners) = (&self.accounts.space, &self.accounts.owners);
        for tier in 0..space.tiers() {
            let (mut all_used, mut all_leaving, mut all_movable) = (0, 0, 0);
            for owner in 0..owners.len() {
                let owner = owner as u16;
                let of = |map: &BTreeMap<(u16, u8), u32>| map.get(&(owner, tier)).copied().unwrap_or(0);
                assert_eq!(owners.charged(owner, tier), of(used), "owner {owner} in tier {tier}");
                assert_eq!(owners.leaving(owner, tier), of(leaving), "owner {owner} leaving tier {tier}");
                assert_eq!(owners.movable(owner, tier), of(movable), "owner {owner} movable in tier {tier}");
                if self.config.apart && self.order.holds(tier) {
                    assert_eq!(
                        self.order.len(owner, tier),
                        of(movable),
                        "owner {owner}'s order of tier {tier}"
                    );
                }
                all_used += of(used);
                all_leaving += of(leaving);
                all_movable += of(movable);
            }
            if !self.config.apart && self.order.holds(tier) {
                assert_eq!(self.order.len(0, tier), all_movable, "the order of tier {tier}");
            }
            let held = copies[usize::from(tier)];
            assert_eq!((space.used(tier), space.leaving(tier)), (all_used, all_leaving), "tier {tier}");
            assert_eq!((space.copies(tier), self.copies.len(tier)), (held, held), "copies in tier {tier}");
            assert!(held <= space.free(tier), "copies fill what is free in tier {tier}");
        }
    }
}
