//! Contents of a shard: its items in memory and in the log below, and what passes from one to the other.

use super::log::LogWork;
use super::{Act, From, Items, Memory, Why};
use crate::Id;
use crate::ladder::{LadderConfig, Loc};
use crate::log::{Fate, Leaving, LogPlace};
use tiermem_base::Rng;

/// An item that leaves memory.
pub(super) struct Leaves {
    pub(super) id: Id,
    pub(super) loc: Loc,
    pub(super) hash: u64,
    pub(super) expires_at_ms: Option<u64>,
    pub(super) last_used: u64,
}

/// The items in memory, and the log if there is one. The ladder is told how the log stands, and charged with it.
#[derive(Debug)]
pub(super) struct Contents {
    memory: Memory,
    log: Option<LogWork>,
}

impl Contents {
    /// An empty shard without a log.
    pub(super) fn new(config: LadderConfig, behind_bytes: u64) -> Self {
        Contents { memory: Memory::new(config, behind_bytes), log: None }
    }

    /// Puts a log below memory. Before anything enters.
    pub(super) fn attach(&mut self, log: LogWork) {
        self.log = Some(log);
        self.charge_log();
        self.report_outlet();
    }

    /// The items in memory.
    #[inline]
    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The memory, to change it.
    #[inline]
    pub(super) fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// The log, if there is one.
    #[inline]
    pub(super) fn log(&self) -> Option<&LogWork> {
        self.log.as_ref()
    }

    /// The log, and the memory whose index has its entries. A caller that changes the log [reports](Self::report_outlet) that.
    #[inline]
    pub(super) fn log_mut(&mut self) -> Option<(&mut LogWork, &mut Memory)> {
        Some((self.log.as_mut()?, &mut self.memory))
    }

    /// Whether the log has nothing to do at once.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.log.as_ref().is_none_or(LogWork::is_quiet)
    }

    /// Takes a live item out of memory. Returns the place where its bytes were, which is free now.
    pub(super) fn forget<I: Items>(&mut self, id: Id, hash: u64, items: &I) -> Loc {
        self.memory.forget(id, hash, |loc| items.bytes(id, loc).here)
    }

    /// Forgets the log's copy of a key that gets other bytes or is removed. Returns where it was.
    pub(super) fn forget_below(&mut self, hash: u64) -> Option<LogPlace> {
        let place = self.log.as_mut()?.forget(self.memory.keys_mut(), hash);
        self.charge_log();
        place
    }

    /// Forgets the log's copy of an item at `loc` that is about to change or leave. Returns where the copy was. The number `id`
    /// may be free already.
    pub(super) fn forget_copy<I: Items>(
        &mut self,
        id: Id,
        loc: Loc,
        hash: u64,
        items: &mut I,
    ) -> Option<LogPlace> {
        self.log.as_ref()?;
        items.is_unchanged(id, loc).then(|| items.note_changed(id, loc))?;
        self.forget_below(hash)
    }

    /// An item has left memory: what becomes of it.
    pub(super) fn sink<I: Items>(&mut self, leaving: Leaves, items: &I) -> Option<Act> {
        let Leaves { id, loc, hash, expires_at_ms, last_used } = leaving;
        let leave = |why| Some(Act::Leave { id, loc, hash, why, expires_at_ms, last_used, below: None });
        let Some(work) = &mut self.log else { return leave(Why::Evicted) };
        // Beyond 4 GiB it is no more than too large.
        let bytes = u32::try_from(items.bytes(id, loc).below).unwrap_or(u32::MAX);
        let from = From::Memory { id, loc, expires_at_ms };
        let leaving = Leaving { hash, bytes, last_used };
        let fate = work.take_in(&mut self.memory, &leaving, items.is_unchanged(id, loc), (loc.tier, from));
        let act = match fate {
            Fate::Stays => leave(Why::Stays),
            Fate::Rejected | Fate::Refused => leave(Why::Evicted),
            Fate::Enters => work.next_act().or_else(|| leave(Why::Evicted)),
        };
        self.report_outlet();
        self.charge_log();
        act
    }

    /// Begins a piece of the log's own work.
    pub(super) fn begin_piece(&mut self, rng: &mut Rng) {
        if let Some(work) = &mut self.log {
            work.begin_piece(rng);
            self.report_outlet();
        }
    }

    /// Continues the piece at hand. Returns its next act; `None`: there is no piece, or it is over.
    pub(super) fn go_on<I: Items>(&mut self, items: &mut I) -> Option<Act> {
        let work = self.log.as_mut().filter(|work| work.is_at_work())?;
        let act = work.go_on(&mut self.memory, items);
        self.report_outlet();
        act
    }

    /// The log's next act, before anything else is decided.
    #[inline]
    pub(super) fn next_act(&mut self) -> Option<Act> {
        self.log.as_mut().and_then(LogWork::next_act)
    }

    /// Charges tier 0 with the bytes of the log's state.
    pub(super) fn charge_log(&mut self) {
        if let Some(work) = &self.log {
            self.memory.charge_log(work.log().metadata_bytes());
        }
    }

    /// Tells the ladder how the log stands.
    pub(super) fn report_outlet(&mut self) {
        if let Some(work) = &self.log {
            let residents = self.memory.ladder().residents();
            let item_bytes = (0..residents.levels()).map(|tier| self.memory.item_bytes(tier)).sum();
            let outlet = work.outlet(residents.items(), item_bytes);
            self.memory.ladder_mut().set_outlet(outlet);
        }
    }
}
