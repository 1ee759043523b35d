//! Table of operations under way, by their numbers, with the queues of waiting ones.

use std::collections::VecDeque;

use slab::Slab;

use super::op::{Op, Stage};

/// An operation that may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    /// This operation may get what it claims.
    Claim(u32),
    /// It has read all that it needs.
    Gathered(u32),
    /// It has written all that it has.
    Stored(u32),
}

/// What an operation does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// It continues when the event that it waits for has happened.
    Waits,
    /// It is over.
    Ends,
    /// It can do nothing now: it has let go of all, and begins anew when something was written back.
    Parks,
    /// The same, when plans in flight have ended or the log has room.
    Crowds,
}

/// The operations of an engine.
#[derive(Default)]
pub(super) struct Operations {
    ops: Slab<Box<Op>>,
    /// Operations to be used again, with what their vectors hold.
    #[expect(clippy::vec_box, reason = "they move between here and `ops`, and no bytes with them")]
    spare: Vec<Box<Op>>,
    /// Operations that wait for blocks to be written back.
    parked: VecDeque<u32>,
    /// Operations that wait for plans in flight to end.
    crowded: VecDeque<u32>,
}

impl Operations {
    /// An operation with nothing in it; its number.
    pub fn begin(&mut self) -> (u32, &mut Op) {
        let op = self.spare.pop().unwrap_or_default();
        let id = self.ops.insert(op) as u32;
        (id, &mut self.ops[id as usize])
    }

    /// The operation of this number, if there is one.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut Op> {
        self.ops.get_mut(id as usize).map(Box::as_mut)
    }

    /// Whether none is under way.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// The operation is over.
    pub fn end(&mut self, id: u32) {
        let mut op = self.ops.remove(id as usize);
        op.clear();
        self.spare.push(op);
    }

    /// It waits, holding nothing, for something to be written back.
    pub fn park(&mut self, id: u32) {
        self.ops[id as usize].stage = Stage::Parked;
        self.parked.push_back(id);
    }

    /// It waits, holding nothing, for plans in flight to end.
    pub fn crowd(&mut self, id: u32) {
        self.ops[id as usize].stage = Stage::Parked;
        self.crowded.push_back(id);
    }

    /// Blocks were written back: takes the operations that waited for that.
    pub fn take_parked(&mut self) -> VecDeque<u32> {
        std::mem::take(&mut self.parked)
    }

    /// A plan has ended: takes the operations that waited for that.
    pub fn take_crowded(&mut self) -> VecDeque<u32> {
        std::mem::take(&mut self.crowded)
    }

    /// Number of operations that wait for a write-back.
    pub fn parked(&self) -> u64 {
        self.parked.len() as u64
    }

    /// Number of a volume's operations that wait for a write-back.
    pub fn parked_of(&self, volume: usize) -> u64 {
        self.parked.iter().filter(|id| self.ops[**id as usize].volume == volume).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_wait_are_called_once_and_in_their_order() {
        let mut operations = Operations::default();
        let ids: Vec<u32> = (0..4)
            .map(|volume| {
                let (id, op) = operations.begin();
                op.volume = volume % 2;
                id
            })
            .collect();
        operations.park(ids[2]);
        operations.crowd(ids[1]);
        operations.park(ids[0]);
        assert_eq!((operations.parked(), operations.parked_of(0), operations.parked_of(1)), (2, 2, 0));
        assert_eq!(operations.take_parked(), [ids[2], ids[0]]);
        assert_eq!(operations.take_crowded(), [ids[1]]);
        assert!(operations.take_parked().is_empty() && operations.take_crowded().is_empty());
    }

    #[test]
    fn an_operation_that_is_over_leaves_nothing_behind() {
        let mut operations = Operations::default();
        let (id, op) = operations.begin();
        (op.ios, op.plan.again) = (3, true);
        op.plan.dirtied.push(0..4096);
        operations.end(id);
        assert!(operations.is_empty() && operations.get_mut(id).is_none());
        let (_, op) = operations.begin();
        assert!(op.ios == 0 && !op.plan.again && op.plan.dirtied.is_empty());
    }
}
