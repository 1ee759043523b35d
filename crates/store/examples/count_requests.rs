//! A server and one client with a fixed number of requests, to count what a request costs:
//!
//! ```text
//! cargo build --release -p tiermem-store --example count_requests
//! valgrind --tool=callgrind --toggle-collect='*Connection*Future*poll*' target/release/examples/count_requests 16 20000
//! ```
//!
//! The arguments are the depth of the pipeline and the number of requests, half of them SET and half GET of 100 bytes. A third one chooses
//! another store:
//!
//! | argument | the store |
//! | --- | --- |
//! | `home` | two shards; the client asks for keys of the shard where it is at home |
//! | `away` | two shards; the client asks for keys of the other one. The guest's part is counted too |
//! | `flash` | 8 MiB of memory over flash, a file in the temporary folder, and some four times as many bytes in keys: every SET sends another item down, and every GET is of one that is there |
//!
//! Divide the count by the requests. Between two numbers of requests, what connecting and filling the store cost falls out.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use tiermem_store::config::StoreConfig;
use tiermem_store::engine::Engine;
use tiermem_store::server::{ServerConfig, Sockets};
use tiermem_store::shards::Placement;

const KEYS: usize = 1000;
/// Keys of a store over flash.
const KEYS_OVER_FLASH: usize = 150_000;

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
        Some("flash") => (1, 0, vec!["dram=8MiB", &flash], KEYS_OVER_FLASH),
        Some(other) => return Err(format!("{other} is none of home, away and flash").into()),
    };
    let placement = Placement { own: 0, shards };
    let keys = (0..).map(|number| format!("key:{number:08}"));
    let keys: Vec<String> =
        keys.filter(|key| placement.shard_of(key.as_bytes()) == shard).take(count).collect();
    let over_flash = tiers.len() > 1;
    let tiers: Result<Vec<_>, _> = tiers.into_iter().map(str::parse).collect();
    let config = StoreConfig { tiers: tiers?, shards: shards as u32, ..StoreConfig::default() };
    let engines: Result<Vec<Engine>, Box<dyn Error>> =
        (0..shards).map(|_| Ok(Engine::new(config.engine_config(0)?)?)).collect();
    let listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    let server = Sockets::bind(ServerConfig { listen, ..ServerConfig::default() })?.listen(engines?)?;
    let address = server.local_addr().ok_or("no address")?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let client = std::thread::spawn(move || -> std::io::Result<()> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        if over_flash {
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
