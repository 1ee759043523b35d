//! Figures of a recording under way.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tiermem_live::metrics::Exposition;
use tiermem_live::page::File;
use tiermem_report::heatmap::{kind_name, live_page};
use tiermem_trace::recording::{self, Follower, Recording, RegionRange, Selection};

/// Mappings that are named.
const MAPPINGS_MAX: usize = 24;
/// Notes and letters of a command that are told: a program can have very many.
const NOTES_MAX: usize = 20;
const COMMAND_MAX: usize = 200;

/// All figures at the end of a slice.
#[derive(Clone, Debug, Default, Serialize)]
pub struct View {
    /// The program's version.
    version: &'static str,
    /// Seconds from the recording's start to the end of its last slice.
    uptime_s: f64,
    /// The recorded command; empty with `--pid`.
    command: String,
    /// The recording.
    output: String,
    /// Bytes of its journal so far.
    written_bytes: u64,
    /// Slices so far, and the length that was asked for.
    slices: u32,
    slice_s: f64,
    /// The source that is counted, and the granule, as with `tiermem heatmap`.
    source: String,
    granule_bytes: u64,
    /// Bytes touched in the last slice.
    working_set_bytes: u64,
    /// Bytes in memory at its end; `None` if that is not known.
    rss_bytes: Option<u64>,
    /// Processes so far, and those that have not ended.
    processes: usize,
    processes_running: usize,
    /// Regions so far.
    regions: usize,
    /// Those with most accesses, in the order of these.
    mappings: Vec<Mapping>,
    /// What the recording notes.
    notes: Vec<String>,
}

/// A region.
#[derive(Clone, Debug, Serialize)]
struct Mapping {
    name: String,
    kind: &'static str,
    bytes: u64,
    /// Accesses in the unit of the source, and their share of all.
    accesses: f64,
    share: f64,
}

/// What the plots need.
#[derive(Clone, Debug, Serialize)]
pub struct Counters {
    working_set_bytes: u64,
    rss_bytes: Option<u64>,
    slice_s: f64,
}

impl View {
    /// After the last slice; `None` before the first.
    pub fn of(follower: &Follower, output: &Path, slice: Duration) -> Option<Self> {
        let recording = follower.recording().ok()?;
        let head = &recording.head;
        let last = head.slices.len().checked_sub(1)?;
        let running = head.processes.iter().filter(|process| process.ended_ns.is_none()).count();
        Some(View {
            version: env!("CARGO_PKG_VERSION"),
            uptime_s: follower.end_ns() as f64 / 1e9,
            command: head.command.join(" ").chars().take(COMMAND_MAX).collect(),
            output: output.display().to_string(),
            written_bytes: follower.bytes(),
            slices: follower.slices(),
            slice_s: slice.as_secs_f64(),
            source: head.sources.first().map_or(String::new(), |source| source.name.clone()),
            granule_bytes: head.granule_bytes,
            working_set_bytes: working_set(&follower.newest().ok()?),
            rss_bytes: recording.rss(last),
            // Without the processes that are followed there is one.
            processes: head.processes.len().max(1),
            processes_running: if head.processes.is_empty() { 1 } else { running },
            regions: head.regions.len(),
            mappings: mappings(&recording),
            notes: head.notes.iter().take(NOTES_MAX).cloned().collect(),
        })
    }
}

/// Bytes that the first source saw touched in the one slice of a recording.
fn working_set(newest: &Recording) -> u64 {
    let selection = Selection::default();
    let mut regions: Vec<u32> =
        newest.samples.iter().filter(|it| selection.takes(it)).map(|it| it.region).collect();
    regions.sort_unstable();
    regions.dedup();
    let windows: Vec<RegionRange> =
        regions.iter().map(|region| RegionRange::whole(newest, *region as usize, None)).collect();
    recording::touched(newest, &selection, &windows, &[0]).iter().map(recording::Touched::bytes).sum()
}

/// The regions with most accesses of the first source.
fn mappings(recording: &Recording) -> Vec<Mapping> {
    let selection = Selection::default();
    let mut sums = vec![0.0; recording.head.regions.len()];
    for sample in recording.samples.iter().filter(|sample| selection.takes(sample)) {
        sums[sample.region as usize] += f64::from(sample.weight);
    }
    let all: f64 = sums.iter().sum();
    let mut order: Vec<usize> = (0..sums.len()).filter(|region| sums[*region] > 0.0).collect();
    order.sort_by(|a, b| sums[*b].total_cmp(&sums[*a]));
    let mapping = |region: &usize| {
        let its = &recording.head.regions[*region];
        let accesses = sums[*region];
        Mapping {
            name: its.name.clone(),
            kind: kind_name(its.kind),
            bytes: its.bytes,
            accesses,
            share: accesses / all,
        }
    };
    order.iter().take(MAPPINGS_MAX).map(mapping).collect()
}

impl tiermem_live::View for View {
    type Counters = Counters;
    const PAGE: &'static [File] = &[
        File::html(live_page::PAGE),
        File::css("/page/recording.css", live_page::STYLE),
        File::js("/page/heatmap.js", live_page::VIEWS),
        File::js("/page/recording.js", live_page::SCRIPT),
    ];

    fn uptime_s(&self) -> f64 {
        self.uptime_s
    }

    fn counters(&self) -> Counters {
        Counters {
            working_set_bytes: self.working_set_bytes,
            rss_bytes: self.rss_bytes,
            slice_s: self.slice_s,
        }
    }

    fn metrics(&self, ready: bool) -> String {
        let mut text = Exposition::begin(env!("CARGO_PKG_VERSION"), self.uptime_s, ready);
        text.single("record_slices_total", "Slices so far.", self.slices);
        text.single("record_written_bytes", "Bytes of the recording so far.", self.written_bytes);
        text.single("record_working_set_bytes", "Bytes touched in the last slice.", self.working_set_bytes);
        if let Some(bytes) = self.rss_bytes {
            text.single("record_rss_bytes", "Bytes of the processes in memory at its end.", bytes);
        }
        text.single("record_processes", "Processes that have not ended.", self.processes_running);
        text.single("record_regions", "Regions so far.", self.regions);
        text.into_text()
    }
}
