//! Blocking RESP connection.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::LoadError;
use super::reply::{Decoder, Reply};
use super::request;
use crate::replay::Address;

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// With no byte for this long, a server counts as stuck.
const STALL: Duration = Duration::from_secs(60);
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Login at a server, sent before anything else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// The user's name, for servers that have users.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// The database.
    pub db: u32,
}

/// Either kind of socket.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn open(to: &Address) -> io::Result<Self> {
        let socket = match to {
            Address::Tcp(address) => {
                let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
                let mut found = None;
                for address in address.to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
                        Ok(stream) => {
                            found = Some(stream);
                            break;
                        }
                        Err(error) => last = error,
                    }
                }
                let stream = found.ok_or(last)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(STALL))?;
                stream.set_write_timeout(Some(STALL))?;
                Socket::Tcp(stream)
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(STALL))?;
                stream.set_write_timeout(Some(STALL))?;
                Socket::Unix(stream)
            }
        };
        Ok(socket)
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Socket::Tcp(stream) => Socket::Tcp(stream.try_clone()?),
            Socket::Unix(stream) => Socket::Unix(stream.try_clone()?),
        })
    }

    /// Shuts the connection down in both directions, so blocked calls return.
    pub(super) fn shut(&self) {
        let _ = match self {
            Socket::Tcp(stream) => stream.shutdown(std::net::Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(std::net::Shutdown::Both),
        };
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads replies from a socket.
#[derive(Debug)]
pub(super) struct Replies {
    to: Address,
    socket: Socket,
    decoder: Decoder,
    input: Vec<u8>,
}

impl Replies {
    pub(super) fn next(&mut self) -> Result<Reply, LoadError> {
        loop {
            let garbage = |garbage| LoadError::Garbage { to: self.to.clone(), garbage };
            if let Some(reply) = self.decoder.next().map_err(garbage)? {
                return Ok(reply);
            }
            let io = |source| LoadError::Io { to: self.to.clone(), source };
            match self.socket.read(&mut self.input) {
                Ok(0) => return Err(LoadError::Closed { to: self.to.clone() }),
                Ok(count) => self.decoder.feed(&self.input[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(io(error)),
            }
        }
    }
}

/// A connection, logged in.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) to: Address,
    pub(super) socket: Socket,
    pub(super) replies: Replies,
}

impl Link {
    /// Connects and logs in.
    pub(crate) fn open(to: &Address, login: &Login) -> Result<Self, LoadError> {
        let failed = |source| LoadError::Connect { to: to.clone(), source };
        let socket = Socket::open(to).map_err(failed)?;
        let reading = socket.try_clone().map_err(failed)?;
        let replies = Replies {
            to: to.clone(),
            socket: reading,
            decoder: Decoder::default(),
            input: vec![0; READ_BYTES],
        };
        let mut link = Link { to: to.clone(), socket, replies };
        if let Some(password) = &login.password {
            let user = login.user.iter().map(String::as_bytes);
            let words: Vec<&[u8]> =
                [b"AUTH".as_slice()].into_iter().chain(user).chain([password.as_bytes()]).collect();
            link.must(&words)?;
        }
        if login.db != 0 {
            link.must(&[b"SELECT", login.db.to_string().as_bytes()])?;
        }
        link.must(&[b"PING"])?;
        Ok(link)
    }

    /// Sends a command of the login, which must be answered with a status.
    fn must(&mut self, words: &[&[u8]]) -> Result<(), LoadError> {
        match self.ask(words)? {
            Reply::Status(_) => Ok(()),
            Reply::Error(text) => Err(LoadError::Login { to: self.to.clone(), text }),
            other => {
                Err(LoadError::Unexpected { to: self.to.clone(), command: "PING", reply: other.describe() })
            }
        }
    }

    fn send(socket: &mut Socket, to: &Address, bytes: &[u8]) -> Result<(), LoadError> {
        socket.write_all(bytes).map_err(|source| LoadError::Io { to: to.clone(), source })
    }

    /// Sends one command and reads its reply.
    pub(crate) fn ask(&mut self, words: &[&[u8]]) -> Result<Reply, LoadError> {
        Self::send(&mut self.socket, &self.to, &request::of(words))?;
        self.replies.next()
    }

    /// Sends `count` commands and reads their replies while sending.
    pub(super) fn pipeline(&mut self, commands: &[u8], count: usize) -> Result<Vec<Reply>, LoadError> {
        let (socket, to, replies) = (&mut self.socket, &self.to, &mut self.replies);
        let mut read = || (0..count).map(|_| replies.next()).collect::<Result<Vec<_>, _>>();
        // What fits the socket's buffers needs no second thread.
        if commands.len() <= 64 << 10 && count <= 1024 {
            Self::send(socket, to, commands)?;
            return read();
        }
        std::thread::scope(|scope| {
            let sending = scope.spawn(move || {
                let sent = Self::send(socket, to, commands);
                if sent.is_err() {
                    // Or the replies would be waited for.
                    socket.shut();
                }
                sent
            });
            let replies = read()?;
            match sending.join() {
                Ok(Err(error)) => Err(error),
                _ => Ok(replies),
            }
        })
    }
}
