//! Sweep of one device, or a grid of them over all cores.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::{available_parallelism, scope};
use std::time::Instant;

use tiermem_base::Access;
use tiermem_sim::cxl_flash::config::{ConfigError, Device, Layers, Mode};
use tiermem_sim::cxl_flash::device::{Wishes, simulate};
use tiermem_sim::cxl_flash::hints;
use tiermem_sim::cxl_flash::outcome::Outcome;

use super::{Options, compat, fields};
use crate::failure::Failure;
use crate::output::Cell;
use crate::source;

/// Values of one key.
#[derive(Clone, Debug)]
pub struct Axis {
    key: String,
    values: Vec<String>,
}

impl Axis {
    /// Of a list with commas.
    pub fn new(key: &str, values: &str) -> Self {
        Axis { key: key.to_owned(), values: values.split(',').map(|value| value.trim().to_owned()).collect() }
    }
}

/// One device of a grid.
#[derive(Clone, Debug)]
pub struct Point {
    /// The sweep's settings of it.
    pub setting: String,
    /// The device.
    pub device: Device,
}

impl Point {
    /// Every combination of the axes' values; one point without axes. All are checked before any is simulated.
    pub fn grid(layers: &Layers, axes: &[Axis]) -> Result<Vec<Point>, ConfigError> {
        let mut grid = vec![(Vec::new(), layers.clone())];
        for axis in axes {
            let mut next = Vec::with_capacity(grid.len() * axis.values.len());
            for (setting, layers) in &grid {
                for value in &axis.values {
                    let (mut setting, mut layers): (Vec<String>, Layers) = (setting.clone(), layers.clone());
                    layers.set(&axis.key, value)?;
                    setting.push(format!("{}={value}", axis.key));
                    next.push((setting, layers));
                }
            }
            grid = next;
        }
        let point = |(setting, layers): (Vec<String>, Layers)| {
            Ok(Point { setting: setting.join(" "), device: layers.config()?.device()? })
        };
        grid.into_iter().map(point).collect()
    }

    fn wishes(&self, options: &Options, hinted: Vec<u64>) -> Wishes {
        Wishes { window: options.window, hinted }
    }

    /// Bytes of a line and how many there are.
    fn lines(&self) -> (u32, u64) {
        (self.device.geometry.unit_bytes, self.device.units)
    }

    fn hints(&self) -> Option<f64> {
        let hints = &self.device.config.hints;
        (hints.top_percent > 0.0 && hints.probability > 0.0).then_some(hints.top_percent)
    }

    /// Warns of a trace with all requests at the same time, which is how one without times looks.
    fn warn_of_no_times(&self, outcome: &Outcome) {
        if self.device.config.host.mode == Mode::Open
            && outcome.sent_span_ns == 0
            && outcome.counts.requests > 1
        {
            eprintln!(
                "tiermem: all requests of the trace come at one time, so latencies are mostly queueing; --set host.mode=closed sends \
                 one when another is answered"
            );
        }
    }

    fn rows(&self, options: &Options, outcome: &Outcome, seconds: f64) -> Vec<Vec<Cell>> {
        let (trace, compat) = (&options.trace.trace, options.compat.is_some());
        let windows = outcome.windows.iter().enumerate().map(|(number, window)| {
            fields::window(trace, &self.setting, &self.device, number, window.start_ns, &window.counts)
        });
        let mut whole = fields::whole(trace, &self.setting, &self.device, outcome, seconds);
        if compat {
            fields::leave_out_parts(&mut whole);
        }
        windows.chain([whole]).collect()
    }
}

/// Result of a run.
#[derive(Debug, Default)]
pub struct SweepResult {
    /// Rows in the order of the points.
    pub rows: Vec<Vec<Cell>>,
    /// Points that were finished.
    pub finished: usize,
    /// Missing ones, by number.
    pub missing: Vec<usize>,
    /// The requests after which a single device was interrupted.
    pub cut_short: Option<u64>,
}

/// Simulates the points, one as its trace is read, several from a trace in memory.
pub fn run(options: &Options, points: &[Point]) -> Result<SweepResult, Failure> {
    match points {
        [point] if point.hints().is_none() => stream(options, point),
        _ => grid(options, points),
    }
}

fn stream(options: &Options, point: &Point) -> Result<SweepResult, Failure> {
    let source = options.trace.open().map_err(Failure::into_usage)?;
    let stop = crate::interrupt::watch();
    let start = Instant::now();
    let records = source.records().take_while(|_| !stop.is_set());
    let outcome = match options.compat {
        Some(_) => compat::simulate(&point.device, records),
        None => simulate(&point.device, point.wishes(options, Vec::new()), records),
    }
    .map_err(Failure::into_usage)?;
    let seconds = start.elapsed().as_secs_f64();
    source.finish();
    point.warn_of_no_times(&outcome);
    let rows = point.rows(options, &outcome, seconds);
    let cut_short = stop.is_set().then_some(outcome.counts.requests);
    Ok(SweepResult { rows, finished: 1, cut_short, ..SweepResult::default() })
}

fn grid(options: &Options, points: &[Point]) -> Result<SweepResult, Failure> {
    let source = options.trace.open().map_err(Failure::into_usage)?;
    let trace: Vec<Access> = source.records().collect::<Result<_, _>>().map_err(Failure::into_usage)?;
    source.finish();
    // Lines are what each device has.
    let mut popularity: BTreeMap<(u32, u64), hints::Popularity> = BTreeMap::new();
    for point in points.iter().filter(|point| point.hints().is_some()) {
        let (line_bytes, lines) = point.lines();
        popularity
            .entry((line_bytes, lines))
            .or_insert_with(|| hints::Popularity::of(&trace, line_bytes, lines));
    }
    let bar = source::steps_bar(points.len() as u64, "devices simulated");
    let interrupted = AtomicBool::new(false);
    let next = AtomicUsize::new(0);
    let found: Mutex<BTreeMap<usize, Vec<Vec<Cell>>>> = Mutex::default();
    let threads = options.threads.map_or_else(|| available_parallelism().map_or(1, usize::from), usize::from);
    let stop = crate::interrupt::watch();
    scope(|scope| {
        for _ in 0..threads.min(points.len()) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    let Some(point) = points.get(number) else { return };
                    let hinted = point.hints().zip(popularity.get(&point.lines()));
                    let hinted =
                        hinted.map_or_else(Vec::new, |(percent, popularity)| popularity.top(percent));
                    let started = Instant::now();
                    let records = trace
                        .iter()
                        .take_while(|_| !stop.is_set())
                        .map(|access| Ok::<_, Infallible>(*access));
                    let outcome = match options.compat {
                        Some(_) => compat::simulate(&point.device, records),
                        None => simulate(&point.device, point.wishes(options, hinted), records),
                    };
                    let Ok(outcome) = outcome;
                    if stop.is_set() {
                        interrupted.store(true, Relaxed);
                        return;
                    }
                    if number == 0 {
                        point.warn_of_no_times(&outcome);
                    }
                    let rows = point.rows(options, &outcome, started.elapsed().as_secs_f64());
                    if let Ok(mut found) = found.lock() {
                        found.insert(number, rows);
                    }
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let found = found.into_inner().unwrap_or_default();
    let missing = (0..points.len()).filter(|number| !found.contains_key(number)).collect();
    Ok(SweepResult {
        finished: found.len(),
        rows: found.into_values().flatten().collect(),
        missing,
        cut_short: None,
    })
}
