//! Connection of a replay: sends the feed's requests, reads replies, counts.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::Write as _;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tiermem_base::{Access, Op};
use tokio::io::ReadBuf;
use tokio::time::Sleep;

use super::ReplayError;
use super::control::Stream;
use super::feed::{Feed, Next};
use super::present::Present;
use super::reply::{Reply, ReplyReader};
use super::values::{KEY_BYTES, Values, key_text, value_bytes};

/// Commands are gathered up to this many bytes, or one value, before the socket gets them.
const OUT_BYTES: usize = 256 << 10;
/// Requests that wait for an earlier one of their key at most, before nothing more is taken from the feed.
const HELD_BACK_MAX: usize = 64;
/// The longest latency told apart, 10 minutes; the stall detection ends a replay long before.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// State shared by all connections of a replay.
pub struct Shared {
    /// Commands under way on each connection.
    pub pipeline: usize,
    /// Every size is multiplied by this.
    pub value_scale: f64,
    /// The bytes of values.
    pub values: Values,
    /// Requests answered so far, on all connections.
    pub answered: Cell<u64>,
    /// Commands without an answer, on all connections.
    pub under_way: Cell<usize>,
    /// In an open loop: when it began. A request's time counts from here then.
    pub open_since: Cell<Option<Instant>>,
}

impl Shared {
    /// When a request is due; nothing in a closed loop.
    fn due(&self, access: &Access) -> Option<Instant> {
        self.open_since.get().map(|start| start + Duration::from_nanos(access.time_ns))
    }
}

/// The runtime's timers are this coarse, twice over. What is due sooner is waited for without sleeping.
const TIMER_SLACK: Duration = Duration::from_millis(2);

/// Counts of one connection, or of all of them.
pub struct Tally {
    pub requests: u64,
    pub gets: u64,
    pub hits: u64,
    pub errors: u64,
    pub first_error: Option<String>,
    pub latency_ns: Histogram<u64>,
}

impl Default for Tally {
    fn default() -> Self {
        Tally { requests: 0, gets: 0, hits: 0, errors: 0, first_error: None, latency_ns: latency_histogram() }
    }
}

/// An empty histogram of latencies in nanoseconds.
pub fn latency_histogram() -> Histogram<u64> {
    let Ok(histogram) = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3) else {
        unreachable!("constant bounds and three digits are within the histogram's limits")
    };
    histogram
}

impl Tally {
    /// Adds what another connection counted.
    pub fn add(&mut self, other: Tally) {
        self.requests += other.requests;
        self.gets += other.gets;
        self.hits += other.hits;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        // Both have the same bounds, so adding does not fail.
        let _ = self.latency_ns.add(other.latency_ns);
    }
}

/// A command that waits for its reply.
enum Pending {
    /// Measured from `since`: when it was due or, in a closed loop, when it was sent.
    Get {
        access: Access,
        since: Instant,
    },
    Set {
        key: u64,
        after_miss: bool,
    },
    Del {
        key: u64,
    },
}

impl Pending {
    fn key(&self) -> u64 {
        match self {
            Pending::Get { access, .. } => access.key,
            Pending::Set { key, .. } | Pending::Del { key } => *key,
        }
    }
}

/// One connection of a replay.
pub struct Connection<S> {
    stream: S,
    number: usize,
    feed: Rc<RefCell<Feed>>,
    shared: Rc<Shared>,
    replies: ReplyReader,
    /// Commands for the socket, of which it has taken `out_sent` bytes.
    out: Vec<u8>,
    out_sent: usize,
    pending: VecDeque<Pending>,
    /// Look-ups that missed and wait for their value to be sent.
    misses: VecDeque<Access>,
    /// Requests that wait until an earlier one of their key is answered, in their order.
    held_back: VecDeque<Access>,
    /// Is not due yet.
    upcoming: Option<Access>,
    timer: Option<Pin<Box<Sleep>>>,
    present: Present,
    feed_ended: bool,
    /// What of `pending` is counted as under way.
    under_way: usize,
    tally: Tally,
}

impl<S: Stream> Connection<S> {
    /// Connection `number` of a replay, over a stream that is logged in.
    pub fn new(stream: S, number: usize, feed: Rc<RefCell<Feed>>, shared: Rc<Shared>) -> Self {
        Connection {
            stream,
            number,
            feed,
            replies: ReplyReader::new(),
            out: Vec::with_capacity(OUT_BYTES),
            out_sent: 0,
            pending: VecDeque::with_capacity(shared.pipeline),
            misses: VecDeque::with_capacity(shared.pipeline),
            held_back: VecDeque::with_capacity(HELD_BACK_MAX),
            upcoming: None,
            timer: None,
            present: Present::new(),
            feed_ended: false,
            under_way: 0,
            tally: Tally::default(),
            shared,
        }
    }

    /// Sends and receives until the trace has ended and everything is answered.
    pub async fn drive(mut self) -> Result<Tally, ReplayError> {
        poll_fn(|context| {
            let polled = self.poll(context);
            let all = &self.shared.under_way;
            all.set(all.get() - self.under_way + self.pending.len());
            self.under_way = self.pending.len();
            polled
        })
        .await?;
        Ok(self.tally)
    }

    /// Continues as far as the socket allows. It never waits for writing alone: a
    /// server that stops reading until its replies are taken would wait for ever.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ReplayError>> {
        loop {
            self.gather(context)?;
            self.poll_send(context)?;
            if self.pending.is_empty() {
                return if self.feed_ended { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            let mut space = ReadBuf::new(self.replies.space());
            match Pin::new(&mut self.stream).poll_read(context, &mut space) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(self.lost(error))),
                Poll::Pending => return Poll::Pending,
            }
            match space.filled().len() {
                0 => return Poll::Ready(Err(ReplayError::Closed { unanswered: self.pending.len() })),
                count => self.replies.filled(count),
            }
            self.take_replies()?;
        }
    }

    /// Writes commands into `out` as long as the pipeline has room.
    fn gather(&mut self, context: &mut Context<'_>) -> Result<(), ReplayError> {
        if self.pending.len() >= self.shared.pipeline {
            return Ok(());
        }
        let now = Instant::now();
        while self.has_room()
            && let Some(access) = self.misses.pop_front()
        {
            self.put_set(access, true)?;
        }
        let mut waiting = 0;
        while self.has_room()
            && let Some(access) = self.held_back.get(waiting).copied()
        {
            // Those before it still wait; one of the same key goes first.
            let behind_another = self.held_back.range(..waiting).any(|earlier| earlier.key == access.key);
            if behind_another || self.must_wait(access.key) {
                waiting += 1;
            } else {
                self.held_back.remove(waiting);
                self.put(access, now)?;
            }
        }
        let feed = self.feed.clone();
        let mut feed = feed.borrow_mut();
        while self.has_room() && self.held_back.len() < HELD_BACK_MAX {
            let next = match self.upcoming.take() {
                Some(access) => Next::Request(access),
                None => feed.next(self.number, context.waker()),
            };
            match next {
                Next::Request(access) => {
                    if let Some(due) = self.shared.due(&access)
                        && due > now
                    {
                        self.upcoming = Some(access);
                        self.wake_before(due, now, context);
                        break;
                    }
                    let behind_another = self.held_back.iter().any(|earlier| earlier.key == access.key);
                    if behind_another || self.must_wait(access.key) {
                        self.held_back.push_back(access);
                    } else {
                        self.put(access, now)?;
                    }
                }
                Next::Wait => break,
                Next::End => {
                    self.feed_ended = true;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Sees to it that this connection is asked again by the time `due`.
    fn wake_before(&mut self, due: Instant, now: Instant, context: &mut Context<'_>) {
        if due - now > TIMER_SLACK {
            let deadline = tokio::time::Instant::from_std(due - TIMER_SLACK);
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            timer.as_mut().reset(deadline);
            if timer.as_mut().poll(context).is_pending() {
                return;
            }
        }
        context.waker().wake_by_ref();
    }

    fn has_room(&self) -> bool {
        self.pending.len() < self.shared.pipeline && self.out.len() < OUT_BYTES
    }

    /// Whether what comes of `key` depends on an answer that is still on its way.
    fn must_wait(&self, key: u64) -> bool {
        !self.present.has(key)
            && (self.pending.iter().any(|pending| pending.key() == key)
                || self.misses.iter().any(|miss| miss.key == key))
    }

    fn put(&mut self, access: Access, now: Instant) -> Result<(), ReplayError> {
        match access.op {
            Op::Get | Op::Read | Op::Load | Op::Scan | Op::Unknown => {
                self.put_key(b"*2\r\n$3\r\nGET\r\n", access.key);
                let since = self.shared.due(&access).unwrap_or(now);
                self.pending.push_back(Pending::Get { access, since });
            }
            Op::Set | Op::Write | Op::Store => self.put_set(access, false)?,
            Op::Del => {
                self.put_key(b"*2\r\n$3\r\nDEL\r\n", access.key);
                self.pending.push_back(Pending::Del { key: access.key });
                self.present.remove(access.key);
            }
        }
        Ok(())
    }

    fn put_key(&mut self, head: &[u8], key: u64) {
        const { assert!(KEY_BYTES == 20, "the length stands in the text below") };
        self.out.extend_from_slice(head);
        self.out.extend_from_slice(b"$20\r\n");
        self.out.extend_from_slice(&key_text(key));
        self.out.extend_from_slice(b"\r\n");
    }

    fn put_set(&mut self, access: Access, after_miss: bool) -> Result<(), ReplayError> {
        let size_bytes = value_bytes(&access, self.shared.value_scale)?;
        self.put_key(b"*3\r\n$3\r\nSET\r\n", access.key);
        // Writing to a vector cannot fail.
        let _ = write!(self.out, "${size_bytes}\r\n");
        self.shared.values.append(&mut self.out, access.key, size_bytes);
        self.out.extend_from_slice(b"\r\n");
        self.pending.push_back(Pending::Set { key: access.key, after_miss });
        // The server answers in order, so every command sent behind this one finds the value.
        self.present.add(access.key);
        Ok(())
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Result<(), ReplayError> {
        while self.out_sent < self.out.len() {
            match Pin::new(&mut self.stream).poll_write(context, &self.out[self.out_sent..]) {
                Poll::Ready(Ok(0)) => return Err(ReplayError::Closed { unanswered: self.pending.len() }),
                Poll::Ready(Ok(count)) => self.out_sent += count,
                Poll::Ready(Err(error)) => return Err(self.lost(error)),
                Poll::Pending => return Ok(()),
            }
        }
        self.out.clear();
        // One huge value should not keep its memory for the rest of the replay.
        self.out.shrink_to(4 * OUT_BYTES);
        self.out_sent = 0;
        Ok(())
    }

    /// A peer that is gone may show in several ways; they are said in one.
    fn lost(&self, error: std::io::Error) -> ReplayError {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset => {
                ReplayError::Closed { unanswered: self.pending.len() }
            }
            _ => ReplayError::Io(error),
        }
    }

    fn take_replies(&mut self) -> Result<(), ReplayError> {
        let now = Instant::now();
        let before = self.tally.requests;
        while let Some(reply) = self.replies.next()? {
            let Some(pending) = self.pending.pop_front() else {
                return Err(ReplayError::Unexpected { command: "no command", reply: reply.describe() });
            };
            self.count(pending, reply, now)?;
        }
        self.shared.answered.set(self.shared.answered.get() + self.tally.requests - before);
        Ok(())
    }

    fn count(&mut self, pending: Pending, reply: Reply, now: Instant) -> Result<(), ReplayError> {
        let command = match &pending {
            Pending::Get { .. } => "GET",
            Pending::Set { .. } => "SET",
            Pending::Del { .. } => "DEL",
        };
        self.tally.requests += u64::from(!matches!(pending, Pending::Set { after_miss: true, .. }));
        if let Pending::Get { since, .. } = &pending {
            self.tally.gets += 1;
            let latency_ns = u64::try_from(now.duration_since(*since).as_nanos()).unwrap_or(u64::MAX);
            self.tally.latency_ns.saturating_record(latency_ns);
        }
        match (pending, reply) {
            (Pending::Get { access, .. }, Reply::Value) => {
                self.tally.hits += 1;
                self.present.add(access.key);
            }
            (Pending::Get { access, .. }, Reply::Null) => {
                self.present.remove(access.key);
                self.misses.push_back(access);
            }
            (Pending::Set { .. }, Reply::Status) | (Pending::Del { .. }, Reply::Integer) => {}
            (_, Reply::Error(text)) if text.starts_with("NOAUTH") => return Err(ReplayError::Auth(text)),
            (_, Reply::Error(text)) => {
                self.tally.errors += 1;
                self.tally.first_error.get_or_insert(text);
            }
            (_, reply) => return Err(ReplayError::Unexpected { command, reply: reply.describe() }),
        }
        Ok(())
    }
}
