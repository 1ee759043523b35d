//! TLS for a server's sockets: certificates read from files, and a socket whose bytes are encrypted.
//!
//! rustls is a state machine without I/O. It is driven here with the calls of a plain socket ([`Socket`]), so that a connection does
//! not know whether its bytes are encrypted. The handshake runs within the first reads, on the thread of the connection: a signature
//! with an ECDSA key takes some tens of microseconds, with an RSA key about a millisecond.

use std::io::{self, IoSlice, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoClientAuth, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConnection};
use tokio::net::TcpStream;

/// A server's certificate and key, and the CA for clients' certificates, if it requires them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate and those up to its root (PEM).
    pub cert: PathBuf,
    /// The certificate's private key (PEM).
    pub key: PathBuf,
    /// Clients must show a certificate that one of these has signed (PEM). Default: they need none.
    pub client_ca: Option<PathBuf>,
}

/// Why certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("TLS: {}: {problem}", path.display())]
pub struct TlsError {
    path: PathBuf,
    problem: String,
}

fn error(path: &Path, problem: impl ToString) -> TlsError {
    TlsError { path: path.to_owned(), problem: problem.to_string() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|problem| error(path, problem))?;
    if read.is_empty() { Err(error(path, "there is no certificate in it")) } else { Ok(read) }
}

impl TlsFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// When one cannot be read or is no certificate or key, or when the key is not the certificate's.
    pub fn load(&self) -> Result<Arc<rustls::ServerConfig>, TlsError> {
        let chain = certificates(&self.cert)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|problem| error(&self.key, problem))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = match &self.client_ca {
            None => Arc::new(NoClientAuth),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|problem| error(path, problem))?;
                }
                WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider))
                    .build()
                    .map_err(|problem| error(path, problem))?
            }
        };
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|problem| error(&self.cert, problem))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|problem| {
                error(&self.key, format!("{problem}: is it the key of {}?", self.cert.display()))
            })?;
        Ok(Arc::new(config))
    }
}

/// The calls of a connected socket that TLS is spoken over. Those named `try` do not wait:
/// `WouldBlock` means that nothing was done, and that the matching `poll` wakes when something can be.
pub trait Socket {
    /// Ready when there may be something to read.
    ///
    /// # Errors
    /// Those of the socket.
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Ready when something may be written.
    ///
    /// # Errors
    /// Those of the socket.
    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Reads what has arrived; 0 bytes at the end.
    ///
    /// # Errors
    /// `WouldBlock`, or those of the socket.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes some of `slices`.
    ///
    /// # Errors
    /// `WouldBlock`, or those of the socket.
    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;
}

impl Socket for TcpStream {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        TcpStream::poll_read_ready(self, cx)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        TcpStream::poll_write_ready(self, cx)
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        TcpStream::try_read(self, buffer)
    }

    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        TcpStream::try_write_vectored(self, slices)
    }
}

/// A connected socket that carries encrypted bytes.
#[derive(Debug)]
pub struct TlsStream<S: Socket> {
    socket: S,
    tls: ServerConnection,
}

/// A socket's calls that do not wait, as rustls wants to see them.
struct Calls<'a, S>(&'a S);

impl<S: Socket> Read for Calls<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl<S: Socket> Write for Calls<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<S: Socket> TlsStream<S> {
    /// A connection that begins its handshake with the first read.
    ///
    /// # Errors
    /// When rustls cannot use the configuration.
    pub fn new(socket: S, config: Arc<rustls::ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(TlsStream { socket, tls: ServerConnection::new(config)? })
    }

    /// The inner socket.
    pub fn socket(&self) -> &S {
        &self.socket
    }

    /// Reads what has been decrypted; sees the handshake through on the way.
    ///
    /// # Errors
    /// Those of the socket, and `InvalidData` for what is no TLS or not accepted.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            // Handshakes, alerts, and what was not taken before: the client may wait for them before it sends more. One that does
            // not take them still may send.
            let _ = self.poll_flush(cx)?;
            match self.tls.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
            ready!(self.socket.poll_read_ready(cx))?;
            match self.tls.read_tls(&mut Calls(&self.socket)) {
                Ok(_) => {
                    if let Err(error) = self.tls.process_new_packets() {
                        // The alert that says why, if the socket takes it.
                        let _ = self.tls.write_tls(&mut Calls(&self.socket));
                        return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
                    }
                }
                // The readiness was stale and is cleared now.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Hands the kernel all that is encrypted.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.try_flush()? {
            ready!(self.socket.poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Takes as much as rustls buffers, and hands the kernel as much of it as that takes.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            match self.try_write_vectored(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(self.poll_flush(cx))?,
                written => return Poll::Ready(written),
            }
        }
    }

    /// The same without waiting. `WouldBlock` comes only when the kernel took no more, so that [`Socket::poll_write_ready`] waits.
    ///
    /// # Errors
    /// `WouldBlock`, or those of the socket.
    pub fn try_write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let blocked = self.try_flush()?;
        let taken = self.tls.writer().write_vectored(slices)?;
        if !blocked {
            self.try_flush()?;
        }
        if taken == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    /// Whether the kernel took no more.
    fn try_flush(&mut self) -> io::Result<bool> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Calls(&self.socket)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

impl<S: Socket> Drop for TlsStream<S> {
    /// Says that this was all, so that the other side can tell an end from a cut.
    fn drop(&mut self) {
        self.tls.send_close_notify();
        let _ = self.try_flush();
    }
}
