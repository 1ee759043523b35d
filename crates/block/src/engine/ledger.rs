//! What is written down of what happens to units.

use tiermem_policy::extents::{Part, UNIT_BYTES};

use super::Engine;
use super::op::Op;

impl Engine {
    /// Blocks were mapped or unmapped.
    pub(super) fn note_map(&mut self) {}

    /// The operation's plan is stored.
    pub(super) fn note_units(&mut self, op: &Op, _is_dirty: bool) {
        if !self.poisoned.is_empty() {
            for part in &op.plan.fill {
                for unit in part.at / UNIT_BYTES..(part.at + part.bytes) / UNIT_BYTES {
                    self.poisoned.remove(&unit);
                }
            }
        }
    }

    /// These parts are not cached any more.
    pub(super) fn note_dropped(&mut self, _parts: &[Part]) {}

    /// These parts are in the store.
    pub(super) fn note_clean(&mut self, _parts: &[Part]) {}

    /// The operation failed to store its plan: what the cache had of it is lost.
    pub(super) fn poison(&mut self, op: &Op) {
        let mut parts = op.plan.fill.clone();
        for fresh in &op.plan.fresh {
            parts = parts.into_iter().flat_map(|part| without(part, fresh)).collect();
        }
        self.poison_parts(op.volume, &parts);
    }

    /// These units read as an error from now on.
    pub(super) fn poison_parts(&mut self, volume: usize, parts: &[Part]) {
        for part in parts {
            let units = part.at / UNIT_BYTES..(part.at + part.bytes) / UNIT_BYTES;
            self.volumes[volume].counts.poisoned_units += units.end - units.start;
            self.poisoned.extend(units);
        }
    }

    /// Whether the cache has lost something of these bytes of its space.
    pub(super) fn is_poisoned(&self, at: u64, bytes: u64) -> bool {
        !self.poisoned.is_empty()
            && (at / UNIT_BYTES..(at + bytes) / UNIT_BYTES).any(|unit| self.poisoned.contains(&unit))
    }
}

/// What is left of a part without another.
fn without(part: Part, gone: &Part) -> impl Iterator<Item = Part> {
    let end = part.at + part.bytes;
    let cut = |from: u64, to: u64| {
        let (from, to) = (from.clamp(part.at, end), to.clamp(part.at, end));
        (from < to).then(|| Part { offset: part.offset + (from - part.at), at: from, bytes: to - from })
    };
    let (before, behind) = if gone.at < end && part.at < gone.at + gone.bytes {
        (cut(part.at, gone.at), cut(gone.at + gone.bytes, end))
    } else {
        (Some(part), None)
    };
    before.into_iter().chain(behind)
}
