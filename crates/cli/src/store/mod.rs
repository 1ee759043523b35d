//! `tiermem store`: serving and driving the store.

mod replay;

use clap::Subcommand;

use crate::failure::Failure;

/// What to do with the store.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Replays a trace to a server as a look-aside cache's clients would, and measures it.
    Replay(replay::Options),
}

/// Runs one of them.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Replay(options) => replay::run(options),
    }
}
