//! The source `refs`: which pages were referenced, from the bits that the processor sets in page tables.
//!
//! The kernel tells them for each mapping (`/proc/PID/smaps`), not for each page. So the agent within the program makes a
//! mapping of each granule, by leaving every second one out of core dumps, which changes nothing else. Without an agent the
//! granules are the program's own mappings.

use std::io;
use std::time::{Duration, Instant};

use tiermem_base::Op;
use tiermem_sys::agent::{Agent, AgentError};
use tiermem_sys::smaps::{Smaps, Usage};
use tiermem_trace::recording;

use super::rate::Window;
use super::windows::Windows;
use super::{Granules, Seen, Shape, Source};

const PAGE_BYTES: u64 = 4096;
const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Granules of one program: the kernel allows 65,530 mappings by default (`vm.max_map_count`), and the program needs some.
const GRANULES_MAX: u64 = 48 << 10;

pub(in crate::capture) struct Refs {
    smaps: Smaps,
    windows: Windows,
    /// What the last window told, kept for its memory.
    usages: Vec<Usage>,
    /// When the kernel began to clear, and was done.
    cleared: Option<(Instant, Instant)>,
    /// The windows of this slice so far, in seconds.
    observed_s: f64,
    /// Ranges that are wanted, in the order of addresses.
    wanted: Vec<(u64, u64)>,
    /// Ranges that are split, in the order of addresses, with their granules.
    split: Vec<(u64, u64, Granules)>,
    granules: u64,
    has_agent: bool,
    whole: u64,
    refused: Option<String>,
    huge_bytes: u64,
}

impl Refs {
    /// Of a process.
    pub fn open(pid: u32) -> io::Result<Self> {
        Ok(Refs {
            smaps: Smaps::open(pid)?,
            windows: Windows::default(),
            usages: Vec::new(),
            cleared: None,
            observed_s: 0.0,
            wanted: Vec::new(),
            split: Vec::new(),
            granules: 0,
            has_agent: false,
            whole: 0,
            refused: None,
            huge_bytes: 0,
        })
    }

    fn split(&mut self, shape: &Shape<'_>, agent: &mut Agent) {
        for mapping in shape.mappings {
            let granules = (shape.granules)(mapping.start);
            let granule_bytes = granules.bytes;
            let bytes = mapping.end - mapping.start;
            let at = self.split.partition_point(|(_, end, _)| *end <= mapping.start);
            let known = self.split.get(at).filter(|(start, ..)| *start < mapping.end);
            // What was split from another origin is made one again first.
            let is_other = known.is_some_and(|(.., before)| *before != granules);
            let known = known
                .is_some_and(|(start, end, _)| !is_other && *start <= mapping.start && *end >= mapping.end);
            if known || bytes <= granule_bytes {
                continue;
            }
            if self.granules + bytes / granule_bytes > GRANULES_MAX {
                self.whole += 1;
                continue;
            }
            if is_other {
                // Only what has gone since cannot be joined.
                let _ = agent.join(mapping.start, bytes);
            }
            match agent.split(mapping.start, bytes, granule_bytes, granules.origin) {
                Ok(apart) => {
                    self.granules += 2 * apart;
                    // What was known of a smaller range there is in the larger one now.
                    self.split.retain(|(start, end, _)| *end <= mapping.start || *start >= mapping.end);
                    let at = self.split.partition_point(|(_, end, _)| *end <= mapping.start);
                    self.split.insert(at, (mapping.start, mapping.end, granules));
                }
                Err(AgentError::Refused(error)) => self.refused = Some(error.to_string()),
                Err(AgentError::Lost(_)) => return,
            }
        }
    }

    fn is_wanted(&self, usage: &Usage) -> bool {
        let at = self.wanted.partition_point(|(_, end)| *end <= usage.start);
        self.wanted.get(at).is_some_and(|(start, _)| *start < usage.end)
    }
}

impl Source for Refs {
    fn describe(&self) -> recording::Source {
        let unit = recording::Unit::PageTouches;
        recording::Source { name: "refs".to_owned(), unit, tells_stores: false, tells_level: false }
    }

    fn begin(&mut self, shape: &Shape<'_>, agent: Option<&mut Agent>) -> io::Result<()> {
        self.wanted.clear();
        self.wanted.extend(shape.mappings.iter().map(|mapping| (mapping.start, mapping.end)));
        if let Some(agent) = agent {
            self.has_agent = true;
            self.split(shape, agent);
        }
        Ok(())
    }

    fn open_window(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        self.smaps.clear()?;
        self.cleared = Some((begun, Instant::now()));
        Ok(())
    }

    fn close_window(&mut self) -> io::Result<()> {
        let Some((from, to)) = self.cleared.take() else { return Ok(()) };
        // A granule that comes to be in memory late in a slice was not touched before.
        self.observed_s += to.elapsed().as_secs_f64();
        let mut usages = std::mem::take(&mut self.usages);
        usages.clear();
        let read = self.smaps.read(|usage| usages.push(usage));
        // The kernel goes through the pages in the order of addresses, when it clears and when it tells. So each granule's
        // window begins when it was cleared, not when the last one was.
        let all: u64 = usages.iter().map(|usage| usage.resident_bytes).sum();
        let (mut before, mut huge_bytes) = (0, 0);
        for usage in &usages {
            let share = before as f64 / all.max(1) as f64;
            before += usage.resident_bytes;
            if !self.is_wanted(usage) {
                continue;
            }
            huge_bytes += usage.huge_bytes;
            let begun = from + (to - from).mul_f64(share);
            // A huge page is touched as a whole: one, not 512.
            let is_huge = usage.huge_bytes * 2 > usage.resident_bytes;
            let page_bytes = if is_huge { HUGE_PAGE_BYTES } else { PAGE_BYTES };
            let pages = |bytes: u64| bytes.div_ceil(page_bytes).min(u64::from(u32::MAX)) as u32;
            let window = Window {
                seconds: usage.told.saturating_duration_since(begun).as_secs_f64().max(1e-6),
                touched: pages(usage.referenced_bytes),
                pages: pages(usage.resident_bytes),
            };
            self.windows.add(usage.start, usage.end - usage.start, window);
        }
        self.huge_bytes = self.huge_bytes.max(huge_bytes);
        self.usages = usages;
        read
    }

    fn collect(&mut self, slice: Duration, each: &mut dyn FnMut(Seen)) -> io::Result<()> {
        let observed_s = std::mem::take(&mut self.observed_s);
        let load = |address, bytes, weight| each(Seen { address, bytes, weight, op: Op::Load });
        self.windows.take(slice, observed_s, load);
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.has_agent {
            notes.push(
                "refs: there was no agent within the program (it ran already, or is linked statically), so its mappings were \
                 looked at as wholes; start it with `tiermem record` to see granules"
                    .to_owned(),
            );
        }
        if self.whole > 0 {
            notes.push(format!(
                "refs: mappings that would have made more than {GRANULES_MAX} granules were looked at as wholes; record with a \
                 coarser --granule, or one --region alone"
            ));
        }
        if let Some(error) = &self.refused {
            notes.push(format!(
                "refs: some mappings could not be split ({error}) and were looked at as wholes"
            ));
        }
        if self.huge_bytes > 0 {
            notes.push(format!(
                "refs: up to {} MiB lay in huge pages, each of which is touched as one; --small-pages keeps the program from \
                 having any",
                self.huge_bytes >> 20
            ));
        }
        notes
    }
}
