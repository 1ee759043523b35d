//! Early fetches of the published simulator: when, and which pages.

use tiermem_policy::evict::Evict;

use super::mshr::Row;
use super::prefetch::{Kind, Sequential};
use super::{FLASH_QUEUE, PREFETCH_QUEUE, Simulator};
use crate::cxl_flash::cache::Line;
use crate::cxl_flash::flash::Operation;

impl<E: Evict, L: FnMut(u64, bool)> Simulator<E, L> {
    /// A miss, or a hit on a prefetched page, may make the prefetcher wish for pages.
    pub(super) fn prefetch(&mut self, place: u32, miss: bool) {
        if self.settings.prefetch == Kind::None
            || self.prefetching == PREFETCH_QUEUE
            || FLASH_QUEUE.wrapping_sub(self.outstanding) < 2
        {
            return;
        }
        let number = self.pages.number(place);
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.clear();
        match self.settings.prefetch {
            Kind::None => {}
            Kind::NextN | Kind::FeedbackDirected => {
                if self.settings.prefetch == Kind::FeedbackDirected {
                    self.sequential.follow(self.counts.feedback);
                }
                // The first hit on a prefetched page triggers, the others do not.
                if miss || !std::mem::replace(&mut self.pages.at_mut(place).tagged, true) {
                    let Sequential { degree, offset, .. } = self.sequential;
                    wanted.extend((1..=degree).map(|step| number + step + offset));
                }
            }
            Kind::BestOffset => {
                let base = number.checked_sub(self.best_offset.tested());
                let base = base.and_then(|base| self.pages.find(base));
                let known = base.is_some_and(|base| self.pages.at(base).in_history > 0);
                if let Some(forgotten) = self.best_offset.learn(number, known) {
                    let forgotten = self.page(forgotten);
                    self.pages.at_mut(forgotten).in_history -= 1;
                }
                self.pages.at_mut(place).in_history += 1;
                wanted.extend(self.best_offset.chosen().iter().map(|offset| number + offset));
            }
            Kind::Leap => {
                if miss {
                    self.leap.miss(number, self.counts.prefetch_hits, &mut wanted);
                }
            }
        }
        let last_page = self.settings.last_page;
        wanted.retain(|&number| {
            number <= last_page
                && self.pages.find(number).is_none_or(|place| {
                    let page = self.pages.at(place);
                    page.line == Line::NONE && page.row == Row::NONE && !page.in_flight
                })
        });
        // The subtractions wrap, as they do there, when more is outstanding than the queue's bound.
        let room = (PREFETCH_QUEUE - self.prefetching)
            .min(FLASH_QUEUE.wrapping_sub(self.outstanding).wrapping_sub(1));
        wanted.truncate(room as usize);
        for &number in &wanted {
            let place = self.page(number);
            self.pages.at_mut(place).prefetched = true;
        }
        for &number in &wanted {
            let place = self.page(number);
            self.pages.at_mut(place).in_flight = true;
            self.prefetching += 1;
            self.submit(place, Operation::Read);
        }
        self.wanted = wanted;
    }
}
