//! Sweep of a table: collects holes and expired fields a little at a time.
//!
//! A hole is carried along at the sweep's position. The sweep merges the next hole with it, or swaps the next
//! entry with it. So before the sweep there are only holes made since, and at the end the hole is cut off.

use tiermem_base::hash::field_hash;

use super::directory::{free, put_slot, slot_of};
use super::entry::{Entry, Parts, write_hole};
use super::head::{Head, Table, earlier};
use super::{Broken, SWEEP_BYTES_MAX, SWEEP_FACTOR};

/// Bytes that looking at an entry counts for.
const STEP_BYTES: usize = 16;
/// A sweep starts when more than one in this number of bytes is a hole.
const DEAD_SHARE: usize = 4;

/// The work in bytes that a change of `changed_bytes` pays for.
pub(super) fn budget(changed_bytes: usize) -> usize {
    changed_bytes.saturating_add(STEP_BYTES).saturating_mul(SWEEP_FACTOR).min(SWEEP_BYTES_MAX)
}

/// Goes on with the sweep of a table, or starts one where that is due, for about `budget` bytes. Updates `head`.
pub(super) fn advance(
    bytes: &mut [u8],
    head: &mut Head,
    now_ms: u64,
    mut budget: usize,
) -> Result<(), Broken> {
    let Some(mut table) = head.table else { return Ok(()) };
    if table.sweep == 0 {
        if table.dead * DEAD_SHARE <= head.used - head.entries() && !head.is_due(now_ms) {
            return Ok(());
        }
        (table.sweep, table.next_earliest) = (head.entries(), 0);
    }
    if table.sweep < head.entries() {
        return Err(Broken);
    }
    while budget > 0 && table.sweep < head.used {
        let at = table.sweep;
        let entry = Entry::read(bytes, at, head.used)?;
        let Some(parts) = entry.parts.clone() else {
            budget = budget.saturating_sub(carry(bytes, head, &mut table, &entry, now_ms)? + STEP_BYTES);
            continue;
        };
        if parts.is_over(now_ms) {
            drop_entry(bytes, head, &mut table, &entry, parts)?;
        } else {
            earlier(&mut table.next_earliest, parts.expires_ms());
            table.sweep = entry.end;
        }
        budget = budget.saturating_sub(STEP_BYTES);
    }
    if table.sweep >= head.used {
        head.earliest_ms = table.next_earliest;
        (table.sweep, table.next_earliest) = (0, 0);
    }
    head.table = Some(table);
    Ok(())
}

/// Brings `hole` past what comes behind it; how many bytes that moved.
fn carry(
    bytes: &mut [u8],
    head: &mut Head,
    table: &mut Table,
    hole: &Entry,
    now_ms: u64,
) -> Result<usize, Broken> {
    if hole.end >= head.used {
        // The sweep has reached the end.
        head.used = hole.at;
        table.dead = table.dead.saturating_sub(hole.len());
        return Ok(0);
    }
    let next = Entry::read(bytes, hole.end, head.used)?;
    let Some(parts) = next.parts.clone() else {
        write_hole(bytes, hole.at, hole.len() + next.len());
        return Ok(0);
    };
    if parts.is_over(now_ms) {
        drop_entry(bytes, head, table, &next, parts)?;
        write_hole(bytes, hole.at, hole.len() + next.len());
        return Ok(0);
    }
    let hash = field_hash(table.seed, bytes.get(parts.field.clone()).ok_or(Broken)?);
    let slot = slot_of(bytes, table, hash, next.at)?;
    earlier(&mut table.next_earliest, parts.expires_ms());
    bytes.copy_within(next.at..next.end, hole.at);
    put_slot(bytes, slot, hole.at, hash);
    table.sweep = hole.at + next.len();
    write_hole(bytes, table.sweep, hole.len());
    Ok(next.len())
}

/// Takes a field out and makes its entry a hole.
pub(super) fn drop_entry(
    bytes: &mut [u8],
    head: &mut Head,
    table: &mut Table,
    entry: &Entry,
    parts: Parts,
) -> Result<(), Broken> {
    let hash = field_hash(table.seed, bytes.get(parts.field).ok_or(Broken)?);
    let slot = slot_of(bytes, table, hash, entry.at)?;
    free(bytes, head, table, slot)?;
    write_hole(bytes, entry.at, entry.len());
    table.dead = table.dead.saturating_add(entry.len()).min(head.used);
    head.count = head.count.saturating_sub(1);
    Ok(())
}
