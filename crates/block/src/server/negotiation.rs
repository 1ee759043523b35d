//! Negotiation of a client that has not chosen its export yet.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};

use super::connections::Core;
use super::stream::Stream;
use super::tls_config::Policy;
use crate::disks::Disks;
use crate::nbd::{Handshake, HandshakeError, Progress, Session};

/// Most bytes of one read: options are small.
const READ_BYTES: usize = 4096;

/// Why a client came to no export.
#[derive(Debug, thiserror::Error)]
pub(super) enum NegotiationEnd {
    #[error("it said goodbye")]
    Abort,
    #[error("it went away")]
    Closed,
    #[error("it sent more than {0} options")]
    Options(u32),
    #[error("it took too long")]
    Late,
    #[error("the server is shutting down")]
    Stopping,
    #[error(transparent)]
    Nonsense(#[from] HandshakeError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Sees the negotiation through; the session, and bytes behind it that are requests.
pub(super) async fn negotiate<D: Disks>(
    stream: &mut Stream,
    core: &RefCell<Core<D>>,
    policy: &Policy,
    options_max: u32,
) -> Result<(Session, Vec<u8>), NegotiationEnd> {
    let mut out = Vec::new();
    let mut handshake = Handshake::new(policy.tls, &mut out);
    let (mut bytes, mut options) = (Vec::new(), 0);
    loop {
        let mut input = &bytes[..];
        let progress = handshake.receive(&mut input, core.borrow().disks.exports(), &mut out);
        let used = bytes.len() - input.len();
        bytes.drain(..used);
        send(stream, &mut out).await?;
        match progress? {
            Progress::Transmit(session) => return Ok((session, bytes)),
            Progress::Abort => return Err(NegotiationEnd::Abort),
            Progress::StartTls => {
                handshake.tls_started(&bytes)?;
                let config = policy.config.clone().ok_or(HandshakeError::TlsRequired)?;
                stream.start_tls(config)?;
            }
            Progress::Answered => {
                options += 1;
                if options > options_max {
                    return Err(NegotiationEnd::Options(options_max));
                }
            }
            Progress::Incomplete => {
                // The machine has parsed the option's reply.
                bytes.resize(READ_BYTES, 0);
                let read = poll_fn(|cx| stream.poll_read(cx, &mut bytes)).await?;
                bytes.truncate(read);
                if read == 0 {
                    return Err(NegotiationEnd::Closed);
                }
            }
        }
    }
}

async fn send(stream: &mut Stream, out: &mut Vec<u8>) -> io::Result<()> {
    let mut sent = 0;
    while sent < out.len() {
        sent += poll_fn(|cx| stream.poll_write(cx, &[IoSlice::new(&out[sent..])])).await?;
    }
    out.clear();
    poll_fn(|cx| stream.poll_flush(cx)).await
}
