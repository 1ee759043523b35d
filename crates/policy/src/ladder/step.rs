//! Steps: the work between requests, in batches: expiry, eviction, demotion, promotion (Wang 2024, sections 5.1.3 and 5.1.4).

use super::demotion::Giving;
use super::watermark_reclaim::Relief;
use super::{Act, Context, Ladder};
use crate::Now;
use tiermem_base::Rng;

/// Items that expire in one piece of work when nothing else is to be done.
const IDLE_EXPIRED: u32 = 256;
/// The budgets of a late step are at most this many times those of one in time.
const LATE_MAX: u64 = 32;
/// Pieces of waste dropped when nothing else is to be done.
const DEFERRED_FREE_IDLE: u32 = 16;

impl Ladder {
    /// Whether the next [`Self::step`] is due.
    #[inline]
    pub fn is_due(&self, now: Now) -> bool {
        now.requests >= self.next_step
    }

    /// One step of background work; all moves under way have been `done`. Each kind of work has a budget, so a step is
    /// short. Where it leaves some, the next one is due at the next request and not only after
    /// [`super::LadderConfig::step_requests`]: what has to be moved is spread over requests, and none waits for all of it.
    pub fn step(&mut self, now: Now, rng: &mut Rng, acts: &mut Vec<Act>) {
        let context = &mut Context::new(now, rng, acts);
        self.begin_step(now);
        let config = &self.transit.residents.config;
        // One request may stand for many: it makes one step, and brings as many items as they would.
        let late_requests = now.requests.saturating_sub(self.next_step);
        let scale = (1 + late_requests / config.step_requests.max(1)).min(LATE_MAX) as u32;
        let step_requests = config.step_requests;
        let evict_batch = config.evict_batch.saturating_mul(scale);
        let demote_batch = config.demote_batch.saturating_mul(scale);
        let (expired, mut is_behind) = self.transit.expire(now, evict_batch, context.acts);
        let Ladder { transit, learnt, promotions, relief, exchange, .. } = self;
        for tier in (0..transit.residents.levels.len()).rev() {
            Relief::keep_within_limit(tier, transit, context);
            let is_last = tier + 1 == transit.residents.levels.len();
            let budget = if is_last { evict_batch.saturating_sub(expired) } else { demote_batch };
            let giving = &mut Giving { transit, learnt };
            is_behind |= relief.relieve(tier, budget, exchange, giving, context);
            exchange.go_on(tier, giving, context);
        }
        promotions.scan(learnt, &transit.residents, now);
        is_behind |= promotions.promote(transit, learnt, context);
        for (tier, level) in transit.residents.levels.iter_mut().enumerate() {
            let (touched, supply, pages) = level.slots.touched_mut();
            if let Some(page) = touched.take_surplus(supply, pages) {
                context.acts.push(Act::Discard { tier: tier as u8, page });
            }
        }
        self.populate_ahead(context.acts);
        self.next_step = now.requests + if is_behind { 1 } else { step_requests };
    }

    /// Work at the begin of a step: reuse windows roll on, deferred memory is freed, the pages of tier 0 are limited to its
    /// capacity, and abandoned windows are given up.
    fn begin_step(&mut self, now: Now) {
        self.learnt.roll(&self.transit.residents, now);
        let half_window = (self.transit.residents.config.reuse_window_requests / 2).max(1);
        if let Some(tenants) = self.transit.residents.orders.tenants_mut() {
            tenants.roll((now.requests / half_window) as u32);
        }
        self.charges.deferred_free().shrink();
        self.limit_pages();
        self.clearings.end_abandoned(&mut self.transit.residents, now);
    }

    /// Work that needs no request: expiry only (and memory given back and taken, which decides nothing), so that a simulator, which has no
    /// idle time, sees the same. Returns whether more items may have expired.
    pub fn idle(&mut self, now: Now, acts: &mut Vec<Act>) -> bool {
        (0..DEFERRED_FREE_IDLE).for_each(|_| self.charges.deferred_free().shrink());
        self.populate_ahead(acts);
        self.transit.expire(now, IDLE_EXPIRED, acts).1
    }

    /// Says which memory is to be taken before it is needed: for each tier a row of pages at a time.
    fn populate_ahead(&mut self, acts: &mut Vec<Act>) {
        for (tier, level) in self.transit.residents.levels.iter_mut().enumerate() {
            let (touched, supply, _) = level.slots.touched_mut();
            if let Some(pages) = touched.take_ahead(supply) {
                acts.push(Act::Populate { tier: tier as u8, first: pages.start, count: pages.len() as u32 });
            }
        }
    }
}
