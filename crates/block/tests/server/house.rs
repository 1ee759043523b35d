//! Server on a thread of its own.

use std::sync::Arc;
use std::thread::JoinHandle;

use tempfile::TempDir;
use tiermem_block::disks::{Disks, MemoryDisks};
use tiermem_block::nbd::Address;
use tiermem_block::server::{Listeners, Server, ServerConfig, ServerStats};
use tokio::sync::oneshot;

pub const SIZE: u64 = 8 << 20;

/// A running server, with a unix socket and a TCP port. Dropped, it shuts down.
pub struct House {
    pub unix: Address,
    pub tcp: Address,
    pub stats: Arc<ServerStats>,
    _dir: TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Two disks, and one that cannot be written.
pub fn memory() -> MemoryDisks {
    let mut disks = MemoryDisks::new();
    disks.add("a", SIZE);
    disks.add("b", SIZE);
    disks.add("look", SIZE).read_only = true;
    disks
}

impl House {
    /// Serves what `make` makes, on the server's thread; disks need not be able to move.
    pub fn of<D: Disks + 'static>(config: ServerConfig, make: impl FnOnce() -> D + Send + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let unix = Address::Unix(dir.path().join("socket"));
        let listeners = Listeners::bind(&[unix.clone(), "127.0.0.1:0".parse().unwrap()]).unwrap();
        let tcp = listeners.addresses()[1].clone();
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let server = Server::new(make(), config).unwrap();
            tell.send(server.stats()).unwrap();
            let shutdown = async {
                let _ = stopped.await;
            };
            server.run(listeners, shutdown).unwrap();
        });
        House { unix, tcp, stats: told.recv().unwrap(), _dir: dir, stop: Some(stop), thread: Some(thread) }
    }

    pub fn plain() -> Self {
        House::of(ServerConfig::default(), memory)
    }

    /// Asks it to end.
    pub fn stop(&mut self) {
        self.stop.take();
    }

    /// Waits until it has.
    pub fn join(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    /// Waits until the server says so; the test hangs, and is ended by its runner, if it never does.
    pub fn until(&self, what: impl Fn(&ServerStats) -> bool) {
        while !what(&self.stats) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the server has panicked");
        }
    }
}
