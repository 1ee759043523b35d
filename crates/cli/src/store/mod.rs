//! `tiermem store`: serving and driving the store.

mod serve;

use clap::Subcommand;

use crate::failure::Failure;

/// What to do with the store.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serves keys and values to Redis clients.
    Serve(serve::Options),
}

/// Runs one of them.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(options) => serve::run(options),
    }
}
