//! `tiermem pager`: programs that run in less DRAM than they need.

mod attach;
mod set;
mod status;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use clap::Subcommand;
use tiermem_base::Nanos;
use tiermem_pager::run::{self, SteerOptions};
use tiermem_pager::{machine, steer};
use tiermem_policy::prefetch;

use crate::failure::Failure;
use crate::print_text::print_text;
use crate::run::paged;

/// How it is used.
pub const EXAMPLE: &str = "\
Examples:
  tiermem run --dram 2GiB --flash 8GiB -- ./app     # starts a program
  tiermem pager attach --pid 4711 --dram 2GiB --flash 8GiB
  tiermem pager status                              # those that run
  tiermem pager status --watch
  tiermem pager set dram=3GiB                       # changes the limit while it runs
  tiermem pager replay app.log                      # of tiermem run --dram 2GiB --flash 8GiB --log app.log -- ./app";

const REPLAY_EXAMPLE: &str = "\
Example:
  tiermem run --dram 2GiB --flash 8GiB --log app.log -- ./app && tiermem pager replay app.log";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Give a program that runs less DRAM than it has, until it ends or you detach.
    Attach(Box<attach::Options>),
    /// Change how a program is paged, while it runs.
    Set(set::Options),
    /// List the paged programs that run; take away what killed runs have left.
    Status(status::Options),
    /// Replay a log of `tiermem run --dram --log`: the same events must give the same acts.
    #[command(after_help = REPLAY_EXAMPLE)]
    Replay {
        /// The log.
        #[arg(value_name = "LOG")]
        log: PathBuf,
    },
    /// Stay behind a run of which processes are left: `tiermem run` starts it.
    #[command(hide = true)]
    Keep {
        /// The run.
        id: String,
    },
    /// Have a program that finds no memory wait: `tiermem run` and `tiermem pager attach` start it.
    #[command(hide = true)]
    WaitForRoom {
        /// The process that looks after the program; the wait ends with it.
        owner: u32,
        /// How long it waits at a time.
        patience: Nanos,
        /// The group's folder.
        group: PathBuf,
    },
    /// Have the kernel sum the counts of a control group often: `tiermem run` and `tiermem pager attach` start it.
    #[command(hide = true)]
    FreshCounts {
        /// The group's folder.
        group: PathBuf,
    },
}

/// Runs one of them.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Attach(options) => attach::run(&options),
        Command::Set(options) => set::run(&options),
        Command::Status(options) => status::run(&options),
        Command::Replay { log } => replay(&log),
        Command::Keep { id } => keep(&id),
        Command::WaitForRoom { owner, patience, group } => {
            machine::wait_for_room(&group, owner, Duration::from_nanos(patience.0)).map_err(Failure::failed)
        }
        Command::FreshCounts { group } => machine::keep_counts_fresh(&group).map_err(Failure::failed),
    }
}

/// Nothing steers what has outlived a program, until that is asked for.
fn keep(id: &str) -> Result<(), Failure> {
    let steer = SteerOptions {
        evict: None,
        prefetch: prefetch::Named::None,
        drop_behind: false,
        granule_bytes: None,
        pool: None,
        plan: None,
        log: None,
        fresh_counts: paged::own_command("fresh-counts"),
    };
    run::keep(id, steer).map_err(paged::advise)
}

fn replay(path: &Path) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::failed(anyhow!("{}: {error}", path.display()));
    let file = File::open(path).map_err(|error| failed(&error))?;
    let replayed = steer::replay(BufReader::new(file)).map_err(|error| failed(&error))?;
    let text = format!("{} events, {} acts, all the same\n", replayed.events, replayed.acts);
    print_text(&text).map_err(|error| Failure::writing("the result", error))
}
