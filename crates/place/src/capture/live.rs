//! Live recording of a program, slice by slice, with the sources that scan it repeatedly.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tiermem_sys::cpu_time;
use tiermem_trace::recording::{Cost, Head, Mode, Recording, Region, Sample, Slice, Source};

use super::numa_residency::{Located, Whereabouts};
use super::observer::Observer;
pub use super::options::{Closer, Ending, Options, SourceKind, Target};
use super::{CaptureError, Stop};

/// The largest range of one sample: its bytes are a number of 32 bits.
pub(super) const SAMPLE_BYTES_MAX: u64 = 1 << 30;

/// Records a program. `progress` gets the slices so far. A program that was started here does not outlive this call.
///
/// # Errors
/// If the program cannot be started or observed, if a source cannot work here, or if it ended before anything was seen.
pub fn record(
    options: &Options,
    stop: &Stop,
    mut progress: impl FnMut(usize),
) -> Result<(Recording, Ending), CaptureError> {
    let mut recorder = Recorder {
        begun: Instant::now(),
        began_unix_ns: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64,
        cpu_before: cpu_time::thread_cpu_time(),
        observer: Observer::begin(options, stop)?,
        whereabouts: Whereabouts::new(),
        samples: Vec::new(),
        slices: Vec::new(),
    };
    let mut pieces = Vec::new();
    let ended = loop {
        let Recorder { observer, whereabouts, samples, slices, begun, .. } = &mut recorder;
        let slice = slices.len() as u32;
        pieces.clear();
        let Some(looked) = observer.slice(stop, |piece| pieces.push(piece), &mut |_| {})? else { break true };
        match whereabouts {
            Some(whereabouts) => {
                whereabouts.locate(observer.process.pid, slice, &pieces, &mut |it| samples.push(it));
            }
            None => samples.extend(pieces.iter().map(|piece| Located::unknown(slice, *piece))),
        }
        let start_ns = (looked.begun - *begun).as_nanos() as u64;
        let start_ns = slices.last().map_or(start_ns, |last: &Slice| start_ns.max(last.start_ns + 1));
        slices.push(Slice { start_ns, end_ns: ((looked.end - *begun).as_nanos() as u64).max(start_ns) });
        progress(slices.len());
        if looked.ended || stop.is_asked() || options.duration.is_some_and(|most| begun.elapsed() >= most) {
            break looked.ended;
        }
    };
    // A request to stop has ended the program as well.
    let ending = recorder.observer.process.finish(ended && !stop.is_asked())?;
    let recording = recorder.finish(options, ending)?;
    Ok((recording, ending))
}

struct Recorder<'a> {
    observer: Observer<'a>,
    begun: Instant,
    began_unix_ns: u64,
    cpu_before: Duration,
    /// If there are several nodes.
    whereabouts: Option<Whereabouts>,
    /// What was seen, before regions have their final form.
    samples: Vec<Located>,
    slices: Vec<Slice>,
}

impl Recorder<'_> {
    fn finish(self, options: &Options, ending: Ending) -> Result<Recording, CaptureError> {
        let Recorder {
            mut observer,
            begun,
            began_unix_ns,
            cpu_before,
            whereabouts,
            samples: located,
            slices,
        } = self;
        observer.end_sources();
        let wall = begun.elapsed();
        if located.is_empty() {
            let milliseconds = wall.as_millis();
            return Err(match ending {
                Ending::Exited(_) | Ending::Gone => CaptureError::NothingSeen { milliseconds },
                Ending::Stopped => {
                    CaptureError::SawNothing { milliseconds, notes: observer.notes.join("; ") }
                }
            });
        }
        let cost = cost(&observer, wall, cpu_before);
        let notes = notes(&observer, options, slices.len());
        let (regions, places) = observer.regions.finish();
        let samples = samples_of(located, &regions, &places);
        let command = match &options.target {
            Target::Command(words) => words.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            Target::Process(_) => Vec::new(),
        };
        let head = Head {
            version: Head::VERSION,
            command,
            executable: observer.executable,
            began_unix_ns,
            granule_bytes: options.granule_bytes,
            slices,
            sources: observer
                .infos
                .into_iter()
                .map(|source| Source { tells_level: whereabouts.is_some(), ..source })
                .collect(),
            regions,
            cost,
            notes,
        };
        Ok(Recording { head, samples })
    }
}

/// Cost of the recording: `wall` in all, and the processor's time of the recorder's thread since `cpu_before`.
fn cost(observer: &Observer<'_>, wall: Duration, cpu_before: Duration) -> Cost {
    let children = cpu_time::children_spent();
    let spent = |spent: cpu_time::Spent| spent.user + spent.system;
    Cost {
        wall_s: wall.as_secs_f64(),
        recorder_cpu_s: (cpu_time::thread_cpu_time() - cpu_before).as_secs_f64(),
        program_cpu_s: match observer.process.program {
            Some(_) => spent(children).saturating_sub(spent(observer.process.children_before)).as_secs_f64(),
            None => 0.0,
        },
        agent_cpu_s: observer.agent_cpu().as_secs_f64(),
    }
}

/// Samples in the regions' final form: `places` has the number there of each region that pieces name. Long pieces are several samples.
fn samples_of(located: Vec<Located>, regions: &[Region], places: &[u32]) -> Vec<Sample> {
    let mut samples = Vec::with_capacity(located.len());
    for Located { slice, piece, level, node } in located {
        let region = places[piece.region as usize];
        let start = regions[region as usize].start;
        let (mut from, end) = (piece.address, piece.address + piece.bytes);
        while from < end {
            let bytes = (end - from).min(SAMPLE_BYTES_MAX);
            samples.push(Sample {
                slice,
                region,
                offset: from - start,
                bytes: bytes as u32,
                weight: (piece.weight * bytes as f64 / piece.bytes as f64) as f32,
                latency_cycles: 0.0,
                source: piece.source,
                op: piece.op,
                level,
                mode: Mode::Unknown,
                node,
            });
            from += bytes;
        }
    }
    samples
}

/// Notes for the reader of the recording.
fn notes(observer: &Observer<'_>, options: &Options, slices: usize) -> Vec<String> {
    let mut notes = observer.notes.clone();
    match observer.begun_anew.as_slice() {
        [] => {}
        [slice] => notes.push(format!("the process began another program in slice {slice}")),
        [.., last] => {
            let times = observer.begun_anew.len();
            notes.push(format!(
                "the process began another program {times} times, the last time in slice {last}"
            ));
        }
    }
    if let Some(closer) = options.closer.as_ref().filter(|_| !observer.closer_found) {
        let mut files: Vec<&str> = observer.lines.iter().filter_map(|line| line.path.as_deref()).collect();
        files.dedup();
        notes.push(format!(
            "--closer {}: no mapping has such a name; there were, besides `anon`: {}",
            closer.name,
            files.join(", ")
        ));
    }
    if observer.late > 0 {
        let late = observer.late;
        notes.push(format!(
            "{late} of {slices} slices are longer than asked for, since looking at the program took so long; a coarser \
             --granule or a longer --slice helps"
        ));
    }
    // A few of them do not matter: rates are estimated from all windows of a slice.
    if observer.long_windows * 10 > observer.windows {
        let (long, windows) = (observer.long_windows, observer.windows);
        notes.push(format!(
            "{long} of {windows} windows were longer than they should have been, as the recorder had to wait for a processor; in \
             them hot granules cannot be told from hotter ones"
        ));
    }
    if observer.outside > 0.0 {
        let share = observer.outside / observer.seen.max(f64::MIN_POSITIVE) * 100.0;
        notes.push(format!("{share:.2}% of what was seen lay in no region that was known, and is left out"));
    }
    notes
}
