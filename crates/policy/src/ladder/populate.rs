//! Tells the driver which memory to take before it is needed ([`super::slots`] says which that is).

use super::{Act, Ladder};

impl Ladder {
    /// Says which memory is to be taken ahead: for each tier a row of pages at a time.
    pub(super) fn populate_ahead(&mut self, acts: &mut Vec<Act>) {
        for (tier, level) in self.levels.iter_mut().enumerate() {
            if let Some(pages) = level.slots.supply_mut().take_ahead() {
                acts.push(Act::Populate { tier: tier as u8, first: pages.start, count: pages.len() as u32 });
            }
        }
    }
}
