//! How much of what was seen is in memory at a slice's end: a granule may hold a page, or nothing.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use tiermem_sys::page_scan::PageScan;
use tiermem_trace::recording::JournalSample;

const PAGE_BYTES: u64 = 4096;
/// Asking again about what is known takes no more than such a part of the time.
const ASKING_PART: u32 = 100;
/// Ranges that lie no further apart are asked about at once.
const GAP_BYTES: u64 = 2 << 20;
/// After so many bytes is looked at the clock, unless one range has more.
const BYTES_AT_ONCE: u64 = 256 << 20;
/// What was not seen for so many slices is forgotten.
const SLICES_KEPT: u64 = 64;

/// An answer of the kernel's.
#[derive(Clone, Copy, Debug)]
struct Answer {
    bytes: u64,
    seen_in: u64,
}

/// Asks the kernel, 12 ns for each page of 4 KiB that there is. What is known already is asked about in turn, a part in each slice if
/// there is much.
#[derive(Debug)]
pub(super) struct Resident {
    /// By address and bytes.
    known: BTreeMap<(u64, u64), Answer>,
    slice: u64,
    filled: Instant,
    /// What is asked about again begins here.
    next: u64,
    refused: Option<String>,
}

impl Resident {
    pub fn new() -> Self {
        Resident { known: BTreeMap::new(), slice: 0, filled: Instant::now(), next: 0, refused: None }
    }

    /// Fills in the resident bytes of what was seen in a slice. Where they are not known (the process has gone, the memory was given
    /// back), they are those of the last time, or all.
    pub fn fill(&mut self, pid: u32, samples: &mut [JournalSample]) {
        let allowance = self.filled.elapsed() / ASKING_PART;
        self.filled = Instant::now();
        self.fill_within(pid, samples, allowance);
    }

    fn fill_within(&mut self, pid: u32, samples: &mut [JournalSample], allowance: Duration) {
        self.slice += 1;
        // A page that was seen is there.
        let is_asked = |sample: &&JournalSample| sample.bytes > PAGE_BYTES;
        let mut ranges: Vec<(u64, u64)> =
            samples.iter().filter(is_asked).map(|sample| (sample.address, sample.bytes)).collect();
        ranges.sort_unstable();
        ranges.dedup();
        if let Err(error) = self.ask(pid, &ranges, allowance) {
            // One that has gone is no reason for a note.
            let has_gone = error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(3);
            self.refused = (!has_gone).then(|| error.to_string()).or(self.refused.take());
        }
        for range in &ranges {
            if let Some(answer) = self.known.get_mut(range) {
                answer.seen_in = self.slice;
            }
        }
        self.known.retain(|_, answer| answer.seen_in + SLICES_KEPT > self.slice);
        for sample in samples {
            let answer = self.known.get(&(sample.address, sample.bytes));
            sample.resident = answer.map_or(sample.bytes, |answer| answer.bytes.min(sample.bytes));
        }
    }

    /// Asks about ranges of which nothing is known, and then about the others while there is time.
    fn ask(&mut self, pid: u32, ranges: &[(u64, u64)], allowance: Duration) -> io::Result<()> {
        if ranges.is_empty() {
            return Ok(());
        }
        let mut scan = PageScan::open(pid)?;
        let (known, new): (Vec<_>, Vec<_>) =
            ranges.iter().copied().partition(|it| self.known.contains_key(it));
        for batch in batches(&new) {
            self.ask_at_once(&mut scan, batch)?;
        }
        let turn = known.partition_point(|(address, _)| *address < self.next);
        let (later, first) = known.split_at(turn);
        let begun = Instant::now();
        for batch in batches(first).chain(batches(later)) {
            if begun.elapsed() >= allowance {
                self.next = batch[0].0;
                return Ok(());
            }
            self.ask_at_once(&mut scan, batch)?;
        }
        Ok(())
    }

    fn ask_at_once(&mut self, scan: &mut PageScan, ranges: &[(u64, u64)]) -> io::Result<()> {
        let (start, end) = extent(ranges);
        let mut present: Vec<(u64, u64)> = Vec::new();
        // Mappings may change meanwhile, so that the kernel tells of the same place again.
        scan.present(start, end, |range| {
            let from = present.last().map_or(range.start, |last| range.start.max(last.1));
            if from < range.end {
                present.push((from, range.end));
            }
        })?;
        for (address, bytes) in ranges.iter().copied() {
            let end = address + bytes;
            let first = present.partition_point(|range| range.1 <= address);
            let within = present[first..].iter().take_while(|range| range.0 < end);
            let found: u64 = within.map(|range| range.1.min(end).saturating_sub(range.0.max(address))).sum();
            // Something was seen there: it was given back since.
            if found > 0 {
                self.known.insert((address, bytes), Answer { bytes: found, seen_in: self.slice });
            }
        }
        Ok(())
    }

    /// A note for the user, if the kernel does not tell.
    pub fn note(&self) -> Option<String> {
        let error = self.refused.as_ref()?;
        Some(format!(
            "what is in memory could not be asked ({error}; it takes Linux 6.7), so touched bytes count whole granules"
        ))
    }
}

/// From the first address of some ranges, in their order, to behind the last.
fn extent(ranges: &[(u64, u64)]) -> (u64, u64) {
    let end = ranges.iter().map(|(address, bytes)| address + bytes).max().unwrap_or(0);
    (ranges.first().map_or(end, |range| range.0), end)
}

/// Ranges that lie together, in the order of addresses.
fn batches(ranges: &[(u64, u64)]) -> impl Iterator<Item = &[(u64, u64)]> {
    let mut rest = ranges;
    std::iter::from_fn(move || {
        let (start, first_bytes) = *rest.first()?;
        let mut end = start + first_bytes;
        let mut is_near = |(address, bytes): &(u64, u64)| {
            let is_near =
                *address <= end.saturating_add(GAP_BYTES) && address + bytes - start <= BYTES_AT_ONCE;
            end = end.max(address + bytes);
            is_near
        };
        let count = 1 + rest[1..].iter().take_while(|range| is_near(range)).count();
        let (batch, behind) = rest.split_at(count);
        rest = behind;
        Some(batch)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_base::Op;
    use tiermem_sys::mapping::Mapping;
    use tiermem_trace::recording::Level;

    fn sample(address: u64, bytes: u64) -> JournalSample {
        JournalSample {
            region: 0,
            address,
            bytes,
            weight: 1.0,
            resident: bytes,
            source: 0,
            op: Op::Unknown,
            level: Level::Unknown,
            node: 0,
        }
    }

    #[test]
    fn ranges_that_lie_together_are_asked_about_at_once() {
        let far = 1 << 40;
        let ranges =
            [(0, 4096), (4096, 8192), (0x10_0000, 4096), (far, 1 << 40), (2 * far, 4096), (2 * far, 8192)];
        let found: Vec<&[(u64, u64)]> = batches(&ranges).collect();
        assert_eq!(found, [&ranges[..3], &ranges[3..4], &ranges[4..]]);
        assert_eq!(batches(&[]).count(), 0);
    }

    #[test]
    fn what_is_in_memory_counts_and_is_asked_again_while_there_is_time() {
        let pid = std::process::id();
        let granule = 1 << 20;
        let mut memory = Mapping::anonymous(8 << 20).unwrap();
        memory.bytes_mut()[0] = 1;
        let start = memory.bytes().as_ptr().addr() as u64;
        let mut samples: Vec<JournalSample> =
            (0..8).map(|at| sample(start + at * granule, granule)).chain([sample(start, 4096)]).collect();
        let mut resident = Resident::new();
        let mut fill = |samples: &mut Vec<JournalSample>, allowance| {
            resident.fill_within(pid, samples, allowance);
            assert_eq!(resident.note(), None);
            samples.iter().map(|sample| sample.resident).collect::<Vec<u64>>()
        };
        let held = |memory: &Mapping| {
            let mut scan = PageScan::open(pid).unwrap();
            let start = memory.bytes().as_ptr().addr() as u64;
            let mut sum = 0;
            scan.present(start, start + granule, |range| sum += range.end - range.start).unwrap();
            sum
        };
        let first = held(&memory);
        let found = fill(&mut samples, Duration::ZERO);
        // A granule in which something was seen, and is no more, counts whole.
        assert_eq!((found[0], found[7], found[8]), (first, granule, 4096));
        memory.bytes_mut()[..granule as usize].fill(1);
        assert_eq!(fill(&mut samples, Duration::ZERO)[0], first);
        assert_eq!(fill(&mut samples, Duration::MAX)[0], held(&memory));
        // What was given back is told as it was.
        memory.discard(0, 8 << 20);
        assert_eq!(fill(&mut samples, Duration::MAX)[0], granule);
    }

    #[test]
    fn of_a_process_that_has_gone_nothing_is_known() {
        let mut samples = [sample(0x1000_0000, 1 << 20)];
        let mut resident = Resident::new();
        resident.fill(u32::MAX, &mut samples);
        assert_eq!((samples[0].resident, resident.note()), (1 << 20, None));
    }
}
