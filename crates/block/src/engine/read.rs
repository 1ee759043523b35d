//! Reads, and the fetches for them.

use std::ops::Range;

use super::op::{Kind, Source, Stage, Stored, common};
use super::op_steps::Work;
use super::op_table::After;
use super::write_order::units_at;

impl Work<'_> {
    /// Answers, and stores what was fetched.
    pub fn read_gathered(mut self) -> After {
        if self.op.held.iter().any(|held| !held.is_good && held.source == Source::Backing) {
            // Nothing of it was there before.
            self.shared.forget_parts(self.op.volume, &self.op.plan.fill);
            self.op.plan.fill.clear();
            let own = self.op.range();
            let units = self.shared.extents.units();
            let is_needed = |range: &Range<u64>| !common(range, &own).is_empty();
            let is_whole = self.op.held.iter().all(|held| held.is_good || !is_needed(&held.range))
                && !self.op.plan.cached.iter().any(|part| units.has_lost(units_at(part)));
            if is_whole {
                // What failed was read for later.
                self.op.failure = None;
            }
        }
        if self.shared.log.failure().is_some() {
            // It takes no record of what would be stored.
            self.shared.forget_parts(self.op.volume, &self.op.plan.fill);
            self.op.plan.fill.clear();
        }
        self.op.stage = Stage::Storing;
        self.submit_fills();
        let pieces = if self.op.kind == Kind::Read && self.op.failure.is_none() {
            self.op.take_pieces()
        } else {
            Vec::new()
        };
        self.shared.reply(self.op, pieces);
        if self.op.ios == 0 { self.filled() } else { After::Waits }
    }

    /// The fetched bytes are stored.
    pub fn filled(self) -> After {
        let has_failed = self.shared.log.failure().is_some();
        for Stored { fill, buffer, is_there } in std::mem::take(&mut self.op.stored) {
            self.shared.pool.give_back(buffer);
            if !is_there || has_failed {
                // The client has its bytes; the cache just does not.
                self.shared.forget_parts(self.op.volume, &[self.op.plan.fill[fill as usize]]);
                self.op.unstored.push(fill);
            }
        }
        self.shared.note_stored(self.op);
        self.end()
    }
}
