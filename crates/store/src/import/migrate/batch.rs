//! Batch of requests, as used to copy keys and to copy one large hash: keys, requests sent together, expiries.

use std::time::Instant;

use super::Links;
use crate::import::reply::Reply;
use crate::import::report::shown;
use crate::import::resp_client::Link;
use crate::import::{LoadError, Report, request};

/// Result of a batch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) report: Report,
    /// Keys that the target has now.
    pub(super) copied: Vec<Vec<u8>>,
}

/// A key to be copied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'k> {
    pub(super) key: &'k [u8],
    pub(super) expiry: Expiry,
    /// Bytes of a string, fields of a hash.
    pub(super) len: i64,
}

/// When a key expires, by the clock of this process: the two servers' may differ.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expiry(Option<(Instant, u64)>);

impl Expiry {
    /// What a reply to `PTTL` or `HPTTL` that was read at `read` says.
    pub(super) fn of(reply: &Reply, read: Instant) -> Self {
        match reply {
            Reply::Integer(ms) => Expiry(u64::try_from(*ms).ok().map(|ms| (read, ms))),
            _ => Expiry(None),
        }
    }

    /// Milliseconds that are left, as digits; at least one, or the key would be there for ever.
    pub(super) fn left_ms(self) -> Option<String> {
        let (read, ttl_ms) = self.0?;
        let passed_ms = read.elapsed().as_millis() as u64;
        Some(ttl_ms.saturating_sub(passed_ms).max(1).to_string())
    }
}

/// Requests that are sent together.
#[derive(Debug, Default)]
pub(super) struct Requests {
    bytes: Vec<u8>,
    count: usize,
}

impl Requests {
    pub(super) fn add(&mut self, words: &[&[u8]]) {
        request::append(&mut self.bytes, words.iter().copied());
        self.count += 1;
    }

    /// Adds an `HSET` of these pairs.
    pub(super) fn add_hset(&mut self, key: &[u8], pairs: &[Vec<u8>]) {
        request::begin(&mut self.bytes, 2 + pairs.len());
        [b"HSET".as_slice(), key].into_iter().for_each(|word| request::argument(&mut self.bytes, word));
        pairs.iter().for_each(|word| request::argument(&mut self.bytes, word));
        self.count += 1;
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn send(self, link: &mut Link, report: &mut Report) -> Result<Vec<Reply>, LoadError> {
        report.bytes += self.bytes.len() as u64;
        self.ask(link)
    }

    pub(super) fn ask(self, link: &mut Link) -> Result<Vec<Reply>, LoadError> {
        link.pipeline(&self.bytes, self.count)
    }
}

/// Whether none of the next `count` replies is an error; the first one is a complaint.
pub(super) fn answered(
    replies: &mut impl Iterator<Item = Reply>,
    count: usize,
    key: &[u8],
    report: &mut Report,
) -> bool {
    let mut fine = true;
    for reply in replies.take(count) {
        if let (Reply::Error(text), true) = (reply, fine) {
            report.complain(|| shown(key), &text);
            fine = false;
        }
    }
    fine
}

/// Expiry of the fields of hashes, for each field in order; empty where the source has no field expiry.
pub(super) fn field_expiries(
    links: &mut Links,
    hashes: &[(Item<'_>, Vec<Vec<u8>>)],
) -> Result<Vec<Vec<Expiry>>, LoadError> {
    if !links.source.field_expiry {
        return Ok(vec![Vec::new(); hashes.len()]);
    }
    let mut requests = Requests::default();
    for (item, pairs) in hashes {
        let count = (pairs.len() / 2).to_string();
        let mut words: Vec<&[u8]> = vec![b"HPTTL", item.key, b"FIELDS", count.as_bytes()];
        words.extend(pairs.iter().step_by(2).map(Vec::as_slice));
        requests.add(&words);
    }
    let read = Instant::now();
    let replies = requests.ask(&mut links.source.link)?;
    let of_hash = |reply: &Reply| match reply {
        Reply::Array(expiries) => expiries.iter().map(|expiry| Expiry::of(expiry, read)).collect(),
        _ => Vec::new(),
    };
    Ok(replies.iter().map(of_hash).collect())
}

/// Adds a request for each field that expires.
pub(super) fn add_expiries(requests: &mut Requests, item: &Item<'_>, pairs: &[Vec<u8>], expiries: &[Expiry]) {
    for (field, expiry) in pairs.iter().step_by(2).zip(expiries) {
        if let Some(left) = expiry.left_ms() {
            requests.add(&[b"HPEXPIRE", item.key, left.as_bytes(), b"FIELDS", b"1", field]);
        }
    }
}
