//! One shard of a store without its bytes: the machine that the live engine and the simulator drive.
//!
//! A [`Shard`] owns the index, the ladder, the log below it, the log's work and the moves under way, and decides in which order
//! their steps follow each other. It owns no bytes, no device, no clock and no random numbers. Three things pass between it and
//! its driver:
//!
//! - **Facts come in** through [`Items`]: what a live engine reads from an item's header and a simulator from its notes.
//! - **Effects go out** as [`Act`]s. [`Shard::next_act`] gives one at a time, and the driver carries it out before it asks for
//!   the next: a decision may depend on what the act before it wrote, as it does on the header of an item that was just moved.
//! - **Answers come back** as events, in any order: [`Shard::moved`]; of the log's device [`Device::note_safe`] and
//!   [`Device::arrived`]. A simulator gives them when it hands work over, a live engine when the device has done it.
//!
//! A driver calls one of the functions that begin something, and then, always,
//!
//! ```text
//! while let Some(act) = shard.next_act(&mut items, &mut rng) { carry_out(act) }
//! ```
//!
//! Durability is the concern of the log's device alone: in the same way it carries out one [`Duty`] after the other, when it [has
//! told](Device::announce) what it has done.
//!
//! # The protocol
//!
//! | step | functions | what follows |
//! | --- | --- | --- |
//! | a request begins | [`Shard::begin`] | [`Shard::step`] if one [is due](Shard::is_due) |
//! | background work | [`Shard::step`], [`Shard::idle`] | acts |
//! | a look-up | [`Memory::find`], [`Item::hit`] | nothing |
//! | a new item | [`Shard::enter`] | acts; [`Shard::entered`] |
//! | new bytes for an item | [`Shard::rewrite`], [`Shard::replace`] | acts; [`Shard::entered`]; [`Shard::forget`] of the old one |
//! | a removal | [`Shard::forget`] | nothing |
//! | room for a large item | [`Shard::make_room`] | acts |
//! | an item that lies in memory already | [`Shard::restore`] | nothing |
//! | memory is gone | [`LosesPages::settle_moves`], then [`LosesPages::lose_pages`] | acts; nothing |
//! | a log with the items that it holds | [`Shard::attach_log`] | nothing |
//! | a look-up below | [`Shard::seek`], [`Shard::stage`], [`Shard::hit_below`] | [`Shard::enter`] and [`Shard::promoted`] if hot |
//! | the log's copy of a key is out of date | [`Shard::forget_copy`], [`Shard::forget_below`] | nothing |
//! | the log's own work | [`Shard::advance`], [`Device::write_out`] | acts |
//! | work that the device has done | [`Device::note_safe`], [`Device::part_written`], then [`Device::announce`] | duties |
//! | a record for restarts | [`Device::note_record`] | at times a checkpoint |
//! | a checkpoint | [`Device::step_checkpoint`] | duties, acts |
//!
//! # Calls of the live engine alone
//!
//! The engine and the simulator call the same functions in the same order. The exceptions are functions that only bytes, devices
//! that fail, restarts, commands that no trace has, and the figures of a server need. `tests/tests/shard_names.rs` lists each of them
//! with its reason, and fails when a function has one caller only and is not listed, or is listed and has two.
//!
//! # Parts
//!
//! | file | part | owns |
//! | --- | --- | --- |
//! | `memory.rs` | [`Memory`] | keys and ladder, which know the same items; bytes of the tiers |
//! | `keys.rs` | [`Keys`] | the index: what keys lead to, here and in the log; prefetch for look-ups; the index's charge |
//! | `log.rs` | [`LogWork`] | the log's work: the three parts below |
//! | `append.rs` | `Appender` | the log, the items that come into it, and the acts of that |
//! | `open_segments.rs` | `Fillings` | segments that are being filled: which bytes of them are written when, and announced |
//! | `segment_gc.rs` | `Emptying` | the segment that is being emptied, and emptied ones that are not free yet |
//! | `persistence.rs` | `Restarts` | checkpoints, and what the device has to do for restarts |
//! | `checkpoint.rs` | `Checkpoints` | when checkpoints are made, and the segments that they borrow |
//! | `journal.rs` | `Journal` | the room in the journal |
//! | `persist_command.rs` | [`Duty`], [`Parts`] | nothing: what the log's device has to do for restarts |
//! | `contents.rs` | `Contents` | both, and what passes from one to the other; the state of the log, as the ladder knows it |
//! | `undelivered_acts.rs` | `UnderWay` | decisions that were not handed out, moves that are not settled |
//! | `admit.rs` | `Admission` | the admission under way: its tries, and what it waits for |
//! | `device.rs` | [`Device`] | nothing: what the log's device tells |
//! | `item.rs` | [`Item`] | nothing: what requests do to one item |
//! | `rewrite.rs` | | an item's new bytes: in place, beside the old ones, or instead of them |
//! | `fetch.rs` | | look-ups below memory |
//! | `idle.rs` | | the beginning of a request, steps, expiry without requests, room for large items |
//! | `restore.rs` | [`LogState`] | taking items up after a restart, removing all of them |
//! | `lose.rs` | [`LostItem`] | nothing: items whose bytes are gone |
//!
//! # Invariants
//!
//! - An item in memory has one index entry and one place. It enters the index when its admission is over, and leaves it before
//!   its act is handed out.
//! - Space of a move is taken at both ends from the decision until it is settled. Moves are settled in the order of tickets, once
//!   their bytes have arrived, and only where a decision waits for it: at the next step, or where an admission needs the space.
//!   An item that was overwritten, removed or dropped meanwhile stays where it was or is gone, and its move comes to nothing.
//! - The bytes of a tier are those of its items' places in it, to the byte: an item counts where it lies.
//! - While an admission is under way nothing else begins, and neither does while a piece of the log's work is.
//! - An item of the log has one index entry and counts once in its segment. The driver keeps a segment's bytes from its first
//!   [`Act::Append`] until [`Duty::Release`]. A segment is filled again when all of its surviving items are announced, and that
//!   is safe.
//! - A restart begins with a superblock, a checkpoint and both halves of the journal. None of them is written over before its
//!   replacement is safe. Where the journal has no more room for that, a restart finds nothing rather than something wrong.

mod admit;
mod append;
mod checkpoint;
mod contents;
mod device;
mod entry;
mod fetch;
mod idle;
mod item;
mod journal;
mod keys;
mod log;
mod lose;
mod memory;
mod open_segments;
mod persist_command;
mod persistence;
mod restore;
mod rewrite;
mod segment_gc;
mod undelivered_acts;

pub use admit::Entered;
pub use checkpoint::{CheckpointCounters, Checkpoints};
pub use device::Device;
pub use entry::Entry;
pub use fetch::{Away, Staged};
pub use idle::Expiry;
pub use item::Item;
pub use log::LogWork;
pub use lose::{LosesPages, LostItem};
pub use open_segments::Withdrawn;
pub use persist_command::{Duty, Parts, Recorded, Settling};
pub use restore::LogState;

pub use keys::Keys;
pub use memory::Memory;

use crate::ladder::{self, Ladder, LadderConfig, Loc, Setting, Ticket, Tuning};
use crate::log::{Appended, LogPlace};
use crate::{Id, Now};
use admit::{Admission, Progress};
use contents::{Contents, Leaves};
use tiermem_base::Rng;
use undelivered_acts::UnderWay;

/// The facts about items in memory, as the driver knows them. A live engine reads them from their bytes, a simulator from its
/// notes.
pub trait Items {
    /// The name of an item.
    type Key<'a>: Copy;

    /// Whether the item at `loc` has this key.
    fn has_key(&self, id: Id, loc: Loc, key: Self::Key<'_>) -> bool;

    /// The hash of the key of the item at `loc`. `None`: its bytes are gone. [`LosesPages::lose_pages`] must follow, for all that is gone.
    fn hash(&self, id: Id, loc: Loc) -> Option<u64>;

    /// Bytes of the item at `loc`.
    fn bytes(&self, id: Id, loc: Loc) -> Sizes;

    /// Whether the log has the item at `loc` as well, and it was not changed since.
    fn is_unchanged(&self, id: Id, loc: Loc) -> bool;

    /// Notes that the log does not have it any more.
    fn note_changed(&mut self, id: Id, loc: Loc);

    /// The first item of this filling that begins at byte `at` of a segment that has [arrived](Device::arrived), or behind it in
    /// the same page: what stands before it is damaged, or was left empty.
    fn lying_at(&self, segment: u32, sequence: u32, at: u32) -> Option<Lying>;

    /// Asks for the memory in which the facts about the item at `loc` lie, before they are asked for.
    fn bring_near(&self, id: Id, loc: Loc);
}

/// Bytes of an item as the driver stores it, header and key included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// In memory.
    pub here: u64,
    /// In the log.
    pub below: u64,
}

/// An item that stands in a segment.
#[derive(Clone, Copy, Debug)]
pub struct Lying {
    /// The byte of the segment with which it begins.
    pub at: u32,
    /// The hash of its key.
    pub hash: u64,
    /// Its bytes there.
    pub bytes: u32,
    /// Whether it is the last one of its key in its page: a later one buries it.
    pub is_latest: bool,
    /// Why it is dead though the index names it: its time is over.
    pub is_over: bool,
}

/// Where an item's bytes are that are appended to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// In memory, which the item leaves: its number and its place are free.
    Memory {
        /// The item.
        id: Id,
        /// Where its bytes are until the next act.
        loc: Loc,
        /// When it expires, in Unix milliseconds.
        expires_at_ms: Option<u64>,
    },
    /// In the segment that is being emptied.
    Segment {
        /// The segment.
        segment: u32,
        /// The byte at which the item begins.
        at: u32,
    },
}

/// Why an item leaves memory, or the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// To make room.
    Evicted,
    /// Its time was over.
    Expired,
    /// There is room for its key's new bytes only without it.
    Replaced,
    /// It does not leave the store: the log has the same.
    Stays,
    /// It could not be read.
    Lost,
}

/// An act for the driver, to be carried out before it asks for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Copy the item's bytes, and say so with [`Shard::moved`]. The old place stays the item's until it is settled.
    Move {
        /// To hand back.
        ticket: Ticket,
        /// The item that moves.
        id: Id,
        /// Where they are.
        from: Loc,
        /// Where they go.
        to: Loc,
        /// How many there are.
        bytes: u64,
    },
    /// An item stands at its new place. The old place is free.
    Settled {
        /// Where it stood.
        from: Loc,
        /// Where it stands.
        to: Loc,
        /// Its bytes.
        bytes: u64,
        /// When it expires, in Unix milliseconds.
        expires_at_ms: Option<u64>,
    },
    /// The item leaves memory; its bytes are at `loc` until the next act. Its number is free.
    Leave {
        /// The item.
        id: Id,
        /// Where its bytes are.
        loc: Loc,
        /// The hash of its key.
        hash: u64,
        /// The reason.
        why: Why,
        /// When it expires, in Unix milliseconds.
        expires_at_ms: Option<u64>,
        /// When it was last used, in requests.
        last_used: u64,
        /// Where the log had it too, and has it no more.
        below: Option<LogPlace>,
    },
    /// Write an item's bytes to its place in the log.
    Append {
        /// Where they are.
        from: From,
        /// Where they go.
        to: Appended,
        /// The hash of its key.
        hash: u64,
        /// How many there are.
        bytes: u32,
        /// The index entry before, which is dead: another key with the same 40 bits.
        replaced: Option<LogPlace>,
    },
    /// Nothing more comes to this segment: its bytes are kept until [`Duty::Release`].
    Seal {
        /// The segment.
        segment: u32,
    },
    /// Hand these bytes of a segment to the device; bytes that were not written are zero. Call [`Device::note_safe`] when they
    /// are there.
    Write {
        /// The segment.
        segment: u32,
        /// The first byte.
        start: u32,
        /// The byte behind the last.
        end: u32,
    },
    /// Read a whole segment, and say so with [`Device::arrived`].
    Read {
        /// The segment.
        segment: u32,
    },
    /// Nothing is read any more from the segment that was being emptied.
    Free {
        /// The segment.
        segment: u32,
    },
    /// An item has left the log, from byte `at` of the segment that is being emptied.
    Gone {
        /// The hash of its key.
        hash: u64,
        /// Where it was.
        place: LogPlace,
        /// The byte of the emptied segment at which the item was; without meaning where the item is lost.
        at: u32,
        /// The reason.
        why: Why,
        /// Whether memory has it as well.
        has_copy: bool,
    },
    /// Give a page's memory back to the system.
    Discard {
        /// The tier.
        tier: u8,
        /// The page's number in the arena.
        page: u32,
    },
    /// Have another thread take memory for these pages, before they are written.
    Populate {
        /// The tier.
        tier: u8,
        /// The first page's number in the arena.
        first: u32,
        /// How many in a row.
        count: u32,
    },
}

/// A change of a shard's memory while it runs.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// A tier's capacity, in bytes. Items above it leave, a few in every step.
    Capacity {
        /// The tier.
        tier: usize,
        /// Its bytes.
        bytes: u64,
    },
    /// The share or K of tenants.
    Tenant(Setting),
    /// Promotion and the like.
    Tuning(Tuning),
}

/// A shard of a store, without bytes.
#[derive(Debug)]
pub struct Shard {
    contents: Contents,
    now: Now,
    under_way: UnderWay,
    admission: Admission,
}

impl Shard {
    /// An empty shard. The driver keeps `behind_bytes` behind each item, in addition to the bytes that it [tells](Items::bytes).
    ///
    /// # Panics
    /// Where [`Ladder::new`] does; callers check their configuration.
    pub fn new(config: LadderConfig, behind_bytes: u64) -> Self {
        Shard {
            contents: Contents::new(config, behind_bytes),
            now: Now::default(),
            under_way: UnderWay::new(),
            admission: Admission::default(),
        }
    }

    /// The items in memory.
    #[inline]
    pub fn memory(&self) -> &Memory {
        self.contents.memory()
    }

    /// The ladder that places them, to be read.
    #[inline]
    pub fn ladder(&self) -> &Ladder {
        self.memory().ladder()
    }

    /// The log below memory, if there is one, to be read.
    #[inline]
    pub fn log(&self) -> Option<&LogWork> {
        self.contents.log()
    }

    /// The face of the shard towards the log's device, through which the device tells its events.
    #[inline]
    pub fn device(&mut self) -> Device<'_> {
        Device::new(&mut self.contents)
    }

    /// Changes something about the memory.
    pub fn configure(&mut self, change: Change) {
        let ladder = self.contents.memory_mut().ladder_mut();
        match change {
            Change::Capacity { tier, bytes } => ladder.set_capacity(tier, bytes),
            Change::Tenant(setting) => ladder.residents_mut().apply(setting),
            Change::Tuning(tuning) => ladder.tune(tuning),
        }
    }

    /// Tells the Unix time in milliseconds. It does not go back.
    #[inline]
    pub fn set_clock(&mut self, unix_ms: u64) {
        self.now.unix_ms = self.now.unix_ms.max(unix_ms);
    }

    /// The time as it was told, and the number of requests that have begun.
    #[inline]
    pub fn now(&self) -> Now {
        self.now
    }

    /// Charges tier 0 with the index, and with the `driver_bytes` of metadata that the driver holds.
    #[inline]
    pub fn charge(&mut self, driver_bytes: u64) {
        self.contents.memory_mut().charge(driver_bytes);
    }

    /// Like [`Self::charge`], but in force from the next item on that enters.
    #[inline]
    pub fn hold(&mut self, driver_bytes: u64) {
        self.contents.memory_mut().keys_mut().hold(driver_bytes);
    }

    /// The bytes of a move have arrived at its new place; with `false` they could not be copied, and the item stays.
    pub fn moved(&mut self, ticket: Ticket, arrived: bool) {
        self.under_way.close(ticket, arrived);
    }

    /// The next act; `None`: nothing more follows from what was begun. The act before must have been carried out.
    #[inline]
    pub fn next_act<I: Items>(&mut self, items: &mut I, rng: &mut Rng) -> Option<Act> {
        // Most admissions find a place without a move or a departure.
        if self.is_at_rest() {
            return None;
        }
        // Apart from the work under way: most acts of a full store were decided already, and handing one out is short.
        self.next_decided(items).or_else(|| self.decide_more(items, rng))
    }

    /// The next act of decisions already made.
    #[inline(never)]
    fn next_decided<I: Items>(&mut self, items: &mut I) -> Option<Act> {
        if let Some(act) = self.contents.next_act() {
            return Some(act);
        }
        if let Some(settled) = self.under_way.take_settled() {
            return Some(settled);
        }
        let decision = self.under_way.next_decision(items)?;
        self.hand_out(decision, items)
    }

    /// Continues the piece at hand and the admission under way, until there is an act.
    #[inline(never)]
    fn decide_more<I: Items>(&mut self, items: &mut I, rng: &mut Rng) -> Option<Act> {
        loop {
            if let Some(act) = self.contents.go_on(items) {
                return Some(act);
            }
            match self.admission.go_on(&mut self.contents, &mut self.under_way, items, self.now, rng) {
                Progress::None => return None,
                Progress::Made => {}
                Progress::Act(act) => return Some(act),
            }
            if let Some(act) = self.next_decided(items) {
                return Some(act);
            }
        }
    }

    /// The driver's act for a decision of the ladder: there always is one. It is made as [`Self::next_act`] returns it, for an act
    /// is large, and its copies were a sixth of the work of handing it out.
    fn hand_out<I: Items>(&mut self, decision: ladder::Act, items: &mut I) -> Option<Act> {
        match decision {
            ladder::Act::Move { ticket, id, from, to, kind: _ } => {
                let bytes = items.bytes(id, from).here;
                self.under_way.open(ticket, id, from, to, bytes);
                Some(Act::Move { ticket, id, from, to, bytes })
            }
            ladder::Act::Drop { id, loc, why, expires_at_ms, last_used } => {
                // Bytes that are lost have no hash, or another one.
                let hash = items.hash(id, loc).filter(|hash| self.contents.memory().keys().has(*hash, id));
                let Some(hash) = hash else {
                    let hash = self.contents.memory_mut().remove_lost(id);
                    let why = Why::Lost;
                    return Some(Act::Leave { id, loc, hash, why, expires_at_ms, last_used, below: None });
                };
                self.contents.memory_mut().remove(id, loc, hash, items.bytes(id, loc).here);
                match why {
                    ladder::Why::Evicted => {
                        self.contents.sink(Leaves { id, loc, hash, expires_at_ms, last_used }, items)
                    }
                    ladder::Why::Expired => {
                        let below = self.contents.forget_copy(id, loc, hash, items);
                        Some(Act::Leave { id, loc, hash, why: Why::Expired, expires_at_ms, last_used, below })
                    }
                }
            }
            ladder::Act::Discard { tier, page } => Some(Act::Discard { tier, page }),
            ladder::Act::Populate { tier, first, count } => Some(Act::Populate { tier, first, count }),
        }
    }

    /// Whether all that was decided is carried out, so that something may begin.
    #[inline]
    fn is_at_rest(&self) -> bool {
        self.under_way.is_quiet() && !self.admission.goes_on() && self.contents.is_quiet()
    }
}
