//! Trims: bytes that may be discarded.

use std::ops::Range;

use tiermem_policy::extents::UNIT_BYTES;
use tiermem_policy::extents::cleaner::Outcome;

use super::device::Io;
use super::op::{Failure, Op, Stage};
use super::op_steps::Work;
use super::op_table::After;
use super::shared::Shared;
use tiermem_tier::backing;

impl Work<'_> {
    /// A client's trim has its range. It promises nothing, so it is over once the cleaner knows of it, which has it passed on to the store
    /// in its time. Dirty data stay: the store must get everything from before a flush.
    pub fn trim(self) -> After {
        let (start, end) =
            (self.op.offset.div_ceil(UNIT_BYTES), (self.op.offset + self.op.bytes) / UNIT_BYTES);
        if start < end {
            drop_clean(self.shared, self.op.volume, start..end);
            let number = self.shared.volumes[self.op.volume].number;
            self.shared.write_back.cleaner_mut().trim(number, start..end);
        }
        self.end()
    }

    /// Passes a trim on to the store, as the cleaner asks. What others use of the range stays in the cache: a trim waits for nobody.
    ///
    /// Called again when the log has the records that it waits for.
    pub fn trim_store(mut self) -> After {
        let units = self.op.units();
        if self.op.stage != Stage::Opening && self.are_granted() {
            drop_clean(self.shared, self.op.volume, units.clone());
        }
        self.release_claims();
        // No mapping of what was there may come back afterwards.
        let number = self.shared.volumes[self.op.volume].number;
        let wait = self.shared.write_order.before_store(number, &units);
        if self.shared.log.must_wait(self.id, wait) {
            self.op.stage = Stage::Opening;
            return After::Waits;
        }
        self.op.stage = Stage::Storing;
        let backing = &mut self.shared.volumes[self.op.volume].backing;
        let bytes = self.op.bytes.min(backing.size_bytes().saturating_sub(self.op.offset));
        let token = self.shared.device.name(Io::Trim { op: self.id });
        backing.submit(backing::Request::trim(token, self.op.offset, bytes));
        After::Waits
    }
}

impl Shared {
    /// The store has answered a trim, or it cannot be sent. No client hears of it.
    pub fn trimmed(&mut self, op: &mut Op, result: Result<(), Failure>) {
        if let Some(act) = op.act.take() {
            let outcome = if result.is_ok() { Outcome::Trimmed } else { Outcome::Failed };
            let acts = self.write_back.tell(self.now_ns, act, outcome);
            debug_assert!(acts.is_empty(), "nothing follows before the next step");
        }
        if let Err(failure) = result {
            self.volumes.complain(op.volume, self.now_ns, op.offset, &failure);
        }
    }
}

/// Drops the clean parts of a volume's units, which the caller has to itself.
fn drop_clean(shared: &mut Shared, at: usize, units: Range<u64>) {
    let mut clean = Vec::new();
    let range = units.start * UNIT_BYTES..units.end * UNIT_BYTES;
    shared.extents.visit(shared.volumes[at].number, range, |part, is_dirty| {
        if !is_dirty {
            clean.push(part);
        }
    });
    shared.drop_parts(at, &clean);
}
