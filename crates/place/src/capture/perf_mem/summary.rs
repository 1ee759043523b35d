//! Summary: turns counts into a recording.

use std::collections::BTreeMap;
use std::path::Path;

use tiermem_trace::recording::{Cost, Executable, Head, Level, Recording, Slice, Source, Unit};

use super::collect::{Clock, Collected, Plan};
use super::data_src::Answer;
use super::error::PerfMemError;
use super::{ImportOptions, line::Mapped};
use crate::capture::layout::{KERNEL_START, Layout};
use crate::capture::mappings::maps::{self, MapLine};
use crate::capture::table::Table;

/// The most slices of a recording.
const SLICES_MAX: i64 = 1 << 20;

/// Reads a copy of `/proc/PID/maps`.
pub(super) fn read_maps(path: &Path) -> Result<Vec<MapLine>, PerfMemError> {
    let text = std::fs::read(path).map_err(|source| PerfMemError::Open { path: path.to_owned(), source })?;
    maps::parse(&String::from_utf8_lossy(&text))
        .map_err(|reason| PerfMemError::Maps { path: path.to_owned(), reason })
}

/// Assembles the recording. `bad` lines were skipped.
pub(super) fn finish(
    collected: Collected,
    maps: Option<Vec<MapLine>>,
    plan: &Plan,
    options: &ImportOptions,
    files: usize,
    bad: u64,
) -> Result<Recording, PerfMemError> {
    let Collected { table, answers, without_address, of_others, one_number, times, mappings } = collected;
    let mut notes = Vec::new();
    let pid = choose_process(&table, options.pid, &mut notes);
    let granule_bytes = table.granule_bytes();
    let mut counts = table.into_sorted(|key| key.pid == pid);
    let Some((first, last)) = counts.first().zip(counts.last()).map(|(a, b)| (a.0.slice, b.0.slice)) else {
        let seen = format!("{without_address} samples have none, {of_others} are of other processes");
        return Err(PerfMemError::NoSamples(seen));
    };
    let (first, slices) = match plan.clock {
        Clock::Time { .. } => (first, last - first + 1),
        Clock::File => (0, files as i64),
    };
    if slices > SLICES_MAX {
        let what =
            format!("{slices} slices are more than {SLICES_MAX}: choose longer ones, or mend wrong times");
        return Err(PerfMemError::TooMany(what));
    }
    counts.iter_mut().for_each(|(key, _)| key.slice -= first);

    let mut layout = Layout::default();
    match &maps {
        Some(lines) => lines.iter().for_each(|line| layout.map(line, 0)),
        None => map_events(&mut layout, &mappings, pid, plan, first, slices),
    }
    layout.all_last_until((slices - 1) as u32);
    if layout.is_empty() {
        notes.push("nothing is known of mappings: regions are stretches of addresses".to_owned());
    }
    let accesses: u64 = counts.iter().map(|(_, count)| count.accesses).sum();
    let placed = layout.place(&counts, granule_bytes, true);
    if placed.unmapped > 0 && !notes.iter().any(|note| note.starts_with("nothing is known")) {
        notes.push(format!("{} of {accesses} samples lie in no mapping that is known", placed.unmapped));
    }
    note(&mut notes, without_address, "samples have no address of data");
    note(&mut notes, of_others, "samples of other processes were left out");
    note(&mut notes, bad, "lines were not understood and passed over");
    note_approximations(&mut notes, one_number, (granule_bytes, options.granule_bytes));
    notes.push(answered(&answers));
    let head = Head {
        version: Head::VERSION,
        // perf's times count from the machine's start, which no text gives.
        began_unix_ns: 0,
        delay_ns: 0,
        command: options.command.clone(),
        executable: executable(&placed.regions),
        granule_bytes,
        slices: (0..slices).map(|at| slice(at, options.slice_ns)).collect(),
        sources: vec![Source {
            name: "perf-mem".to_owned(),
            unit: Unit::Samples,
            tells_stores: true,
            tells_level: answers[1..].iter().any(|count| *count > 0),
        }],
        processes: Vec::new(),
        regions: placed.regions,
        sites: None,
        cost: Cost { wall_s: times.map_or(0.0, |(a, b)| (b - a) as f64 / 1e9), ..Cost::default() },
        notes,
    };
    Ok(Recording { head, samples: placed.samples })
}

/// The slice of this number, of `length_ns`.
fn slice(at: i64, length_ns: u64) -> Slice {
    let at = at.unsigned_abs();
    Slice { start_ns: at.saturating_mul(length_ns), end_ns: (at + 1).saturating_mul(length_ns) }
}

/// Notes what the recording is less exact in than was asked: processes and threads have `one_number`, and granules other bytes than
/// those asked for.
fn note_approximations(notes: &mut Vec<String>, one_number: bool, (granule_bytes, asked): (u64, u64)) {
    if one_number {
        notes.push(
            "processes cannot be told from threads in the text, so all samples are taken for one's"
                .to_owned(),
        );
    }
    if granule_bytes != asked {
        notes.push(format!(
            "granules have {granule_bytes} bytes instead of {asked}, as there was no room for more"
        ));
    }
}

fn note(notes: &mut Vec<String>, count: u64, what: &str) {
    if count > 0 {
        notes.push(format!("{count} {what}"));
    }
}

/// The process that is asked for, or the one with most samples of its own memory.
fn choose_process(table: &Table, asked: Option<u32>, notes: &mut Vec<String>) -> u32 {
    if let Some(pid) = asked {
        return pid;
    }
    let kernel = KERNEL_START / table.granule_bytes();
    let mut of: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for (key, count) in table.iter() {
        let (user, all) = of.entry(key.pid).or_default();
        *user += if key.granule < kernel { count.accesses } else { 0 };
        *all += count.accesses;
    }
    let most = of.iter().max_by_key(|(_, counts)| **counts).map_or(0, |(pid, _)| *pid);
    if of.len() > 1 {
        let others: u64 = of.iter().filter(|(pid, _)| **pid != most).map(|(_, (_, all))| all).sum();
        notes.push(format!(
            "of {} processes, {most} has most samples; {others} of the others were left out (--pid chooses)",
            of.len()
        ));
    }
    most
}

/// Mappings of the process in the text, in its order.
fn map_events(
    layout: &mut Layout,
    mappings: &[(usize, u64, Mapped)],
    pid: u32,
    plan: &Plan,
    first: i64,
    slices: i64,
) {
    let own = |mapped: &Mapped| mapped.pid == Some(pid) || (pid == 0 && mapped.pid.is_some());
    for (file, _, mapped) in mappings.iter().filter(|(_, _, mapped)| own(mapped)) {
        let slice = match (plan.clock, mapped.time_ns) {
            (Clock::File, _) => *file as i64,
            (Clock::Time { origin_ns, slice_ns }, Some(time)) => {
                (time.saturating_sub(origin_ns) / slice_ns.max(1)) as i64
            }
            (Clock::Time { .. }, None) => first,
        };
        layout.map(&mapped.line, slice.saturating_sub(first).clamp(0, slices - 1) as u32);
    }
}

/// The program is the first file that code was mapped of and that is no library.
fn executable(regions: &[tiermem_trace::recording::Region]) -> Executable {
    let code = regions.iter().filter(|it| it.permissions.as_bytes().get(2) == Some(&b'x'));
    let path = code.filter_map(|it| it.path.as_deref()).find(|path| !path.contains(".so"));
    Executable { path: path.unwrap_or_default().to_owned(), build_id: None }
}

/// Accesses by the level that answered, as in tables 4.3 to 4.7 of Fisher 2025.
fn answered(answers: &[u64; 14]) -> String {
    let all: u64 = answers.iter().sum();
    let mut by_count: Vec<_> =
        Answer::ALL.into_iter().zip(answers).filter(|(_, count)| **count > 0).collect();
    by_count.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let words = |(answer, count): (Answer, &u64)| {
        let level = match answer.level() {
            Level::Cache => "cached",
            Level::Local => "local",
            Level::Remote => "remote",
            Level::Unknown => "unknown",
        };
        let share = *count as f64 / all.max(1) as f64 * 100.0;
        format!("{} {count} ({share:.2}%, {level})", answer.name())
    };
    let parts: Vec<String> = by_count.into_iter().map(words).collect();
    format!("all samples with an address were answered by: {}", parts.join(", "))
}
