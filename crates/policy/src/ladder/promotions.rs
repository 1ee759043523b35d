//! Who goes up: items of slower tiers whose uses show that they are worth a place in the tier above (Wang 2024, section 5.1.4).

use super::classes::{Class, Fit};
use super::learnt::Learnt;
use super::reclaim::Reclaim;
use super::residents::{Residents, Use};
use super::transit::Transit;
use super::{Context, LadderConfig, MoveKind};
use crate::column::Column;
use crate::promote::{Candidate, Candidates, Promotion, packed_reuse};
use crate::{Id, Now};

/// Of so many ticks the hits of one say how soon a tenant's items are used again.
const TENANT_REUSE_EVERY: u32 = 8;
/// A copy costs a fixed part and one per byte, a slow hit hardly anything per byte: at about this size it takes twice as
/// many hits to pay for a promotion as at the smallest.
const PROMOTE_TWICE_BYTES: u64 = 10 << 10;
/// The longest unused of K items that are all used alike has waited about so many times their mean reuse time: the K-th harmonic
/// number, 3.4 for 16.
const WAITS_LONGER: u32 = 4;

/// The items that may go up.
#[derive(Clone, Debug)]
pub(super) struct Promotions {
    candidates: Candidates,
    /// Last reuse time per item, only for promotion by scanning.
    reuse: Option<Column<u8>>,
    next_scan: u64,
    /// [`LadderConfig::promote_below`] in parts of [`crate::promote::WHOLE`].
    below: u32,
}

impl Promotions {
    pub fn new(config: &LadderConfig) -> Self {
        Promotions {
            candidates: Candidates::new(config.candidates.max(1)),
            reuse: (config.promotion == Promotion::ReuseTimeScan).then(Column::default),
            next_scan: 0,
            below: config.promote_below_parts(),
        }
    }

    /// The parameters have changed.
    pub fn tune(&mut self, config: &LadderConfig) {
        self.below = config.promote_below_parts();
    }

    /// Learns from a use, and notes whether the item should go up.
    #[inline]
    pub fn note_use(
        &mut self,
        id: Id,
        tenant: Option<u16>,
        used: &Use,
        learnt: &mut Learnt,
        residents: &mut Residents,
    ) {
        let Use { place, age, recency } = *used;
        let tier = usize::from(place.tier());
        match residents.config.promotion {
            Promotion::None => return,
            Promotion::Naive if tier > 0 => return self.candidates.push(Candidate { id, reuse: 0 }),
            Promotion::Naive => return,
            Promotion::ReuseTwice | Promotion::ReuseTime | Promotion::ReuseTimeScan | Promotion::TailAge => {}
        }
        // In ticks; a reuse within one counts as one.
        let reuse = u64::from(age).max(1);
        learnt.note_reuse(tier, reuse);
        // A few hits show the mean of a tenant, and each costs a place in memory.
        let has_tiers = residents.levels.len() > 1;
        if let Some(tenants) = residents.orders.tenants_mut()
            && has_tiers
            && recency.is_multiple_of(TENANT_REUSE_EVERY)
        {
            tenants.note_reuse(tenant.unwrap_or_else(|| tenants.owner(id)), tier, reuse);
        }
        if tier == 0 {
            return;
        }
        if let Some(column) = &mut self.reuse {
            // 0 there means never reused.
            *column.at(id) = packed_reuse::pack(reuse);
            return;
        }
        let twice = residents.config.promotion == Promotion::ReuseTwice;
        let tenant = tenant.unwrap_or_else(|| residents.tenant_of(id));
        if !self.is_hot(tenant, used, reuse, learnt, residents) {
            if twice {
                // The next use is the first of two again.
                let cell = residents.nodes.at(id);
                *cell = cell.with_fresh(true);
            }
        } else if !(twice && place.is_fresh()) {
            self.candidates.push(Candidate { id, reuse: age.max(1) });
        }
    }

    /// Whether the reuse time of a tenant's item is short enough for the tier above.
    #[inline]
    fn is_hot(&self, tenant: u16, used: &Use, reuse: u64, learnt: &Learnt, residents: &Residents) -> bool {
        let tier = usize::from(used.place.tier());
        let is_below_mean = |reuse| match residents.orders.tenants() {
            Some(tenants) => tenants.is_below_mean(tenant, tier - 1, reuse, self.below),
            None => learnt.is_below_mean(tier - 1, reuse, self.below),
        };
        match residents.config.promotion {
            Promotion::TailAge => learnt.is_below_tail_age(tier - 1, reuse, self.below),
            Promotion::ReuseTwice => {
                // A larger item must save more hits to be worth its copies.
                let bytes = residents.levels[tier].slots.pages().bytes_at(used.place.unit());
                is_below_mean(reuse + reuse * bytes / PROMOTE_TWICE_BYTES)
            }
            _ => is_below_mean(reuse),
        }
    }

    /// A new item comes in, perhaps with the new bytes of another.
    pub fn note_entered(&mut self, id: Id, rewrites: Option<Id>) {
        if let Some(column) = &mut self.reuse {
            *column.at(id) = 0;
        }
        if let Some(old) = rewrites {
            self.candidates.rename_last(old, id);
        }
    }

    /// Wang's own way to find candidates: the heads of the slow lists, now and then.
    #[inline]
    pub fn scan(&mut self, learnt: &Learnt, residents: &Residents, now: Now) {
        let Some(column) = &self.reuse else { return };
        if now.requests < self.next_scan {
            return;
        }
        self.next_scan = now.requests + residents.config.scan_requests;
        for tier in 1..residents.levels.len() {
            for class in 0..=residents.classes.count() {
                residents.orders.hottest(tier, Class(class as u8), residents.config.scan_depth, |id| {
                    let reuse = packed_reuse::unpack(column.get(id));
                    if reuse != 0 && learnt.is_below_mean(tier - 1, reuse, self.below) {
                        let reuse = reuse.min(u64::from(u32::MAX)) as u32;
                        self.candidates.push(Candidate { id, reuse });
                    }
                });
            }
        }
    }

    /// Moves candidates up, making room by demoting where the faster tier has none. Whether some wait for the next step.
    #[inline]
    pub fn promote(&mut self, transit: &mut Transit, context: &mut Context<'_>) -> bool {
        let mut budget = transit.residents.config.promote_batch;
        let mut reclaimed = false;
        let mut is_behind = false;
        for _ in 0..self.candidates.len() {
            if budget == 0 {
                return true;
            }
            let Some(candidate) = self.candidates.pop() else { break };
            let Candidate { id, reuse } = candidate;
            let place = transit.residents.nodes.get(id);
            // The number may have been given to another item since; that one is judged on its own merits.
            if place.is_free() || place.tier() == 0 || !place.may_go() {
                continue;
            }
            let (tier, above) = (usize::from(place.tier()), usize::from(place.tier()) - 1);
            let fit = transit.residents.levels[tier].slots.pages().fit_at(place.unit());
            if matches!(fit, Fit::Run(pages) if !transit.residents.levels[above].can_hold(pages)) {
                continue;
            }
            let class = transit.residents.classes.class(fit);
            let wanted_by = transit.residents.tenants().map(|tenants| tenants.owner(id));
            let context = &mut context.wanted_by(wanted_by);
            if transit.residents.config.promotion == Promotion::Naive
                && let Some(coldest) = transit.residents.victim(above, class, context)
                && transit.residents.nodes.age(coldest, context.now)
                    <= transit.residents.nodes.age(id, context.now)
            {
                continue;
            }
            budget -= 1;
            if deserves_less(id, reuse, (above, class), &mut transit.residents, context)
                || transit.open_move(id, above, MoveKind::Promote, context).is_some()
            {
                continue;
            }
            if make_room(fit, (tier, above), &mut reclaimed, transit, context) {
                // There will be room at the next step.
                self.candidates.push(candidate);
                is_behind = true;
            }
        }
        is_behind
    }

    /// There are numbers up to this one.
    pub fn grow_to(&mut self, last: Id) {
        if let Some(column) = &mut self.reuse {
            column.grow_to(last);
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.reuse.as_ref().map_or(0, Column::bytes)
    }

    /// There are no items any more.
    pub fn clear(&mut self, config: &LadderConfig) {
        self.reuse = self.reuse.is_some().then(Column::default);
        self.candidates = Candidates::new(config.candidates.max(1));
    }
}

/// Whether an item whose tenant has its part of the tier above already is no hotter than the one of that tenant that would go.
///
/// Those that a tenant has above are not all hotter than its others: in a loop or a scan all are alike, and would only
/// change places.
fn deserves_less(
    id: Id,
    reuse: u32,
    (above, class): (usize, Class),
    residents: &mut Residents,
    context: &mut Context<'_>,
) -> bool {
    let level = &residents.levels[above];
    let kept = residents.config.watermarks.map_or(0.0, |marks| marks.high) * level.usable_bytes() as f64;
    if level.slots.free_bytes() as f64 > kept {
        return false;
    }
    let items = (&residents.nodes, &level.slots);
    let coldest = residents.orders.own_coldest(id, (above, class), items, context.now, context.rng);
    coldest.is_some_and(|age| age <= reuse.saturating_mul(WAITS_LONGER))
}

/// Makes room for an item that goes up, by demoting another or, once in a step, taking a page back. Whether there will be.
fn make_room(
    fit: Fit,
    (tier, above): (usize, usize),
    reclaimed: &mut bool,
    transit: &mut Transit,
    context: &mut Context<'_>,
) -> bool {
    let class = transit.residents.classes.class(fit);
    let victim = transit.residents.victim(above, class, context);
    match victim.filter(|&id| transit.residents.is_large_enough(id, fit)) {
        Some(coldest) => transit.open_move(coldest, tier, MoveKind::Demote, context).is_some(),
        // A page here and a page there make no run.
        None if matches!(fit, Fit::Run(2..)) => false,
        None => {
            !std::mem::replace(reclaimed, true)
                && Reclaim::in_background(above, transit).pages(1, transit, context)
        }
    }
}
