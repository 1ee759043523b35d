//! Scan of a hash, piece by piece while it changes.

use tiermem_base::hash::field_hash;

use super::Broken;
use super::directory::{home, slot_at};
use super::view::{Field, Hash};

/// Where a scan continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// The next cursor; 0 when all is visited.
    pub cursor: u64,
}

impl<'a> Hash<'a> {
    /// Visits about `count` fields from `cursor` (0 starts).
    ///
    /// A cursor is a bound on the upper half of the fields' hashes, which nothing changes as long as the hash is not
    /// deleted: so a field that is there from the first call to the last is visited, however the blob is rebuilt
    /// meanwhile. A sequence is visited at once.
    pub fn scan(
        &self,
        cursor: u64,
        count: usize,
        now_ms: u64,
        visit: &mut dyn FnMut(Field<'a>),
    ) -> Result<Scanned, Broken> {
        let Some(table) = self.head.table else {
            for field in self.fields(now_ms) {
                visit(field?);
            }
            return Ok(Scanned { cursor: 0 });
        };
        let (slots, seed) = (table.slots, table.seed);
        if cursor > u64::from(u32::MAX) || slots == 0 {
            return Ok(Scanned { cursor: 0 });
        }
        let first = home(slots, cursor << 32);
        // The fields with a home slot from `first` to before `end`.
        let (mut end, mut seen) = (first, 0);
        while end < slots && seen < count.max(1) {
            seen += usize::from(slot_at(self.bytes, end)?.0 != 0);
            end += 1;
        }
        let bound = first_hash(slots, end);
        // They lie there or right behind: up to the first free slot, around the end.
        let mut slot = first;
        for step in 0..slots {
            let (offset, _) = slot_at(self.bytes, slot)?;
            if offset == 0 && step >= end - first {
                break;
            }
            if let Some(field) = self.at_slot(slot, now_ms)? {
                let hash = field_hash(seed, field.name) >> 32;
                if (cursor..bound).contains(&hash) {
                    visit(field);
                }
            }
            slot = if slot + 1 == slots { 0 } else { slot + 1 };
        }
        Ok(Scanned { cursor: if end == slots { 0 } else { bound } })
    }
}

/// The least hash, of 32 bits, with this home slot.
fn first_hash(slots: usize, slot: usize) -> u64 {
    ((slot as u64) << 32).div_ceil(slots as u64)
}
