//! Stream of a client: TCP or unix, plain or with TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tiermem_live::tls::{Socket, TlsStream};
use tokio::io::{AsyncRead, ReadBuf};

use super::socket::Plain;

/// A socket, with or without TLS.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(Plain),
    Tls(Box<TlsStream<Plain>>),
    /// One that failed on its way from the one to the other.
    Gone,
}

fn gone<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::ErrorKind::NotConnected.into()))
}

impl Stream {
    /// Goes over to TLS.
    pub(super) fn start_tls(&mut self, config: Arc<rustls::ServerConfig>) -> io::Result<()> {
        match std::mem::replace(self, Stream::Gone) {
            Stream::Plain(socket) => {
                let stream = TlsStream::new(socket, config).map_err(io::Error::other)?;
                *self = Stream::Tls(Box::new(stream));
                Ok(())
            }
            other => {
                *self = other;
                Err(io::Error::other("TLS within TLS"))
            }
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self, Stream::Tls(_))
    }

    /// Whether the other side has gone for good, found without reading. One that has merely said all that it has to say has not.
    pub(super) fn is_hung_up(&self) -> bool {
        let socket = match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => stream.socket(),
            Stream::Gone => return true,
        };
        // No event is requested: errors and hang-ups are always reported.
        let mut asked = [PollFd::new(socket, PollFlags::empty())];
        let found = poll(&mut asked, Some(&Timespec::default()));
        found.is_ok_and(|count| count > 0)
    }

    /// Reads into `buffer`; nothing at the end. A plain socket is read by tokio's own call, which knows that a short read has
    /// emptied it and saves the second call that would only say so.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        let read = match self {
            Stream::Plain(Plain::Tcp(stream)) => Pin::new(stream).poll_read(cx, &mut buffer),
            Stream::Plain(Plain::Unix(stream)) => Pin::new(stream).poll_read(cx, &mut buffer),
            Stream::Tls(stream) => return stream.poll_read(cx, buffer.initialize_unfilled()),
            Stream::Gone => return gone(),
        };
        read.map_ok(|()| buffer.filled().len())
    }

    /// Writes some of `slices`.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(socket) => loop {
                ready!(socket.poll_write_ready(cx))?;
                match socket.try_write_vectored(slices) {
                    // The readiness was stale and is cleared now.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    written => return Poll::Ready(written),
                }
            },
            Stream::Tls(stream) => stream.poll_write(cx, slices),
            Stream::Gone => gone(),
        }
    }

    /// Ready when the kernel has all that was written: at once, but for what TLS holds encrypted.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tls(stream) => stream.poll_flush(cx),
            Stream::Plain(_) | Stream::Gone => Poll::Ready(Ok(())),
        }
    }
}
