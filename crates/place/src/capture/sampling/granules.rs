//! Division of a program's ranges into granules: each granule is a mapping of its
//! own, or a run of its pages, drawn anew from time to time, as a sample of it.

use std::time::{Duration, Instant};

use tiermem_sys::agent::{Agent, AgentError, Draw, Run};

use super::{Granules, Shape};
use crate::capture::maps::MapLine;

const PAGE_BYTES: u64 = 4096;
const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Pages that are looked at in a window, all runs together: more say more, and cost the program more.
const LOOKED_AT: u64 = 4096;
/// Least and most pages of a run.
const RUN_PAGES: std::ops::RangeInclusive<u64> = 16..=64;
/// Smaller granules are observed whole: there are too many of them for a mapping more each.
pub(super) const DRAWN_MIN_BYTES: u64 = 128 * PAGE_BYTES;
/// Time between draws of the runs: moving them costs the program some microseconds a granule.
const REDRAW: Duration = Duration::from_millis(250);
/// Granules of one program: the kernel allows 65,530 mappings by default (`vm.max_map_count`), and the program needs some.
const GRANULES_MAX: u64 = 48 << 10;

/// A range that is divided.
#[derive(Clone, Copy, Debug)]
struct Divided {
    start: u64,
    end: u64,
    granules: Granules,
    is_file: bool,
    /// Whether its granules are sampled by runs.
    drawn: bool,
    /// Mappings that it was made into.
    mappings: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Division {
    /// In the order of addresses.
    ranges: Vec<Divided>,
    seed: u64,
    run_bytes: u64,
    drawn: Option<Instant>,
    /// Mappings that stay whole, since there would be too many granules.
    pub whole: u64,
    /// Why the last one stayed so that the agent could not divide.
    pub refused: Option<String>,
}

/// Whether a mapping is one of a file.
pub(super) fn is_file(line: &MapLine) -> bool {
    line.path.as_deref().is_some_and(|path| path.starts_with('/'))
}

impl Division {
    /// Divides new mappings, and draws runs anew when it is time. `is_drawn` says whether granules of
    /// files, and of anonymous memory, are sampled by runs; `is_huge`, whether huge pages may be there.
    pub fn divide(
        &mut self,
        shape: &Shape<'_>,
        agent: &mut Agent,
        is_drawn: impl Fn(bool) -> bool,
        is_huge: impl Fn(bool) -> bool,
    ) {
        let granules_of = |address: u64, is_file: bool| {
            let granules = (shape.granules)(address);
            // A granule that begins within a huge page would divide it.
            let keeps = is_huge(is_file) && granules.bytes.is_multiple_of(HUGE_PAGE_BYTES);
            let behind = if keeps { granules.origin % HUGE_PAGE_BYTES } else { 0 };
            Granules { origin: granules.origin - behind, ..granules }
        };
        let is_due = self.drawn.is_none_or(|at| at.elapsed() >= REDRAW);
        if is_due {
            self.seed += 1;
            self.drawn = Some(Instant::now());
            let granules: u64 = (shape.mappings.iter())
                .map(|line| (line.end - line.start) / (shape.granules)(line.start).bytes)
                .sum();
            let pages = LOOKED_AT / granules.max(1);
            self.run_bytes = pages.clamp(*RUN_PAGES.start(), *RUN_PAGES.end()) * PAGE_BYTES;
        }
        let (seed, run_bytes) = (self.seed, self.run_bytes);
        let wants_runs = |range: &Divided| range.granules.bytes >= DRAWN_MIN_BYTES && is_drawn(range.is_file);
        let mut refused = None;
        self.ranges.retain_mut(|range| {
            let drawn = wants_runs(range);
            let granules = granules_of(range.start, range.is_file);
            if drawn != range.drawn || granules != range.granules || (drawn && is_due) {
                (range.drawn, range.granules) = (drawn, granules);
                range.mappings = made(agent, range, drawing(range, seed, run_bytes), &mut refused);
            }
            range.mappings > 0
        });
        for mapping in shape.mappings {
            let granules = granules_of(mapping.start, is_file(mapping));
            let bytes = mapping.end - mapping.start;
            let at = self.ranges.partition_point(|range| range.end <= mapping.start);
            let known = self.ranges.get(at).filter(|range| range.start < mapping.end);
            // What was divided from another origin is made one again first.
            let is_other = known.is_some_and(|range| range.granules != granules);
            let is_known = known
                .is_some_and(|range| !is_other && range.start <= mapping.start && range.end >= mapping.end);
            if is_known || bytes <= granules.bytes {
                continue;
            }
            let count: u64 = self.ranges.iter().map(|range| range.mappings).sum();
            if count + bytes / granules.bytes > GRANULES_MAX {
                self.whole += 1;
                continue;
            }
            if is_other {
                // Only what has gone since cannot be joined.
                let _ = agent.join(mapping.start, bytes);
            }
            let (start, end) = (mapping.start, mapping.end);
            let mut range =
                Divided { start, end, granules, is_file: is_file(mapping), drawn: false, mappings: 0 };
            range.drawn = wants_runs(&range);
            range.mappings = made(agent, &range, drawing(&range, seed, run_bytes), &mut refused);
            if range.mappings > 0 {
                // What was known of a smaller range there is in the larger one now.
                self.ranges.retain(|range| range.end <= start || range.start >= end);
                let at = self.ranges.partition_point(|range| range.end <= start);
                self.ranges.insert(at, range);
            }
        }
        self.refused = refused.or(self.refused.take());
    }

    /// Whether there are mappings to be divided that were not there before.
    pub fn has_news(&self, shape: &Shape<'_>) -> bool {
        shape.mappings.iter().any(|line| {
            let at = self.ranges.partition_point(|range| range.end <= line.start);
            let is_known = self.ranges.get(at).is_some_and(|range| range.start < line.end);
            !is_known && line.end - line.start > (shape.granules)(line.start).bytes
        })
    }

    /// The runs to observe, of mappings of files or of anonymous memory, in the order of addresses:
    /// runs of sampled granules, whole granules where they are not sampled, and undivided mappings.
    pub fn looked_at(&self, mappings: &[MapLine], wanted: impl Fn(bool) -> bool, runs: &mut Vec<Run>) {
        runs.clear();
        for range in self.ranges.iter().filter(|range| wanted(range.is_file)) {
            let draw = if range.drawn { drawing(range, self.seed, self.run_bytes) } else { whole(range) };
            runs.extend(draw.runs(range.start, range.end - range.start));
        }
        for line in mappings.iter().filter(|line| wanted(is_file(line))) {
            let at = self.ranges.partition_point(|range| range.end <= line.start);
            if self.ranges.get(at).is_none_or(|range| range.start >= line.end) {
                let (start, end) = (line.start, line.end);
                runs.push(Run { start, end, granule_start: start, granule_end: end });
            }
        }
        runs.sort_unstable_by_key(|run| run.start);
    }
}

fn drawing(range: &Divided, seed: u64, run_bytes: u64) -> Draw {
    let Granules { bytes, origin } = range.granules;
    Draw { granule_bytes: bytes, origin, run_bytes, seed }
}

fn whole(range: &Divided) -> Draw {
    let Granules { bytes, origin } = range.granules;
    Draw { granule_bytes: bytes, origin, run_bytes: bytes, seed: 0 }
}

/// Makes the agent divide a range; returns the number of mappings that resulted.
fn made(agent: &mut Agent, range: &Divided, draw: Draw, refused: &mut Option<String>) -> u64 {
    let (bytes, granules) = (range.end - range.start, range.granules);
    let done = if range.drawn {
        agent.mark(range.start, bytes, draw)
    } else {
        // Runs that were drawn there before end.
        agent
            .join(range.start, bytes)
            .and_then(|()| agent.split(range.start, bytes, granules.bytes, granules.origin))
    };
    match done {
        Ok(apart) => 2 * apart,
        Err(AgentError::Refused(error)) => {
            *refused = Some(error.to_string());
            0
        }
        Err(AgentError::Lost(_)) => 0,
    }
}
