//! `tiermem block`: the block cache, and what drives it.

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
    /// Caches volumes in front of slow storage and serves them over NBD.
    Serve(Box<serve::Options>),
    /// Shows what a server holds and does: hits, what is moved where, what is dirty.
    Status(status::Options),
    /// Changes where an export's writes go, and what it may have of the cache, while it is served.
    Set(steer::SetOptions),
    /// Has what is dirty written back now, and waits for it.
    Flush(steer::FlushOptions),
    /// Forgets what the cache has of an export and its store has too.
    Drop(steer::DropOptions),
    /// Replays a trace of reads and writes to NBD servers, measures them, and checks what they give back.
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
