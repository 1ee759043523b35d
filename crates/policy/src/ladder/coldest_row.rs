//! Coldest row: the granules in a row of a tier that an item should be given when they have to be emptied for it.
//!
//! A page of slots costs its class its coldest items, wherever those lie: what is hotter moves to their slots. A run costs its own
//! item. So a row is judged by the tails of the classes that it lies in and by its runs, each by the inverse of the time for which it
//! was not used: the rate at which memory that has been idle for so long is expected to be used. Free granules cost nothing, and
//! rows begin where runs begin or end, so that large items come to lie close together.

use std::ops::Range;

use super::Context;
use super::classes::{Class, PAGE_GRANULES};
use super::residents::Residents;
use super::slots::{Holder, granules_on, pages_of};
use super::tail_age::tail_age;
use crate::Now;

/// Rows looked at, spread over a tier.
const ROWS: u32 = 64;
/// Rows looked at that begin where a run ends.
const ROWS_BEHIND_RUNS: u32 = 128;
/// Pages of a row that are asked what they cost.
const PAGES_ASKED: u32 = 16;
/// How many times as much a row costs that does not follow a run: what lies between the two is too short for large items. Where
/// rows follow runs, short gaps come together to long ones.
pub(super) const GAP_COSTS: f64 = 3.0;
/// How many times as much as the cheapest row one may cost that brings gaps together.
const MERGING_COSTS: f64 = 4.0;
/// How often as many others are looked at where something in each of them must stay.
pub(super) const ROUNDS: u32 = 4;

/// Rows of `granules` granules that lie spread over a tier, different ones in each round, the cheapest first.
pub(super) fn rows_by_cost(
    tier: usize,
    granules: u32,
    round: u32,
    residents: &mut Residents,
    context: &mut Context<'_>,
) -> Vec<Range<u32>> {
    let slots = &residents.levels[tier].slots;
    let pages_limit = slots.supply().limit();
    let pages = granules.div_ceil(PAGE_GRANULES);
    let Some(starts) = (pages_limit + 1).checked_sub(pages) else { return Vec::new() };
    let count = ROWS.min(starts);
    let parts = u64::from(count * ROUNDS);
    let spread = (0..count).map(|row| {
        let page = (u64::from(row * ROUNDS + round) * u64::from(starts) / parts) as u32;
        slots.start_of_row(page)
    });
    let mut firsts: Vec<u32> = spread.collect();
    firsts.push(0);
    let runs = slots.by_class().members(residents.classes.runs());
    if !runs.is_empty() {
        let behind = (0..ROWS_BEHIND_RUNS).map(|_| runs[context.rng.below(runs.len() as u64) as usize]);
        firsts.extend(behind.map(|head| slots.pages().run(head).end));
    }
    firsts.sort_unstable();
    firsts.dedup();
    firsts.retain(|first| first + granules <= pages_limit * PAGE_GRANULES);
    let mut costs = Costs { tier, tails: Vec::new(), residents, context };
    let mut rows: Vec<(f64, u32)> =
        firsts.into_iter().map(|first| (costs.of_row(&(first..first + granules)), first)).collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let slots = &residents.levels[tier].slots;
    if slots.supply().free() >= pages
        && let Some(&(least, _)) = rows.first()
    {
        // There is room, in gaps that are too short. Always the first gap passes a run, until it meets the next gap.
        let is_gap = |first: u32| {
            slots.pages().free_granules(first / PAGE_GRANULES) >> (first % PAGE_GRANULES) & 1 == 1
        };
        let gaps = rows.iter().filter(|row| row.0 <= least * MERGING_COSTS && is_gap(row.1));
        if let Some(&gap) = gaps.min_by_key(|row| row.1) {
            rows.insert(0, gap);
        }
    }
    rows.into_iter().map(|(_, first)| first..first + granules).collect()
}

/// The rate of uses that memory idle for `age` ticks is expected to see.
fn rate(age: u32) -> f64 {
    1.0 / (f64::from(age) + 1.0)
}

/// What rows of a tier cost, in expected uses of a page.
struct Costs<'a, 'b> {
    tier: usize,
    /// The rates of the classes' tails, as far as they were asked for.
    tails: Vec<Option<f64>>,
    residents: &'a mut Residents,
    context: &'a mut Context<'b>,
}

impl Costs<'_, '_> {
    fn of_row(&mut self, row: &Range<u32>) -> f64 {
        let pages = pages_of(row);
        let last = pages.end - 1;
        // Some pages speak for a long row; a run that lies only partly in it is seen at its end.
        let apart = (pages.len() as u32).div_ceil(PAGES_ASKED);
        let asked = pages.step_by(apart as usize).map(|page| self.of_page(page, row)).sum::<f64>();
        let at_end = if apart > 1 { self.of_runs(last, row, self.context.now) } else { 0.0 };
        let is_behind_run = row.start == 0 || self.is_run(row.start - 1);
        (asked * f64::from(apart) + at_end) * if is_behind_run { 1.0 } else { GAP_COSTS }
    }

    fn is_run(&self, granule: u32) -> bool {
        let pages = self.residents.levels[self.tier].slots.pages();
        pages.runs_on(granule / PAGE_GRANULES).any(|(run, _)| run.contains(&granule))
    }

    fn of_page(&mut self, page: u32, row: &Range<u32>) -> f64 {
        let pages = self.residents.levels[self.tier].slots.pages();
        if pages.is_free(page) {
            return 0.0;
        }
        let now = self.context.now;
        let Some(of_slots) = pages.page_use(page) else { return self.of_runs(page, row, now) };
        // Its own items need not move where they are cold.
        let own = pages.holders(page).next().map_or(0.0, |holder| self.of_holder(holder, now));
        (self.of_tail(of_slots.class) + own) / 2.0
    }

    /// What a page of runs costs: for each run that lies in the row its part of the page, and on the row's last page all of it that
    /// lies on that page or behind it.
    fn of_runs(&self, page: u32, row: &Range<u32>, now: Now) -> f64 {
        let pages = self.residents.levels[self.tier].slots.pages();
        let runs = pages.runs_on(page).filter(|(run, _)| run.start < row.end && row.start < run.end);
        let cost = runs.map(|(run, holder)| {
            let here = granules_on(page, &run).count_ones();
            let is_last = row.end.div_ceil(PAGE_GRANULES) == page + 1;
            let behind = if is_last { run.end.saturating_sub((page + 1) * PAGE_GRANULES) } else { 0 };
            f64::from(here + behind) / f64::from(PAGE_GRANULES) * self.of_holder(holder, now)
        });
        cost.sum()
    }

    fn of_holder(&self, holder: Holder, now: Now) -> f64 {
        let nodes = &self.residents.nodes;
        match holder {
            Holder::Item(id) if nodes.get(id).may_go() => rate(nodes.age(id, now)),
            // It must stay for now.
            Holder::Item(_) | Holder::Ghost => 1.0,
        }
    }

    fn of_tail(&mut self, class: Class) -> f64 {
        if self.tails.is_empty() {
            self.tails.resize(self.residents.classes.count(), None);
        }
        if let Some(rate) = self.tails[class.index()] {
            return rate;
        }
        let cost = tail_age(self.tier, class, self.residents, self.context).map_or(1.0, rate);
        self.tails[class.index()] = Some(cost);
        cost
    }
}
