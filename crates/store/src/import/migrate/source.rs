//! Source of a migration: the server that has the keys.

use super::{RedisUrl, unexpected};
use crate::import::LoadError;
use crate::import::reply::Reply;
use crate::import::resp_client::Link;

/// A connection to the source, and what it says of itself.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) link: Link,
    /// Differs from one run of the server to the next; empty where it does not tell.
    pub(super) run_id: String,
    /// Keys of the database.
    pub(super) keys: u64,
    /// Whether its hashes' fields may expire (Redis 7.4).
    pub(super) field_expiry: bool,
}

impl Source {
    pub(super) fn open(url: &RedisUrl) -> Result<Self, LoadError> {
        let mut link = Link::open(&url.address, &url.login)?;
        let run_id = match link.ask(&[b"INFO", b"server"])? {
            Reply::Bulk(text) => {
                let text = String::from_utf8_lossy(&text).into_owned();
                let line = text.lines().find_map(|line| line.strip_prefix("run_id:"));
                line.unwrap_or_default().trim().to_owned()
            }
            _ => String::new(),
        };
        let keys = match link.ask(&[b"DBSIZE"])? {
            Reply::Integer(keys) => keys.max(0) as u64,
            other => return Err(unexpected(&link, "DBSIZE", &other)),
        };
        let info = link.ask(&[b"COMMAND", b"INFO", b"hpttl"])?;
        let field_expiry =
            matches!(&info, Reply::Array(known) if matches!(known.as_slice(), [Reply::Array(_)]));
        Ok(Source { link, run_id, keys, field_expiry })
    }

    /// The next cursor and the keys that this one names.
    pub(super) fn scan(
        &mut self,
        cursor: u64,
        pattern: Option<&str>,
        count: u64,
    ) -> Result<(u64, Vec<Vec<u8>>), LoadError> {
        let (cursor, count) = (cursor.to_string(), count.to_string());
        let mut words: Vec<&[u8]> = vec![b"SCAN", cursor.as_bytes(), b"COUNT", count.as_bytes()];
        if let Some(pattern) = pattern {
            words.extend([b"MATCH".as_slice(), pattern.as_bytes()]);
        }
        let reply = self.link.ask(&words)?;
        let (next, mut keys) = page(&self.link, "SCAN", reply)?;
        // A scan may name a key twice.
        keys.sort_unstable();
        keys.dedup();
        Ok((next, keys))
    }
}

/// The cursor and the strings of a reply to one of the scans.
pub(super) fn page(
    link: &Link,
    command: &'static str,
    reply: Reply,
) -> Result<(u64, Vec<Vec<u8>>), LoadError> {
    let wrong = unexpected(link, command, &reply);
    let Reply::Array(parts) = reply else { return Err(wrong) };
    let Ok([Reply::Bulk(cursor), Reply::Array(found)]) = <[Reply; 2]>::try_from(parts) else {
        return Err(wrong);
    };
    let cursor = std::str::from_utf8(&cursor).ok().and_then(|cursor| cursor.parse().ok()).ok_or(wrong)?;
    Ok((cursor, strings(found)))
}

/// The strings among replies.
pub(super) fn strings(replies: Vec<Reply>) -> Vec<Vec<u8>> {
    let string = |reply| if let Reply::Bulk(bytes) = reply { Some(bytes) } else { None };
    replies.into_iter().filter_map(string).collect()
}
