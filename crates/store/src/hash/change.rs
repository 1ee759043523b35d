//! Changes of a hash in place.
//!
//! After an error a blob may be changed by half; the error means that it was damaged before.

use tiermem_base::hash::field_hash;

use super::directory::{Probe, find, holds, put_slot};
use super::entry::{Entry, Parts, entry_bytes, write, write_hole};
use super::head::{Head, SEQUENCE_HEAD, Table, earlier, put_u48};
use super::sweep::{advance, budget, drop_entry};
use super::{Broken, SEQUENCE_BYTES_MAX, SEQUENCE_FIELDS_MAX, SWEEP_BYTES_MAX};

/// Result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The field is new.
    Added,
    /// The field was there.
    Replaced,
    /// The field does not exist; nothing changed.
    Missing,
    /// The blob has no room for it; nothing changed. Rebuild it and try again.
    NoRoom,
}

/// What happens to a field's expiry when its value is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// It is taken away.
    Clear,
    /// It stays.
    Keep,
    /// The field expires at this Unix time in ms.
    At(u64),
}

impl Ttl {
    /// The expiry that an entry gets in place of this one; `over` says that what was there is past its time.
    fn expiry(self, old: Option<&Parts>, over: bool) -> Option<u64> {
        match self {
            Ttl::Clear => None,
            Ttl::Keep => old.filter(|_| !over).map(Parts::expires_ms).filter(|at_ms| *at_ms != 0),
            Ttl::At(at_ms) => Some(at_ms),
        }
    }
}

/// Whether `fields` new fields of `bytes` in all, as [`entry_bytes`] counts them, fit without rebuilding.
pub fn room_for(blob: &[u8], fields: usize, bytes: usize) -> Result<bool, Broken> {
    let head = Head::read(blob)?;
    Ok(has_room(blob, &head, fields, bytes))
}

fn has_room(blob: &[u8], head: &Head, fields: usize, bytes: usize) -> bool {
    let count = head.count.saturating_add(fields);
    let used = head.used.saturating_add(bytes);
    used <= blob.len()
        && match &head.table {
            None => count <= SEQUENCE_FIELDS_MAX && used - SEQUENCE_HEAD <= SEQUENCE_BYTES_MAX,
            Some(table) => holds(table.slots, count),
        }
}

/// The entry of `field` in a sequence.
fn find_in_sequence(bytes: &[u8], head: &Head, field: &[u8]) -> Result<Option<(Entry, Parts)>, Broken> {
    let mut at = head.entries();
    while at < head.used {
        let entry = Entry::read(bytes, at, head.used)?;
        at = entry.end;
        if let Some(parts) = entry.parts.clone()
            && bytes.get(parts.field.clone()) == Some(field)
        {
            return Ok(Some((entry, parts)));
        }
    }
    Ok(None)
}

/// Gives an entry of a sequence another length, moving what lies behind it. The caller has made sure of the room.
fn resize(bytes: &mut [u8], head: &mut Head, entry: &Entry, len: usize) {
    bytes.copy_within(entry.end..head.used, entry.at + len);
    head.used = head.used - entry.len() + len;
}

/// Gives `field` this value.
pub fn set(bytes: &mut [u8], now_ms: u64, field: &[u8], value: &[u8], ttl: Ttl) -> Result<Change, Broken> {
    let mut head = Head::read(bytes)?;
    put(bytes, &mut head, now_ms, field, value, ttl)
}

/// Makes `field` expire at this Unix time in ms, below [`super::EXPIRES_MS_MAX`]; 0 is never.
pub fn set_expiry(bytes: &mut [u8], now_ms: u64, field: &[u8], at_ms: u64) -> Result<Change, Broken> {
    let mut head = Head::read(bytes)?;
    let found = match &head.table {
        None => find_in_sequence(bytes, &head, field)?,
        Some(table) => match find(bytes, &head, table, field_hash(table.seed, field), field)? {
            Probe::Found { entry, parts, .. } => Some((entry, parts)),
            _ => None,
        },
    };
    let Some((_, parts)) = found.filter(|(_, parts)| !parts.is_over(now_ms)) else {
        return Ok(Change::Missing);
    };
    if let Some((place, _)) = parts.expiry {
        put_u48(bytes, place, at_ms);
        head.note_expiry(at_ms);
        head.write(bytes);
        return Ok(Change::Replaced);
    }
    if at_ms == 0 {
        return Ok(Change::Replaced);
    }
    // The entry has no place for an expiry: it is written anew, longer by that.
    let value = bytes.get(parts.value).ok_or(Broken)?.to_vec();
    put(bytes, &mut head, now_ms, field, &value, Ttl::At(at_ms))
}

fn put(
    bytes: &mut [u8],
    head: &mut Head,
    now_ms: u64,
    field: &[u8],
    value: &[u8],
    ttl: Ttl,
) -> Result<Change, Broken> {
    match head.table {
        None => put_in_sequence(bytes, head, now_ms, field, value, ttl),
        Some(table) => put_in_table(bytes, head, table, now_ms, field, value, ttl),
    }
}

fn put_in_sequence(
    bytes: &mut [u8],
    head: &mut Head,
    now_ms: u64,
    field: &[u8],
    value: &[u8],
    ttl: Ttl,
) -> Result<Change, Broken> {
    let found = find_in_sequence(bytes, head, field)?;
    let over = found.as_ref().is_some_and(|(_, parts)| parts.is_over(now_ms));
    let expiry = ttl.expiry(found.as_ref().map(|(_, parts)| parts), over);
    let len = entry_bytes(field.len(), value.len(), expiry.is_some());
    let (at, change) = match &found {
        Some((entry, _)) => {
            if len > entry.len() && !has_room(bytes, head, 0, len - entry.len()) {
                return Ok(Change::NoRoom);
            }
            resize(bytes, head, entry, len);
            (entry.at, if over { Change::Added } else { Change::Replaced })
        }
        None => {
            if !has_room(bytes, head, 1, len) {
                return Ok(Change::NoRoom);
            }
            let at = head.used;
            head.used += len;
            head.count += 1;
            (at, Change::Added)
        }
    };
    write(bytes, at, field, value, expiry);
    head.note_expiry(expiry.unwrap_or(0));
    head.write(bytes);
    Ok(change)
}

fn put_in_table(
    bytes: &mut [u8],
    head: &mut Head,
    mut table: Table,
    now_ms: u64,
    field: &[u8],
    value: &[u8],
    ttl: Ttl,
) -> Result<Change, Broken> {
    let hash = field_hash(table.seed, field);
    let (at, len, freed, expiry, change) = match find(bytes, head, &table, hash, field)? {
        Probe::Found { slot, entry, parts } => {
            let over = parts.is_over(now_ms);
            let expiry = ttl.expiry(Some(&parts), over);
            let len = entry_bytes(field.len(), value.len(), expiry.is_some());
            let change = if over { Change::Added } else { Change::Replaced };
            if len <= entry.len() {
                write(bytes, entry.at, field, value, expiry);
                write_hole(bytes, entry.at + len, entry.len() - len);
                (entry.at, len, entry.len() - len, expiry, change)
            } else {
                if !has_room(bytes, head, 0, len) {
                    return Ok(Change::NoRoom);
                }
                let at = head.used;
                write(bytes, at, field, value, expiry);
                write_hole(bytes, entry.at, entry.len());
                put_slot(bytes, slot, at, hash);
                (at, len, entry.len(), expiry, change)
            }
        }
        Probe::Free(slot) => {
            let expiry = ttl.expiry(None, false);
            let len = entry_bytes(field.len(), value.len(), expiry.is_some());
            if !has_room(bytes, head, 1, len) {
                return Ok(Change::NoRoom);
            }
            write(bytes, head.used, field, value, expiry);
            put_slot(bytes, slot, head.used, hash);
            head.count += 1;
            (head.used, len, 0, expiry, Change::Added)
        }
        Probe::Full => return Ok(Change::NoRoom),
    };
    if at == head.used {
        head.used += len;
    }
    table.dead = table.dead.saturating_add(freed).min(head.used);
    head.table = Some(table);
    head.note_expiry(expiry.unwrap_or(0));
    advance(bytes, head, now_ms, budget(len + freed))?;
    head.write(bytes);
    Ok(change)
}

/// Takes a field out; whether it was there, and its time not over.
pub fn remove(bytes: &mut [u8], now_ms: u64, field: &[u8]) -> Result<bool, Broken> {
    let mut head = Head::read(bytes)?;
    let was_there = match head.table {
        None => {
            let Some((entry, parts)) = find_in_sequence(bytes, &head, field)? else { return Ok(false) };
            resize(bytes, &mut head, &entry, 0);
            head.count = head.count.saturating_sub(1);
            !parts.is_over(now_ms)
        }
        Some(mut table) => {
            let hash = field_hash(table.seed, field);
            let Probe::Found { entry, parts, .. } = find(bytes, &head, &table, hash, field)? else {
                return Ok(false);
            };
            let was_there = !parts.is_over(now_ms);
            drop_entry(bytes, &mut head, &mut table, &entry, parts)?;
            head.table = Some(table);
            advance(bytes, &mut head, now_ms, budget(entry.len()))?;
            was_there
        }
    };
    head.write(bytes);
    Ok(was_there)
}

/// Removes expired fields: all of them in a blob of up to half of [`SWEEP_BYTES_MAX`],
/// and about that number of bytes in a longer one. Returns the number of fields left.
pub fn collect(bytes: &mut [u8], now_ms: u64) -> Result<usize, Broken> {
    let mut head = Head::read(bytes)?;
    if !head.is_due(now_ms) {
        return Ok(head.count);
    }
    if head.table.is_some() {
        advance(bytes, &mut head, now_ms, SWEEP_BYTES_MAX)?;
        // That may have ended a sweep which began before they were over.
        if head.table.is_some_and(|table| table.sweep == 0) {
            advance(bytes, &mut head, now_ms, SWEEP_BYTES_MAX)?;
        }
    } else {
        let mut at = head.entries();
        let mut earliest_ms = 0;
        while at < head.used {
            let entry = Entry::read(bytes, at, head.used)?;
            match &entry.parts {
                Some(parts) if parts.is_over(now_ms) => {
                    resize(bytes, &mut head, &entry, 0);
                    head.count = head.count.saturating_sub(1);
                }
                Some(parts) => {
                    earlier(&mut earliest_ms, parts.expires_ms());
                    at = entry.end;
                }
                None => at = entry.end,
            }
        }
        head.earliest_ms = earliest_ms;
    }
    head.write(bytes);
    Ok(head.count)
}
