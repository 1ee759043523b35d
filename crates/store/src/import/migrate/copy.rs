//! Copying of one batch of keys.

use std::time::Instant;

use super::batch::{Batch, Expiry, Item, Requests, add_expiries, answered, field_expiries};
use super::source::strings;
use super::state::State;
use super::{Links, Options, large};
use crate::import::reply::Reply;
use crate::import::report::shown;
use crate::import::{LoadError, Report};

/// Bytes of strings read before they are written.
const GROUP_BYTES: i64 = 8 << 20;
/// Fields of hashes read before they are written.
const GROUP_FIELDS: i64 = 4096;
/// Hashes with more fields are read piece by piece.
const WHOLE_FIELDS_MAX: i64 = 256;

/// Copies these keys.
pub(super) fn copy(
    links: &mut Links,
    keys: &[Vec<u8>],
    options: &Options,
    state: &mut State,
) -> Result<Batch, LoadError> {
    let mut batch = Batch::default();
    batch.report.items = keys.len() as u64;
    let (mut texts, mut hashes) = examine(links, keys, &mut batch.report)?;
    measure(links, &mut texts, b"STRLEN")?;
    measure(links, &mut hashes, b"HLEN")?;
    if options.if_absent {
        keep_absent(links, &mut hashes, state, &mut batch.report)?;
    }
    for group in groups(&texts, GROUP_BYTES) {
        copy_strings(links, group, options.if_absent, &mut batch)?;
    }
    let (long, short): (Vec<_>, Vec<_>) = hashes.into_iter().partition(|item| item.len > WHOLE_FIELDS_MAX);
    for group in groups(&short, GROUP_FIELDS) {
        copy_hashes(links, group, &mut batch)?;
    }
    for item in long {
        large::copy(links, item, state, &mut batch)?;
    }
    Ok(batch)
}

/// Cuts items into groups that come to this length together, or are one.
fn groups<'i, 'k>(items: &'i [Item<'k>], len_max: i64) -> impl Iterator<Item = &'i [Item<'k>]> {
    let mut rest = items;
    std::iter::from_fn(move || {
        let mut sum = 0i64;
        let fits = |item: &&Item<'_>| {
            sum = sum.saturating_add(item.len);
            sum <= len_max
        };
        let count = rest.iter().take_while(fits).count().max(1).min(rest.len());
        let (group, after) = rest.split_at(count);
        rest = after;
        (!group.is_empty()).then_some(group)
    })
}

type Kinds<'k> = (Vec<Item<'k>>, Vec<Item<'k>>);

/// Asks for kinds and expiries: strings and hashes. Others are counted.
fn examine<'k>(links: &mut Links, keys: &'k [Vec<u8>], report: &mut Report) -> Result<Kinds<'k>, LoadError> {
    let mut requests = Requests::default();
    for key in keys {
        requests.add(&[b"TYPE", key]);
        requests.add(&[b"PTTL", key]);
    }
    let read = Instant::now();
    let replies = requests.ask(&mut links.source.link)?;
    let (mut texts, mut hashes) = (Vec::new(), Vec::new());
    for (key, replies) in keys.iter().zip(replies.chunks_exact(2)) {
        let item = Item { key, expiry: Expiry::of(&replies[1], read), len: 0 };
        match &replies[0] {
            Reply::Status(kind) if kind == b"none" => report.vanished += 1,
            Reply::Status(_) if replies[1] == Reply::Integer(-2) => report.vanished += 1,
            Reply::Status(kind) if kind == b"string" => texts.push(item),
            Reply::Status(kind) if kind == b"hash" => hashes.push(item),
            Reply::Status(kind) => {
                *report.skipped.entry(String::from_utf8_lossy(kind).into_owned()).or_default() += 1;
            }
            other => report.complain(|| shown(key), &other.describe()),
        }
    }
    Ok((texts, hashes))
}

/// Asks how long items are. One that has become another kind meanwhile counts as short, and reading it will tell.
fn measure(links: &mut Links, items: &mut [Item<'_>], command: &[u8]) -> Result<(), LoadError> {
    let mut requests = Requests::default();
    items.iter().for_each(|item| requests.add(&[command, item.key]));
    let replies = requests.ask(&mut links.source.link)?;
    for (item, reply) in items.iter_mut().zip(replies) {
        item.len = if let Reply::Integer(len) = reply { len } else { 0 };
    }
    Ok(())
}

/// Leaves out hashes that the target has, but for one that was being copied when a run before ended.
fn keep_absent(
    links: &mut Links,
    hashes: &mut Vec<Item<'_>>,
    state: &State,
    report: &mut Report,
) -> Result<(), LoadError> {
    let mut requests = Requests::default();
    hashes.iter().for_each(|item| requests.add(&[b"EXISTS", item.key]));
    let mut replies = requests.ask(&mut links.target)?.into_iter();
    hashes.retain(|item| {
        let there = replies.next() == Some(Reply::Integer(1)) && !state.is_unfinished(item.key);
        report.kept += u64::from(there);
        !there
    });
    Ok(())
}

fn copy_strings(
    links: &mut Links,
    items: &[Item<'_>],
    if_absent: bool,
    batch: &mut Batch,
) -> Result<(), LoadError> {
    let mut requests = Requests::default();
    items.iter().for_each(|item| requests.add(&[b"GET", item.key]));
    let values = requests.ask(&mut links.source.link)?;
    let (mut requests, mut sent) = (Requests::default(), Vec::new());
    for (item, value) in items.iter().zip(values) {
        let value = match value {
            Reply::Bulk(value) => value,
            Reply::Null => {
                batch.report.vanished += 1;
                continue;
            }
            other => {
                batch.report.complain(|| shown(item.key), &other.describe());
                continue;
            }
        };
        let left = item.expiry.left_ms();
        let mut words: Vec<&[u8]> = vec![b"SET", item.key, &value];
        if let Some(left) = &left {
            words.extend([b"PX".as_slice(), left.as_bytes()]);
        }
        if if_absent {
            words.push(b"NX");
        }
        requests.add(&words);
        sent.push(item);
    }
    let replies = requests.send(&mut links.target, &mut batch.report)?;
    for (item, reply) in sent.into_iter().zip(replies) {
        match reply {
            Reply::Status(_) => {
                batch.report.strings += 1;
                batch.copied.push(item.key.to_vec());
            }
            Reply::Null if if_absent => batch.report.kept += 1,
            Reply::Error(text) => batch.report.complain(|| shown(item.key), &text),
            other => batch.report.complain(|| shown(item.key), &other.describe()),
        }
    }
    Ok(())
}

fn copy_hashes(links: &mut Links, items: &[Item<'_>], batch: &mut Batch) -> Result<(), LoadError> {
    let mut requests = Requests::default();
    items.iter().for_each(|item| requests.add(&[b"HGETALL", item.key]));
    let replies = requests.ask(&mut links.source.link)?;
    let mut hashes = Vec::new();
    for (item, reply) in items.iter().zip(replies) {
        match reply {
            Reply::Array(pairs) if pairs.is_empty() => batch.report.vanished += 1,
            Reply::Array(pairs) => hashes.push((*item, strings(pairs))),
            other => batch.report.complain(|| shown(item.key), &other.describe()),
        }
    }
    let expiries = field_expiries(links, &hashes)?;
    let (mut requests, mut counts) = (Requests::default(), Vec::new());
    for ((item, pairs), expiries) in hashes.iter().zip(&expiries) {
        let before = requests.count();
        requests.add(&[b"DEL", item.key]);
        requests.add_hset(item.key, pairs);
        add_expiries(&mut requests, item, pairs, expiries);
        if let Some(left) = item.expiry.left_ms() {
            requests.add(&[b"PEXPIRE", item.key, left.as_bytes()]);
        }
        counts.push(requests.count() - before);
    }
    let mut replies = requests.send(&mut links.target, &mut batch.report)?.into_iter();
    for ((item, pairs), count) in hashes.iter().zip(counts) {
        if answered(&mut replies, count, item.key, &mut batch.report) {
            batch.report.hashes += 1;
            batch.report.fields += pairs.len() as u64 / 2;
            batch.copied.push(item.key.to_vec());
        }
    }
    Ok(())
}
