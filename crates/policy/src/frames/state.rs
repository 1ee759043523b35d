//! State of the frames machine: its parts, and the helpers that every call needs.

use super::accounts::Accounts;
use super::act::{Act, Counters, Touch};
use super::cell::{Cell, Cells, DIRTY, Frame, MOVING, PREFETCHED, SEEN, WRITING, ZERO};
use super::config::{Arrival, Config, ConfigError, References, TIERS_MAX};
use super::copies::Copies;
use super::heat::Heat;
use super::order::Order;
use super::references::ReferenceBits;
use crate::evict::{self, Departure, Evict, Item, Origin};
use crate::moves::{Moves, Ticket};
use crate::prefetch::{Insertion, Why};
use crate::promotion_rule::{Candidate, Candidates};

/// The kind of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Fill,
    Fetch,
    Demote,
    Drop,
    WriteBack,
}

/// The record of a move.
#[derive(Clone, Copy, Debug)]
pub(super) struct What {
    pub kind: Kind,
    pub from: Option<u8>,
    pub to: Option<u8>,
    pub owner: u16,
    pub why: Why,
    /// Whatever its outcome, the frame stays where it was: it was written or pinned meanwhile.
    pub stays: bool,
    /// A fault waits for the frame.
    pub awaited: bool,
    /// The fault that waits wants to write.
    pub write: bool,
    /// The frame was found to be zero on its way down.
    pub is_zero: bool,
    pub unused_prefetch: bool,
    pub insertion: Insertion,
}

impl What {
    /// A move with default flags.
    pub fn new(kind: Kind, from: Option<u8>, to: Option<u8>, owner: u16, why: Why) -> Self {
        What {
            kind,
            from,
            to,
            owner,
            why,
            stays: false,
            awaited: false,
            write: false,
            is_zero: false,
            unused_prefetch: false,
            insertion: Insertion::Mru,
        }
    }

    /// The tiers in which a live move gives room back when it is done, or a void one in any case.
    pub fn gives_back(&self, is_void: bool) -> [Option<u8>; 2] {
        let leaves_from = is_void || self.kind != Kind::WriteBack;
        [self.from.filter(|_| leaves_from), self.to.filter(|_| is_void)]
    }
}

/// Everything but the calls.
#[derive(Clone, Debug)]
pub(super) struct State<E> {
    pub cells: Cells,
    pub order: Order<E>,
    pub accounts: Accounts,
    pub copies: Copies,
    pub bits: ReferenceBits,
    pub moves: Moves<What>,
    pub candidates: Candidates,
    /// Where frames change places by their uses: with [`Arrival::Spill`] and several tiers in place.
    pub heat: Option<Heat>,
    pub counters: Counters,
    pub pinned: u32,
    pub config: Config,
    in_place: [bool; TIERS_MAX],
}

impl<E: Evict> State<E> {
    pub fn new(config: Config, policy: E) -> Result<Self, ConfigError> {
        config.check()?;
        let mut in_place = [false; TIERS_MAX];
        in_place.iter_mut().zip(&config.tiers).for_each(|(in_place, tier)| *in_place = tier.in_place);
        Ok(State {
            cells: Cells::default(),
            order: Order::new(policy, &config),
            accounts: Accounts::new(&config),
            copies: Copies::new(config.tiers.iter().any(|tier| tier.keeps_copies)),
            bits: ReferenceBits::default(),
            moves: Moves::new(config.moves_max),
            candidates: Candidates::new(config.candidates.max(1) as usize),
            heat: Heat::of(&config),
            counters: Counters::default(),
            pinned: 0,
            in_place,
            config,
        })
    }

    #[inline]
    pub fn is_in_place(&self, tier: u8) -> bool {
        self.in_place[usize::from(tier)]
    }

    /// A frame in place was used.
    #[inline]
    pub fn refer(&mut self, frame: Frame, cell: Cell, tier: u8, touch: evict::Touch) -> Touch {
        if self.config.references == References::Sampled || cell.is(MOVING) {
            // One that moves is in no order; if it stays it is hot.
            self.bits.set(frame);
        } else if cell.pins() == 0 && self.order.holds(tier) {
            self.order.hit(frame, cell.owner, tier, touch);
        }
        if let Some(heat) = &mut self.heat {
            let is_listed = !cell.is(MOVING) && cell.pins() == 0;
            heat.used(frame, is_listed.then_some(tier));
        }
        if cell.is(MOVING) {
            return Touch::Moving;
        }
        if tier > 0 && self.config.arrival == Arrival::First {
            self.refer_below(frame, cell);
        }
        if !cell.is(PREFETCHED) {
            return Touch::Used;
        }
        self.cells.at(frame).set(PREFETCHED, false);
        Touch::FirstUse
    }

    /// A frame in place below the first tier was used: the second time since it came, it may go up.
    fn refer_below(&mut self, frame: Frame, cell: Cell) {
        let was_seen = cell.is(SEEN);
        self.cells.at(frame).set(SEEN, !was_seen);
        if was_seen {
            self.candidates.push(Candidate { id: frame.id(), reuse: 0 });
        }
    }

    /// The item as which a frame enters an order that does not know it.
    pub fn item(frame: Frame, is_dirty: bool, now: u64) -> Item {
        Item { key: u64::from(frame.0), size: 1, dirty: is_dirty, now }
    }

    /// The frame has come to this tier, by a use or not, and was not in memory before.
    pub fn came_to_memory(&mut self, frame: Frame, tier: u8, is_used: bool) {
        if self.is_in_place(tier)
            && let Some(heat) = &mut self.heat
        {
            heat.came(frame, is_used);
        }
    }

    /// A frame that lies in this tier, does not move and is not pinned stands in the order, if there is one.
    pub fn enter_order(&mut self, frame: Frame, tier: u8, origin: Origin) {
        let cell = self.cells.get(frame);
        if !self.order.holds(tier) {
            return;
        }
        self.order.enter(frame, cell.owner, tier, origin);
        if cell.pins() > 0 {
            // The order keeps its state of the frame until it is unpinned.
            self.order.leave(frame, cell.owner, tier, Departure::Moved);
        } else {
            self.became_movable(frame, cell.owner, tier);
        }
    }

    /// The frame has entered its tier's order, and may move.
    pub fn became_movable(&mut self, frame: Frame, owner: u16, tier: u8) {
        self.accounts.owners.set_movable(owner, tier, true);
        if let Some(heat) = &mut self.heat {
            heat.enter(frame, tier);
        }
    }

    /// The reverse.
    pub fn leave_order(&mut self, frame: Frame, tier: u8, departure: Departure) {
        let cell = self.cells.get(frame);
        if self.order.holds(tier) && cell.pins() == 0 {
            self.order.leave(frame, cell.owner, tier, departure);
            self.accounts.owners.set_movable(cell.owner, tier, false);
            if let Some(heat) = &mut self.heat {
                heat.leave(frame, tier);
            }
        }
    }

    /// Opens a move of a frame, for which room is taken at both ends.
    pub fn open(&mut self, frame: Frame, what: What) -> Option<Ticket> {
        let bytes = u64::from(self.config.frame_bytes);
        let ticket = self.moves.open(u64::from(frame.0), bytes, what);
        debug_assert!(ticket.is_some(), "who opens a move has asked whether there is room for one");
        let flag = if what.kind == Kind::WriteBack { WRITING } else { MOVING };
        self.cells.at(frame).set(flag, true);
        for tier in what.gives_back(false).into_iter().flatten() {
            self.accounts.leaves(what.owner, tier);
        }
        ticket
    }

    /// Gives a frame's clean copy up.
    pub fn give_up_copy(&mut self, frame: Frame, acts: &mut Vec<Act>) {
        let Some(tier) = self.cells.get(frame).copy() else { return };
        self.forget_copy(frame, tier);
        self.counters.copies_gone += 1;
        acts.push(Act::Free { frame, tier });
    }

    /// The copy is no copy any longer: its room is taken for the frame itself, or free.
    pub fn forget_copy(&mut self, frame: Frame, tier: u8) {
        self.copies.leave(frame, tier);
        self.accounts.space.copy_gone(tier);
        self.cells.at(frame).set_copy(None);
    }

    pub fn make_dirty(&mut self, frame: Frame, acts: &mut Vec<Act>) {
        self.give_up_copy(frame, acts);
        let cell = self.cells.at(frame);
        cell.set(DIRTY, true);
        cell.set(ZERO, false);
    }

    /// Where the next frame of a tier would need the place of a copy, the oldest is given up.
    pub fn make_place(&mut self, tier: u8, acts: &mut Vec<Act>) {
        if self.accounts.space.is_full_of_copies(tier)
            && let Some(oldest) = self.copies.oldest(tier)
        {
            self.give_up_copy(oldest, acts);
        }
    }

    /// The tier in place from which frames leave memory as others come.
    pub fn turnover_tier(&self) -> u8 {
        match self.config.arrival {
            Arrival::First => 0,
            Arrival::Spill => self.tiers_in_place() as u8 - 1,
        }
    }

    /// The tier that a frame comes to now, whether there is room or not.
    pub fn arrival_tier(&self, owner: u16) -> u8 {
        let last = self.turnover_tier();
        (0..last).find(|tier| self.accounts.has_room(owner, *tier)).unwrap_or(last)
    }

    /// How many tiers are used in place.
    pub fn tiers_in_place(&self) -> usize {
        self.in_place.iter().filter(|in_place| **in_place).count()
    }
}
