//! `tiermem sim`: simulators.

mod cache;

use clap::Subcommand;

use crate::failure::Failure;

/// What to simulate.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// A cache over a trace: one tier at several sizes, or the store's ladder of tiers.
    Cache(cache::Options),
}

/// Runs one of them.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Cache(options) => cache::run(options),
    }
}
