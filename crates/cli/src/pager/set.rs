//! `tiermem pager set`: changes how a program is paged, while it runs.

use anyhow::anyhow;
use clap::Args;
use tiermem_pager::control::{self, Change, Status};
use tiermem_pager::machine::{self, LiveRun};

use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};

const HELP: &str = "\
Examples:
  tiermem pager set dram=3GiB                       # where one program is paged
  tiermem pager set 4711-1 evict=clock prefetch=none
  tiermem pager set flash=16GiB drop-behind=off

What can be set:
  dram=SIZE        the limit of DRAM. It waits until what is above it has left. If that cannot be, the limit stays what it was
  flash=SIZE       the limit of flash: at least what lies there, and at most all swap of the machine
  evict=NAME       who leaves: kernel, or a policy as `tiermem sim frames` has them
  prefetch=NAME    what is fetched ahead: none, next-n, feedback-directed, best-offset, leap, readahead, plan
  drop-behind=on|off
                   whether pages that a sweep has passed leave first, where they are needed later than others

Fields:
  dram_bytes, charged_bytes
                   limit of DRAM, and what is charged now
  flash_bytes, swapped_bytes
                   limit of flash, and what lies there now
  evict, prefetch  as set";

const FIELDS: &[&str] =
    &["id", "dram_bytes", "charged_bytes", "flash_bytes", "swapped_bytes", "evict", "prefetch"];

/// Options of `tiermem pager set`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// The run or attachment, as `tiermem pager status` names it, and what to set. One that is alone needs no name.
    #[arg(value_name = "[ID] NAME=VALUE", required = true)]
    words: Vec<String>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Sets it.
pub fn run(options: &Options) -> Result<(), Failure> {
    let (ids, sets): (Vec<&str>, Vec<&str>) =
        options.words.iter().map(String::as_str).partition(|word| !word.contains('='));
    // Checked here as well, so that nothing has to run for it.
    Change::of_words(sets.iter().copied()).map_err(Failure::usage)?;
    let runs = machine::live_runs().map_err(Failure::failed)?;
    let run = match ids[..] {
        [] => alone(&runs)?,
        [id] => runs.iter().find(|run| run.id == id).ok_or_else(|| unknown(id))?,
        [_, second, ..] => return Err(Failure::usage(anyhow!("{second:?} sets nothing; write dram=SIZE"))),
    };
    let status = control::ask(&run.socket, &format!("set {}", sets.join(" ")))
        .map_err(|error| Failure::failed(anyhow!("{}: {error}", run.id)))?;
    let rows = Rows { fields: FIELDS, rows: vec![row(&run.id, status)] };
    output::print_rows(options.format, &rows).map_err(|error| Failure::writing("what was set", error))
}

fn alone(runs: &[LiveRun]) -> Result<&LiveRun, Failure> {
    match runs {
        [run] => Ok(run),
        [] => Err(Failure::failed(anyhow!(
            "no program is paged; start one: tiermem run --dram 2GiB --flash 8GiB -- ./app"
        ))),
        several => {
            let ids: Vec<&str> = several.iter().map(|run| run.id.as_str()).collect();
            Err(Failure::usage(anyhow!("which one? name it: {}", ids.join(", "))))
        }
    }
}

fn unknown(id: &str) -> Failure {
    Failure::failed(anyhow!("no paged program has the name {id:?}; `tiermem pager status` lists them"))
}

fn row(id: &str, status: Status) -> Vec<Cell> {
    vec![
        Cell::Text(id.to_owned()),
        Cell::Bytes(status.dram_bytes),
        Cell::Bytes(status.charged_bytes),
        status.flash_bytes.map_or(Cell::UNKNOWN, Cell::Bytes),
        Cell::Bytes(status.swapped_bytes),
        Cell::Text(status.evict),
        Cell::Text(status.prefetch),
    ]
}
