//! `tiermem pager`: programs that run in less DRAM than they need.

mod status;

use clap::Subcommand;
use tiermem_pager::machine;

use crate::failure::Failure;

/// How it is used.
pub const EXAMPLE: &str = "\
Examples:
  tiermem run --dram 2GiB --flash 8GiB -- ./app     # starts a program
  tiermem pager status                              # those that run
  tiermem pager status --format json";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the paged programs that run; take away what killed runs have left.
    Status(status::Options),
    /// Stay behind a run of which processes are left: `tiermem run` starts it.
    #[command(hide = true)]
    Keep {
        /// The run.
        id: String,
    },
}

/// Runs one of them.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Status(options) => status::run(&options),
        Command::Keep { id } => machine::keep(&id).map_err(Failure::failed),
    }
}
