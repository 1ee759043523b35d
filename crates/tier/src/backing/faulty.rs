//! Faulty store: fails as configured, by a seeded source of
//! randomness; and a store that a test can hang, kill and bring back.
//!
//! Random outcomes are decided when a request is submitted, so
//! they follow from the seed and the order of submissions alone.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slab::Slab;
use tiermem_base::rng::Rng;

use crate::block::fault_source::{FaultSource, error_is_due, take_room};
use crate::block::{self as device, BadPlaces, Failing, spoil};

use super::{Backing, BackingError, Completion, Identity, Op, Request, StoreLabel, Waker};

/// Random faults. Probabilities are per request; the default is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Probability that a read fails.
    pub read_error: f64,
    /// Probability that a write fails and nothing was written.
    pub write_error: f64,
    /// Probability that a flush fails, and a new session begins.
    pub flush_error: f64,
    /// Probability that a trim or a zero fails and changes nothing.
    pub zero_error: f64,
    /// The request after this number of others fails, once.
    pub error_after: Option<u64>,
    /// Probability that only the first bytes of a read or write are transferred, perhaps none, never all; it fails.
    pub short: f64,
    /// Probability that a read comes back with other contents, and succeeds.
    pub wrong: f64,
    /// Probability that a completion is held back for some calls of `completed`, so that later ones overtake it.
    pub delayed: f64,
    /// Bytes written after which the store is full.
    pub full_after_bytes: Option<u64>,
    /// Where requests fail.
    pub bad_places: BadPlaces,
}

/// A test's handle on a store that another part owns. Its clones are the same handle.
#[derive(Clone)]
pub struct FaultControl(Arc<Mutex<Shared>>);

struct Shared {
    faults: Faults,
    hanging: bool,
    dead: bool,
    /// Sessions that ended here, besides those of the store beneath.
    ended: u64,
    deaths: u64,
    on_death: Option<Box<dyn FnMut() + Send>>,
    identity: Option<Identity>,
    waker: Option<Waker>,
}

impl FaultControl {
    /// Changes what goes wrong from now on.
    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.lock().faults);
    }

    /// From now on requests are taken and not answered, until told otherwise; then all of them are done.
    pub fn hang(&self, hanging: bool) {
        self.lock().hanging = hanging;
        self.call_waker();
    }

    /// The store dies: what is in flight fails, as does all that comes; a new session begins.
    pub fn die(&self) {
        let mut shared = self.lock();
        shared.dead = true;
        shared.ended += 1;
        shared.deaths += 1;
        if let Some(on_death) = &mut shared.on_death {
            on_death();
        }
        drop(shared);
        self.call_waker();
    }

    /// It is there again.
    pub fn come_back(&self) {
        self.lock().dead = false;
        self.call_waker();
    }

    /// Sets a function that also runs at each death, as
    /// [`super::MemoryStore::crash_some`]. It must not call the store or this.
    pub fn on_death(&self, act: impl FnMut() + Send + 'static) {
        self.lock().on_death = Some(Box::new(act));
    }

    /// Sets the identity that the store reports; `None`: that of the inner store.
    pub fn pretend(&self, identity: Option<Identity>) {
        self.lock().identity = identity;
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Must be called without the lock: the waker is foreign code.
    fn call_waker(&self) {
        let waker = self.lock().waker.clone();
        if let Some(waker) = waker {
            waker();
        }
    }
}

/// The wrapper.
pub struct Faulty<B> {
    inner: B,
    control: FaultControl,
    source: FaultSource<Completion>,
    /// Requests given to `inner`, under their number here.
    flights: Slab<Flight>,
    /// Requests that came while it hung.
    hung: VecDeque<(u64, Request)>,
    arrived: Vec<Completion>,
}

struct Flight {
    token: u64,
    /// The request's own length, where another was given to the store beneath.
    bytes: u64,
    fate: Fate,
    delay_polls: u64,
    /// [`Shared::ended`] and [`Shared::deaths`] when it was submitted.
    ended: u64,
    deaths: u64,
}

#[derive(Clone, Debug, PartialEq)]
enum Fate {
    Done,
    Fails(BackingError),
    /// After this number of bytes.
    Short(u64),
    Wrong,
}

impl<B: Backing> Faulty<B> {
    /// Wraps a store.
    pub fn new(inner: B, faults: Faults, rng: Rng) -> Self {
        let shared = Shared {
            faults,
            hanging: false,
            dead: false,
            ended: 0,
            deaths: 0,
            on_death: None,
            identity: None,
            waker: None,
        };
        Faulty {
            inner,
            control: FaultControl(Arc::new(Mutex::new(shared))),
            source: FaultSource::new(rng),
            flights: Slab::new(),
            hung: VecDeque::new(),
            arrived: Vec::new(),
        }
    }

    /// The handle that controls it.
    pub fn control(&self) -> FaultControl {
        self.control.clone()
    }

    fn fate(&mut self, request: &Request) -> Fate {
        let (op, bytes) = (request.op, request.bytes);
        let (faults, is_due, bad) = {
            let faults = &mut self.control.lock().faults;
            let bad = faults
                .bad_places
                .meet(device_op(op), &(request.offset..request.offset.saturating_add(bytes)));
            (faults.clone(), error_is_due(&mut faults.error_after), bad)
        };
        if let Some(failing) = bad {
            return Fate::Fails(failure(failing));
        }
        let probability = match op {
            Op::Read | Op::Describe => faults.read_error,
            Op::Write => faults.write_error,
            Op::Flush => faults.flush_error,
            Op::Trim | Op::Zero => faults.zero_error,
        };
        if is_due || self.source.chance(probability) {
            let error = format!("a fault: {op:?} of {bytes} bytes at byte {}", request.offset);
            return Fate::Fails(BackingError::Failed(error));
        }
        if op == Op::Write && !take_room(&mut self.control.lock().faults.full_after_bytes, bytes) {
            return Fate::Fails(BackingError::Full);
        }
        let transfers = matches!(op, Op::Read | Op::Write) && bytes > 0;
        if transfers && self.source.chance(faults.short) {
            Fate::Short(self.source.below(bytes))
        } else if transfers && op == Op::Read && self.source.chance(faults.wrong) {
            Fate::Wrong
        } else {
            Fate::Done
        }
    }

    fn start(&mut self, delay_polls: u64, mut request: Request) {
        let (dead, ended, deaths) = {
            let shared = self.control.lock();
            (shared.dead, shared.ended, shared.deaths)
        };
        if dead {
            return self.refuse(0, request, gone());
        }
        let fits = request.answer(self.inner.size_bytes(), self.inner.is_read_only()).is_none();
        let fate = if fits { self.fate(&request) } else { Fate::Done };
        if let Fate::Fails(error) = &fate {
            if request.op == Op::Flush {
                self.control.lock().ended += 1;
            }
            return self.refuse(delay_polls, request, error.clone());
        }
        let (token, bytes) = (request.token, request.bytes);
        if let (Fate::Short(prefix), Op::Write) = (&fate, request.op) {
            request.bytes = *prefix;
        }
        request.token = self.flights.insert(Flight { token, bytes, fate, delay_polls, ended, deaths }) as u64;
        self.inner.submit(request);
    }

    fn refuse(&mut self, delay_polls: u64, mut request: Request, error: BackingError) {
        if request.op == Op::Read {
            spoil(&mut request.buffer);
        }
        let session = self.session();
        self.source.hold(delay_polls, request.done(Err(error), session));
        self.control.call_waker();
    }

    fn arrive(&mut self) {
        let deaths = self.control.lock().deaths;
        let mut arrived = std::mem::take(&mut self.arrived);
        self.inner.completed(&mut arrived);
        for mut completion in arrived.drain(..) {
            let flight = self.flights.remove(completion.token as usize);
            (completion.token, completion.bytes) = (flight.token, flight.bytes);
            completion.session += flight.ended;
            match flight.fate {
                _ if flight.deaths < deaths => completion.result = Err(gone()),
                Fate::Short(prefix) if completion.result.is_ok() => {
                    if completion.op == Op::Read {
                        completion.buffer[prefix as usize..].fill(0xdb);
                    }
                    let words = format!("{:?} ended after {prefix} of {} bytes", completion.op, flight.bytes);
                    completion.result = Err(BackingError::Failed(words));
                }
                Fate::Wrong => {
                    completion.buffer[..flight.bytes as usize].iter_mut().for_each(|byte| *byte ^= 0x5a);
                }
                _ => {}
            }
            self.source.hold(flight.delay_polls, completion);
        }
        self.arrived = arrived;
    }
}

/// What a request to a store is to a device.
pub(super) fn device_op(op: Op) -> device::Op {
    match op {
        Op::Read | Op::Describe => device::Op::Read,
        Op::Write | Op::Trim | Op::Zero => device::Op::Write,
        Op::Flush => device::Op::Sync,
    }
}

/// How a bad place of a store fails.
pub(super) fn failure(failing: Failing) -> BackingError {
    match failing {
        Failing::Io => BackingError::Failed("a bad place".to_owned()),
        Failing::Short => BackingError::Failed("it ends within the request".to_owned()),
        Failing::Full => BackingError::Full,
        Failing::ReadOnly => BackingError::ReadOnly,
    }
}

fn gone() -> BackingError {
    BackingError::Failed("the store has died".to_owned())
}

impl<B: Backing> Backing for Faulty<B> {
    fn submit(&mut self, request: Request) {
        let delayed = self.control.lock().faults.delayed;
        let delay_polls = self.source.delay_polls(delayed);
        let hanging = self.control.lock().hanging;
        if hanging {
            self.hung.push_back((delay_polls, request));
        } else {
            self.start(delay_polls, request);
        }
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        let (hanging, dead) = {
            let shared = self.control.lock();
            (shared.hanging, shared.dead)
        };
        if !hanging || dead {
            while let Some((delay_polls, request)) = self.hung.pop_front() {
                self.start(delay_polls, request);
            }
        }
        self.arrive();
        self.source.release(out);
        if self.source.held() > 0 {
            self.control.call_waker();
        }
    }

    fn in_flight(&self) -> usize {
        self.flights.len() + self.source.held() + self.hung.len()
    }

    fn notify(&mut self, waker: Waker) {
        self.inner.notify(waker.clone());
        self.control.lock().waker = Some(waker);
        if self.source.held() > 0 {
            self.control.call_waker();
        }
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn session(&self) -> u64 {
        self.inner.session() + self.control.lock().ended
    }

    fn identity(&mut self) -> Identity {
        let pretended = self.control.lock().identity.clone();
        pretended.unwrap_or_else(|| self.inner.identity())
    }

    fn label(&mut self) -> Result<StoreLabel, BackingError> {
        self.inner.label()
    }

    fn set_label(&mut self, text: &str) -> Result<(), BackingError> {
        self.inner.set_label(text)
    }

    fn describe(&self) -> String {
        format!("{}, with faults", self.inner.describe())
    }
}
