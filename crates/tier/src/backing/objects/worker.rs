//! Worker thread of an object store: splits requests into chunks,
//! bounds what is in flight, and answers when all parts are done.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use crate::block::completion_queue::CompletionSender;
use bytes::Bytes;
use slab::Slab;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::access::Expected;
use super::chunk::{Chunks, PutEnd, Stored};
use super::fence::Standing;
use super::layout::{ChunkRange, HEADER_BYTES, Header};
use super::put_order::{Change, Known, PutOrder, apply, cover};
use super::trims::Trims;
use super::{ObjectsOptions, identity_of, label, manifest};
use crate::backing::{BackingError, Completion, Identity, Op, Request, StoreLabel};

/// Reads that are under way at a time.
const GETS_MAX: usize = 64;
/// Chunks changed at a time; fewer where they are large.
const TURNS_MAX: u64 = 32;
const TURN_BYTES_MAX: u64 = 128 << 20;

/// What the other side asks for.
pub(super) enum Ask {
    Request(Request),
    Identity(Sender<Identity>),
    Label(Sender<Result<StoreLabel, BackingError>>),
    SetLabel(String, Sender<Result<(), BackingError>>),
}

/// A request that is not done.
struct Job {
    request: Request,
    session: u64,
    /// Parts that are not done.
    left: usize,
    error: Option<BackingError>,
}

/// Result of a task.
enum Event {
    Read { job: usize, part: ChunkRange, result: Result<Bytes, BackingError> },
    Stored { chunk: u64, result: Result<Stored, BackingError> },
    Put { chunk: u64, end: PutEnd },
    Flushed { job: usize, result: Result<(), BackingError> },
    Looked,
    Told,
    Labelled,
}

pub(super) struct Worker {
    chunks: Chunks,
    standing: Arc<Standing>,
    look_every: Duration,
    completion_sender: CompletionSender<Completion>,
    jobs: Slab<Job>,
    reads: VecDeque<(usize, ChunkRange)>,
    gets: usize,
    put_order: PutOrder,
    known: Known,
    trims: Trims,
    /// By chunk: the changes of the put that is under way.
    batches: HashMap<u64, Vec<Change>>,
    puts: u64,
    tasks: JoinSet<Event>,
    /// Callers that asked for the volume's state, which is undefined while puts are in flight.
    asked: Vec<Sender<Identity>>,
    is_telling: bool,
    is_looking: bool,
    session: u64,
    done: Vec<Completion>,
}

impl Worker {
    pub fn new(
        chunks: Chunks,
        standing: Arc<Standing>,
        options: &ObjectsOptions,
        completion_sender: CompletionSender<Completion>,
    ) -> Self {
        let turns_max = (TURN_BYTES_MAX / chunks.shape.chunk_bytes).clamp(1, TURNS_MAX);
        Worker {
            chunks,
            standing,
            look_every: options.look_every,
            completion_sender,
            jobs: Slab::new(),
            reads: VecDeque::new(),
            gets: 0,
            put_order: PutOrder::new(turns_max as usize),
            known: Known::default(),
            trims: Trims::default(),
            batches: HashMap::new(),
            puts: 0,
            tasks: JoinSet::new(),
            asked: Vec::new(),
            is_telling: false,
            is_looking: false,
            session: 0,
            done: Vec::new(),
        }
    }

    /// Works until the other side is gone; what is under way then may be done or not.
    pub async fn run(mut self, mut asks: UnboundedReceiver<Ask>) {
        // Opening the volume was a look already.
        let first = tokio::time::Instant::now() + self.look_every;
        let mut clock = tokio::time::interval_at(first, self.look_every);
        clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                ask = asks.recv() => match ask {
                    Some(ask) => self.take_ask(ask),
                    None => return,
                },
                Some(event) = self.tasks.join_next() => match event {
                    Ok(event) => self.arrive(event),
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                },
                _ = clock.tick() => self.look(),
            }
            // Other requests that have arrived share puts and wake-ups with it.
            while let Ok(ask) = asks.try_recv() {
                self.take_ask(ask);
            }
            self.start();
            self.completion_sender.put(self.done.drain(..));
            let session = self.standing.session();
            if session != self.session {
                self.session = session;
                self.completion_sender.ring();
            }
        }
    }

    fn take_ask(&mut self, ask: Ask) {
        let objects = self.chunks.objects.clone();
        match ask {
            Ask::Request(request) => self.take(request),
            Ask::Identity(sender) => self.asked.push(sender),
            // A caller that has given up needs no answer.
            Ask::Label(sender) => {
                _ = self.tasks.spawn(async move {
                    let _ = sender.send(label::get(&objects).await);
                    Event::Labelled
                })
            }
            Ask::SetLabel(text, sender) => {
                let refusal = self.standing.refusal().filter(|_| self.chunks.writer.is_some());
                self.tasks.spawn(async move {
                    let put = match refusal {
                        Some(refusal) => Err(refusal),
                        None => label::put(&objects, text).await,
                    };
                    let _ = sender.send(put);
                    Event::Labelled
                });
            }
        }
    }

    fn take(&mut self, request: Request) {
        let session = self.standing.session();
        let answer = request.answer(self.chunks.shape.size_bytes, self.chunks.writer.is_none());
        if let Some(result) = answer.or_else(|| self.standing.refusal().map(Err)) {
            return self.done.push(request.done(result, session));
        }
        let (op, offset, bytes) = (request.op, request.offset, request.bytes);
        if op == Op::Describe {
            // Which chunks there are is not known without asking for each.
            return self.done.push(request.done(Ok(()), session));
        }
        // It counts as a part itself until all are queued.
        let job = self.jobs.insert(Job { request, session, left: 1, error: None });
        if op == Op::Flush {
            return self.flush(job);
        }
        for part in self.chunks.shape.parts(offset, bytes) {
            let ChunkRange { chunk, from, to, at } = part;
            let change = match op {
                Op::Read => {
                    self.jobs[job].left += 1;
                    self.reads.push_back((job, part));
                    continue;
                }
                Op::Trim => {
                    let chunk_bytes = self.chunks.shape.bytes_of(chunk);
                    if !self.trims.add(part, chunk_bytes) {
                        continue;
                    }
                    Change { job, from: 0, to: chunk_bytes, source: None }
                }
                _ => {
                    self.trims.written(part);
                    Change { job, from, to, source: (op == Op::Write).then_some(at) }
                }
            };
            self.jobs[job].left += 1;
            self.put_order.push(chunk, change);
        }
        self.part_is_done(job, Ok(()));
    }

    /// All completed puts are durable. Whether this process was still
    /// the writer is known only after another look at the manifest.
    fn flush(&mut self, job: usize) {
        let Some((_, fence)) = &self.chunks.writer else { return self.part_is_done(job, Ok(())) };
        let (fence, since) = (fence.clone(), Instant::now());
        self.tasks.spawn(async move {
            let result = fence.lock().await.look(since).await;
            Event::Flushed { job, result }
        });
    }

    fn look(&mut self) {
        let Some((_, fence)) = &self.chunks.writer else { return };
        if std::mem::replace(&mut self.is_looking, true) {
            return;
        }
        let (fence, since) = (fence.clone(), Instant::now());
        self.tasks.spawn(async move {
            // An unreachable store is reported to the requests that need it.
            let _ = fence.lock().await.look(since).await;
            Event::Looked
        });
    }

    fn start(&mut self) {
        while self.gets < GETS_MAX
            && let Some((job, part)) = self.reads.pop_front()
        {
            self.gets += 1;
            let chunks = self.chunks.clone();
            self.tasks.spawn(async move { Event::Read { job, part, result: chunks.read(part).await } });
        }
        // A put during the query of the state would belong to that state.
        while !self.is_telling
            && let Some(chunk) = self.put_order.begin()
        {
            self.start_turn(chunk);
        }
        if self.put_order.is_idle() && !self.is_telling && !self.asked.is_empty() {
            self.is_telling = true;
            let (chunks, asked) = (self.chunks.clone(), std::mem::take(&mut self.asked));
            self.tasks.spawn(async move {
                let identity = state(&chunks).await;
                // The caller may have given up.
                asked.iter().for_each(|sender| drop(sender.send(identity.clone())));
                Event::Told
            });
        }
    }

    fn start_turn(&mut self, chunk: u64) {
        let whole = !cover(self.put_order.waiting(chunk), self.chunks.shape.bytes_of(chunk));
        if let (false, Some(expected)) = (whole, self.known.get(chunk).cloned()) {
            let is_empty = expected == Expected::Absent;
            return self.put(chunk, expected, is_empty, Vec::new());
        }
        let chunks = self.chunks.clone();
        self.tasks.spawn(async move { Event::Stored { chunk, result: chunks.stored(chunk, whole).await } });
    }

    /// Puts a chunk's object with all changes that wait for it. `is_empty`: it is known to be all zeroes so far.
    fn put(&mut self, chunk: u64, expected: Expected, is_empty: bool, object: Vec<u8>) {
        let batch = self.put_order.take(chunk);
        let mut object = apply(object, &batch, |job| &self.jobs[job].request.buffer);
        if is_empty && object.len() == HEADER_BYTES {
            self.known.set(chunk, expected);
            self.batch_is_done(batch, &Ok(()));
            return self.put_order.end(chunk);
        }
        let Some((writer, _)) = self.chunks.writer else { return self.put_order.end(chunk) };
        self.puts += 1;
        let put = self.puts;
        Header::seal(self.chunks.volume, writer, chunk, put, &mut object);
        self.batches.insert(chunk, batch);
        let chunks = self.chunks.clone();
        self.tasks.spawn(async move {
            let end = chunks.put(chunk, put, object.into(), expected).await;
            Event::Put { chunk, end }
        });
    }

    fn arrive(&mut self, event: Event) {
        match event {
            Event::Read { job, part, result } => {
                self.gets -= 1;
                let result = result.map(|bytes| {
                    let room = part.to - part.from;
                    let place = &mut self.jobs[job].request.buffer[part.at..part.at + room];
                    let (stored, zeroes) = place.split_at_mut(bytes.len().min(room));
                    stored.copy_from_slice(&bytes[..stored.len()]);
                    zeroes.fill(0);
                });
                self.part_is_done(job, result);
            }
            Event::Stored { chunk, result: Ok(stored) } => self.stored(chunk, stored),
            Event::Stored { chunk, result: Err(error) } => {
                let batch = self.put_order.take(chunk);
                self.batches.insert(chunk, batch);
                self.put_ended(chunk, PutEnd::Failed(error));
            }
            Event::Put { chunk, end } => self.put_ended(chunk, end),
            Event::Flushed { job, result } => self.part_is_done(job, result),
            Event::Looked => self.is_looking = false,
            Event::Told => self.is_telling = false,
            Event::Labelled => {}
        }
    }

    fn stored(&mut self, chunk: u64, stored: Stored) {
        let Stored { expected, header, object } = stored;
        let ours = |header: Header| self.chunks.writer.as_ref().is_some_and(|(me, _)| header.writer == *me);
        let is_as_known = self.known.get(chunk).is_none_or(|known| *known == expected);
        if !is_as_known && !header.is_some_and(ours) {
            let batch = self.put_order.take(chunk);
            self.batches.insert(chunk, batch);
            let chunks = self.chunks.clone();
            self.tasks.spawn(async move { Event::Put { chunk, end: chunks.conflict(chunk).await } });
            return;
        }
        let is_empty = header.is_none_or(|header| header.payload_bytes == 0);
        self.put(chunk, expected, is_empty, object.into());
    }

    fn put_ended(&mut self, chunk: u64, end: PutEnd) {
        let batch = self.batches.remove(&chunk).unwrap_or_default();
        match end {
            PutEnd::Done(expected, object) => {
                self.known.set(chunk, expected.clone());
                self.batch_is_done(batch, &Ok(()));
                // What came meanwhile needs no get, unless it had to wait for others to have their turn.
                if !self.put_order.waiting(chunk).is_empty() && !self.put_order.others_wait() {
                    let is_empty = object.len() == HEADER_BYTES;
                    return self.put(chunk, expected, is_empty, object.into());
                }
                self.put_order.end(chunk);
            }
            PutEnd::Again => {
                self.known.forget(chunk);
                self.put_order.put_back(chunk, batch);
                self.start_turn(chunk);
            }
            PutEnd::Failed(error) => {
                self.batch_is_done(batch, &Err(error));
                self.put_order.end(chunk);
            }
            PutEnd::Conflict(error) => {
                // Told once; if it is tried again, that is a change of what the other one has left.
                self.known.forget(chunk);
                self.batch_is_done(batch, &Err(error));
                self.put_order.end(chunk);
            }
        }
    }

    fn batch_is_done(&mut self, batch: Vec<Change>, result: &Result<(), BackingError>) {
        batch.iter().for_each(|change| self.part_is_done(change.job, result.clone()));
    }

    fn part_is_done(&mut self, job: usize, result: Result<(), BackingError>) {
        let it = &mut self.jobs[job];
        it.left -= 1;
        if let Err(error) = result {
            it.error.get_or_insert(error);
        }
        if it.left == 0 {
            let Job { request, session, error, .. } = self.jobs.remove(job);
            self.done.push(request.done(error.map_or(Ok(()), Err), session));
        }
    }
}

/// Identity and state of the volume.
async fn state(chunks: &Chunks) -> Identity {
    let changes = match &chunks.writer {
        Some((_, fence)) => fence.lock().await.state().await.ok(),
        None => manifest::find(&chunks.objects).await.ok().flatten().map(|(manifest, _)| manifest.changes),
    };
    identity_of(chunks.volume, changes)
}
