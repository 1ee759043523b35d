//! `tiermem pager`: programs that run in less DRAM than they need.

mod attach;
mod set;
mod status;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Subcommand;
use tiermem_pager::{machine, steer};

use crate::failure::Failure;
use crate::print_text::print_text;

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
        Command::Keep { id } => machine::keep(&id).map_err(Failure::failed),
        Command::FreshCounts { group } => machine::keep_counts_fresh(&group).map_err(Failure::failed),
    }
}

fn replay(path: &Path) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::failed(anyhow!("{}: {error}", path.display()));
    let file = File::open(path).map_err(|error| failed(&error))?;
    let replayed = steer::replay(BufReader::new(file)).map_err(|error| failed(&error))?;
    let text = format!("{} events, {} acts, all the same\n", replayed.events, replayed.acts);
    print_text(&text).map_err(|error| Failure::writing("the result", error))
}
