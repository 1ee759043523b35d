//! Live recording of a program, slice by slice, with the sources that scan it repeatedly.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tiermem_sys::cpu_time;
use tiermem_trace::TraceError;
use tiermem_trace::recording::{Cost, Head, Journal, Recording, Slice, Source};

use super::numa_residency::{Located, Whereabouts};
use super::observer::{Looked, Observer};
pub use super::options::{Closer, Ending, Options, SourceKind, Target};
use super::resident::Resident;
use super::{CaptureError, Stop};

/// A recording that has come to its end.
#[derive(Debug)]
pub struct Recorded {
    /// What was seen. Nothing, with a note, if the program ended before the first slice.
    pub recording: Recording,
    /// How it ended.
    pub ending: Ending,
    /// Why it ended early, if the journal could not be written on: the disk is full, say. The slices until then are in the recording.
    pub cut_short: Option<TraceError>,
    /// If what was to be looked at more closely was never there.
    pub closer_missing: Option<CaptureError>,
}

/// Records a program into a journal. `progress` gets the slices so far. A program that was started here does not outlive this call.
///
/// # Errors
/// If the program cannot be started or observed, or if a source cannot work here. The journal has the slices before that.
pub fn record(
    options: &Options,
    journal: &mut Journal,
    stop: &Stop,
    mut progress: impl FnMut(usize),
) -> Result<Recorded, CaptureError> {
    let mut recorder = Recorder {
        begun: Instant::now(),
        began_unix_ns: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64,
        cpu_before: cpu_time::thread_cpu_time(),
        observer: Observer::begin(options, stop)?,
        whereabouts: Whereabouts::new(),
        resident: Resident::new(),
        last_start_ns: None,
    };
    let mut pieces = Vec::new();
    let mut samples = Vec::new();
    let mut cut_short = None;
    let mut has_seen = false;
    let ended = loop {
        pieces.clear();
        let Some(looked) = recorder.observer.slice(stop, |piece| pieces.push(piece), &mut |_| {})? else {
            break true;
        };
        samples.clear();
        match &mut recorder.whereabouts {
            Some(whereabouts) => {
                whereabouts
                    .locate(recorder.observer.process.pid, &pieces, &mut |it| samples.push(it.sample()));
            }
            None => samples.extend(pieces.iter().map(|piece| Located::unknown(*piece).sample())),
        }
        recorder.resident.fill(recorder.observer.process.pid, &mut samples);
        has_seen |= !samples.is_empty();
        let slice = recorder.slice_of(looked);
        let head = recorder.head(options, journal.slices());
        let regions = recorder.observer.regions.numbered();
        if let Err(error) = journal.slice(&head, slice, regions, &samples) {
            cut_short = Some(error);
            break recorder.watch_out(stop);
        }
        progress(journal.slices());
        let is_over = options.duration.is_some_and(|most| recorder.begun.elapsed() >= most);
        if looked.ended || stop.is_asked() || is_over {
            break looked.ended;
        }
    };
    // A request to stop has ended the program as well.
    let ending = recorder.observer.process.finish(ended && !stop.is_asked())?;
    recorder.observer.end_sources();
    let mut head = recorder.head(options, journal.slices());
    if let Some(error) = &cut_short {
        let slices = journal.slices();
        head.notes
            .push(format!("the recording ended after slice {slices}, as it could not be written: {error}"));
    }
    if !has_seen {
        let milliseconds = recorder.begun.elapsed().as_millis();
        head.notes.push(match ending {
            Ending::Stopped => format!("nothing was seen of the program in {milliseconds} ms"),
            Ending::Exited(_) | Ending::Gone => format!(
                "the program ended after {milliseconds} ms, before anything was seen of it; a shorter --slice or --source faults \
                 sees more"
            ),
        });
    }
    let regions = recorder.observer.regions.numbered();
    // Of a program of which nothing was seen it is not known.
    let missing = recorder.observer.closer_missing().filter(|_| has_seen);
    let closer_missing = missing.map(|(name, there)| CaptureError::NoSuchRegion { name, there });
    let recording = journal.end(head, regions)?;
    Ok(Recorded { recording, ending, cut_short, closer_missing })
}

struct Recorder<'a> {
    observer: Observer<'a>,
    begun: Instant,
    began_unix_ns: u64,
    cpu_before: Duration,
    /// If there are several nodes.
    whereabouts: Option<Whereabouts>,
    resident: Resident,
    /// Of the last slice.
    last_start_ns: Option<u64>,
}

impl Recorder<'_> {
    /// A slice that was looked at: it starts after the one before it, whatever the clock says.
    fn slice_of(&mut self, looked: Looked) -> Slice {
        let start_ns = (looked.begun - self.begun).as_nanos() as u64;
        let start_ns = self.last_start_ns.map_or(start_ns, |last| start_ns.max(last + 1));
        self.last_start_ns = Some(start_ns);
        Slice { start_ns, end_ns: ((looked.end - self.begun).as_nanos() as u64).max(start_ns) }
    }

    /// Lets a program that was started here go on, unobserved. Whether it ended.
    fn watch_out(&mut self, stop: &Stop) -> bool {
        /// Longest delay until a request to stop is noticed.
        const STEP: Duration = Duration::from_millis(100);
        self.observer.end_sources();
        let Observer { process, .. } = &self.observer;
        while process.program.is_some() && !stop.is_asked() {
            if process.watch.wait(STEP) {
                return true;
            }
        }
        false
    }

    /// What is known by now of the recording, but for its slices and regions.
    fn head(&self, options: &Options, slices: usize) -> Head {
        let observer = &self.observer;
        let command = match &options.target {
            Target::Command(words) => words.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            Target::Process(_) => Vec::new(),
        };
        let tells_level = self.whereabouts.is_some();
        let sources = observer.infos.iter().map(|source| Source { tells_level, ..source.clone() });
        Head {
            version: Head::VERSION,
            command,
            executable: observer.executable.clone(),
            began_unix_ns: self.began_unix_ns,
            granule_bytes: options.granule_bytes,
            slices: Vec::new(),
            sources: sources.collect(),
            regions: Vec::new(),
            cost: cost(observer, self.begun.elapsed(), self.cpu_before),
            notes: notes(observer, slices).into_iter().chain(self.resident.note()).collect(),
        }
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

/// Notes for the reader of the recording.
fn notes(observer: &Observer<'_>, slices: usize) -> Vec<String> {
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
