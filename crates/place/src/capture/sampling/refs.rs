//! Source `refs`: which pages were referenced, from the bits that the processor sets in page tables.
//!
//! The kernel shows them for each mapping (`/proc/PID/smaps`), not for each page. So the
//! agent within the program splits mappings, by excluding parts of them from core dumps,
//! which changes nothing else. Without an agent the granules are the program's own mappings.
//!
//! A cleared bit costs the program time when it is set again, 0.4 us in a virtual machine: a tenth of
//! a second for every look at a GiB. So a run of each granule's pages is the sample of all of them,
//! and only those bits are cleared. All bits are cleared where there may be huge pages, which have
//! one bit for 2 MiB and which a run would divide, and where the system does not allow clearing runs.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use tiermem_base::Op;
use tiermem_sys::agent::{Agent, Run};
use tiermem_sys::aging;
use tiermem_sys::pidfd::PidFd;
use tiermem_sys::smaps::{Clear, Smaps, Usage};
use tiermem_trace::recording;

use super::granules::{DRAWN_MIN_BYTES, Division, is_file};
use super::rate::SampleWindow;
use super::windows::Windows;
use super::{Seen, Shape, Source};

const PAGE_BYTES: u64 = 4096;
const HUGE_PAGE_BYTES: u64 = 2 << 20;

pub(in crate::capture) struct Refs {
    smaps: Smaps,
    pid: u32,
    process: PidFd,
    windows: Windows,
    /// What the kernel told last, in the order of addresses, and whether it is of these mappings.
    usages: Vec<Usage>,
    is_current: bool,
    /// Bytes in memory when it did.
    resident_bytes: u64,
    /// When the kernel began to clear, and was done.
    cleared: Option<(Instant, Instant)>,
    /// The windows of this slice so far, in seconds.
    observed_s: f64,
    /// Ranges that are wanted, in the order of addresses, and whether they are a file's.
    wanted: Vec<(u64, u64, bool)>,
    division: Division,
    /// What is looked at where all pages are not, in the order of addresses, and the same as ranges to be cleared.
    runs: Vec<Run>,
    ranges: Vec<(u64, u64)>,
    has_agent: bool,
    /// Whether granules may be sampled by runs at all.
    may_draw: bool,
    /// Whether huge pages may be in what is no file's, and in files.
    huge: [bool; 2],
    /// Whether granules are sampled by runs in this slice, of anonymous memory and of files.
    drawn: [bool; 2],
    huge_bytes: u64,
    shared_bytes: u64,
}

impl Refs {
    /// Opens it for a process, in granules of `granule_bytes`:
    /// every page of them, or a sample run where that is possible.
    pub fn open(pid: u32, granule_bytes: u64, every_page: bool) -> io::Result<Self> {
        let process = PidFd::open(pid)?;
        let is_allowed = aging::is_allowed(process.as_fd());
        Ok(Refs {
            smaps: Smaps::open(pid)?,
            pid,
            process,
            windows: Windows::default(),
            usages: Vec::new(),
            is_current: false,
            resident_bytes: 0,
            cleared: None,
            observed_s: 0.0,
            wanted: Vec::new(),
            division: Division::default(),
            runs: Vec::new(),
            ranges: Vec::new(),
            has_agent: false,
            may_draw: is_allowed && !every_page && granule_bytes >= DRAWN_MIN_BYTES,
            huge: [false; 2],
            drawn: [false; 2],
            huge_bytes: 0,
            shared_bytes: 0,
        })
    }

    /// Reads the kernel's figures.
    fn look(&mut self) -> io::Result<()> {
        self.usages.clear();
        let Refs { smaps, usages, .. } = self;
        let read = smaps.read(|usage| usages.push(usage));
        self.resident_bytes = resident_bytes(self.pid);
        self.is_current = true;
        read
    }

    /// Adds the result of a window over mappings that were cleared entirely.
    fn add_whole(&mut self, usage: &Usage, fresh_bytes: u64, begun: Instant) {
        // A huge page is touched as a whole: one, not 512.
        let is_huge = usage.huge_bytes * 2 > usage.resident_bytes;
        let page_bytes = if is_huge { HUGE_PAGE_BYTES } else { PAGE_BYTES };
        let window = SampleWindow {
            seconds: usage.told.saturating_duration_since(begun).as_secs_f64().max(1e-6),
            touched: pages(usage.referenced_bytes.saturating_sub(fresh_bytes), page_bytes),
            pages: pages(usage.resident_bytes - fresh_bytes, page_bytes),
        };
        let fresh = pages(fresh_bytes, page_bytes);
        self.windows.add(usage.start, usage.end - usage.start, 1.0, window, fresh);
    }

    /// Takes in what it told of a run.
    fn add_run(&mut self, (run, window, fresh): (Run, SampleWindow, u32)) {
        let bytes = run.granule_end - run.granule_start;
        let scale = bytes as f64 / (run.end - run.start) as f64;
        self.windows.add(run.granule_start, bytes, scale, window, fresh);
    }

    /// Resident bytes of a mapping before this window, by the kernel's figures.
    fn resident_before(&self, usage: &Usage, before: &[Usage]) -> u64 {
        if !self.is_current {
            return usage.resident_bytes;
        }
        let at = before.partition_point(|it| it.start < usage.start);
        let known = before.get(at).filter(|it| it.start == usage.start);
        known.map_or(0, |it| it.resident_bytes.min(usage.resident_bytes))
    }
}

/// Whether a mapping is a file's, if it is in one of the ranges that are wanted.
fn kind(wanted: &[(u64, u64, bool)], usage: &Usage) -> Option<bool> {
    let at = wanted.partition_point(|(_, end, _)| *end <= usage.start);
    wanted.get(at).filter(|(start, ..)| *start < usage.end).map(|(.., is_file)| *is_file)
}

fn note_huge(usage: &Usage, is_file: Option<bool>, huge: &mut [bool; 2]) {
    let may_be_huge = usage.may_be_huge && usage.end - usage.start >= HUGE_PAGE_BYTES;
    if let Some(is_file) = is_file {
        huge[usize::from(is_file)] |= usage.huge_bytes > 0 || may_be_huge;
    }
}

/// Resident bytes of a process; 0 if it has gone.
fn resident_bytes(pid: u32) -> u64 {
    let pages = std::fs::read_to_string(format!("/proc/{pid}/statm"))
        .ok()
        .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * PAGE_BYTES
}

fn pages(bytes: u64, page_bytes: u64) -> u32 {
    bytes.div_ceil(page_bytes).min(u64::from(u32::MAX)) as u32
}

impl Source for Refs {
    fn describe(&self) -> recording::Source {
        let unit = recording::Unit::PageTouches;
        recording::Source { name: "refs".to_owned(), unit, tells_stores: false, tells_level: false }
    }

    fn begin(&mut self, shape: &Shape<'_>, agent: Option<&mut Agent>) -> io::Result<()> {
        self.wanted.clear();
        self.wanted.extend(shape.mappings.iter().map(|line| (line.start, line.end, is_file(line))));
        // Mappings are divided otherwise than they were.
        self.is_current = false;
        self.has_agent |= agent.is_some();
        if self.has_agent && self.may_draw && self.division.has_news(shape) {
            // A run would divide huge pages: they are asked for first.
            self.look()?;
            for usage in &self.usages {
                note_huge(usage, kind(&self.wanted, usage), &mut self.huge);
            }
            self.is_current = false;
        }
        let drawn = self.huge.map(|huge| self.has_agent && self.may_draw && !huge);
        self.drawn = drawn;
        let is_drawn = |is_file: bool| drawn[usize::from(is_file)];
        if let Some(agent) = agent {
            let huge = self.huge;
            self.division.divide(shape, agent, is_drawn, |is_file| huge[usize::from(is_file)]);
        }
        self.division.looked_at(shape.mappings, is_drawn, &mut self.runs);
        self.ranges.clear();
        self.ranges.extend(self.runs.iter().map(|run| (run.start, run.end - run.start)));
        Ok(())
    }

    fn windows_max(&self) -> u32 {
        // Where all pages are cleared, a short and a long one have to do.
        if self.drawn == [true, true] { 3 } else { 2 }
    }

    fn open_window(&mut self) -> io::Result<()> {
        // A page is touched once when it becomes resident, however often it may be touched
        // later. So for a growing program the pages resident before must be known.
        if !self.is_current
            && resident_bytes(self.pid).abs_diff(self.resident_bytes) > self.resident_bytes / 128
        {
            self.look()?;
        }
        let begun = Instant::now();
        match self.drawn {
            [true, true] => {}
            [false, true] => self.smaps.clear(Clear::Anonymous)?,
            [true, false] => self.smaps.clear(Clear::Mapped)?,
            [false, false] => self.smaps.clear(Clear::All)?,
        }
        aging::make_old(self.process.as_fd(), &self.ranges)?;
        self.cleared = Some((begun, Instant::now()));
        Ok(())
    }

    fn close_window(&mut self) -> io::Result<()> {
        let Some((from, to)) = self.cleared.take() else { return Ok(()) };
        // A granule that becomes resident late in a slice was not touched before.
        self.observed_s += to.elapsed().as_secs_f64();
        let before = std::mem::take(&mut self.usages);
        let was_current = self.is_current;
        let read = self.look();
        let usages = std::mem::take(&mut self.usages);
        self.is_current = was_current;
        // The kernel walks the pages in the order of addresses, when it clears and when it reports.
        // So each granule's window begins when that granule was cleared, not when the last one was.
        let all: u64 = usages.iter().map(|usage| usage.resident_bytes).sum();
        let (mut passed, mut huge_bytes, mut shared_bytes) = (0, 0, 0);
        // A run, and its window so far: the program may have divided it further.
        let mut run: Option<(usize, SampleWindow, u32)> = None;
        for usage in &usages {
            let share = passed as f64 / all.max(1) as f64;
            passed += usage.resident_bytes;
            let Some(is_file) = kind(&self.wanted, usage) else { continue };
            // News of huge pages count from the next slice on.
            note_huge(usage, Some(is_file), &mut self.huge);
            if usage.resident_bytes == 0 {
                continue;
            }
            huge_bytes += usage.huge_bytes;
            let fresh_bytes = usage.resident_bytes - self.resident_before(usage, &before);
            let at = self.runs.partition_point(|run| run.end <= usage.start);
            let found = self.runs.get(at).filter(|run| run.start <= usage.start && usage.end <= run.end);
            if found.is_some() {
                shared_bytes += usage.shared_bytes;
                // What others have mapped too is not cleared.
                let own = |bytes: u64| pages(bytes.saturating_sub(usage.shared_bytes), PAGE_BYTES);
                let seconds = usage.told.saturating_duration_since(to).as_secs_f64().max(1e-6);
                let fresh = pages(fresh_bytes, PAGE_BYTES);
                let touched = own(usage.referenced_bytes).saturating_sub(fresh);
                let pages = own(usage.resident_bytes).saturating_sub(fresh);
                match &mut run {
                    Some((number, window, all)) if *number == at => {
                        window.touched += touched;
                        window.pages += pages;
                        *all += fresh;
                    }
                    _ => {
                        let next = (at, SampleWindow { seconds, touched, pages }, fresh);
                        if let Some((number, window, fresh)) = run.replace(next) {
                            self.add_run((self.runs[number], window, fresh));
                        }
                    }
                }
            } else if !self.drawn[usize::from(is_file)] {
                self.add_whole(usage, fresh_bytes, from + (to - from).mul_f64(share));
            }
        }
        if let Some((number, window, fresh)) = run {
            self.add_run((self.runs[number], window, fresh));
        }
        self.huge_bytes = self.huge_bytes.max(huge_bytes);
        self.shared_bytes = self.shared_bytes.max(shared_bytes);
        self.usages = usages;
        self.is_current = true;
        read
    }

    fn collect(&mut self, slice: Duration, each: &mut dyn FnMut(Seen)) -> io::Result<()> {
        let observed_s = std::mem::take(&mut self.observed_s);
        let load = |address, bytes, weight| each(Seen { address, bytes, weight, op: Op::Unknown });
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
        if self.division.whole > 0 {
            notes.push(
                "refs: mappings that would have made more granules than the kernel allows were looked at as wholes; record with a \
                 coarser --granule"
                    .to_owned(),
            );
        }
        if let Some(error) = &self.division.refused {
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
        if self.shared_bytes > 0 {
            notes.push(format!(
                "refs: up to {} KiB that other programs have mapped too were left out; --every-page counts them",
                self.shared_bytes >> 10
            ));
        }
        notes
    }
}
