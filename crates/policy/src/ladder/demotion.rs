//! Demotion: a tier gives an item to the next tier, or out of the last one.

use super::classes::Class;
use super::item_lifecycle::Transit;
use super::reclaim::Reclaim;
use super::reuse_stats::Learnt;
use super::{Context, MoveKind};
use crate::Id;

/// The items that are demoted, and the statistics that learn from it.
#[derive(Debug)]
pub(super) struct Giving<'a> {
    pub transit: &'a mut Transit,
    pub learnt: &'a mut Learnt,
}

impl Giving<'_> {
    /// Moves a class's coldest item down or out.
    pub fn one_of(&mut self, tier: usize, class: Class, context: &mut Context<'_>) -> bool {
        let victim = self.transit.residents.victim(tier, class, context);
        victim.is_some_and(|victim| self.item(tier, class, victim, context))
    }

    /// Moves an item down, or out of the last tier. The next tier, if it is the last, evicts for it
    /// when it must: this is background work, not an admission (Wang 2024, section 5.1.4.3).
    pub fn item(&mut self, tier: usize, class: Class, victim: Id, context: &mut Context<'_>) -> bool {
        let Giving { transit, learnt } = self;
        learnt.note_victim(tier, victim, &transit.residents, context.now);
        let below = tier + 1;
        if below == transit.residents.levels.len() {
            let goes = transit.may_evict();
            if goes {
                transit.evict(victim, context);
            }
            return goes;
        }
        if transit.open_move(victim, below, MoveKind::Demote, context).is_some() {
            return true;
        }
        if below + 1 != transit.residents.levels.len() {
            return false;
        }
        match transit.residents.victim(below, class, context).filter(|_| transit.may_evict()) {
            Some(coldest) => transit.evict(coldest, context),
            None => {
                Reclaim::in_background(below, transit).page(transit, context);
            }
        }
        transit.open_move(victim, below, MoveKind::Demote, context).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_world::{QUARTER, World};
    use super::super::{Eviction, LadderConfig};
    use super::*;
    use proptest::prelude::*;

    fn give(world: &mut World, tier: usize, bytes: u64) -> bool {
        let class = world.class(bytes);
        let (transit, learnt, mut context) = world.parts();
        Giving { transit, learnt }.one_of(tier, class, &mut context)
    }

    proptest! {
        /// However full the tiers are, the oldest item of the class moves down where there is space. The last tier makes space by
        /// evicting its own oldest, a tier above it does not. Nothing leaves the system where nothing may.
        #[test]
        fn the_oldest_goes_down_and_only_the_last_tier_lets_others_go_for_it(
            counts in prop::array::uniform3(0usize..10), uses in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
            forbids in any::<bool>(), tier in 0usize..3,
        ) {
            let eviction = if forbids { Eviction::Forbidden } else { Eviction::AllItems };
            let mut world = World::new(LadderConfig { eviction, ..World::config(&[2, 2, 2]) });
            let mut ids = Vec::new();
            for (tier, &count) in counts.iter().enumerate() {
                ids.extend((0..count).filter_map(|_| world.enter(tier, QUARTER)));
            }
            for pick in uses {
                if !ids.is_empty() {
                    world.touch(ids[pick.index(ids.len())]);
                }
            }
            let class = world.class(QUARTER);
            let (oldest, below) = (world.oldest(tier, class), world.oldest((tier + 1).min(2), class));
            let has_room = tier < 2 && counts[tier + 1] < 8;
            let gave = give(&mut world, tier, QUARTER);
            let decided = world.decided();
            let down = |id| vec![(id, MoveKind::Demote)];
            let expected = match (oldest, tier) {
                (None, _) => (vec![], vec![]),
                (Some(id), _) if has_room => (down(id), vec![]),
                (Some(id), 1) if !forbids => (down(id), below.into_iter().collect()),
                (Some(id), 2) if !forbids => (vec![], vec![id]),
                _ => (vec![], vec![]),
            };
            prop_assert_eq!(gave, !expected.0.is_empty() || !expected.1.is_empty());
            prop_assert_eq!(decided, expected);
        }
    }

    #[test]
    fn the_last_tier_gives_a_page_of_another_class() {
        let mut world = World::new(World::config(&[2, 1]));
        let small = world.fill(1, 2 * QUARTER);
        let victim = world.enter(0, QUARTER).unwrap();
        assert!(give(&mut world, 0, QUARTER));
        assert_eq!(world.decided(), (vec![(victim, MoveKind::Demote)], small));
    }

    #[test]
    fn who_has_to_leave_shows_how_old_they_are_in_a_tier() {
        let mut world = World::new(World::config(&[2, 2]));
        world.enter(0, QUARTER);
        world.now.requests += 6400;
        assert!(give(&mut world, 0, QUARTER));
        assert_eq!((world.learnt.tail_age(0), world.learnt.tail_age(1)), (100, 0), "in parts of 64");
    }
}
