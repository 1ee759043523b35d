//! Touches as a recording has them: of its processes and slices, those of one stack that lie side by side as one.

use std::time::Instant;

use tiermem_trace::recording::{Head, SiteTouches, Slice};

use super::gathering::AllTouches;
use super::named::Named;

/// Touches of one stack so near to each other are told as one stretch.
const NEAR_BYTES: u64 = 4 << 20;

/// The touches of a recording's processes; `first` is the number in the system of its first.
pub(super) fn told(
    all: &AllTouches,
    named: &Named,
    head: &Head,
    first: u32,
    begun: Instant,
) -> Vec<SiteTouches> {
    let pids: Vec<u32> = match head.processes.as_slice() {
        [] => vec![first],
        processes => processes.iter().map(|it| it.pid).collect(),
    };
    let mut told = Vec::new();
    for (process, pid) in (0..).zip(pids) {
        let mut bounds: Vec<u64> = head
            .regions
            .iter()
            .filter(|region| region.process == process)
            .flat_map(|region| [region.start, region.start.saturating_add(region.bytes)])
            .collect();
        bounds.sort_unstable();
        let its = all.touches.get(&pid).into_iter().flatten();
        let its = its.filter_map(|it| {
            let stack = named.numbers.get(it.stack as usize).copied().flatten()?;
            let at_ns = it.first.saturating_duration_since(begun).as_nanos() as u64;
            Some(SiteTouches {
                process,
                start: it.start,
                bytes: it.end.saturating_sub(it.start),
                stack,
                touches: it.touches,
                slice: slice_at(&head.slices, at_ns),
            })
        });
        join(its, &bounds, &mut told);
    }
    told
}

/// The slice of a time: one between two slices is of the later one, which is the first in which what was touched is seen.
fn slice_at(slices: &[Slice], at_ns: u64) -> u32 {
    let at = slices.partition_point(|slice| slice.end_ns < at_ns);
    at.min(slices.len().saturating_sub(1)) as u32
}

/// Joins neighbours that differ in their places alone, but not across the bounds of regions.
fn join(its: impl Iterator<Item = SiteTouches>, bounds: &[u64], told: &mut Vec<SiteTouches>) {
    let begin = told.len();
    for it in its {
        let last = told[begin..].last_mut().filter(|last| {
            let end = last.start + last.bytes;
            let is_alike = last.stack == it.stack && last.slice == it.slice;
            // Those that overlap with others are shared, and not joined.
            let is_near = end <= it.start && it.start - end <= NEAR_BYTES;
            let next_bound = bounds.get(bounds.partition_point(|bound| *bound <= last.start));
            is_alike && is_near && next_bound.is_none_or(|bound| it.start + it.bytes <= *bound)
        });
        match last {
            Some(last) => {
                last.bytes = it.start + it.bytes - last.start;
                last.touches = last.touches.saturating_add(it.touches);
            }
            None => told.push(it),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touches(start: u64, bytes: u64, stack: u32, slice: u32) -> SiteTouches {
        SiteTouches { process: 0, start, bytes, stack, touches: 2, slice }
    }

    #[test]
    fn neighbours_of_one_stack_are_joined_within_regions() {
        const PAGE: u64 = 4096;
        let at = |page: u64, stack, slice| touches(page * PAGE, PAGE, stack, slice);
        let all =
            [at(1, 0, 0), at(3, 0, 0), at(5, 0, 1), at(7, 1, 1), at(9, 1, 1), at(12, 1, 1), at(1900, 1, 1)];
        let mut told = Vec::new();
        join(all.into_iter(), &[0, 11 * PAGE, 2000 * PAGE], &mut told);
        let places: Vec<(u64, u64, u64)> =
            told.iter().map(|it| (it.start / PAGE, it.bytes / PAGE, it.touches)).collect();
        assert_eq!(places, [(1, 3, 4), (5, 1, 2), (7, 3, 4), (12, 1, 2), (1900, 1, 2)]);
    }

    #[test]
    fn a_time_is_in_the_slice_that_has_not_ended() {
        let slices: Vec<Slice> = (0..3).map(|at| Slice { start_ns: at * 10, end_ns: at * 10 + 8 }).collect();
        assert_eq!([0, 8, 9, 10, 18, 19, 28, 99].map(|at| slice_at(&slices, at)), [0, 0, 1, 1, 1, 2, 2, 2]);
        assert_eq!(slice_at(&[], 5), 0);
    }
}
