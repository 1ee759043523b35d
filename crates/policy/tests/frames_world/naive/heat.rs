//! Uses of pages, and exchange by them, in the naive twin: every page is looked at for the hottest and the coldest.

use tiermem_policy::frames::Arrival;

use super::*;

/// What is counted over all pages.
pub struct Clock {
    now: u64,
    halved_at: u64,
    period: u64,
    last: Option<u32>,
    /// Tiers in place; 1 where pages do not change places by their uses.
    tiers: u8,
}

impl Clock {
    pub fn of(config: &Config) -> Self {
        let in_place = config.tiers.iter().filter(|tier| tier.in_place);
        let frames: u64 = in_place.clone().map(|tier| u64::from(tier.frames)).sum();
        let tiers = if config.arrival == Arrival::Spill { in_place.count() as u8 } else { 1 };
        Clock { now: 0, halved_at: 0, period: 16 * frames, last: None, tiers }
    }
}

impl Naive {
    pub(super) fn arrival(&self, owner: u16) -> u8 {
        let last = self.heat.tiers - 1;
        (0..last).find(|tier| self.free(*tier) > 0 && !self.at_quota(owner, *tier)).unwrap_or(last)
    }
    pub(super) fn heat_begins(&mut self, page: u32, is_used: bool) {
        if self.heat.tiers == 1 || !self.in_place(self.pages[page as usize].tier) {
            return;
        }
        self.heat.now += 1;
        self.page(page).heat = (0, self.heat.now);
        if is_used {
            self.heat.last = None;
            self.heat_up(page);
        }
    }
    pub(super) fn heat_up(&mut self, page: u32) {
        if self.heat.last.replace(page) == Some(page) {
            return;
        }
        self.heat.now += 1;
        self.page(page).heat = (self.pages[page as usize].heat.0 + 1, self.heat.now);
        if self.heat.now - self.heat.halved_at >= self.heat.period {
            self.heat.halved_at = self.heat.now;
            self.pages.iter_mut().for_each(|page| page.heat.0 /= 2);
        }
    }
    pub(super) fn heat_of_refused(&mut self, one: &Moving) {
        let ends = one.from.zip(one.to).filter(|(from, to)| from.max(to) < &self.heat.tiers);
        let Some((from, to)) = ends else { return };
        let uses = &mut self.page(one.page).heat.0;
        *uses = if to < from { 0 } else { 2 * *uses + 4 };
    }
    /// Pages of a tier that may move, with their heat.
    fn listed(&self, tier: u8) -> impl Iterator<Item = ((u64, u64), u32)> {
        let pages = (0..FRAMES).map(|page| (self.pages[page as usize].clone(), page));
        let listed =
            pages.filter(move |(it, page)| it.tier == Some(tier) && it.pins == 0 && !self.is_moving(*page));
        listed.map(|(it, page)| (it.heat, page))
    }
    /// The least used page, where pages go down by their uses.
    pub(super) fn least_used(&self, tier: u8) -> Option<u32> {
        if tier + 1 < self.heat.tiers { self.listed(tier).min().map(|(_, page)| page) } else { None }
    }
    /// Whether a tier holds more than it should.
    fn is_over(&self, tier: u8) -> bool {
        let level = self.config.tiers[tier as usize];
        let wanted = if self.refilling[tier as usize] { level.high } else { level.low };
        self.used(tier) - self.leaving(tier) + wanted > level.frames
    }
    /// Two pages change places, or one goes up; `false`: none should.
    pub(super) fn exchange(&mut self) -> bool {
        if self.free_moves() < 2 {
            return false;
        }
        for upper in 0..self.heat.tiers - 1 {
            let Some(((uses, _), hot)) = self.listed(upper + 1).max() else { continue };
            if self.is_over(upper) || self.is_over(upper + 1) || self.is_writing(hot) {
                continue;
            }
            if self.free(upper) > 0 {
                if uses < 4 {
                    continue;
                }
                self.bring(hot, upper, "Demand", false, Insertion::Mru);
                return true;
            }
            let Some(((cold_uses, _), cold)) = self.listed(upper).min() else { continue };
            if uses < 2 * cold_uses + 4 || self.is_writing(cold) {
                continue;
            }
            let Page { owner, zero, .. } = self.pages[cold as usize].clone();
            let to = (!zero).then_some(upper + 1);
            let kind = if zero { Kind::Drop } else { Kind::Demote };
            self.leave(cold, upper);
            let number = self.open(Moving::of(cold, kind, Some(upper), to, owner));
            self.acts.push(match to {
                None => format!("Drop {{ ticket: #{number}, frame: Frame({cold}), from: {upper}, to: None }}"),
                Some(to) => format!(
                    "Demote {{ ticket: #{number}, frame: Frame({cold}), from: {upper}, to: {to}, has_copy: false }}"
                ),
            });
            self.bring(hot, upper, "Demand", false, Insertion::Mru);
            return true;
        }
        false
    }
}
