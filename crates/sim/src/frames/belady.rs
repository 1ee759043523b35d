//! Belady's MIN over frames: the victim is the frame whose next touch is farthest (L. A. Belady, IBM Systems Journal 5(2), 1966).
//!
//! Of the orders that bring in each frame when it is touched, none has fewer faults over two tiers without a prefetcher. It does
//! not weigh reads against writes. A frame that is given up before its next touch counts as never touched again.

use tiermem_base::Rng;
use tiermem_policy::Id;
use tiermem_policy::column::Column;
use tiermem_policy::evict::heap::{Heap, Positions};
use tiermem_policy::evict::{Departure, Domain, Evict, Origin, Touch};

use super::touches::{Touched, Touches, Use};
use crate::next_use::{NEVER, next_uses};

/// For each touch the number of the next one of its frame, and for each frame that of the first: 4 bytes each.
#[derive(Clone, Debug, Default)]
pub struct Future {
    next: Vec<u32>,
    first: Vec<u32>,
}

impl Future {
    /// Looks through a trace from its end.
    pub fn of(touches: &Touches) -> Self {
        let backward = touches.touches().iter().rev();
        let backward = backward.map(|touched| (touched.frame.0, touched.what == Use::Discard));
        let (next, first) = next_uses((touches.touches().len(), touches.frames() as usize), backward);
        Future { next, first }
    }
}

/// The order: a heap for each domain. The time of a touch is its number, from 1.
#[derive(Clone, Debug)]
pub struct Belady<'a> {
    future: &'a Future,
    touches: &'a [Touched],
    /// The next touch of each frame, as far as the trace has come.
    coming: Column<u32>,
    heaps: Vec<Heap>,
    positions: Positions,
}

impl<'a> Belady<'a> {
    /// An order with `domains` domains, at the start of the trace that `future` was made from.
    pub fn new(domains: usize, future: &'a Future, touches: &'a [Touched]) -> Self {
        let mut coming = Column::default();
        for (frame, first) in (0u32..).zip(&future.first) {
            coming.grow_to(Id(frame));
            *coming.at(Id(frame)) = *first;
        }
        Belady {
            future,
            touches,
            coming,
            heaps: vec![Heap::default(); domains],
            positions: Positions::default(),
        }
    }

    /// The farthest on top.
    fn rank(&self, id: Id) -> u64 {
        u64::from(NEVER - self.coming.get(id))
    }

    /// Frames that the trace never touches come from a prefetcher.
    fn know(&mut self, id: Id, now: u64) {
        if id.index() >= self.future.first.len() {
            self.coming.grow_to(id);
            *self.coming.at(id) = NEVER;
            return;
        }
        let at = now.saturating_sub(1) as usize;
        if self.touches.get(at).is_some_and(|touched| touched.frame.0 == id.0) {
            *self.coming.at(id) = self.future.next[at];
        }
    }
}

impl Evict for Belady<'_> {
    fn insert(&mut self, id: Id, domain: Domain, origin: Origin) {
        if let Some(item) = origin.new_item() {
            self.know(id, item.now);
        }
        let rank = self.rank(id);
        self.heaps[domain.0 as usize].push(&mut self.positions, id, rank);
    }

    fn hit(&mut self, id: Id, touch: Touch, domain: impl FnOnce() -> Domain) {
        self.know(id, touch.now);
        let rank = self.rank(id);
        self.heaps[domain().0 as usize].update(&mut self.positions, id, rank);
    }

    fn remove(&mut self, id: Id, domain: Domain, _departure: Departure) {
        self.heaps[domain.0 as usize].remove(&mut self.positions, id);
    }

    fn victim(
        &mut self,
        domain: Domain,
        _now: u64,
        _rng: &mut Rng,
        may_go: impl Fn(Id) -> bool,
    ) -> Option<Id> {
        self.heaps[domain.0 as usize].top_that(may_go)
    }

    fn clear(&mut self) {
        self.heaps.iter_mut().for_each(Heap::clear);
    }

    fn len(&self, domain: Domain) -> u32 {
        self.heaps[domain.0 as usize].len() as u32
    }

    fn metadata_bytes(&self) -> u64 {
        let heaps: u64 = self.heaps.iter().map(Heap::bytes).sum();
        heaps + self.coming.bytes() + self.positions.bytes()
    }
}
