//! Client thread of an NBD backing store. It owns the connection, splits requests to sizes that the
//! server accepts, keeps them until they are answered, and sends them again over the next connection.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slab::Slab;
use tiermem_tier::block::completion_queue::CompletionSender;

use super::{Bell, NbdOptions};
use crate::nbd::client::{Event, ReplyError};
use crate::nbd::wire::{CommandFlags, PAYLOAD_BYTES_PORTABLE, STATE_HOLE, STATE_ZERO, TransmissionFlags};
use crate::nbd::{self, Command, Errno, NbdUri, Rules};
use crate::nbd_socket::{COPIED_BYTES_MAX, Link};
use tiermem_tier::backing::{self, BackingError, Completion, Op, Request};

/// The first pause after an attempt to connect that failed.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// Most bytes that a server is asked about at a time.
const DESCRIBED_BYTES_MAX: u64 = 1 << 31;

/// Zeroes for servers that do not know how to make them.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// A request that is not done.
struct Job {
    request: Request,
    /// Bytes of it that parts were issued for, and whether all is issued (a flush has no bytes).
    issued: u64,
    all_issued: bool,
    /// Parts that were not answered.
    parts: usize,
    /// Payloads in its buffer that were not sent.
    sending: usize,
    error: Option<BackingError>,
    /// What the server says of a range, from its begin on.
    extents: Vec<backing::Extent>,
}

/// One request to the server; its number is the cookie.
struct SentRequest {
    job: usize,
}

/// Why a connection is given up.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the server speaks nonsense: {0}")]
    Reply(#[from] ReplyError),
    #[error("the server is shutting down")]
    Shutdown,
}

enum State {
    Up(Box<Link>),
    Down {
        since: Instant,
        next_try: Instant,
        pause: Duration,
        why: String,
        /// There is a server, and it is not the one there was: waiting will not help.
        stranger: bool,
    },
}

pub(super) struct Client {
    uri: NbdUri,
    options: NbdOptions,
    requests: Receiver<Request>,
    bell: Arc<Bell>,
    completion_sender: CompletionSender<Completion>,
    session: Arc<AtomicU64>,
    /// What was agreed on first, which later servers must keep.
    first: Rules,
    state: State,
    jobs: Slab<Job>,
    /// Jobs with parts to issue, in order.
    ready: VecDeque<usize>,
    parts: Slab<SentRequest>,
    /// The job that data are arriving for, and the position in its buffer.
    data: (usize, usize),
    done: Vec<Completion>,
}

impl Client {
    pub(super) fn new(
        uri: NbdUri,
        options: NbdOptions,
        link: Link,
        requests: Receiver<Request>,
        bell: Arc<Bell>,
        completion_sender: CompletionSender<Completion>,
        session: Arc<AtomicU64>,
    ) -> Self {
        Client {
            uri,
            options,
            requests,
            bell,
            completion_sender,
            session,
            first: *link.rules(),
            state: State::Up(Box::new(link)),
            jobs: Slab::new(),
            ready: VecDeque::new(),
            parts: Slab::new(),
            data: (0, 0),
            done: Vec::new(),
        }
    }

    pub(super) fn run(mut self) {
        while self.take_requests() {
            let step = match &mut self.state {
                State::Up(_) => self.converse(),
                State::Down { .. } => {
                    self.try_again();
                    Ok(())
                }
            };
            if let Err(broken) = step {
                self.mourn(&broken);
            }
            self.completion_sender.put(self.done.drain(..));
            self.sleep();
        }
        if let State::Up(link) = &mut self.state
            && !link.has_output()
        {
            let goodbye = nbd::Request {
                cookie: 0,
                command: Command::Disconnect,
                flags: CommandFlags::none(),
                offset: 0,
                len_bytes: 0,
            };
            if let Ok(header) = link.transmission.issue(goodbye) {
                link.put(&header);
                let _ = link.send(|_| &[], |_| ());
            }
        }
    }

    /// `false` when there will be no more.
    fn take_requests(&mut self) -> bool {
        self.bell.heard();
        loop {
            match self.requests.try_recv() {
                Ok(request) => {
                    let job = Job {
                        request,
                        issued: 0,
                        all_issued: false,
                        parts: 0,
                        sending: 0,
                        error: None,
                        extents: Vec::new(),
                    };
                    let number = self.jobs.insert(job);
                    self.ready.push_back(number);
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Waits for the bell, for the socket, or for the time of the next attempt.
    fn sleep(&self) {
        let mut fds = vec![PollFd::new(&self.bell.event, PollFlags::IN)];
        let mut until = None;
        let socket;
        match &self.state {
            State::Up(link) => {
                let wanted = if link.has_output() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
                socket = link.as_fd();
                fds.push(PollFd::new(&socket, wanted));
            }
            State::Down { since, next_try, .. } => {
                let deadline = *since + self.options.timeout;
                let waits = !self.jobs.is_empty() && deadline > Instant::now();
                until = Some(if waits { deadline.min(*next_try) } else { *next_try });
            }
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        // An error is an interruption: the loop looks at everything anyway.
        let _ = poll(&mut fds, timeout.as_ref());
    }

    /// Sends and receives what can be now.
    fn converse(&mut self) -> Result<(), Broken> {
        loop {
            self.issue();
            let State::Up(link) = &mut self.state else { return Ok(()) };
            let (jobs, mut sent) = (&self.jobs, Vec::new());
            link.send(|job| &jobs[job].request.buffer[..], |job| sent.push(job))?;
            for job in sent {
                self.jobs[job].sending -= 1;
                self.end_if_done(job);
            }
            if !self.receive()? {
                return Ok(());
            }
        }
    }

    /// Issues parts while the server may have more of them.
    fn issue(&mut self) {
        while let Some(number) = self.ready.front().copied() {
            if self.parts.len() >= self.options.depth.max(1) {
                return;
            }
            self.issue_part(number);
            if self.jobs.get(number).is_none_or(|job| job.all_issued) {
                self.ready.pop_front();
            }
            self.end_if_done(number);
        }
    }

    fn issue_part(&mut self, number: usize) {
        let State::Up(link) = &mut self.state else { return };
        let job = &mut self.jobs[number];
        let rules = *link.rules();
        let offers = |flag| rules.flags.contains(flag);
        let least = u64::from(rules.block.minimum.max(1));
        let payload_max = u64::from(rules.block.payload_max.min(PAYLOAD_BYTES_PORTABLE)) / least * least;
        let mut bytes = (job.request.bytes - job.issued).min(payload_max.max(least));
        let mut zeroes = false;
        let mut described_from = 0;
        let command = match job.request.op {
            Op::Read => Command::Read,
            Op::Write => Command::Write,
            // A server that has no flush has nothing to flush, and one without trim keeps what it may.
            Op::Flush if !offers(TransmissionFlags::SEND_FLUSH) => {
                job.all_issued = true;
                return;
            }
            Op::Flush => Command::Flush,
            Op::Trim if !offers(TransmissionFlags::SEND_TRIM) => {
                job.all_issued = true;
                return;
            }
            Op::Trim => Command::Trim,
            Op::Zero if offers(TransmissionFlags::SEND_WRITE_ZEROES) => Command::WriteZeroes,
            Op::Describe if !link.tells_allocation() => {
                job.all_issued = true;
                return;
            }
            Op::Describe => {
                // It moves no bytes of the volume, and the server may answer for less; whole blocks around what is wanted.
                described_from = job.request.offset / least * least;
                let end = (job.request.offset + job.request.bytes).next_multiple_of(least);
                bytes = (end - described_from).min(DESCRIBED_BYTES_MAX / least * least);
                Command::BlockStatus
            }
            Op::Zero => {
                zeroes = true;
                bytes = bytes.min(ZEROES.len() as u64);
                Command::Write
            }
        };
        let (at, flags) = (job.issued, CommandFlags::none());
        job.issued += bytes;
        job.all_issued = job.issued >= job.request.bytes || job.request.op == Op::Describe;
        let cookie = self.parts.insert(SentRequest { job: number });
        let is_description = job.request.op == Op::Describe;
        let offset = if is_description { described_from } else { job.request.offset + at };
        let len_bytes = bytes as u32;
        match link.transmission.issue(nbd::Request {
            cookie: cookie as u64,
            command,
            flags,
            offset,
            len_bytes,
        }) {
            Ok(header) => {
                job.parts += 1;
                link.put(&header);
                let (from, to) = (at as usize, (at + bytes) as usize);
                match command {
                    Command::Write if zeroes => link.put(&ZEROES[..bytes as usize]),
                    Command::Write if to - from <= COPIED_BYTES_MAX => {
                        link.put(&job.request.buffer[from..to])
                    }
                    Command::Write => {
                        job.sending += 1;
                        link.put_payload(number, from, to);
                    }
                    _ => {}
                }
            }
            // It was right for the first server, and is not for this one.
            Err(error) => {
                self.parts.remove(cookie);
                job.all_issued = true;
                job.error = Some(BackingError::Failed(format!("{} does not take it: {error}", self.uri)));
            }
        }
    }

    fn end_if_done(&mut self, number: usize) {
        let Some(job) = self.jobs.get(number) else { return };
        if job.all_issued && job.parts == 0 && job.sending == 0 {
            let Job { request, error, extents, .. } = self.jobs.remove(number);
            let session = self.session.load(Ordering::Acquire);
            self.done.push(match error {
                None if request.op == Op::Describe => request.described(extents, session),
                error => request.done(error.map_or(Ok(()), Err), session),
            });
        }
    }

    /// Returns `false` when nothing more can be read now.
    fn receive(&mut self) -> Result<bool, Broken> {
        let State::Up(link) = &mut self.state else { return Ok(false) };
        let left = link.transmission.payload_left() as usize;
        if left > 0 && link.is_drained() {
            let (job, at) = self.data;
            let read = link.read_data(&mut self.jobs[job].request.buffer[at..at + left])?;
            self.data.1 += read.unwrap_or(0);
            if link.transmission.payload_left() > 0 {
                return Ok(read.is_some());
            }
        }
        let (jobs, parts, data) = (&mut self.jobs, &mut self.parts, &mut self.data);
        let mut answered = Vec::new();
        // Where the last data went past the machine, it has the reply's end to tell and needs nothing for that.
        let got = link.receive(left == 0, |transmission, input| {
            loop {
                let payload = transmission.payload(input);
                if !payload.is_empty() {
                    jobs[data.0].request.buffer[data.1..data.1 + payload.len()].copy_from_slice(payload);
                    data.1 += payload.len();
                }
                let Some(event) = transmission.next(input)? else { return Ok::<(), Broken>(()) };
                match event {
                    Event::Data { cookie, offset, .. } => {
                        let job = parts[cookie as usize].job;
                        *data = (job, (offset - jobs[job].request.offset) as usize);
                    }
                    Event::Hole { cookie, offset, len_bytes } => {
                        let request = &mut jobs[parts[cookie as usize].job].request;
                        let at = (offset - request.offset) as usize;
                        request.buffer[at..at + len_bytes as usize].fill(0);
                    }
                    Event::Error { cookie, error, message, .. } if !message.is_empty() => {
                        let job = &mut jobs[parts[cookie as usize].job];
                        job.error = Some(told(error, &message.escape_debug().to_string()));
                    }
                    Event::Done { result: Err(Errno::Shutdown), .. } => return Err(Broken::Shutdown),
                    Event::Done { cookie, result } => {
                        let number = parts.remove(cookie as usize).job;
                        let job = &mut jobs[number];
                        job.parts -= 1;
                        if let Err(error) = result {
                            // The rest need not be tried.
                            job.all_issued = true;
                            job.error = Some(job.error.take().unwrap_or_else(|| told(error, "")));
                        }
                        answered.push(number);
                    }
                    Event::Extent { cookie, offset, extent, .. } => {
                        let job = &mut jobs[parts[cookie as usize].job];
                        let wanted = job.request.offset..job.request.offset + job.request.bytes;
                        // The first may begin before what is wanted, and the last reach beyond it.
                        let end = (offset + u64::from(extent.len_bytes)).min(wanted.end);
                        let bytes = end.saturating_sub(offset.max(wanted.start));
                        if bytes > 0 && job.extents.len() < backing::EXTENTS_MAX {
                            job.extents.push(backing::Extent {
                                bytes,
                                is_hole: extent.flags & STATE_HOLE != 0,
                                is_zero: extent.flags & STATE_ZERO != 0,
                            });
                        }
                    }
                    Event::Error { .. } => {}
                }
            }
        })?;
        for number in answered {
            if self.jobs.get(number).is_some_and(|job| job.error.is_some()) {
                self.ready.retain(|ready| *ready != number);
            }
            self.end_if_done(number);
        }
        Ok(got)
    }

    /// The connection is gone: what was not answered starts anew.
    fn mourn(&mut self, broken: &Broken) {
        let now = Instant::now();
        self.state = State::Down {
            since: now,
            next_try: now,
            pause: PAUSE_MIN,
            why: broken.to_string(),
            stranger: false,
        };
        // Before anything of the next connection can be taken.
        self.session.fetch_add(1, Ordering::AcqRel);
        self.parts.clear();
        self.ready.clear();
        for (number, job) in &mut self.jobs {
            (job.issued, job.all_issued, job.parts, job.sending, job.error) = (0, false, 0, 0, None);
            job.extents.clear();
            self.ready.push_back(number);
        }
        self.completion_sender.ring();
    }

    fn try_again(&mut self) {
        let State::Down { since, next_try, pause, why, stranger } = &mut self.state else { return };
        if *next_try <= Instant::now() {
            match Link::connect(&self.uri, self.options.attempt) {
                Ok(link) => match stays(&self.first, link.rules()) {
                    Ok(()) => {
                        self.state = State::Up(Box::new(link));
                        // Nothing has arrived yet that would end the sleep.
                        self.bell.ring();
                        return;
                    }
                    Err(words) => (*why, *stranger) = (words, true),
                },
                Err(words) => (*why, *stranger) = (words, false),
            }
            *next_try = Instant::now() + *pause;
            *pause = (*pause * 2).min(self.options.pause_max);
        }
        if !*stranger && since.elapsed() < self.options.timeout {
            return;
        }
        let error = BackingError::Failed(format!("{} cannot be reached: {why}", self.uri));
        let session = self.session.load(Ordering::Acquire);
        self.ready.clear();
        for job in self.jobs.drain() {
            self.done.push(job.request.done(Err(error.clone()), session));
        }
    }
}

fn told(error: Errno, message: &str) -> BackingError {
    match error {
        Errno::NoSpc => BackingError::Full,
        Errno::Perm => BackingError::ReadOnly,
        _ if message.is_empty() => BackingError::Failed(format!("the server says: {error}")),
        _ => BackingError::Failed(format!("the server says: {error} ({message})")),
    }
}

/// Whether a server that was found again has what the first one had.
fn stays(first: &Rules, now: &Rules) -> Result<(), String> {
    if now.size_bytes != first.size_bytes {
        let (was, is) = (first.size_bytes, now.size_bytes);
        return Err(format!("the volume had {was} bytes and has {is} now; restart with the right one"));
    }
    if now.block.minimum > first.block.minimum {
        let (was, is) = (first.block.minimum, now.block.minimum);
        return Err(format!("the server's least block was {was} bytes and is {is} now; restart"));
    }
    Ok(())
}
