//! A tier gives an item away: down, or out of the last one.

use super::classes::Class;
use super::learnt::Learnt;
use super::reclaim::Reclaim;
use super::transit::Transit;
use super::{Context, MoveKind};
use crate::Id;

/// Who gives, and who learns from it.
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
                Reclaim::in_background(below, transit).pages(1, transit, context);
            }
        }
        transit.open_move(victim, below, MoveKind::Demote, context).is_some()
    }
}
