//! Instructions per request: a server and one client that sends a fixed number of requests.
//!
//! ```text
//! cargo build --release -p tiermem-store --example count_requests
//! valgrind --tool=callgrind --toggle-collect='*Connection*Future*poll*' target/release/examples/count_requests 16 20000
//! ```
//!
//! The arguments are the depth of the pipeline and the number of requests. Half of the requests
//! are SET, half are GET, with values of 100 bytes. A third argument chooses another store:
//!
//! - `home`: two shards; the client asks for keys of the shard where it is at home.
//! - `away`: two shards; the client asks for keys of the other shard. The work of its guest there is counted too.
//! - `full`: 4 MiB of DRAM and 4 MiB of emulated CXL memory without its delay; the keys need about three times as much.
//!   Every SET evicts an item, every GET reads an item that was just set.
//! - `flash`: 8 MiB of memory over flash, a file in the temporary folder; the keys need about four times the memory.
//!   Every SET demotes an item to flash, every GET reads one from there.
//!
//! Divide the count by the number of requests. The difference between two runs
//! of different length excludes the cost of connecting and of filling the store.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use tiermem_store::config::StoreConfig;
use tiermem_store::engine::{Engine, EngineConfig};
use tiermem_store::flash::SharedGrowths;
use tiermem_store::server::{ServerConfig, Sockets};
use tiermem_store::shards::Placement;
use tiermem_tier::block::{Backend, open_shared};

const KEYS: usize = 1000;
/// Keys of a store that has not room for all of them in memory.
const KEYS_TOO_MANY: usize = 150_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let depth: usize = args.next().map_or(Ok(16), |text| text.parse())?;
    let requests: usize = args.next().map_or(Ok(20_000), |text| text.parse())?;
    // The first client is at home at the first shard.
    let file = std::env::temp_dir().join(format!("count-requests-{}.flash", std::process::id()));
    let flash = format!("flash:{}=256MiB", file.display());
    let (shards, shard, tiers, count) = match args.next().as_deref() {
        None => (1, 0, vec!["dram=128MiB"], KEYS),
        Some("home") => (2, 0, vec!["dram=128MiB"], KEYS),
        Some("away") => (2, 1, vec!["dram=128MiB"], KEYS),
        Some("flash") => (1, 0, vec!["dram=8MiB", &flash], KEYS_TOO_MANY),
        Some("full") => (1, 0, vec!["dram=4MiB", "emulated:a1000-cxl=4MiB"], KEYS_TOO_MANY),
        Some(other) => return Err(format!("{other} is none of home, away, full and flash").into()),
    };
    let placement = Placement { own: 0, shards };
    let keys = (0..).map(|number| format!("key:{number:08}"));
    let keys: Vec<String> =
        keys.filter(|key| placement.shard_of(key.as_bytes()) == shard).take(count).collect();
    let over_flash = tiers.contains(&flash.as_str());
    let tiers: Result<Vec<_>, _> = tiers.into_iter().map(str::parse).collect();
    let config = StoreConfig { tiers: tiers?, shards: shards as u32, ..StoreConfig::default() };
    let listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    let server =
        Sockets::bind(ServerConfig { listen, ..ServerConfig::default() })?.listen(engines(&config)?)?;
    let address = server.local_addr().ok_or("no address")?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let client = std::thread::spawn(move || -> std::io::Result<()> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        if count == KEYS_TOO_MANY {
            for keys in keys.chunks_exact(depth) {
                drive(&mut stream, keys, 0, depth, true)?;
            }
        }
        for batch in 0..requests / depth {
            // SET in every other one, so that GET finds something: what the batch before has set, or, over flash, half of all keys later.
            let first = batch / 2 * depth;
            let (set, later) = (batch.is_multiple_of(2), if over_flash { count / 2 } else { 0 });
            drive(&mut stream, &keys, first + if set { 0 } else { later }, depth, set)?;
        }
        // Without it the server would run for ever.
        let _ = stop.send(());
        Ok(())
    });
    let shutdown = async {
        let _ = stopped.await;
    };
    server.run(|| Ok(shutdown), drop)?;
    client.join().map_err(|_| "the client failed")??;
    if over_flash {
        std::fs::remove_file(file)?;
    }
    Ok(())
}

/// An engine for each shard, the first over flash where there is such a tier.
fn engines(config: &StoreConfig) -> Result<Vec<Engine>, Box<dyn Error>> {
    let engines: Result<Vec<Engine>, Box<dyn Error>> = (0..config.shards)
        .map(|_| Ok(Engine::new(EngineConfig { spin: false, ..config.engine_config(0)? })?))
        .collect();
    let mut engines = engines?;
    if let Some(flash) = config.flash_tier()? {
        let region = flash.region((0, 1), flash.region_bytes(1), &SharedGrowths::default(), [1, 2, 3]);
        // Threads: the instrument does not know io_uring.
        for device in open_shared(&flash.path, flash.capacity.0, Backend::Threads, 1)? {
            engines[0].flash().attach(&flash.name, None, device, &region)?;
        }
    }
    Ok(engines)
}

/// Sends a batch of SET or GET, of the keys from `first` on, and reads its replies.
fn drive(
    stream: &mut TcpStream,
    keys: &[String],
    first: usize,
    depth: usize,
    set: bool,
) -> std::io::Result<()> {
    let value = [b'v'; 100];
    let mut bytes = Vec::new();
    for at in 0..depth {
        let key = &keys[(first + at) % keys.len()];
        if set {
            write!(bytes, "*3\r\n$3\r\nSET\r\n$12\r\n{key}\r\n$100\r\n")?;
            bytes.extend_from_slice(&value);
            bytes.extend_from_slice(b"\r\n");
        } else {
            write!(bytes, "*2\r\n$3\r\nGET\r\n$12\r\n{key}\r\n")?;
        }
    }
    stream.write_all(&bytes)?;
    let reply = if set { "+OK\r\n".len() } else { "$100\r\n".len() + value.len() + 2 };
    stream.read_exact(&mut vec![0; reply * depth])
}
