//! TLS configuration of connections: off, offered or required, and the certificate.

use std::sync::Arc;

use tiermem_live::tls::{TlsError, TlsFiles};

use crate::nbd::Tls;

/// TLS of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// Whether clients must ask for it, or may.
    pub required: bool,
    /// Certificate, key, and the CA that must have signed clients' certificates.
    pub files: TlsFiles,
}

/// TLS setting of connections.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) tls: Tls,
    pub(super) config: Option<Arc<rustls::ServerConfig>>,
}

impl Policy {
    /// Reads the files.
    pub(super) fn load(config: Option<&TlsConfig>) -> Result<Self, TlsError> {
        let Some(TlsConfig { required, files }) = config else {
            return Ok(Policy { tls: Tls::Off, config: None });
        };
        let tls = if *required { Tls::Required } else { Tls::Offered };
        Ok(Policy { tls, config: Some(files.load()?) })
    }
}
