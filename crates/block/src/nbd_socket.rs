//! Connection to an NBD server: its socket, bytes to be sent and
//! bytes that have arrived. All clients in this crate use it.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use crate::nbd::client::{Agreed, Negotiation, Progress, Transmission, Wishes};
use crate::nbd::wire::STRING_BYTES_MAX;
use crate::nbd::{Address, Context, NbdUri, Rules};

/// Bytes that are read at once; longer data go straight to where they belong.
const INPUT_BYTES: usize = 64 << 10;
/// Payloads up to this length are copied behind their header, which is cheaper than one more piece to send.
pub(crate) const COPIED_BYTES_MAX: usize = 8 << 10;
/// Pieces that the kernel is handed at once.
const PIECES_MAX: usize = 32;

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn connect(address: &Address, attempt: Duration) -> io::Result<Self> {
        match address {
            Address::Tcp { host, port } => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, attempt) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            // A server whose machine has failed sends nothing more: the kernel must find out.
                            sockopt::set_socket_keepalive(&stream, true)?;
                            sockopt::set_tcp_keepidle(&stream, Duration::from_secs(10))?;
                            sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(5))?;
                            sockopt::set_tcp_user_timeout(&stream, 30_000)?;
                            return Ok(Socket::Tcp(stream));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
            Address::Unix(path) => match path.as_os_str().as_bytes() {
                [0, name @ ..] => UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?),
                _ => UnixStream::connect(path),
            }
            .map(Socket::Unix),
        }
    }

    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        // None would be no limit at all.
        let timeout = Some(timeout.max(Duration::from_millis(1)));
        match self {
            Socket::Tcp(it) => it.set_read_timeout(timeout).and_then(|()| it.set_write_timeout(timeout)),
            Socket::Unix(it) => it.set_read_timeout(timeout).and_then(|()| it.set_write_timeout(timeout)),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(it) => it.read(bytes),
            Socket::Unix(it) => it.read(bytes),
        }
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(it) => it.write_vectored(pieces),
            Socket::Unix(it) => it.write_vectored(pieces),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Socket::Tcp(it) => it.write_all(bytes),
            Socket::Unix(it) => it.write_all(bytes),
        }
    }
}

/// Something to be sent.
pub(crate) enum Piece {
    Bytes(Vec<u8>),
    /// Bytes `from..to` of a job's buffer.
    Payload {
        job: usize,
        from: usize,
        to: usize,
    },
}

/// A connection past its negotiation.
pub(crate) struct Link {
    socket: Socket,
    pub(crate) transmission: Transmission,
    out: VecDeque<Piece>,
    /// Bytes of the first piece that were sent.
    sent: usize,
    input: Vec<u8>,
    /// Where in `input` the bytes lie that were read and not understood yet.
    unread: (usize, usize),
    tells_allocation: bool,
}

/// `None`: not now.
pub(crate) fn would_block(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error),
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the server has closed the connection")
}

impl Link {
    /// Connects and negotiates; the words are for people.
    pub(crate) fn connect(uri: &NbdUri, attempt: Duration) -> Result<Self, String> {
        if uri.tls {
            return Err("TLS to another server is not supported; use nbd:// through a tunnel".to_owned());
        }
        if uri.export.len() > STRING_BYTES_MAX {
            return Err(format!(
                "the export's name has more than the {STRING_BYTES_MAX} bytes of the protocol"
            ));
        }
        let words = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!("no answer within {attempt:?}"),
            _ => error.to_string(),
        };
        let until = Instant::now() + attempt;
        let mut socket = Socket::connect(&uri.address, attempt)
            .map_err(|error| format!("cannot connect: {}; is the server running?", words(error)))?;
        let contexts = vec![Context::Allocation.name().to_owned()];
        let mut negotiation = Negotiation::new(Wishes { contexts, ..Wishes::new(uri.export.clone()) });
        let (mut out, mut input, mut filled) = (Vec::new(), vec![0; INPUT_BYTES], 0);
        loop {
            let mut unread = &input[..filled];
            let progress = negotiation.receive(&mut unread, &mut out).map_err(|error| error.to_string())?;
            let rest = filled - unread.len()..filled;
            socket.set_timeout(until.saturating_duration_since(Instant::now())).map_err(words)?;
            socket.write_all(&out).map_err(words)?;
            out.clear();
            match progress {
                Progress::Ready(agreed) => {
                    return Link::begin(socket, &agreed, input, rest.start, rest.end).map_err(words);
                }
                Progress::StartTls => return Err("the server insists on TLS".to_owned()),
                Progress::Incomplete => {}
            }
            filled = socket.read(&mut input).map_err(words)?;
            if filled == 0 {
                return Err(closed().to_string());
            }
        }
    }

    /// Whether the server says what of the volume is holes and zeroes.
    pub(crate) fn tells_allocation(&self) -> bool {
        self.tells_allocation
    }

    fn begin(socket: Socket, agreed: &Agreed, input: Vec<u8>, start: usize, end: usize) -> io::Result<Self> {
        match &socket {
            Socket::Tcp(it) => it.set_nonblocking(true)?,
            Socket::Unix(it) => it.set_nonblocking(true)?,
        }
        let transmission = Transmission::new(agreed);
        let tells_allocation = !agreed.contexts.is_empty();
        let (out, unread) = (VecDeque::new(), (start, end));
        Ok(Link { socket, transmission, out, sent: 0, input, unread, tells_allocation })
    }

    pub(crate) fn rules(&self) -> &Rules {
        self.transmission.rules()
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(it) => it.as_fd(),
            Socket::Unix(it) => it.as_fd(),
        }
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        match self.out.back_mut() {
            Some(Piece::Bytes(last)) if last.len() < INPUT_BYTES => last.extend_from_slice(bytes),
            _ => self.out.push_back(Piece::Bytes(bytes.to_vec())),
        }
    }

    pub(crate) fn put_payload(&mut self, job: usize, from: usize, to: usize) {
        self.out.push_back(Piece::Payload { job, from, to });
    }

    /// Sends what can be sent now; `buffer` finds a job's buffer, `gone` hears of each payload that was sent.
    pub(crate) fn send<'a>(
        &mut self,
        buffer: impl Fn(usize) -> &'a [u8],
        mut gone: impl FnMut(usize),
    ) -> io::Result<()> {
        while !self.out.is_empty() {
            let mut slices = Vec::with_capacity(self.out.len().min(PIECES_MAX));
            for piece in self.out.iter().take(PIECES_MAX) {
                slices.push(IoSlice::new(match piece {
                    Piece::Bytes(bytes) => bytes,
                    Piece::Payload { job, from, to } => &buffer(*job)[*from..*to],
                }));
            }
            let mut slices = &mut slices[..];
            IoSlice::advance_slices(&mut slices, self.sent);
            let Some(mut sent) = would_block(self.socket.write_vectored(slices))? else { return Ok(()) };
            sent += self.sent;
            while let Some(piece) = self.out.front() {
                let len = match piece {
                    Piece::Bytes(bytes) => bytes.len(),
                    Piece::Payload { from, to, .. } => to - from,
                };
                if sent < len {
                    break;
                }
                sent -= len;
                if let Some(Piece::Payload { job, .. }) = self.out.pop_front() {
                    gone(job);
                }
            }
            self.sent = sent;
        }
        Ok(())
    }

    /// Passes the bytes read but not yet parsed, and the machine that parses them, to `with`;
    /// with `more`, reads more first when there are none. `false` when nothing has arrived.
    pub(crate) fn receive<E>(
        &mut self,
        more: bool,
        with: impl FnOnce(&mut Transmission, &mut &[u8]) -> Result<(), E>,
    ) -> Result<bool, E>
    where
        E: From<io::Error>,
    {
        if more && self.is_drained() {
            match would_block(self.socket.read(&mut self.input))? {
                None => return Ok(false),
                Some(0) => return Err(closed().into()),
                Some(read) => self.unread = (0, read),
            }
        }
        let mut unread = &self.input[self.unread.0..self.unread.1];
        with(&mut self.transmission, &mut unread)?;
        self.unread.0 = self.unread.1 - unread.len();
        Ok(true)
    }

    /// Whether all that was read was understood, so that data may be read past [`Self::receive`].
    pub(crate) fn is_drained(&self) -> bool {
        self.unread.0 == self.unread.1
    }

    /// Reads data directly to their place; `None` when nothing has arrived.
    pub(crate) fn read_data(&mut self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        match would_block(self.socket.read(bytes))? {
            Some(0) => Err(closed()),
            other => {
                self.transmission.payload_taken(other.unwrap_or(0));
                Ok(other)
            }
        }
    }
}
