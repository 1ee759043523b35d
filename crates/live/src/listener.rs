//! Bounded listener: keeps the HTTP port from using up the file descriptors that the server's own
//! clients need. Its connections are bounded in number, and closed when they have been idle for long.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// Accepts a bounded number of connections at a time; further clients wait in the kernel's queue.
pub struct Bounded {
    listener: TcpListener,
    free: Arc<Semaphore>,
    silence_max: Duration,
}

impl Bounded {
    /// At most `connections` at a time, each closed after `silence_max` without a byte in either direction.
    pub fn new(listener: TcpListener, connections: usize, silence_max: Duration) -> Self {
        Bounded { listener, free: Arc::new(Semaphore::new(connections)), silence_max }
    }
}

impl axum::serve::Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // The semaphore is never closed; without a permit the connection would merely not be counted.
        let permit = self.free.clone().acquire_owned().await.ok();
        // axum's own implementation tries again after errors such as too many open files.
        let (stream, address) = axum::serve::Listener::accept(&mut self.listener).await;
        let silence_max = self.silence_max;
        let silence = Box::pin(tokio::time::sleep(silence_max));
        (Connection { stream, silence, silence_max, _permit: permit }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that fails once it has been silent for too long.
pub struct Connection {
    stream: TcpStream,
    silence: Pin<Box<Sleep>>,
    silence_max: Duration,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Connection {
    /// Starts the clock anew after progress, and turns waiting into an error when the time is over.
    fn watch<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.silence.as_mut().reset(Instant::now() + self.silence_max);
            return result;
        }
        self.silence.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.watch(context, result)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn silent_clients_make_room_for_others() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let bounded = Bounded::new(listener, 2, Duration::from_millis(50));
            let router = Router::new().route("/", get(|| async { "here" }));
            let server = tokio::spawn(async move { axum::serve(bounded, router).await });

            let mut silent =
                [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert!(answer.ends_with("here"), "{answer}");
            for stream in &mut silent {
                // Closed by the server: the end, or a reset.
                assert!(matches!(stream.read(&mut [0]).await, Ok(0) | Err(_)));
            }
            server.abort();
        });
    }
}
