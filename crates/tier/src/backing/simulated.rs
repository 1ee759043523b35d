//! Store in virtual time, on the clock of a [`Simulation`](crate::block::Simulation): for tests of the whole engine.

use std::ops::Range;

use crate::block::{self as device, Applied, Fate, Simulated, Target, copy_some, spoil};
use tiermem_base::rng::Rng;

use super::faulty::{device_op, failure};
use super::{Backing, BackingError, Completion, Identity, MemoryStore, Op, Request, StoreLabel, Waker};

impl Target for MemoryStore {
    type Request = Request;
    type Completion = Completion;

    fn written(&self) -> u64 {
        self.lock().medium.written()
    }

    fn place(request: &Request) -> (device::Op, Range<u64>) {
        (device_op(request.op), request.offset..request.offset.saturating_add(request.bytes))
    }

    fn carry_out(&self, mut request: Request, fate: Fate, synced: u64, rng: &mut Rng) -> Completion {
        let mut media = self.lock();
        let (op, at, bytes) = (request.op, request.offset as usize, request.bytes as usize);
        if let Some(answer) = request.answer(media.medium.bytes().len() as u64, false) {
            return request.done(answer, media.session);
        }
        match (op, fate) {
            (Op::Read, Fate::Failed(..)) => spoil(&mut request.buffer),
            (_, Fate::Failed(Applied::None, _)) | (Op::Flush, Fate::Failed(Applied::Some, _)) => {}
            (Op::Read, _) => request.buffer[..bytes].copy_from_slice(&media.medium.bytes()[at..at + bytes]),
            (Op::Write, Fate::Failed(Applied::Some, _)) => {
                copy_some(media.change(at, at + bytes), &request.buffer[..bytes], request.offset, rng);
            }
            (Op::Write, _) => media.change(at, at + bytes).copy_from_slice(&request.buffer[..bytes]),
            (Op::Trim | Op::Zero, Fate::Failed(Applied::Some, _)) => {
                let zeros = vec![0; bytes];
                copy_some(media.change(at, at + bytes), &zeros, request.offset, rng);
            }
            (Op::Trim | Op::Zero, _) => media.change(at, at + bytes).fill(0),
            (Op::Flush, _) => media.medium.sync(synced),
            (Op::Describe, Fate::Done) => {
                let extents = media.describe(at..at + bytes);
                return request.described(extents, media.session);
            }
            (Op::Describe, _) => {}
        }
        let result = match fate {
            Fate::Done => Ok(()),
            Fate::Failed(_, failing) => Err(failure(failing)),
        };
        request.done(result, media.session)
    }
}

impl Backing for Simulated<MemoryStore> {
    fn submit(&mut self, request: Request) {
        Simulated::submit(self, request);
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        self.take(out);
    }

    fn in_flight(&self) -> usize {
        Simulated::in_flight(self)
    }

    // The driver of an engine in virtual time looks for completions by itself.
    fn notify(&mut self, _: Waker) {}

    fn size_bytes(&self) -> u64 {
        self.target().open().size_bytes()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn session(&self) -> u64 {
        self.target().open().session()
    }

    fn identity(&mut self) -> Identity {
        self.target().open().identity()
    }

    fn label(&mut self) -> Result<StoreLabel, BackingError> {
        self.target().open().label()
    }

    /// A step of its own, in which the machine may die, before it or behind it.
    fn set_label(&mut self, text: &str) -> Result<(), BackingError> {
        let (happens, is_alive) = self.step();
        if happens {
            self.target().open().set_label(text)?;
        }
        if is_alive { Ok(()) } else { Err(BackingError::Failed("the machine is dead".to_owned())) }
    }

    fn describe(&self) -> String {
        "memory in virtual time".to_owned()
    }
}
