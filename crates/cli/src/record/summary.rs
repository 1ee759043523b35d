//! Summary of a recording at its end.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

use tiermem_base::Bytes;
use tiermem_model::heat::Quartiles;
use tiermem_trace::recording::{self, Recording, RegionRange, Selection, Touched};

use super::Report;
use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};
use crate::print_lines;

const FIELDS: &[&str] = &[
    "slices",
    "seconds",
    "processes",
    "regions",
    "regions_touched",
    "mapped_bytes",
    "touched_bytes",
    "working_set_min_bytes",
    "working_set_p25_bytes",
    "working_set_p50_bytes",
    "working_set_p75_bytes",
    "working_set_max_bytes",
    "rss_p50_bytes",
    "rss_max_bytes",
    "unknown_heat_share",
    "initialisation_slices",
    "samples",
    "recorder_cpu_s",
    "agent_cpu_s",
    "program_cpu_s",
    "ended",
];

/// Writes a recording, and the report about it.
pub fn keep(recording: &Recording, ended: &str, output: &Path, report: &Report) -> Result<(), Failure> {
    recording::write(output, recording).map_err(Failure::failed)?;
    tell(recording, ended, report)
}

/// Writes the report about a recording.
pub fn tell(recording: &Recording, ended: &str, report: &Report) -> Result<(), Failure> {
    for note in &recording.head.notes {
        eprintln!("tiermem: {note}");
    }
    let written = report.destination.open().and_then(|mut out| match report.format {
        Format::Table => write_table(&mut out, recording, ended),
        format => output::write_rows(&mut out, format, &rows(recording, ended)),
    });
    written.map_err(|error| Failure::writing("the report", error))
}

/// What was touched, by the first source.
struct Seen {
    /// Regions.
    regions: usize,
    /// Bytes of them.
    bytes: u64,
    /// Bytes in a slice; `None` where there is no slice.
    working_set: Option<Quartiles>,
}

impl Seen {
    fn of(recording: &Recording) -> Self {
        let regions = 0..recording.head.regions.len();
        let windows: Vec<RegionRange> =
            regions.map(|region| RegionRange::whole(recording, region, None)).collect();
        let slices: Vec<usize> = (0..recording.head.slices.len()).collect();
        let touched = recording::touched(recording, &Selection::default(), &windows, &slices);
        let in_slice = |slice: &usize| touched.iter().map(|region| region.per_slice[*slice]).sum();
        let seen = recording.samples.iter().filter(|sample| Selection::default().takes(sample));
        let accessed: BTreeSet<u32> = seen.map(|sample| sample.region).collect();
        Seen {
            regions: accessed.len(),
            bytes: touched.iter().map(Touched::bytes).sum(),
            working_set: Quartiles::of(slices.iter().map(in_slice)),
        }
    }
}

/// Bytes in memory at the end of a slice; `None` if no slice has them.
fn rss(recording: &Recording) -> Option<Quartiles> {
    Quartiles::of((0..recording.head.slices.len()).filter_map(|slice| recording.rss(slice)))
}

/// The share of accesses that are known to no granule, if it is much.
fn unknown_heat(recording: &Recording) -> Option<f64> {
    recording.unknown_heat(&Selection::default(), None, recording.head.granule_bytes)
}

fn rows(recording: &Recording, ended: &str) -> Rows {
    let head = &recording.head;
    let Seen { regions, bytes, working_set } = Seen::of(recording);
    let rss = rss(recording);
    let maybe = |bytes: Option<u64>| bytes.map_or(Cell::UNKNOWN, Cell::Count);
    let initialisation = recording.initialisation(&Selection::default());
    let row = vec![
        Cell::Count(head.slices.len() as u64),
        Cell::Number(head.cost.wall_s, 3),
        Cell::Count(head.processes.len().max(1) as u64),
        Cell::Count(head.regions.len() as u64),
        Cell::Count(regions as u64),
        Cell::Count(head.regions.iter().map(|region| region.bytes).sum()),
        Cell::Count(bytes),
        maybe(working_set.map(|it| it.min)),
        maybe(working_set.map(|it| it.p25)),
        maybe(working_set.map(|it| it.p50)),
        maybe(working_set.map(|it| it.p75)),
        maybe(working_set.map(|it| it.max)),
        maybe(rss.map(|it| it.p50)),
        maybe(rss.map(|it| it.max)),
        Cell::Number(unknown_heat(recording).unwrap_or(0.0), 4),
        Cell::Count(initialisation.map_or(0, |it| it.slices as u64)),
        Cell::Count(recording.samples.len() as u64),
        Cell::Number(head.cost.recorder_cpu_s, 3),
        Cell::Number(head.cost.agent_cpu_s, 3),
        Cell::Number(head.cost.program_cpu_s, 3),
        Cell::Text(ended.to_owned()),
    ];
    Rows { fields: FIELDS, rows: vec![row] }
}

fn write_table(mut out: &mut impl Write, recording: &Recording, ended: &str) -> io::Result<()> {
    let head = &recording.head;
    let Seen { regions, bytes, working_set } = Seen::of(recording);
    let mapped: u64 = head.regions.iter().map(|region| region.bytes).sum();
    let mut line =
        |name: &str, value: String, remark: String| print_lines::line(&mut out, name, value, remark);
    let cost = &head.cost;
    let samples = format!("{} samples", recording.samples.len());
    line("slices", head.slices.len().to_string(), format!("in {:.1} s; {samples}", cost.wall_s))?;
    if head.processes.len() > 1 {
        let observed = head.processes.iter().filter(|process| process.is_observed).count();
        let remark = format!(
            "{observed} of them lived long enough to be looked at (`tiermem heatmap REC --processes`)"
        );
        line("processes", head.processes.len().to_string(), remark)?;
    }
    line(
        "regions",
        head.regions.len().to_string(),
        format!("{} of them, {regions} accessed", Bytes(mapped)),
    )?;
    let granule = Bytes(head.granule_bytes);
    line("touched", Bytes(bytes).to_string(), format!("seen in granules of {granule}, or whole mappings"))?;
    // What was looked at as a whole may have touched less than it has in memory.
    let at_most = if unknown_heat(recording).is_some() { "at most; " } else { "" };
    if let Some(it) = working_set {
        line(
            "working set",
            Bytes(it.p50).to_string(),
            format!("{at_most}median of the slices; {}", spread(&it)),
        )?;
    }
    if let Some(it) = rss(recording) {
        line("resident (RSS)", Bytes(it.p50).to_string(), format!("median of the slices; {}", spread(&it)))?;
    }
    if let Some(share) = unknown_heat(recording) {
        let remark =
            format!("{:.0}% of the accesses went to mappings that were looked at as wholes", share * 100.0);
        line("heat", "unknown".to_owned(), remark)?;
    }
    if let Some(found) = recording.initialisation(&Selection::default()) {
        let share = found.share * 100.0;
        line(
            "initialisation",
            found.range(),
            format!("{share:.0}% of that was touched there for the first time"),
        )?;
    }
    let share = |seconds: f64| format!("{:.1}% of one processor", 100.0 * seconds / cost.wall_s.max(1e-9));
    line("recorder", format!("{:.2} s", cost.recorder_cpu_s), share(cost.recorder_cpu_s))?;
    line("agent", format!("{:.3} s", cost.agent_cpu_s), "within the program".to_owned())?;
    if cost.program_cpu_s > 0.0 {
        line("program", format!("{:.2} s", cost.program_cpu_s), "of processor time".to_owned())?;
    }
    line("ended by", ended.to_owned(), String::new())?;
    out.flush()
}

/// All but the median.
fn spread(quartiles: &Quartiles) -> String {
    let [min, p25, _, p75, max] = quartiles.all().map(Bytes);
    format!("min {min}, 25% {p25}, 75% {p75}, max {max}")
}
