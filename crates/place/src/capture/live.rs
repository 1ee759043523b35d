//! Live recording of a program and what it starts, slice by slice, with the sources that scan it repeatedly.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tiermem_sys::cpu_time;
use tiermem_trace::TraceError;
use tiermem_trace::recording::{Cost, Head, Journal, Recording, Slice, Source};

use super::observer::Looked;
pub use super::options::{Closer, Ending, Options, SourceKind, Target};
use super::process_tree::{Account, ProcessTree};
use super::schedule::Schedule;
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

/// Records a program, and what it starts, into a journal. `progress` gets the journal after each slice.
///
/// # Errors
/// If the program cannot be started or observed, or if a source cannot work here. The journal has the slices before that.
pub fn record(
    options: &Options,
    journal: &mut Journal,
    stop: &Stop,
    mut progress: impl FnMut(&Journal),
) -> Result<Recorded, CaptureError> {
    let started = Instant::now();
    // The program runs for so long before the recording begins.
    let begun = started + options.delay;
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + options.delay;
    let began_unix_ns = began.as_nanos() as u64;
    let [cpu_before, children_before] = spent();
    std::thread::scope(|scope| {
        let tree = ProcessTree::begin(scope, options, stop, begun)?;
        let schedule = Schedule::new(options.slice);
        let mut recorder = Recorder {
            tree,
            options,
            begun,
            began_unix_ns,
            cpu_before,
            children_before,
            schedule,
            last_start_ns: None,
        };
        let mut cut_short = None;
        let mut has_seen = false;
        let has_ended = loop {
            let slice = recorder.tree.slice(recorder.schedule.due())?;
            recorder.schedule.end(slice.looked.end);
            has_seen |= !slice.samples.is_empty();
            let head = recorder.head(journal.slices());
            let times = recorder.times(slice.looked);
            if let Err(error) = journal.slice(&head, times, slice.facts, &slice.samples) {
                cut_short = Some(error);
                break false;
            }
            progress(journal);
            let is_over = options.duration.is_some_and(|most| begun.elapsed() >= most);
            if slice.looked.ended || stop.is_asked() || is_over {
                break slice.looked.ended;
            }
        };
        let facts = recorder.tree.finish(recorder.schedule.due());
        // It goes on unobserved where there is nothing more to observe, or no room to keep it.
        let is_awaited = has_ended || cut_short.is_some() && matches!(options.target, Target::Command(_));
        let ending = recorder.ending(is_awaited, stop)?;
        let mut head = recorder.head(journal.slices());
        if let Some(error) = &cut_short {
            let slices = journal.slices();
            head.notes.push(format!(
                "the recording ended after slice {slices}, as it could not be written: {error}"
            ));
        }
        if !has_seen {
            head.notes.push(nothing_seen(started.elapsed(), journal.slices(), ending));
        }
        // Of a program of which nothing was seen it is not known.
        let closer_missing = recorder.closer_missing().filter(|_| has_seen);
        let mut recording = journal.end(head, facts)?;
        // After all slices are kept: names are looked up in files that may be damaged, or very large.
        if let Some((sites, first)) = recorder.tree.take_sites() {
            recording.head.sites = sites.finish(&mut recording.head, first, begun);
        }
        Ok(Recorded { recording, ending, cut_short, closer_missing })
    })
}

fn nothing_seen(wall: Duration, slices: usize, ending: Ending) -> String {
    let milliseconds = wall.as_millis();
    match ending {
        Ending::Exited(_) | Ending::Gone if slices <= 1 => format!(
            "the program ended after {milliseconds} ms, before anything was seen of it; a shorter --slice or --source faults \
             sees more"
        ),
        _ => format!(
            "no access was seen in {milliseconds} ms: the program slept, or its memory cannot be looked at"
        ),
    }
}

struct Recorder<'scope, 'env> {
    tree: ProcessTree<'scope, 'env>,
    options: &'env Options,
    begun: Instant,
    began_unix_ns: u64,
    cpu_before: Duration,
    children_before: Duration,
    schedule: Schedule,
    /// Of the last slice.
    last_start_ns: Option<u64>,
}

impl Recorder<'_, '_> {
    /// A slice that was looked at: it starts after the one before it, whatever the clock says.
    fn times(&mut self, looked: Looked) -> Slice {
        let since = |moment: Instant| moment.saturating_duration_since(self.begun).as_nanos() as u64;
        let start_ns = since(looked.begun);
        let start_ns = self.last_start_ns.map_or(start_ns, |last| start_ns.max(last + 1));
        self.last_start_ns = Some(start_ns);
        Slice { start_ns, end_ns: since(looked.end).max(start_ns) }
    }

    /// How the recording ended; the first process is waited for if that is asked for.
    fn ending(&self, is_awaited: bool, stop: &Stop) -> Result<Ending, CaptureError> {
        /// Longest delay until a request to stop is noticed.
        const STEP: Duration = Duration::from_millis(100);
        while is_awaited && !stop.is_asked() && self.tree.first_lives(STEP) {}
        // A request to stop has ended the program as well.
        if !is_awaited || stop.is_asked() {
            return Ok(Ending::Stopped);
        }
        let status = stop.wait_for_program().map_err(CaptureError::Wait)?;
        Ok(status.map_or(Ending::Gone, Ending::Exited))
    }

    /// An error if no process ever had what was to be looked at more closely.
    fn closer_missing(&self) -> Option<CaptureError> {
        let name = self.options.closer.as_ref()?.name.clone();
        let mut accounts = self.tree.accounts().peekable();
        let there = accounts.peek()?.region_names.clone();
        accounts.all(|it| it.is_closer_missing).then_some(CaptureError::NoSuchRegion { name, there })
    }

    /// What is known by now of the recording, but for its slices, regions and processes.
    fn head(&self, slices: usize) -> Head {
        let first = self.tree.accounts().next();
        let command = match &self.options.target {
            Target::Command(words) => words.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            Target::Process(_) => Vec::new(),
        };
        let looked_at = self.tree.accounts().find(|account| !account.sources.is_empty());
        let sources = looked_at.into_iter().flat_map(|account| {
            let tells_level = account.tells_level;
            account.sources.iter().map(move |source| Source { tells_level, ..source.clone() })
        });
        Head {
            version: Head::VERSION,
            command,
            executable: first.map(|first| first.identity.executable.clone()).unwrap_or_default(),
            began_unix_ns: self.began_unix_ns,
            delay_ns: self.options.delay.as_nanos() as u64,
            granule_bytes: self.options.granule_bytes,
            slices: Vec::new(),
            sources: sources.collect(),
            processes: Vec::new(),
            regions: Vec::new(),
            sites: None,
            cost: self.cost(),
            notes: self.notes(slices),
        }
    }

    /// The cost of the recording so far.
    fn cost(&self) -> Cost {
        let sum = |each: &dyn Fn(&Account) -> Duration| self.tree.accounts().map(each).sum::<Duration>();
        let [cpu, children] = spent();
        Cost {
            wall_s: self.begun.elapsed().as_secs_f64(),
            recorder_cpu_s: (cpu - self.cpu_before + sum(&|it| it.recorder_cpu)).as_secs_f64(),
            program_cpu_s: match self.options.target {
                Target::Command(_) => children.saturating_sub(self.children_before).as_secs_f64(),
                Target::Process(_) => 0.0,
            },
            agent_cpu_s: sum(&|it| it.agent_cpu).as_secs_f64(),
        }
    }

    /// Notes for the reader of the recording.
    fn notes(&self, slices: usize) -> Vec<String> {
        let mut notes = self.tree.notes();
        let first = self.tree.accounts().next();
        match first.map_or(&[][..], |first| first.begun_anew.as_slice()) {
            [] => {}
            [slice] => notes.push(format!("the process began another program in slice {slice}")),
            [all @ .., last] => {
                let times = all.len() + 1;
                notes.push(format!(
                    "the process began another program {times} times, the last time in slice {last}"
                ));
            }
        }
        let late = self.schedule.late;
        if late > 0 {
            notes.push(format!(
                "{late} of {slices} slices are longer than asked for, since looking at the program took so long; a coarser \
                 --granule or a longer --slice helps"
            ));
        }
        let sum = |each: fn(&Account) -> f64| self.tree.accounts().map(each).sum::<f64>();
        // A few of them do not matter: rates are estimated from all windows of a slice.
        let (long, windows) = (sum(|it| f64::from(it.long_windows)), sum(|it| f64::from(it.windows)));
        if long * 10.0 > windows {
            notes.push(format!(
                "{long} of {windows} windows were longer than they should have been, as the recorder had to wait for a \
                 processor; in them hot granules cannot be told from hotter ones"
            ));
        }
        let (outside, seen) = (sum(|it| it.outside), sum(|it| it.seen));
        let share = outside / seen.max(f64::MIN_POSITIVE) * 100.0;
        if share >= 0.01 {
            notes.push(format!(
                "{share:.2}% of what was seen lay in no region that was known, and is left out"
            ));
        }
        notes
    }
}

/// Processor time of this thread, and of children whose end was taken in.
fn spent() -> [Duration; 2] {
    let children = cpu_time::children_spent();
    [cpu_time::thread_cpu_time(), children.user + children.system]
}
