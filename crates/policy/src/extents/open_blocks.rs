//! Open blocks: the blocks that a driver's log says are being written in place.
//!
//! Opening a block costs a wait for the device, and recovery reads all blocks that were open. So blocks stay open while they are
//! hot, and their number is bounded. Of the blocks without a write under way, the one that was opened or looked at longest ago is
//! closed, but a block that several writes at once used since then gets a second chance.
//!
//! What a block that is open holds after a crash cannot be told from damage, so a block does not stay open that nobody writes to
//! ([`OpenBlocks::close_idle`]).

use std::collections::{HashMap, VecDeque};

/// Blocks that are open at a time, if no more than that are being written to.
const OPEN_MAX: usize = 16 << 10;

/// Time between two looks for blocks that nobody has written to since the last: so one is closed at most a second after its last write,
/// where not too many are.
const LOOK_EVERY_NS: u64 = 500_000_000;
/// Blocks closed at once, as each takes room in the log; the rest follow after this time.
const CLOSED_AT_ONCE: usize = 1024;
const LOOK_AGAIN_NS: u64 = 20_000_000;

/// An open block.
#[derive(Clone, Copy, Debug)]
struct Open<L> {
    /// The driver's name for the record that says so.
    record: L,
    /// Operations that write over something of it.
    writers: u32,
    /// Several wrote to it at once since it was last looked at.
    is_hot: bool,
    /// Somebody wrote to it since the last look for idle ones.
    is_used: bool,
}

/// The open blocks, by their slots; `L` names a record of the driver's log.
#[derive(Clone, Debug)]
pub struct OpenBlocks<L> {
    blocks: HashMap<u32, Open<L>>,
    /// In the order in which they were opened, or looked at last. May name some that are gone.
    order: VecDeque<u32>,
    blocks_max: usize,
    /// The next look for idle blocks, once there is any open.
    look_at_ns: u64,
}

impl<L: Copy> Default for OpenBlocks<L> {
    fn default() -> Self {
        OpenBlocks::new(OPEN_MAX)
    }
}

impl<L: Copy> OpenBlocks<L> {
    /// No block open. At most `blocks_max` are open at a time, unless more than that are being written to.
    pub fn new(blocks_max: usize) -> Self {
        OpenBlocks { blocks: HashMap::new(), order: VecDeque::new(), blocks_max, look_at_ns: 0 }
    }

    /// An operation is about to write over something of a block; the record that must be durable first. `open` leaves it, where it is not
    /// open yet.
    pub fn enter(&mut self, slot: u32, open: impl FnOnce() -> L) -> L {
        let order = &mut self.order;
        let open = self.blocks.entry(slot).or_insert_with(|| {
            order.push_back(slot);
            Open { record: open(), writers: 0, is_hot: false, is_used: true }
        });
        open.writers += 1;
        open.is_used = true;
        open.is_hot = open.writers > 1 || open.is_hot;
        open.record
    }

    /// An operation on a block ends; it has left a record of its own. `close` is told the blocks that are to be closed, if too
    /// many are open.
    pub fn leave(&mut self, slot: u32, mut close: impl FnMut(u32)) {
        if let Some(open) = self.blocks.get_mut(&slot) {
            debug_assert!(open.writers > 0, "who leaves has entered");
            open.writers = open.writers.saturating_sub(1);
        }
        // Each that is hot gets a second chance; then it is cold.
        let mut looks = self.order.len();
        while self.blocks.len() > self.blocks_max && looks > 0 {
            looks -= 1;
            let Some(oldest) = self.order.pop_front() else { return };
            match self.blocks.get_mut(&oldest) {
                None => {}
                Some(open) if open.writers > 0 || open.is_hot => {
                    open.is_hot = false;
                    self.order.push_back(oldest);
                }
                Some(_) => {
                    self.blocks.remove(&oldest);
                    close(oldest);
                }
            }
        }
    }

    /// When [`Self::close_idle`] is to be called; `None` while no block is open.
    pub fn look_at_ns(&self) -> Option<u64> {
        (!self.blocks.is_empty()).then_some(self.look_at_ns)
    }

    /// Calls `close` for blocks that nobody has written to since the look before, or writes to.
    pub fn close_idle(&mut self, now_ns: u64, mut close: impl FnMut(u32)) {
        if self.blocks.is_empty() || now_ns < self.look_at_ns {
            return;
        }
        let (blocks, mut closed) = (&mut self.blocks, 0);
        self.order.retain(|slot| {
            let Some(open) = blocks.get_mut(slot) else { return false };
            let is_idle = !open.is_used && open.writers == 0;
            if is_idle && closed < CLOSED_AT_ONCE {
                closed += 1;
                blocks.remove(slot);
                close(*slot);
                return false;
            }
            // One that is idle and has to wait is so still at the next look.
            open.is_used &= open.writers > 0 || closed == CLOSED_AT_ONCE;
            true
        });
        self.look_at_ns = now_ns + if closed == CLOSED_AT_ONCE { LOOK_AGAIN_NS } else { LOOK_EVERY_NS };
    }

    /// Calls `close` for all blocks without a write under way: for the end of a server.
    pub fn close_all(&mut self, mut close: impl FnMut(u32)) {
        let blocks = &mut self.blocks;
        self.order.retain(|slot| match blocks.get(slot) {
            Some(open) if open.writers > 0 => true,
            Some(_) => {
                blocks.remove(slot);
                close(*slot);
                false
            }
            None => false,
        });
    }

    /// The block is not cached any more.
    pub fn forget(&mut self, slot: u32) {
        self.blocks.remove(&slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(blocks: &mut OpenBlocks<u32>, slot: u32) -> u32 {
        blocks.enter(slot, || 100 + slot)
    }

    fn leave(blocks: &mut OpenBlocks<u32>, slot: u32) -> Vec<u32> {
        let mut closed = Vec::new();
        blocks.leave(slot, |slot| closed.push(slot));
        closed
    }

    #[test]
    fn a_block_is_opened_once_and_the_oldest_cold_one_is_closed() {
        let mut blocks = OpenBlocks::new(2);
        for slot in 1..=2 {
            assert_eq!(enter(&mut blocks, slot), 100 + slot);
            assert_eq!(leave(&mut blocks, slot), []);
        }
        assert_eq!(blocks.enter(1, || unreachable!("it is open")), 101);
        assert_eq!(leave(&mut blocks, 1), []);
        enter(&mut blocks, 3);
        assert_eq!(leave(&mut blocks, 3), [1], "one writer at a time does not make it hot");
    }

    #[test]
    fn a_hot_block_gets_one_more_chance_and_what_is_written_to_stays() {
        let mut blocks = OpenBlocks::new(2);
        enter(&mut blocks, 1);
        enter(&mut blocks, 1);
        assert_eq!((leave(&mut blocks, 1), leave(&mut blocks, 1)), (vec![], vec![]));
        enter(&mut blocks, 2);
        leave(&mut blocks, 2);
        enter(&mut blocks, 3);
        assert_eq!(leave(&mut blocks, 3), [2], "the first was hot");
        enter(&mut blocks, 4);
        assert_eq!(leave(&mut blocks, 4), [3], "the first was looked at later");
        enter(&mut blocks, 5);
        enter(&mut blocks, 6);
        assert_eq!(leave(&mut blocks, 6), [1, 4], "it is cold now, and more than two are open");
        assert_eq!(blocks.enter(5, || unreachable!("it was being written to")), 105);
    }

    fn close_idle(blocks: &mut OpenBlocks<u32>, now_ns: u64) -> Vec<u32> {
        let mut closed = Vec::new();
        blocks.close_idle(now_ns, |slot| closed.push(slot));
        closed
    }

    #[test]
    fn a_block_that_nobody_writes_to_is_closed_within_a_second_and_no_other() {
        let mut blocks = OpenBlocks::new(10);
        assert_eq!(blocks.look_at_ns(), None);
        for slot in 1..=3 {
            enter(&mut blocks, slot);
        }
        leave(&mut blocks, 1);
        leave(&mut blocks, 2);
        let start_ns = 7_000_000_000;
        assert_eq!(close_idle(&mut blocks, start_ns), [], "all were written to just now");
        assert_eq!(blocks.look_at_ns(), Some(start_ns + LOOK_EVERY_NS));
        blocks.enter(2, || unreachable!("it is open"));
        leave(&mut blocks, 2);
        assert_eq!(close_idle(&mut blocks, start_ns + LOOK_EVERY_NS - 1), [], "it is not time yet");
        assert_eq!(close_idle(&mut blocks, start_ns + LOOK_EVERY_NS), [1]);
        assert_eq!(
            close_idle(&mut blocks, start_ns + 2 * LOOK_EVERY_NS),
            [2],
            "the third is being written to"
        );
        leave(&mut blocks, 3);
        for look in 3..5 {
            let closed = close_idle(&mut blocks, start_ns + look * LOOK_EVERY_NS);
            assert_eq!(
                closed,
                if look == 3 { vec![] } else { vec![3] },
                "a write that lasts is one until it ends"
            );
        }
        assert_eq!(blocks.look_at_ns(), None);
        assert_eq!(enter(&mut blocks, 1), 101, "it is opened anew");
    }

    #[test]
    fn many_are_closed_a_part_at_a_time_and_soon() {
        let mut blocks = OpenBlocks::new(10_000);
        for slot in 0..3000 {
            enter(&mut blocks, slot);
            leave(&mut blocks, slot);
        }
        let (mut now_ns, mut closed) = (0, vec![close_idle(&mut blocks, 0).len()]);
        while let Some(at_ns) = blocks.look_at_ns() {
            now_ns = at_ns;
            closed.push(close_idle(&mut blocks, now_ns).len());
        }
        assert_eq!((closed.iter().sum::<usize>(), closed.iter().max()), (3000, Some(&CLOSED_AT_ONCE)));
        assert!(now_ns < LOOK_EVERY_NS + 10 * LOOK_AGAIN_NS, "{closed:?}");
    }

    #[test]
    fn the_oldest_stays_open_while_it_is_written_to() {
        let mut blocks = OpenBlocks::new(1);
        enter(&mut blocks, 1);
        enter(&mut blocks, 2);
        assert_eq!(leave(&mut blocks, 2), [2]);
        assert_eq!(blocks.enter(1, || unreachable!("it was being written to")), 101);
    }

    #[test]
    fn more_may_be_open_where_all_are_written_to_and_what_is_gone_is_not_closed() {
        let mut blocks = OpenBlocks::new(1);
        for slot in 1..=3 {
            enter(&mut blocks, slot);
        }
        blocks.forget(2);
        assert_eq!(leave(&mut blocks, 1), [1]);
        let mut closed = Vec::new();
        blocks.close_all(|slot| closed.push(slot));
        assert_eq!(closed, [], "the third is being written to");
        assert_eq!(leave(&mut blocks, 3), []);
        blocks.close_all(|slot| closed.push(slot));
        assert_eq!(closed, [3]);
    }
}
