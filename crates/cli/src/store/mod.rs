//! `tiermem store`: serving and driving the store.

mod bench;
mod replay;

use clap::Subcommand;

use crate::failure::Failure;

/// What to do with the store.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Replays a trace to a server as a look-aside cache's clients would, and measures it.
    Replay(replay::Options),
    /// Measures the engine in process: all-DRAM, naive, tiermem and all-CXL over one trace.
    Bench(bench::Options),
}

/// Runs one of them.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Replay(options) => replay::run(options),
        Command::Bench(options) => bench::run(options),
    }
}
