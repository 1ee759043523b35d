//! `tiermem store serve`: runs the store until it is told to stop.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use tiermem_store::config::{StoreConfig, TierConfig, check_memory};
use tiermem_store::engine::Engine;
use tiermem_store::http::HttpServer;
use tiermem_store::http::view::View;
use tiermem_store::server::{Server, Snapshot};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

const EXAMPLE: &str = "Example:\n  tiermem store serve --tier dram=512MiB --tier emulated=2GiB\n  \
                       redis-cli -p 7379 set greeting hello";

/// What `tiermem store serve` takes. Flags win over the file.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub struct Options {
    /// A configuration file (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The address for Redis clients [default: 127.0.0.1:7379].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// The address of the live page and /metrics [default: 127.0.0.1:7380].
    #[arg(long, value_name = "ADDRESS")]
    http: Option<SocketAddr>,
    /// A unix socket for Redis clients as well.
    #[arg(long, value_name = "PATH")]
    unix_socket: Option<PathBuf>,
    /// A tier as kind=size, the fastest first; may be repeated, and replaces the file's list
    /// [default: dram=512MiB and emulated=2GiB].
    #[arg(long = "tier", value_name = "KIND=SIZE")]
    tiers: Vec<TierConfig>,
    /// Threads that each own a part of the keys; only 1 for now [default: 1].
    #[arg(long, value_name = "N")]
    shards: Option<u32>,
    /// The password that clients must give.
    #[arg(long, value_name = "PASSWORD")]
    requirepass: Option<String>,
}

/// Serves until SIGINT or SIGTERM.
pub fn run(options: Options) -> Result<(), Failure> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let config = configure(options).map_err(Failure::usage)?;
    let engine_config = config.engine_config(seed()).map_err(Failure::usage)?;
    let engine = Engine::new(engine_config).map_err(Failure::failed)?;
    let server = Server::bind(config.server_config(), engine).map_err(Failure::failed)?;
    let (publisher, views) = watch::channel(Arc::new(View::default()));
    let http = HttpServer::start(config.server.http, views).map_err(Failure::failed)?;
    announce(&config, &server, &http);
    http.set_ready(true);
    let publish = move |snapshot: Snapshot| {
        publisher.send_replace(Arc::new(View::of(&snapshot, env!("CARGO_PKG_VERSION"))));
    };
    server.run(stopped(), publish).map_err(Failure::failed)?;
    drop(http);
    tracing::info!("stopped");
    Ok(())
}

/// Puts file and flags together and checks the result.
fn configure(options: Options) -> Result<StoreConfig, tiermem_store::config::ConfigError> {
    let mut config = match &options.config {
        Some(path) => StoreConfig::read(path)?,
        None => StoreConfig::default(),
    };
    let server = &mut config.server;
    server.listen = options.listen.unwrap_or(server.listen);
    server.http = options.http.unwrap_or(server.http);
    server.unix_socket = options.unix_socket.or(server.unix_socket.take());
    server.requirepass = options.requirepass.or(server.requirepass.take());
    config.shards = options.shards.unwrap_or(config.shards);
    if !options.tiers.is_empty() {
        config.tiers = options.tiers;
    }
    config.validate()?;
    check_memory(&config.tiers)?;
    Ok(config)
}

/// A seed for the index's hash that nobody outside can know: the standard library's is random for each process.
fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Tells people how to reach the store.
fn announce(config: &StoreConfig, server: &Server, http: &HttpServer) {
    let address = server.local_addr().unwrap_or(config.server.listen);
    let host = if address.ip().is_unspecified() { "127.0.0.1".to_owned() } else { address.ip().to_string() };
    println!("redis-cli -h {host} -p {}", address.port());
    if let Some(path) = &config.server.unix_socket {
        println!("redis-cli -s {}", path.display());
    }
    println!("live page: http://{}/", http.address());
    for tier in &config.tiers {
        tracing::info!(tier = tier.name, kind = tier.kind.name(), capacity = %tier.capacity, "tier");
    }
}

/// Ready when the process is asked to stop.
async fn stopped() {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate()];
    let [Ok(mut interrupt), Ok(mut terminate)] = kinds.map(signal) else {
        tracing::error!("signals cannot be received: only SIGKILL will stop the store");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    tracing::info!("stopping");
}
