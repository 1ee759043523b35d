//! Key commands that find, copy and describe keys.

use crate::engine::{Condition, DATABASES, Engine, Expiry, StoreError, ValueKind};
use crate::glob;
use crate::hash::{Field, Hash};
use crate::resp::{Args, parse_i64};

use super::context::Context;
use super::permit::Sight;
use super::refusal::{Outcome, Refusal};
use super::string::keep_scratch;

/// Keys visited between two looks at how long the reply has become.
const KEYS_BATCH: usize = 4096;
const NO_SUCH_KEY: Refusal = Refusal::Text("ERR no such key");

/// `KEYS` is refused where more keys than these lie on flash: all of them would have to be read at once.
pub const KEYS_ON_FLASH_MAX: u64 = 10_000;

/// All keys that match. The whole index is gone through at once, and nothing else runs meanwhile.
pub(super) fn keys(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    context.host.timing.mark_long();
    if context.engine.flash().keys() > KEYS_ON_FLASH_MAX {
        let text = "ERR KEYS would have to read the whole flash tier, use SCAN";
        return Err(Refusal::Text(text));
    }
    let sight = Sight::of(context);
    let (db, limit) = (context.session.db, context.host.reply_bytes_max);
    let mut found = 0;
    let mut cursor = 0;
    let mut replies = Vec::new();
    loop {
        cursor = context.engine.keyspace().scan(db, cursor, KEYS_BATCH, &mut |key, _| {
            if glob::matches(&args[1], key, false) && sight.has(key) {
                crate::resp::Writer::new(&mut replies, context.session.version).bulk(key);
                found += 1;
            }
        });
        if replies.len() > limit {
            return Err(Refusal::NoRoom { needs_bytes: 2 * replies.len(), things: "keys" });
        }
        if cursor == 0 {
            break;
        }
    }
    context.reply().array(found);
    context.output.bytes().extend_from_slice(&replies);
    Ok(())
}

pub(super) fn randomkey(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    context.host.timing.mark_long();
    let sight = Sight::of(context);
    match context.engine.keyspace().random_key(context.session.db, &mut |key| sight.has(key)) {
        Some(key) => context.reply().bulk(&key),
        None => context.reply().null(),
    }
    Ok(())
}

/// Copies the value and expiry of a key to another key and replaces what that
/// had; `Ok(false)` when the source does not exist. `value` is a scratch buffer.
fn copy_value(
    engine: &mut Engine,
    from: (u8, &[u8]),
    to: (u8, &[u8]),
    value: &mut Vec<u8>,
) -> Result<bool, StoreError> {
    let Some(expires_at) = engine.expires_at(from.0, from.1) else { return Ok(false) };
    let Some(hit) = engine.peek(from.0, from.1) else { return Ok(false) };
    value.clear();
    value.extend_from_slice(hit.value);
    let kind = hit.kind;
    let expiry = expires_at.map_or(Expiry::Never, Expiry::AtUnixMs);
    engine.set_kind(to.0, to.1, (kind, value), Condition::Always, expiry)
}

/// Copies through the scratch memory; whether there was something to copy.
fn copy_key(context: &mut Context<'_>, from: &[u8], to: (u8, &[u8])) -> Result<bool, Refusal> {
    let mut value = core::mem::take(&mut context.host.scratch);
    let copied = copy_value(context.engine, (context.session.db, from), to, &mut value);
    keep_scratch(context, value);
    Ok(copied?)
}

fn is_there(context: &mut Context<'_>, db: u8, key: &[u8]) -> bool {
    context.engine.peek(db, key).is_some()
}

pub(super) fn copy(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (mut db, mut replace) = (context.session.db, false);
    let mut rest = args.iter_from(3);
    while let Some(option) = rest.next() {
        if option.eq_ignore_ascii_case(b"replace") {
            replace = true;
        } else if option.eq_ignore_ascii_case(b"db")
            && let Some(number) = rest.next()
        {
            let number = parse_i64(number).ok_or(Refusal::NOT_AN_INTEGER)?;
            let number = u8::try_from(number).ok().filter(|db| *db < DATABASES);
            db = number.ok_or(Refusal::Text("ERR DB index is out of range"))?;
        } else {
            return Err(Refusal::SYNTAX);
        }
    }
    if db == context.session.db && args[1] == args[2] {
        return Err(Refusal::Text("ERR source and destination objects are the same"));
    }
    let allowed = replace || !is_there(context, db, &args[2]);
    let copied = allowed && copy_key(context, &args[1], (db, &args[2]))?;
    context.reply().integer(i64::from(copied));
    Ok(())
}

pub(super) fn rename(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if !rename_key(context, args, true)? {
        return Err(NO_SUCH_KEY);
    }
    context.reply().ok();
    Ok(())
}

pub(super) fn renamenx(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let db = context.session.db;
    if !is_there(context, db, &args[1]) {
        return Err(NO_SUCH_KEY);
    }
    let renamed = !is_there(context, db, &args[2]) && rename_key(context, args, false)?;
    context.reply().integer(i64::from(renamed));
    Ok(())
}

/// The old key goes last, so that nothing is lost when there is no room for the new one.
fn rename_key(context: &mut Context<'_>, args: Args<'_>, same_is_fine: bool) -> Result<bool, Refusal> {
    let db = context.session.db;
    if args[1] == args[2] {
        return Ok(same_is_fine && is_there(context, db, &args[1]));
    }
    let copied = copy_key(context, &args[1], (db, &args[2]))?;
    if copied {
        context.engine.remove(db, &args[1]);
    }
    Ok(copied)
}

/// The longest string that Redis would keep together with its key's object.
const EMBEDDED_BYTES_MAX: usize = 44;
/// Most fields of a hash that Redis keeps as one list, and the longest name or value in it.
const LISTPACK_FIELDS_MAX: usize = 512;
const LISTPACK_BYTES_MAX: usize = 64;
/// The longest text that may be a number.
const NUMBER_BYTES_MAX: usize = 20;

/// What Redis would call the way in which it had stored the value, told from the value alone.
pub(super) fn object_encoding(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let now_ms = context.host.now_us / 1000;
    let hit = context.engine.peek(context.session.db, &args[2]);
    let encoding = hit.map(|hit| match hit.value {
        hash if hit.kind == ValueKind::Hash => hash_encoding(hash, now_ms),
        number if number.len() <= NUMBER_BYTES_MAX && parse_i64(number).is_some() => "int",
        short if short.len() <= EMBEDDED_BYTES_MAX => "embstr",
        _ => "raw",
    });
    match encoding {
        Some(name) => context.reply().bulk(name.as_bytes()),
        None => context.reply().null(),
    }
    Ok(())
}

/// By Redis's default limits. Redis would remember that a hash was larger once.
fn hash_encoding(hash: &[u8], now_ms: u64) -> &'static str {
    let is_short = |field: &Field<'_>| field.name.len().max(field.value.len()) <= LISTPACK_BYTES_MAX;
    let is_listpack = Hash::read(hash).is_ok_and(|hash| {
        hash.count() <= LISTPACK_FIELDS_MAX && hash.fields(now_ms).flatten().all(|field| is_short(&field))
    });
    if is_listpack { "listpack" } else { "hashtable" }
}

/// Values are never shared.
pub(super) fn object_refcount(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match context.engine.peek(context.session.db, &args[2]).is_some() {
        true => context.reply().integer(1),
        false => context.reply().null(),
    }
    Ok(())
}

pub(super) fn object_idletime(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let Some(idle) = context.engine.keyspace().idle_requests(context.session.db, &args[2]) else {
        context.reply().null();
        return Ok(());
    };
    let used_at = context.engine.requests().saturating_sub(idle);
    let seconds = context.host.timeline.seconds_since(used_at, context.host.now_us / 1_000_000);
    context.reply().integer(seconds as i64);
    Ok(())
}

pub(super) fn object_freq(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if context.engine.peek(context.session.db, &args[2]).is_none() {
        context.reply().null();
        return Ok(());
    }
    Err(Refusal::Text(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
         between policies at runtime LRU and LFU data will take some time to adjust.",
    ))
}

/// There are no replicas, so none has acknowledged anything, and none is waited for.
pub(super) fn wait(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    parse_i64(&args[1]).ok_or(Refusal::NOT_AN_INTEGER)?;
    let timeout_ms =
        parse_i64(&args[2]).ok_or(Refusal::Text("ERR timeout is not an integer or out of range"))?;
    if timeout_ms < 0 {
        return Err(Refusal::Text("ERR timeout is negative"));
    }
    context.reply().integer(0);
    Ok(())
}
