//! `tiermem block`: driving block servers.

mod replay;
mod replay_print;
mod replay_targets;

use clap::Subcommand;

use crate::failure::Failure;

/// For `tiermem block --help`.
pub const EXAMPLE: &str = "\
Example:
  tiermem block replay volume.csv --to 'nbd+unix:///disk?socket=/run/nbd.sock' --verify";

/// What to do with volumes.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Replays a trace of reads and writes to NBD servers, measures them, and checks what they give back.
    Replay(Box<replay::Options>),
}

/// Runs it.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Replay(options) => replay::run(&options),
    }
}
