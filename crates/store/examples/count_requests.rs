//! A server and one client with a fixed number of requests, to count what a request costs:
//!
//! ```text
//! cargo build --release -p tiermem-store --example count_requests
//! valgrind --tool=callgrind --toggle-collect='*Connection*Future*poll*' target/release/examples/count_requests 16 20000
//! ```
//!
//! The arguments are the depth of the pipeline and the number of requests, half of them SET and half GET of 100
//! bytes. A third, `home` or `away`, makes it a store of two shards whose client asks for keys of the shard where it is at home,
//! or of the other; the guest's part is counted too. Divide the count by the requests; between two numbers of them, what connecting costs falls out.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use tiermem_store::config::StoreConfig;
use tiermem_store::engine::Engine;
use tiermem_store::server::{ServerConfig, Sockets};
use tiermem_store::shards::Placement;

const KEYS: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let depth: usize = args.next().map_or(Ok(16), |text| text.parse())?;
    let requests: usize = args.next().map_or(Ok(20_000), |text| text.parse())?;
    // The first client is at home at the first shard.
    let (shards, shard) = match args.next().as_deref() {
        None => (1, 0),
        Some("home") => (2, 0),
        Some("away") => (2, 1),
        Some(other) => return Err(format!("{other} is neither home nor away").into()),
    };
    let placement = Placement { own: 0, shards };
    let keys = (0..).map(|number| format!("key:{number:08}"));
    let keys: Vec<String> =
        keys.filter(|key| placement.shard_of(key.as_bytes()) == shard).take(KEYS).collect();
    let config =
        StoreConfig { tiers: vec!["dram=128MiB".parse()?], shards: shards as u32, ..StoreConfig::default() };
    let engines: Result<Vec<Engine>, Box<dyn Error>> =
        (0..shards).map(|_| Ok(Engine::new(config.engine_config(0)?)?)).collect();
    let listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    let server = Sockets::bind(ServerConfig { listen, ..ServerConfig::default() })?.listen(engines?)?;
    let address = server.local_addr().ok_or("no address")?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let client = std::thread::spawn(move || -> std::io::Result<()> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        for batch in 0..requests / depth {
            drive(&mut stream, &keys, batch, depth)?;
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
    Ok(())
}

/// Sends a batch and reads its replies: SET in every other one, so that GET finds something.
fn drive(stream: &mut TcpStream, keys: &[String], batch: usize, depth: usize) -> std::io::Result<()> {
    let value = [b'v'; 100];
    let mut bytes = Vec::new();
    let set = batch.is_multiple_of(2);
    for at in 0..depth {
        let key = &keys[(batch / 2 * depth + at) % KEYS];
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
