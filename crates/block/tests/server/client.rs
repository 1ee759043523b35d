//! Client over a blocking socket.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use tiermem_block::nbd::client::{Event, Negotiation, Progress, Transmission, Wishes};
use tiermem_block::nbd::wire::CommandFlags;
use tiermem_block::nbd::{Address, Command, Errno, Request};

pub trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// Result of a request: its error or its bytes, and extents as `(context, length, flags)`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Reply {
    pub data: Vec<u8>,
    pub extents: Vec<(u32, u32, u32)>,
    pub error: Option<Errno>,
}

pub struct Client {
    pub wire: Box<dyn Wire>,
    transmission: Transmission,
    bytes: Vec<u8>,
    under_way: HashMap<u64, (Request, Reply)>,
    cookie: u64,
}

pub fn connect(address: &Address) -> Box<dyn Wire> {
    match address {
        Address::Unix(path) => Box::new(UnixStream::connect(path).unwrap()),
        Address::Tcp { host, port } => Box::new(TcpStream::connect((host.as_str(), *port)).unwrap()),
    }
}

/// Reads more, behind what is there.
fn read_more(wire: &mut dyn Wire, bytes: &mut Vec<u8>) -> io::Result<()> {
    let filled = bytes.len();
    bytes.resize(filled + (64 << 10), 0);
    let read = wire.read(&mut bytes[filled..])?;
    bytes.truncate(filled + read);
    if read == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

impl Client {
    pub fn new(address: &Address, export: &str) -> Self {
        let contexts = vec!["base:allocation".to_owned(), "tiermem:cache".to_owned()];
        Client::with(connect(address), Wishes { contexts, ..Wishes::new(export) }, |_| None).unwrap()
    }

    pub fn simple(address: &Address, export: &str) -> Self {
        Client::with(connect(address), Wishes { structured: false, ..Wishes::new(export) }, |_| None).unwrap()
    }

    /// Negotiates; `tls` makes a socket one with TLS.
    pub fn with(
        mut wire: Box<dyn Wire>,
        wishes: Wishes,
        tls: impl Fn(Box<dyn Wire>) -> Option<Box<dyn Wire>>,
    ) -> io::Result<Self> {
        let mut negotiation = Negotiation::new(wishes);
        let (mut bytes, mut out) = (Vec::new(), Vec::new());
        loop {
            let mut input = &bytes[..];
            let progress = negotiation.receive(&mut input, &mut out).map_err(io::Error::other)?;
            bytes = input.to_vec();
            wire.write_all(&out)?;
            wire.flush()?;
            out.clear();
            match progress {
                Progress::Ready(agreed) => {
                    let transmission = Transmission::new(&agreed);
                    let under_way = HashMap::new();
                    return Ok(Client { wire, transmission, bytes, under_way, cookie: 0 });
                }
                Progress::StartTls => {
                    wire = tls(wire).ok_or_else(|| io::Error::other("no TLS"))?;
                    negotiation.tls_started(&bytes, &mut out).map_err(io::Error::other)?;
                    wire.write_all(&out)?;
                    wire.flush()?;
                    out.clear();
                }
                Progress::Incomplete => read_more(&mut *wire, &mut bytes)?,
            }
        }
    }

    /// Sends a request and gives its cookie.
    pub fn send(&mut self, command: Command, flags: CommandFlags, offset: u64, data: &[u8], len: u32) -> u64 {
        self.cookie += 1;
        let request = Request { cookie: self.cookie, command, flags, offset, len_bytes: len };
        let head = self.transmission.issue(request).unwrap();
        self.wire.write_all(&[&head, data].concat()).unwrap();
        self.wire.flush().unwrap();
        let data = if command == Command::Read { vec![0xee; len as usize] } else { Vec::new() };
        self.under_way.insert(self.cookie, (request, Reply { data, ..Reply::default() }));
        self.cookie
    }

    /// The next reply that is whole.
    pub fn receive(&mut self) -> io::Result<(Request, Reply)> {
        loop {
            let mut input = &self.bytes[..];
            let event = self.transmission.next(&mut input).map_err(io::Error::other)?;
            self.bytes = input.to_vec();
            match event {
                None => read_more(&mut *self.wire, &mut self.bytes)?,
                Some(Event::Data { cookie, offset, .. }) => {
                    let (request, reply) = self.under_way.get_mut(&cookie).unwrap();
                    let mut at = (offset - request.offset) as usize;
                    while self.transmission.payload_left() > 0 {
                        let mut input = &self.bytes[..];
                        let part = self.transmission.payload(&mut input);
                        reply.data[at..at + part.len()].copy_from_slice(part);
                        at += part.len();
                        self.bytes = input.to_vec();
                        if self.bytes.is_empty() && self.transmission.payload_left() > 0 {
                            read_more(&mut *self.wire, &mut self.bytes)?;
                        }
                    }
                }
                Some(Event::Hole { cookie, offset, len_bytes }) => {
                    let (request, reply) = self.under_way.get_mut(&cookie).unwrap();
                    let at = (offset - request.offset) as usize;
                    reply.data[at..at + len_bytes as usize].fill(0);
                }
                Some(Event::Extent { cookie, context_id, extent, .. }) => {
                    let (_, reply) = self.under_way.get_mut(&cookie).unwrap();
                    reply.extents.push((context_id, extent.len_bytes, extent.flags));
                }
                Some(Event::Error { .. }) => {}
                Some(Event::Done { cookie, result }) => {
                    let (request, mut reply) = self.under_way.remove(&cookie).unwrap();
                    reply.error = result.err();
                    return Ok((request, reply));
                }
            }
        }
    }

    /// Sends a request and waits for its reply, the only one under way.
    pub fn ask(&mut self, command: Command, offset: u64, data: &[u8], len: u32) -> Reply {
        let cookie = self.send(command, CommandFlags::none(), offset, data, len);
        let (request, reply) = self.receive().unwrap();
        assert_eq!(request.cookie, cookie);
        reply
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        assert_eq!(self.ask(Command::Write, offset, data, data.len() as u32).error, None);
    }

    pub fn read(&mut self, offset: u64, len: u32) -> Vec<u8> {
        let reply = self.ask(Command::Read, offset, &[], len);
        assert_eq!(reply.error, None);
        reply.data
    }

    /// Says goodbye.
    pub fn disconnect(&mut self) {
        let request = Request {
            cookie: 0,
            command: Command::Disconnect,
            flags: CommandFlags::none(),
            offset: 0,
            len_bytes: 0,
        };
        let head = self.transmission.issue(request).unwrap();
        self.wire.write_all(&head).unwrap();
        self.wire.flush().unwrap();
    }

    /// Number of requests without a reply yet.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }
}

/// Numbers that look like chance and follow from a seed.
pub struct Draws(pub u64);

impl Draws {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }
}
