//! Division of a program's ranges into granules, each of which is a mapping of its own.

use tiermem_policy::accessed_bits::{HUGE_BYTES, Span};
use tiermem_sys::agent::{Agent, AgentError};

use super::{Granules, Shape};
use crate::capture::mappings::maps::MapLine;

/// Granules of one program: the kernel allows 65,530 mappings by default (`vm.max_map_count`), and the program needs some.
const GRANULES_MAX: u64 = 48 << 10;

/// A range that is divided.
#[derive(Clone, Copy, Debug)]
struct Divided {
    start: u64,
    end: u64,
    granules: Granules,
    is_file: bool,
    /// Mappings that it was made into.
    mappings: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Division {
    /// In the order of addresses.
    ranges: Vec<Divided>,
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
    /// Divides new mappings. `is_huge` says whether huge pages may be in files, and in anonymous memory.
    pub fn divide(&mut self, shape: &Shape<'_>, agent: &mut Agent, is_huge: impl Fn(bool) -> bool) {
        let granules_of = |address: u64, is_file: bool| {
            let granules = (shape.granules)(address);
            // A granule that begins within a huge page would divide it.
            let keeps = is_huge(is_file) && granules.bytes.is_multiple_of(HUGE_BYTES);
            let behind = if keeps { granules.origin % HUGE_BYTES } else { 0 };
            Granules { origin: granules.origin - behind, ..granules }
        };
        let mut refused = None;
        self.ranges.retain_mut(|range| {
            let granules = granules_of(range.start, range.is_file);
            if granules != range.granules {
                range.granules = granules;
                range.mappings = made(agent, range, &mut refused);
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
            let (start, end) = (mapping.start, mapping.end);
            let mut range = Divided { start, end, granules, is_file: is_file(mapping), mappings: 0 };
            range.mappings = made(agent, &range, &mut refused);
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

    /// The granules, and undivided mappings, in the order of addresses.
    pub fn spans(&self, mappings: &[MapLine], spans: &mut Vec<Span>) {
        spans.clear();
        for range in &self.ranges {
            let mut start = range.start;
            while start < range.end {
                let granule = range.granules.start_of(start);
                let end = granule.saturating_add(range.granules.bytes).min(range.end);
                spans.push(Span { start, end });
                start = end;
            }
        }
        for line in mappings {
            let at = self.ranges.partition_point(|range| range.end <= line.start);
            if self.ranges.get(at).is_none_or(|range| range.start >= line.end) {
                spans.push(Span { start: line.start, end: line.end });
            }
        }
        spans.sort_unstable_by_key(|span| span.start);
    }

    /// Has the kernel map a huge page page by page: the boundary of a mapping within it does that, and is taken away again.
    pub fn map_by_pages(&self, huge: u64, agent: &mut Agent) -> Result<(), AgentError> {
        // Both halves are alike before: it may lie in a granule that is set apart.
        agent.join(huge, HUGE_BYTES)?;
        agent.split(huge, HUGE_BYTES, HUGE_BYTES / 2, huge)?;
        agent.join(huge, HUGE_BYTES)?;
        let at = self.ranges.partition_point(|range| range.end <= huge);
        match self.ranges.get(at).filter(|range| range.start <= huge) {
            None => Ok(()),
            Some(range) => {
                let Granules { bytes, origin } = range.granules;
                agent.split(huge, HUGE_BYTES.min(range.end - huge), bytes, origin).map(drop)
            }
        }
    }
}

/// Makes the agent divide a range; returns the number of mappings that resulted.
fn made(agent: &mut Agent, range: &Divided, refused: &mut Option<String>) -> u64 {
    let (bytes, granules) = (range.end - range.start, range.granules);
    // Granules that it had before end.
    let done = agent
        .join(range.start, bytes)
        .and_then(|()| agent.split(range.start, bytes, granules.bytes, granules.origin));
    match done {
        Ok(apart) => 2 * apart,
        Err(AgentError::Refused(error)) => {
            *refused = Some(error.to_string());
            0
        }
        Err(AgentError::Lost(_)) => 0,
    }
}
