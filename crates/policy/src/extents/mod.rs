//! The block cache's decisions: which extents of which volume are cached, in blocks of which size, and who goes.
//!
//! Source: Yang 2024, chapter 2 (AdaCache): blocks of several sizes, chosen by what a request misses (Algorithms 1 and 2), in groups
//! of one size each, evicted by a list of blocks and a list of groups. Its rivals, blocks of one size with or without bits for
//! their parts, are the same code with one size. Three things are added: bits for parts of a block in every size
//! ([`Fill::Units`]), reading around what was missed ([`sizing`]), and shares of the cache for groups of volumes.
//!
//! [`Extents::plan`] is asked before every request and answers with what is to be read and written where; the driver does so and
//! says [`Extents::finish`]. What a plan fills counts as cached from then on: a driver that does several things at once
//! keeps others away from those addresses until the plan is carried out, and says what failed ([`Units::invalidate`]). Before a block
//! with dirty bytes goes the driver is asked to write them back ([`Verdict::Clean`]), and then asks again.
//!
//! Around that: who gets no place ([`admission`]), what is written back, when, and who waits for it ([`cleaner`]), and what a driver needs
//! that keeps a log and comes back after a restart ([`Event`], [`Extents::restore`]).
//!
//! Two things in Algorithms 1 and 2 are read as they must have been meant: the aligned end of a request that ends at a boundary
//! is that boundary (as printed a further piece follows), and after an allocation the search begins again at the largest size
//! (as printed it goes on to smaller ones, and may so allocate past the interval's end).

pub mod admission;
mod bits;
pub mod cleaner;
mod copies;
mod events;
mod forget;
mod geometry;
pub mod observed;
mod open_blocks;
mod plan;
mod restore;
mod shares;
mod sizing;
mod space;
mod table;
mod unit_set;
mod units;

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;

use crate::Id;
use crate::evict::{Departure, Domain, Evict, Item, Origin, Touch};
use tiermem_base::Rng;

pub use bits::RunBits;
pub use copies::Copies;
pub use events::Event;
pub use geometry::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Geometry, GeometryError, UNIT_BYTES};
pub use open_blocks::OpenBlocks;
pub use plan::{Part, Plan, Request, Verdict};
pub use restore::RestoreError;
pub use sizing::{Around, RequestCost, Sizing};
pub use space::Share;
pub use table::Block;
pub use units::Units;

use admission::Admission;
use observed::Observer;
use space::Space;
use table::Table;

/// A volume's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Volume(pub u16);

impl Volume {
    /// How many there can be.
    pub const COUNT_MAX: u16 = Table::VOLUMES_MAX;

    /// How large one can be where the smallest block has so many bytes.
    pub fn bytes_max(piece_bytes: u64) -> u64 {
        Table::PIECES_MAX * piece_bytes
    }
}

/// What a miss brings in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Whole blocks, also before a part of one is written, and a block is dirty as a whole: the published caches.
    Whole,
    /// The units asked for; a unit that is overwritten as a whole is not read. Each unit is dirty for itself.
    Units,
}

/// Where writes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Into the cache; into the backing store later.
    WriteBack,
    /// Into both.
    WriteThrough,
    /// Into the backing store; what the cache has of the range is dropped.
    WriteAround,
}

/// How a cache is set up.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What a miss brings in.
    pub fill: Fill,
    /// How large the blocks are that a miss allocates.
    pub sizing: Sizing,
    /// Owners of space that can have limits of their own.
    pub shares: u16,
}

/// Blocks and groups that are looked at, one after the other, for one that is clean.
const CLEAN_LOOKS: u32 = 256;

/// Numbers of groups in the order of eviction: a group, and then its slots. So one policy orders both, and its state
/// grows as the cache fills.
fn group_id(geometry: &Geometry, group: u32) -> Id {
    Id(group * (geometry.group_slots() + 1))
}

fn block_id(geometry: &Geometry, slot: u32) -> Id {
    Id(slot + geometry.group_of(slot) + 1)
}

fn slot_of(geometry: &Geometry, id: Id) -> u32 {
    id.0 - id.0 / (geometry.group_slots() + 1) - 1
}

fn groups_of(share: Share) -> Domain {
    Domain(2 * u32::from(share.0))
}

fn blocks_of(share: Share) -> Domain {
    Domain(2 * u32::from(share.0) + 1)
}

/// The cache's map and its decisions; `O` orders blocks and groups for eviction.
#[derive(Debug)]
pub struct Extents<O> {
    geometry: Geometry,
    config: Config,
    table: Table,
    space: Space,
    units: Units,
    order: O,
    /// Whether blocks are ordered beside groups: not where a group is one block.
    two_levels: bool,
    rng: Rng,
    /// Blocks that plans in flight speak of, and their groups, by their numbers in the order of eviction; how many plans.
    pinned: HashMap<u32, u32, BuildHasherDefault<IdHasher>>,
    /// The share of each volume.
    shares: Vec<Share>,
    requests: u64,
    observer: Option<Box<Observer>>,
    /// Who is turned away, where anybody is.
    admission: Option<Box<Admission>>,
    /// Changes of the map that nobody has taken yet, where somebody wants them.
    events: Option<Vec<Event>>,
    /// The rule that the request at hand follows.
    rule: Around,
    /// Whether it passes over what is dirty when it makes room.
    spares_dirty: bool,
    /// Blocks of the request at hand, in the order of addresses.
    found: Vec<Block>,
    /// Blocks that this request allocates: where, and of which class.
    wanted: Vec<(u64, usize)>,
}

/// Hashes a number; the table is only asked, never walked.
#[derive(Default)]
struct IdHasher(u64);

impl std::hash::Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }
    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number);
    }
    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// No room could be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoRoom {
    /// The blocks of this group, or this one of them, must be written back first.
    Dirty { group: u32, slot: Option<u32> },
    /// Everything that could go is in use by plans in flight.
    Busy,
}

impl<O: Evict> Extents<O> {
    /// An empty cache. `order` has two domains for each share: see [`Self::domains`].
    pub fn new(geometry: Geometry, config: Config, order: O, rng: Rng) -> Self {
        let shares = config.shares.max(1);
        let units = u64::from(geometry.slots()) * geometry.piece_units();
        let observer = match config.sizing {
            Sizing::Observed(cost) => Some(Box::new(Observer::new(&geometry, config.fill, cost))),
            _ => None,
        };
        Extents {
            observer,
            admission: None,
            events: None,
            rule: Around::default(),
            spares_dirty: false,
            table: Table::new(&geometry),
            space: Space::new(&geometry, shares),
            units: Units::new(units),
            order,
            two_levels: geometry.class_bytes(0) < geometry.group_bytes(),
            rng,
            pinned: HashMap::default(),
            shares: Vec::new(),
            requests: 0,
            found: Vec::new(),
            wanted: Vec::new(),
            geometry,
            config,
        }
    }

    /// How many domains the order of eviction needs.
    pub fn domains(shares: u16) -> usize {
        2 * usize::from(shares.max(1))
    }

    /// How the cache is divided.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What the cache has of its units.
    pub fn units(&self) -> &Units {
        &self.units
    }

    /// The same, for who knows what became of some.
    pub fn units_mut(&mut self) -> &mut Units {
        &mut self.units
    }

    /// The units of a block in the cache.
    fn units_of(&self, block: &Block) -> Range<u64> {
        let per_piece = self.geometry.piece_units();
        let first = u64::from(block.slot) * per_piece;
        first..first + block.pieces * per_piece
    }

    /// The numbers under which a block and its group are pinned.
    fn pin_ids(&self, slot: u32) -> [u32; 2] {
        [block_id(&self.geometry, slot).0, group_id(&self.geometry, self.geometry.group_of(slot)).0]
    }

    fn pin(&mut self, slot: u32) {
        for id in self.pin_ids(slot) {
            *self.pinned.entry(id).or_default() += 1;
        }
    }

    fn unpin(&mut self, slot: u32) {
        for id in self.pin_ids(slot) {
            let Some(count) = self.pinned.get_mut(&id) else {
                debug_assert!(false, "{id} is let go as often as it was held");
                continue;
            };
            *count -= 1;
            if *count == 0 {
                self.pinned.remove(&id);
            }
        }
    }

    /// Notes that a block was used.
    fn touch(&mut self, slot: u32, write: bool) {
        let touch = Touch { now: self.requests, write };
        let group = self.geometry.group_of(slot);
        let share = self.space.share(group);
        self.order.hit(group_id(&self.geometry, group), touch, || groups_of(share));
        if self.two_levels {
            self.order.hit(block_id(&self.geometry, slot), touch, || blocks_of(share));
        }
    }

    /// Places a block of a class at a piece of a volume, and makes room for it if need be (Yang 2024, sections 2.2.3, 2.2.4).
    fn allocate(&mut self, volume: Volume, piece: u64, class: usize, write: bool) -> Result<Block, NoRoom> {
        let share = self.share_of(volume);
        let slot = match self.space.open_group(share, class) {
            Some(group) => self.space.take(&self.geometry, group),
            None if self.space.can_open(share) => self.open(share, class),
            None => self.replace(share, class)?,
        };
        self.note(Event::Mapped { slot, class, volume, piece });
        Ok(self.enter(slot, class, volume, piece, write))
    }

    /// Enters a block, whose place is taken, into the map and the order of eviction.
    fn enter(&mut self, slot: u32, class: usize, volume: Volume, piece: u64, write: bool) -> Block {
        let group = self.geometry.group_of(slot);
        // Not that of the volume where it was given another since the group was opened.
        let share = self.space.share(group);
        self.table.insert(&self.geometry, class, volume, piece, slot);
        let block = Block { piece, pieces: self.geometry.class_pieces(class), slot };
        let now = self.requests;
        self.order.hit(group_id(&self.geometry, group), Touch { now, write }, || groups_of(share));
        if self.two_levels {
            let item = Item { key: piece, size: block.pieces as u32, dirty: write, now };
            self.order.insert(block_id(&self.geometry, slot), blocks_of(share), Origin::Admitted(item));
        }
        block
    }

    /// The first place of a group that was free.
    fn open(&mut self, share: Share, class: usize) -> u32 {
        let group = self.space.open_new(share, class);
        self.order_group(group, share);
        self.space.take(&self.geometry, group)
    }

    /// Enters a group, which was opened for a share, into the order of eviction.
    fn order_group(&mut self, group: u32, share: Share) {
        let item = Item {
            key: u64::from(group),
            size: self.geometry.group_slots(),
            dirty: false,
            now: self.requests,
        };
        self.order.insert(group_id(&self.geometry, group), groups_of(share), Origin::Admitted(item));
    }

    /// A place for a block of a class where none is free: that of the block that goes next, if it has that size, or in the
    /// group that goes next, all of it.
    fn replace(&mut self, share: Share, class: usize) -> Result<u32, NoRoom> {
        let loser = self.loser(share);
        let (geometry, space, pinned, now) = (&self.geometry, &self.space, &self.pinned, self.requests);
        let (table, units) = (&self.table, &self.units);
        let per_piece = geometry.piece_units();
        let units_in = |slots: Range<u64>| slots.start * per_piece..slots.end * per_piece;
        // Whoever spares what is dirty looks at some, not at all there is.
        let (spares, looks) = (self.spares_dirty, Cell::new(CLEAN_LOOKS));
        let is_spared = |slots: Range<u64>| {
            let looks_left = looks.get();
            looks.set(looks_left.saturating_sub(1));
            looks_left > 0 && units.dirty().any(units_in(slots))
        };
        // What is lost would be read from the store, which has something older; and nobody can write it back.
        let may_go =
            |id: Id, slots: Range<u64>| !pinned.contains_key(&id.0) && !units.has_lost(units_in(slots));
        if self.two_levels && loser == share {
            let victim = self.order.victim(blocks_of(share), now, &mut self.rng, |id| {
                let block = table.block(geometry, space, slot_of(geometry, id));
                let slots = u64::from(block.slot)..u64::from(block.slot) + block.pieces;
                may_go(id, slots.clone()) && !(spares && is_spared(slots))
            });
            let fits = |slot: &u32| space.class(geometry.group_of(*slot)) == class;
            if let Some(slot) = victim.map(|id| slot_of(geometry, id)).filter(fits) {
                if self.is_dirty(slot) {
                    return Err(NoRoom::Dirty { group: geometry.group_of(slot), slot: Some(slot) });
                }
                self.forget(slot, Departure::Evicted);
                return Ok(slot);
            }
        }
        let per_group = geometry.group_slots() + 1;
        let slots_of = |id: Id| {
            let first = u64::from(geometry.first_slot(id.0 / per_group));
            first..first + u64::from(geometry.group_slots())
        };
        let victim = self.order.victim(groups_of(loser), now, &mut self.rng, |id| {
            may_go(id, slots_of(id)) && !(spares && is_spared(slots_of(id)))
        });
        // Where nothing is clean what goes is dirty.
        let dirty = |id: Id| may_go(id, slots_of(id));
        let victim = victim.or_else(|| self.order.victim(groups_of(loser), now, &mut self.rng, dirty));
        let group = victim.ok_or(NoRoom::Busy)?.0 / per_group;
        let first = geometry.first_slot(group);
        if units.dirty().any(units_in(u64::from(first)..u64::from(first + geometry.group_slots()))) {
            return Err(NoRoom::Dirty { group, slot: None });
        }
        self.evict_group(group);
        Ok(self.open(share, class))
    }

    /// Whose group goes when this share needs one: its own where it is at its limit, or else that of the share with the
    /// most beyond an even part of what there is.
    fn loser(&self, share: Share) -> Share {
        let (groups, groups_max) = self.space.held(share);
        if self.space.shares() == 1 || groups >= groups_max {
            return share;
        }
        let most = (0..self.space.shares()).map(Share).max_by_key(|&other| {
            let (groups, groups_max) = self.space.held(other);
            (groups.saturating_sub(groups_max), groups, other == share)
        });
        most.unwrap_or(share)
    }

    fn block_at(&self, slot: u32) -> Block {
        self.table.block(&self.geometry, &self.space, slot)
    }

    fn is_dirty(&self, slot: u32) -> bool {
        self.units.dirty().any(self.units_of(&self.block_at(slot)))
    }

    fn evict_group(&mut self, group: u32) {
        let mut next = self.space.blocks_of(&self.geometry, group).next();
        while let Some(slot) = next {
            self.drop_block(slot, Departure::Evicted);
            next = self.space.blocks_of(&self.geometry, group).next();
        }
    }

    /// Drops a block and frees its place.
    fn drop_block(&mut self, slot: u32, why: Departure) {
        self.forget(slot, why);
        let group = self.geometry.group_of(slot);
        let share = self.space.share(group);
        if self.space.free(&self.geometry, slot) {
            self.order.remove(group_id(&self.geometry, group), groups_of(share), why);
        }
    }

    /// Takes a block out of the map; its place stays taken.
    fn forget(&mut self, slot: u32, why: Departure) {
        let (volume, piece) = self.table.address(slot);
        let units = self.units_of(&self.block_at(slot));
        self.units.forget(units);
        let group = self.geometry.group_of(slot);
        self.table.remove(&self.geometry, self.space.class(group), slot);
        let class = self.space.class(group);
        self.note(Event::Unmapped { slot, class, volume, piece });
        if self.two_levels {
            let share = self.space.share(group);
            self.order.remove(block_id(&self.geometry, slot), blocks_of(share), why);
        }
    }

    /// Visits what the cache has of a volume's range, in the order of addresses, and whether each part is dirty.
    pub fn visit(&mut self, volume: Volume, range: Range<u64>, mut each: impl FnMut(Part, bool)) {
        let mut found = std::mem::take(&mut self.found);
        self.cover(volume, &range, &mut found);
        for block in &found {
            self.parts_of(block, &range, self.units.valid(), |part| {
                let mut left = part;
                while left.bytes > 0 {
                    let first = left.at / UNIT_BYTES;
                    let units = first..first + left.bytes / UNIT_BYTES;
                    let dirty = self.units.dirty();
                    let is_dirty = dirty.get(first);
                    let end = dirty.runs(units.clone(), !is_dirty).next().map_or(units.end, |run| run.start);
                    let bytes = (end - first) * UNIT_BYTES;
                    each(Part { bytes, ..left }, is_dirty);
                    left =
                        Part { offset: left.offset + bytes, at: left.at + bytes, bytes: left.bytes - bytes };
                }
            });
        }
        self.found = found;
    }

    /// The blocks that hold bytes of a range, in order.
    fn cover(&mut self, volume: Volume, range: &Range<u64>, found: &mut Vec<Block>) {
        let pieces = self.geometry.piece_of(range.start)..range.end.div_ceil(self.geometry.piece_bytes());
        self.table.cover(&self.geometry, &self.space, volume, pieces, found);
    }

    /// The parts of a block within a range of its volume whose units are set in `bits`.
    fn parts_of(&self, block: &Block, range: &Range<u64>, bits: &RunBits, mut each: impl FnMut(Part)) {
        let start = block.piece * self.geometry.piece_bytes();
        let units = self.units_of(block);
        let first = units.start + (range.start.saturating_sub(start)) / UNIT_BYTES;
        let end = units.end.min(units.start + (range.end.saturating_sub(start)).div_ceil(UNIT_BYTES));
        for run in bits.runs(first..end.max(first), true) {
            let offset = start + (run.start - units.start) * UNIT_BYTES;
            each(Part { offset, at: run.start * UNIT_BYTES, bytes: (run.end - run.start) * UNIT_BYTES });
        }
    }

    /// Visits all that is dirty, in the order of the cache's space.
    pub fn visit_dirty(&self, mut each: impl FnMut(Volume, Part)) {
        for slot in self.space.begins() {
            let block = self.block_at(slot);
            let (volume, _) = self.table.address(slot);
            let range = self.bytes_of(&block);
            self.parts_of(&block, &range, self.units.dirty(), |part| each(volume, part));
        }
    }

    /// The bytes of its volume that a block holds.
    fn bytes_of(&self, block: &Block) -> Range<u64> {
        block.piece * self.geometry.piece_bytes()..block.end() * self.geometry.piece_bytes()
    }

    /// Forgets all whole units of a range, whatever their state; blocks of which nothing is left go.
    pub fn discard(&mut self, volume: Volume, range: Range<u64>) {
        let whole = range.start.next_multiple_of(UNIT_BYTES)..range.end / UNIT_BYTES * UNIT_BYTES;
        if whole.start >= whole.end {
            return;
        }
        let mut found = std::mem::take(&mut self.found);
        self.cover(volume, &whole, &mut found);
        for block in &found {
            let mut parts = Vec::new();
            self.parts_of(block, &whole, self.units.valid(), |part| parts.push(part));
            parts = self.units.without_lost(&parts);
            self.units.invalidate(&parts);
            if !self.units.valid().any(self.units_of(block))
                && !self.pinned.contains_key(&block_id(&self.geometry, block.slot).0)
            {
                self.drop_block(block.slot, Departure::Deleted);
            }
        }
        self.found = found;
    }

    /// Observes so many of the requests, at most, that were planned and are not observed yet ([`observed`]): for when nobody waits.
    pub fn observe(&mut self, most: usize) {
        if let Some(observer) = &mut self.observer {
            observer.catch_up(most);
        }
    }

    /// Blocks of each size, ascending.
    pub fn blocks(&self) -> &[u64] {
        self.table.blocks()
    }

    /// Bytes of state held: those that grow with blocks, and those that the cache's size decides.
    pub fn metadata_bytes(&self) -> (u64, u64) {
        let (index, keys) = self.table.metadata_bytes();
        let observer = self.observer.as_ref().map_or(0, |observer| observer.metadata_bytes());
        let admission = self.admission.as_ref().map_or(0, |admission| admission.metadata_bytes());
        let flat = observer + admission + self.space.metadata_bytes() + self.units.metadata_bytes() + keys;
        (index + self.order.metadata_bytes(), flat)
    }
}
