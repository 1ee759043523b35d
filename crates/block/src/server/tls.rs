//! Certificates, and a socket whose bytes are encrypted.
//!
//! rustls is a state machine without I/O; it is driven here by the same calls as a plain socket, so that a connection does not know
//! whether its bytes are encrypted. The handshake runs within the first reads.

use std::io::{self, IoSlice, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoClientAuth, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConnection};

use super::socket::Plain;
use crate::nbd::Tls;

/// What TLS is spoken with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// Whether clients must ask for it, or may.
    pub required: bool,
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

fn trouble(path: &Path, problem: impl ToString) -> TlsError {
    TlsError { path: path.to_owned(), problem: problem.to_string() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|problem| trouble(path, problem))?;
    if read.is_empty() { Err(trouble(path, "there is no certificate in it")) } else { Ok(read) }
}

/// What connections are told about TLS.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) tls: Tls,
    pub(super) config: Option<Arc<rustls::ServerConfig>>,
}

impl Policy {
    /// Reads the files.
    pub(super) fn load(config: Option<&TlsConfig>) -> Result<Self, TlsError> {
        let Some(files) = config else { return Ok(Policy { tls: Tls::Off, config: None }) };
        let chain = certificates(&files.cert)?;
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|problem| trouble(&files.key, problem))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = match &files.client_ca {
            None => Arc::new(NoClientAuth),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|problem| trouble(path, problem))?;
                }
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                    .build()
                    .map_err(|problem| trouble(path, problem))?
            }
        };
        let loaded = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|problem| trouble(&files.cert, problem))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|problem| {
                trouble(&files.key, format!("{problem}: is it the key of {}?", files.cert.display()))
            })?;
        let tls = if files.required { Tls::Required } else { Tls::Offered };
        Ok(Policy { tls, config: Some(Arc::new(loaded)) })
    }
}

/// A connected socket whose bytes are encrypted.
#[derive(Debug)]
pub(super) struct TlsStream {
    socket: Plain,
    tls: ServerConnection,
}

/// A socket's calls that do not wait, as rustls wants to see them.
struct Calls<'a>(&'a Plain);

impl Read for Calls<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Calls<'_> {
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

impl TlsStream {
    /// What lies below.
    pub(super) fn socket(&self) -> &Plain {
        &self.socket
    }

    /// A connection whose handshake begins with the first read.
    pub(super) fn new(socket: Plain, config: Arc<rustls::ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(TlsStream { socket, tls: ServerConnection::new(config)? })
    }

    /// Reads what has been decrypted; sees the handshake through on the way.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
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
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            ready!(self.socket.poll_write_ready(cx))?;
            match self.tls.write_tls(&mut Calls(&self.socket)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Poll::Ready(Err(error)),
                _ => {}
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes as much as rustls buffers, and hands the kernel as much of it as that takes.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            let taken = self.tls.writer().write_vectored(slices)?;
            if let Poll::Ready(flushed) = self.poll_flush(cx) {
                flushed?;
            } else if taken == 0 {
                return Poll::Pending;
            }
            if taken > 0 {
                return Poll::Ready(Ok(taken));
            }
        }
    }
}

impl Drop for TlsStream {
    /// Says that this was all, so that the other side can tell an end from a cut.
    fn drop(&mut self) {
        self.tls.send_close_notify();
        let _ = self.tls.write_tls(&mut Calls(&self.socket));
    }
}
