//! Bounded listener: keeps the HTTP port from using up the file descriptors that the server's own clients need, and a few slow
//! clients from keeping it from all others.
//!
//! A connection *waits* until a whole request of its has come, and again from the end of each answer. A request must be whole soon
//! after its first byte. Where there are as many connections as there may be, a new one takes the place of that which has waited
//! longest; where none waits, of that whose client has not taken its answer for longest.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

/// What connections may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at a time.
    pub connections_max: usize,
    /// How long one may be without a byte in either direction.
    pub silence_max: Duration,
    /// How long a request may take from its first byte to its last one.
    pub request_max: Duration,
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It waits, and nothing of a request has come.
    Idle,
    /// It waits, and a part of a request has come; the first byte then.
    Receiving(Instant),
    /// A whole request has come, and its answer is not complete.
    Answering,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// When it was accepted, or its last answer was complete.
    waits_since: Instant,
    /// Since when its client takes none of its answer.
    blocked_since: Option<Instant>,
    /// Its place was given to another one.
    is_evicted: bool,
    waker: Option<Waker>,
}

/// A connection, as its requests see it.
#[derive(Clone, Debug)]
pub struct Wait(Arc<Mutex<State>>);

impl Wait {
    fn new() -> Self {
        let (phase, waits_since) = (Phase::Idle, Instant::now());
        let state = State { phase, waits_since, blocked_since: None, is_evicted: false, waker: None };
        Wait(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A whole request has come; it waits again when what is returned is dropped.
    pub fn end(&self) -> Answer {
        self.lock().phase = Phase::Answering;
        Answer(self.clone())
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub struct Answer(Wait);

impl Drop for Answer {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        (state.phase, state.waits_since) = (Phase::Idle, Instant::now());
    }
}

impl Connected<IncomingStream<'_, Bounded>> for Wait {
    fn connect_info(stream: IncomingStream<'_, Bounded>) -> Self {
        stream.io().wait.clone()
    }
}

/// Connections that have a place.
#[derive(Debug, Default)]
struct Places {
    taken: Mutex<Vec<Wait>>,
    freed: Notify,
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, Vec<Wait>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place, if there is one or one that waits can give its own.
    fn take(&self, connections_max: usize) -> Option<Wait> {
        let mut taken = self.lock();
        if taken.len() >= connections_max {
            let may_go = taken.iter().enumerate().filter_map(|(at, wait)| {
                let state = wait.lock();
                let answers = state.phase == Phase::Answering;
                // Those that wait go before those whose clients do not read.
                let since = if answers { state.blocked_since? } else { state.waits_since };
                Some((answers, since, at))
            });
            let (_, _, longest) = may_go.min()?;
            let evicted = taken.remove(longest);
            let mut state = evicted.lock();
            state.is_evicted = true;
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
        }
        let wait = Wait::new();
        taken.push(wait.clone());
        Some(wait)
    }

    fn free(&self, wait: &Wait) {
        self.lock().retain(|taken| !Arc::ptr_eq(&taken.0, &wait.0));
        self.freed.notify_one();
    }
}

/// Accepts a bounded number of connections at a time; where all of them are being answered and read, further clients wait in the kernel's queue.
pub struct Bounded {
    listener: TcpListener,
    places: Arc<Places>,
    bounds: Bounds,
}

impl Bounded {
    /// Accepts from `listener`.
    pub fn new(listener: TcpListener, bounds: Bounds) -> Self {
        Bounded { listener, places: Arc::default(), bounds }
    }
}

impl axum::serve::Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // axum's own implementation tries again after errors such as too many open files.
        let (stream, address) = axum::serve::Listener::accept(&mut self.listener).await;
        let wait = loop {
            match self.places.take(self.bounds.connections_max) {
                Some(wait) => break wait,
                None => self.places.freed.notified().await,
            }
        };
        let (places, bounds) = (Arc::clone(&self.places), self.bounds);
        let (progress, timer) = (Instant::now(), Box::pin(tokio::time::sleep(bounds.silence_max)));
        (Connection { stream, wait, places, bounds, progress, timer }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that fails when it has been silent or has waited for too long, or another one has taken its place.
pub struct Connection {
    stream: TcpStream,
    wait: Wait,
    places: Arc<Places>,
    bounds: Bounds,
    /// When the last byte went, in either direction.
    progress: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Connection {
    /// Notes progress, and turns waiting into an error when the time is over.
    fn watch<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.progress = Instant::now();
            return result;
        }
        let mut deadline = self.progress + self.bounds.silence_max;
        {
            let mut state = self.wait.lock();
            if state.is_evicted {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            if let Phase::Receiving(begun) = state.phase {
                deadline = deadline.min(begun + self.bounds.request_max);
            }
            state.waker.get_or_insert_with(|| context.waker().clone()).clone_from(context.waker());
        }
        if self.timer.deadline() != deadline {
            self.timer.as_mut().reset(deadline);
        }
        self.timer.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Whether the present request takes too long, however often a byte of it comes.
    fn is_late(&self) -> bool {
        let state = self.wait.lock();
        matches!(state.phase, Phase::Receiving(begun) if begun.elapsed() >= self.bounds.request_max)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.places.free(&self.wait);
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            if self.is_late() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            let mut state = self.wait.lock();
            if state.phase == Phase::Idle {
                state.phase = Phase::Receiving(Instant::now());
            }
        }
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
        let now_blocked = result.is_pending().then(Instant::now);
        {
            let blocked_since = &mut self.wait.lock().blocked_since;
            *blocked_since = now_blocked.map(|now| blocked_since.unwrap_or(now));
        }
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
    use axum::routing::{get, post};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::oneshot;

    use super::*;
    use crate::requests::bounded;

    const BOUNDS: Bounds = Bounds {
        connections_max: 3,
        silence_max: Duration::from_secs(30),
        request_max: Duration::from_secs(5),
    };
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

    /// Serves at the address that it calls `client` with.
    fn serving<F: Future<Output = ()>>(bounds: Bounds, client: impl FnOnce(SocketAddr) -> F) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let router = Router::new()
                .route("/", get(|| async { "here" }))
                .route("/long", get(|| async { "long".repeat(4 << 20) }))
                .route("/body", post(|body: String| async move { body }));
            let router = bounded(router);
            let server = tokio::spawn(async move {
                let service = router.into_make_service_with_connect_info::<Wait>();
                axum::serve(Bounded::new(listener, bounds), service).await
            });
            client(address).await;
            server.abort();
        });
    }

    async fn connect(address: SocketAddr) -> TcpStream {
        TcpStream::connect(address).await.unwrap()
    }

    async fn answer(stream: &mut TcpStream, request: &[u8]) -> String {
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// Whether the server has closed it: the end, or a reset.
    async fn is_closed(stream: &mut TcpStream) -> bool {
        matches!(stream.read(&mut [0]).await, Ok(0) | Err(_))
    }

    #[test]
    fn silent_clients_are_closed() {
        serving(Bounds { silence_max: Duration::from_millis(50), ..BOUNDS }, async |address| {
            let mut silent = [connect(address).await, connect(address).await];
            for stream in &mut silent {
                assert!(is_closed(stream).await);
            }
        });
    }

    /// However many come: each of them takes the place of one that has waited for longer.
    #[test]
    fn those_that_wait_longest_make_room() {
        serving(BOUNDS, async |address| {
            let mut slow = Vec::new();
            for number in 0..20 {
                let mut stream = connect(address).await;
                stream.write_all(b"GET / HTTP/1.1\r\nX-Slow: ").await.unwrap();
                slow.push(stream);
                if number % 5 == 4 {
                    let mut client = connect(address).await;
                    assert!(answer(&mut client, REQUEST).await.ends_with("here"));
                }
            }
            for stream in &mut slow[..17] {
                assert!(is_closed(stream).await);
            }
            // The last ones are there still, and are answered.
            assert!(
                answer(&mut slow[19], b"x\r\nHost: a\r\nConnection: close\r\n\r\n").await.ends_with("here")
            );
        });
    }

    /// A connection whose last answer is complete has waited only since then.
    #[test]
    fn a_connection_that_is_used_stays() {
        serving(BOUNDS, async |address| {
            let mut used = connect(address).await;
            let mut others = Vec::new();
            for _ in 0..10 {
                used.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
                let mut text = Vec::new();
                while !text.ends_with(b"here") {
                    let mut bytes = [0; 512];
                    let count = used.read(&mut bytes).await.unwrap();
                    assert!(count > 0, "the server has closed it");
                    text.extend_from_slice(&bytes[..count]);
                }
                others.push(connect(address).await);
                assert!(answer(&mut connect(address).await, REQUEST).await.ends_with("here"));
            }
        });
    }

    #[test]
    fn those_that_do_not_read_make_room_as_well() {
        serving(BOUNDS, async |address| {
            let mut deaf = Vec::new();
            for _ in 0..6 {
                let mut stream = connect(address).await;
                stream.write_all(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
                // It has begun to answer.
                stream.read_exact(&mut [0; 16]).await.unwrap();
                deaf.push(stream);
            }
            assert!(answer(&mut connect(address).await, REQUEST).await.ends_with("here"));
        });
    }

    /// Bytes come again and again, and the request is never whole: its head, or its body.
    #[test]
    fn a_trickle_ends_when_its_time_is_over() {
        for start in
            ["GET / HTTP/1.1\r\nX: ", "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"]
        {
            let request_max = Duration::from_millis(300);
            serving(Bounds { request_max, ..BOUNDS }, async |address| {
                let (reader, mut writer) = connect(address).await.into_split();
                writer.write_all(start.as_bytes()).await.unwrap();
                let (closed, mut is_closed) = oneshot::channel();
                let reading = tokio::spawn(async move {
                    let mut reader = reader;
                    let mut bytes = Vec::new();
                    let _ = reader.read_to_end(&mut bytes).await;
                    let _ = closed.send(());
                });
                while is_closed.try_recv().is_err() {
                    let _ = writer.write_all(b"x").await;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                reading.await.unwrap();
            });
        }
    }

    /// Its client sends all of it before it reads, and must find the answer then: the connection is not reset.
    #[test]
    fn a_body_that_is_too_long_is_taken_before_it_is_refused() {
        serving(BOUNDS, async |address| {
            let mut client = connect(address).await;
            let body = vec![b'x'; 12 << 20];
            let head = format!("POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
            client.write_all(head.as_bytes()).await.unwrap();
            for part in body.chunks(1 << 20) {
                client.write_all(part).await.unwrap();
                // Time for an answer that would come too early, and for the reset behind it.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let mut answer = vec![0; 12];
            client.read_exact(&mut answer).await.unwrap();
            assert_eq!(answer, b"HTTP/1.1 413");
        });
    }

    #[test]
    fn a_body_comes_whole() {
        serving(BOUNDS, async |address| {
            let mut client = connect(address).await;
            let request =
                b"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
            assert!(answer(&mut client, request).await.ends_with("hello"));
        });
    }
}
