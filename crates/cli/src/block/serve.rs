//! `tiermem block serve`: caches volumes in front of slow storage until it is told to stop.

use std::path::PathBuf;

use clap::Args;
use tiermem_base::Bytes;
use tiermem_block::config::{
    BlockConfig, CachePlace, CacheSection, ConfigError, ExportMode, ExportSection, HttpAddress,
};
use tiermem_block::engine::{Engine, EngineError};
use tiermem_block::http;
use tiermem_block::journal::refuse_stranger;
use tiermem_block::nbd::{Address, NbdUri};
use tiermem_block::server::{Listeners, Server};
use tiermem_live::{HttpError, HttpPort, HttpServer};
use tiermem_policy::extents::pairing::Accepted;
use tiermem_tier::block::{self, MemoryDisk};

use crate::failure::Failure;
use crate::serving::{Signals, limit_free_memory, reachable, say, seed, start_log};

const EXAMPLE: &str = "\
Example:
  truncate -s 10G disk.img
  tiermem block serve --cache cache.tiermem:1GiB --export disk=disk.img --listen unix:/tmp/tiermem.sock
  qemu-img info 'nbd+unix:///disk?socket=/tmp/tiermem.sock'";

/// Options of `tiermem block serve`. Flags win over the file.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub struct Options {
    /// Configuration file (TOML); flags override it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address for NBD clients; repeat it for several [default: 127.0.0.1:10809].
    #[arg(long, value_name = "unix:PATH|HOST:PORT")]
    listen: Vec<Address>,
    /// The cache and its size: a file, a block device, or dram for a cache that does not survive the process; also as a tier,
    /// flash:PATH=SIZE or dram=SIZE.
    #[arg(long, value_name = "PATH:SIZE")]
    cache: Option<CacheSection>,
    /// A volume to export and its backing store: a file, a block device, nbd://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH,
    /// s3://BUCKET/PREFIX or objects:DIRECTORY, with options after commas (read-only, size=10GiB to create a volume of objects,
    /// delay=1ms, bandwidth=100MiB); repeat it for several. Replaces the file's list.
    #[arg(long = "export", value_name = "NAME=BACKING")]
    exports: Vec<ExportSection>,
    /// Write mode of all exports: write-back, write-through, write-around or read-only [default: write-back].
    #[arg(long, value_name = "MODE")]
    mode: Option<ExportMode>,
    /// DRAM for copies of data that is read often [default: a sixteenth of the cache, at most 256MiB].
    #[arg(long, value_name = "SIZE")]
    cache_memory: Option<Bytes>,
    /// DRAM for the table of checksums and slots; what does not fit is read from the cache's device when needed [default: all of it].
    #[arg(long, value_name = "SIZE")]
    cache_table_memory: Option<Bytes>,
    /// Address of the live page, /metrics, and the API of `tiermem block status`, `set`, `flush` and `drop`; or none
    /// [default: 127.0.0.1:7381, or none if another program has that port].
    #[arg(long, value_name = "ADDRESS|none")]
    http: Option<HttpAddress>,
    /// Take the store of this export for the right one, although it is not what the cache knows, and write to it what only the cache has.
    /// For one start; repeat it for several.
    #[arg(long, value_name = "NAME")]
    accept_store: Vec<String>,
    /// Lose what the store of this export lacks and only a cache has, this one or another. For one start; repeat it for several.
    #[arg(long, value_name = "NAME")]
    accept_loss: Vec<String>,
    /// Overwrite whatever the cache's file or device holds, dirty data included.
    #[arg(long)]
    reset: bool,
}

/// Serves until SIGINT or SIGTERM.
pub fn run(options: Options) -> Result<(), Failure> {
    limit_free_memory();
    let config = configure(options).map_err(Failure::usage)?;
    let _ = start_log("info");
    // Everything that may refuse a start comes before anything that a start changes.
    let listeners = Listeners::bind(&config.listen()).map_err(Failure::failed)?;
    let port = bind_http(&config)?;
    let engine = open(&config)?;
    let mut server = Server::new(engine, config.server_config()).map_err(Failure::failed)?;
    let http = port.map(|port| http::show(port, &mut server, config.http_control, env!("CARGO_PKG_VERSION")));
    let http = http.transpose().map_err(Failure::failed)?;
    let words = announcement(&config, listeners.addresses(), http.as_ref());
    let ready = |ready| http.iter().for_each(|http| http.set_ready(ready));
    let stop = async {
        let signals = Signals::receive();
        ready(true);
        say(&words);
        signals.stopped().await;
        ready(false);
    };
    let mut engine = server.run(listeners, stop).map_err(Failure::failed)?;
    let dirty_bytes = engine.close();
    drop(http);
    tracing::info!("stopped");
    match (dirty_bytes, engine.log_status()) {
        (0, _) => Ok(()),
        (_, Some(_)) => Err(Failure::failed(anyhow::anyhow!(
            "the stores lack {} that only the cache has: start again with the same cache and stores, and try tiermem block flush",
            Bytes(dirty_bytes)
        ))),
        (_, None) => Err(Failure::failed(anyhow::anyhow!(
            "{} are lost that no store took; the log says why",
            Bytes(dirty_bytes)
        ))),
    }
}

/// Takes the HTTP address. The default one is not worth refusing a start for.
fn bind_http(config: &BlockConfig) -> Result<Option<HttpPort>, Failure> {
    let Some(address) = config.http_address() else { return Ok(None) };
    match HttpPort::bind(address) {
        Err(HttpError::AddressInUse(address)) if config.http.is_none() => {
            tracing::warn!(%address, "no live page, as another program listens there: say where with --http");
            Ok(None)
        }
        port => port.map(|port| Some(port.known_as(config.http_hosts.clone()))).map_err(Failure::failed),
    }
}

/// Puts file and flags together and checks the result.
fn configure(options: Options) -> Result<BlockConfig, ConfigError> {
    let mut config = match &options.config {
        Some(path) => BlockConfig::read(path)?,
        None => BlockConfig::default(),
    };
    if !options.listen.is_empty() {
        config.listen = options.listen;
    }
    let tiers_file = options.config.as_deref().filter(|_| options.cache.is_none());
    config.cache = options.cache.or(config.cache.take());
    if !options.exports.is_empty() {
        config.exports = options.exports;
    }
    if let Some(mode) = options.mode {
        config.exports.iter_mut().for_each(|export| export.mode = mode);
    }
    config.http = options.http.or(config.http);
    if let Some(cache) = &mut config.cache {
        cache.reset |= options.reset;
        cache.memory = options.cache_memory.or(cache.memory);
        cache.table_memory = options.cache_table_memory.or(cache.table_memory);
    }
    for (names, accepted) in
        [(&options.accept_store, Accepted::Store), (&options.accept_loss, Accepted::Loss)]
    {
        names.iter().try_for_each(|name| config.accept(name, accepted))?;
    }
    config.validate().map_err(|error| error.of_tiers_in(tiers_file))?;
    Ok(config)
}

/// Opens the stores and the cache.
fn open(config: &BlockConfig) -> Result<Engine, Failure> {
    let cache = config.cache_tiers().map_err(Failure::usage)?;
    let state_dir = config.cache().map_err(Failure::usage)?.state_dir();
    let mut stores = Vec::new();
    for (volume, spec) in config.volumes().map_err(Failure::usage)? {
        let store = spec
            .open(volume.read_only, state_dir.as_deref())
            .map_err(|error| Failure::failed(anyhow::anyhow!("export {}: {error}", volume.name)))?;
        tracing::info!(
            export = volume.name,
            how = store.describe(),
            bytes = store.size_bytes(),
            "the store is open"
        );
        stores.push((volume, store));
    }
    let engine_config = config.engine_config(seed()).map_err(Failure::usage)?;
    let place = cache.place.to_string();
    let refused = |error: EngineError| Failure::failed(anyhow::anyhow!("the cache {place}: {error}"));
    // A refused start leaves no file that was not there.
    let made = match &cache.place {
        CachePlace::Path(path) if !path.exists() => Some(path.clone()),
        _ => None,
    };
    let mut engine = match cache.place {
        CachePlace::Dram => {
            let device = MemoryDisk::new(cache.capacity_bytes as usize).open();
            Engine::new(Box::new(device), engine_config).map_err(Failure::failed)?
        }
        CachePlace::Path(path) => {
            if !cache.reset {
                refuse_stranger(&path).map_err(|error| refused(error.into()))?;
            }
            let device = block::open_polled(&path, cache.capacity_bytes).map_err(Failure::failed)?;
            let how = device.describe();
            let (engine, found) = Engine::open(device, engine_config, cache.reset).map_err(refused)?;
            tracing::info!(
                place = %place, how, capacity = %Bytes(cache.capacity_bytes), blocks = found.blocks, kept_units = found.kept_units,
                dropped_units = found.dropped_units, taken_units = found.taken_units, lost_units = found.poisoned_units,
                "the cache is open"
            );
            engine
        }
    };
    let mut stores = stores.into_iter();
    let begun = stores.try_for_each(|(volume, store)| engine.add(volume, store).map(drop));
    if let Err(error) = begun.and_then(|()| engine.begin_service()) {
        drop(engine);
        made.iter().for_each(|path| _ = std::fs::remove_file(path));
        return Err(refused(error));
    }
    Ok(engine)
}

/// Tells people how to reach the exports: with TLS where it is spoken, and plainly where it need not be.
fn announcement(config: &BlockConfig, addresses: &[Address], http: Option<&HttpServer>) -> String {
    let ways: &[bool] = match &config.tls {
        None => &[false],
        Some(tls) if tls.required => &[true],
        Some(_) => &[false, true],
    };
    let mut text = String::new();
    for export in &config.exports {
        for address in addresses {
            for &tls in ways {
                let (address, export) = (address.clone(), export.name.clone());
                let uri = NbdUri { tls, address, export, tls_hostname: None, tls_verify_peer: true };
                text += &format!("{uri}\n");
            }
        }
    }
    text.extend(http.map(|http| format!("live page: http://{}/\n", reachable(http.address()))));
    text
}
