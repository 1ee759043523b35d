//! An NBD server over memory, one thread per connection: `cargo run --example nbd_memory -- unix:PATH|HOST:PORT MIB`.
//!
//! The smallest driver of the protocol's machines: what owns the socket, and what an export does, is all here.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::thread;

use tiermem_block::nbd::wire::{CommandFlags, STATE_HOLE, STATE_ZERO, TransmissionFlags};
use tiermem_block::nbd::{
    Address, Command, Context, Contexts, Errno, Export, Extents, Handshake, Incoming, Progress, Replies,
    Request, Requests, Session, Tls,
};

/// Extents are told in steps of so many bytes.
const STEP_BYTES: usize = 4096;

type Disk = Arc<Mutex<Vec<u8>>>;

/// Negotiates; gives the session and the bytes that were read and are requests.
fn negotiate<S: Read + Write>(stream: &mut S, exports: &[Export]) -> io::Result<Option<(Session, Vec<u8>)>> {
    let mut out = Vec::new();
    let mut handshake = Handshake::new(Tls::Off, &mut out);
    let (mut buffer, mut filled) = (vec![0; 4096], 0);
    loop {
        let mut input = &buffer[..filled];
        let progress = handshake.receive(&mut input, exports, &mut out).map_err(io::Error::other)?;
        let rest = input.to_vec();
        stream.write_all(&out)?;
        out.clear();
        buffer[..rest.len()].copy_from_slice(&rest);
        filled = rest.len();
        match progress {
            Progress::Transmit(session) => return Ok(Some((session, rest))),
            Progress::Abort | Progress::StartTls => return Ok(None),
            Progress::Answered => continue,
            Progress::Incomplete => {}
        }
        match stream.read(&mut buffer[filled..])? {
            0 => return Ok(None),
            read => filled += read,
        }
    }
}

/// The state of the volume from `offset` on.
fn status(disk: &[u8], request: &Request, context: Context) -> Extents {
    let mut extents = Extents::new(request, 1 << 10);
    let mut at = request.offset as usize;
    while at < disk.len() {
        let end = ((at / STEP_BYTES + 1) * STEP_BYTES).min(disk.len());
        let zero = disk[at..end].iter().all(|byte| *byte == 0);
        let flags = match context {
            Context::Allocation if zero => STATE_HOLE | STATE_ZERO,
            Context::Allocation => 0,
            Context::Cache => Context::CACHED,
        };
        if !extents.push((end - at) as u64, flags) {
            break;
        }
        at = end;
    }
    extents
}

/// Does what `request` asks for and appends the reply, a read's data included.
fn serve(disk: &mut [u8], session: &Session, request: &Request, payload: &[u8], out: &mut Vec<u8>) {
    let (replies, cookie) = (Replies::new(session.rules.structured), request.cookie);
    let range = request.offset as usize..request.end() as usize;
    match request.command {
        Command::Read => {
            replies.read_whole(cookie, request.offset, request.len_bytes, out);
            return out.extend_from_slice(&disk[range]);
        }
        Command::BlockStatus => {
            let mut left = session.contexts.iter().count();
            for context in session.contexts.iter() {
                left -= 1;
                let extents = status(disk, request, context);
                Replies::status(cookie, context.id(), extents.as_slice(), left == 0, out);
            }
            return;
        }
        Command::WriteZeroes if request.flags.contains(CommandFlags::FAST_ZERO) => {
            return replies.failed(cookie, Errno::NotSup, "zeroes are bytes like any others here", out);
        }
        Command::Write => disk[range].copy_from_slice(payload),
        Command::Trim | Command::WriteZeroes => disk[range].fill(0),
        Command::Flush | Command::Cache | Command::Disconnect => {}
    }
    replies.done(cookie, out);
}

fn connection<S: Read + Write>(mut stream: S, disk: &Disk, exports: &[Export]) -> io::Result<()> {
    let Some((session, mut buffer)) = negotiate(&mut stream, exports)? else { return Ok(()) };
    eprintln!("a session: {session:?}");
    let mut requests = Requests::new(session.rules);
    let mut out = Vec::new();
    loop {
        let mut input = &buffer[..];
        let mut last = false;
        while let Some(incoming) = requests.next(&mut input).map_err(io::Error::other)? {
            match incoming {
                Incoming::Disconnect => return stream.write_all(&out),
                Incoming::Refused(refusal) => {
                    let replies = Replies::new(session.rules.structured);
                    replies.failed(refusal.cookie, refusal.fault.error, refusal.fault.reason, &mut out);
                    last = refusal.fatal;
                }
                Incoming::Request(request) => {
                    let mut payload = requests.payload(&mut input).to_vec();
                    let left = requests.payload_left() as usize;
                    if left > 0 {
                        // The rest goes straight from the socket to where it belongs.
                        let start = payload.len();
                        payload.resize(start + left, 0);
                        stream.read_exact(&mut payload[start..])?;
                        requests.payload_taken(left);
                    }
                    let mut disk =
                        disk.lock().map_err(|_| io::Error::other("another connection's thread died"))?;
                    serve(&mut disk, &session, &request, &payload, &mut out);
                }
            }
            if last {
                break;
            }
        }
        stream.write_all(&out)?;
        out.clear();
        if last {
            return Ok(());
        }
        buffer = input.to_vec();
        let filled = buffer.len();
        buffer.resize(filled + (64 << 10), 0);
        let read = stream.read(&mut buffer[filled..])?;
        buffer.truncate(filled + read);
        if read == 0 {
            return Ok(());
        }
    }
}

fn each<S: Read + Write + Send + 'static>(
    streams: impl Iterator<Item = io::Result<S>>,
    disk: &Disk,
    exports: &[Export],
) -> io::Result<()> {
    for stream in streams {
        let (stream, disk, exports) = (stream?, disk.clone(), exports.to_vec());
        thread::spawn(move || {
            if let Err(error) = connection(stream, &disk, &exports) {
                eprintln!("a connection ended: {error}");
            }
        });
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, mib] = &args[..] else { return Err("usage: nbd_memory unix:PATH|HOST:PORT MIB".into()) };
    let bytes = mib.parse::<usize>()? << 20;
    let features = TransmissionFlags::from_bits(0xffff)
        .without(TransmissionFlags::READ_ONLY)
        .without(TransmissionFlags::from_bits(0xf000 | 1 << 9))
        .without(TransmissionFlags::ROTATIONAL);
    let open = Export { features, contexts: Contexts::all(), ..Export::new("memory", bytes as u64) };
    let description = "the same bytes, to look at only".to_owned();
    let read_only = Export { name: "look".to_owned(), description, read_only: true, ..open.clone() };
    let (disk, exports) = (Arc::new(Mutex::new(vec![0; bytes])), [open, read_only]);
    match address.parse()? {
        Address::Unix(path) => each(UnixListener::bind(path)?.incoming(), &disk, &exports)?,
        Address::Tcp { host, port } => {
            each(TcpListener::bind((host.as_str(), port))?.incoming(), &disk, &exports)?;
        }
    }
    Ok(())
}
