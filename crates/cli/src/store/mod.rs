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
    /// Replays a trace to a server as a look-aside cache's clients would, and measures it.
    Replay(replay::Options),
    /// Replays the traces of several tenants at once, each with a database that takes its time after a miss.
    ReplayTenants(replay_tenants::Options),
    /// Measures the engine in process: all-DRAM, naive, tiermem and all-CXL over one trace.
    Bench(bench::Options),
    /// Fills a server: from requests, from CSV or Parquet, or from a running Redis.
    Load(load::Options),
    /// Serves keys and values to Redis clients.
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
