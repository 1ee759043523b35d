//! Server on its own thread, and a client that sees raw bytes.
// Each test binary uses its own part of this.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tiermem_store::config::StoreConfig;
use tiermem_store::engine::Engine;
use tiermem_store::server::{Server, ServerConfig, Snapshot};
use tiermem_store::settings::Settings;
use tokio::sync::{oneshot, watch};

/// When a test gives up. Nothing here is about speed, and a busy machine may keep a thread for seconds.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A running server; stops when dropped.
pub struct Running {
    pub address: SocketAddr,
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts a server on a free port.
pub fn start(change: impl FnOnce(&mut ServerConfig)) -> Running {
    let mut config = ServerConfig {
        listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        settings: Settings { maxclients: 3000, ..Settings::default() },
        snapshot_interval: Duration::from_millis(20),
        ..ServerConfig::default()
    };
    change(&mut config);
    let (address_out, address_in) = mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let (publisher, snapshots) = watch::channel(Arc::new(Snapshot::default()));
    let thread = std::thread::spawn(move || {
        let server = Server::bind(config, engine()).expect("the sockets open");
        address_out.send(server.local_addr().expect("a TCP address")).expect("the test waits");
        let shutdown = async {
            let _ = stopped.await;
        };
        let publish = move |snapshot| drop(publisher.send_replace(Arc::new(snapshot)));
        server.run(|| Ok(shutdown), publish).expect("the server runs");
    });
    let address = address_in.recv().expect("the server starts");
    Running { address, snapshots, stop: Some(stop), thread: Some(thread) }
}

/// An engine with room for all that a test stores.
pub fn engine() -> Engine {
    let tiers = vec!["dram=512MiB".parse().expect("a tier")];
    let config = StoreConfig { tiers, ..StoreConfig::default() }.engine_config(0);
    Engine::new(config.expect("a configuration")).expect("memory")
}

impl Running {
    pub fn client(&self) -> Client {
        Client::new(TcpStream::connect(self.address).expect("the server accepts"))
    }

    /// Waits until the published figures satisfy `condition`.
    pub fn wait_for(&self, what: &str, condition: impl Fn(&Snapshot) -> bool) {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if condition(&self.snapshots.borrow()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{what} did not come: {:?}", self.snapshots.borrow().server);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.take().into_iter().for_each(|stop| {
            let _ = stop.send(());
        });
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(matches!(ended, Some(Ok(()))), "the server's thread panicked");
        }
    }
}

/// A connection that reads replies as raw bytes.
pub struct Client<S: Read + Write = TcpStream> {
    pub stream: BufReader<S>,
}

impl Client<TcpStream> {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        stream.set_nodelay(true).expect("a socket option");
        Client { stream: BufReader::new(stream) }
    }
}

impl<S: Read + Write> Client<S> {
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("the server takes it");
    }

    /// Sends a request and returns the raw reply.
    pub fn ask(&mut self, args: &[&[u8]]) -> Vec<u8> {
        self.send(&request(args));
        self.reply()
    }

    /// Sends words and returns the reply as text.
    pub fn words(&mut self, words: &str) -> String {
        let args: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        String::from_utf8_lossy(&self.ask(&args)).into_owned()
    }

    /// Reads one reply of any kind.
    pub fn reply(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut missing = 1u64;
        while missing > 0 {
            missing -= 1;
            let start = bytes.len();
            self.stream.read_until(b'\n', &mut bytes).expect("a reply");
            let line = String::from_utf8_lossy(&bytes[start..]).trim_end().to_owned();
            let Some(kind) = line.chars().next() else { panic!("the connection was closed") };
            let count = || line[1..].parse::<i64>().expect("a length").max(0) as u64;
            match kind {
                '$' | '=' if line != "$-1" => {
                    let start = bytes.len();
                    bytes.resize(start + count() as usize + 2, 0);
                    self.stream.read_exact(&mut bytes[start..]).expect("the string's bytes");
                }
                '*' | '~' | '>' => missing += count(),
                '%' => missing += 2 * count(),
                _ => {}
            }
        }
        bytes
    }

    /// Whether the server has closed the connection, once all replies are read.
    pub fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// A request as an array of strings.
pub fn request(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
