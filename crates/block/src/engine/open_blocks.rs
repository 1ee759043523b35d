//! Blocks that the log says are being written in place.
//!
//! Opening a block costs a wait for the device, and recovery reads what was open. So blocks stay open while they are hot, and there
//! are so many at most.

use std::collections::{HashMap, VecDeque};

use crate::journal::{Journal, Lsn, Record};

/// Blocks that are open at a time, if no more than that are being written to.
const OPEN_MAX: usize = 16 << 10;

/// An open block.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// The record that says so.
    lsn: Lsn,
    /// Operations that write over something of it.
    writers: u32,
    /// It was written to since it was last looked at.
    is_hot: bool,
}

/// The open blocks, by their slots.
#[derive(Debug, Default)]
pub(super) struct OpenBlocks {
    blocks: HashMap<u32, Open>,
    /// In the order in which they were opened, or looked at last. May name some that are gone.
    order: VecDeque<u32>,
}

impl OpenBlocks {
    /// An operation is about to write over something of a block; the record that must be durable first.
    pub(super) fn enter(&mut self, slot: u32, journal: &mut Journal) -> Lsn {
        let order = &mut self.order;
        let open = self.blocks.entry(slot).or_insert_with(|| {
            order.push_back(slot);
            Open { lsn: journal.append(Record::Open { slot }), writers: 0, is_hot: false }
        });
        open.writers += 1;
        open.is_hot = open.writers > 1 || open.is_hot;
        open.lsn
    }

    /// It does so no more, and has left a record. Closes what has been cold for longest if there are too many.
    pub(super) fn leave(&mut self, slot: u32, journal: &mut Journal) {
        if let Some(open) = self.blocks.get_mut(&slot) {
            open.writers = open.writers.saturating_sub(1);
        }
        // Each that is hot gets a second chance; then it is cold.
        let mut looks = self.order.len();
        while self.blocks.len() > OPEN_MAX && looks > 0 {
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
                    journal.append(Record::Close { slot: oldest });
                }
            }
        }
    }

    /// Closes all that nobody writes to: for the end of a server.
    pub(super) fn close_all(&mut self, journal: &mut Journal) {
        let blocks = &mut self.blocks;
        self.order.retain(|slot| match blocks.get(slot) {
            Some(open) if open.writers > 0 => true,
            Some(_) => {
                blocks.remove(slot);
                journal.append(Record::Close { slot: *slot });
                false
            }
            None => false,
        });
    }

    /// The block is not cached any more.
    pub(super) fn forget(&mut self, slot: u32) {
        self.blocks.remove(&slot);
    }
}
