//! Listening sockets for clients.

use std::fmt;
use std::fs;
use std::io;
use std::net;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net as unix;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{Domain, SockAddr, SockRef, Socket as Socket2, TcpKeepalive, Type};
use tokio::net::{TcpListener, UnixListener};

use super::socket::Plain;
use crate::nbd::Address;

/// A peer that vanished without a word is noticed some minutes after this.
const KEEPALIVE: Duration = Duration::from_secs(300);

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// No address was given.
    #[error("there is nothing to listen on: give an address")]
    Nothing,
    /// Another process listens there.
    #[error("{0} is in use: stop what listens there, or choose another")]
    InUse(Address),
    /// The path is taken by something that is no socket.
    #[error("{} exists and is not a socket: remove it, or choose another path", .0.display())]
    NotASocket(PathBuf),
    /// The system will not have it.
    #[error("cannot listen on {address}: {source}")]
    Failed {
        /// Where.
        address: Address,
        /// What the system said.
        source: io::Error,
    },
}

/// A unix socket's file, which goes when its listener does; one that was put in its place meanwhile stays.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn identity(path: &Path) -> io::Result<(u64, u64)> {
        fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if SocketFile::identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[derive(Debug)]
enum Socket {
    Tcp(net::TcpListener),
    Unix(unix::UnixListener),
}

/// Sockets that are listened on; clients may connect and wait until they are served.
#[derive(Debug, Default)]
pub struct Listeners {
    sockets: Vec<Socket>,
    addresses: Vec<Address>,
    files: Vec<SocketFile>,
}

impl Listeners {
    /// Listens on all of `addresses`. A socket's file that was left behind by a process that was killed is replaced.
    ///
    /// # Errors
    /// When one of them cannot be had; none is listened on then.
    pub fn bind(addresses: &[Address]) -> Result<Self, ListenError> {
        if addresses.is_empty() {
            return Err(ListenError::Nothing);
        }
        let mut listeners = Listeners::default();
        for address in addresses {
            listeners.add(address)?;
        }
        Ok(listeners)
    }

    /// Where it is listened, with the ports that the system chose.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    fn add(&mut self, address: &Address) -> Result<(), ListenError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::InUse(address.clone()),
            _ => ListenError::Failed { address: address.clone(), source },
        };
        match address {
            Address::Tcp { host, port } => {
                let socket = net::TcpListener::bind((host.as_str(), *port)).map_err(failed)?;
                let port = socket.local_addr().map_err(failed)?.port();
                socket.set_nonblocking(true).map_err(failed)?;
                self.addresses.push(Address::Tcp { host: host.clone(), port });
                self.sockets.push(Socket::Tcp(socket));
            }
            Address::Unix(path) => {
                let bytes = path.as_os_str().as_bytes();
                let socket = match bytes.strip_prefix(b"\0") {
                    Some(name) => unix::SocketAddr::from_abstract_name(name)
                        .and_then(|name| unix::UnixListener::bind_addr(&name))
                        .map_err(failed)?,
                    None => {
                        remove_stale(path)?;
                        let socket = unix::UnixListener::bind(path).map_err(failed)?;
                        let identity = SocketFile::identity(path).map_err(failed)?;
                        self.files.push(SocketFile { path: path.clone(), identity });
                        socket
                    }
                };
                socket.set_nonblocking(true).map_err(failed)?;
                self.addresses.push(address.clone());
                self.sockets.push(Socket::Unix(socket));
            }
        }
        Ok(())
    }

    /// Goes over to the event loop that runs here.
    pub(super) fn start(self) -> io::Result<Entrance> {
        let sockets = self.sockets.into_iter().map(|socket| {
            Ok(match socket {
                Socket::Tcp(socket) => ListeningSocket::Tcp(TcpListener::from_std(socket)?),
                Socket::Unix(socket) => ListeningSocket::Unix(UnixListener::from_std(socket)?),
            })
        });
        Ok(Entrance { sockets: sockets.collect::<io::Result<_>>()?, next: 0, _files: self.files })
    }
}

/// Removes a stale socket file, but only when no process listens on it.
fn remove_stale(path: &Path) -> Result<(), ListenError> {
    let address = || Address::Unix(path.to_owned());
    match path.symlink_metadata() {
        Err(_) => Ok(()),
        Ok(found) if !found.file_type().is_socket() => Err(ListenError::NotASocket(path.to_owned())),
        Ok(_) => match knock(path) {
            // Only this error shows that no process listens; a failure to connect for lack of permission does not.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(|source| ListenError::Failed { address: address(), source })
            }
            _ => Err(ListenError::InUse(address())),
        },
    }
}

/// Connects without waiting for a listener with a full queue: a listener too busy to accept exists all the same.
fn knock(path: &Path) -> io::Result<()> {
    let socket = Socket2::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)
}

#[derive(Debug)]
enum ListeningSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A client's address, for messages.
#[derive(Clone, Debug)]
pub(super) enum Peer {
    Tcp(net::SocketAddr),
    Unix,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Tcp(address) => address.fmt(f),
            Peer::Unix => f.write_str("unix"),
        }
    }
}

/// Listeners that are waited at. Dropped, they close, and the unix sockets' files go.
#[derive(Debug)]
pub(super) struct Entrance {
    sockets: Vec<ListeningSocket>,
    next: usize,
    _files: Vec<SocketFile>,
}

impl Entrance {
    /// The next client, from whichever door; each door has its turn.
    pub(super) fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Plain, Peer)>> {
        for _ in 0..self.sockets.len() {
            self.next = (self.next + 1) % self.sockets.len();
            let accepted = match &self.sockets[self.next] {
                ListeningSocket::Tcp(listener) => listener.poll_accept(cx).map_ok(|(stream, address)| {
                    // Replies are written whole; nothing is gained by waiting for more. Neither option is worth a client.
                    let _ = stream.set_nodelay(true);
                    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
                    let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
                    (Plain::Tcp(stream), Peer::Tcp(address))
                }),
                ListeningSocket::Unix(listener) => {
                    listener.poll_accept(cx).map_ok(|(stream, _)| (Plain::Unix(stream), Peer::Unix))
                }
            };
            if accepted.is_ready() {
                return accepted;
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_sockets_are_replaced_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let address = [Address::Unix(path.clone())];
        drop(unix::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "what a dead process leaves");
        let first = Listeners::bind(&address).unwrap();
        assert!(matches!(Listeners::bind(&address), Err(ListenError::InUse(_))));
        assert!(unix::UnixStream::connect(&path).is_ok(), "the first one still listens");
        drop(first);
        assert!(!path.exists());
        fs::write(&path, "words").unwrap();
        assert!(matches!(Listeners::bind(&address), Err(ListenError::NotASocket(_))));
        assert_eq!(fs::read(&path).unwrap(), b"words");
        assert!(matches!(Listeners::bind(&[]), Err(ListenError::Nothing)));
    }

    #[test]
    fn a_listener_that_is_too_busy_to_accept_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let busy = Socket2::new(Domain::UNIX, Type::STREAM, None).unwrap();
        busy.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        busy.listen(0).unwrap();
        let mut queued = Vec::new();
        loop {
            let client = Socket2::new(Domain::UNIX, Type::STREAM, None).unwrap();
            client.set_nonblocking(true).unwrap();
            if client.connect(&SockAddr::unix(&path).unwrap()).is_err() {
                break;
            }
            queued.push(client);
        }
        let bound = Listeners::bind(&[Address::Unix(path.clone())]);
        assert!(matches!(bound, Err(ListenError::InUse(_))));
        assert!(path.exists());
    }

    #[test]
    fn a_file_that_is_anothers_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listeners = Listeners::bind(&[Address::Unix(path.clone())]).unwrap();
        fs::rename(&path, dir.path().join("old")).unwrap();
        fs::write(&path, "").unwrap();
        drop(listeners);
        assert!(path.exists());
    }

    #[test]
    fn ports_are_told_and_abstract_names_need_no_file() {
        let name = format!("\0tiermem-test-{}", std::process::id());
        let addresses = [Address::Unix(name.into()), "127.0.0.1:0".parse().unwrap()];
        let listeners = Listeners::bind(&addresses).unwrap();
        let Address::Tcp { port, .. } = listeners.addresses()[1] else { panic!("the second one is TCP") };
        assert_ne!(port, 0);
        assert!(net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        assert!(matches!(Listeners::bind(&addresses[..1]), Err(ListenError::InUse(_))));
    }
}
