//! Transactions: requests that are queued and then run one behind the other, unless a watched key has changed.

use crate::resp::{Args, Span};

use super::attended::{call, settle};
use super::context::{Context, Outcome, Refusal, Session};
use super::dispatch::account;
use super::mode::Mode;
use super::route::ShardSet;
use super::spec::{Flags, Spec};

#[derive(Debug)]
struct Queued {
    spec: &'static Spec,
    /// Where its bytes and its arguments' places end.
    bytes_end: usize,
    spans_end: usize,
}

/// The queue of one transaction. Its memory counts as that of an unfinished request.
#[derive(Debug, Default)]
pub struct Transaction {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    requests: Vec<Queued>,
    /// A request was refused, so the transaction will be.
    failed: bool,
    writes: bool,
}

impl Transaction {
    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.spans.capacity() * size_of::<Span>()
            + self.requests.capacity() * size_of::<Queued>()
    }

    /// Requests queued.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether no request is queued.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether one of them may change something.
    pub fn writes(&self) -> bool {
        self.writes
    }

    /// Whether it will not run, since a request was refused.
    pub fn is_void(&self) -> bool {
        self.failed
    }

    /// The requests queued, in order.
    pub fn requests(&self) -> impl Iterator<Item = Args<'_>> {
        self.iter().map(|(_, args)| args)
    }

    /// Counts and shows the requests queued, which run elsewhere.
    pub fn account(&self, context: &mut Context<'_>) {
        for (spec, args) in self.iter() {
            account(context, spec, args);
        }
    }

    fn fail(&mut self) {
        *self = Transaction { failed: true, ..Transaction::default() };
    }

    pub(super) fn push(&mut self, spec: &'static Spec, args: Args<'_>) {
        let start = self.bytes.len();
        for arg in args.iter_from(0) {
            let place = Span { start: (self.bytes.len() - start) as u32, len: arg.len() as u32 };
            self.spans.push(place);
            self.bytes.extend_from_slice(arg);
        }
        self.writes |= spec.flags.contains(Flags::WRITE) || spec.name == "publish";
        self.requests.push(Queued { spec, bytes_end: self.bytes.len(), spans_end: self.spans.len() });
    }

    /// The requests queued, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static Spec, Args<'_>)> {
        let (mut bytes_start, mut spans_start) = (0, 0);
        self.requests.iter().map(move |it| {
            let args =
                Args::new(&self.bytes[bytes_start..it.bytes_end], &self.spans[spans_start..it.spans_end]);
            (bytes_start, spans_start) = (it.bytes_end, it.spans_end);
            (it.spec, args)
        })
    }
}

/// Voids a session's transaction, if it is in one: the request named `name` was refused. A refused `EXEC` ends it.
pub(super) fn fail(session: &mut Session, name: &[u8]) {
    if name.eq_ignore_ascii_case(b"exec") {
        session.transaction = None;
        session.mode.set(Mode::MULTI, false);
    } else if let Some(queue) = &mut session.transaction {
        queue.fail();
    }
}

/// Queues a request. What is longer than the connection may hold voids the transaction, and is not kept.
pub(super) fn queue(context: &mut Context<'_>, spec: &'static Spec, args: Args<'_>) -> Outcome {
    let limit_bytes = context.host.queue_bytes_max;
    let Some(queue) = &mut context.session.transaction else { return Ok(()) };
    // What will not run need not be kept.
    if !queue.failed {
        let bytes: usize = args.iter_from(0).map(|arg| arg.len() + size_of::<Span>()).sum();
        if queue.memory_bytes() + bytes + size_of::<Queued>() > limit_bytes {
            return Err(format!(
                "ERR the transaction does not fit the {limit_bytes} bytes that are left for it, send fewer requests \
                 between MULTI and EXEC"
            )
            .into());
        }
        queue.push(spec, args);
    }
    context.reply().simple("QUEUED");
    Ok(())
}

pub(super) fn multi(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    if context.session.transaction.is_some() {
        return Err(Refusal::Text("ERR MULTI calls can not be nested"));
    }
    context.session.transaction = Some(Box::default());
    context.session.mode.set(Mode::MULTI, true);
    context.reply().ok();
    Ok(())
}

/// Ends a transaction, whatever becomes of it.
fn end(context: &mut Context<'_>) -> Option<Box<Transaction>> {
    let queue = context.session.transaction.take()?;
    context.session.mode.set(Mode::MULTI, false);
    Some(queue)
}

pub(super) fn forget_watched(context: &mut Context<'_>) {
    context.session.watched_shards = ShardSet::Empty;
    context.host.clients.unwatch(context.session.slot);
    context.refresh();
}

pub(super) fn discard(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    end(context).ok_or(Refusal::Text("ERR DISCARD without MULTI"))?;
    forget_watched(context);
    context.reply().ok();
    Ok(())
}

pub(super) fn exec(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let queue = end(context).ok_or(Refusal::Text("ERR EXEC without MULTI"))?;
    if queue.failed {
        forget_watched(context);
        return Err(Refusal::Text("EXECABORT Transaction discarded because of previous errors."));
    }
    find_expired(context);
    let dirty = context.host.clients.is_dirty(context.session.slot);
    forget_watched(context);
    if dirty {
        context.reply().null_array();
        return Ok(());
    }
    context.host.timing.mark_long();
    let start = context.output.mark();
    context.reply().array(queue.len());
    for (spec, args) in queue.iter() {
        let mark = context.output.mark();
        call(context, spec, args);
        if context.output.since(start) > context.host.reply_bytes_max {
            // It has run, as all of them must; only its reply is withheld.
            context.output.truncate(mark, context.engine);
            let text = "ERR the transaction's reply is longer than the limit, this part is left out";
            context.reply().error(text.as_bytes());
        }
    }
    Ok(())
}

/// A watched key whose time is over has changed, whether or not anything came across it yet.
fn find_expired(context: &mut Context<'_>) {
    let Context { engine, session, host, .. } = context;
    for (db, key) in host.clients.watching(session.slot) {
        let _ = engine.peek(db, key);
    }
    if let Some(spec) = session.command {
        settle(context, spec);
    }
}

pub(super) fn watch(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if context.session.transaction.is_some() {
        return Err(Refusal::Text("ERR WATCH inside MULTI is not allowed"));
    }
    let Context { engine, session, host, .. } = context;
    if let Some(doors) = &host.doors {
        session.watched_shards.add(doors.placement.own);
    }
    for key in args.iter_from(1) {
        let present = engine.peek(session.db, key).is_some();
        host.clients.watch(session.slot, session.db, key, present)?;
    }
    context.refresh();
    context.reply().ok();
    Ok(())
}

pub(super) fn unwatch(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    forget_watched(context);
    context.reply().ok();
    Ok(())
}
