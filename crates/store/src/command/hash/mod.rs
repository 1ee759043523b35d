//! Hash commands. A hash is a value of fields, each with a value and an optional expiry of its own.
//!
//! [`crate::hash`] defines the bytes of a hash. These files hold the commands, and what they share: expired fields
//! are collected before anything else, an empty hash is removed, and a hash without room is rebuilt with more.

mod number;
mod read;
mod scan;
mod ttl;
mod write;

pub(super) use number::{hincrby, hincrbyfloat};
pub(super) use read::{hexists, hget, hgetall, hkeys, hlen, hmget, hrandfield, hstrlen, hvals};
pub(super) use scan::hscan;
pub(super) use ttl::{
    hexpire, hexpireat, hexpiretime, hpersist, hpexpire, hpexpireat, hpexpiretime, hpttl, httl,
};
pub(super) use write::{hdel, hmset, hset, hsetnx};

use super::refusal::Refusal;
use crate::engine::{Change as Noted, Engine, ItemRef, ValueKind};
use crate::hash::{self, Broken, Change, Field, Hash, Ttl};

/// Bytes charged for looking into a directory: a cache line.
const PROBE_BYTES: usize = 64;

impl From<Broken> for Refusal {
    fn from(broken: Broken) -> Self {
        Refusal::Built(format!("ERR {broken}").into_bytes())
    }
}

/// The hash under `key`, without fields past their time as far as [`hash::collect`] gets.
fn open(engine: &mut Engine, db: u8, key: &[u8]) -> Result<Option<ItemRef>, Refusal> {
    let now_ms = engine.clock_ms();
    let Some(hit) = engine.look_up(db, key) else { return Ok(None) };
    if hit.kind != ValueKind::Hash {
        return Err(Refusal::WRONG_TYPE);
    }
    let (view, item) = (Hash::read(hit.value)?, hit.item);
    if !view.is_due(now_ms) {
        // A short hash is read as a whole.
        let touched = if view.is_table() { PROBE_BYTES } else { PROBE_BYTES + view.used_bytes() };
        engine.charge_read(item, touched);
        return Ok(Some(item));
    }
    Ok(if collect(engine, db, key)? { engine.look_up(db, key).map(|hit| hit.item) } else { None })
}

/// Collects the fields of a hash that are past their time; whether any is left.
fn collect(engine: &mut Engine, db: u8, key: &[u8]) -> Result<bool, Refusal> {
    let now_ms = engine.clock_ms();
    let Some(value) = engine.in_place().change(db, key)? else { return Ok(false) };
    let (left, item) = (hash::collect(value.bytes, now_ms)?, value.item);
    engine.in_place().charge_write(item, PROBE_BYTES);
    engine.changes().note(Noted::FieldsExpired, db, key);
    if left == 0 {
        engine.remove(db, key);
    }
    Ok(left > 0)
}

/// The hash of an [opened](open) item.
fn view(engine: &Engine, item: ItemRef) -> Result<Hash<'_>, Refusal> {
    Ok(Hash::read(engine.value(item))?)
}

/// The field of this name, charged.
fn find<'a>(engine: &'a Engine, item: ItemRef, name: &[u8]) -> Result<Option<Field<'a>>, Refusal> {
    let hash = view(engine, item)?;
    let field = hash.get(name, engine.clock_ms())?;
    if hash.is_table() {
        engine.charge_read(item, PROBE_BYTES);
        field.iter().for_each(|field| engine.charge_read(item, field.entry_bytes));
    }
    Ok(field)
}

/// The hash under `key` to be changed in place, in entries of `entry_bytes` in all; `None` without a key.
fn open_mut<'a>(
    engine: &'a mut Engine,
    db: u8,
    key: &[u8],
    entry_bytes: usize,
) -> Result<Option<&'a mut [u8]>, Refusal> {
    let now_ms = engine.clock_ms();
    let Some(value) = engine.in_place().change(db, key)? else { return Ok(None) };
    if value.kind != ValueKind::Hash {
        return Err(Refusal::WRONG_TYPE);
    }
    let (view, item) = (Hash::read(value.bytes)?, value.item);
    let (due, touched) = (view.is_due(now_ms), if view.is_table() { PROBE_BYTES } else { view.used_bytes() });
    engine.charge_read(item, touched);
    engine.in_place().charge_write(item, touched);
    if entry_bytes > 0 {
        engine.in_place().charge_write(item, entry_bytes);
    }
    if due && !collect(engine, db, key)? {
        return Ok(None);
    }
    Ok(Some(engine.in_place().change_on(item)))
}

/// Gives fields their values; how many of the fields are new. All of them or, when there is an error, none.
fn put<'p>(
    engine: &mut Engine,
    db: u8,
    key: &[u8],
    pairs: impl Iterator<Item = (&'p [u8], &'p [u8])> + Clone,
    ttl: Ttl,
) -> Result<usize, Refusal> {
    let added = put_unnoted(engine, db, key, pairs, ttl)?;
    engine.changes().note(Noted::Changed, db, key);
    Ok(added)
}

fn put_unnoted<'p>(
    engine: &mut Engine,
    db: u8,
    key: &[u8],
    pairs: impl Iterator<Item = (&'p [u8], &'p [u8])> + Clone,
    ttl: Ttl,
) -> Result<usize, Refusal> {
    let now_ms = engine.clock_ms();
    let entry = |(name, value): (&[u8], &[u8])| hash::entry_bytes(name.len(), value.len(), ttl == Ttl::Keep);
    let all = |bytes: &mut [u8]| {
        pairs.clone().try_fold(0, |added, (name, value)| match hash::set(bytes, now_ms, name, value, ttl)? {
            Change::Added => Ok(added + 1),
            _ => Ok::<_, Broken>(added),
        })
    };
    let sum = |(count, sum): (usize, usize), bytes| (count + 1, sum + bytes);
    // As if all fields were new.
    let (mut fields, mut bytes) = pairs.clone().map(entry).fold((0, 0), sum);
    if let Some(blob) = open_mut(engine, db, key, bytes)? {
        if hash::room_for(blob, fields, bytes)? {
            return Ok(all(blob)?);
        }
        // What takes the place of something as long needs no room.
        let view = Hash::read(blob)?;
        (fields, bytes) = (0, 0);
        for pair in pairs.clone() {
            let len = entry(pair);
            match view.get(pair.0, now_ms)? {
                Some(old) if len <= old.entry_bytes => {}
                Some(_) => bytes += len,
                None => (fields, bytes) = (fields + 1, bytes + len),
            }
        }
        if hash::room_for(blob, fields, bytes)? {
            return Ok(all(blob)?);
        }
    }
    build(engine, db, key, fields, bytes, all)
}

/// Builds a hash anew, with room for `fields` more of `bytes` in all, and changes it.
fn build<T>(
    engine: &mut Engine,
    db: u8,
    key: &[u8],
    fields: usize,
    bytes: usize,
    change: impl FnOnce(&mut [u8]) -> Result<T, Broken>,
) -> Result<T, Refusal> {
    let (now_ms, max, seed) = (engine.clock_ms(), engine.value_bytes_max(), engine.draw() as u32);
    let old = open_mut(engine, db, key, 0)?.map_or(&[][..], |blob| &*blob);
    let size = hash::plan(old, fields, bytes, max)?.ok_or_else(|| too_large(max))?;
    let len = engine.in_place().roomy_len(key.len(), size.len);
    let mut changed = Err(Broken);
    engine.in_place().build(db, key, ValueKind::Hash, len, |old, new| {
        changed = hash::rebuild(old, new, size, seed, now_ms).and_then(|()| change(new));
    })?;
    if changed.is_err() {
        // What a damaged hash was built into means nothing.
        engine.remove(db, key);
    }
    Ok(changed?)
}

#[cold]
fn too_large(max: usize) -> Refusal {
    format!("ERR the hash would be longer than the limit of {max} bytes (max_value) with room to change it")
        .into()
}

/// After fields were taken out: removes an empty hash, and gives memory back that a much smaller one does not need.
fn shrink(engine: &mut Engine, db: u8, key: &[u8]) -> Result<(), Refusal> {
    let Some(blob) = open_mut(engine, db, key, 0)? else { return Ok(()) };
    let view = Hash::read(blob)?;
    if view.count() == 0 {
        engine.remove(db, key);
    } else if view.is_sparse() {
        // For want of memory the hash stays as it is.
        let _ = build(engine, db, key, 0, 0, |_| Ok(()));
    }
    Ok(())
}
