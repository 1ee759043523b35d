//! `tiermem pager status`: the paged programs that run, once or again and again.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::Args;
use tiermem_base::Nanos;
use tiermem_pager::control::{self, Status};
use tiermem_pager::machine::{self, LiveRun};
use tiermem_sys::control_group::{Group, Limit, all_processes};

use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};

const HELP: &str = "\
Examples:
  tiermem pager status --format json
  tiermem pager status --watch                      # again every 2 s
  tiermem pager status --watch 500ms

Also takes away what was killed and left something: the swap and the group of runs whose programs have ended, limits of attachments.

Fields:
  id                     of the run or attachment
  pid                    process that takes care of it; null if it was killed, and the program goes on under its limit
  processes              of the program; null with \"pid\"
  dram_bytes, charged_bytes
                         limit of DRAM, and what is charged now
  flash_bytes, swapped_bytes
                         limit of flash, null without one; what lies there now
  to                     what is paged: \"program\" of `tiermem run`, \"cgroup\" or \"pid\" of `tiermem pager attach`
  major_faults, major_faults_per_s
                         page faults that read from disk, since the beginning; a second since the last look, null at the first
  prefetched_pages, prefetch_used_pages
                         pages fetched ahead, those of them that were used; null without steering
  evict, prefetch        who leaves, what is fetched ahead
  swap                   what was turned on for it; empty where swap was on already
  command                the program or the group
  quarter_more_saves     share of the major faults that would not have been with a quarter more DRAM; null without steering, or without
                         such faults
  waits_s                how long the program has waited for room, as DRAM and flash are full; null where it does not wait

What the process alone knows that takes care of it is null where that was killed: faults, pages fetched ahead, evict and prefetch.";

const FIELDS: &[&str] = &[
    "id",
    "pid",
    "processes",
    "dram_bytes",
    "charged_bytes",
    "flash_bytes",
    "swapped_bytes",
    "to",
    "major_faults",
    "major_faults_per_s",
    "prefetched_pages",
    "prefetch_used_pages",
    "evict",
    "prefetch",
    "swap",
    "command",
    "quarter_more_saves",
    "waits_s",
];

/// What a table that is drawn again and again shows of them: it has to fit into a terminal.
const WATCHED: &[&str] = &[
    "id",
    "processes",
    "dram_bytes",
    "charged_bytes",
    "swapped_bytes",
    "to",
    "major_faults_per_s",
    "prefetched_pages",
    "prefetch_used_pages",
    "evict",
    "prefetch",
    "command",
    "waits_s",
];
/// Characters of a command in such a table.
const COMMAND_CHARS: usize = 30;

/// Seconds from one look to the next, unless told.
const WATCH: &str = "2s";
/// Back to the top, and all below it cleared.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Options of `tiermem pager status`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Repeat, by default every 2 s; a table then shows the fields that change.
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = WATCH)]
    watch: Option<Nanos>,
}

/// Major faults of a run at an earlier look.
type Before = HashMap<String, (Instant, u64)>;

/// Lists them, once or until it is stopped.
pub fn run(options: &Options) -> Result<(), Failure> {
    let mut before = Before::new();
    loop {
        let runs = machine::live_runs().map_err(Failure::failed)?;
        // One that is just ending answers nothing: then what its group tells is shown.
        let asked = runs.iter().map(|run| (run, control::ask(&run.socket, "status").ok()));
        let rows = asked.map(|(run, status)| row(run, status, &mut before)).collect();
        if options.watch.is_some() && options.format == Format::Table && io::stdout().is_terminal() {
            write!(io::stdout(), "{CLEAR}").map_err(|error| Failure::writing("the programs", error))?;
        }
        let mut rows = Rows { fields: FIELDS, rows };
        if options.watch.is_some() && options.format == Format::Table {
            rows = watched(&rows);
        }
        output::print_rows(options.format, &rows).map_err(|error| Failure::writing("the programs", error))?;
        let Some(pause) = options.watch else { return Ok(()) };
        std::thread::sleep(Duration::from_nanos(pause.0));
    }
}

fn watched(rows: &Rows) -> Rows {
    let short = |cell: &Cell| match cell {
        Cell::Text(text) => Cell::Text(text.chars().take(COMMAND_CHARS).collect()),
        other => other.clone(),
    };
    let shown = |row: &Vec<Cell>| {
        let named = rows.fields.iter().zip(row).filter(|(name, _)| WATCHED.contains(*name));
        named.map(|(_, cell)| short(cell)).collect()
    };
    Rows { fields: WATCHED, rows: rows.rows.iter().map(shown).collect() }
}

fn row(run: &LiveRun, status: Option<Status>, before: &mut Before) -> Vec<Cell> {
    let LiveRun { id, command, owner, group, process, is_attachment, swap, .. } = run;
    let bytes = |bytes: Option<u64>| bytes.map_or(Cell::UNKNOWN, Cell::Bytes);
    let count = |count: Option<u64>| count.map_or(Cell::UNKNOWN, Cell::Count);
    let of_group = |figure: &dyn Fn(&Group) -> Option<u64>| group.as_ref().and_then(figure);
    let told = |figure: &dyn Fn(&Status) -> Option<u64>| status.as_ref().and_then(figure);
    let text = |text: fn(&Status) -> &str| Cell::Text(status.as_ref().map_or("", text).to_owned());
    let to = match (process, is_attachment) {
        (Some(_), _) => "pid",
        (None, true) => "cgroup",
        (None, false) => "program",
    };
    let faults = told(&|it| Some(it.major_faults));
    vec![
        Cell::Text(id.clone()),
        owner.map_or(Cell::UNKNOWN, |pid| Cell::Count(pid.into())),
        count(of_group(&|it| all_processes(it).ok().map(|all| all.len() as u64))),
        // What the kernel keeps is asked first: an owner that is killed leaves it.
        bytes(of_group(&|it| limit(it.memory_limit().ok())).or(told(&|it| Some(it.dram_bytes)))),
        bytes(of_group(&|it| it.usage_bytes().ok()).or(told(&|it| Some(it.charged_bytes)))),
        bytes(of_group(&|it| limit(it.swap_limit().ok())).or(told(&|it| it.flash_bytes))),
        bytes(of_group(&|it| it.swap_usage_bytes().ok()).or(told(&|it| Some(it.swapped_bytes)))),
        Cell::Text(to.to_owned()),
        count(faults),
        Cell::Number(faults.and_then(|faults| rate(id, faults, before)).unwrap_or(f64::NAN), 0),
        count(told(&|it| it.prefetched_pages)),
        count(told(&|it| it.prefetch_used_pages)),
        text(|it| &it.evict),
        text(|it| &it.prefetch),
        Cell::Text(swap.as_ref().map_or_else(String::new, |path| path.display().to_string())),
        Cell::Text(command.clone()),
        Cell::Number(status.as_ref().and_then(quarter_more_saves).unwrap_or(f64::NAN), 4),
        Cell::Number(status.as_ref().and_then(waits_s).unwrap_or(f64::NAN), 1),
    ]
}

/// The share of the major faults that a quarter more DRAM would have saved.
fn quarter_more_saves(status: &Status) -> Option<f64> {
    let saved = status.quarter_more_saves_faults?;
    (status.major_faults > 0).then(|| (saved as f64 / status.major_faults as f64).min(1.0))
}

/// How long it has waited for room; `None`: it does not.
fn waits_s(status: &Status) -> Option<f64> {
    status.waits_ms.map(|ms| ms as f64 / 1000.0)
}

/// A second, since the look before; `None` at the first.
fn rate(id: &str, count: u64, before: &mut Before) -> Option<f64> {
    let now = Instant::now();
    let (at, last) = before.insert(id.to_owned(), (now, count))?;
    let seconds = now.duration_since(at).as_secs_f64();
    (seconds > 0.0).then(|| count.saturating_sub(last) as f64 / seconds)
}

fn limit(limit: Option<Limit>) -> Option<u64> {
    match limit {
        Some(Limit::Bytes(bytes)) => Some(bytes),
        _ => None,
    }
}
