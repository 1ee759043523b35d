//! TLS beside plain TCP: the certificate, and a socket whose bytes are encrypted.
//!
//! rustls is a state machine without I/O; it is driven here with the calls of [`super::stream::Stream`], so that a
//! connection does not know whether its bytes are encrypted. Handshakes run on the shard's thread: a signature with an
//! ECDSA key takes some tens of microseconds, with an RSA key about a millisecond.

use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoClientAuth, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConnection};
use tokio::net::TcpStream;

/// Where TLS is listened on, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The address; port 0 lets the system choose.
    pub listen: SocketAddr,
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

impl TlsConfig {
    /// Reads the files.
    pub(super) fn load(&self) -> Result<Arc<rustls::ServerConfig>, TlsError> {
        fn error(path: &Path, problem: impl ToString) -> TlsError {
            TlsError { path: path.to_owned(), problem: problem.to_string() }
        }
        let certificates = |path: &Path| {
            let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let read = read.map_err(|problem| error(path, problem))?;
            if read.is_empty() { Err(error(path, "there is no certificate in it")) } else { Ok(read) }
        };
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
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
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

/// A connected socket whose bytes are encrypted.
#[derive(Debug)]
pub(super) struct TlsStream {
    tcp: TcpStream,
    tls: ServerConnection,
}

/// A socket's calls that do not wait, as rustls wants to see them.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRawFd for TlsStream {
    fn as_raw_fd(&self) -> RawFd {
        self.tcp.as_raw_fd()
    }
}

impl TlsStream {
    /// A connection whose handshake begins with the first read.
    pub(super) fn new(tcp: TcpStream, config: Arc<rustls::ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(TlsStream { tcp, tls: ServerConnection::new(config)? })
    }

    /// Reads what has been decrypted; sees the handshake through on the way.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            // Alerts, handshakes and what try_write left: the client may wait for them before it sends more.
            // One that does not take them still may send.
            let _ = self.poll_flush(cx)?;
            match self.tls.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
            ready!(self.tcp.poll_read_ready(cx))?;
            match self.tls.read_tls(&mut Socket(&self.tcp)) {
                Ok(_) => {
                    if let Err(error) = self.tls.process_new_packets() {
                        // The alert that says why, if the socket takes it.
                        let _ = self.tls.write_tls(&mut Socket(&self.tcp));
                        return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
                    }
                }
                // The readiness was stale and is cleared now.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    pub(super) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tcp.poll_write_ready(cx)
    }

    /// Hands the kernel all that is encrypted.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            ready!(self.tcp.poll_write_ready(cx))?;
            match self.tls.write_tls(&mut Socket(&self.tcp)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Poll::Ready(Err(error)),
                _ => {}
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes as much as rustls buffers, and hands the kernel as much of it as that takes. `WouldBlock` comes only when
    /// the kernel took no more, so that [`Self::poll_write_ready`] waits.
    pub(super) fn try_write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
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
            match self.tls.write_tls(&mut Socket(&self.tcp)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

impl Drop for TlsStream {
    /// Says that this was all, so that the other side can tell an end from a cut.
    fn drop(&mut self) {
        self.tls.send_close_notify();
        let _ = self.try_flush();
    }
}
