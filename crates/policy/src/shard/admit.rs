//! Admission: a place for an item is asked for until the ladder has one, or says that there is none.
//!
//! The ladder may answer that it has one when moves have ended, so an admission is a small machine: it asks, the acts that come
//! of the answer are carried out, the moves are settled, and it asks again. It does not ask for ever: what a move makes free
//! may be taken by what another decision needs.

use super::{Act, Items, Memory, Shard, Why};
use crate::ladder::{self, Admit, Eviction, Loc, Ticket};
use crate::{Id, Now};
use tiermem_base::Rng;

/// How often an admission may have to wait for moves before it counts as failed; one is the rule.
const TRIES_MAX: u32 = 8;

/// What is to have a place.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The hash of its key.
    pub hash: u64,
    /// Its bytes, as [`Items::bytes`] will tell them.
    pub bytes: u64,
    /// When it expires, in Unix milliseconds.
    pub expires_at_ms: Option<u64>,
    /// Whose it is; of no meaning where tenants are not told apart.
    pub tenant: u16,
}

/// What became of an admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// The item has a number and a place, and is in the index: write its bytes.
    Placed {
        /// Its number.
        id: Id,
        /// Its place.
        loc: Loc,
        /// The item whose new bytes these are, where it still has its own place: [`Shard::forget`] it.
        replaces: Option<Id>,
    },
    /// There is no room and nothing may go.
    Full {
        /// The item whose new bytes these were to be has left for them.
        old_left: bool,
    },
    /// It goes on when moves have arrived: ask [`Shard::next_act`] after [`Shard::moved`].
    Waits,
}

/// What an admission does when the acts at hand are carried out.
#[derive(Clone, Copy, Debug, Default)]
enum Next {
    /// There is none, or it is over.
    #[default]
    Nothing,
    Ask,
    /// Settles the moves up to this one, or all, and asks again.
    Settle(Option<Ticket>),
    /// Settles all moves, and that is all: a piece of the room for a large item was made.
    EndPiece,
    Place(Id, Loc),
    Refuse,
}

/// How far the admission has come when the acts at hand are carried out.
pub(super) enum Progress {
    /// It has nothing to do, or waits for moves to arrive.
    None,
    /// Acts may follow.
    Made,
    /// An act of its own.
    Act(Act),
}

/// The old bytes of an item that gets new ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Old {
    pub(super) id: Id,
    /// Its place, which is held, so that finding one for the new bytes does not throw it out.
    pub(super) held: Loc,
    /// Whether it may go where there is no room for both.
    pub(super) may_go: bool,
}

/// The admission under way.
#[derive(Debug, Default)]
pub(super) struct Admission {
    entry: Option<Entry>,
    old: Option<Old>,
    old_left: bool,
    tries: u32,
    next: Next,
    answer: Option<Entered>,
    refused: u64,
}

impl Admission {
    /// Whether it has something to do that is not an act.
    #[inline]
    pub(super) fn goes_on(&self) -> bool {
        !matches!(self.next, Next::Nothing)
    }

    fn begin(&mut self, entry: &Entry, old: Option<Old>) {
        debug_assert!(!self.goes_on(), "nothing begins while an admission is under way");
        *self = Admission { entry: Some(*entry), old, refused: self.refused, ..Admission::default() };
        self.next = Next::Ask;
    }

    /// Has all moves settled when the acts at hand are carried out.
    pub(super) fn end_piece(&mut self) {
        debug_assert!(!self.goes_on(), "nothing begins while an admission is under way");
        self.next = Next::EndPiece;
    }

    /// The answer is there without asking.
    pub(super) fn answer(&mut self, entered: Entered) {
        debug_assert!(!self.goes_on(), "nothing begins while an admission is under way");
        self.answer = Some(entered);
    }

    fn ask(&mut self, memory: &mut Memory, now: Now, rng: &mut Rng, decided: &mut Vec<ladder::Act>) {
        let Some(entry) = self.entry else { return };
        let item = memory.new_item(&entry, self.old.map(|old| old.id));
        let answer = memory.ladder.admit(&item, now, rng, decided);
        self.tries += u32::from(answer != Admit::Again);
        self.next = match answer {
            Admit::Ready { id, loc } => Next::Place(id, loc),
            Admit::Again => Next::Settle(None),
            Admit::After(ticket) => Next::Settle(Some(ticket)),
            Admit::Full => Next::Refuse,
        };
    }

    /// The new item is in the index and in the accounts.
    fn place(&mut self, id: Id, loc: Loc, memory: &mut Memory) {
        self.next = Next::Nothing;
        let Some(entry) = self.entry.take() else { return };
        self.release_old(memory);
        memory.insert(id, loc, &entry);
        let replaces = self.old.take().map(|old| old.id);
        self.answer = Some(Entered::Placed { id, loc, replaces });
    }

    fn release_old(&self, memory: &mut Memory) {
        if let Some(old) = self.old {
            memory.ladder.unpin(old.held);
        }
    }

    /// There is no place. It may be the old bytes themselves that stand in the way: then it begins anew once they have left.
    /// Whose bytes these are.
    fn refuse(&mut self, memory: &mut Memory) -> Option<(Id, Entry)> {
        self.next = Next::Nothing;
        self.refused += 1;
        self.release_old(memory);
        let (old, entry) = (self.old.take(), self.entry?);
        // An item that is too large for every tier would not fit without the old one either.
        let may_go = memory.ladder.config().eviction == Eviction::AllItems
            && memory.ladder.could_hold(memory.new_item(&entry, None).bytes);
        let Some(old) = old.filter(|old| old.may_go && may_go) else {
            self.entry = None;
            self.answer = Some(Entered::Full { old_left: self.old_left });
            return None;
        };
        (self.tries, self.next, self.old_left) = (0, Next::Ask, true);
        Some((old.id, entry))
    }
}

impl Shard {
    /// Begins to find a place for a new item. Acts follow; then [`Self::entered`] tells what became of it.
    pub fn enter(&mut self, entry: &Entry, rng: &mut Rng) {
        self.begin_admission(entry, None, rng);
    }

    pub(super) fn begin_admission(&mut self, entry: &Entry, old: Option<Old>, rng: &mut Rng) {
        self.admission.begin(entry, old);
        self.report_outlet();
        self.admission.ask(&mut self.memory, self.now, rng, &mut self.decided);
        if let (Next::Place(id, loc), true) = (self.admission.next, self.decided.is_empty()) {
            // The rule: nobody has to move or leave for it.
            self.place(id, loc);
        }
    }

    /// The new item is in index and accounts; the log's state is charged anew, for an item that left for it may lie there now.
    fn place(&mut self, id: Id, loc: Loc) {
        self.admission.place(id, loc, &mut self.memory);
        self.charge_log();
    }

    /// What became of the admission, when [`Self::next_act`] has nothing more.
    pub fn entered(&mut self) -> Entered {
        self.admission.answer.take().unwrap_or(Entered::Waits)
    }

    /// Admissions that were refused.
    pub fn refused(&self) -> u64 {
        self.admission.refused
    }

    /// Goes on with the admission, all acts at hand being carried out.
    pub(super) fn go_on<I: Items>(&mut self, items: &I, rng: &mut Rng) -> Progress {
        match self.admission.next {
            Next::Nothing => return Progress::None,
            Next::Ask if self.admission.tries >= TRIES_MAX => return self.refuse(items),
            Next::Ask => self.admission.ask(&mut self.memory, self.now, rng, &mut self.decided),
            Next::Settle(last) => {
                let last = last.or_else(|| self.memory.ladder.last_ticket());
                if !last.is_none_or(|last| self.settle(last)) {
                    return Progress::None;
                }
                self.admission.next = Next::Ask;
            }
            Next::EndPiece => {
                if !self.settle_all() {
                    return Progress::None;
                }
                self.admission.next = Next::Nothing;
            }
            Next::Place(id, loc) => self.place(id, loc),
            Next::Refuse => return self.refuse(items),
        }
        Progress::Made
    }

    fn refuse<I: Items>(&mut self, items: &I) -> Progress {
        let Some((id, entry)) = self.admission.refuse(&mut self.memory) else { return Progress::Made };
        let expires_at_ms = self.memory.ladder.expires_at_ms(id);
        let loc = self.forget(id, entry.hash, items);
        self.report_outlet();
        let (hash, last_used) = (entry.hash, self.now.requests);
        Progress::Act(Act::Leave { id, loc, hash, why: Why::Replaced, expires_at_ms, last_used, below: None })
    }
}
