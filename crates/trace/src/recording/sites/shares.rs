//! Whose the memory of a region is, where only a sample of its first touches is known.
//!
//! Programs fill memory in stretches, so memory is taken to be touched by who touched the nearest sampled place. That ends [`REACH_BYTES`]
//! from the place, unless the next place on the other side is of the same site. What is farther is of no known site.

use super::{SiteTouches, Sites};
use crate::recording::{Recording, Region};

/// How far from a sampled touch memory counts as touched by the same code: a thread that touches 4 GiB a second in small pages has one
/// touch in a MiB sampled.
const REACH_BYTES: u64 = 8 << 20;
/// How sure it may be that a touch is of a region's memory.
const RANKS: usize = 3;

/// Memory that is shared between stacks alike.
#[derive(Clone, Debug, PartialEq)]
struct Stretch {
    /// Bytes from the region's start.
    start: u64,
    end: u64,
    /// Stacks, and the share of each.
    shares: Vec<(u32, f64)>,
}

/// Whose a region's memory is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SiteShares {
    /// In the order of places; between them nothing is known.
    stretches: Vec<Stretch>,
}

impl Recording {
    /// Whose the memory of each region is; empty for a recording without sites.
    pub fn site_shares(&self) -> Vec<SiteShares> {
        let regions = &self.head.regions;
        let Some(sites) = &self.head.sites else { return vec![SiteShares::default(); regions.len()] };
        let mut touches: Vec<&SiteTouches> = sites.touches.iter().filter(|it| it.bytes > 0).collect();
        touches.sort_by_key(|it| (it.process, it.start));
        let of_region = |region: &Region| {
            let end = region.start.saturating_add(region.bytes);
            let place = |at| touches.partition_point(|it| (it.process, it.start) < (region.process, at));
            SiteShares::of(sites, region.bytes, own(&touches[place(region.start)..place(end)], region))
        };
        regions.iter().map(of_region).collect()
    }
}

/// How likely a touch is to be of a region's memory; `None` if it came later. What was there before may be there still: a region also begins
/// where the recorder has noticed another program, or something that it was joined with.
fn rank(touch: &SiteTouches, region: &Region) -> Option<usize> {
    match region.first_slice.saturating_sub(touch.slice) {
        _ if touch.slice > region.last_slice => None,
        0 => Some(0),
        // Mappings are noticed some time after they are made.
        1 => Some(1),
        _ => Some(2),
    }
}

/// The touches of a region's memory, by place, which counts from its start. Near a touch of a rank those of worse ranks are out of date: the
/// memory would not have been touched first once more.
fn own(touches: &[&SiteTouches], region: &Region) -> Vec<SiteTouches> {
    let mut own: Vec<SiteTouches> = Vec::new();
    for wanted in 0..RANKS {
        let better = own.clone();
        let is_near = |it: &SiteTouches| {
            let behind = better.partition_point(|other| other.start <= it.start);
            let before = behind.checked_sub(1).and_then(|at| better.get(at));
            let is_before = before.is_some_and(|other| {
                it.start.saturating_sub(other.start.saturating_add(other.bytes)) < REACH_BYTES / 2
            });
            let end = it.start.saturating_add(it.bytes);
            let is_behind =
                better.get(behind).is_some_and(|other| other.start.saturating_sub(end) < REACH_BYTES / 2);
            is_before || is_behind
        };
        let of_rank = touches.iter().filter(|it| rank(it, region) == Some(wanted));
        let placed = of_rank.map(|it| SiteTouches { start: it.start - region.start, ..**it });
        own.extend(placed.filter(|it| !is_near(it)));
        own.sort_by_key(|it| it.start);
    }
    own
}

impl SiteShares {
    /// Of a region of so many bytes. Touches are in the order of their places, which count from its start.
    fn of(sites: &Sites, region_bytes: u64, touches: Vec<SiteTouches>) -> Self {
        let mut stretches: Vec<Stretch> = Vec::new();
        for it in touches.iter().filter(|it| sites.site_of(it.stack).is_some()) {
            let end = it.start.saturating_add(it.bytes).min(region_bytes);
            let of = (it.stack, it.touches.max(1) as f64);
            match stretches.last_mut() {
                // Places that overlap are one.
                Some(last) if last.end > it.start => {
                    last.end = end.max(last.end);
                    last.shares.push(of);
                }
                _ => stretches.push(Stretch { start: it.start, end, shares: vec![of] }),
            }
        }
        for stretch in &mut stretches {
            let all: f64 = stretch.shares.iter().map(|(_, touches)| touches).sum();
            stretch.shares.iter_mut().for_each(|(_, share)| *share /= all);
        }
        if let Some(first) = stretches.first_mut() {
            first.start = first.start.saturating_sub(REACH_BYTES);
        }
        if let Some(last) = stretches.last_mut() {
            last.end = last.end.saturating_add(REACH_BYTES).min(region_bytes);
        }
        for at in 1..stretches.len() {
            let [before, behind] = &mut stretches[at - 1..=at] else { continue };
            let gap = behind.start - before.end;
            let is_same = before.main_site(sites) == behind.main_site(sites);
            let reach = if is_same { gap } else { gap.min(2 * REACH_BYTES) };
            before.end += reach / 2;
            behind.start -= reach - reach / 2;
        }
        SiteShares { stretches }
    }

    /// Calls `each` for each stack and the share that it has of the bytes from `from` to `to` of the region. What is left of 1 is unknown.
    pub fn of_range(&self, from: u64, to: u64, mut each: impl FnMut(u32, f64)) {
        let bytes = to.saturating_sub(from).max(1) as f64;
        let first = self.stretches.partition_point(|it| it.end <= from);
        for stretch in self.stretches[first..].iter().take_while(|it| it.start < to) {
            let part = (stretch.end.min(to) - stretch.start.max(from)) as f64 / bytes;
            stretch.shares.iter().for_each(|(stack, share)| each(*stack, share * part));
        }
    }
}

impl Stretch {
    /// The site with the largest share.
    fn main_site(&self, sites: &Sites) -> Option<u32> {
        let (stack, _) = self.shares.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        sites.site_of(*stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Head, SiteFrame, SiteStack};

    const MIB: u64 = 1 << 20;

    /// Touches of a page each: slice, place in MiB, stack, touches.
    fn recording(regions: &[(u32, u64, u32, u32)], touches: &[(u32, u64, u32, u64)]) -> Recording {
        let regions = regions.iter().map(|(process, start, first_slice, last_slice)| Region {
            process: *process,
            start: start * MIB,
            bytes: 100 * MIB,
            first_slice: *first_slice,
            last_slice: *last_slice,
            ..Region::default()
        });
        let touches = touches.iter().map(|(slice, place, stack, touches)| SiteTouches {
            process: 0,
            start: place * MIB,
            bytes: 4096,
            stack: *stack,
            touches: *touches,
            slice: *slice,
        });
        let frame = |name: &str| SiteFrame { function: Some(name.to_owned()), ..SiteFrame::default() };
        // The first and the last have the same site, and other callers.
        let stacks = [vec![0], vec![1], vec![0, 1]].map(|frames| SiteStack { frames, site: 0 });
        let sites = Sites {
            frames: vec![frame("a"), frame("b")],
            stacks: stacks.to_vec(),
            touches: touches.collect(),
            ..Sites::default()
        };
        let head = Head { regions: regions.collect(), sites: Some(sites), ..Head::default() };
        Recording { head, samples: Vec::new() }
    }

    /// In hundredths, by stack, and what is left.
    fn shares(recording: &Recording, region: usize, from: u64, to: u64) -> [u32; 4] {
        let mut sums = [0.0; 4];
        recording.site_shares()[region].of_range(from * MIB, to * MIB, |stack, share| {
            sums[stack as usize] += share;
        });
        sums[3] = 1.0 - sums.iter().sum::<f64>();
        sums.map(|sum| (sum * 100.0).round() as u32)
    }

    #[test]
    fn memory_is_that_of_the_nearest_touch_within_reach() {
        let recording = recording(&[(0, 0, 0, 9)], &[(0, 10, 0, 1), (0, 20, 1, 1), (0, 60, 1, 1)]);
        assert_eq!(shares(&recording, 0, 10, 15), [100, 0, 0, 0]);
        assert_eq!(shares(&recording, 0, 15, 20), [0, 100, 0, 0]);
        // Between two places of one site all is that site's.
        assert_eq!(shares(&recording, 0, 20, 68), [0, 100, 0, 0]);
        assert_eq!(shares(&recording, 0, 0, 10), [80, 0, 0, 20]);
        assert_eq!(shares(&recording, 0, 64, 72), [0, 50, 0, 50]);
        // Of other sites it is not.
        let far = self::recording(&[(0, 0, 0, 9)], &[(0, 10, 0, 1), (0, 50, 1, 1), (0, 90, 2, 1)]);
        assert_eq!(shares(&far, 0, 10, 50), [20, 20, 0, 60]);
        let same = self::recording(&[(0, 0, 0, 9)], &[(0, 10, 0, 1), (0, 90, 2, 1)]);
        assert_eq!(shares(&same, 0, 10, 90), [50, 0, 50, 0]);
    }

    #[test]
    fn a_place_that_several_touched_is_shared_by_touches() {
        let recording = recording(&[(0, 0, 0, 9)], &[(0, 10, 0, 3), (0, 10, 1, 1)]);
        assert_eq!(shares(&recording, 0, 9, 11), [75, 25, 0, 0]);
    }

    #[test]
    fn another_process_and_what_was_there_before_have_no_part() {
        let regions = [(0, 0, 0, 3), (0, 0, 4, 9), (1, 0, 0, 9), (0, 100, 0, 9)];
        let recording = recording(&regions, &[(2, 10, 0, 1), (5, 10, 1, 1)]);
        assert_eq!(shares(&recording, 0, 10, 11), [100, 0, 0, 0]);
        assert_eq!(shares(&recording, 1, 10, 11), [0, 100, 0, 0]);
        assert_eq!(shares(&recording, 2, 10, 11), [0, 0, 0, 100]);
        assert_eq!(shares(&recording, 3, 0, 100), [0, 0, 0, 100]);
        // What the recorder sees as a new region may be memory that was there before, where nobody has touched it since.
        let goes_on =
            self::recording(&[(0, 0, 4, 9)], &[(0, 10, 0, 1), (5, 10, 1, 1), (0, 40, 0, 1), (3, 70, 0, 1)]);
        assert_eq!(shares(&goes_on, 0, 10, 11), [0, 100, 0, 0]);
        assert_eq!(shares(&goes_on, 0, 40, 41), [100, 0, 0, 0]);
        assert_eq!(shares(&goes_on, 0, 70, 71), [100, 0, 0, 0]);
        let alone = recording.of_process(0);
        assert_eq!(shares(&alone, 1, 10, 11), [0, 100, 0, 0]);
        let second = recording.of_process(1);
        assert_eq!((second.head.regions.len(), shares(&second, 0, 10, 11)), (1, [0, 0, 0, 100]));
    }

    #[test]
    fn touches_that_make_no_sense_are_left() {
        let mut recording = recording(&[(0, 0, 0, 9)], &[(0, 10, 7, 1), (0, 10, 1, 0), (0, 99, 0, 1)]);
        let touches = &mut recording.head.sites.as_mut().unwrap().touches;
        touches.push(SiteTouches { start: 98 * MIB, bytes: u64::MAX, stack: 0, ..SiteTouches::default() });
        touches.push(SiteTouches { bytes: 0, ..SiteTouches::default() });
        assert_eq!(shares(&recording, 0, 10, 11), [0, 100, 0, 0]);
        assert_eq!(shares(&recording, 0, 98, 100), [100, 0, 0, 0]);
        assert_eq!(Recording::default().site_shares(), []);
    }
}
