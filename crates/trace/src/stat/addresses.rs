//! Address statistics of memory traces (Yang 2023, tables 2 and 5): the footprint in pages, and two numbers between 0 and 1 for
//! locality in space and in time.
//!
//! The paper computes the two by the block and the stack affinity of Fox, Lojpur and Wang (MASCOTS 2008). That definition was
//! not at hand, so those here are **our own**, made to the same end: 1 for the most local trace there can be and about 0 for one
//! without locality, whatever the footprint. Both count in orders of magnitude, since a distance of ten pages and one of
//! twenty are alike to caches and prefetchers, and ten and ten thousand are not. With `N` different pages, and `digits(x)` the
//! binary digits of `x` (0 has none):
//!
//! - *temporal*: an access to a page after `d` other pages have been accessed counts `1 - digits(d) / digits(N - 1)`: 1 if it is
//!   the page of the access before, 0 at the distance at which a loop over all pages finds each of them again. The first
//!   access to a page counts 0.
//! - *spatial*: an access `d` pages from the last load or the last store, whichever is nearer, counts
//!   `1 - digits(d) / digits(N - 1)`, but not less than 0. Both are looked at because lines are filled in one place and written
//!   back in another at the same time. The first access of the trace is left out.
//!
//! The mean over the accesses is the number. Of a trace with a single page both are 1. Accesses at random come to about
//! `1.4 / digits(N)` in time, 0.07 with a million pages.

use serde::Serialize;
use tiermem_base::hash::{Sample, sample_hash};
use tiermem_base::intern::Interner;
use tiermem_base::recency::Recency;
use tiermem_base::{Access, Op};

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;
/// Binary digits that a number of 64 bits can have, and none.
const DIGITS: usize = 65;

/// Statistics of a memory trace, by pages of 4096 bytes. Fields are stable.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AddressStat {
    /// Bytes of the different pages that were accessed.
    pub footprint_bytes: u64,
    /// How near accesses lie to those just before them, from 0 to 1; see the definition in `docs/traces.md`.
    pub spatial_locality: f64,
    /// How soon pages are accessed again, from 0 to 1.
    pub temporal_locality: f64,
}

/// Watches the loads and stores of a trace; the memory that it takes goes by the pages, or by the pages sampled.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    sample: Sample,
    rate: f64,
    pages: Interner,
    recency: Recency,
    /// Accesses to sampled pages, and of these, those that were not the first, by the digits of their distance.
    sampled: u64,
    again: [u64; DIGITS],
    /// Accesses but for the first, by the digits of the distance in space.
    apart: [u64; DIGITS],
    /// The pages of the last load and of the last store.
    last: [Option<u64>; 2],
}

fn digits(number: u64) -> usize {
    (u64::BITS - number.leading_zeros()) as usize
}

impl Addresses {
    pub fn new(rate: f64) -> Self {
        Addresses {
            sample: Sample::with_rate(rate),
            rate,
            pages: Interner::new(),
            recency: Recency::of_objects(),
            sampled: 0,
            again: [0; DIGITS],
            apart: [0; DIGITS],
            last: [None; 2],
        }
    }

    /// Takes an access in; other operations than load, store and unknown are none of memory.
    #[inline]
    pub fn observe(&mut self, access: &Access) {
        let kind = match access.op {
            Op::Load | Op::Unknown => 0,
            Op::Store => 1,
            _ => return,
        };
        let page = access.key / PAGE_BYTES;
        if let Some(nearest) = self.last.iter().flatten().map(|last| last.abs_diff(page)).min() {
            self.apart[digits(nearest)] += 1;
        }
        self.last[kind] = Some(page);
        if self.rate < 1.0 && !self.sample.holds(sample_hash(page)) {
            return;
        }
        self.sampled += 1;
        let (id, _) = self.pages.intern(page);
        if let Some(found) = self.recency.access(id, 1) {
            // Of the pages between only the sampled ones were counted, and the page itself with them.
            let between = ((found.distance - 1) as f64 / self.rate).round() as u64;
            self.again[digits(between)] += 1;
        }
    }

    /// The result; `None` without loads and stores.
    pub fn stat(&self) -> Option<AddressStat> {
        self.last.iter().flatten().next()?;
        let pages = (self.pages.len() as f64 / self.rate).round() as u64;
        let apart: u64 = self.apart.iter().sum();
        Some(AddressStat {
            footprint_bytes: pages.saturating_mul(PAGE_BYTES),
            spatial_locality: locality(&self.apart, apart, pages),
            temporal_locality: if pages <= 1 { 1.0 } else { locality(&self.again, self.sampled, pages) },
        })
    }
}

/// The mean of `1 - digits / digits(pages - 1)` over `accesses`; accesses in no class count as 0.
fn locality(by_digits: &[u64; DIGITS], accesses: u64, pages: u64) -> f64 {
    let most = digits(pages.saturating_sub(1));
    if most == 0 || accesses == 0 {
        return 1.0;
    }
    let near = by_digits.iter().enumerate().take(most);
    let sum: u64 = near.map(|(digits, count)| count * (most - digits) as u64).sum();
    sum as f64 / (accesses * most as u64) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn of(accesses: &[Access]) -> AddressStat {
        let mut addresses = Addresses::new(1.0);
        accesses.iter().for_each(|access| addresses.observe(access));
        addresses.stat().unwrap()
    }

    fn load(page: u64) -> Access {
        Access::new(0, Op::Load, page * PAGE_BYTES + 64, 64)
    }

    /// The definition, word by word.
    fn naive(accesses: &[Access]) -> AddressStat {
        let page = |access: &Access| access.key / 4096;
        let length = |number: u64| if number == 0 { 0.0 } else { f64::from(number.ilog2() + 1) };
        let pages = accesses.iter().map(page).collect::<BTreeSet<_>>().len() as u64;
        let (mut spatial, mut temporal) = (Vec::new(), Vec::new());
        for (at, access) in accesses.iter().enumerate() {
            let before = &accesses[..at];
            let score = |d: u64| {
                if pages == 1 { 1.0 } else { (1.0 - length(d) / length(pages - 1)).max(0.0) }
            };
            let last = |op: Op| before.iter().rfind(|other| other.op == op).map(page);
            let near = [Op::Load, Op::Store].into_iter().filter_map(last).map(|it| it.abs_diff(page(access)));
            spatial.extend(near.min().map(score));
            let found = before.iter().rposition(|other| page(other) == page(access));
            temporal.push(match found {
                Some(from) => {
                    score(before[from + 1..].iter().map(page).collect::<BTreeSet<_>>().len() as u64)
                }
                None if pages == 1 => 1.0,
                None => 0.0,
            });
        }
        let mean = |scores: &[f64]| {
            if scores.is_empty() { 1.0 } else { scores.iter().sum::<f64>() / scores.len() as f64 }
        };
        AddressStat {
            footprint_bytes: pages * 4096,
            spatial_locality: mean(&spatial),
            temporal_locality: mean(&temporal),
        }
    }

    proptest! {
        #[test]
        fn it_is_what_the_definition_says(
            accesses in prop::collection::vec((0u64..60, 0u64..4096, any::<bool>()), 1..200),
            factor in prop::sample::select(vec![1u64, 7, 1 << 40]),
        ) {
            let accesses: Vec<Access> = accesses.into_iter().map(|(page, offset, is_store)| {
                Access::new(0, if is_store { Op::Store } else { Op::Load }, page * factor * 4096 + offset, 64)
            }).collect();
            let (got, wanted) = (of(&accesses), naive(&accesses));
            prop_assert_eq!(got.footprint_bytes, wanted.footprint_bytes);
            prop_assert!((got.spatial_locality - wanted.spatial_locality).abs() < 1e-9, "{:?} {:?}", got, wanted);
            prop_assert!((got.temporal_locality - wanted.temporal_locality).abs() < 1e-9, "{:?} {:?}", got, wanted);
        }
    }

    #[test]
    fn extremes_are_0_and_1() {
        let one: Vec<Access> = (0..100).map(|_| load(7)).collect();
        assert_eq!((of(&one).spatial_locality, of(&one).temporal_locality), (1.0, 1.0));
        // A loop over far pages comes back as late as can be, and jumps as far as there are pages.
        let far: Vec<Access> = (0..8000).map(|n| load(n % 1000 * 1_000_003)).collect();
        assert_eq!((of(&far).spatial_locality, of(&far).temporal_locality), (0.0, 0.0));
        // Line by line through memory.
        let lines: Vec<Access> = (0..64_000).map(|n| Access::new(0, Op::Load, n * 64, 64)).collect();
        assert!(of(&lines).spatial_locality > 0.99 && of(&lines).temporal_locality > 0.98);
        assert_eq!(of(&lines).footprint_bytes, 64_000 * 64);
    }

    #[test]
    fn a_sample_of_the_pages_comes_near() {
        let mut state = 1u64;
        let accesses: Vec<Access> = (0..200_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                load((state >> 33) % 20_000)
            })
            .collect();
        let mut sampled = Addresses::new(0.2);
        accesses.iter().for_each(|access| sampled.observe(access));
        let (sampled, all) = (sampled.stat().unwrap(), of(&accesses));
        assert_eq!(sampled.spatial_locality, all.spatial_locality);
        assert!((sampled.temporal_locality - all.temporal_locality).abs() < 0.02, "{sampled:?} {all:?}");
        let ratio = sampled.footprint_bytes as f64 / all.footprint_bytes as f64;
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn other_traces_have_no_pages() {
        let mut addresses = Addresses::new(1.0);
        addresses.observe(&Access::get(0, 1, 1));
        assert_eq!(addresses.stat(), None);
    }
}
