//! `tiermem pager status`: the paged programs that run.

use clap::Args;
use tiermem_pager::machine::{self, LiveRun};
use tiermem_sys::control_group::{Group, Limit};

use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};

const HELP: &str = "\
Example:
  tiermem pager status --format json

Also takes away what runs that were killed have left, once their programs have ended.

Fields:
  id                     of the run
  pid                    process that takes care of it; null if it was killed, and the program goes on under its limit
  processes              of the program
  dram_bytes, charged_bytes
                         limit of DRAM, and what is charged now
  flash_bytes, swapped_bytes
                         limit of flash, null without one; what lies there now
  swap                   what was turned on for the run; empty where swap was on already
  command                the program";

const FIELDS: &[&str] = &[
    "id",
    "pid",
    "processes",
    "dram_bytes",
    "charged_bytes",
    "flash_bytes",
    "swapped_bytes",
    "swap",
    "command",
];

/// Options of `tiermem pager status`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Lists them.
pub fn run(options: &Options) -> Result<(), Failure> {
    let runs = machine::live_runs().map_err(Failure::failed)?;
    let rows = Rows { fields: FIELDS, rows: runs.iter().map(row).collect() };
    output::print_rows(options.format, &rows).map_err(|error| Failure::writing("the programs", error))
}

fn row(run: &LiveRun) -> Vec<Cell> {
    let LiveRun { id, command, owner, group, swap } = run;
    let bytes = |bytes: Option<u64>| bytes.map_or(Cell::UNKNOWN, Cell::Bytes);
    vec![
        Cell::Text(id.clone()),
        owner.map_or(Cell::UNKNOWN, |pid| Cell::Count(pid.into())),
        Cell::Count(group.processes().map_or(0, |all| all.len() as u64)),
        bytes(limit(group.memory_limit().ok())),
        bytes(group.usage_bytes().ok()),
        bytes(limit(group.swap_limit().ok())),
        bytes(swap_bytes(group)),
        Cell::Text(swap.as_ref().map_or_else(String::new, |path| path.display().to_string())),
        Cell::Text(command.clone()),
    ]
}

fn swap_bytes(group: &Group) -> Option<u64> {
    group.swap_usage_bytes().ok()
}

fn limit(limit: Option<Limit>) -> Option<u64> {
    match limit {
        Some(Limit::Bytes(bytes)) => Some(bytes),
        _ => None,
    }
}
