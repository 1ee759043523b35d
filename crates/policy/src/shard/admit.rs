//! Admission: the ladder is asked for a place for an item until it has one, or says that there is none.
//!
//! The ladder may answer that it has a place when moves have ended, so an admission is a small machine: it asks, the acts of the
//! answer are carried out, the moves are settled, and it asks again. The number of tries is bounded: space that a move frees may
//! be taken by another decision.

use super::contents::Contents;
use super::undelivered_acts::UnderWay;
use super::{Act, Entry, Items, Memory, Shard, Why};
use crate::ladder::{self, Admit, Eviction, Loc, Ticket};
use crate::{Id, Now};
use tiermem_base::Rng;

/// How often an admission may have to wait for moves before it counts as failed; one is the rule.
const TRIES_MAX: u32 = 8;

/// The outcome of an admission.
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
    /// It continues when moves have arrived: ask [`Shard::next_act`] after [`Shard::moved`].
    Waits,
}

/// The next step of an admission when the acts at hand are carried out.
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
struct Old {
    id: Id,
    /// Its place, which is held, so that finding one for the new bytes does not throw it out.
    held: Loc,
    /// Whether it may go where there is no room for both.
    may_go: bool,
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
}

impl Admission {
    /// Whether it has something to do that is not an act.
    #[inline]
    pub(super) fn goes_on(&self) -> bool {
        !matches!(self.next, Next::Nothing)
    }

    /// Begins to look for a place. Where no item has to move or leave for it, which is the rule, it finds one at once, and no
    /// state is kept.
    fn begin(
        &mut self,
        entry: &Entry,
        old: Option<Old>,
        (contents, under_way): (&mut Contents, &mut UnderWay),
        now: Now,
        rng: &mut Rng,
    ) {
        debug_assert!(!self.goes_on(), "nothing begins while an admission is under way");
        contents.report_outlet();
        let answer = ask(entry, old, contents.memory_mut(), now, rng, under_way.decided());
        if let (Admit::Ready { id, loc }, true) = (answer, under_way.is_quiet()) {
            self.answer = Some(place(id, loc, entry, old, contents));
            return;
        }
        *self = Admission { entry: Some(*entry), old, ..Admission::default() };
        self.note(answer);
    }

    /// Begins to look for a second place for a live item, whose own is held meanwhile. `may_go`: as the last resort the old place
    /// may be given up for it.
    pub(super) fn begin_replacing(
        &mut self,
        (old, may_go): (Id, bool),
        entry: &Entry,
        (contents, under_way): (&mut Contents, &mut UnderWay),
        now: Now,
        rng: &mut Rng,
    ) {
        let held = contents.memory_mut().ladder_mut().transit_mut().pin(old, None);
        self.begin(entry, Some(Old { id: old, held, may_go }), (contents, under_way), now, rng);
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
        if let Some(entry) = &self.entry {
            let answer = ask(entry, self.old, memory, now, rng, decided);
            self.note(answer);
        }
    }

    /// Notes the next step for when the acts at hand are carried out.
    fn note(&mut self, answer: Admit) {
        self.tries += u32::from(answer != Admit::Again);
        self.next = match answer {
            Admit::Ready { id, loc } => Next::Place(id, loc),
            Admit::Again => Next::Settle(None),
            Admit::After(ticket) => Next::Settle(Some(ticket)),
            Admit::Full => Next::Refuse,
        };
    }

    fn place(&mut self, id: Id, loc: Loc, contents: &mut Contents) {
        self.next = Next::Nothing;
        if let Some(entry) = self.entry.take() {
            self.answer = Some(place(id, loc, &entry, self.old.take(), contents));
        }
    }

    /// There is no place. The old bytes themselves may stand in the way: then the admission begins anew once they have left.
    /// Returns the item of those old bytes.
    fn refuse(&mut self, memory: &mut Memory) -> Option<(Id, Entry)> {
        self.next = Next::Nothing;
        release(self.old, memory);
        let (old, entry) = (self.old.take(), self.entry?);
        // An item that is too large for every tier would not fit without the old one either.
        let may_go = memory.ladder().config().eviction == Eviction::AllItems
            && memory.ladder().residents().could_hold(memory.new_item(&entry, None).bytes);
        let Some(old) = old.filter(|old| old.may_go && may_go) else {
            self.entry = None;
            self.answer = Some(Entered::Full { old_left: self.old_left });
            return None;
        };
        (self.tries, self.next, self.old_left) = (0, Next::Ask, true);
        Some((old.id, entry))
    }

    /// Takes the outcome.
    pub(super) fn take_answer(&mut self) -> Entered {
        self.answer.take().unwrap_or(Entered::Waits)
    }

    /// Goes on, all acts at hand being carried out.
    pub(super) fn go_on<I: Items>(
        &mut self,
        contents: &mut Contents,
        under_way: &mut UnderWay,
        items: &I,
        now: Now,
        rng: &mut Rng,
    ) -> Progress {
        match self.next {
            Next::Nothing => return Progress::None,
            Next::Ask if self.tries >= TRIES_MAX => return self.end_refused(contents, items, now),
            Next::Ask => self.ask(contents.memory_mut(), now, rng, under_way.decided()),
            Next::Settle(last) => {
                let last = last.or_else(|| contents.memory().ladder().transit().last_ticket());
                if !last.is_none_or(|last| under_way.settle(last, contents.memory_mut())) {
                    return Progress::None;
                }
                self.next = Next::Ask;
            }
            Next::EndPiece => {
                if !under_way.settle_all(contents.memory_mut()) {
                    return Progress::None;
                }
                self.next = Next::Nothing;
            }
            Next::Place(id, loc) => self.place(id, loc, contents),
            Next::Refuse => return self.end_refused(contents, items, now),
        }
        Progress::Made
    }

    fn end_refused<I: Items>(&mut self, contents: &mut Contents, items: &I, now: Now) -> Progress {
        let Some((id, entry)) = self.refuse(contents.memory_mut()) else { return Progress::Made };
        let expires_at_ms = contents.memory().ladder().residents().nodes().expires_at_ms(id);
        let loc = contents.forget(id, entry.hash, items);
        contents.report_outlet();
        let (hash, last_used) = (entry.hash, now.requests);
        Progress::Act(Act::Leave { id, loc, hash, why: Why::Replaced, expires_at_ms, last_used, below: None })
    }
}

/// Asks the ladder for a place.
#[inline]
fn ask(
    entry: &Entry,
    old: Option<Old>,
    memory: &mut Memory,
    now: Now,
    rng: &mut Rng,
    decided: &mut Vec<ladder::Act>,
) -> Admit {
    let item = memory.new_item(entry, old.map(|old| old.id));
    memory.ladder_mut().admit(&item, now, rng, decided)
}

/// The new item is in the index and in the accounts. The log's state is charged anew: an item that left for it may lie there now.
#[inline]
fn place(id: Id, loc: Loc, entry: &Entry, old: Option<Old>, contents: &mut Contents) -> Entered {
    release(old, contents.memory_mut());
    contents.memory_mut().insert(id, loc, entry);
    contents.charge_log();
    Entered::Placed { id, loc, replaces: old.map(|old| old.id) }
}

/// Lets go of the old place.
#[inline]
fn release(old: Option<Old>, memory: &mut Memory) {
    if let Some(old) = old {
        memory.ladder_mut().transit_mut().unpin(old.held);
    }
}

impl Shard {
    /// Begins to find a place for a new item. Acts follow; then [`Self::entered`] tells what became of it.
    pub fn enter(&mut self, entry: &Entry, rng: &mut Rng) {
        let holder = (&mut self.contents, &mut self.under_way);
        self.admission.begin(entry, None, holder, self.now, rng);
    }

    /// The outcome of the admission, when [`Self::next_act`] has nothing more.
    pub fn entered(&mut self) -> Entered {
        self.admission.take_answer()
    }
}
