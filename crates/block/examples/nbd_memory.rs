//! NBD server over memory: `cargo run --release --example nbd_memory
//! -- unix:PATH|HOST:PORT SIZE`, with a size as in `1GiB`.
//!
//! It shows the cost of the server alone, without the cost of disks.

use std::error::Error;

use tiermem_base::units::Bytes;
use tiermem_block::disks::MemoryDisks;
use tiermem_block::nbd::Address;
use tiermem_block::server::{Listeners, Server, ServerConfig};
use tokio::signal::unix::{SignalKind, signal};

fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, size] = &args[..] else { return Err("usage: nbd_memory unix:PATH|HOST:PORT SIZE".into()) };
    let address: Address = address.parse()?;
    let size: Bytes = size.parse()?;
    let mut disks = MemoryDisks::new();
    disks.add("", size.0);
    let server = Server::new(disks, ServerConfig::default())?;
    let listeners = Listeners::bind(&[address])?;
    for address in listeners.addresses() {
        eprintln!("listening on {address}");
    }
    let shutdown = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => {
                terminate.recv().await;
            }
            // It cannot be asked to end then.
            Err(_) => std::future::pending().await,
        }
    };
    server.run(listeners, shutdown)?;
    Ok(())
}
