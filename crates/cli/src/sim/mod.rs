//! `tiermem sim`: simulators.

mod block;
mod cache;
mod cxl_flash;
mod frames;
mod place;

use clap::Subcommand;

use crate::failure::Failure;

/// For `tiermem sim --help`.
pub const EXAMPLE: &str = "\
Example:
  tiermem sim cache zipf:objects=100k,requests=1M --size 1000 --size 10000";

/// What to simulate.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Simulate caches over a trace: one tier at several sizes, or the store's chain of tiers.
    Cache(Box<cache::Options>),
    /// Simulate a block cache in front of slow storage, with blocks of one size or several.
    Block(Box<block::Options>),
    /// Simulate a CXL memory expander: flash behind a DRAM cache.
    CxlFlash(Box<cxl_flash::Options>),
    /// Count a program's page faults with less DRAM: eviction policies and prefetchers over tiers.
    Frames(Box<frames::Options>),
    /// Replay a placement plan over a recording: the share of slow memory accesses.
    Place(Box<place::Options>),
}

/// Runs one of them.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Cache(options) => cache::run(*options),
        Command::Block(options) => block::run(&options),
        Command::CxlFlash(options) => cxl_flash::run(&options),
        Command::Frames(options) => frames::run(&options),
        Command::Place(options) => place::run(&options),
    }
}
