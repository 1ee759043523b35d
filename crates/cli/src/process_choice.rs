//! Choice of a process of a recording that has several, and the table of them.

use anyhow::anyhow;
use tiermem_trace::recording::{Recording, Selection};

use crate::failure::Failure;
use crate::output::{Cell, Rows};

/// Fields of the table of processes.
const FIELDS: &[&str] = &[
    "process", "name", "pid", "parent", "begun_s", "lived_s", "observed", "regions", "accesses", "share",
    "command",
];

/// What was recorded of the process of this name.
pub fn named(recording: &Recording, name: &str) -> Result<Recording, Failure> {
    match recording.process(name) {
        Some(process) => Ok(recording.of_process(process)),
        None => Err(Failure::usage(anyhow!("there is no process {name:?}; {}", there(recording)))),
    }
}

/// What was recorded of the process that can be placed: the one of this name, or the first, which is said if others have accesses too.
pub fn placed(recording: Recording, name: Option<&str>) -> Result<Recording, Failure> {
    if let Some(name) = name {
        return named(&recording, name);
    }
    if recording.head.processes.len() < 2 {
        return Ok(recording);
    }
    let sums = recording.accesses_of_processes(&Selection::default());
    let all: f64 = sums.iter().sum();
    let first = &recording.head.processes[0].name;
    let hottest = (1..sums.len())
        .max_by(|a, b| sums[*a].total_cmp(&sums[*b]))
        .map(|it| &recording.head.processes[it].name);
    if let Some(hottest) = hottest.filter(|_| sums[0] < all) {
        eprintln!(
            "tiermem: a plan is for one process, here {first}, which has {:.0}% of the accesses; --process {hottest:?} takes the hottest \
             other one, and `tiermem heatmap REC --processes` lists all",
            100.0 * sums[0] / all
        );
    }
    Ok(recording.of_process(0))
}

fn there(recording: &Recording) -> String {
    let observed = recording.head.processes.iter().filter(|process| process.is_observed);
    let names: Vec<&str> = observed.map(|process| process.name.as_str()).collect();
    match names.as_slice() {
        [] => "the recording has one process alone, of no name".to_owned(),
        names => format!("the processes are {}", names.join(", ")),
    }
}

/// One line for each process, in the order of their births.
pub fn table(recording: &Recording, selection: &Selection) -> Rows {
    let head = &recording.head;
    let sums = recording.accesses_of_processes(selection);
    let all: f64 = sums.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let end_ns = head.slices.last().map_or(0, |slice| slice.end_ns);
    let seconds = |ns: u64| Cell::Number(ns as f64 / 1e9, 3);
    let rows = head.processes.iter().enumerate().map(|(at, process)| {
        let parent = process.parent.and_then(|parent| head.processes.get(parent as usize));
        let regions = head.regions.iter().filter(|region| region.process as usize == at).count();
        vec![
            Cell::Count(at as u64),
            Cell::Text(process.name.clone()),
            Cell::Count(u64::from(process.pid)),
            Cell::Text(parent.map_or_else(String::new, |parent| parent.name.clone())),
            seconds(process.begun_ns),
            seconds(process.ended_ns.unwrap_or(end_ns).saturating_sub(process.begun_ns)),
            Cell::Text(if process.is_observed { "yes" } else { "no" }.to_owned()),
            Cell::Count(regions as u64),
            Cell::Number(sums[at], 0),
            Cell::Number(sums[at] / all, 4),
            Cell::Text(process.command.join(" ")),
        ]
    });
    Rows { fields: FIELDS, rows: rows.collect() }
}
