//! Requests under way: the plan of each one, until all of its work is done.

use std::ops::Range;

use tiermem_policy::evict::Evict;
use tiermem_policy::extents::store_speed::Measured;
use tiermem_policy::extents::{Extents, Plan, UNIT_BYTES, Volume};

use super::costs::Step;

/// Units of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Units {
    pub volume: Volume,
    pub units: Range<u64>,
}

impl Units {
    /// Whether they have some in common.
    pub fn overlaps(&self, other: &Units) -> bool {
        self.volume == other.volume
            && self.units.start < other.units.end
            && other.units.start < self.units.end
    }

    /// Where they lie in the volume, in bytes.
    pub fn bytes(&self) -> Range<u64> {
        self.units.start * UNIT_BYTES..self.units.end * UNIT_BYTES
    }
}

/// A request under way.
#[derive(Debug)]
struct Flight {
    plan: Plan,
    volume: Volume,
    /// What it writes; nothing of a read.
    written: Option<Units>,
    /// What it asks the backing store for.
    fetch: Option<Measured>,
    /// Its second step.
    store: Step,
}

/// The requests under way, by numbers that are used again, as their plans' memory is.
#[derive(Debug, Default)]
pub struct Flights {
    flights: Vec<Flight>,
    free: Vec<u32>,
}

impl Flights {
    /// A request is under way from now on; its number. Its plan is kept, and `plan` is one to be used again.
    pub fn begin(
        &mut self,
        plan: &mut Plan,
        volume: Volume,
        written: Option<Units>,
        (fetch, store): (Option<Measured>, Step),
    ) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            let plan = Plan::default();
            self.flights.push(Flight { plan, volume, written: None, fetch, store });
            self.flights.len() as u32 - 1
        });
        let flight = &mut self.flights[number as usize];
        std::mem::swap(&mut flight.plan, plan);
        (flight.volume, flight.written, flight.fetch, flight.store) = (volume, written, fetch, store);
        number
    }

    /// What a request got from the backing store, its second step, and of which volume it is.
    pub fn gathered(&self, number: u32) -> (Option<Measured>, Step, Volume) {
        let Flight { fetch, store, volume, .. } = self.flights[number as usize];
        (fetch, store, volume)
    }

    /// All of a request's work is done: its plan holds nothing any more. Whether it was a write.
    pub fn end<O: Evict>(&mut self, number: u32, extents: &mut Extents<O>) -> bool {
        let flight = &mut self.flights[number as usize];
        extents.finish(&mut flight.plan);
        self.free.push(number);
        flight.written.take().is_some()
    }

    /// Whether some of these units are being written.
    pub fn write(&self, of: &Units) -> bool {
        self.flights.iter().filter_map(|flight| flight.written.as_ref()).any(|written| written.overlaps(of))
    }

    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.flights.len() == self.free.len()
    }
}
