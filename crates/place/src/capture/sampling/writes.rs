//! Source `writes`: which pages were written, by a write protection that the kernel lifts by itself and remembers.
//!
//! Only the program can ask for that protection, so this source needs the agent. Reading the
//! written pages is done from outside, at little cost: the kernel lists only written pages.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use tiermem_base::Op;
use tiermem_policy::accessed_bits::rate::SampleWindow;
use tiermem_sys::agent::{Agent, AgentError};
use tiermem_sys::page_scan::{PageRange, PageScan};
use tiermem_trace::recording;

use super::windows::Windows;
use super::{Granules, Seen, Shape, Source};

const PAGE_BYTES: u64 = 4096;

pub(in crate::capture) struct Writes {
    scan: PageScan,
    windows: Windows,
    /// Ranges that are watched, in the order of addresses, with their granules.
    watched: Vec<(u64, u64, Granules)>,
    opened: Option<Instant>,
    /// The windows of this slice so far, in seconds.
    observed_s: f64,
    has_agent: bool,
    refused: Option<String>,
}

impl Writes {
    /// Of a process.
    pub fn open(pid: u32) -> io::Result<Self> {
        let scan = PageScan::open(pid)?;
        Ok(Writes {
            scan,
            windows: Windows::default(),
            watched: Vec::new(),
            opened: None,
            observed_s: 0.0,
            has_agent: false,
            refused: None,
        })
    }

    fn scan_all(&mut self, mut each: impl FnMut((u64, u64, Granules), PageRange)) {
        // A mapping may have gone since the slice began: its range is
        // refused, and the others are reported all the same.
        for &(start, end, granules) in &self.watched {
            let scanned = self.scan.written(start, end, |written| each((start, end, granules), written));
            let of_the_program = |error: &io::Error| {
                error.kind() != io::ErrorKind::NotFound && error.raw_os_error() != Some(3)
            };
            if let Some(error) = scanned.err().filter(of_the_program) {
                self.refused = Some(error.to_string());
            }
        }
    }
}

impl Source for Writes {
    fn describe(&self) -> recording::Source {
        let unit = recording::Unit::PageWrites;
        recording::Source { name: "writes".to_owned(), unit, tells_stores: true, tells_level: false }
    }

    fn begin(&mut self, shape: &Shape<'_>, agent: Option<&mut Agent>) -> io::Result<()> {
        let Some(agent) = agent else { return Ok(()) };
        self.has_agent = true;
        let before = std::mem::take(&mut self.watched);
        let mut known = before.iter().peekable();
        for mapping in
            shape.mappings.iter().filter(|mapping| mapping.permissions.as_bytes().get(1) == Some(&b'w'))
        {
            while known.next_if(|(_, end, _)| *end <= mapping.start).is_some() {}
            let is_known =
                known.peek().is_some_and(|(start, end, _)| *start <= mapping.start && *end >= mapping.end);
            if !is_known {
                match agent.watch_writes(mapping.start, mapping.end - mapping.start) {
                    Ok(()) => {}
                    Err(AgentError::Refused(error)) => {
                        self.refused = Some(error.to_string());
                        continue;
                    }
                    Err(AgentError::Lost(_)) => return Ok(()),
                }
            }
            self.watched.push((mapping.start, mapping.end, (shape.granules)(mapping.start)));
        }
        Ok(())
    }

    fn open_window(&mut self, _: Instant) -> io::Result<()> {
        // What was written before does not count.
        self.opened = Some(Instant::now());
        self.scan_all(|_, _| {});
        Ok(())
    }

    fn close_window(&mut self) -> io::Result<()> {
        let Some(opened) = self.opened.take() else { return Ok(()) };
        let mut touched: BTreeMap<u64, (u64, u32)> = BTreeMap::new();
        self.scan_all(|(start, end, granules), written| {
            for page in (written.start..written.end).step_by(PAGE_BYTES as usize) {
                // The first and the last granule of a mapping may be cut.
                let granule = granules.start_of(page);
                let (from, to) = (granule.max(start), granule.saturating_add(granules.bytes).min(end));
                touched.entry(from).or_insert((to - from, 0)).1 += 1;
            }
        });
        let seconds = opened.elapsed().as_secs_f64().max(1e-6);
        self.observed_s += seconds;
        for (address, (bytes, touched)) in touched {
            let pages = (bytes / PAGE_BYTES).max(1) as f64;
            let touched = f64::from(touched).min(pages);
            self.windows.add(address, bytes, SampleWindow { seconds, before_s: 0.0, touched, pages });
        }
        Ok(())
    }

    fn collect(&mut self, slice: Duration, each: &mut dyn FnMut(Seen)) -> io::Result<()> {
        let observed_s = std::mem::take(&mut self.observed_s);
        let store = |address, bytes, weight| each(Seen { address, bytes, weight, op: Op::Store });
        self.windows.take(slice, observed_s, store);
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.has_agent {
            notes.push(
                "writes: there was no agent within the program, so its writes could not be watched"
                    .to_owned(),
            );
        }
        if let Some(error) = &self.refused {
            notes.push(format!("writes: some mappings could not be watched ({error})"));
        }
        notes
    }
}
