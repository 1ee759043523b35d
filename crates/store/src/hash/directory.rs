//! Directory of a table: from a field's name to the place of its entry.

use tiermem_base::hash::field_hash;

use super::Broken;
use super::entry::{Entry, Parts};
use super::head::{Head, SLOT_BYTES, TABLE_HEAD, Table};

/// What looking for a field ends at.
#[derive(Debug)]
pub(super) enum Probe {
    /// Its entry, and the slot that names it.
    Found { slot: usize, entry: Entry, parts: Parts },
    /// The slot that it would get.
    Free(usize),
    /// The field is not there, and no slot is free.
    Full,
}

/// Whether a directory of `slots` may hold `count` fields: three quarters of it, so that probes stay short.
pub(super) fn holds(slots: usize, count: usize) -> bool {
    count <= slots / 4 * 3
}

/// The slot at which looking for a hash begins.
#[inline]
pub(super) fn home(slots: usize, hash: u64) -> usize {
    (((hash >> 32) * slots as u64) >> 32) as usize
}

#[inline]
fn after(slots: usize, slot: usize) -> usize {
    if slot + 1 >= slots { 0 } else { slot + 1 }
}

/// Offset and tag in a slot; an offset of 0 is a free slot.
#[inline]
pub(super) fn slot_at(bytes: &[u8], slot: usize) -> Result<(usize, u8), Broken> {
    let at = TABLE_HEAD + SLOT_BYTES * slot;
    let slot: &[u8; SLOT_BYTES] =
        bytes.get(at..at + SLOT_BYTES).and_then(|slot| slot.try_into().ok()).ok_or(Broken)?;
    let [a, b, c, d, tag] = *slot;
    Ok((u32::from_le_bytes([a, b, c, d]) as usize, tag))
}

/// Makes a slot name the entry at `offset`.
pub(super) fn put_slot(bytes: &mut [u8], slot: usize, offset: usize, hash: u64) {
    let at = TABLE_HEAD + SLOT_BYTES * slot;
    if let Some(slot) = bytes.get_mut(at..at + SLOT_BYTES) {
        slot[..4].copy_from_slice(&(offset as u32).to_le_bytes());
        slot[4] = hash as u8;
    }
}

/// The entry that a slot names; it must be a field's.
pub(super) fn entry_of(bytes: &[u8], head: &Head, offset: usize) -> Result<(Entry, Parts), Broken> {
    if offset < head.entries() {
        return Err(Broken);
    }
    let entry = Entry::read(bytes, offset, head.used)?;
    let parts = entry.parts.clone().ok_or(Broken)?;
    Ok((entry, parts))
}

/// Looks `field` up by its hash.
#[inline]
pub(super) fn find(
    bytes: &[u8],
    head: &Head,
    table: &Table,
    hash: u64,
    field: &[u8],
) -> Result<Probe, Broken> {
    let mut slot = home(table.slots, hash);
    for _ in 0..table.slots {
        let (offset, tag) = slot_at(bytes, slot)?;
        if offset == 0 {
            return Ok(Probe::Free(slot));
        }
        if tag == hash as u8 {
            let (entry, parts) = entry_of(bytes, head, offset)?;
            if bytes.get(parts.field.clone()) == Some(field) {
                return Ok(Probe::Found { slot, entry, parts });
            }
        }
        slot = after(table.slots, slot);
    }
    Ok(Probe::Full)
}

/// The slot that names the entry at `offset`, by the hash of its field.
pub(super) fn slot_of(bytes: &[u8], table: &Table, hash: u64, offset: usize) -> Result<usize, Broken> {
    let mut slot = home(table.slots, hash);
    for _ in 0..table.slots {
        match slot_at(bytes, slot)?.0 {
            0 => break,
            found if found == offset => return Ok(slot),
            _ => slot = after(table.slots, slot),
        }
    }
    Err(Broken)
}

/// The first free slot for a hash, in a directory that is being filled with fields that differ.
pub(super) fn free_slot(bytes: &[u8], slots: usize, hash: u64) -> Result<usize, Broken> {
    let mut slot = home(slots, hash);
    for _ in 0..slots {
        if slot_at(bytes, slot)?.0 == 0 {
            return Ok(slot);
        }
        slot = after(slots, slot);
    }
    Err(Broken)
}

/// Frees a slot. Those behind it move up, so that no look-up ends at the gap before its field.
pub(super) fn free(bytes: &mut [u8], head: &Head, table: &Table, slot: usize) -> Result<(), Broken> {
    let slots = table.slots;
    let (mut gap, mut at) = (slot, slot);
    for _ in 1..slots {
        at = after(slots, at);
        let (offset, _) = slot_at(bytes, at)?;
        if offset == 0 {
            break;
        }
        let (_, parts) = entry_of(bytes, head, offset)?;
        let hash = field_hash(table.seed, bytes.get(parts.field).ok_or(Broken)?);
        let home = home(slots, hash);
        // It stays if its home lies behind the gap, around the end.
        let stays = if gap < at { gap < home && home <= at } else { gap < home || home <= at };
        if !stays {
            put_slot(bytes, gap, offset, hash);
            gap = at;
        }
    }
    put_slot(bytes, gap, 0, 0);
    Ok(())
}
