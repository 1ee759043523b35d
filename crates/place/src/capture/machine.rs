//! Recording of the whole machine's memory by physical address, with the kernel's DAMON.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tiermem_sys::cpu_time;
use tiermem_sys::numa::{self, Ram};
use tiermem_trace::recording::{
    Cost, Executable, Head, Level, Mode, Recording, Region, RegionKind, Sample, Slice,
};

use super::live::SAMPLE_BYTES_MAX;
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

/// Records all of the machine's memory until it is asked to stop. `progress` gets the slices so far.
///
/// # Errors
/// If the kernel does not show physical addresses to this user, has no DAMON for them, or DAMON
/// is in use already. If the monitor disappears later, the recording ends there and says so.
pub fn record(
    options: &Options,
    stop: &Stop,
    mut progress: impl FnMut(usize),
) -> Result<Recording, CaptureError> {
    let ram = numa::ram().map_err(CaptureError::Machine)?;
    let mut damon = Damon::open_machine(&ram).map_err(CaptureError::Machine)?;
    let (begun, cpu_before) = (Instant::now(), cpu_time::thread_cpu_time());
    let began_unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let (mut slices, mut samples): (Vec<Slice>, Vec<Sample>) = (Vec::new(), Vec::new());
    let is_over = || stop.is_asked() || options.duration.is_some_and(|most| begun.elapsed() >= most);
    let mut lost = None;
    while lost.is_none() && !is_over() {
        let start = begun.elapsed();
        let until = start + options.slice;
        while begun.elapsed() < until && !is_over() {
            std::thread::sleep(STEP.min(until.saturating_sub(begun.elapsed())));
        }
        let slice = slices.len() as u32;
        let mut each = |address: u64, bytes: u64, weight: f64| {
            pieces(&ram, address, bytes, |region, offset, part| {
                samples.push(Sample {
                    slice,
                    region: region as u32,
                    offset,
                    bytes: part as u32,
                    weight: (weight * part as f64 / bytes as f64) as f32,
                    latency_cycles: 0.0,
                    source: 0,
                    op: tiermem_base::Op::Load,
                    level: Level::Unknown,
                    mode: Mode::Unknown,
                    node: ram[region].node.min(u32::from(u8::MAX - 1)) as u8,
                });
            });
        };
        let length = begun.elapsed() - start;
        let collected = damon.collect(length, &mut |seen| each(seen.address, seen.bytes, seen.weight));
        lost = collected
            .err()
            .map(|error| format!("the kernel's monitor went away: {error}; the recording ends there"));
        slices.push(Slice { start_ns: start.as_nanos() as u64, end_ns: (start + length).as_nanos() as u64 });
        progress(slices.len());
    }
    let source = damon.describe();
    damon.finish();
    let wall = begun.elapsed();
    let notes: Vec<String> = damon.notes().into_iter().chain(lost).collect();
    if samples.is_empty() {
        let (milliseconds, notes) = (wall.as_millis(), notes.join("; "));
        return Err(CaptureError::SawNothing { milliseconds, notes });
    }
    let last_slice = slices.len().saturating_sub(1) as u32;
    let head = Head {
        version: Head::VERSION,
        command: Vec::new(),
        executable: Executable::default(),
        began_unix_ns,
        granule_bytes: options.granule_bytes,
        slices,
        sources: vec![source],
        regions: regions(&ram, last_slice),
        cost: Cost {
            wall_s: wall.as_secs_f64(),
            recorder_cpu_s: (cpu_time::thread_cpu_time() - cpu_before).as_secs_f64(),
            program_cpu_s: 0.0,
            agent_cpu_s: 0.0,
        },
        notes,
    };
    Ok(Recording { head, samples })
}

/// Tells the parts of a stretch of addresses that are memory: number, offset and bytes.
fn pieces(ram: &[Ram], address: u64, bytes: u64, mut each: impl FnMut(usize, u64, u64)) {
    let end = address.saturating_add(bytes);
    let first = ram.partition_point(|it| it.end <= address);
    for (region, it) in ram.iter().enumerate().skip(first).take_while(|(_, it)| it.start < end) {
        let (mut from, until) = (address.max(it.start), end.min(it.end));
        while from < until {
            let part = (until - from).min(SAMPLE_BYTES_MAX);
            each(region, from - it.start, part);
            from += part;
        }
    }
}

/// A region for each stretch of memory. No program has it, so that no plan speaks of it.
fn regions(ram: &[Ram], last_slice: u32) -> Vec<Region> {
    let region = |(number, it): (usize, &Ram)| Region {
        name: format!("node {} ram {}", it.node, number + 1),
        kind: RegionKind::Special,
        start: it.start,
        bytes: it.end - it.start,
        last_slice,
        ..Region::default()
    };
    ram.iter().enumerate().map(region).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_lies_in_memory_and_in_pieces_that_a_sample_can_tell() {
        let of = |start: u64, end: u64, node| Ram { start, end, node };
        let ram = [of(0x1000, 0x9000, 0), of(1 << 20, 3 << 30, 0), of(3 << 30, 5 << 30, 1)];
        let parts = |address, bytes| {
            let mut found = Vec::new();
            pieces(&ram, address, bytes, |region, offset, part| found.push((region, offset, part)));
            found
        };
        assert_eq!(parts(0, 0x2000), [(0, 0, 0x1000)]);
        assert_eq!(parts(0x9000, 0x1000), []);
        assert_eq!(parts(0x8000, 1 << 20), [(0, 0x7000, 0x1000), (1, 0, 0x8000)]);
        assert_eq!(
            parts((3 << 30) - 4096, 2 << 30),
            [(1, (3 << 30) - (1 << 20) - 4096, 4096), (2, 0, 1 << 30), (2, 1 << 30, (1 << 30) - 4096)]
        );
        let names: Vec<String> = regions(&ram, 3).into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["node 0 ram 1", "node 0 ram 2", "node 1 ram 3"]);
    }
}
