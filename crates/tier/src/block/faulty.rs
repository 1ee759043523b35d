//! Faulty device: fails as configured, by a seeded source of randomness. The fate of a request is
//! decided when it is submitted, so it follows from the seed and the order of submissions alone.
//! What a failed read leaves in its buffer is rubbish.

use std::os::fd::BorrowedFd;

use slab::Slab;
use tiermem_base::rng::Rng;

use super::bad_places::{BadPlaces, spoil};
use super::fault_source::{FaultSource, error_is_due, take_room};
use super::{AlignedBuffer, BlockError, BlockIo, Completion, Op, OpenError, Request, SECTOR_BYTES, Waker};

/// Random faults. Probabilities are per request, also of `write_at`, `read_at` and `sync`; the default is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Probability that a read ends in `EIO`.
    pub read_error: f64,
    /// Probability that a write ends in `EIO` and nothing was written.
    pub write_error: f64,
    /// Probability that a sync ends in `EIO`; what it was to make durable may not be.
    pub sync_error: f64,
    /// The request after this number of others ends in `EIO`, once.
    pub error_after: Option<u64>,
    /// Probability that only the first sectors (of 512 bytes, perhaps none, never all) of a write are written.
    pub torn_write: f64,
    /// A torn write is reported as done, and not as `EIO`.
    pub torn_write_reported_done: bool,
    /// Probability that a read comes back with one bit flipped; the medium stays as it is.
    pub flipped_read: f64,
    /// Probability that a completion is held back for some calls of `completed`, so that later ones overtake it.
    pub delayed: f64,
    /// Bytes written after which the disk is full: then writes end in `ENOSPC`.
    pub full_after_bytes: Option<u64>,
    /// Where requests fail.
    pub bad_places: BadPlaces,
}

/// The wrapper. `write_at`, `read_at` and `sync` have the same faults except delays.
pub struct Faulty<B> {
    inner: B,
    faults: Faults,
    source: FaultSource<Completion>,
    /// Requests given to `inner`, under their number here.
    flights: Slab<Flight>,
    /// Completions from `inner`.
    arrived: Vec<Completion>,
    waker: Option<Waker>,
}

struct Flight {
    token: u64,
    /// The buffer of a torn write, while another buffer is written in its place.
    instead_of: Option<AlignedBuffer>,
    error: Option<BlockError>,
    flip: bool,
    delay_polls: u64,
}

/// Fate of a write.
enum Fate {
    Done,
    Fails(BlockError),
    /// After this number of bytes.
    Torn(usize, Option<BlockError>),
}

impl<B: BlockIo> Faulty<B> {
    /// Wraps a device.
    pub fn new(inner: B, faults: Faults, rng: Rng) -> Self {
        let source = FaultSource::new(rng);
        Faulty { inner, faults, source, flights: Slab::new(), arrived: Vec::new(), waker: None }
    }

    /// The faults from now on, to be changed.
    pub fn faults(&mut self) -> &mut Faults {
        &mut self.faults
    }

    /// The device beneath.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    fn fails(&mut self, op: Op, offset: u64, len: usize) -> Option<BlockError> {
        let probability = match op {
            Op::Read => self.faults.read_error,
            Op::Write => self.faults.write_error,
            Op::Sync => self.faults.sync_error,
        };
        if let Some(failing) = self.faults.bad_places.meet(op, &(offset..offset.saturating_add(len as u64))) {
            return Some(failing.block_error(op, offset, len));
        }
        (error_is_due(&mut self.faults.error_after) || self.source.chance(probability))
            .then(|| BlockError::device(op, offset, len))
    }

    fn fate_of_write(&mut self, offset: u64, len: usize) -> Fate {
        if let Some(error) = self.fails(Op::Write, offset, len) {
            return Fate::Fails(error);
        }
        if !take_room(&mut self.faults.full_after_bytes, len as u64) {
            return Fate::Fails(BlockError::full(Op::Write, offset, len));
        }
        if len == 0 || !self.source.chance(self.faults.torn_write) {
            return Fate::Done;
        }
        // The sectors are the disk's, wherever the write begins.
        let (first, end) = (offset / SECTOR_BYTES, (offset + len as u64).div_ceil(SECTOR_BYTES));
        let torn_at = (first + self.source.below(end - first)) * SECTOR_BYTES;
        let error = BlockError::device(Op::Write, offset, len);
        let reported = (!self.faults.torn_write_reported_done).then_some(error);
        Fate::Torn(torn_at.saturating_sub(offset) as usize, reported)
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        let bit = self.source.below(bytes.len() as u64 * 8);
        if let Some(byte) = bytes.get_mut((bit / 8) as usize) {
            *byte ^= 1 << (bit % 8);
        }
    }

    /// Takes what `inner` has done, and does to it what was decided.
    fn arrive(&mut self) {
        let mut arrived = std::mem::take(&mut self.arrived);
        self.inner.completed(&mut arrived);
        for mut completion in arrived.drain(..) {
            let flight = self.flights.remove(completion.token as usize);
            completion.token = flight.token;
            if let Some(buffer) = flight.instead_of {
                completion.buffer = buffer;
            }
            if let (Ok(()), Some(error)) = (completion.result, flight.error) {
                completion.result = Err(error);
                if completion.op == Op::Read {
                    spoil(&mut completion.buffer);
                }
            }
            if flight.flip {
                self.flip(&mut completion.buffer);
            }
            self.source.hold(flight.delay_polls, completion);
        }
        self.arrived = arrived;
    }

    fn call_waker(&self) {
        if let Some(waker) = &self.waker {
            waker();
        }
    }
}

impl<B: BlockIo> BlockIo for Faulty<B> {
    fn submit(&mut self, mut request: Request) {
        let (op, offset, len) = (request.op, request.offset, request.buffer.len());
        let (mut instead_of, mut error, mut flip) = (None, None, false);
        if request.check(self.capacity_bytes()).is_ok() {
            match op {
                Op::Read => {
                    error = self.fails(op, offset, len);
                    flip = error.is_none() && self.source.chance(self.faults.flipped_read);
                }
                Op::Sync => error = self.fails(op, offset, len),
                Op::Write => match self.fate_of_write(offset, len) {
                    Fate::Done => {}
                    Fate::Fails(it) => error = Some(it),
                    Fate::Torn(prefix, reported) => {
                        // Whole blocks are written: the end of this one is what lies there already.
                        let mut torn = AlignedBuffer::zeroed(len);
                        match self.inner.read_at(offset, &mut torn) {
                            Ok(()) => {
                                torn[..prefix].copy_from_slice(&request.buffer[..prefix]);
                                instead_of = Some(std::mem::replace(&mut request.buffer, torn));
                                error = reported;
                            }
                            Err(it) => error = Some(it),
                        }
                    }
                },
            }
        }
        let delay_polls = self.source.delay_polls(self.faults.delayed);
        match error {
            Some(error) if op != Op::Read && instead_of.is_none() => {
                self.source.hold(delay_polls, request.done(Err(error)));
                self.call_waker();
            }
            _ => {
                let flight = Flight { token: request.token, instead_of, error, flip, delay_polls };
                request.token = self.flights.insert(flight) as u64;
                self.inner.submit(request);
            }
        }
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        self.arrive();
        self.source.release(out);
        if self.source.held() > 0 {
            self.call_waker();
        }
    }

    fn wait(&mut self, out: &mut Vec<Completion>) {
        let before = out.len();
        loop {
            self.completed(out);
            if out.len() > before || self.in_flight() == 0 {
                return;
            }
            if self.source.held() == 0 {
                self.inner.wait(&mut self.arrived);
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.flights.len() + self.source.held()
    }

    fn notify(&mut self, waker: Waker) {
        self.inner.notify(waker.clone());
        self.waker = Some(waker);
        if self.source.held() > 0 {
            self.call_waker();
        }
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        self.inner.pollable()
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        match self.fate_of_write(offset, bytes.len()) {
            Fate::Done => self.inner.write_at(offset, bytes),
            Fate::Fails(error) => Err(error),
            Fate::Torn(prefix, reported) => {
                self.inner.write_at(offset, &bytes[..prefix])?;
                reported.map_or(Ok(()), Err)
            }
        }
    }

    fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        if let Some(error) = self.fails(Op::Read, offset, bytes.len()) {
            spoil(bytes);
            return Err(error);
        }
        self.inner.read_at(offset, bytes)?;
        if self.source.chance(self.faults.flipped_read) {
            self.flip(bytes);
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), BlockError> {
        match self.fails(Op::Sync, 0, 0) {
            Some(error) => Err(error),
            None => self.inner.sync(),
        }
    }

    fn capacity_bytes(&self) -> u64 {
        self.inner.capacity_bytes()
    }

    fn grow(&mut self, capacity_bytes: u64) -> Result<(), OpenError> {
        self.inner.grow(capacity_bytes)
    }

    fn describe(&self) -> &'static str {
        "a device with faults"
    }
}
