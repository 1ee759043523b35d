//! Pending fetches of a connection: keys on flash, space there, and room for a large value, before its next request.
//!
//! A request runs when all of its keys are in memory or staged. A request that has to wait is put back;
//! its fetches stay with the connection. Fetches for known requests behind it start too, so that a
//! pipeline's reads overlap. Requests of one connection run in order, no matter which fetch ends first.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::flash::FetchId;

use crate::command::{KEYS_ON_FLASH_MAX, Needs, Resolved};
use crate::engine::{Engine, FlashKey, HEADER_BYTES, RANDOM_SAMPLE};
use crate::host::{Host, Session};
use crate::resp::Args;
use crate::shards::Placement;

/// Questions that one connection has open for requests to come.
const AHEAD_MAX: usize = 32;

/// A connection's open questions.
#[derive(Debug, Default)]
pub(super) struct PendingFetches {
    /// By the first 40 bits of the key's hash: a request may have thousands.
    asked: BTreeMap<u64, (FlashKey, FetchId)>,
    /// The keys of the current request.
    wanted: Vec<FlashKey>,
    /// The last of its questions that was not answered when they were looked through.
    last: Option<FetchId>,
}

impl PendingFetches {
    /// Starts or checks the fetches of a request; `false`: it must
    /// wait, and `waker` is woken when it should be tried again.
    pub(super) fn stage(
        &mut self,
        engine: &mut Engine,
        (session, host): (&Session, &Host),
        (found, args): (Resolved, Args<'_>),
        waker: &Waker,
    ) -> bool {
        // They are answered about in order: while the last one is not, there is no need to look through thousands.
        if self.last.is_some_and(|id| !engine.flash_reads().is_answered(id, waker)) {
            return false;
        }
        self.last = None;
        engine.flash_reads().prepare();
        let (needs, writes) = found.needs(session, host, args);
        if writes && engine.flash().is_choked() {
            engine.flash().wake_when_unchoked(waker);
            return false;
        }
        if writes && !engine.make_room(item_bytes_max(args)) {
            // Others have their turn between two pieces.
            waker.wake_by_ref();
            return false;
        }
        loop {
            self.wanted.clear();
            match needs {
                Needs::Nothing => return true,
                // A key that is named twice is asked for once.
                Needs::Keys => found.each_key(session, host, args, &mut |db, key| {
                    self.wanted.extend(engine.flash_reads().seek(db, key));
                }),
                Needs::Scan(cursor, count) => {
                    if let Some(start) = engine.keyspace().scan_start(session.db, cursor) {
                        self.wanted = engine.flash_reads().seek_scan(start, count);
                    }
                }
                Needs::AnyKey => {
                    let start = engine.keyspace().begin_random_key(session.db);
                    self.wanted = engine.flash_reads().seek_scan(start, RANDOM_SAMPLE);
                }
                Needs::AllKeys if engine.flash().keys() > KEYS_ON_FLASH_MAX => return true,
                Needs::AllKeys => self.wanted = engine.flash_reads().seek_scan(0, usize::MAX),
            }
            if self.wanted.is_empty() {
                return true;
            }
            for at in 0..self.wanted.len() {
                let away = self.wanted[at];
                let asked = self.ask(engine, away);
                self.last = asked.filter(|id| !engine.flash_reads().is_answered(*id, waker)).or(self.last);
            }
            if self.last.is_some() {
                return false;
            }
            let mut staged = true;
            for at in 0..self.wanted.len() {
                let away = self.wanted[at];
                if let Some((away, id)) = self.asked.remove(&(away.hash() >> 24)) {
                    staged &= engine.flash_reads().stage(away, id);
                }
            }
            if staged {
                return true;
            }
            // Something moved meanwhile: look again where it is.
            engine.flash_reads().unstage();
        }
    }

    fn ask(&mut self, engine: &mut Engine, away: FlashKey) -> Option<FetchId> {
        let before = self.asked.get(&(away.hash() >> 24)).copied();
        if let Some((asked, id)) = before {
            if asked.is_same(&away) {
                return Some(id);
            }
            // It has moved.
            engine.flash_reads().cancel(id);
        }
        let id = engine.flash_reads().ask(away)?;
        self.asked.insert(away.hash() >> 24, (away, id));
        Some(id)
    }

    /// Starts fetches for requests behind the waiting one, except those of keys of other shards.
    pub(super) fn foresee<'a>(
        &mut self,
        engine: &mut Engine,
        placement: Placement,
        db: u8,
        keys: impl Iterator<Item = &'a [u8]>,
    ) {
        for key in keys.take(AHEAD_MAX).filter(|key| placement.owns(key)) {
            if self.asked.len() >= AHEAD_MAX {
                return;
            }
            if let Some(away) = engine.flash_reads().seek(db, key) {
                self.ask(engine, away);
            }
        }
    }

    /// Gives all questions up.
    #[inline]
    pub(super) fn cancel(&mut self, engine: &mut Engine) {
        self.last = None;
        for (_, id) in std::mem::take(&mut self.asked).into_values() {
            engine.flash_reads().cancel(id);
        }
    }

    /// Whether no question is open.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }
}

/// Bytes of the largest item that a request may write: its longest argument, under its first one.
fn item_bytes_max(args: Args<'_>) -> usize {
    let longest = args.iter_from(1).map(<[u8]>::len).max().unwrap_or(0);
    longest + args.get(1).map_or(0, <[u8]>::len) + HEADER_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreConfig;
    use crate::engine::{Condition, Expiry};
    use crate::flash::FlashConfig;
    use tiermem_policy::log::Admission;
    use tiermem_tier::block::MemoryDisk;

    #[test]
    fn only_keys_that_are_at_home_are_foreseen() {
        const FLASH_BYTES: u64 = 8 << 20;
        let tiers = vec!["dram=1MiB".parse().expect("a tier")];
        let config = StoreConfig { tiers, ..StoreConfig::default() }.engine_config(0);
        let mut engine = Engine::new(config.expect("a configuration")).expect("memory");
        let flash = FlashConfig { admission: Admission::All, ..FlashConfig::whole(FLASH_BYTES, 64 << 10, 9) };
        let disk = MemoryDisk::new(FLASH_BYTES as usize);
        engine.flash().attach("flash", None, Box::new(disk.open()), &flash).expect("a disk");
        engine.set_clock(1000);
        let names: Vec<String> = (0..3000).map(|key| format!("key:{key}")).collect();
        for name in &names {
            engine.set(0, name.as_bytes(), &[7; 1000], Condition::Always, Expiry::Never).expect("room");
            engine.commit();
        }
        let names = names.iter().map(String::as_bytes);
        let cold: Vec<&[u8]> =
            names.filter(|name| engine.flash_reads().seek(0, name).is_some()).take(AHEAD_MAX).collect();
        let placement = Placement { own: 1, shards: 3 };
        let own = cold.iter().filter(|name| placement.shard_of(name) == 1).count();
        assert!(own > 0 && own < AHEAD_MAX);
        let mut away = PendingFetches::default();
        away.foresee(&mut engine, placement, 0, cold.iter().copied());
        assert_eq!(away.asked.len(), own);
        away.foresee(&mut engine, Placement::default(), 0, cold.iter().copied());
        assert_eq!(away.asked.len(), AHEAD_MAX);
        away.cancel(&mut engine);
        assert!(away.is_empty());
    }
}
