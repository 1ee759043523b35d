//! The work between requests: expiry, eviction, demotion, promotion, in batches (Wang 2024, sections 5.1.3 and 5.1.4).

use super::{Act, Admission, Class, Context, Fit, Ladder, MoveKind, Order, PAGE_BYTES, domain};
use crate::evict::Evict;
use crate::ladder::place::Place;
use crate::promote::{Candidate, Promotion, packed_reuse};
use crate::{Id, Now};
use tiermem_base::Rng;

/// A copy costs a fixed part and one per byte, a slow hit hardly anything per byte: at about this size it takes twice as
/// many hits to pay for a promotion as at the smallest.
const PROMOTE_TWICE_BYTES: u64 = 10 << 10;
/// Items given away from the coldest class before the coldest is looked for again.
const PRESSED_BATCH: u32 = 8;
/// Items that expire in one piece of work when nothing else is to be done.
const IDLE_EXPIRED: u32 = 256;
/// How often in a row used items are passed over in vain before a class's last item goes all the same.
const PASSES_MAX: u8 = 8;
/// The longest unused of K items that are all used alike has waited about so many times their mean reuse time: the K-th harmonic
/// number, 3.4 for 16.
const WAITS_LONGER: u32 = 4;
/// Budgets of steps that come late: at most so many times those of one in time.
const LATE_MAX: u64 = 32;
/// Pages of a tier taken back in one step when it is above its limit.
const RECLAIM_BATCH: u32 = 4;
/// Once so many acts are decided no further page is taken back in this step.
const ACTS_MAX: usize = 512;
/// Pieces of waste dropped when nothing else is to be done.
const WASTE_IDLE: u32 = 16;
/// Classes that hold less keep nothing free: a slot would be too large a share.
const KEEP_FREE_FROM: u64 = 8;

/// How much of `held` must be free for a watermark.
pub(super) fn threshold(held: u64, share: f64) -> u64 {
    if held < KEEP_FREE_FROM { 0 } else { (held as f64 * share).ceil() as u64 }
}

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
        self.is_behind = false;
        // One request may stand for many: it makes one step, and brings as many items as they would.
        let late_requests = now.requests.saturating_sub(self.next_step);
        let scale = (1 + late_requests / self.config.step_requests.max(1)).min(LATE_MAX) as u32;
        for level in &mut self.levels {
            level.reuse.roll(now.requests);
        }
        if let Some(tenants) = &mut self.tenants {
            tenants.roll((now.requests / (self.config.reuse_window_requests / 2).max(1)) as u32);
        }
        self.waste.shrink();
        self.limit_pages();
        self.end_abandoned_clearings(now);
        let evict_batch = self.config.evict_batch.saturating_mul(scale);
        let demote_batch = self.config.demote_batch.saturating_mul(scale);
        let expired = self.expire(now, evict_batch, context.acts);
        for tier in (0..self.levels.len()).rev() {
            self.keep_within_limit(tier, context);
            let is_last = tier + 1 == self.levels.len();
            let budget = if is_last { evict_batch.saturating_sub(expired) } else { demote_batch };
            self.relieve(tier, budget, context);
            self.go_on_emptying(tier, context);
        }
        self.scan(now);
        self.promote(context);
        for (tier, level) in self.levels.iter_mut().enumerate() {
            if let Some(page) = level.slots.take_surplus() {
                context.acts.push(Act::Discard { tier: tier as u8, page });
            }
        }
        self.populate_ahead(context.acts);
        self.next_step = now.requests + if self.is_behind { 1 } else { self.config.step_requests };
    }

    /// Takes back pages above the limit: metadata has grown into the tier, or the tier was made smaller.
    fn keep_within_limit(&mut self, tier: usize, context: &mut Context<'_>) {
        for _ in 0..RECLAIM_BATCH {
            if context.acts.len() >= ACTS_MAX {
                break;
            }
            let slots = &self.levels[tier].slots;
            let is_enough = slots.supply().used() <= slots.supply().limit();
            if !self.empty_behind_end(tier, self.evictable_bytes(), context)
                && (is_enough || !self.reclaim_or_force(tier, context))
            {
                break;
            }
        }
    }

    /// Takes a page back, from whomever it is where nobody else has one to give.
    fn reclaim_or_force(&mut self, tier: usize, context: &mut Context<'_>) -> bool {
        let evictable_bytes = self.evictable_bytes();
        if self.reclaim(tier, 1, evictable_bytes, context) {
            return true;
        }
        if self.tenants.is_none() {
            return false;
        }
        self.reclaim(tier, 1, evictable_bytes, &mut context.forced())
    }

    /// Work that needs no request: expiry only (and memory given back and taken, which decides nothing), so that a simulator, which has no
    /// idle time, sees the same.
    pub fn idle(&mut self, now: Now, acts: &mut Vec<Act>) {
        (0..WASTE_IDLE).for_each(|_| self.waste.shrink());
        self.populate_ahead(acts);
        self.expire(now, IDLE_EXPIRED, acts);
    }

    /// Brings a tier from the low to the high watermark: class by class, then as a whole; `budget` items at most.
    fn relieve(&mut self, tier: usize, mut budget: u32, context: &mut Context<'_>) {
        let Some(marks) = self.config.watermarks else { return };
        let is_last = tier + 1 == self.levels.len();
        if is_last && !self.may_evict() {
            return;
        }
        let mut short = self.levels[tier].short;
        while short != 0 && budget > 0 {
            let level = &self.levels[tier];
            let class = Class(short.trailing_zeros() as u8);
            let bit = 1 << class.index();
            let (free, held) = level.slots.class_space(class);
            let will_be_free = free + u64::from(level.leaving[class.index()]);
            let starved = u64::from(level.starved >> class.index() & 1 == 1);
            let is_enough = will_be_free >= threshold(held, marks.high).max(starved);
            if is_enough || self.page_comes(tier, class, context) {
                (short, self.levels[tier].short) = (short & !bit, self.levels[tier].short & !bit);
            } else if self.levels[tier].passes < PASSES_MAX && !self.victim_is_at_hand(tier, class) {
                // Next step.
                self.levels[tier].passes += 1;
                short &= !bit;
            } else if self.give_one(tier, class, context) {
                self.levels[tier].passes = 0;
                budget -= 1;
            } else {
                (short, self.levels[tier].short) = (short & !bit, self.levels[tier].short & !bit);
            }
        }
        let capacity_bytes = u64::from(self.levels[tier].slots.supply().limit()) * PAGE_BYTES;
        let free = |ladder: &Self| ladder.levels[tier].slots.free_bytes() + ladder.levels[tier].leaving_bytes;
        if free(self) < (capacity_bytes as f64 * marks.low) as u64 {
            self.levels[tier].pressed = true;
        }
        while self.levels[tier].pressed && budget > 0 {
            if let Some((class, left)) = self.levels[tier].coldest_class
                && !self.victim_is_at_hand(tier, class)
            {
                self.levels[tier].coldest_class = (left > 1).then_some((class, left - 1));
                break;
            }
            let gave = self.give_coldest(tier, context);
            budget -= u32::from(gave);
            if !gave || free(self) >= (capacity_bytes as f64 * marks.high) as u64 {
                self.levels[tier].pressed = false;
                self.levels[tier].coldest_class = None;
            }
        }
        self.is_behind |= self.levels[tier].pressed || self.levels[tier].short != 0;
    }

    /// Moves the tier's coldest item down or out. With lists that means to look at all of them, so several are taken from
    /// the coldest one, over as many steps as it takes, before it is looked for again.
    fn give_coldest(&mut self, tier: usize, context: &mut Context<'_>) -> bool {
        if let Some((class, left)) = self.levels[tier].coldest_class.take()
            && self.give_one(tier, class, context)
        {
            self.levels[tier].coldest_class = (left > 1).then_some((class, left - 1));
            return true;
        }
        let Some(id) = self.coldest(tier, context) else { return false };
        let class = self.levels[tier].slots.pages().class_at(self.loc(id).unit);
        let gave = self.give(tier, class, id, context);
        if gave && self.levels[tier].order == Order::Lists {
            self.levels[tier].coldest_class = Some((class, PRESSED_BATCH - 1));
        }
        gave
    }

    /// Moves a class's coldest item down or out.
    pub(super) fn give_one(&mut self, tier: usize, class: Class, context: &mut Context<'_>) -> bool {
        self.victim(tier, class, context).is_some_and(|victim| self.give(tier, class, victim, context))
    }

    /// Moves an item down, or out of the last tier. The next tier, if it is the last, evicts for it
    /// when it must: this is background work, not an admission (Wang 2024, section 5.1.4.3).
    pub(super) fn give(&mut self, tier: usize, class: Class, victim: Id, context: &mut Context<'_>) -> bool {
        self.note_victim(tier, victim, context.now);
        let below = tier + 1;
        if below == self.levels.len() {
            let goes = self.may_evict();
            if goes {
                self.evict(victim, context);
            }
            return goes;
        }
        if self.open_move(victim, below, MoveKind::Demote, context).is_some() {
            return true;
        }
        if below + 1 != self.levels.len() {
            return false;
        }
        match self.victim(below, class, context).filter(|_| self.may_evict()) {
            Some(coldest) => self.evict(coldest, context),
            None => {
                self.reclaim(below, 1, self.evictable_bytes(), context);
            }
        }
        self.open_move(victim, below, MoveKind::Demote, context).is_some()
    }

    /// Learns from a victim: at which age the items of the tier leave it, and whether new ones were used.
    pub(super) fn note_victim(&mut self, tier: usize, victim: Id, now: Now) {
        let age = u64::from(self.age(victim, now));
        let place = self.places.get(victim);
        if tier == 0 && place.is_fresh() && self.config.admission == Admission::Proven {
            let fit = self.levels[0].slots.pages().fit_at(place.unit());
            self.proof.note(self.units(fit), false);
        }
        let tail_age = &mut self.levels[tier].tail_age;
        *tail_age = *tail_age - *tail_age / 64 + age;
    }

    /// Whether the reuse time of a tenant's item is short enough for the tier above.
    #[inline]
    pub(super) fn is_hot(&self, tenant: u16, tier: usize, reuse: u64, place: Place) -> bool {
        let above = &self.levels[tier - 1];
        let is_below_mean = |reuse| match &self.tenants {
            Some(tenants) => tenants.is_below_mean(tenant, tier - 1, reuse, self.promote_below),
            None => above.reuse.is_below_mean(reuse, self.promote_below),
        };
        match self.config.promotion {
            Promotion::TailAge => reuse << 14 < above.tail_age * u64::from(self.promote_below),
            Promotion::ReuseTwice => {
                // A larger item must save more hits to be worth its copies.
                let bytes = self.levels[tier].slots.pages().bytes_at(place.unit());
                let weighed = reuse + reuse * bytes / PROMOTE_TWICE_BYTES;
                is_below_mean(weighed)
            }
            _ => is_below_mean(reuse),
        }
    }

    /// Wang's own way to find candidates: the heads of the slow lists, now and then.
    fn scan(&mut self, now: Now) {
        let Some(column) = &self.reuse else { return };
        if now.requests < self.next_scan {
            return;
        }
        self.next_scan = now.requests + self.config.scan_requests;
        for tier in 1..self.levels.len() {
            let (window, below) = (&self.levels[tier - 1].reuse, self.promote_below);
            for class in 0..=self.classes.count() {
                let list = domain(&self.classes, tier, Class(class as u8));
                self.lists.hottest(list, self.config.scan_depth, |id| {
                    let reuse = packed_reuse::unpack(column.get(id));
                    if reuse != 0 && window.is_below_mean(reuse, below) {
                        let reuse = reuse.min(u64::from(u32::MAX)) as u32;
                        self.candidates.push(Candidate { id, reuse });
                    }
                });
            }
        }
    }

    /// Whether an item whose tenant has its part of the tier above already is no hotter than the one of that tenant that would go.
    ///
    /// Those that a tenant has above are not all hotter than its others: in a loop or a scan all are alike, and would only
    /// change places.
    fn deserves_less(
        &mut self,
        id: Id,
        reuse: u32,
        above: usize,
        class: Class,
        context: &mut Context<'_>,
    ) -> bool {
        if self.has_spare_room(above) {
            return false;
        }
        match self.own_coldest(id, above, class, context) {
            Some(age) => age <= reuse.saturating_mul(WAITS_LONGER),
            None => false,
        }
    }

    /// Whether a tier has more free room than is kept free.
    fn has_spare_room(&self, tier: usize) -> bool {
        let slots = &self.levels[tier].slots;
        let capacity_bytes = u64::from(slots.supply().limit()) * PAGE_BYTES;
        let kept = self.config.watermarks.map_or(0.0, |marks| marks.high) * capacity_bytes as f64;
        slots.free_bytes() as f64 > kept
    }

    /// Moves candidates up, making room by demoting where the faster tier has none.
    fn promote(&mut self, context: &mut Context<'_>) {
        let mut budget = self.config.promote_batch;
        let mut reclaimed = false;
        for _ in 0..self.candidates.len() {
            if budget == 0 {
                self.is_behind = true;
                break;
            }
            let Some(Candidate { id, reuse }) = self.candidates.pop() else { break };
            let place = self.places.get(id);
            // The number may have been given to another item since; that one is judged on its own merits.
            if place.is_free() || place.tier() == 0 || place.is_moving() || place.is_pinned() {
                continue;
            }
            let (tier, above) = (usize::from(place.tier()), usize::from(place.tier()) - 1);
            let fit = self.levels[tier].slots.pages().fit_at(place.unit());
            if matches!(fit, Fit::Run(pages) if pages > self.levels[above].slots.supply().limit() / 2) {
                continue;
            }
            let class = self.classes.class(fit);
            let wanted_by = self.tenants.is_some().then(|| self.tenant_of(id));
            let context = &mut context.wanted_by(wanted_by);
            if self.config.promotion == Promotion::Naive
                && let Some(coldest) = self.victim(above, class, context)
                && self.age(coldest, context.now) <= self.age(id, context.now)
            {
                continue;
            }
            budget -= 1;
            if self.deserves_less(id, reuse, above, class, context) {
                continue;
            }
            if self.open_move(id, above, MoveKind::Promote, context).is_some() {
                continue;
            }
            let victim = self.victim(above, class, context).filter(|&id| self.is_large_enough(id, fit));
            let room_comes = match victim {
                Some(coldest) => self.open_move(coldest, tier, MoveKind::Demote, context).is_some(),
                // A page here and a page there make no run.
                None if matches!(fit, Fit::Run(2..)) => false,
                None => {
                    !std::mem::replace(&mut reclaimed, true)
                        && self.reclaim(above, 1, self.evictable_bytes(), context)
                }
            };
            if room_comes {
                // There will be room at the next step.
                self.candidates.push(Candidate { id, reuse });
                self.is_behind = true;
            }
        }
    }
}
