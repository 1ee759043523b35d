//! Comparison benchmarks, `tiermem-bench-compare`: the store
//! with Redis, and models with simulations, measured in one run.
//!
//! Wall time on a shared machine says little, so the figures are
//! ratios of interleaved pairs, of processor time and of bytes.
#![forbid(unsafe_code)]

mod block_server;
mod choose_k;
mod client;
mod cpu;
mod curves;
mod flash;
mod krr_cost;
mod memory;
mod memory_limit;
mod redis_curve;
mod sampling;
mod server;
mod summary;

/// The same form of results as the binary `tiermem` prints.
#[path = "../../cli/src/output.rs"]
mod output;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use output::Format;

/// Measures tiermem beside its rivals in one run, and prints ratios. Servers are started on free loopback ports.
#[derive(Debug, Parser)]
#[command(name = "tiermem-bench-compare", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The server's processor time per request.
    Cpu(cpu::Options),
    /// Bytes per key beyond key and value.
    Memory(memory::Options),
    /// A store over flash beside memcached's extstore, each in the same memory.
    Flash(flash::Options),
    /// The NBD server over memory beside nbdkit's: requests a second, p99 and processor time.
    BlockServer(block_server::Options),
    /// Models of K-LRU beside a simulation of the same sizes: time and error.
    Curves(curves::Options),
    /// How the cost of an access to KRR's stack grows with the stack.
    KrrCost(krr_cost::Options),
    /// Choosing K while a cache runs: how far off what is predicted for each window is.
    ChooseK(choose_k::Options),
    /// Curves of small samples of the keys: error, its estimate, and cost.
    Sampling(sampling::Options),
    /// Redis's own miss ratio at a few memory limits, beside the models of it.
    RedisCurve(redis_curve::Options),
}

/// Which servers are compared, where they run, and how the result is printed.
#[derive(Debug, Args)]
struct Common {
    /// The Redis server.
    #[arg(long, value_name = "PATH", default_value = "redis-server")]
    redis: PathBuf,
    /// The binary `tiermem` [default: the one beside this program, else the one on PATH].
    #[arg(long, value_name = "PATH")]
    tiermem: Option<PathBuf>,
    /// What tiermem's only tier holds.
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    dram: String,
    /// The core that servers run on.
    #[arg(long, value_name = "N", default_value_t = 0)]
    server_core: usize,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Common {
    fn tiermem(&self) -> PathBuf {
        self.tiermem.clone().unwrap_or_else(|| {
            let beside = std::env::current_exe().ok().map(|own| own.with_file_name("tiermem"));
            beside.filter(|path| path.is_file()).unwrap_or_else(|| "tiermem".into())
        })
    }
}

fn main() -> anyhow::Result<()> {
    // Wrong use ends in clap with exit code 2.
    match Cli::parse().command {
        Command::Cpu(options) => cpu::run(&options),
        Command::Memory(options) => memory::run(&options),
        Command::Flash(options) => flash::run(&options),
        Command::BlockServer(options) => block_server::run(&options),
        Command::Curves(options) => curves::run(&options),
        Command::KrrCost(options) => krr_cost::run(&options),
        Command::ChooseK(options) => choose_k::run(&options),
        Command::Sampling(options) => sampling::run(&options),
        Command::RedisCurve(options) => redis_curve::run(&options),
    }
}
