//! `tiermem block`: the block cache, and tools that drive it.

mod replay;
mod replay_print;
mod replay_targets;
mod serve;
mod status;
mod status_print;
mod steer;

use clap::Subcommand;

use crate::failure::Failure;

/// For `tiermem block --help`.
pub const EXAMPLE: &str = "\
Example:
  tiermem block serve --cache cache.tiermem:1GiB --export disk=disk.img --listen unix:/tmp/tiermem.sock
  tiermem block replay volume.csv --to 'nbd+unix:///disk?socket=/run/nbd.sock' --verify
  tiermem block status --watch
  tiermem block set disk --mode write-through";

/// What to do with volumes.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Cache volumes in front of slow storage and serve them over NBD.
    Serve(Box<serve::Options>),
    /// Show a running server's hits, bytes moved, dirty data and latencies.
    Status(status::Options),
    /// Change the write mode and the quota of an export at run time.
    Set(steer::SetOptions),
    /// Write back dirty data now, and wait until it is durable.
    Flush(steer::FlushOptions),
    /// Drop cached data of an export that its backing store has too.
    Drop(steer::DropOptions),
    /// Replay a block trace to NBD servers, measure them, and verify what they return.
    Replay(Box<replay::Options>),
}

/// Runs it.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(options) => serve::run(*options),
        Command::Status(options) => status::run(&options),
        Command::Set(options) => steer::set(options),
        Command::Flush(options) => steer::flush(options),
        Command::Drop(options) => steer::drop_clean(options),
        Command::Replay(options) => replay::run(&options),
    }
}
