//! Replay loop: takes requests from the trace, sends them and takes their replies.
//!
//! A worker is in one of four states. *Idle*: its number is free in [`Order`]. *Waiting*: it has a
//! request that must wait for others, and no connection. *Sent*: one part of its request is in flight
//! on its connection, whose `load` counts it. *Answered*: the part's reply has arrived and `answered`
//! has the worker's number, but only once its buffer is sent as well, since the buffer belongs to the
//! socket until then. From there it sends the next part or becomes idle, which may make others ready.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{current_timer_slack, set_current_timer_slack};
use tiermem_base::Access;
use tiermem_live::Pace;

use super::connection::{Broken, Line, Worker};
use super::expected_content::ExpectedContent;
use super::figures::{Complaint, End, Figures, Outcome, Wrong};
use super::layout::{Layout, Span};
use super::order::Order;
use super::pattern::{SECTOR, SECTOR_BYTES};
use super::{Options, ReplayError, Survey};
use crate::nbd::wire::TransmissionFlags;
use crate::nbd_socket::Link;

/// Time between reports of progress and checks for a stall.
const TICK: Duration = Duration::from_millis(100);
/// The most connections to one export, and, one for each excepted, to all of them: a process has 1024 files as a rule.
const CONNECTIONS_MAX: usize = 64;
const CONNECTIONS_ALL_MAX: usize = 512;
/// Number of errors reported one by one.
const COMPLAINTS_MAX: usize = 16;
/// Time for requests in flight to end when the replay is stopped.
const GRACE: Duration = Duration::from_secs(5);

type Trace<'a> = dyn Iterator<Item = Result<Access, ReplayError>> + 'a;

/// The trace's next request, not yet taken by a worker.
struct Next {
    span: Span,
    due: Option<Instant>,
}

struct Driver<'a> {
    options: &'a Options,
    layout: Layout,
    lines: Vec<Line>,
    /// By the numbers that [`Order`] gives: those of its entries are at work.
    workers: Vec<Worker>,
    order: Order,
    expected_contents: Vec<ExpectedContent>,
    next: Option<Next>,
    exhausted: bool,
    /// When the replay began, and the time in the trace that corresponds to that moment.
    began: Instant,
    first_ns: Option<u64>,
    /// Records that were read.
    read: u64,
    /// What was due last, as time in the trace never goes back here.
    last_due: Option<Instant>,
    taken: u64,
    version: u32,
    /// Requests that may be sent, having waited for others; workers with a reply to look at.
    ready: Vec<usize>,
    answered: Vec<usize>,
    /// When a reply came last, or when there began to be something to wait for.
    heard: Instant,
    measured_from: Option<Instant>,
    measured_to: Option<Instant>,
    figures: Vec<Figures>,
    skipped: u64,
    done: u64,
    complaints: Vec<Complaint>,
}

pub(super) fn run(
    options: &Options,
    survey: &Survey,
    trace: &mut Trace<'_>,
    progress: &mut dyn FnMut(u64),
    stop: &dyn Fn() -> bool,
) -> Result<Outcome, ReplayError> {
    let mut driver = Driver::new(options, survey)?;
    // The kernel may wake a thread 50 us late to save power; that would be in every latency of a timed replay.
    let slack = match options.pace {
        Pace::Rate(_) | Pace::Speed(_) => current_timer_slack().ok(),
        Pace::Closed => None,
    };
    if slack.is_some() {
        // If this is refused, latencies are that much longer, which the lateness shows.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
    }
    let end = driver.run(trace, progress, stop);
    if let Some(slack) = slack {
        let _ = set_current_timer_slack(NonZeroU64::new(slack));
    }
    Ok(driver.finish(end?))
}

impl<'a> Driver<'a> {
    /// Connects to all exports.
    fn new(options: &'a Options, survey: &Survey) -> Result<Self, ReplayError> {
        let workers = options.workers.max(1);
        let share = (CONNECTIONS_ALL_MAX / options.targets.len().max(1)).max(1);
        let (mut lines, mut exports) = (Vec::new(), Vec::new());
        for (export, target) in options.targets.iter().enumerate() {
            let connect = || {
                Link::connect(&target.uri, options.attempt)
                    .map_err(|why| ReplayError::Connect { uri: target.uri.to_string(), why })
            };
            let first = connect()?;
            let rules = *first.rules();
            exports.push((rules.size_bytes, rules.block.minimum.max(1)));
            lines.push(Line::new(first, export));
            // Without this flag a server may show one connection what another has written only later.
            if rules.flags.contains(TransmissionFlags::CAN_MULTI_CONN) {
                for _ in 1..workers.min(CONNECTIONS_MAX).min(share) {
                    lines.push(Line::new(connect()?, export));
                }
            }
        }
        let layout = Layout::new(survey, &options.targets, &exports, options.wrap)?;
        let now = Instant::now();
        let count = options.targets.len();
        Ok(Driver {
            options,
            layout,
            lines,
            workers: (0..workers).map(|_| Worker::idle(now)).collect(),
            order: Order::default(),
            expected_contents: (0..count)
                .map(|export| ExpectedContent::new(options.seed, export as u32))
                .collect(),
            next: None,
            exhausted: false,
            began: now,
            first_ns: None,
            read: 0,
            last_due: None,
            taken: 0,
            version: 0,
            ready: Vec::new(),
            answered: Vec::new(),
            heard: now,
            measured_from: None,
            measured_to: None,
            figures: vec![Figures::default(); count],
            skipped: 0,
            done: 0,
            complaints: Vec::new(),
        })
    }

    /// Replays until there is an end.
    fn run(
        &mut self,
        trace: &mut Trace<'_>,
        progress: &mut dyn FnMut(u64),
        stop: &dyn Fn() -> bool,
    ) -> Result<End, ReplayError> {
        let mut told = self.began;
        let mut stopped_at: Option<Instant> = None;
        let end = loop {
            if stopped_at.is_none() {
                if stop() {
                    stopped_at = Some(Instant::now());
                } else {
                    self.take(trace)?;
                }
            }
            if self.order.is_empty() && (self.exhausted || stopped_at.is_some()) {
                break if stopped_at.is_some() { End::Stopped } else { End::Whole };
            }
            if let Err((export, why)) = self.converse() {
                let under_way = self.order.len();
                break End::Broken { under_way, why: format!("{}: {why}", self.options.targets[export].uri) };
            }
            let now = Instant::now();
            if let Some(stuck) = self.stuck(now, stopped_at) {
                break stuck;
            }
            if now.duration_since(told) >= TICK {
                told = now;
                progress(self.done);
            }
        };
        progress(self.done);
        Ok(end)
    }

    /// Gives requests to free workers, as long as they are due.
    fn take(&mut self, trace: &mut Trace<'_>) -> Result<(), ReplayError> {
        while self.order.len() < self.workers.len() {
            let Some(next) = self.next(trace)? else { return Ok(()) };
            if next.due.is_some_and(|due| due > Instant::now()) {
                self.next = Some(next);
                return Ok(());
            }
            let span = next.span;
            if self.order.is_empty() {
                self.heard = Instant::now();
            }
            let (number, free) =
                self.order.take(span.export, span.offset, span.offset + span.bytes, span.write);
            if span.write {
                self.version = self.version.wrapping_add(1);
            }
            // Requests are numbered as they are taken, which is the order in which overlapping ones are done.
            let worker = &mut self.workers[number];
            (worker.span, worker.due, worker.version) = (span, next.due, self.version);
            (worker.done, worker.measured) = (0, self.taken >= self.options.warm_up);
            if worker.measured && self.measured_from.is_none() {
                self.measured_from = Some(next.due.unwrap_or_else(Instant::now));
            }
            self.taken += 1;
            if free {
                self.start(number);
            }
            // Workers with a request that the export does not take are free again.
            self.settle();
        }
        Ok(())
    }

    /// The next request of the trace, and when it is due.
    fn next(&mut self, trace: &mut Trace<'_>) -> Result<Option<Next>, ReplayError> {
        if let Some(next) = self.next.take() {
            return Ok(Some(next));
        }
        while !self.exhausted {
            let Some(access) = trace.next().transpose()? else {
                self.exhausted = true;
                break;
            };
            let from = *self.first_ns.get_or_insert(access.time_ns);
            let due_ns = self.options.pace.due_ns(self.read, access.time_ns.saturating_sub(from));
            self.read += 1;
            let due = due_ns.and_then(|due_ns| {
                // At most 584 years, which the clock can count.
                let due = self.began.checked_add(Duration::from_nanos(due_ns));
                self.last_due = self.last_due.max(due);
                self.last_due
            });
            match self.layout.place(&access)? {
                Some(span) => return Ok(Some(Next { span, due })),
                None => {
                    self.skipped += 1;
                    self.done += 1;
                }
            }
        }
        Ok(None)
    }

    /// Sends a worker's request, over the connection of its export that has the least to do.
    fn start(&mut self, number: usize) {
        let worker = &mut self.workers[number];
        let of_export = |(_, line): &(usize, &Line)| line.export == worker.span.export;
        let least = self.lines.iter().enumerate().filter(of_export).min_by_key(|(_, line)| line.load);
        worker.line = least.map_or(0, |(at, _)| at);
        self.lines[worker.line].load += 1;
        worker.sent = Instant::now();
        if let Some(due) = worker.due.filter(|_| worker.measured) {
            let late = worker.sent.saturating_duration_since(due);
            self.figures[worker.span.export].lateness.record(late);
        }
        self.issue(number);
    }

    /// Issues the next part of a worker's request.
    fn issue(&mut self, number: usize) {
        let worker = &mut self.workers[number];
        let line = &mut self.lines[worker.line];
        worker.part = line.part_bytes(worker.span.bytes - worker.done);
        worker.answer = None;
        worker.buffer.resize(worker.part as usize, 0);
        if worker.span.write {
            let (expected_content, first) =
                (&self.expected_contents[worker.span.export], worker.part_offset() / SECTOR_BYTES);
            for (sector, bytes) in (first..).zip(worker.buffer.as_chunks_mut::<SECTOR>().0) {
                expected_content.stamp(sector, worker.version).fill(bytes);
            }
        }
        if let Err(words) = line.issue(number, worker) {
            worker.answer = Some((Err(words), Instant::now()));
            self.answered.push(number);
        }
    }

    /// Sends and receives, waiting for it no longer than to the next tick or request.
    fn converse(&mut self) -> Result<(), (usize, Broken)> {
        for line in &mut self.lines {
            if line.link.has_output() {
                line.send(&mut self.workers, &mut self.answered).map_err(|broken| (line.export, broken))?;
            }
        }
        self.settle();
        for at in self.wait() {
            let line = &mut self.lines[at];
            line.receive(&mut self.workers, &mut self.answered).map_err(|broken| (line.export, broken))?;
        }
        if !self.answered.is_empty() {
            self.heard = Instant::now();
        }
        self.settle();
        Ok(())
    }

    /// The connections at which something can be done.
    fn wait(&self) -> Vec<usize> {
        let now = Instant::now();
        let free = self.order.len() < self.workers.len();
        let due = self.next.as_ref().filter(|_| free).and_then(|next| next.due);
        // What was settled may have left something to send.
        let pause = due.map_or(TICK, |due| due.saturating_duration_since(now).min(TICK));
        let wanted = |line: &Line| match line.link.has_output() {
            true => PollFlags::IN | PollFlags::OUT,
            false => PollFlags::IN,
        };
        let sockets: Vec<_> = self.lines.iter().map(|line| line.link.as_fd()).collect();
        let mut fds: Vec<_> =
            sockets.iter().zip(&self.lines).map(|(fd, line)| PollFd::new(fd, wanted(line))).collect();
        // An error is an interruption: the loop looks at everything anyway.
        let _ = poll(&mut fds, Timespec::try_from(pause).ok().as_ref());
        let readable = |fd: &PollFd<'_>| fd.revents().intersects(!PollFlags::OUT);
        (0..).zip(&fds).filter(|(_, fd)| readable(fd)).map(|(at, _)| at).collect()
    }

    /// Processes every reply that has arrived, and sends the parts that are ready.
    fn settle(&mut self) {
        loop {
            if let Some(number) = self.answered.pop() {
                self.part_is_done(number);
            } else if let Some(number) = self.ready.pop() {
                self.start(number);
            } else {
                return;
            }
        }
    }

    fn part_is_done(&mut self, number: usize) {
        let worker = &mut self.workers[number];
        let Some((result, at)) = worker.answer.take() else { return };
        let (export, write, offset, part) =
            (worker.span.export, worker.span.write, worker.part_offset(), worker.part);
        let (first, sectors) = (offset / SECTOR_BYTES, part / SECTOR_BYTES);
        let (expected_content, figures) = (&mut self.expected_contents[export], &mut self.figures[export]);
        let failed = result.is_err();
        let mut wrong = None;
        match result {
            // It may have been done in part, or all of it.
            Err(words) => {
                figures.errors += 1;
                wrong = Some(Wrong::Refused(words));
                if write && self.options.verify {
                    expected_content.lost(first, sectors);
                }
            }
            // No other request is at these sectors: the expected content was there when the request was sent.
            Ok(()) if !self.options.verify => {}
            Ok(()) if write => expected_content.written(first, sectors, worker.version),
            Ok(()) => {
                let (differing, mismatch) = expected_content.check(first, &worker.buffer);
                figures.mismatches += differing;
                wrong = mismatch.map(Wrong::Differs);
            }
        }
        worker.done += part;
        let (whole, measured) = (worker.done == worker.span.bytes, worker.measured);
        if let Some(what) = wrong.filter(|_| self.complaints.len() < COMPLAINTS_MAX) {
            let op = if write { "write" } else { "read" };
            let volume = worker.span.volume;
            self.complaints.push(Complaint { export, volume, op, offset, bytes: part, what });
        }
        if !failed && !whole {
            return self.issue(number);
        }
        if measured {
            self.measured_to = self.measured_to.max(Some(at));
        }
        if measured && !failed {
            let side = if write { &mut figures.writes } else { &mut figures.reads };
            side.requests += 1;
            side.bytes += worker.span.bytes;
            side.latency.record(at.saturating_duration_since(worker.due.unwrap_or(worker.sent)));
            figures.widened += u64::from(worker.span.widened);
            figures.wrapped += u64::from(worker.span.wrapped);
        }
        self.lines[worker.line].load -= 1;
        self.done += 1;
        self.order.done(number, &mut self.ready);
    }

    /// Whether nothing is to be hoped for any more.
    fn stuck(&self, now: Instant, stopped_at: Option<Instant>) -> Option<End> {
        if self.order.is_empty() {
            return None;
        }
        let silence = now.saturating_duration_since(self.heard);
        if stopped_at.is_some_and(|at| now.saturating_duration_since(at) > GRACE) {
            return Some(End::Stopped);
        }
        if silence <= self.options.stall {
            return None;
        }
        // Any connection with requests in flight represents all of them.
        let line = self.lines.iter().find(|line| line.load > 0);
        let uri = line.map(|line| self.options.targets[line.export].uri.to_string()).unwrap_or_default();
        let why = format!("{uri}: no reply for {:.0} s", silence.as_secs_f64());
        Some(End::Broken { under_way: self.order.len(), why })
    }

    fn finish(mut self, end: End) -> Outcome {
        let mut connections = vec![0; self.options.targets.len()];
        for line in &mut self.lines {
            connections[line.export] += 1;
            line.leave(&self.workers);
        }
        let elapsed = match (self.measured_from, self.measured_to) {
            (Some(from), Some(to)) => to.saturating_duration_since(from),
            _ => Duration::ZERO,
        };
        Outcome {
            exports: self.figures,
            connections,
            elapsed,
            skipped: self.skipped,
            complaints: self.complaints,
            end,
        }
    }
}
