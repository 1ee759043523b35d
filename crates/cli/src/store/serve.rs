//! `tiermem store serve`: runs the store until it is told to stop.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use tiermem_base::{Bytes, TierSpec};
use tiermem_live::address;
use tiermem_store::config::{FlashTier, StoreConfig, check_memory};
use tiermem_store::engine::{Engine, EngineConfig};
use tiermem_store::flash::{FlashConfig, SharedGrowths};
use tiermem_store::http::view::View;
use tiermem_store::http::{HttpPort, HttpServer};
use tiermem_store::server::{ServeError, Server, Snapshot, Sockets};
use tiermem_store::settings::LogLevel;
use tiermem_store::snapshot::{Files, Load, Loaded};
use tiermem_store::store_time::StartTime;
use tiermem_tier::block;
use tokio::sync::watch;

use crate::failure::Failure;
use crate::serving::{Signals, limit_free_memory, reachable, say, seed, start_log};

const EXAMPLE: &str = "Example:\n  tiermem store serve --tier dram=512MiB --tier emulated=2GiB\n  \
                       redis-cli -p 7379 set greeting hello";

/// Options of `tiermem store serve`. Flags win over the file.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub struct Options {
    /// Configuration file (TOML); flags override it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address for Redis clients [default: 127.0.0.1:7379].
    #[arg(long, value_name = "ADDRESS", value_parser = address::parse)]
    listen: Option<SocketAddr>,
    /// Address of the live page and /metrics [default: 127.0.0.1:7380].
    #[arg(long, value_name = "ADDRESS", value_parser = address::parse)]
    http: Option<SocketAddr>,
    /// Address for Redis clients that use TLS, in addition; SIGHUP reloads certificate and key.
    #[arg(long, value_name = "ADDRESS", value_parser = address::parse)]
    tls_listen: Option<SocketAddr>,
    /// TLS certificate chain (PEM).
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key of the TLS certificate (PEM).
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// CA certificates (PEM): require TLS clients to show a certificate signed by one of them.
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// Unix socket for Redis clients, in addition.
    #[arg(long, value_name = "PATH")]
    unix_socket: Option<PathBuf>,
    /// A tier, as kind=size or kind:place=size; repeat it, fastest first. Replaces the file's list. Examples: dram=1GiB,
    /// emulated=4GiB, emulated:numa-2018=4GiB (with the name of a curve), numa:1=4GiB, dax:/dev/dax0.0=4GiB,
    /// flash:/srv/tiermem.flash=64GiB [default: dram=512MiB and emulated=2GiB].
    #[arg(long = "tier", value_name = "KIND:PLACE=SIZE")]
    tiers: Vec<TierSpec>,
    /// Overwrite whatever the files and devices of the tiers hold.
    #[arg(long)]
    reset: bool,
    /// Snapshot file for the items in memory: written at an orderly stop and by SAVE and BGSAVE, loaded at the start.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Which snapshots to load: clean (from an orderly stop, once), always (any; data that was deleted or overwritten after
    /// the snapshot comes back) or never [default: clean].
    #[arg(long, value_name = "WHICH")]
    snapshot_load: Option<String>,
    /// Number of threads; each owns part of the keys and of every tier [default: 1].
    #[arg(long, value_name = "N")]
    shards: Option<u32>,
    /// Pin the shards to these cores, in turn: 0,1 [default: not pinned].
    #[arg(long, value_name = "CORES", value_delimiter = ',')]
    pin_cores: Vec<usize>,
    /// Password that clients must give.
    #[arg(long, value_name = "PASSWORD")]
    requirepass: Option<String>,
    /// Refuse to listen beyond this machine without a password: yes or no [default: yes].
    #[arg(long, value_name = "YES|NO", value_parser = yes_or_no)]
    protected_mode: Option<bool>,
}

/// Serves until SIGINT or SIGTERM.
pub fn run(options: Options) -> Result<(), Failure> {
    limit_free_memory();
    let config_file = options.config.clone();
    let resets = options.reset;
    let config = configure(options).map_err(Failure::usage)?;
    let server_config = config.server_config(config_file).map_err(Failure::usage)?;
    let start = server_config.start;
    let set_log_filter = start_log(log_filter(server_config.settings.log_level));
    let files = server_config.snapshot.as_deref().map(Files::open).transpose().map_err(Failure::failed)?;
    let which = config.snapshot_load().map_err(Failure::usage)?;
    // Everything that may refuse a start comes before anything that a start changes: persistent tiers, and snapshots.
    let sockets = Sockets::bind(server_config).map_err(|error| match error {
        ServeError::Unprotected(_) => Failure::usage(error),
        _ => Failure::failed(error),
    })?;
    let (publisher, views) = watch::channel(Arc::new(View::default()));
    let port = HttpPort::bind(config.server.http).map_err(Failure::failed)?;
    let http = port.known_as(config.server.http_hosts.clone()).show(views).map_err(Failure::failed)?;
    let mut engines = engines(&config, start)?;
    if let Some(files) = &files {
        // With a reset the old contents are not wanted.
        load_snapshot(&mut engines, files, if resets { Load::Never } else { which });
    }
    let mut server = sockets.listen(engines).map_err(Failure::failed)?;
    server.watch_settings(move |settings| set_log_filter(log_filter(settings.log_level)));
    let words = announcement(&config, &server, &http);
    let begin = || {
        // A user that reads that the store is ready may stop it at once, so signals are received before anything
        // is printed; and before snapshots are superseded, since from then on only an orderly stop leaves one.
        let signals = Signals::receive();
        files.as_ref().map(Files::supersede).transpose()?;
        http.set_ready(true);
        say(&words);
        Ok(signals.stopped())
    };
    let publish = move |snapshot: Snapshot| {
        publisher.send_replace(Arc::new(View::of(&snapshot, env!("CARGO_PKG_VERSION"))));
    };
    server.run(begin, publish).map_err(Failure::failed)?;
    drop(http);
    tracing::info!("stopped");
    Ok(())
}

/// An engine for each shard, with what tiers that outlive the process hold from before.
fn engines(config: &StoreConfig, start: StartTime) -> Result<Vec<Engine>, Failure> {
    // Persistent parts belong together if they have seen the same runs.
    let mut session = [0; 16];
    session[..8].copy_from_slice(&seed().to_le_bytes());
    session[8..].copy_from_slice(&seed().to_le_bytes());
    let mut engines = Vec::new();
    for _ in 0..config.shards {
        let engine_config = config.engine_config(seed()).map_err(Failure::usage)?;
        engines.push(Engine::new(EngineConfig { session, ..engine_config }).map_err(Failure::failed)?);
    }
    if let Some(flash) = config.flash_tier().map_err(Failure::usage)? {
        attach_flash(&mut engines, &flash)?;
    }
    engines.iter_mut().for_each(|engine| take_up(engine, start));
    Ok(engines)
}

/// Redis's levels in the log's own words.
fn log_filter(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Debug => "trace",
        LogLevel::Verbose => "debug",
        LogLevel::Notice => "info",
        LogLevel::Warning => "warn",
    }
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("say yes or no".to_owned()),
    }
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
    server.tls_listen = options.tls_listen.or(server.tls_listen);
    server.tls_cert = options.tls_cert.or(server.tls_cert.take());
    server.tls_key = options.tls_key.or(server.tls_key.take());
    server.tls_client_ca = options.tls_client_ca.or(server.tls_client_ca.take());
    server.requirepass = options.requirepass.or(server.requirepass.take());
    server.protected_mode = options.protected_mode.unwrap_or(server.protected_mode);
    config.shards = options.shards.unwrap_or(config.shards);
    if !options.pin_cores.is_empty() {
        config.pin_cores = options.pin_cores;
    }
    config.snapshot = options.snapshot.or(config.snapshot.take());
    config.snapshot_load = options.snapshot_load.or(config.snapshot_load.take());
    let tiers_file = options.config.as_deref().filter(|_| options.tiers.is_empty());
    if !options.tiers.is_empty() {
        config.tiers = options.tiers;
    }
    if options.reset {
        config.tiers.iter_mut().for_each(|tier| tier.reset = true);
    }
    config.validate().map_err(|error| error.of_tiers_in(tiers_file))?;
    check_memory(&config.tiers, config.shards)?;
    Ok(config)
}

/// Opens the flash tier's file or device and puts a region of it below each engine's memory.
fn attach_flash(engines: &mut [Engine], flash: &FlashTier) -> Result<(), Failure> {
    let shards = engines.len();
    // Asked before the file is opened, which makes it as long as it has to be.
    let (region_bytes, growths) = (flash.region_bytes(shards as u32), SharedGrowths::default());
    let regions: Vec<FlashConfig> = (0..shards)
        .map(|shard| {
            let of = (shard as u32, shards as u32);
            flash.region(of, region_bytes, &growths, [seed(), seed(), seed()])
        })
        .collect();
    let capacity_bytes = flash.capacity.0.max(region_bytes.saturating_mul(shards as u64));
    let devices =
        block::open_shared(&flash.path, capacity_bytes, flash.backend, shards).map_err(Failure::failed)?;
    let how = devices.first().map_or("", |device| device.describe());
    let place = flash.path.display().to_string();
    let failed = |error| Failure::failed(anyhow::anyhow!("the flash tier {place}: {error}"));
    let mut keys = 0;
    for ((engine, device), region) in engines.iter_mut().zip(devices).zip(&regions) {
        engine.flash().attach(&flash.name, flash.endurance.map(|it| it.0), device, region).map_err(failed)?;
        keys += engine.flash().figures().map_or(0, |figures| figures.recovered_items);
    }
    for engine in engines.iter_mut() {
        engine.flash().grow_at_start(flash.capacity.0).map_err(failed)?;
    }
    let bytes = engines.first_mut().map_or(0, |engine| engine.flash().device_bytes());
    if bytes > flash.capacity.0 {
        let (has, capacity) = (Bytes(bytes), flash.capacity);
        tracing::warn!(path = place, %has, %capacity, "a flash tier never shrinks, and keeps what it has: to have a smaller one, \
            stop the store, and start it with --reset, which begins empty");
    }
    tracing::info!(path = place, how, keys, capacity = %Bytes(bytes), "the flash tier is open");
    Ok(())
}

/// Takes up what tiers that outlive the process hold from before.
fn take_up(engine: &mut Engine, start: StartTime) {
    let begun = Instant::now();
    let found = engine.warm_start().take_up(start.store_us() / 1000);
    let (items, expired, dropped) = (found.items, found.expired, found.dropped);
    if found.disagree {
        tracing::warn!(
            "the tiers that outlive the process are not all of the same run: those of kind dax begin empty"
        );
    } else if items + expired + dropped > 0 {
        let seconds = begun.elapsed().as_secs_f64();
        tracing::info!(items, expired, dropped, seconds, "items taken up where they lie");
    }
}

/// Loads the snapshot, telling every two seconds how far it is.
fn load_snapshot(engines: &mut [Engine], files: &Files, which: Load) {
    let (start, mut told) = (Instant::now(), Instant::now());
    let speed = |bytes: u64| Bytes((bytes as f64 / start.elapsed().as_secs_f64().max(1e-3)) as u64);
    let loaded = files.load(which, engines, |progress| {
        if told.elapsed() >= Duration::from_secs(2) {
            told = Instant::now();
            tracing::info!(items = progress.items, per_second = %speed(progress.bytes), "loading the snapshot");
        }
    });
    let why = match loaded {
        Loaded::Absent | Loaded::Unwanted => return,
        Loaded::Running => {
            "it was taken while the store ran, and what was deleted or overwritten since would come back. Say \
             --snapshot-load always to have it all the same"
        }
        Loaded::Superseded => {
            "it was loaded before, or a run was told not to, and the store did not stop in order since"
        }
        Loaded::Stale => "it is of another run than what the tiers hold",
        Loaded::Items(it) => {
            let seconds = start.elapsed().as_secs_f64();
            tracing::info!(items = it.items, expired = it.expired, known = it.known, refused = it.refused, seconds,
                per_second = %speed(it.bytes), "snapshot loaded");
            if it.files_left_out > 0 {
                let files = it.files_left_out;
                tracing::warn!(
                    files,
                    "parts of the snapshot are not loaded: they are not of the same orderly stop"
                );
            }
            if it.damaged > 0 || it.cut {
                tracing::warn!(items = it.damaged, cut = it.cut, "parts of the snapshot are damaged");
            }
            return;
        }
    };
    tracing::warn!("the snapshot is not loaded: {why}");
}

/// Tells people how to reach the store.
fn announcement(config: &StoreConfig, server: &Server, http: &HttpServer) -> String {
    for tier in &config.tiers {
        let capacity = Bytes(tier.known_bytes().unwrap_or(0));
        tracing::info!(tier = tier.name, kind = tier.kind.name(), %capacity, "tier");
    }
    let address = server.local_addr().unwrap_or(config.server.listen);
    let mut text = format!("redis-cli {}\n", redis_cli_flags(address));
    if let Some(address) = server.local_tls_addr() {
        text += &format!("redis-cli --tls {}\n", redis_cli_flags(address));
    }
    if let Some(path) = &config.server.unix_socket {
        text += &format!("redis-cli -s {}\n", path.display());
    }
    text + &format!("live page: http://{}/\n", reachable(http.address()))
}

/// redis-cli's own default host is left out.
fn redis_cli_flags(address: SocketAddr) -> String {
    let address = reachable(address);
    match address.ip() {
        ip if ip == Ipv4Addr::LOCALHOST => format!("-p {}", address.port()),
        ip => format!("-h {ip} -p {}", address.port()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_told_can_be_reached() {
        for (address, flags) in [
            ("127.0.0.1:7379", "-p 7379"),
            ("0.0.0.0:7379", "-p 7379"),
            ("10.0.0.1:1", "-h 10.0.0.1 -p 1"),
            ("[::]:7379", "-h ::1 -p 7379"),
        ] {
            assert_eq!(redis_cli_flags(address.parse().unwrap()), flags);
        }
    }
}
