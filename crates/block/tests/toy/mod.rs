//! NBD servers to test against: a toy made of the project's own machines,
//! which can be stopped, started and made to withhold its answers, and nbdkit.
#![allow(clippy::unwrap_used, dead_code)] // Helpers of tests are tests; each test uses some of them.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command as Process, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tempfile::TempDir;
use tiermem_block::nbd::wire::TransmissionFlags;
use tiermem_block::nbd::{
    Address, Command, Errno, Export, Handshake, Incoming, NbdUri, Progress, Replies, Request, Requests,
    Session, Tls,
};
use tiermem_tier::backing::{AlignedBuffer, Backing, MemoryStore, Op, Request as Asked};

/// Pause between two checks.
const MOMENT: Duration = Duration::from_millis(1);

pub fn all_features() -> TransmissionFlags {
    let flags = [
        TransmissionFlags::SEND_FLUSH,
        TransmissionFlags::SEND_FUA,
        TransmissionFlags::SEND_TRIM,
        TransmissionFlags::SEND_WRITE_ZEROES,
    ];
    flags.into_iter().fold(TransmissionFlags::none(), TransmissionFlags::with)
}

/// An export that takes everything.
pub fn export(size_bytes: u64) -> Export {
    Export { features: all_features(), ..Export::new("vol", size_bytes) }
}

/// A server on a socket in a directory of its own.
pub struct Toy {
    directory: TempDir,
    pub store: MemoryStore,
    shared: Arc<Shared>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    export: Mutex<Export>,
    streams: Mutex<Vec<UnixStream>>,
    stopping: AtomicBool,
    /// Requests are done and not answered, except that a server which is stopped says half of the first answer.
    silent: AtomicBool,
    /// Requests that were done.
    requests: AtomicUsize,
    connections: AtomicUsize,
}

impl Toy {
    pub fn new(export: Export) -> Self {
        let toy = Toy {
            directory: TempDir::new().unwrap(),
            store: MemoryStore::new(export.size_bytes),
            shared: Arc::new(Shared {
                export: Mutex::new(export),
                streams: Mutex::default(),
                stopping: AtomicBool::new(false),
                silent: AtomicBool::new(false),
                requests: AtomicUsize::new(0),
                connections: AtomicUsize::new(0),
            }),
            acceptor: Mutex::default(),
        };
        toy.start();
        toy
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub fn uri(&self) -> NbdUri {
        uri(self.path(), "vol")
    }

    pub fn change(&self, change: impl FnOnce(&mut Export)) {
        change(&mut self.shared.export.lock().unwrap());
    }

    pub fn start(&self) {
        let listener = UnixListener::bind(self.path()).unwrap();
        self.shared.stopping.store(false, Ordering::SeqCst);
        let (store, shared) = (self.store.clone(), self.shared.clone());
        let accept = move || {
            let mut threads = Vec::new();
            for stream in listener.incoming() {
                if shared.stopping.load(Ordering::SeqCst) {
                    break;
                }
                let stream = stream.unwrap();
                shared.streams.lock().unwrap().push(stream.try_clone().unwrap());
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let (store, shared) = (store.clone(), shared.clone());
                threads.push(thread::spawn(move || {
                    let _ = connection(stream, &store, &shared);
                }));
            }
            drop(listener);
            for stream in shared.streams.lock().unwrap().drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        };
        *self.acceptor.lock().unwrap() = Some(thread::spawn(accept));
    }

    /// Dies, with any requests in flight.
    pub fn stop(&self) {
        let Some(acceptor) = self.acceptor.lock().unwrap().take() else { return };
        self.shared.stopping.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect(self.path());
        acceptor.join().unwrap();
        std::fs::remove_file(self.path()).unwrap();
    }

    pub fn silent(&self, silent: bool) {
        self.shared.silent.store(silent, Ordering::SeqCst);
    }

    /// Number of requests done, once it is at least this.
    pub fn wait_for_requests(&self, at_least: usize) -> usize {
        loop {
            let requests = self.shared.requests.load(Ordering::SeqCst);
            if requests >= at_least {
                return requests;
            }
            thread::sleep(MOMENT);
        }
    }

    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Toy {
    fn drop(&mut self) {
        self.stop();
    }
}

fn uri(path: PathBuf, export: &str) -> NbdUri {
    NbdUri {
        tls: false,
        address: Address::Unix(path),
        export: export.to_owned(),
        tls_hostname: None,
        tls_verify_peer: true,
    }
}

fn negotiate(stream: &mut UnixStream, exports: &[Export]) -> io::Result<Option<(Session, Vec<u8>)>> {
    let mut out = Vec::new();
    let mut handshake = Handshake::new(Tls::Off, &mut out);
    let mut bytes = Vec::new();
    loop {
        let mut input = &bytes[..];
        let progress = handshake.receive(&mut input, exports, &mut out).map_err(io::Error::other)?;
        bytes = input.to_vec();
        stream.write_all(&out)?;
        out.clear();
        match progress {
            Progress::Transmit(session) => return Ok(Some((session, bytes))),
            Progress::Abort | Progress::StartTls => return Ok(None),
            Progress::Answered => {}
            Progress::Incomplete => {
                let mut more = [0; 512];
                match stream.read(&mut more)? {
                    0 => return Ok(None),
                    read => bytes.extend_from_slice(&more[..read]),
                }
            }
        }
    }
}

/// Does what is asked and appends the reply.
fn serve(store: &mut dyn Backing, session: &Session, request: &Request, payload: &[u8], out: &mut Vec<u8>) {
    let (replies, cookie) = (Replies::new(session.rules.structured), request.cookie);
    let (offset, bytes) = (request.offset, u64::from(request.len_bytes));
    let mut buffer = AlignedBuffer::zeroed(payload.len());
    buffer[..payload.len()].copy_from_slice(payload);
    let op = match request.command {
        Command::Read => Op::Read,
        Command::Write => Op::Write,
        Command::Flush => Op::Flush,
        Command::Trim => Op::Trim,
        Command::WriteZeroes => Op::Zero,
        _ => return replies.failed(cookie, Errno::Inval, "no such thing here", out),
    };
    if op == Op::Read {
        buffer = AlignedBuffer::zeroed(bytes as usize);
    }
    store.submit(Asked { token: 0, op, offset, bytes, buffer });
    let mut done = Vec::new();
    store.completed(&mut done);
    match (&done[0].result, op) {
        (Err(error), _) => replies.failed(cookie, Errno::Io, &error.to_string(), out),
        (Ok(()), Op::Read) => {
            let data = &done[0].buffer[..bytes as usize];
            // Where that is allowed, a hole represents the zeroes behind the first half.
            let half = data.len() / 2;
            if session.rules.structured && half > 0 && data[half..].iter().all(|byte| *byte == 0) {
                let (hole_at, hole) = (offset + half as u64, (data.len() - half) as u32);
                out.extend_from_slice(&Replies::hole(cookie, hole_at, hole, false));
                out.extend_from_slice(&Replies::data(cookie, offset, half as u32, true));
                return out.extend_from_slice(&data[..half]);
            }
            replies.read_whole(cookie, offset, request.len_bytes, out);
            out.extend_from_slice(data);
        }
        (Ok(()), _) => replies.done(cookie, out),
    }
}

fn connection(mut stream: UnixStream, store: &MemoryStore, shared: &Shared) -> io::Result<()> {
    let exports = [shared.export.lock().unwrap().clone()];
    let Some((session, mut bytes)) = negotiate(&mut stream, &exports)? else { return Ok(()) };
    let (mut requests, mut store) = (Requests::new(session.rules), store.open());
    loop {
        let (mut input, mut batch) = (&bytes[..], Vec::new());
        while let Some(incoming) = requests.next(&mut input).map_err(io::Error::other)? {
            match incoming {
                Incoming::Disconnect => return Ok(()),
                Incoming::Refused(refusal) => panic!("a client that knows the rules: {refusal:?}"),
                Incoming::Request(request) => {
                    let mut payload = requests.payload(&mut input).to_vec();
                    let (start, left) = (payload.len(), requests.payload_left() as usize);
                    payload.resize(start + left, 0);
                    stream.read_exact(&mut payload[start..])?;
                    requests.payload_taken(left);
                    batch.push((request, payload));
                }
            }
        }
        bytes = input.to_vec();
        // Replies come in another order than requests.
        let (mut out, mut last) = (Vec::new(), 0);
        for (request, payload) in batch.iter().rev() {
            last = out.len();
            serve(&mut store, &session, request, payload, &mut out);
            shared.requests.fetch_add(1, Ordering::SeqCst);
        }
        let silent = shared.silent.load(Ordering::SeqCst);
        while shared.silent.load(Ordering::SeqCst) && !shared.stopping.load(Ordering::SeqCst) {
            thread::sleep(MOMENT);
        }
        if shared.stopping.load(Ordering::SeqCst) {
            // In the middle of a reply. A server that kept its answers has
            // given none in full: it begins with the first one requested.
            let said = if silent { &out[last..] } else { &out[..] };
            let _ = stream.write_all(&said[..said.len() / 2]);
            return Ok(());
        }
        stream.write_all(&out)?;
        let mut more = vec![0; 64 << 10];
        match stream.read(&mut more)? {
            0 => return Ok(()),
            read => bytes.extend_from_slice(&more[..read]),
        }
    }
}

/// nbdkit on a socket in a directory of its own.
pub struct Nbdkit {
    directory: TempDir,
    child: Child,
}

impl Nbdkit {
    /// `None` where it is not installed.
    pub fn start(arguments: &[&str]) -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let child = spawn(&directory, arguments)?;
        Some(Nbdkit { directory, child })
    }

    pub fn uri(&self) -> NbdUri {
        uri(self.directory.path().join("socket"), "")
    }

    /// Kills it without a word, and starts it again.
    pub fn restart(&mut self, arguments: &[&str]) {
        self.kill();
        self.child = spawn(&self.directory, arguments).unwrap();
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let _ = std::fs::remove_file(self.directory.path().join("socket"));
    }
}

fn spawn(directory: &TempDir, arguments: &[&str]) -> Option<Child> {
    let socket = directory.path().join("socket");
    let mut process = Process::new("nbdkit");
    process.arg("--foreground").arg("--unix").arg(&socket).args(arguments);
    let mut child = process.stdin(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    while UnixStream::connect(&socket).is_err() {
        assert!(child.try_wait().unwrap().is_none(), "nbdkit {arguments:?} does not start");
        thread::sleep(MOMENT);
    }
    Some(child)
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
