//! Building of a blob, and rebuilding it with room for more.

use tiermem_base::hash::field_hash;

use super::directory::{free_slot, put_slot};
use super::entry::{Entry, write};
use super::head::{Head, SEQUENCE_HEAD, SLOT_BYTES, TABLE_HEAD, Table, earlier};
use super::{Broken, SEQUENCE_BYTES_MAX, SEQUENCE_FIELDS_MAX};

/// Below this size of entries half as much is left free, above it a quarter.
const ROOMY_BYTES: usize = 256 << 10;
/// At least this share of the entries is left free: with less, a hash near its limit would be rebuilt all the time.
const SPARE_SHARE_MIN: usize = 16;

/// Size and form of a blob to build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Slots of the directory; 0 for a sequence.
    slots: usize,
    /// Bytes in all. A longer blob has more slack.
    pub len: usize,
}

impl Size {
    fn of(count: usize, live: usize, spare: usize) -> Self {
        if count <= SEQUENCE_FIELDS_MAX && live <= SEQUENCE_BYTES_MAX {
            return Size { slots: 0, len: SEQUENCE_HEAD + live };
        }
        // Directory and entries are to become full together.
        let more = (count as u128 * spare as u128 / live.max(1) as u128) as usize;
        let slots = (count + more) / 3 * 4 + 8;
        Size { slots, len: TABLE_HEAD + SLOT_BYTES * slots + live + spare }
    }
}

/// The size of a blob that holds what `old` does (nothing, if empty) and `fields` more of `bytes` in all, as
/// [`super::entry_bytes`] counts them, with room to grow. `None` when that is longer than `len_max`.
pub fn plan(old: &[u8], fields: usize, bytes: usize, len_max: usize) -> Result<Option<Size>, Broken> {
    let (count, live) = match old {
        [] => (fields, bytes),
        old => {
            let head = Head::read(old)?;
            (head.count.saturating_add(fields), head.live_bytes().saturating_add(bytes))
        }
    };
    let spare = if live < ROOMY_BYTES { live / 2 } else { live / 4 };
    let fits = |spare| Some(Size::of(count, live, spare)).filter(|size| size.len <= len_max);
    Ok(fits(spare).or_else(|| fits(live / SPARE_SHARE_MIN)))
}

/// Writes the fields of `old` (none, if empty) that are not past their time to `new`, a blob of `size.len` bytes or more.
/// `seed` is used unless `old` has one already.
pub fn rebuild(old: &[u8], new: &mut [u8], size: Size, seed: u32, now_ms: u64) -> Result<(), Broken> {
    let from = if old.is_empty() { None } else { Some(Head::read(old)?) };
    let seed = from.and_then(|head| head.table).map_or(seed, |table| table.seed);
    let table = Table { dead: 0, sweep: 0, slots: size.slots, seed, next_earliest: 0 };
    let mut head = Head { earliest_ms: 0, count: 0, used: 0, table: (size.slots > 0).then_some(table) };
    head.used = head.entries();
    // Slots are free when they are zero.
    new.get_mut(..head.used).ok_or(Broken)?.fill(0);
    let (mut at, end) = from.map_or((0, 0), |from| (from.entries(), from.used));
    while at < end {
        let entry = Entry::read(old, at, end)?;
        at = entry.end;
        let Some(parts) = entry.parts.clone().filter(|parts| !parts.is_over(now_ms)) else { continue };
        let offset = head.used;
        let target = new.get_mut(offset..offset + entry.len()).ok_or(Broken)?;
        if parts.expiry.is_some_and(|(_, at_ms)| at_ms == 0) {
            // The room for an expiry that was taken away is given back.
            let (field, value) = (old.get(parts.field.clone()), old.get(parts.value.clone()));
            write(target, 0, field.ok_or(Broken)?, value.ok_or(Broken)?, None);
            head.used += super::entry_bytes(parts.field.len(), parts.value.len(), false);
        } else {
            target.copy_from_slice(old.get(entry.at..entry.end).ok_or(Broken)?);
            head.used += entry.len();
        }
        earlier(&mut head.earliest_ms, parts.expires_ms());
        head.count += 1;
        if size.slots > 0 {
            let hash = field_hash(seed, old.get(parts.field).ok_or(Broken)?);
            let slot = free_slot(new, size.slots, hash)?;
            put_slot(new, slot, offset, hash);
        }
    }
    head.write(new);
    Ok(())
}
