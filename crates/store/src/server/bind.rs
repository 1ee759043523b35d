//! Sockets: opening them, with errors that say how to fix the configuration.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};
use tiermem_live::tls::TlsError;

use super::ServerConfig;
use super::sampling_cost;
use crate::engine::Engine;
use crate::host::SettingsWatcher;
use crate::settings::Settings;
use crate::snapshot::LoadError;

/// Connections that the kernel keeps until they are accepted, as in Redis.
const BACKLOG: i32 = 511;
/// Files that the process has open beside its clients.
pub const FILES_RESERVED: u64 = 64;

/// Why a server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Every host that reaches the machine could read and write.
    #[error(
        "{0} is reached from other machines, and no password is asked for: set one (--requirepass, or requirepass in the \
         file's [server]), listen on 127.0.0.1, or, on a network where everybody is trusted, say --protected-mode no \
         (protected_mode = false)"
    )]
    Unprotected(SocketAddr),
    /// Neither an address nor a path was given.
    #[error("there is nothing to listen on: give an address or a unix socket")]
    NothingToListenOn,
    /// The address is taken.
    #[error("{0} is in use: stop what listens there, or choose another port")]
    AddressInUse(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Another process listens on the unix socket.
    #[error("{} is in use by another process: stop it, or choose another path", .0.display())]
    UnixSocketInUse(PathBuf),
    /// The path is taken by something that is no socket.
    #[error("{} exists and is not a socket: remove it, or choose another path", .0.display())]
    NotASocket(PathBuf),
    /// The unix socket cannot be made.
    #[error("cannot listen on the unix socket {}: {source}", path.display())]
    UnixSocket {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Fewer files may be open than `maxclients` needs.
    #[error("{source}: raise the limit (ulimit -n {}), or set maxclients to {} or less", source.wanted, source.limit.saturating_sub(FILES_RESERVED))]
    OpenFiles {
        /// Both numbers.
        source: tiermem_sys::limits::OpenFilesError,
    },
    /// Certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A thread cannot be kept on a core.
    #[error(
        "cannot keep a shard on core {core}: {source}; name cores that this process may use (taskset -p shows them)"
    )]
    Pin {
        /// The core.
        core: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The event loop cannot be made.
    #[error("cannot start the event loop: {0}")]
    EventLoop(#[source] io::Error),
    /// It cannot be noted that a snapshot counts no more.
    #[error(transparent)]
    Snapshot(#[from] LoadError),
    /// It has stopped, and something that was to outlive it was not kept.
    #[error("stopped, but not all is kept: {0}")]
    NotKept(String),
}

/// A server with open sockets; clients may connect and wait until [`Server::run`].
#[derive(Debug)]
pub struct Server {
    pub(super) config: ServerConfig,
    /// One for each shard, the first one's first.
    pub(super) engines: Vec<Engine>,
    pub(super) tcp: Option<TcpListener>,
    /// The socket for TLS, and what it serves with until that is loaded anew.
    pub(super) tls: Option<(TcpListener, Arc<rustls::ServerConfig>)>,
    pub(super) unix: Option<UnixListener>,
    pub(super) watcher: SettingsWatcher,
}

/// The addresses of a server before it starts: this process holds them, and no client can connect yet.
/// Anything that may take long, or must not happen twice, belongs between this and [`Sockets::listen`].
#[derive(Debug)]
pub struct Sockets {
    config: ServerConfig,
    tcp: Option<Bound>,
    tls: Option<(Bound, Arc<rustls::ServerConfig>)>,
}

impl Sockets {
    /// Binds the addresses that `config` names and raises the limit of open files as `maxclients` requires.
    ///
    /// # Errors
    /// When an address cannot be bound, or listening there is not allowed.
    pub fn bind(config: ServerConfig) -> Result<Self, ServeError> {
        if config.listen.is_none() && config.tls.is_none() && config.unix_socket.is_none() {
            return Err(ServeError::NothingToListenOn);
        }
        if config.protected_mode && config.settings.users.are_open() {
            // A client that shows a required certificate is known.
            let tls = config.tls.as_ref().filter(|tls| tls.files.client_ca.is_none()).map(|tls| tls.listen);
            let mut open = config.listen.into_iter().chain(tls);
            if let Some(address) = open.find(|address| !address.ip().to_canonical().is_loopback()) {
                return Err(ServeError::Unprotected(address));
            }
        }
        let certificate = config.tls.as_ref().map(|tls| tls.files.load()).transpose()?;
        tiermem_sys::limits::raise_open_files(config.settings.maxclients as u64 + FILES_RESERVED)
            .map_err(|source| ServeError::OpenFiles { source })?;
        let tcp = config.listen.map(Bound::to).transpose()?;
        let tls = config.tls.as_ref().map(|tls| Bound::to(tls.listen)).transpose()?.zip(certificate);
        config.unix_socket.as_deref().map(check_unix).transpose()?;
        Ok(Sockets { config, tcp, tls })
    }

    /// Begins to listen for a server of these engines, one for each shard, in their order.
    ///
    /// # Errors
    /// When another process has begun meanwhile.
    ///
    /// # Panics
    /// Without an engine.
    pub fn listen(self, mut engines: Vec<Engine>) -> Result<Server, ServeError> {
        assert!(!engines.is_empty(), "a store has at least one shard");
        if let Some(ks) = engines[0].tenants().k_candidates() {
            let overheads = sampling_cost::measure(ks);
            tracing::debug!(?overheads, "what choosing a victim costs");
            engines.iter_mut().for_each(|engine| engine.tenants_mut().set_draw_costs(&overheads));
        }
        let Sockets { config, tcp, tls } = self;
        let tcp = tcp.map(Bound::listen).transpose()?;
        let tls = match tls {
            Some((bound, certificate)) => Some((bound.listen()?, certificate)),
            None => None,
        };
        let unix = config.unix_socket.as_deref().map(listen_unix).transpose()?;
        Ok(Server { config, engines, tcp, tls, unix, watcher: SettingsWatcher::default() })
    }
}

impl Server {
    /// Takes the addresses that `config` names and listens there at once, with one shard.
    ///
    /// # Errors
    /// As [`Sockets::bind`] and [`Sockets::listen`].
    pub fn bind(config: ServerConfig, engine: Engine) -> Result<Self, ServeError> {
        Sockets::bind(config)?.listen(vec![engine])
    }

    /// Calls `watcher`, on the server's thread, with the settings that `CONFIG SET` has changed.
    pub fn watch_settings(&mut self, watcher: impl Fn(&Settings) + 'static) {
        self.watcher = SettingsWatcher(Some(Rc::new(watcher)));
    }

    /// The TCP address, with the port that the system chose if it was to choose.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.tcp.as_ref()?.local_addr().ok()
    }

    /// The local address of the TLS port.
    pub fn local_tls_addr(&self) -> Option<SocketAddr> {
        self.tls.as_ref()?.0.local_addr().ok()
    }
}

/// A TCP address that is taken.
#[derive(Debug)]
struct Bound {
    socket: Socket,
    address: SocketAddr,
}

impl Bound {
    fn to(address: SocketAddr) -> Result<Self, ServeError> {
        let bind = || -> io::Result<Socket> {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
            socket.set_reuse_address(true)?;
            socket.bind(&address.into())?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let socket = bind().map_err(|source| tcp_error(address, source))?;
        Ok(Bound { socket, address })
    }

    fn listen(self) -> Result<TcpListener, ServeError> {
        self.socket.listen(BACKLOG).map_err(|source| tcp_error(self.address, source))?;
        Ok(self.socket.into())
    }
}

fn tcp_error(address: SocketAddr, source: io::Error) -> ServeError {
    match source.kind() {
        io::ErrorKind::AddrInUse => ServeError::AddressInUse(address),
        _ => ServeError::Listen { address, source },
    }
}

/// Whether there may be a socket at `path`; one that was left behind by a process that was killed is in the way.
fn check_unix(path: &Path) -> Result<bool, ServeError> {
    match path.symlink_metadata() {
        Ok(found) if !found.file_type().is_socket() => Err(ServeError::NotASocket(path.to_owned())),
        Ok(_) if UnixStream::connect(path).is_ok() => Err(ServeError::UnixSocketInUse(path.to_owned())),
        left_behind => Ok(left_behind.is_ok()),
    }
}

fn listen_unix(path: &Path) -> Result<UnixListener, ServeError> {
    let error = |source| ServeError::UnixSocket { path: path.to_owned(), source };
    if check_unix(path)? {
        std::fs::remove_file(path).map_err(error)?;
    }
    let listener = UnixListener::bind(path).map_err(error)?;
    listener.set_nonblocking(true).map_err(error)?;
    Ok(listener)
}
