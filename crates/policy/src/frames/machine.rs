//! The machine's parts, and what every call needs of them.

use super::accounts::Accounts;
use super::act::{Act, Counters, Touch};
use super::cell::{Cell, Cells, DIRTY, FRAME_BYTES_MAX, Frame, MOVING, PREFETCHED, SEEN, WRITING, ZERO};
use super::config::{Config, ConfigError, References, TIERS_MAX};
use super::copies::Copies;
use super::order::Order;
use super::owners::Owners;
use super::references::ReferenceBits;
use super::space::Space;
use crate::evict::{self, Departure, Evict, Item, Origin};
use crate::moves::{Moves, Ticket};
use crate::prefetch::{Insertion, Why};
use crate::promote::{Candidate, Candidates};
use tiermem_base::Rng;

/// What a move does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Fill,
    Fetch,
    Demote,
    Drop,
    WriteBack,
}

/// What is kept of a move.
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
    /// The tiers in which a live move gives room back when it is done, or a void one in any case.
    pub fn gives_back(&self, is_void: bool) -> [Option<u8>; 2] {
        let leaves_from = is_void || self.kind != Kind::WriteBack;
        [self.from.filter(|_| leaves_from), self.to.filter(|_| is_void)]
    }
}

/// What a call brings along.
pub(super) struct Ask<'a> {
    pub now: u64,
    pub rng: &'a mut Rng,
    pub acts: &'a mut Vec<Act>,
    pub why: Why,
}

/// The frames of a pager, a pool or a host's cache: where they lie, and who goes.
#[derive(Clone, Debug)]
pub struct Frames<E> {
    pub(super) cells: Cells,
    pub(super) order: Order<E>,
    pub(super) accounts: Accounts,
    pub(super) copies: Copies,
    pub(super) bits: ReferenceBits,
    pub(super) moves: Moves<What>,
    pub(super) candidates: Candidates,
    pub(super) counters: Counters,
    pub(super) pinned: u32,
    pub(super) config: Config,
    in_place: [bool; TIERS_MAX],
    tiers_in_place: u8,
}

/// What is known of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Where it lies, while it moves too; `None`: nowhere, it holds zeros or was never used.
    pub tier: Option<u8>,
    /// Where its clean copy lies.
    pub copy: Option<u8>,
    /// Whose it is.
    pub owner: u16,
    /// How often it is pinned.
    pub pins: u16,
    /// Written since it came, or since it was written back.
    pub is_dirty: bool,
    /// Known to hold zeros alone.
    pub is_zero: bool,
    /// A move of it is under way.
    pub is_moving: bool,
    /// It is being written back.
    pub is_writing: bool,
    /// It was fetched ahead and not used yet.
    pub is_prefetched: bool,
}

impl<E: Evict> Frames<E> {
    /// No frames yet. The policy has [`super::domains`] domains.
    pub fn new(config: Config, policy: E) -> Result<Self, ConfigError> {
        config.check()?;
        let mut in_place = [false; TIERS_MAX];
        in_place.iter_mut().zip(&config.tiers).for_each(|(in_place, tier)| *in_place = tier.in_place);
        Ok(Frames {
            cells: Cells::default(),
            order: Order::new(policy, &config),
            accounts: Accounts::new(&config),
            copies: Copies::new(config.tiers.iter().any(|tier| tier.keeps_copies)),
            bits: ReferenceBits::default(),
            moves: Moves::new(config.moves_max),
            candidates: Candidates::new(config.candidates.max(1) as usize),
            counters: Counters::default(),
            pinned: 0,
            in_place,
            tiers_in_place: in_place.iter().filter(|in_place| **in_place).count() as u8,
            config,
        })
    }

    /// There are so many frames from now on, at most [`crate::Id::COUNT_MAX`]. What is new lies nowhere and is owner 0's. This
    /// alone allocates.
    pub fn grow_to(&mut self, frames: u32) {
        let frames = frames.min(crate::Id::COUNT_MAX);
        self.cells.grow_to(frames);
        self.bits.grow_to(frames);
        self.copies.grow_to(frames);
    }

    /// How many frames there are.
    pub fn len(&self) -> u32 {
        self.cells.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.cells.len() == 0
    }

    /// What is known of a frame.
    pub fn view(&self, frame: Frame) -> View {
        let cell = self.cells.get(frame);
        View {
            tier: cell.tier(),
            copy: cell.copy(),
            owner: cell.owner,
            pins: cell.pins(),
            is_dirty: cell.is(DIRTY),
            is_zero: cell.is(ZERO),
            is_moving: cell.is(MOVING),
            is_writing: cell.is(WRITING),
            is_prefetched: cell.is(PREFETCHED),
        }
    }

    /// Room in the tiers.
    pub fn space(&self) -> &Space {
        &self.accounts.space
    }

    /// Accounts and quotas.
    pub fn owners(&self) -> &Owners {
        &self.accounts.owners
    }

    /// Frames of a tier that an owner is charged for.
    pub fn charged(&self, owner: u16, tier: u8) -> u32 {
        self.accounts.owners.charged(owner, tier)
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Moves under way, those of frames that are gone among them.
    pub fn under_way(&self) -> usize {
        self.moves.len()
    }

    /// How many moves there were, and how they ended.
    pub fn move_counts(&self) -> crate::moves::Counts {
        self.moves.counts()
    }

    /// The eviction policy.
    pub fn policy(&self) -> &E {
        self.order.policy()
    }

    /// Bytes held beside the eviction policy's own: at most [`FRAME_BYTES_MAX`] a frame, and what does not grow with frames.
    pub fn metadata_bytes(&self) -> u64 {
        let per_frame = self.cells.bytes() + self.bits.bytes() + self.copies.bytes();
        debug_assert!(
            per_frame
                <= (u64::from(self.len()) + crate::column::CHUNK_ITEMS as u64) * FRAME_BYTES_MAX as u64 * 9
                    / 8
        );
        per_frame + self.moves.metadata_bytes() + self.accounts.owners.metadata_bytes()
    }

    /// Notes a use of a frame that needs no fault.
    #[inline]
    pub fn touch(&mut self, frame: Frame, now: u64) -> Touch {
        let cell = self.cells.get(frame);
        match cell.tier() {
            Some(tier) if self.is_in_place(tier) => {
                self.refer(frame, cell, tier, evict::Touch { now, write: false })
            }
            _ => Touch::Away,
        }
    }

    /// Notes that something in a run of 2^`frames_log2` frames was used, of which `first` is the first and a multiple. By bits
    /// over one tier in place that is a word for every 64 frames; else it is a touch of each.
    pub fn touch_granule(&mut self, first: Frame, frames_log2: u32, now: u64) {
        debug_assert!(first.0 & ((1 << frames_log2) - 1) == 0, "a granule lies at a multiple of its size");
        if first.0 >= self.len() {
            return;
        }
        if self.config.references == References::Sampled && self.tiers_in_place == 1 {
            return self.bits.set_run(first, frames_log2);
        }
        let end = (u64::from(first.0) + (1 << frames_log2)).min(u64::from(self.len())) as u32;
        for frame in first.0..end {
            self.touch(Frame(frame), now);
        }
    }

    #[inline]
    pub(super) fn is_in_place(&self, tier: u8) -> bool {
        self.in_place[usize::from(tier)]
    }

    /// A frame in place was used.
    #[inline]
    pub(super) fn refer(&mut self, frame: Frame, cell: Cell, tier: u8, touch: evict::Touch) -> Touch {
        if self.config.references == References::Sampled || cell.is(MOVING) {
            // One that moves is in no order; if it stays it is hot.
            self.bits.set(frame);
        } else if cell.pins() == 0 && self.order.holds(tier) {
            self.order.hit(frame, cell.owner, tier, touch);
        }
        if cell.is(MOVING) {
            return Touch::Moving;
        }
        if tier > 0 {
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
    pub(super) fn item(frame: Frame, is_dirty: bool, now: u64) -> Item {
        Item { key: u64::from(frame.0), size: 1, dirty: is_dirty, now }
    }

    /// A frame that lies in this tier, does not move and is not pinned stands in the order, if there is one.
    pub(super) fn enter_order(&mut self, frame: Frame, tier: u8, origin: Origin) {
        let cell = self.cells.get(frame);
        if !self.order.holds(tier) {
            return;
        }
        self.order.enter(frame, cell.owner, tier, origin);
        if cell.pins() > 0 {
            // The order keeps what it knows of it until it is unpinned.
            self.order.leave(frame, cell.owner, tier, Departure::Moved);
        } else {
            self.accounts.owners.set_movable(cell.owner, tier, true);
        }
    }

    /// The reverse.
    pub(super) fn leave_order(&mut self, frame: Frame, tier: u8, departure: Departure) {
        let cell = self.cells.get(frame);
        if self.order.holds(tier) && cell.pins() == 0 {
            self.order.leave(frame, cell.owner, tier, departure);
            self.accounts.owners.set_movable(cell.owner, tier, false);
        }
    }

    /// Opens a move of a frame, for which room is taken at both ends.
    pub(super) fn open(&mut self, frame: Frame, what: What) -> Option<Ticket> {
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
    pub(super) fn give_up_copy(&mut self, frame: Frame, acts: &mut Vec<Act>) {
        let Some(tier) = self.cells.get(frame).copy() else { return };
        self.forget_copy(frame, tier);
        self.counters.copies_gone += 1;
        acts.push(Act::Free { frame, tier });
    }

    /// The copy is no copy any longer: its room is taken for the frame itself, or free.
    pub(super) fn forget_copy(&mut self, frame: Frame, tier: u8) {
        self.copies.leave(frame, tier);
        self.accounts.space.copy_gone(tier);
        self.cells.at(frame).set_copy(None);
    }
}
