//! Connection of a client in transmission: reads requests, submits them as jobs, sends replies.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tiermem_tier::block::AlignedBuffer;

use super::ServerConfig;
use super::connections::{Answered, Core, EXTENTS_MAX, SCRATCH_BYTES, memory_bytes};
use super::reply_queue::ReplyQueue;
use super::stats::{ConnectionStats, ExportStats, Traffic};
use super::stream::Stream;
use crate::disks::{Answer, Disks, Piece, UNIT_BYTES};
use crate::nbd::{
    Command, Context as MetaContext, Errno, Extent, Extents, Fault, Incoming, Replies, Request, RequestError,
    Requests, Session,
};

/// Rounds after which other connections have their turn.
const ROUNDS_MAX: usize = 16;
/// From this length on, the missing part of a write's payload is read directly to
/// its place. A shorter part is read together with the bytes behind it, and copied.
const DIRECT_BYTES: u32 = 16 * 1024;
/// Bytes of one read after a long write: mostly the next one's header, so that little of its payload is copied.
const SHORT_READ_BYTES: usize = 4096;

/// A buffer of a reply may be longer than its bytes by this part of them,
const SPARE_PART: usize = 8;
/// and by the units at both ends.
const SPARE_BYTES: usize = 2 * UNIT_BYTES as usize;

/// Why a connection has ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    #[error("it said goodbye")]
    Disconnected,
    #[error("it went away")]
    Closed,
    #[error("it disconnected during a request")]
    Cut,
    #[error("the server is shutting down")]
    Stopping,
    #[error("it neither sent nor took anything, and others need the memory that it held")]
    Stalled,
    #[error(transparent)]
    Nonsense(#[from] RequestError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A write with a payload that is still arriving.
#[derive(Debug)]
struct Filling {
    request: Request,
    buffer: AlignedBuffer,
    /// Where the next byte belongs.
    at: usize,
}

/// Requests that were read and not looked at, as too much is under way.
#[derive(Debug, Default)]
struct Pending {
    bytes: Vec<u8>,
    from: usize,
}

/// A connection's place in the table of connections; leaves it when dropped, on every path.
struct ConnectionGuard<D: Disks> {
    core: Rc<RefCell<Core<D>>>,
    id: u64,
}

impl<D: Disks> Drop for ConnectionGuard<D> {
    fn drop(&mut self) {
        self.core.borrow_mut().leave(self.id);
    }
}

/// A piece in a buffer that is not much longer than the piece: what lies around it would take memory until the client has read the reply.
fn fitting(piece: Piece, disks: &mut impl Disks) -> Piece {
    if piece.buffer.len() <= piece.bytes + piece.bytes / SPARE_PART + SPARE_BYTES {
        return piece;
    }
    let mut buffer = disks.lend(piece.bytes);
    buffer[..piece.bytes].copy_from_slice(&piece.buffer[piece.from..piece.from + piece.bytes]);
    disks.give_back(piece.buffer);
    Piece { buffer, from: 0, bytes: piece.bytes }
}

/// One client's transmission.
pub(super) struct Connection<D: Disks> {
    place: ConnectionGuard<D>,
    stream: Stream,
    session: Session,
    requests: Requests,
    replies: Replies,
    pending: Pending,
    /// A request that was read and waits for memory.
    next: Option<Request>,
    filling: Option<Filling>,
    reply_queue: ReplyQueue,
    answered: Vec<Answered>,
    /// Why no more requests are taken; it ends when the last reply is sent.
    ending: Option<End>,
    /// What the next call reads at most.
    read_bytes: usize,
    jobs_max: usize,
    bytes_max: u64,
    own: Arc<ConnectionStats>,
    export: Arc<ExportStats>,
}

impl<D: Disks> Connection<D> {
    /// A session of the connection `id`, `bytes` of which were read already.
    pub(super) fn new(
        core: Rc<RefCell<Core<D>>>,
        id: u64,
        stream: Stream,
        (session, bytes): (Session, Vec<u8>),
        config: &ServerConfig,
        (own, export): (Arc<ConnectionStats>, Arc<ExportStats>),
    ) -> Self {
        Connection {
            place: ConnectionGuard { core, id },
            stream,
            session,
            requests: Requests::new(session.rules),
            replies: Replies::new(session.rules.structured),
            pending: Pending { bytes, from: 0 },
            next: None,
            filling: None,
            reply_queue: ReplyQueue::default(),
            answered: Vec::new(),
            ending: None,
            read_bytes: SCRATCH_BYTES,
            jobs_max: config.jobs_max.max(1),
            bytes_max: config.bytes_max.max(1),
            own,
            export,
        }
    }

    /// Does all that the socket and the disks allow; ready when the client has gone or is to go.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        {
            let mut core = self.place.core.borrow_mut();
            core.await_mail(self.place.id, cx.waker());
            if core.is_stopping() {
                self.ending.get_or_insert(End::Stopping);
            }
            if core.is_shut_out(self.place.id) {
                return Poll::Ready(End::Stalled);
            }
            if core.set_deaf(self.place.id, false) && self.stream.is_hung_up() {
                return Poll::Ready(End::Closed);
            }
        }
        let polled = self.serve(cx);
        let mut core = self.place.core.borrow_mut();
        self.tell_held(&mut core);
        core.disks.rest();
        polled
    }

    /// Reports the memory in use for this client outside of jobs.
    fn tell_held(&self, core: &mut Core<D>) {
        let filling = self.filling.as_ref().map_or(0, |filling| filling.buffer.len());
        core.hold(self.place.id, (filling + self.reply_queue.memory_bytes()) as u64);
    }

    fn serve(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        for _ in 0..ROUNDS_MAX {
            self.answer_mail();
            let sent = match self.send(cx) {
                Poll::Ready(Err(error)) => return Poll::Ready(error.into()),
                sent => sent,
            };
            if self.ending.is_some() {
                if sent.is_ready() && self.place.core.borrow_mut().held(self.place.id).0 == 0 {
                    return Poll::Ready(self.ending.take().unwrap_or(End::Closed));
                }
                // Mail, or the socket, wakes it.
                return Poll::Pending;
            }
            if let Err(error) = ready!(self.receive(cx)) {
                return Poll::Ready(error.into());
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn count(&self, count: impl Fn(&Traffic)) {
        count(&self.own.traffic);
        count(&self.export.traffic);
    }

    /// Puts replies to what is done into the reply queue.
    fn answer_mail(&mut self) {
        let mut answered = std::mem::take(&mut self.answered);
        self.place.core.borrow_mut().take_mail(self.place.id, &mut answered);
        if !answered.is_empty() {
            // One reading of the clock for all that came together.
            let now = Instant::now();
            answered.drain(..).for_each(|answered| self.answer(answered, now));
        }
        self.answered = answered;
    }

    fn answer(&mut self, Answered { request, since, result }: Answered, now: Instant) {
        let cookie = request.cookie;
        let failure = match result {
            Err((errno, reason)) => (errno, reason),
            Ok(answer) => match self.give(&request, answer) {
                Ok(()) => {
                    self.export.times.answered(request.command, now.saturating_duration_since(since));
                    return self.count(|traffic| traffic.done(request.command, request.len_bytes.into()));
                }
                Err(reason) => {
                    tracing::error!(?request, reason, "a disk answers something else than was asked");
                    (Errno::Io, reason.to_owned())
                }
            },
        };
        self.count(Traffic::error);
        self.reply_queue.head(|out| self.replies.failed(cookie, failure.0, &failure.1, out));
    }

    /// Puts what a disk has answered into the reply queue, if it is what `request` wants.
    fn give(&mut self, request: &Request, answer: Answer) -> Result<(), &'static str> {
        match (request.command, answer) {
            (Command::Read, Answer::Data(pieces)) => {
                let fits = pieces.iter().all(|piece| {
                    piece.from.checked_add(piece.bytes).is_some_and(|end| end <= piece.buffer.len())
                });
                let bytes: usize = pieces.iter().map(|piece| piece.bytes).sum();
                if !fits || bytes != request.len_bytes as usize {
                    return Err("the data are not those of the request");
                }
                // One chunk for all pieces: it is allowed with any flags of the client, and costs one header.
                self.reply_queue.head(|out| {
                    self.replies.read_whole(request.cookie, request.offset, request.len_bytes, out);
                });
                let mut core = self.place.core.borrow_mut();
                for piece in pieces {
                    self.reply_queue.payload(fitting(piece, &mut core.disks));
                }
                Ok(())
            }
            (Command::BlockStatus, Answer::Parts { allocation, cache }) => {
                self.describe(request, &allocation, &cache);
                Ok(())
            }
            (Command::Read | Command::BlockStatus, _) => Err("there are no data"),
            (_, Answer::Done) => {
                self.reply_queue.head(|out| self.replies.done(request.cookie, out));
                Ok(())
            }
            _ => Err("there are data"),
        }
    }

    fn describe(&mut self, request: &Request, allocation: &[Extent], cache: &[Extent]) {
        let mut left = self.session.contexts.iter().count();
        for context in self.session.contexts.iter() {
            left -= 1;
            let parts = match context {
                MetaContext::Allocation => allocation,
                MetaContext::Cache => cache,
            };
            let mut extents = Extents::new(request, EXTENTS_MAX);
            let mut parts = parts.iter();
            while parts.next().is_some_and(|part| extents.push(part.len_bytes.into(), part.flags)) {}
            if extents.as_slice().is_empty() {
                // A reply must say something: nothing special.
                extents.push(request.len_bytes.into(), 0);
            }
            self.reply_queue.head(|out| {
                Replies::status(request.cookie, context.id(), extents.as_slice(), left == 0, out);
            });
        }
    }

    /// Sends what the socket takes; ready when that was all.
    fn send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.reply_queue.is_empty() {
            let sent = ready!(self.reply_queue.with_slices(|slices| self.stream.poll_write(cx, slices)))?;
            let mut core = self.place.core.borrow_mut();
            core.moved(self.place.id);
            self.reply_queue.sent(sent, |buffer| core.disks.give_back(buffer));
        }
        self.stream.poll_flush(cx)
    }

    /// Whether too much is in flight, or too many replies were not read, to look at a further request.
    fn is_full(&self, core: &mut Core<D>) -> bool {
        let (jobs, bytes) = core.held(self.place.id);
        if jobs >= self.jobs_max || bytes + self.reply_queue.memory_bytes() as u64 >= self.bytes_max {
            return true;
        }
        self.tell_held(core);
        !core.may_hold(self.place.id, 0)
    }

    /// Reads what has arrived, once; pending when nothing has or too much is in flight.
    fn receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let direct = self.requests.payload_left() >= DIRECT_BYTES && self.pending.bytes.is_empty();
        if let (true, Some(filling)) = (direct, &mut self.filling) {
            let end = filling.at + self.requests.payload_left() as usize;
            let read = ready!(self.stream.poll_read(cx, &mut filling.buffer[filling.at..end]))?;
            if read == 0 {
                self.ending = Some(End::Cut);
                return Poll::Ready(Ok(()));
            }
            filling.at += read;
            self.place.core.borrow_mut().moved(self.place.id);
            self.requests.payload_taken(read);
            if filling.at == end {
                self.parse(&mut &[][..]);
            }
            return Poll::Ready(Ok(()));
        }
        if self.filling.is_none() && !self.may_go_on() {
            return Poll::Pending;
        }
        if !self.pending.bytes.is_empty() || self.next.is_some() {
            let Pending { bytes, from } = std::mem::take(&mut self.pending);
            let mut input = &bytes[from..];
            self.parse(&mut input);
            if !input.is_empty() && self.ending.is_none() {
                let from = bytes.len() - input.len();
                self.pending = Pending { bytes, from };
            }
            return Poll::Ready(Ok(()));
        }
        let mut scratch = self.place.core.borrow_mut().lend_scratch();
        let read = self.stream.poll_read(cx, &mut scratch[..self.read_bytes]);
        if let Poll::Ready(Ok(read)) = read {
            self.received(&scratch[..read]);
        }
        self.place.core.borrow_mut().return_scratch(scratch);
        read.map_ok(|_| ())
    }

    /// Whether another request may be looked at; otherwise what it waits for wakes it.
    fn may_go_on(&mut self) -> bool {
        let core = Rc::clone(&self.place.core);
        let mut core = core.borrow_mut();
        let id = self.place.id;
        let may = if core.is_saturated(self.session.export) {
            core.await_disk(id);
            false
        } else {
            !self.is_full(&mut core) && self.next.is_none_or(|next| self.may_take(&mut core, &next))
        };
        if !may {
            core.set_deaf(id, true);
        }
        may
    }

    /// Whether there is memory for what a request brings or asks for.
    fn may_take(&self, core: &mut Core<D>, request: &Request) -> bool {
        self.tell_held(core);
        core.may_hold(self.place.id, memory_bytes(request))
    }

    /// Takes in what was read.
    fn received(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            // What it has asked for it may still be waiting for.
            self.ending = Some(if self.filling.is_some() { End::Cut } else { End::Closed });
            return;
        }
        self.read_bytes = SCRATCH_BYTES;
        let mut input = bytes;
        self.parse(&mut input);
        if !input.is_empty() && self.ending.is_none() {
            self.pending = Pending { bytes: input.to_vec(), from: 0 };
        }
    }

    /// Hands a request on, and counts how long that takes.
    fn dispatch(&self, core: &mut Core<D>, request: Request, buffer: AlignedBuffer) {
        let since = core.submit(self.place.id, request, buffer, self.session.contexts);
        self.export.times.processed(request.command, since.elapsed());
    }

    fn refuse(&mut self, cookie: u64, fault: Fault) {
        tracing::debug!(connection = self.own.id, %fault, "a request is refused");
        self.count(Traffic::error);
        self.reply_queue.head(|out| self.replies.failed(cookie, fault.error, fault.reason, out));
    }

    /// Hands on the requests in `input` until they end or enough is under way, and takes what is done of them.
    fn parse(&mut self, input: &mut &[u8]) {
        let core = Rc::clone(&self.place.core);
        let mut core = core.borrow_mut();
        let export = self.session.export;
        // It may have grown or shrunk.
        if let Some(export) = core.disks.exports().get(export) {
            self.requests.resize(export.size_bytes);
        }
        loop {
            if let Some(filling) = &mut self.filling {
                let part = self.requests.payload(input);
                filling.buffer[filling.at..filling.at + part.len()].copy_from_slice(part);
                filling.at += part.len();
                if self.requests.payload_left() > 0 {
                    break;
                }
            }
            if let Some(Filling { request, buffer, .. }) = self.filling.take() {
                if request.len_bytes >= 2 * DIRECT_BYTES {
                    self.read_bytes = SHORT_READ_BYTES;
                }
                // The disk may have shrunk while the payload came, and jobs keep its rules.
                match self.requests.rules().check(&request) {
                    Ok(()) => self.dispatch(&mut core, request, buffer),
                    Err(fault) => {
                        core.disks.give_back(buffer);
                        self.refuse(request.cookie, fault);
                    }
                }
            }
            if let Some(request) = self.next {
                if !self.may_take(&mut core, &request) {
                    break;
                }
                self.next = None;
                self.take(&mut core, request);
                continue;
            }
            if input.is_empty() || core.is_saturated(export) || self.is_full(&mut core) {
                break;
            }
            match self.requests.next(input) {
                // What was asked before it is answered still.
                Err(error) => {
                    self.ending = Some(End::Nonsense(error));
                    break;
                }
                Ok(None) => break,
                Ok(Some(Incoming::Disconnect)) => {
                    self.count(|traffic| traffic.request(Command::Disconnect));
                    self.ending = Some(End::Disconnected);
                    break;
                }
                Ok(Some(Incoming::Refused(refusal))) => {
                    self.refuse(refusal.cookie, refusal.fault);
                }
                Ok(Some(Incoming::Request(request))) => {
                    self.count(|traffic| traffic.request(request.command));
                    self.next = Some(request);
                }
            }
        }
        core.collect(Some(self.place.id));
    }

    /// Hands on a request, or begins to take in what it writes.
    fn take(&mut self, core: &mut Core<D>, request: Request) {
        if request.command == Command::Write {
            let at = (request.offset % UNIT_BYTES) as usize;
            let buffer = core.disks.lend(at + request.len_bytes as usize);
            self.filling = Some(Filling { request, buffer, at });
        } else {
            self.dispatch(core, request, AlignedBuffer::empty());
        }
    }
}

impl<D: Disks> Drop for Connection<D> {
    /// Buffers are the disks' to keep.
    fn drop(&mut self) {
        let mut core = self.place.core.borrow_mut();
        let unsent = self.reply_queue.bytes();
        self.reply_queue.sent(unsent, |buffer| core.disks.give_back(buffer));
        if let Some(filling) = self.filling.take() {
            core.disks.give_back(filling.buffer);
        }
    }
}
