//! Connection of one client: reads, runs the complete requests, writes.

mod exchange;
mod pending;
mod room;
mod unsent;

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use crate::flash::Moment;
use tiermem_policy::reply_line::Piece;
use tokio::time::Sleep;

use super::pending_fetches::PendingFetches;
use super::request_budget::{FREE_BYTES, READ_BYTES, Share};
use super::shard_context::{Core, Shard};
use super::shard_pipes::{Links, Step};
use super::stream::Stream;
use crate::command::{Context, HANDLERS, Output, Resolved};
use crate::host::Session;
use crate::resp::{KeysAhead, Parser, Progress, Writer};

/// Replies are handed to the kernel when they come to this much, even amid a batch.
const WRITE_BYTES: usize = 64 * 1024;
/// Requests from here on may bring a value for which room must be made first.
const LARGE_REQUEST_BYTES: usize = 128 * 1024;
/// Pieces written with one call.
const SLICES: usize = 16;

/// The client is gone or is to go.
struct Gone;

/// A connection as a future that is ready when the client has gone.
pub(super) struct Connection {
    shard: Rc<Shard>,
    stream: Stream,
    session: Session,
    parser: Parser,
    /// Bytes of an unfinished request, or of requests that wait for the output to drain.
    pending: Vec<u8>,
    /// Bytes that `pending` must come to hold for the request to get on.
    bytes_min: usize,
    /// `pending` holds requests that were not looked at.
    runnable: bool,
    output: Output,
    /// The registry knows how to wake this task.
    known: bool,
    /// The next request waits for the end of a pause.
    paused: bool,
    /// Counted as blocked.
    blocked: bool,
    /// Bytes of replies held for other shards that were counted last.
    counted_held_bytes: usize,
    share: Share,
    /// Keys on flash that requests of this connection wait for.
    away: PendingFetches,
    /// What it has asked of other shards, if there are any and this one is its home.
    links: Option<Box<Links>>,
    /// The next request waits: for such a key, for space to write, or for replies from other shards.
    waiting: bool,
    /// What this connection has a part in: the replies of its client.
    piece: Piece,
    /// The next request was put off, since there is no room for its reply.
    is_put_off: bool,
    /// The client may exceed the room until the reply of this number is the first that is owed.
    privileged_until: Option<u64>,
    /// The replies may be sent from this moment on.
    promised: Moment,
    last_progress: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    pub(super) fn new(stream: Stream, shard: Rc<Shard>, session: Session) -> Self {
        let links = shard.borrow().links_for(session.slot).map(Box::new);
        let piece = room::piece_of(&shard.borrow(), &session);
        Connection {
            piece,
            is_put_off: false,
            privileged_until: None,
            links,
            shard,
            stream,
            session,
            parser: Parser::default(),
            pending: Vec::new(),
            bytes_min: 0,
            runnable: false,
            output: Output::default(),
            known: false,
            paused: false,
            blocked: false,
            counted_held_bytes: 0,
            share: Share::default(),
            away: PendingFetches::default(),
            waiting: false,
            promised: Moment::default(),
            last_progress: Instant::now(),
            timer: None,
        }
    }

    /// Appends what others have sent this client to its replies.
    fn collect_pushed(&mut self, core: &mut Core) {
        if let Some(pushed) = core.host.clients.output_mut().take_pushed(self.session.slot) {
            self.put_out(pushed);
            self.count_unsent(core);
        }
    }

    /// Does all that the socket allows; `Ok` when it must be waited for.
    fn advance(&mut self, core: &mut Core, cx: &mut TaskContext<'_>) -> Result<(), Gone> {
        loop {
            self.collect_pushed(core);
            let left = self.exchange(core, cx)?;
            if !self.output.is_empty() {
                if !core.engine.flash().is_durable(self.promised) {
                    // Nor does it run more meanwhile: that would put its replies off again.
                    self.stream.forget_full();
                    // This pause is not the client's fault.
                    self.last_progress = core.clock.batch_start();
                    self.count_unsent(core);
                    return Ok(());
                }
                if let Poll::Ready(ready) = self.stream.poll_write_ready(cx) {
                    ready.map_err(|_| Gone)?;
                    self.send(core)?;
                    self.last_progress = core.clock.batch_start();
                    if !self.output.is_empty() {
                        // The kernel's buffer is full again: ask to be woken.
                        continue;
                    }
                    self.output.release_memory(FREE_BYTES);
                    if left {
                        // There is room again.
                        continue;
                    }
                }
                self.count_unsent(core);
            }
            self.end_privilege(core);
            if self.session.closing {
                let sent =
                    self.output.is_empty() && !self.awaits_replies() && self.stream.poll_flush(cx).is_ready();
                return if sent { Err(Gone) } else { Ok(()) };
            }
            if self.waiting {
                return Ok(());
            }
            self.set_blocked(core);
            if self.paused {
                if core.host.clients.pauses().kind().is_some() {
                    return Ok(());
                }
                self.paused = false;
            }
            if self.blocked {
                if let Some(links) = &mut self.links {
                    links.give_turn_up();
                }
                if self.is_put_off {
                    self.leave_line(core);
                }
                core.budget.progress(&self.share, 0, cx.waker());
                return Ok(());
            }
            if self.runnable {
                if self.is_put_off && !core.is_called(self.piece) {
                    self.waiting = true;
                    // This pause is not the client's fault.
                    self.last_progress = core.clock.batch_start();
                    return Ok(());
                }
                self.run(core, 0, cx)?;
                continue;
            }
            match self.read(core, cx)? {
                Poll::Ready(read) => self.run(core, read, cx)?,
                Poll::Pending => return Ok(()),
            }
        }
    }

    /// Reads once, behind what is pending. `Ready` says how much of the shard's input buffer is filled; 0 when
    /// all is in `pending`.
    fn read(&mut self, core: &mut Core, cx: &mut TaskContext<'_>) -> Result<Poll<usize>, Gone> {
        let held = self.pending.len();
        let large = held > FREE_BYTES;
        let (from, to) = if large {
            if !self.make_room(core, cx)? {
                return Ok(Poll::Pending);
            }
            (0, (self.pending.capacity() - held).min(READ_BYTES))
        } else {
            let room = if core.budget.is_tight() { FREE_BYTES } else { READ_BYTES };
            (held, (held + room).min(READ_BYTES))
        };
        match self.stream.poll_read(cx, &mut core.input[from..to]) {
            Poll::Pending => {
                if held == 0 {
                    self.release_memory();
                }
                if held > 0 || self.share.is_charged() {
                    core.budget.progress(&self.share, 0, cx.waker());
                }
                Ok(Poll::Pending)
            }
            Poll::Ready(Ok(0)) if self.awaits_replies() => {
                // It asks for nothing more, and may still listen.
                self.session.closing = true;
                Ok(Poll::Pending)
            }
            Poll::Ready(Ok(0) | Err(_)) => Err(Gone),
            Poll::Ready(Ok(count)) => {
                core.host.stats.net_input_bytes += count as u64;
                if large {
                    self.pending.extend_from_slice(&core.input[..count]);
                    core.budget.progress(&self.share, count, cx.waker());
                    return Ok(Poll::Ready(0));
                }
                if self.share.is_charged() {
                    core.budget.progress(&self.share, count, cx.waker());
                }
                core.input[..held].copy_from_slice(&self.pending);
                self.pending.clear();
                Ok(Poll::Ready(held + count))
            }
        }
    }

    /// Runs a batch: what is complete in `pending` or, when that is empty, in the first `filled` bytes of the
    /// shard's input buffer. Then writes the replies.
    fn run(&mut self, core: &mut Core, filled: usize, cx: &TaskContext<'_>) -> Result<(), Gone> {
        let start = core.clock.batch_start();
        self.last_progress = start;
        core.begin_batch(self.piece);
        core.run_start = start;
        core.host.queue_bytes_max = core.limits.request_bytes_max.min(core.budget.room_bytes(&self.share));
        let requests = core.host.stats.commands_processed;
        let (charged, waited) = (core.engine.memory().charged_ns(), core.engine.memory().waited_ns());
        let lent = self.output.lend(&mut core.replies);
        let result = if self.pending.is_empty() {
            let input = core::mem::take(&mut core.input);
            let result = self.run_complete(core, &input[..filled], cx);
            if let Ok(consumed) = result
                && consumed < filled
            {
                self.pending.extend_from_slice(&input[consumed..filled]);
            }
            core.input = input;
            result
        } else {
            let mut pending = core::mem::take(&mut self.pending);
            let result = self.run_complete(core, &pending, cx);
            if let Ok(consumed) = result {
                if consumed > 0 {
                    core.budget.end_privilege(&self.share);
                    // These bytes are gone when the batch ends.
                    self.note_run(core, &pending[..consumed]);
                }
                pending.drain(..consumed);
            }
            self.pending = pending;
            result
        };
        let is_robbed = core.drop_robbed() && core.host.clients.output().is_killed(self.session.slot);
        let flushed = if is_robbed || result.is_err() { Err(Gone) } else { self.flush(core, cx) };
        if lent {
            self.output.give_back(&mut core.replies);
        }
        self.count_unsent(core);
        flushed?;
        self.settle_pending(core);
        if !self.waiting && !self.away.is_empty() {
            // Fetched items that this connection will not take soon would hold memory that others need.
            self.away.cancel(&mut core.engine);
        }
        let wall_ns = core.clock.batch_end().saturating_duration_since(start).as_nanos() as u64;
        if core.host.timing.matters(wall_ns)
            && let Ok(consumed) = result
        {
            // Nothing has been read into it since.
            let input = core::mem::take(&mut core.input);
            self.note_run(core, &input[..consumed.min(filled)]);
            core.input = input;
        }
        // The charge of emulated memory belongs to these requests, even if another request waits it off.
        let (charged_ns, waited_ns) =
            (core.engine.memory().charged_ns() - charged, core.engine.memory().waited_ns() - waited);
        let ns = (wall_ns as f64 - waited_ns + charged_ns).max(0.0) as u64;
        core.latency.record(ns, core.host.stats.commands_processed - requests);
        let client_info = core.host.clients.registry_mut().client_info_mut(self.session.slot);
        self.session.note(client_info, core.host.now_us);
        self.note_pending(client_info);
        Ok(())
    }

    /// Runs the complete requests at the start of `input` and returns how many bytes are done with.
    #[inline]
    fn run_complete(&mut self, core: &mut Core, input: &[u8], cx: &TaskContext<'_>) -> Result<usize, Gone> {
        let mut at = 0;
        // Up to here the engine knows which keys come.
        let mut foreseen = 0;
        self.runnable = false;
        loop {
            let rest = &input[at..];
            if rest.is_empty() && !self.parser.is_midway() {
                return Ok(at);
            }
            core.limits.unauthenticated = !self.session.authenticated;
            match self.parser.parse(rest, &core.limits) {
                Ok(Progress::Complete) => {
                    if at >= foreseen && self.parser.consumed() < rest.len() {
                        let mut keys = KeysAhead::new(rest);
                        core.engine.foresee(self.session.db, &mut keys);
                        foreseen = at + keys.passed();
                    }
                    let found = Resolved::of(self.parser.args(rest));
                    let waits =
                        core.engine.flash().is_there() || self.parser.consumed() >= LARGE_REQUEST_BYTES;
                    if waits && !self.is_at_hand(core, found, rest, cx) {
                        // The request is read again when it can run.
                        self.parser.reset();
                        (self.runnable, self.waiting) = (true, true);
                        return Ok(at);
                    }
                    let Core { engine, host, .. } = core;
                    let Connection { session, output, parser, links, .. } = self;
                    let mut context = Context { engine, session, output, host, handlers: &HANDLERS };
                    let step = match links {
                        None => found.execute(&mut context, parser.args(rest)).into(),
                        Some(links) => links.execute(&mut context, parser.args(rest), found),
                    };
                    context.end_request();
                    if step == Step::NoRoom && self.tries_again(core, cx) {
                        self.parser.reset();
                        continue;
                    }
                    if step != Step::Done {
                        self.hold_up(core, step);
                        return Ok(at);
                    }
                    if self.is_put_off {
                        self.leave_line(core);
                    }
                    if core.host.timing.is_due() {
                        core.clock.batch_end();
                        self.note_run(core, &rest[..self.parser.consumed()]);
                    }
                }
                Ok(Progress::Empty) => {}
                Ok(Progress::Oversize) => self.refuse_oversize(core),
                Ok(Progress::Incomplete { bytes_min }) => {
                    let discarded = self.parser.discard();
                    self.bytes_min = bytes_min - discarded;
                    return Ok(at + discarded);
                }
                Err(error) => {
                    core.host.stats.error_replies += 1;
                    core.host.stats.clients_dropped += 1;
                    self.put_out_error(&format!("ERR {error}"));
                    self.session.closing = true;
                }
            }
            at += self.parser.consumed();
            self.parser.reset();
            if self.session.closing {
                return Ok(input.len());
            }
            if self.output.len() >= WRITE_BYTES.min(core.host.settings.output_bytes_max) {
                self.flush(core, cx)?;
                if self.is_over_limit(core) {
                    self.runnable = at < input.len();
                    return Ok(at);
                }
            }
        }
    }

    /// Whether the parsed request at the start of `rest` can run: its keys are fetched from flash,
    /// and there is room for a large value. If not, it looks ahead at the requests behind it as well.
    // Within the loop over requests it would take the registers that the loop needs.
    #[inline(never)]
    fn is_at_hand(&mut self, core: &mut Core, found: Resolved, rest: &[u8], cx: &TaskContext<'_>) -> bool {
        let Core { engine, host, .. } = core;
        let Connection { session, parser, away, .. } = self;
        let at_hand = away.stage(engine, (session, host), (found, parser.args(rest)), cx.waker());
        if !at_hand {
            let behind = KeysAhead::new(&rest[parser.consumed()..]);
            away.foresee(engine, host.placement(), session.db, behind);
        }
        at_hand
    }

    /// Leaves the present request, which is looked at again when requests are no longer held up, or replies have come.
    #[cold]
    fn hold_up(&mut self, core: &mut Core, step: Step) {
        self.parser.reset();
        self.runnable = true;
        if step == Step::HeldUp {
            self.paused = true;
            core.host.clients.wait_for_unpause(self.session.slot);
        } else {
            self.waiting = true;
        }
    }

    #[cold]
    fn refuse_oversize(&mut self, core: &mut Core) {
        core.host.stats.commands_processed += 1;
        core.host.stats.error_replies += 1;
        let text = format!(
            "ERR the request is too large: a value may have {} bytes, a request {}",
            core.engine.value_bytes_max(),
            core.limits.request_bytes_max
        );
        self.put_out_error(&text);
    }

    /// Makes the requests' effects as durable as configured, and then sends the replies.
    #[inline]
    fn flush(&mut self, core: &mut Core, cx: &TaskContext<'_>) -> Result<(), Gone> {
        let promised = core.commit().ok_or(Gone)?;
        if promised > self.promised {
            self.promised = promised;
            core.engine.flash().wake_when_durable(promised, cx.waker());
        }
        self.send(core)
    }

    /// Writes as much as the kernel takes now of replies that may be sent.
    #[inline]
    fn send(&mut self, core: &mut Core) -> Result<(), Gone> {
        if !core.engine.flash().is_durable(self.promised) {
            return Ok(());
        }
        while !self.output.is_empty() {
            let written = match self.output.plain() {
                Some(bytes) => self.stream.try_write(bytes),
                None => {
                    let mut slices = [IoSlice::new(&[]); SLICES];
                    let filled = self.output.slices(core.engine_without_lost(), &mut slices).ok_or(Gone)?;
                    self.stream.try_write_vectored(&slices[..filled])
                }
            };
            match written {
                Ok(0) => return Err(Gone),
                Ok(count) => {
                    core.host.stats.net_output_bytes += count as u64;
                    self.output.advance(count, &mut core.engine);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Gone),
            }
        }
        Ok(())
    }

    /// Whether the client has kept still for longer than it may; if not, sees to being woken when it has.
    fn is_timed_out(&mut self, core: &Core, cx: &mut TaskContext<'_>) -> bool {
        let timeout_ms = core.host.settings.timeout_ms;
        let slot = self.session.slot;
        if timeout_ms == 0
            || core.host.clients.only_listens(slot)
            || core.host.clients.registry().client_info(slot).home.is_some()
        {
            return false;
        }
        let deadline = self.last_progress + Duration::from_millis(timeout_ms);
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline.into())));
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return true;
            }
            timer.as_mut().reset(deadline.into());
        }
        false
    }
}

impl Future for Connection {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<()> {
        let connection = &mut *self;
        let shard = Rc::clone(&connection.shard);
        let core = &mut *shard.borrow_mut();
        if core.host.persistence.is_stopped {
            // What it would change is in no snapshot.
            return Poll::Pending;
        }
        if core.budget.is_stalled(&connection.share) {
            core.host.stats.clients_dropped += 1;
            tracing::debug!(
                client = connection.session.id,
                "dropped: its request stood still, others waited"
            );
            return Poll::Ready(());
        }
        let slot = connection.session.slot;
        if !connection.known {
            core.host.clients.output_mut().set_waker(slot, cx.waker());
            connection.known = true;
        }
        connection.waiting = false;
        if core.host.clients.output().is_killed(slot) || connection.advance(core, cx).is_err() {
            return Poll::Ready(());
        }
        if connection.is_timed_out(core, cx) {
            core.host.stats.clients_dropped += 1;
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let shard = Rc::clone(&self.shard);
        let core = &mut *shard.borrow_mut();
        self.output.clear(&mut core.engine);
        self.away.cancel(&mut core.engine);
        let guest = core.host.clients.registry().client_info(self.session.slot).home.is_some();
        if core.reply_turns.is_busy() {
            core.forget_piece(self.piece, !guest);
        }
        core.host.clients.leave(self.session.slot);
        core.note_unsent();
        core.engine.changes().want(core.host.clients.wants_changes());
        core.budget.release(&mut self.share);
        core.host.stats.clients_blocked_on_output -= u64::from(self.blocked);
        if !guest {
            core.host.count_out();
        }
    }
}
