//! Huge pages that are hotter than their one bit tells: which of them to examine, and what that says of the others.

use std::cmp::Reverse;

use super::granule::{Examined, Granule};
use super::{HUGE_BYTES, HUGE_PAGES, Sampler, Span};

/// Accesses to a huge page in a second from which on its bit tells little: some windows would have to be shorter than the calls to
/// clear it and to read it take together.
pub const TOO_FAST_PER_S: f64 = 4000.0;
/// And accesses to be expected in the shortest window that there was: where only huge pages lie near, windows are shorter, and bits
/// tell more.
const TOO_FAST: f64 = 0.6;
/// One that was examined is not too fast any more only below such a part of that: the rate that bits tell varies.
const STAYS: f64 = 4.0;
/// Slices for which what was seen of a huge page's pages holds, as long as it stays so fast.
const HOLDS_SLICES: u64 = 24;
/// It is examined again only after so many.
const AGAIN_SLICES: u64 = 4;
/// Two that were examined agree on what lies between them if their rates differ by no more than this.
const AGREE: f64 = 4.0;
/// Share of neighbours that agree where heat goes by place.
const BY_PLACE: f64 = 0.8;
/// Examined ones whose bits say the same calibrate what the bits of others say.
const CALIBRATED_BY: usize = 8;

impl Sampler {
    /// Chooses huge pages to examine in the next pass, no more than may be, by their first addresses: of the granules that are wanted
    /// and whose huge pages are too fast for their bits, first those that were not examined for longest, and of them those whose bits
    /// tell most. The body has the kernel map each of them page by page, and calls [`Self::end_examining`] after the pass.
    pub fn examine(&mut self, is_wanted: impl Fn(Span) -> bool) -> Vec<u64> {
        let most = self.examinations.left() as usize;
        let rng = &mut self.rng;
        let mut hot: Vec<(u64, Reverse<u64>, u64, usize)> = (self.granules.iter().enumerate())
            .filter(|(_, it)| it.is_too_fast && it.small_pages == 0 && is_wanted(it.span))
            .filter(|(_, it)| it.examined_at.is_none_or(|at| at.slice + AGAIN_SLICES <= self.slices))
            .map(|(at, granule)| {
                // Rates are positive: their order is that of their bits.
                let per_s = Reverse(granule.huge.rate.per_page_s().to_bits());
                (granule.examined_at.map_or(0, |it| it.slice), per_s, rng.next_u64(), at)
            })
            .collect();
        hot.sort_unstable();
        let chosen: Vec<u64> = (hot.into_iter().take(most))
            .filter_map(|(.., at)| {
                let granule = &mut self.granules[at];
                let first = granule.span.start.next_multiple_of(HUGE_BYTES);
                let pages = granule.span.end.checked_sub(first)? / HUGE_BYTES;
                let huge = first + rng.below(pages.max(1)) * HUGE_BYTES;
                let is_all_huge = pages == u64::from(granule.huge_pages);
                granule.examining = is_all_huge.then_some(huge);
                granule.examining
            })
            .collect();
        self.examinations.spend(chosen.len() as f64);
        chosen
    }

    /// Huge pages that were examined are whole again.
    pub fn end_examining(&mut self) {
        self.forget_examined_parts();
        self.granules.iter_mut().filter(|it| it.examining.is_some()).for_each(Granule::end_examining);
    }

    /// Granules whose huge pages are too fast for their bits, and were not examined for a while.
    pub fn granules_too_fast(&self) -> usize {
        let is_unknown = |granule: &&Granule| granule.is_too_fast && self.held(granule).is_none();
        self.granules.iter().filter(is_unknown).count()
    }

    fn held(&self, granule: &Granule) -> Option<f64> {
        let holds = |it: &Examined| granule.is_too_fast && it.slice + HOLDS_SLICES > self.slices;
        granule.examined_at.filter(holds).map(|it| it.per_s)
    }

    /// Accesses to a huge page of each granule in a second of the slice.
    pub(super) fn huge_rates(&mut self) -> Vec<f64> {
        let slice = self.slices;
        let mut bits: Vec<f64> = Vec::with_capacity(self.granules.len());
        for granule in &mut self.granules {
            // It is not as hot as it was when it was examined.
            if granule.examined_at.is_some_and(|it| granule.huge.contradicts(it.per_s)) {
                granule.examined_at = None;
            }
            let shortest_s = granule.huge.shortest_s();
            let per_s = granule.huge.take();
            bits.push(per_s);
            // What was seen of its pages is given up only if bits clearly tell its rate.
            let too_fast = if granule.examined_at.is_some() { TOO_FAST / STAYS } else { TOO_FAST };
            granule.is_too_fast =
                granule.huge_pages > 0 && per_s >= TOO_FAST_PER_S && per_s * shortest_s >= too_fast;
            if granule.examined.is_seen() {
                let per_s = granule.examined.take() * f64::from(HUGE_PAGES);
                granule.examined_at = Some(Examined { per_s, slice });
            }
        }
        let held: Vec<Option<f64>> = self.granules.iter().map(|granule| self.held(granule)).collect();
        let below = nearest(held.iter().copied());
        let above: Vec<Option<f64>> = nearest(held.iter().rev().copied()).into_iter().rev().collect();
        let mut known: Vec<(f64, f64)> =
            held.iter().zip(&bits).filter_map(|(held, bits)| held.map(|held| (*bits, held / bits))).collect();
        known.sort_by(|one, other| one.0.total_cmp(&other.0));
        // Where heat goes by place most of them agree with the next one; by chance about half of them do.
        let examined: Vec<f64> = held.iter().flatten().copied().collect();
        let agreeing = examined.windows(2).filter(|pair| agree(pair[0], pair[1])).count();
        let goes_by_place = agreeing as f64 >= BY_PLACE * examined.len().saturating_sub(1) as f64;
        let of = |at: usize| match (held[at], below[at], above[at]) {
            _ if !self.granules[at].is_too_fast => bits[at],
            (Some(held), ..) => held,
            (_, Some(below), Some(above)) if goes_by_place && agree(below, above) => (below * above).sqrt(),
            _ => bits[at] * calibration(&known, bits[at]),
        };
        (0..bits.len()).map(of).collect()
    }
}

fn agree(one: f64, other: f64) -> bool {
    one < other * AGREE && other < one * AGREE
}

/// How much faster those are that were examined and whose bits say about the same.
fn calibration(known: &[(f64, f64)], bits: f64) -> f64 {
    let at = known.partition_point(|(of, _)| *of < bits);
    let from = at.saturating_sub(CALIBRATED_BY / 2).min(known.len().saturating_sub(CALIBRATED_BY));
    let mut near: Vec<f64> = known[from..].iter().take(CALIBRATED_BY).map(|(_, ratio)| *ratio).collect();
    near.sort_by(f64::total_cmp);
    near.get(near.len() / 2).copied().unwrap_or(1.0)
}

/// The last value that there was, at each place.
fn nearest(values: impl Iterator<Item = Option<f64>>) -> Vec<Option<f64>> {
    let mut last = None;
    let of = |value: Option<f64>| {
        last = value.or(last);
        last
    };
    values.map(of).collect()
}
