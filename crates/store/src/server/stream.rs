//! Socket of a client: TCP, unix, TLS over TCP, or a pipe from the client's home shard.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use socket2::SockRef;
use tiermem_live::tls::TlsStream;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A connected socket.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
    Pipe(Pipe),
}

/// The guest's end of a pipe between shards.
#[derive(Debug)]
pub(super) struct Pipe {
    pipe: DuplexStream,
    /// Whom to wake when there is room again.
    waker: Waker,
    /// There was none when it was last written to.
    full: Cell<bool>,
}

impl Pipe {
    pub(super) fn new(pipe: DuplexStream) -> Self {
        Pipe { pipe, waker: Waker::noop().clone(), full: Cell::new(false) }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // A connection reads before it writes, so the waker is known by then.
        if !self.waker.will_wake(cx.waker()) {
            self.waker = cx.waker().clone();
        }
        Pin::new(&mut self.pipe).poll_read(cx, buffer)
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match Pin::new(&mut self.pipe).poll_write(&mut Context::from_waker(&self.waker), bytes) {
            Poll::Ready(result) => result,
            Poll::Pending => {
                self.full.set(true);
                Err(io::ErrorKind::WouldBlock.into())
            }
        }
    }
}

impl Stream {
    /// Reads into `buffer`. Through `poll_read` rather than `try_read`, for it knows that a short read has
    /// emptied the socket and saves the second call that would only say so.
    #[inline]
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        let result = match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
            Stream::Tls(stream) => return stream.poll_read(cx, buffer.initialize_unfilled()),
            Stream::Pipe(pipe) => pipe.poll_read(cx, &mut buffer),
        };
        result.map_ok(|()| buffer.filled().len())
    }

    /// The file descriptor, to be shown.
    pub(super) fn fd(&self) -> i32 {
        match self {
            Stream::Tcp(stream) => stream.as_raw_fd(),
            Stream::Unix(stream) => stream.as_raw_fd(),
            Stream::Tls(stream) => stream.socket().as_raw_fd(),
            Stream::Pipe(_) => -1,
        }
    }

    /// Sends a line to a client that is not served, if it can be sent
    /// at once. A TLS client has not even completed the handshake.
    pub(super) fn send_last(&self, line: &[u8]) {
        let _ = match self {
            Stream::Tcp(stream) => SockRef::from(stream).send(line),
            Stream::Unix(stream) => SockRef::from(stream).send(line),
            Stream::Tls(_) | Stream::Pipe(_) => Ok(0),
        };
    }

    /// The reader may have signalled free space while nothing could
    /// be written for another reason: the next write tries again.
    pub(super) fn forget_full(&self) {
        if let Stream::Pipe(pipe) = self {
            pipe.full.set(false);
        }
    }

    pub(super) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => stream.poll_write_ready(cx),
            Stream::Unix(stream) => stream.poll_write_ready(cx),
            Stream::Tls(stream) => stream.socket().poll_write_ready(cx),
            // The pipe wakes when it has room.
            Stream::Pipe(pipe) if pipe.full.take() => Poll::Pending,
            Stream::Pipe(_) => Poll::Ready(Ok(())),
        }
    }

    /// Ready when the kernel has all that was written: at once, but for what TLS holds encrypted.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) | Stream::Pipe(_) => Poll::Ready(Ok(())),
            Stream::Tls(stream) => stream.poll_flush(cx),
        }
    }

    #[inline]
    pub(super) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.try_write(bytes),
            Stream::Unix(stream) => stream.try_write(bytes),
            Stream::Tls(stream) => stream.try_write_vectored(&[IoSlice::new(bytes)]),
            Stream::Pipe(pipe) => pipe.try_write(bytes),
        }
    }

    pub(super) fn try_write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.try_write_vectored(slices),
            Stream::Unix(stream) => stream.try_write_vectored(slices),
            Stream::Tls(stream) => stream.try_write_vectored(slices),
            Stream::Pipe(pipe) => pipe.try_write(slices.first().map_or(&[], |slice| slice)),
        }
    }
}
