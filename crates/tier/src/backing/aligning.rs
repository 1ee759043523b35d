//! Alignment adapter: serves arbitrary byte ranges from a store that takes only whole units.
//!
//! A request that does not fit is split into pieces: the whole units in its middle, the parts of units at its ends,
//! and the bytes behind the volume's last whole unit. A part is read by reading its unit, and written by reading
//! its unit, changing it and writing it back. Two such writes of one unit take turns, since the second must read
//! what the first has written. No other request in flight can touch the unit, as it would touch the part as well.

use std::collections::{HashMap, VecDeque};

use slab::Slab;

use super::{AlignedBuffer, Backing, BackingError, Completion, Identity, Op, Request, StoreLabel, Waker};

/// The wrapper. The store inside is given requests that begin and end at multiples of the unit, or that lie behind the last whole
/// unit of the volume. Only what it is asked to describe may be any range.
pub struct Aligning<B> {
    inner: B,
    unit_bytes: u64,
    /// Whether buffers must be as long as the request.
    exact: bool,
    cut: Slab<Cut>,
    pieces: Slab<Piece>,
    /// By unit: writes of its parts that wait for the one under way.
    turns: HashMap<u64, VecDeque<usize>>,
    done: Vec<Completion>,
    arrived: Vec<Completion>,
    in_flight: usize,
    waker: Option<Waker>,
}

/// A request that was cut.
struct Cut {
    request: Request,
    /// Pieces that are not done.
    left: usize,
    /// The first error and the oldest session of its pieces.
    result: Result<(), super::BackingError>,
    session: u64,
}

/// The part of a request that a request to the inner store belongs to.
enum Piece {
    /// The caller's own request with this token.
    Whole(u64),
    /// Bytes `from..to` of the volume.
    Of { cut: usize, from: u64, to: u64, step: Step },
}

#[derive(Clone, Copy)]
enum Step {
    /// The request inside is about just these bytes.
    Plain,
    /// Their unit is read for them.
    ReadUnit,
    /// Their unit is read to be changed.
    ReadToChange,
    /// Their unit is written back.
    WriteBack,
}

impl<B: Backing> Aligning<B> {
    /// Wraps a store. With `exact` it needs buffers that are no longer than the request.
    ///
    /// # Panics
    ///
    /// When the unit is 0.
    pub fn new(inner: B, unit_bytes: u64, exact: bool) -> Self {
        assert!(unit_bytes > 0, "a unit has bytes");
        Aligning {
            inner,
            unit_bytes,
            exact,
            cut: Slab::new(),
            pieces: Slab::new(),
            turns: HashMap::new(),
            done: Vec::new(),
            arrived: Vec::new(),
            in_flight: 0,
            waker: None,
        }
    }

    /// The store inside.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    fn unit_of(&self, byte: u64) -> u64 {
        byte / self.unit_bytes * self.unit_bytes
    }

    /// Whether the store inside takes it as it is.
    fn fits(&self, request: &Request) -> bool {
        let whole = self.unit_of(self.inner.size_bytes());
        let aligned = request.offset.is_multiple_of(self.unit_bytes)
            && request.end().is_multiple_of(self.unit_bytes)
            && request.end() <= whole;
        let exact = !self.exact || request.buffer.len() as u64 == request.bytes || request.buffer.is_empty();
        matches!(request.op, Op::Flush | Op::Describe) || request.offset >= whole || (aligned && exact)
    }

    fn cut(&mut self, request: Request) {
        let whole = self.unit_of(self.inner.size_bytes());
        let (start, end) = (request.offset, request.end());
        let (op, middle_end) = (request.op, end.min(whole));
        let session = u64::MAX;
        let cut = self.cut.insert(Cut { request, left: 1, result: Ok(()), session });
        if start < middle_end {
            let (first, last) = (self.unit_of(start + self.unit_bytes - 1), self.unit_of(middle_end));
            if first > last {
                self.part(cut, op, start, middle_end);
            } else {
                self.part(cut, op, start, first);
                self.plain(cut, op, first, last);
                self.part(cut, op, last, middle_end);
            }
        }
        self.plain(cut, op, start.max(whole), end);
        // It counted as a piece itself, so that none of its pieces could end it before all were there.
        self.piece_is_done(cut, Ok(()), u64::MAX);
    }

    fn plain(&mut self, cut: usize, op: Op, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let parent = &mut self.cut[cut];
        let mut buffer = AlignedBuffer::empty();
        if matches!(op, Op::Read | Op::Write) {
            buffer = AlignedBuffer::zeroed((to - from) as usize);
        }
        if op == Op::Write {
            copy(&mut buffer, 0, &parent.request.buffer, (from - parent.request.offset) as usize, to - from);
        }
        self.start(op, from, to - from, buffer, Piece::Of { cut, from, to, step: Step::Plain });
        self.cut[cut].left += 1;
    }

    /// A part of one unit.
    fn part(&mut self, cut: usize, op: Op, from: u64, to: u64) {
        // What is given back need not be; so the whole units suffice.
        if from >= to || op == Op::Trim {
            return;
        }
        self.cut[cut].left += 1;
        if op == Op::Read {
            return self.start_unit(Piece::Of { cut, from, to, step: Step::ReadUnit }, from);
        }
        let piece = Piece::Of { cut, from, to, step: Step::ReadToChange };
        let unit = self.unit_of(from);
        if let Some(waiting) = self.turns.get_mut(&unit) {
            let number = self.pieces.insert(piece);
            return waiting.push_back(number);
        }
        self.turns.insert(unit, VecDeque::new());
        self.start_unit(piece, from);
    }

    fn start_unit(&mut self, piece: Piece, byte: u64) {
        let buffer = AlignedBuffer::zeroed(self.unit_bytes as usize);
        self.start(Op::Read, self.unit_of(byte), self.unit_bytes, buffer, piece);
    }

    fn start(&mut self, op: Op, offset: u64, bytes: u64, buffer: AlignedBuffer, piece: Piece) {
        let token = self.pieces.insert(piece) as u64;
        self.inner.submit(Request { token, op, offset, bytes, buffer });
    }

    fn arrive(&mut self, mut completion: Completion) {
        let (cut, from, to, step) = match self.pieces.remove(completion.token as usize) {
            Piece::Whole(token) => {
                completion.token = token;
                return self.done.push(completion);
            }
            Piece::Of { cut, from, to, step } => (cut, from, to, step),
        };
        let Completion { offset, mut buffer, result, session, .. } = completion;
        let parent = &mut self.cut[cut].request;
        let (inside, outside) = ((from - offset) as usize, (from - parent.offset) as usize);
        let ok = result.is_ok();
        match step {
            Step::Plain | Step::ReadUnit if ok && parent.op == Op::Read => {
                copy(&mut parent.buffer, outside, &buffer, inside, to - from);
            }
            Step::ReadToChange if ok => {
                match parent.op {
                    Op::Write => copy(&mut buffer, inside, &parent.buffer, outside, to - from),
                    _ => buffer[inside..inside + (to - from) as usize].fill(0),
                }
                let piece = Piece::Of { cut, from, to, step: Step::WriteBack };
                return self.start(Op::Write, offset, self.unit_bytes, buffer, piece);
            }
            Step::ReadToChange | Step::WriteBack => self.next_turn(offset),
            Step::Plain | Step::ReadUnit => {}
        }
        self.piece_is_done(cut, result, session);
    }

    fn next_turn(&mut self, unit: u64) {
        let Some(waiting) = self.turns.get_mut(&unit) else { return };
        match waiting.pop_front() {
            Some(number) => {
                let piece = self.pieces.remove(number);
                self.start_unit(piece, unit);
            }
            None => {
                self.turns.remove(&unit);
            }
        }
    }

    fn piece_is_done(&mut self, cut: usize, result: Result<(), super::BackingError>, session: u64) {
        let parent = &mut self.cut[cut];
        parent.left -= 1;
        parent.session = parent.session.min(session);
        if parent.result.is_ok() {
            parent.result = result;
        }
        if parent.left == 0 {
            let Cut { request, result, session, .. } = self.cut.remove(cut);
            // Nothing had to be done, as for the trim of a part.
            let session = session.min(self.inner.session());
            self.answer(request.done(result, session));
        }
    }

    fn answer(&mut self, completion: Completion) {
        self.done.push(completion);
        if let Some(waker) = &self.waker {
            waker();
        }
    }
}

fn copy(to: &mut [u8], to_at: usize, from: &[u8], from_at: usize, bytes: u64) {
    let bytes = bytes as usize;
    to[to_at..to_at + bytes].copy_from_slice(&from[from_at..from_at + bytes]);
}

impl<B: Backing> Backing for Aligning<B> {
    fn submit(&mut self, mut request: Request) {
        self.in_flight += 1;
        if let Some(result) = request.answer(self.inner.size_bytes(), self.inner.is_read_only()) {
            let session = self.inner.session();
            self.answer(request.done(result, session));
        } else if self.fits(&request) {
            request.token = self.pieces.insert(Piece::Whole(request.token)) as u64;
            self.inner.submit(request);
        } else {
            self.cut(request);
        }
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        let mut arrived = std::mem::take(&mut self.arrived);
        self.inner.completed(&mut arrived);
        arrived.drain(..).for_each(|completion| self.arrive(completion));
        self.arrived = arrived;
        self.in_flight -= self.done.len();
        out.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn notify(&mut self, waker: Waker) {
        self.inner.notify(waker.clone());
        if !self.done.is_empty() {
            waker();
        }
        self.waker = Some(waker);
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn session(&self) -> u64 {
        self.inner.session()
    }

    fn identity(&mut self) -> Identity {
        self.inner.identity()
    }

    fn label(&mut self) -> Result<StoreLabel, BackingError> {
        self.inner.label()
    }

    fn set_label(&mut self, text: &str) -> Result<(), BackingError> {
        self.inner.set_label(text)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}
