//! Connected socket, TCP or unix, before the protocol begins.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};

use tiermem_live::tls::Socket;
use tokio::net::{TcpStream, UnixStream};

/// A connected socket.
#[derive(Debug)]
pub(super) enum Plain {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket for Plain {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Plain::Tcp(stream) => stream.poll_read_ready(cx),
            Plain::Unix(stream) => stream.poll_read_ready(cx),
        }
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Plain::Tcp(stream) => stream.poll_write_ready(cx),
            Plain::Unix(stream) => stream.poll_write_ready(cx),
        }
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Plain::Tcp(stream) => stream.try_read(buffer),
            Plain::Unix(stream) => stream.try_read(buffer),
        }
    }

    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Plain::Tcp(stream) => stream.try_write_vectored(slices),
            Plain::Unix(stream) => stream.try_write_vectored(slices),
        }
    }
}

impl AsFd for Plain {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Plain::Tcp(stream) => stream.as_fd(),
            Plain::Unix(stream) => stream.as_fd(),
        }
    }
}
