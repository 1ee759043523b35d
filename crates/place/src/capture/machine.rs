//! Recording of the whole machine's memory by physical address, with the kernel's DAMON.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tiermem_sys::cpu_time;
use tiermem_sys::numa::{self, Ram};
use tiermem_trace::TraceError;
use tiermem_trace::recording::{
    Cost, Facts, Head, Journal, JournalSample, Level, NumberedRegion, Recording, Region, RegionKind, Slice,
};

use super::sampling::Source;
use super::sampling::damon::Damon;
use super::{CaptureError, Stop};

/// Longest delay until a request to stop is noticed.
const STEP: Duration = Duration::from_millis(50);

/// Options of recording the machine.
#[derive(Clone, Debug)]
pub struct Options {
    /// The length of a slice.
    pub slice: Duration,
    /// Bytes of a granule.
    pub granule_bytes: u64,
    /// Stop after this time; `None`: when asked to.
    pub duration: Option<Duration>,
}

/// Records all of the machine's memory into a journal until it is asked to stop. `progress` gets the journal after each slice. Why it ended early
/// stands beside the recording, if the journal could not be written on.
///
/// # Errors
/// If the kernel does not show physical addresses to this user, has no DAMON for them, or DAMON
/// is in use already. If the monitor disappears later, the recording ends there and says so.
pub fn record(
    options: &Options,
    journal: &mut Journal,
    stop: &Stop,
    mut progress: impl FnMut(&Journal),
) -> Result<(Recording, Option<TraceError>), CaptureError> {
    let ram = numa::ram().map_err(CaptureError::Machine)?;
    let mut damon = Damon::open_machine(&ram).map_err(CaptureError::Machine)?;
    let (begun, cpu_before) = (Instant::now(), cpu_time::thread_cpu_time());
    let began_unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let facts = Facts { regions: regions(&ram), processes: Vec::new() };
    let head = |damon: &Damon, lost: Option<&str>| Head {
        version: Head::VERSION,
        began_unix_ns,
        granule_bytes: options.granule_bytes,
        sources: vec![damon.describe()],
        sites: None,
        cost: Cost {
            wall_s: begun.elapsed().as_secs_f64(),
            recorder_cpu_s: (cpu_time::thread_cpu_time() - cpu_before).as_secs_f64(),
            ..Cost::default()
        },
        notes: damon.notes().into_iter().chain(lost.map(str::to_owned)).collect(),
        ..Head::default()
    };
    let mut samples: Vec<JournalSample> = Vec::new();
    let mut cut_short = None;
    let is_over = || stop.is_asked() || options.duration.is_some_and(|most| begun.elapsed() >= most);
    let mut lost: Option<String> = None;
    while lost.is_none() && cut_short.is_none() && !is_over() {
        let start = begun.elapsed();
        let until = start + options.slice;
        while begun.elapsed() < until && !is_over() {
            std::thread::sleep(STEP.min(until.saturating_sub(begun.elapsed())));
        }
        samples.clear();
        let mut each = |address: u64, bytes: u64, weight: f64| {
            pieces(&ram, address, bytes, |region, address, part| {
                samples.push(JournalSample {
                    region: region as u32,
                    address,
                    bytes: part,
                    weight: weight * part as f64 / bytes as f64,
                    resident: part,
                    source: 0,
                    op: tiermem_base::Op::Unknown,
                    level: Level::Unknown,
                    node: ram[region].node.min(u32::from(u8::MAX - 1)) as u8,
                });
            });
        };
        let length = begun.elapsed() - start;
        let collected = damon.collect(length, &mut |seen| each(seen.address, seen.bytes, seen.weight));
        lost = collected
            .err()
            .map(|error| format!("the kernel's monitor went away: {error}; the recording ends there"));
        let slice = Slice { start_ns: start.as_nanos() as u64, end_ns: (start + length).as_nanos() as u64 };
        let written = journal.slice(&head(&damon, lost.as_deref()), slice, facts.clone(), &samples);
        cut_short = written.err();
        progress(journal);
    }
    damon.finish();
    let mut head = head(&damon, lost.as_deref());
    if let Some(error) = &cut_short {
        head.notes.push(format!("the recording ended as it could not be written: {error}"));
    }
    Ok((journal.end(head, facts)?, cut_short))
}

/// Tells the parts of a stretch of addresses that are memory: number, address and bytes.
fn pieces(ram: &[Ram], address: u64, bytes: u64, mut each: impl FnMut(usize, u64, u64)) {
    let end = address.saturating_add(bytes);
    let first = ram.partition_point(|it| it.end <= address);
    for (region, it) in ram.iter().enumerate().skip(first).take_while(|(_, it)| it.start < end) {
        let (from, until) = (address.max(it.start), end.min(it.end));
        if from < until {
            each(region, from, until - from);
        }
    }
}

/// A region for each stretch of memory. No program has it, so that no plan speaks of it.
fn regions(ram: &[Ram]) -> Vec<NumberedRegion> {
    let region = |(number, it): (u32, &Ram)| NumberedRegion {
        number,
        within: None,
        is_mapped: true,
        region: Region {
            name: format!("node {} ram {}", it.node, number + 1),
            kind: RegionKind::Special,
            start: it.start,
            bytes: it.end - it.start,
            ..Region::default()
        },
    };
    (0..).zip(ram).map(region).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_lies_in_memory() {
        let of = |start: u64, end: u64, node| Ram { start, end, node };
        let ram = [of(0x1000, 0x9000, 0), of(1 << 20, 3 << 30, 0), of(3 << 30, 5 << 30, 1)];
        let parts = |address, bytes| {
            let mut found = Vec::new();
            pieces(&ram, address, bytes, |region, address, part| found.push((region, address, part)));
            found
        };
        assert_eq!(parts(0, 0x2000), [(0, 0x1000, 0x1000)]);
        assert_eq!(parts(0x9000, 0x1000), []);
        assert_eq!(parts(0x8000, 1 << 20), [(0, 0x8000, 0x1000), (1, 1 << 20, 0x8000)]);
        let last = 3 << 30;
        assert_eq!(parts(last - 4096, 2 << 30), [(1, last - 4096, 4096), (2, last, (2 << 30) - 4096)]);
        let names: Vec<String> = regions(&ram).into_iter().map(|it| it.region.name).collect();
        assert_eq!(names, ["node 0 ram 1", "node 0 ram 2", "node 1 ram 3"]);
    }
}
