//! Verification of a migration: compares a sample of the copied keys.

use tiermem_base::Rng;

use super::Links;
use super::batch::Requests;
use crate::import::reply::Reply;
use crate::import::report::shown;
use crate::import::resp_client::Link;
use crate::import::{LoadError, Report, Verified};

/// Keys compared at a time.
const GROUP: usize = 32;
/// Expiries that differ by less are the same: time passes between asking one server and the other.
const EXPIRY_SLACK_MS: u64 = 5000;

/// A uniform sample of the keys that are offered to it (Vitter's algorithm R, 1985).
#[derive(Debug)]
pub(super) struct Sample {
    keys: Vec<Vec<u8>>,
    max: usize,
    offered: u64,
    rng: Rng,
}

impl Sample {
    pub(super) fn of(max: usize) -> Self {
        Sample { keys: Vec::new(), max, offered: 0, rng: Rng::seeded(max as u64) }
    }

    pub(super) fn offer(&mut self, key: &[u8]) {
        self.offered += 1;
        if self.keys.len() < self.max {
            self.keys.push(key.to_vec());
        } else if let Some(place) = self.keys.get_mut(self.rng.below(self.offered) as usize) {
            *place = key.to_vec();
        }
    }

    pub(super) fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }
}

/// A server's value of a key.
#[derive(Debug, PartialEq, Eq)]
enum StoredValue {
    Nothing,
    String(Reply),
    /// Pairs in the order of their fields.
    Hash(Vec<(Reply, Reply)>),
    Other,
}

/// Asks both servers for these keys. A key that the source no longer has is not compared.
pub(super) fn compare(
    links: &mut Links,
    keys: &[Vec<u8>],
    report: &mut Report,
) -> Result<Verified, LoadError> {
    let mut verified = Verified::default();
    for keys in keys.chunks(GROUP) {
        let theirs = read(&mut links.source.link, keys)?;
        let ours = read(&mut links.target, keys)?;
        for ((key, theirs), ours) in keys.iter().zip(theirs).zip(ours) {
            if theirs.0 == StoredValue::Nothing {
                continue;
            }
            verified.keys += 1;
            if theirs.0 != ours.0 || !expire_alike(theirs.1, ours.1) {
                verified.differing += 1;
                let what = match (theirs.0 == ours.0, &ours.0) {
                    (true, _) => "expires at another time",
                    (false, StoredValue::Nothing) => "is missing",
                    (false, _) => "has another value",
                };
                report.note(|| shown(key), what);
            }
        }
    }
    Ok(verified)
}

fn expire_alike(a: i64, b: i64) -> bool {
    a == b || (a >= 0 && b >= 0 && a.abs_diff(b) <= EXPIRY_SLACK_MS)
}

/// Values and remaining times.
fn read(link: &mut Link, keys: &[Vec<u8>]) -> Result<Vec<(StoredValue, i64)>, LoadError> {
    let mut requests = Requests::default();
    for key in keys {
        requests.add(&[b"TYPE", key]);
        requests.add(&[b"PTTL", key]);
    }
    let about = requests.ask(link)?;
    let mut requests = Requests::default();
    for (key, about) in keys.iter().zip(about.chunks_exact(2)) {
        // An error takes the place of a value that cannot be compared, so replies and keys stay aligned.
        let is_hash = matches!(&about[0], Reply::Status(kind) if kind == b"hash");
        requests.add(&[if is_hash { b"HGETALL".as_slice() } else { b"GET" }, key]);
    }
    let values = requests.ask(link)?;
    let found = about.chunks_exact(2).zip(values).map(|(about, value)| {
        let ttl_ms = if let Reply::Integer(ms) = about[1] { ms } else { -1 };
        let found = match value {
            Reply::Null => StoredValue::Nothing,
            Reply::Array(parts) if parts.is_empty() => StoredValue::Nothing,
            Reply::Array(parts) => {
                let mut pairs: Vec<_> =
                    parts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
                pairs.sort_by(|a, b| bytes(&a.0).cmp(bytes(&b.0)));
                StoredValue::Hash(pairs)
            }
            value @ Reply::Bulk(_) => StoredValue::String(value),
            _ => StoredValue::Other,
        };
        (found, ttl_ms)
    });
    Ok(found.collect())
}

fn bytes(reply: &Reply) -> &[u8] {
    if let Reply::Bulk(bytes) = reply { bytes } else { &[] }
}
