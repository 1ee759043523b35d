//! Pipes from a connection to other shards: its requests there, and its replies in the order of the requests.
//!
//! A pipe is opened with the first request to a shard. Changes of the session that the guest there must
//! know (database, protocol) are sent before the next request. Replies queue until all earlier ones have
//! arrived; requests that run at home meanwhile queue their replies as well. A push message keeps its
//! place among the replies of its shard: an invalidation must not overtake the value that it is about.

mod next_request;
mod pipe;
mod replies;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::clients::Peer;
use crate::command::{Context, Mode, Output, Resolved, Route, Verdict, refuse_request};
use crate::resp::{Args, Request, Version};
use crate::shards::ShardSet;
use crate::shards::mailboxes::{Mailboxes, Message, PIPE_BYTES};
use crate::shards::merge::Merge;
use next_request::{caching, take_caching, take_silence};
use pipe::{Expected, Link};
use replies::{Parts, Replies};

/// Requests on their way to one shard, in bytes, beyond which no more are looked at.
const OUTGOING_BYTES_MAX: usize = 1 << 20;
/// Replies that wait for others before them, in bytes, beyond which no more requests are looked at, and only what is awaited
/// first is read.
const HELD_BYTES_MAX: usize = 1 << 20;
/// Replies owed beyond which no more requests are looked at.
const REPLIES_MAX: usize = 1 << 16;

/// The other end of a pipe is gone: the store stops.
#[derive(Debug)]
pub(super) struct Broken;

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It ran, or is under way.
    Done,
    /// Requests are held up.
    HeldUp,
    /// It must be offered again when [`Links::advance`] has got on.
    Wait,
    /// There is no room for its reply: it must be offered again when there is.
    NoRoom,
}

impl From<Verdict> for Step {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Done => Step::Done,
            Verdict::Later => Step::HeldUp,
            Verdict::NoRoom => Step::NoRoom,
        }
    }
}

/// What an exchange with other shards came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Exchanged {
    /// A request was sent or a reply has arrived, so a request that had to wait may be offered again.
    pub(super) got_on: bool,
    /// Replies may have arrived that were not read because the output is full; no waker is registered for them.
    pub(super) left: bool,
}

type Turn = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>>>>;

/// All pipes of one connection.
pub(super) struct Links {
    mailboxes: Mailboxes,
    peer: Peer,
    /// The client's number.
    client: u64,
    /// No pipe was opened yet.
    alone: bool,
    /// Guests may push something unasked: the client tracks keys.
    pushes: bool,
    /// By shard.
    links: Vec<Option<Link>>,
    /// Pipes with guests that monitor.
    monitors: Vec<Link>,
    replies: Replies,
    /// Shards that were asked to publish their figures and have not confirmed it; `None` when none was asked.
    showing: Option<Vec<oneshot::Receiver<()>>>,
    /// Waits for the turn to send something to all shards.
    waiting_for_turn: Option<Turn>,
    turn: Option<OwnedSemaphorePermit>,
    /// Where the next search for any key begins.
    any: usize,
    /// The last request ran elsewhere alone, and is accounted for there.
    last_was_away: bool,
}

impl Links {
    pub(super) fn new(mailboxes: Mailboxes, peer: Peer, client: u64) -> Self {
        let links = (0..mailboxes.placement.shards).map(|_| None).collect();
        Links {
            mailboxes,
            peer,
            client,
            alone: true,
            pushes: false,
            links,
            monitors: Vec::new(),
            replies: Replies::default(),
            showing: None,
            waiting_for_turn: None,
            turn: None,
            any: 0,
            last_was_away: false,
        }
    }

    /// Whether nothing was ever asked of other shards, so that there is nothing to send or to take.
    #[inline]
    pub(super) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Whether the last request ran in another shard, which has it in its slow log and latencies.
    pub(super) fn last_was_away(&self) -> bool {
        self.last_was_away
    }

    /// Whether no reply is awaited.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.replies.is_empty()
    }

    /// Bytes of requests and replies held here.
    pub(super) fn memory_bytes(&self) -> usize {
        let links = self.links.iter().flatten().chain(&self.monitors);
        let buffers: usize = links.map(|link| link.outgoing_bytes() + link.incoming_bytes()).sum();
        buffers + self.replies.held_bytes()
    }

    /// The numbers of the first reply that is owed, and of the next one.
    pub(super) fn numbers(&self) -> (u64, u64) {
        (self.replies.first_number(), self.replies.next_number())
    }

    /// Bytes of replies, and of parts of them, that wait for others or for the rest of them.
    #[inline]
    pub(super) fn held_reply_bytes(&self) -> usize {
        let links = self.links.iter().flatten().chain(&self.monitors);
        self.replies.held_bytes() + links.map(Link::incoming_bytes).sum::<usize>()
    }

    /// Takes what is to be put out behind the replies that are owed.
    pub(super) fn hold(&mut self, bytes: Vec<u8>, output: &mut Output) {
        self.replies.hold(bytes, output);
    }

    /// Runs a request here, or sends it where it runs.
    #[inline]
    pub(super) fn execute(&mut self, context: &mut Context<'_>, args: Args<'_>, found: Resolved) -> Step {
        let placement = self.mailboxes.placement;
        let route = match found.only_key(context.session, args) {
            Some(key) => match placement.shard_of(key) {
                own if own == placement.own => return self.run_here(context, args, found),
                shard => Route::At(shard),
            },
            None => found.route(context.session, args, placement),
        };
        self.dispatch(context, args, found, route)
    }

    #[inline]
    fn run_here(&mut self, context: &mut Context<'_>, args: Args<'_>, found: Resolved) -> Step {
        self.last_was_away = false;
        if self.alone {
            return found.execute(context, args).into();
        }
        self.run_among_others(context, args, found)
    }

    /// More cannot be taken on before replies have come and gone.
    fn is_full(&self) -> bool {
        self.replies.len() >= REPLIES_MAX
            || self.replies.held_bytes() >= HELD_BYTES_MAX
            || self.links.iter().flatten().any(|link| link.outgoing_bytes() >= OUTGOING_BYTES_MAX)
    }

    fn run_among_others(&mut self, context: &mut Context<'_>, args: Args<'_>, found: Resolved) -> Step {
        if !self.replies.is_empty() && (found.comes_last() || self.is_full()) {
            return Step::Wait;
        }
        let version = context.session.version;
        let step = if self.replies.is_empty() {
            found.execute(context, args).into()
        } else {
            let (verdict, reply) = run_aside(context, args, found);
            if verdict == Verdict::Done {
                self.replies.hold(reply, context.output);
            }
            verdict.into()
        };
        if found.is("reset") {
            // With them goes all that the guests remembered.
            self.links.iter_mut().for_each(|link| *link = None);
            self.monitors.clear();
            (self.alone, self.pushes) = (true, false);
        } else if context.session.version != version {
            // What guests push of themselves must be of the new form as well.
            let Context { session, host, .. } = context;
            let name = &host.clients.registry().client_info(session.slot).name;
            self.links.iter_mut().flatten().for_each(|link| link.follow(session, name));
        }
        step
    }

    #[inline(never)]
    fn dispatch(&mut self, context: &mut Context<'_>, args: Args<'_>, found: Resolved, to: Route) -> Step {
        // What the user may not do is refused there.
        let to = if found.is_forbidden(context.session, context.host, args) { Route::Here } else { to };
        let mode = context.session.mode;
        if mode.has(Mode::SUBSCRIBED) && context.session.version == Version::Resp2 {
            // Refused there.
            return self.run_here(context, args, found);
        }
        if self.is_full() {
            return Step::Wait;
        }
        match to {
            Route::Here => return self.run_here(context, args, found),
            Route::At(shard) => self.ask_one(context, shard, args, found),
            Route::One(shard, merge) => {
                let request = Request::of(args.iter_from(0));
                return self.ask_parts(context, args, vec![(shard, request)], merge, found);
            }
            Route::Everywhere(merge) => return self.ask_all(context, args, merge, found),
            Route::AfterShowing => return self.run_after_showing(context, args, found),
            Route::Split(parts, merge) => return self.ask_parts(context, args, parts, merge, found),
            Route::Transaction(shard) => self.hand_over_transaction(context, shard, args, found),
            Route::Refused(text) => {
                let silent = take_silence(context.session);
                let mut aside = Output::default();
                core::mem::swap(context.output, &mut aside);
                refuse_request(context, text, args);
                core::mem::swap(context.output, &mut aside);
                if !silent {
                    self.replies.hold(aside.into_bytes(context.engine), context.output);
                }
            }
        }
        Step::Done
    }

    /// The request is for one other shard.
    fn ask_one(&mut self, context: &mut Context<'_>, shard: usize, args: Args<'_>, found: Resolved) {
        self.last_was_away = true;
        let silent = take_silence(context.session);
        found.account(context, args);
        let caching = take_caching(context);
        let number = Some(self.replies.next_number());
        let link = self.link(context, shard, caching);
        link.watches |= found.is("watch");
        link.ask(args, Expected { number, part: 0 });
        if found.is("watch") {
            context.session.watched_shards.add(shard);
        }
        self.replies.await_one(shard, silent);
    }

    /// The request is for every shard.
    fn ask_all(
        &mut self,
        context: &mut Context<'_>,
        args: Args<'_>,
        mut merge: Merge,
        found: Resolved,
    ) -> Step {
        if found.is("monitor") {
            return self.monitor(context, args, found);
        }
        if found.is_about_clients() {
            // A guest's request may overtake clients that have been handed to its shard and were not let in yet: without this, CLIENT
            // LIST would leave out clients that INFO, asked next, counts.
            if !self.have_shown() {
                return Step::Wait;
            }
            self.showing = None;
        }
        // Earlier replies are taken first: otherwise the turn of all clients would wait until this client reads.
        if found.tells_all() && !(self.replies.is_empty() && self.has_turn()) {
            return Step::Wait;
        }
        self.pushes |= found.is("tracking");
        if let Merge::NonNull(from) = &mut merge {
            *from = self.any;
            self.any = self.any.wrapping_add(1);
        }
        let request = Request::of(args.iter_from(0));
        let shards = core::iter::once(self.mailboxes.placement.own).chain(self.mailboxes.others());
        let parts = shards.map(|shard| (shard, request.clone())).collect();
        self.ask_parts(context, args, parts, merge, found)
    }

    /// Whether it is this connection's turn to tell all shards something; if not, it is asked for. One at a time may, so that
    /// all hear everything in the same order.
    fn has_turn(&mut self) -> bool {
        if self.turn.is_none() && self.waiting_for_turn.is_none() {
            let turns = Arc::clone(&self.mailboxes.turns);
            self.waiting_for_turn = Some(Box::pin(async move { turns.acquire_owned().await.ok() }));
            self.alone = false;
        }
        self.turn.is_some()
    }

    /// Lets others tell all shards something while this client does not take its replies.
    pub(super) fn give_turn_up(&mut self) {
        (self.turn, self.waiting_for_turn) = (None, None);
    }

    /// The request is for several shards, or its reply has to be worked on. The part for this one runs at once, and where that
    /// has to wait nothing is sent.
    fn ask_parts(
        &mut self,
        context: &mut Context<'_>,
        args: Args<'_>,
        asked: Vec<(usize, Request)>,
        merge: Merge,
        found: Resolved,
    ) -> Step {
        let own = self.mailboxes.placement.own;
        let turn = self.turn.take();
        self.last_was_away = asked.iter().all(|(shard, _)| *shard != own);
        let mut parts = vec![Vec::new(); asked.len()];
        let mut missing = asked.len();
        let mode = context.session.mode;
        // Read before the part for this shard, which is the next request that it is about as well.
        let caching = caching(context);
        // Before it runs, since it may set the counters back; a request that may be held up counts when it runs.
        let certain = context.host.clients.pauses().kind().is_none();
        let is_counted = mode.has(Mode::PUT_OFF);
        if certain && !is_counted {
            found.account(context, args);
        }
        for (part, (shard, request)) in asked.iter().enumerate() {
            if *shard == own {
                // Its reply is needed even if the client is not sent the whole.
                context.session.mode.set(Mode::SILENT, false);
                context.session.mode.set(Mode::SKIP_NEXT, false);
                context.session.mode.set(Mode::GUEST, true);
                let (verdict, reply) = run_aside(context, request.args(), found);
                context.session.mode.set(Mode::GUEST, false);
                context.session.mode.set(Mode::SILENT, mode.has(Mode::SILENT));
                if verdict != Verdict::Done {
                    context.session.mode.set(Mode::SKIP_NEXT, mode.has(Mode::SKIP_NEXT));
                    if verdict == Verdict::NoRoom && !certain && !is_counted {
                        found.account(context, args);
                    }
                    return verdict.into();
                }
                parts[part] = reply;
                missing -= 1;
            }
        }
        let silent = mode.has(Mode::SILENT) || mode.has(Mode::SKIP_NEXT);
        context.session.mode.set(Mode::SKIP_NEXT, false);
        take_caching(context);
        if !certain && !is_counted {
            found.account(context, args);
        }
        let number = Some(self.replies.next_number());
        for (part, (shard, request)) in asked.iter().enumerate() {
            if *shard != own {
                let link = self.link(context, *shard, caching);
                link.watches |= found.is("watch");
                link.ask(request.args(), Expected { number, part });
                if found.is("watch") {
                    context.session.watched_shards.add(*shard);
                }
            }
        }
        let version = context.session.version;
        self.replies.await_many(Parts { merge, parts, missing, version, silent, turn }, context.output);
        Step::Done
    }

    /// The request reports on all shards, so their figures must be current.
    fn run_after_showing(&mut self, context: &mut Context<'_>, args: Args<'_>, found: Resolved) -> Step {
        if !self.have_shown() || !self.replies.is_empty() {
            return Step::Wait;
        }
        self.showing = None;
        self.run_here(context, args, found)
    }

    /// Whether all shards have admitted the clients given to them and published their figures since
    /// they were asked, which the first call does. The caller resets `showing` when it is done.
    fn have_shown(&mut self) -> bool {
        if self.showing.is_none() {
            self.alone = false;
            // This one too: it may have been given clients as well.
            let asked = (0..self.mailboxes.placement.shards).map(|shard| {
                let (shown, showing) = oneshot::channel();
                self.mailboxes.send(shard, Message::Show(shown));
                showing
            });
            self.showing = Some(asked.collect());
        }
        self.showing.as_ref().is_some_and(Vec::is_empty)
    }

    /// `MONITOR`: pipes of their own for requests seen elsewhere, since its lines cannot be distinguished from replies.
    fn monitor(&mut self, context: &mut Context<'_>, args: Args<'_>, found: Resolved) -> Step {
        let step = self.run_here(context, args, found);
        if step == Step::Done && self.monitors.is_empty() {
            for shard in self.mailboxes.others() {
                let mut link = open(&self.mailboxes, &self.peer, self.client, shard);
                link.ask(args, Expected::NONE);
                self.monitors.push(link);
            }
            self.alone = false;
        }
        step
    }

    /// `EXEC` where all keys of the transaction lie in another shard: it runs there.
    fn hand_over_transaction(
        &mut self,
        context: &mut Context<'_>,
        shard: usize,
        args: Args<'_>,
        found: Resolved,
    ) {
        let silent = take_silence(context.session);
        let caching = take_caching(context);
        context.session.mode.set(Mode::MULTI, false);
        let Some(queue) = context.session.transaction.take() else { return };
        self.last_was_away = true;
        queue.account(context);
        found.account(context, args);
        let number = Some(self.replies.next_number());
        let link = self.link(context, shard, caching);
        link.tell([b"MULTI"]);
        queue.requests().for_each(|queued| link.ask(queued, Expected::NONE));
        link.ask(args, Expected { number, part: 0 });
        link.watches = false;
        self.replies.await_one(shard, silent);
        context.session.watched_shards = ShardSet::Empty;
        context.host.clients.unwatch(context.session.slot);
        context.refresh();
    }

    /// The pipe to a shard, after informing its guest of the session's
    /// present state and of what `CLIENT CACHING` said of the next request.
    fn link(&mut self, context: &Context<'_>, shard: usize, caching: Option<bool>) -> &mut Link {
        self.alone = false;
        let Links { mailboxes, peer, client, links, .. } = self;
        let link = links[shard].get_or_insert_with(|| open(mailboxes, peer, *client, shard));
        let Context { session, host, .. } = context;
        link.follow(session, &host.clients.registry().client_info(session.slot).name);
        match caching {
            Some(true) => link.tell([b"CLIENT", b"CACHING", b"yes"]),
            Some(false) => link.tell([b"CLIENT", b"CACHING", b"no"]),
            None => {}
        }
        link
    }

    /// Writes waiting requests, and reads replies into `output` as far as they are next. `scratch` is for reading;
    /// replies stay in the pipe while `output` holds more than `output_bytes_max`. `version` is the client's.
    pub(super) fn advance(
        &mut self,
        cx: &mut TaskContext<'_>,
        scratch: &mut [u8],
        output: &mut Output,
        output_bytes_max: usize,
        version: Version,
    ) -> Result<Exchanged, Broken> {
        let mut exchanged = Exchanged::default();
        if let Some(showing) = &mut self.showing {
            let before = showing.len();
            // One that is stopping shows nothing any more.
            showing.retain_mut(|shown| Pin::new(shown).poll(cx).is_pending());
            exchanged.got_on |= showing.len() < before;
        }
        if let Some(turn) = &mut self.waiting_for_turn
            && let Poll::Ready(turn) = turn.as_mut().poll(cx)
        {
            (self.turn, self.waiting_for_turn) = (turn, None);
            exchanged.got_on = true;
        }
        loop {
            let mut read = false;
            exchanged.left = false;
            for shard in 0..self.links.len() {
                let pushes = self.pushes;
                // A request at home must not touch what another thread may.
                let Some(link) = self.links[shard].as_mut().filter(|link| pushes || !link.is_idle()) else {
                    continue;
                };
                exchanged.got_on |= link.write(cx)?;
                if output.len() >= output_bytes_max
                    || (self.replies.held_bytes() >= HELD_BYTES_MAX && !self.replies.is_next(shard))
                {
                    exchanged.left = true;
                } else if link.read(cx, scratch)? {
                    self.take_replies(shard, output, version);
                    read = true;
                }
            }
            for link in &mut self.monitors {
                exchanged.got_on |= link.write(cx)?;
                if output.len() >= output_bytes_max {
                    exchanged.left = true;
                } else if link.read(cx, scratch)? {
                    take_lines(link, &mut self.replies, output);
                    read = true;
                }
            }
            exchanged.got_on |= read;
            // A pass that reads nothing leaves a waker with every pipe that it may read from.
            if !read {
                return Ok(exchanged);
            }
        }
    }

    /// Takes the whole replies that a pipe has brought.
    fn take_replies(&mut self, shard: usize, output: &mut Output, version: Version) {
        let Links { links, replies, .. } = self;
        let Some(link) = &mut links[shard] else { return };
        while let Some(range) = link.next_reply() {
            if link.is_push(&range) {
                let answered = link.answered;
                let message = link.take(range);
                // It is an invalidation; a client that has gone back to RESP2 gets none.
                if version == Version::Resp3 {
                    replies.push(answered, &message, output);
                }
            } else if let Some(Expected { number: Some(number), part }) = link.expected.pop_front() {
                link.answered = Some(number);
                replies.arrive(number, part, link.take(range), output);
            } else {
                link.take(range);
            }
        }
        link.compact();
    }
}

/// Opens a pipe to a shard.
fn open(mailboxes: &Mailboxes, peer: &Peer, client: u64, shard: usize) -> Link {
    let (pipe, theirs) = tokio::io::duplex(PIPE_BYTES);
    let home = (mailboxes.placement.own, client);
    mailboxes.send(shard, Message::Guest { pipe: theirs, peer: peer.clone(), home });
    Link::new(pipe)
}

/// Takes the lines that a monitoring guest has seen.
fn take_lines(link: &mut Link, replies: &mut Replies, output: &mut Output) {
    while let Some(range) = link.next_reply() {
        // The first line says that it monitors.
        let first = link.expected.pop_front().is_some();
        let line = link.take(range);
        if !first {
            replies.hold(line.into_owned(), output);
        }
    }
    link.compact();
}

/// Runs a request here and returns its reply.
fn run_aside(context: &mut Context<'_>, args: Args<'_>, found: Resolved) -> (Verdict, Vec<u8>) {
    let mut aside = Output::default();
    core::mem::swap(context.output, &mut aside);
    let verdict = found.execute(context, args);
    core::mem::swap(context.output, &mut aside);
    (verdict, aside.into_bytes(context.engine))
}
