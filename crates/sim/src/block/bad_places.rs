//! Bad places of a simulated cache's device: what was to be read there comes from the store, and nothing is kept there.

use std::ops::Range;

use tiermem_policy::evict::Evict;
use tiermem_policy::extents::{Part, Plan, UNIT_BYTES, Volume};

use super::{Contents, units_at};

/// What two ranges share; empty where they share nothing.
fn common(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

impl<O: Evict> Contents<O> {
    /// Carries a plan out on a device that fails in these bytes, as far as it touches them: each unit that it reads there is read from the
    /// store, unless the store lacks it, and each part that it stores there is not stored.
    pub fn fail(&mut self, bad_places: &[Range<u64>], volume: Volume, plan: &Plan) {
        let Contents { extents, counts, .. } = self;
        let counts = &mut counts[usize::from(volume.0)].1;
        for (place, part) in
            bad_places.iter().flat_map(|place| plan.cached.iter().map(move |part| (place, part)))
        {
            let bad = common(place, &(part.at..part.at + part.bytes));
            for unit in bad.start / UNIT_BYTES..bad.end.div_ceil(UNIT_BYTES) {
                extents.fail(unit..unit + 1);
                let at = unit * UNIT_BYTES;
                let unit = Part { offset: part.offset + (at - part.at), at, bytes: UNIT_BYTES };
                let clean = extents.units().those_dirty(&[unit], false);
                extents.units_mut().invalidate(&clean);
                counts.core_reads += clean.len() as u64;
                counts.core_read_bytes += clean.len() as u64 * UNIT_BYTES;
            }
        }
        for part in &plan.fill {
            let is_asked = !extents.units().has_failed(units_at(part));
            let is_bad =
                bad_places.iter().any(|place| !common(place, &(part.at..part.at + part.bytes)).is_empty());
            if is_asked && is_bad {
                extents.fail(units_at(part));
            }
            if !is_asked || is_bad {
                let clean = extents.units().those_dirty(&[*part], false);
                extents.units_mut().invalidate(&clean);
            }
        }
    }
}
