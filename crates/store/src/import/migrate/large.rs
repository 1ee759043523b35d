//! Copying of one large hash, piece by piece.

use super::Links;
use super::batch::{Batch, Item, Requests, add_expiries, answered, field_expiries};
use super::source::page;
use super::state::State;
use crate::import::LoadError;
use crate::import::reply::Reply;
use crate::import::report::shown;

/// Fields that one `HSCAN` is asked for.
const PIECE_FIELDS: &[u8] = b"512";

/// Copies the hash. Until it is complete the state says so:
/// otherwise a resumed run would take the part for the whole hash.
pub(super) fn copy(
    links: &mut Links,
    item: Item<'_>,
    state: &mut State,
    batch: &mut Batch,
) -> Result<(), LoadError> {
    state.begin_hash(item.key)?;
    let (mut cursor, mut fields) = (0u64, 0);
    let mut requests = Requests::default();
    requests.add(&[b"DEL", item.key]);
    let fine = loop {
        let text = cursor.to_string();
        let reply = links.source.link.ask(&[b"HSCAN", item.key, text.as_bytes(), b"COUNT", PIECE_FIELDS])?;
        if let Reply::Error(text) = &reply {
            // It has become another kind meanwhile.
            batch.report.complain(|| shown(item.key), text);
            break false;
        }
        let (next, pairs) = page(&links.source.link, "HSCAN", reply)?;
        if !pairs.is_empty() {
            fields += pairs.len() as u64 / 2;
            let piece = [(item, pairs)];
            let expiries = field_expiries(links, &piece)?;
            requests.add_hset(item.key, &piece[0].1);
            add_expiries(&mut requests, &item, &piece[0].1, &expiries[0]);
        }
        cursor = next;
        if let Some(left) = item.expiry.left_ms().filter(|_| cursor == 0 && fields > 0) {
            requests.add(&[b"PEXPIRE", item.key, left.as_bytes()]);
        }
        let count = requests.count();
        let requests = std::mem::take(&mut requests);
        let mut replies = requests.send(&mut links.target, &mut batch.report)?.into_iter();
        let fine = answered(&mut replies, count, item.key, &mut batch.report);
        if cursor == 0 || !fine {
            break fine;
        }
    };
    if fields == 0 && fine {
        batch.report.vanished += 1;
    } else if fine {
        batch.report.hashes += 1;
        batch.report.fields += fields;
        batch.copied.push(item.key.to_vec());
    }
    state.end_hash()
}
