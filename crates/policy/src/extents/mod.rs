//! The block cache's decisions: which extents of which volume are cached, in blocks of which size, and which are evicted.
//!
//! Source: Yang 2024, chapter 2 (AdaCache): blocks of several sizes, chosen by what a request misses (Algorithms 1 and 2), in
//! groups of one size each, evicted by a list of blocks and a list of groups. Its rivals, blocks of one size with or without bits
//! for their parts, are the same code with one size. Three things are added: bits for parts of a block in every size
//! ([`Fill::Units`]), reading around what was missed ([`sizing`]), and shares of the cache for groups of volumes.
//!
//! The driver asks [`Extents::plan`] before every request. The plan says what is to be read and written where; the driver does so
//! and calls [`Extents::finish`]. What a plan fills counts as cached from then on: a driver that does several things at once
//! keeps others away from those addresses until the plan is carried out, and says what failed ([`Units::invalidate`]). Before a
//! block with dirty bytes is evicted the driver is asked to write them back ([`Verdict::Clean`]), and then asks again.
//!
//! Around that: which reads get no place ([`admission`]), what is written back and when, and which requests wait for it
//! ([`cleaner`]), and the parts for a driver that keeps a log and recovers after a restart ([`Event`], [`Extents::restore`]).
//!
//! This file connects the parts; each part owns what the others must ask it for:
//!
//! | part | what it alone knows |
//! | --- | --- |
//! | [`Map`] | which blocks there are, where each stands in its volume and in the cache; groups and what is free in them |
//! | [`Shares`] | the share of each group, and the limit of each share |
//! | [`Units`] | what the cache has of each unit: valid, dirty, lost; and where its device has failed |
//! | [`Service`] | what the cache is still used for, after failures of its device |
//! | `Eviction` | the order of eviction, and which blocks plans in flight hold |
//! | [`Changes`] | what happened to the map, for a driver that keeps a log |
//! | [`observed::Sizer`] | how large the blocks are that a miss allocates; how fast the stores are |
//! | [`admission::Admission`] | which reads get no place |
//!
//! Two things in Algorithms 1 and 2 are read as they must have been meant: the aligned end of a request that ends at a boundary
//! is that boundary (as printed a further piece follows), and after an allocation the search begins again at the largest size (as
//! printed it goes on to smaller ones, and may so allocate past the interval's end).

pub mod admission;
mod bits;
mod blocks;
pub mod cleaner;
mod copies;
mod draft;
mod events;
mod eviction;
mod failures;
mod geometry;
mod map;
mod miniature;
pub mod observed;
mod open_blocks;
pub mod pairing;
mod plan;
mod planning;
mod restore;
mod shares;
mod sizing;
mod space;
pub mod store_speed;
mod table;
mod unit_set;
mod units;

use tiermem_base::Rng;

use crate::evict::Evict;

pub use bits::RunBits;
pub use blocks::forget_volume;
pub use copies::Copies;
pub use events::{Changes, Event};
pub use failures::Service;
pub use geometry::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Geometry, GeometryError, UNIT_BYTES};
pub use map::Map;
pub use open_blocks::OpenBlocks;
pub use plan::{Part, Plan, Request, Verdict};
pub use restore::RestoreError;
pub use shares::{Share, Shares};
pub use sizing::{Around, MIB_PRICE_NS, Observation, RequestCost, Sizing};
pub use table::Block;
pub use units::Units;

use admission::{Admission, AdmissionRules};
use eviction::Eviction;
use observed::Sizer;
use table::Table;

/// A volume's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Volume(pub u16);

impl Volume {
    /// How many there can be.
    pub const COUNT_MAX: u16 = Table::VOLUMES_MAX;

    /// The largest size of a volume in bytes where the smallest block has `piece_bytes`.
    pub fn bytes_max(piece_bytes: u64) -> u64 {
        Table::PIECES_MAX * piece_bytes
    }
}

/// The bytes that a miss brings in.
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
    /// Into the backing store; the cached parts of the range are dropped.
    WriteAround,
}

/// How a cache is set up.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The bytes that a miss brings in.
    pub fill: Fill,
    /// How large the blocks are that a miss allocates.
    pub sizing: Sizing,
    /// Owners of space that can have limits of their own.
    pub shares: u16,
}

/// The cache's map and its decisions; `O` orders blocks and groups for eviction.
#[derive(Debug)]
pub struct Extents<O> {
    fill: Fill,
    map: Map,
    units: Units,
    eviction: Eviction<O>,
    changes: Changes,
    sizer: Sizer,
    admission: Admission,
    service: Service,
    // Of the request at hand, kept for their memory.
    /// Its blocks, in the order of addresses.
    found: Vec<Block>,
    /// Blocks that it is to get: where, and of which class.
    wanted: Vec<(u64, usize)>,
}

impl<O: Evict> Extents<O> {
    /// An empty cache. `order` has two domains for each share: see [`Self::domains`].
    pub fn new(geometry: Geometry, config: Config, order: O, rng: Rng) -> Self {
        let Config { fill, sizing, shares } = config;
        Extents {
            fill,
            units: Units::new(u64::from(geometry.slots()) * geometry.piece_units()),
            eviction: Eviction::new(&geometry, order, rng),
            changes: Changes::default(),
            sizer: Sizer::new(&geometry, fill, sizing),
            admission: Admission::new(AdmissionRules::default(), geometry.slots()),
            service: Service::default(),
            map: Map::new(geometry, shares.max(1)),
            found: Vec::new(),
            wanted: Vec::new(),
        }
    }

    /// How many domains the order of eviction needs.
    pub fn domains(shares: u16) -> usize {
        2 * usize::from(shares.max(1))
    }

    /// How the cache is divided.
    pub fn geometry(&self) -> &Geometry {
        self.map.geometry()
    }

    /// The map of blocks.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// The share of each group, and the limits of the shares.
    pub fn shares(&self) -> &Shares {
        self.map.shares()
    }

    /// The shares, to change their limits.
    pub fn shares_mut(&mut self) -> &mut Shares {
        self.map.shares_mut()
    }

    /// The state of the cache's units.
    pub fn units(&self) -> &Units {
        &self.units
    }

    /// The units, for a driver that knows the outcome of its reads and writes.
    pub fn units_mut(&mut self) -> &mut Units {
        &mut self.units
    }

    /// The changes of the map.
    pub fn changes_mut(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// The sizer, which decides which blocks a miss allocates, and its observations.
    pub fn sizer_mut(&mut self) -> &mut Sizer {
        &mut self.sizer
    }

    /// Refuses reads a place by these rules from now on. Until this is called no read is refused.
    pub fn set_admission(&mut self, rules: AdmissionRules) {
        self.admission = Admission::new(rules, self.geometry().slots());
    }

    /// Bytes of state held: those that grow with blocks, and those that depend on the cache's size.
    pub fn metadata_bytes(&self) -> (u64, u64) {
        let (index, flat) = self.map.metadata_bytes();
        let asked = self.sizer.metadata_bytes() + self.admission.metadata_bytes();
        (index + self.eviction.metadata_bytes(), flat + self.units.metadata_bytes() + asked)
    }
}
