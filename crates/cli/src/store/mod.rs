//! `tiermem store`: serving and driving the store.

mod bench;
mod load;
mod replay;
mod replay_tenants;
mod serve;

use clap::Subcommand;

use crate::failure::Failure;

/// For `tiermem store --help`.
pub const EXAMPLE: &str = "\
Example:
  tiermem store serve --tier dram=512MiB --tier emulated=2GiB";

/// What to do with the store.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Replay a trace to a Redis server as clients of a look-aside cache would, and measure it.
    Replay(replay::Options),
    /// Replay the traces of several tenants at once, each waiting for its database after a miss.
    ReplayTenants(replay_tenants::Options),
    /// Benchmark the engine in process: all-DRAM, naive, tiermem and all-CXL over one trace.
    Bench(bench::Options),
    /// Fill a server from a running Redis, from CSV or Parquet, or from requests.
    Load(load::Options),
    /// Serve Redis clients.
    Serve(serve::Options),
}

/// Runs one of them.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Replay(options) => replay::run(options),
        Command::ReplayTenants(options) => replay_tenants::run(options),
        Command::Bench(options) => bench::run(options),
        Command::Load(options) => load::run(options),
        Command::Serve(options) => serve::run(options),
    }
}
