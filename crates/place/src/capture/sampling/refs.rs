//! Source `refs`: which pages were referenced, from the bits that the processor sets in page tables.
//!
//! The kernel shows them for each mapping (`/proc/PID/smaps`), not for each page. So the
//! agent within the program splits mappings, by excluding parts of them from core dumps,
//! which changes nothing else. Without an agent the granules are the program's own mappings.
//!
//! Which bits are cleared, and when they are read, is decided by [`tiermem_policy::accessed_bits`]; this is its live body. A
//! cleared bit costs the program time when it is set again, 0.4 us in a virtual machine.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use tiermem_base::Op;
use tiermem_policy::accessed_bits::{
    Clearing, HUGE_BYTES, HUGE_PAGES, PAGE_BYTES, PageTable, Sampler, Settings, Span, TOO_FAST_PER_S, Told,
};
use tiermem_sys::agent::Agent;
use tiermem_sys::aging;
use tiermem_sys::mapping::Pages;
use tiermem_sys::perf::RunClock;
use tiermem_sys::pidfd::PidFd;
use tiermem_sys::process_advice::ProcessAdvice;
use tiermem_sys::smaps::{Clear, Smaps, Usage};
use tiermem_trace::recording;

use super::granules::{Division, is_file};
use super::{Seen, Shape, Source};

/// The system's error for a process that has ended (`ESRCH`).
const NO_PROCESS: i32 = 3;
/// Windows of a slice, where looking takes so little time.
const WINDOWS_MAX: u32 = 12;
/// Time that the walk takes for a mapping, in pages of it.
const MAPPING_PAGES: f64 = 50.0;

pub(in crate::capture) struct Refs {
    tables: Tables,
    sampler: Sampler,
    division: Division,
    spans: Vec<Span>,
    /// Whether it had to look without an agent.
    lacks_agent: bool,
    is_window: bool,
    clears_at_once: bool,
    /// Huge pages that are mapped page by page now.
    examined: Vec<u64>,
    /// Whether their pages were read.
    is_examined: bool,
    /// Why none is examined any more.
    not_examined: Option<String>,
    too_fast: usize,
}

/// The kernel's side.
struct Tables {
    smaps: Smaps,
    process: PidFd,
    /// Without it the process is taken to run all the time.
    clock: io::Result<RunClock>,
    origin: Instant,
    /// Ranges that are wanted, in the order of addresses, and whether they are a file's.
    wanted: Vec<(u64, u64, bool)>,
    usages: Vec<Usage>,
    ranges: Vec<(u64, u64)>,
    /// Whether huge pages may be in what is no file's, and in files.
    huge: [bool; 2],
    /// In this pass, and the most of any.
    huge_bytes: [u64; 2],
    shared_bytes: [u64; 2],
    /// Whether pages of files are cleared whoever else has mapped them.
    are_files_cleared: bool,
}

impl Refs {
    /// Opens it for a process: every page, or a sample where that is possible.
    pub fn open(pid: u32, every_page: bool) -> io::Result<Self> {
        let process = PidFd::open(pid)?;
        let clearing = match aging::is_allowed(process.as_fd()) {
            false => Clearing::AtOnce,
            true if every_page => Clearing::EveryPage,
            true => Clearing::Sampled,
        };
        let not_examined = process.may_advise(ProcessAdvice::Collapse).err().map(|error| error.to_string());
        let tables = Tables {
            smaps: Smaps::open(pid)?,
            process,
            clock: RunClock::open(pid),
            origin: Instant::now(),
            wanted: Vec::new(),
            usages: Vec::new(),
            ranges: Vec::new(),
            huge: [false; 2],
            huge_bytes: [0; 2],
            shared_bytes: [0; 2],
            are_files_cleared: false,
        };
        Ok(Refs {
            tables,
            sampler: Sampler::new(Settings { clearing, ..Settings::default() }),
            division: Division::default(),
            spans: Vec::new(),
            lacks_agent: false,
            is_window: false,
            clears_at_once: clearing == Clearing::AtOnce,
            examined: Vec::new(),
            is_examined: false,
            not_examined,
            too_fast: 0,
        })
    }

    /// Has some huge pages mapped page by page, if bits do not tell how hot they are.
    fn examine(&mut self, agent: &mut Agent) {
        if self.not_examined.is_some() || self.clears_at_once {
            return;
        }
        let wanted = &self.tables.wanted;
        for huge in self.sampler.examine(|span| kind(wanted, span.start) == Some(false)) {
            // A program that has given the memory back has no such page.
            if self.division.map_by_pages(huge, agent).is_ok() {
                self.examined.push(huge);
            }
        }
    }

    /// Makes huge pages again of those that were examined.
    fn end_examining(&mut self) {
        self.is_examined = false;
        let pages = self.examined.drain(..).filter_map(|huge| Pages::of_other_process(huge, HUGE_BYTES).ok());
        let pages: Vec<Pages<'_>> = pages.collect();
        let mut refused = 0;
        let collapsed = self.tables.process.advise(&pages, ProcessAdvice::Collapse, |_, _| refused += 1);
        let why = match collapsed {
            Err(error) => Some(error.to_string()),
            Ok(_) if refused > 0 => Some("the kernel did not make huge pages of them again".to_owned()),
            Ok(_) => None,
        };
        self.not_examined = why.or(self.not_examined.take());
        self.sampler.end_examining();
    }
}

/// Whether an address is a file's, if it is in one of the ranges that are wanted.
fn kind(wanted: &[(u64, u64, bool)], address: u64) -> Option<bool> {
    let at = wanted.partition_point(|(_, end, _)| *end <= address);
    wanted.get(at).filter(|(start, ..)| *start <= address).map(|(.., is_file)| *is_file)
}

fn pages(bytes: u64) -> u32 {
    bytes.div_ceil(PAGE_BYTES).min(u64::from(u32::MAX)) as u32
}

impl Tables {
    fn instant(&self, s: f64) -> Instant {
        self.origin + Duration::from_secs_f64(s.max(0.0))
    }

    fn seconds(&self, instant: Instant) -> f64 {
        instant.saturating_duration_since(self.origin).as_secs_f64()
    }

    /// What the walk told of a mapping that is wanted.
    fn note(&mut self, usage: &Usage) -> Option<Told> {
        // The program may have joined it with what is not wanted.
        let is_file = kind(&self.wanted, usage.start)?;
        let may_be_huge = usage.may_be_huge && usage.end - usage.start >= HUGE_BYTES;
        self.huge[usize::from(is_file)] |= usage.huge_bytes > 0 || may_be_huge;
        self.huge_bytes[0] += usage.huge_bytes;
        let is_left_out = !is_file || !self.are_files_cleared;
        self.shared_bytes[0] += if is_left_out { usage.shared_bytes } else { 0 };
        (usage.resident_bytes > 0).then(|| Told {
            start: usage.start,
            end: usage.end,
            small: pages(usage.resident_bytes.saturating_sub(usage.huge_bytes)),
            huge: pages(usage.huge_bytes) / HUGE_PAGES,
            touched: pages(usage.referenced_bytes),
            shared: pages(usage.shared_bytes),
            is_file,
            ..Told::default()
        })
    }
}

impl PageTable for Tables {
    type Error = io::Error;

    fn now_s(&mut self) -> f64 {
        self.origin.elapsed().as_secs_f64()
    }

    fn ran_s(&mut self) -> f64 {
        let ran = self.clock.as_ref().ok().and_then(|clock| clock.read().ok());
        ran.unwrap_or_else(|| self.origin.elapsed()).as_secs_f64()
    }

    fn pause(&mut self, seconds: f64) {
        std::thread::sleep(Duration::from_secs_f64(seconds));
    }

    fn clear(&mut self, spans: &[Span]) -> io::Result<()> {
        if spans == [Span::ALL] {
            return self.smaps.clear(Clear::All);
        }
        self.ranges.clear();
        self.ranges.extend(spans.iter().map(|span| (span.start, span.end - span.start)));
        aging::make_old(self.process.as_fd(), &self.ranges)
    }

    fn clear_files(&mut self) -> io::Result<()> {
        self.smaps.clear(Clear::Mapped)
    }

    fn read(&mut self, told: &mut Vec<Told>) -> io::Result<bool> {
        let mut usages = std::mem::take(&mut self.usages);
        usages.clear();
        let (from_s, ran_from_s) = (self.now_s(), self.ran_s());
        let goes_on = self.smaps.read_some(|usage| usages.push(usage));
        let (took_s, ran_s) = (self.now_s() - from_s, self.ran_s() - ran_from_s);
        // The kernel goes through a last mapping in vain, for whose text there was no room.
        let cost = |usage: &Usage| {
            MAPPING_PAGES
                + (usage.resident_bytes - usage.huge_bytes.min(usage.resident_bytes)) as f64
                    / PAGE_BYTES as f64
        };
        let all: f64 = usages.iter().map(cost).sum();
        let all = all * (usages.len() + 1) as f64 / usages.len().max(1) as f64;
        let mut passed = 0.0;
        for usage in &usages {
            let from = passed / all;
            passed += cost(usage);
            let found = self.note(usage);
            told.extend(found.map(|it| Told {
                from_s: from_s + took_s * from,
                ran_from_s: ran_from_s + ran_s * from,
                ran_to_s: ran_from_s + ran_s * passed / all,
                ..it
            }));
        }
        self.usages = usages;
        goes_on
    }
}

impl Source for Refs {
    fn describe(&self) -> recording::Source {
        let unit = recording::Unit::PageTouches;
        recording::Source { name: "refs".to_owned(), unit, tells_stores: false, tells_level: false }
    }

    fn begin(&mut self, shape: &Shape<'_>, agent: Option<&mut Agent>) -> io::Result<()> {
        let tables = &mut self.tables;
        tables.wanted.clear();
        tables.wanted.extend(shape.mappings.iter().map(|line| (line.start, line.end, is_file(line))));
        self.lacks_agent |= agent.is_none();
        if let Some(agent) = agent {
            if self.division.has_news(shape) {
                // Granules begin with a huge page where there may be any.
                let mut usages = std::mem::take(&mut tables.usages);
                usages.clear();
                tables.smaps.read(|usage| usages.push(usage))?;
                for usage in &usages {
                    let _ = tables.note(usage);
                }
                tables.usages = usages;
            }
            let huge = tables.huge;
            self.division.divide(shape, agent, |is_file| huge[usize::from(is_file)]);
            self.division.spans(shape.mappings, &mut self.spans);
            self.sampler.set_granules(&self.spans);
            self.examine(agent);
        } else {
            self.division.spans(shape.mappings, &mut self.spans);
            self.sampler.set_granules(&self.spans);
        }
        Ok(())
    }

    fn windows_max(&self) -> u32 {
        // Where all pages are cleared at once, a short and a long one have to do.
        if self.clears_at_once { 2 } else { WINDOWS_MAX }
    }

    fn open_window(&mut self, until: Instant) -> io::Result<()> {
        self.is_window = true;
        let read_at_s = self.tables.seconds(until);
        self.sampler.open(&mut self.tables, read_at_s)
    }

    fn due(&self) -> Option<Instant> {
        if self.is_examined {
            return Some(self.tables.origin);
        }
        self.sampler.due_s().map(|s| self.tables.instant(s))
    }

    fn act(&mut self) -> io::Result<()> {
        if self.is_examined {
            self.end_examining();
        }
        self.sampler.clear_due(&mut self.tables)
    }

    fn close_window(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.is_window) {
            return Ok(());
        }
        self.tables.smaps.rewind()?;
        let read = self.sampler.pass(&mut self.tables);
        let Tables { huge_bytes, shared_bytes, .. } = &mut self.tables;
        for [now, most] in [huge_bytes, shared_bytes] {
            *most = (*most).max(std::mem::take(now));
        }
        self.is_examined = !self.examined.is_empty();
        read
    }

    fn collect(&mut self, _: Duration, each: &mut dyn FnMut(Seen)) -> io::Result<()> {
        if !self.examined.is_empty() {
            self.end_examining();
        }
        self.sampler.take(&mut self.tables, |span, weight| {
            each(Seen { address: span.start, bytes: span.end - span.start, weight, op: Op::Unknown });
        });
        let are_cleared = self.sampler.clears_shared_files();
        if std::mem::replace(&mut self.tables.are_files_cleared, are_cleared) != are_cleared {
            self.tables.shared_bytes = [0; 2];
        }
        self.too_fast = self.too_fast.max(self.sampler.granules_too_fast());
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.lacks_agent {
            notes.push(
                "refs: there was no agent within the program, so its mappings were looked at as wholes, and which parts of them are \
                 hot is not known; with --pid, --inject brings one in"
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
        let [_, huge_bytes] = self.tables.huge_bytes;
        if huge_bytes > 0 {
            notes.push(format!("refs: up to {} MiB lay in huge pages", huge_bytes >> 20));
        }
        if let Some(error) = self.not_examined.as_ref().filter(|_| self.too_fast > 0) {
            notes.push(format!(
                "refs: {} granules have huge pages that are accessed more than {TOO_FAST_PER_S} times a second each, which their bits \
                 do not tell: they have at least the heat that is told; the pages of some could not be looked at one by one ({error})",
                self.too_fast
            ));
        }
        // A program that has ended by then is no reason for advice.
        let refused =
            self.tables.clock.as_ref().err().filter(|error| error.raw_os_error() != Some(NO_PROCESS));
        if let Some(error) = refused {
            notes.push(format!(
                "refs: how long the program ran within a window is not known ({error}); kernel.perf_event_paranoid of 2 or \
                 CAP_PERFMON allows it. Where it had to wait for a processor its heat is told too low"
            ));
        }
        let [_, shared_bytes] = self.tables.shared_bytes;
        if shared_bytes > 0 {
            notes.push(format!(
                "refs: up to {} KiB that other programs have mapped too were left out, as their bits cannot be cleared",
                shared_bytes >> 10
            ));
        }
        notes
    }

    fn finish(&mut self) {
        if !self.examined.is_empty() {
            self.end_examining();
        }
    }
}
