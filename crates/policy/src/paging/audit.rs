//! Audit of the machine against a count from scratch, for tests.

use super::machine::Paging;
use crate::evict::Evict;
use crate::frames::Frame;

impl<E: Evict> Paging<E> {
    /// Holds every invariant; it takes as long as there are pages.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn audit(&self) {
        self.pages.frames.audit();
        self.pages.map.audit();
        for frame in (0..self.pages.map.frames()).map(Frame) {
            let view = self.pages.frames.view(frame);
            let has_page = self.pages.map.find(self.pages.map.page_of(frame)) == Some(frame);
            assert!(has_page || view.tier.is_none(), "{frame:?} has no page and lies nowhere");
            let is_planned = self.plan.may_hold(self.pages.map.page_of(frame));
            let is_held = self.pages.is_held(frame);
            let is_in_memory = view.tier.is_some_and(|tier| tier <= self.pages.turnover_tier);
            assert!(!is_held || has_page && is_in_memory && is_planned, "{frame:?} is held");
            assert!(view.pins == 0 || is_held, "{frame:?} is pinned");
            let is_below = view.tier.is_some_and(|tier| tier >= self.pages.swap_tier);
            assert!(is_below || !self.ahead.is_thrown_out(frame), "{frame:?} was thrown out and lies below");
        }
    }
}
