//! `tiermem block`: the block cache, and what drives it.

mod replay;
mod replay_print;
mod replay_targets;
mod serve;

use clap::Subcommand;

use crate::failure::Failure;

/// For `tiermem block --help`.
pub const EXAMPLE: &str = "\
Example:
  tiermem block serve --cache cache.tiermem:1GiB --export disk=disk.img --listen unix:/tmp/tiermem.sock
  tiermem block replay volume.csv --to 'nbd+unix:///disk?socket=/run/nbd.sock' --verify";

/// What to do with volumes.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Caches volumes in front of slow storage and serves them over NBD.
    Serve(Box<serve::Options>),
    /// Replays a trace of reads and writes to NBD servers, measures them, and checks what they give back.
    Replay(Box<replay::Options>),
}

/// Runs it.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(options) => serve::run(*options),
        Command::Replay(options) => replay::run(&options),
    }
}
