//! Configuration of a cache and its volumes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tiermem_base::Bytes;
use tiermem_policy::evict::Named;
use tiermem_policy::extents::admission::AdmissionRules;
use tiermem_policy::extents::cleaner::CleanerRules;
use tiermem_policy::extents::pairing::Accepted;
use tiermem_policy::extents::{Fill, Geometry, GeometryError, Mode, Sizing};

use crate::journal::{JournalError, LayoutConfig};
use crate::nbd::wire::TransmissionFlags;
use crate::nbd::{Contexts, Export};

/// A cache cannot be set up so.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The device does not suit the blocks.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The cache's device cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// What the log says does not fit together.
    #[error("the cache is damaged: {0}; --reset begins anew, and loses what its stores do not have")]
    Damaged(String),
    /// A volume with dirty data of another store, or of another state of it.
    #[error(
        "the cache has {dirty} for export {name} that its store lacks, and this is not the store that they are for, or not as the cache left \
         it: the cache {cache}; the store is {store}. Give the right cache and store. Or write the data to this store with --accept-store \
         {name}, or lose them with --accept-loss {name}"
    )]
    WrongStore {
        /// The volume.
        name: String,
        /// What would be lost, or written to a wrong place.
        dirty: Bytes,
        /// What the cache knows.
        cache: String,
        /// What the store is.
        store: String,
    },
    /// The same, of a store that is too short for them.
    #[error(
        "the cache has {dirty} for export {name} that its store lacks, and some lie beyond the store's end: the cache {cache}; the store is \
         {store}. Give the store its size back, or lose the data with --accept-loss {name}"
    )]
    ShortStore {
        /// The volume.
        name: String,
        /// What would be lost.
        dirty: Bytes,
        /// What the cache knows.
        cache: String,
        /// What the store is.
        store: String,
    },
    /// A store that may lack what another cache has.
    #[error(
        "the store of export {name} may lack data that only another cache has, or a later state of this one: it is {store}; the cache \
         ({id:032x}) {cache}. Start with the cache that has the data, or lose them with --accept-loss {name}"
    )]
    WrongCache {
        /// The volume.
        name: String,
        /// The cache.
        id: u128,
        /// What the cache knows.
        cache: String,
        /// What the store is.
        store: String,
    },
    /// It cannot be known which cache wrote a store.
    #[error(
        "cannot read which cache wrote the store of export {name} last: {why}; see to the store and start again"
    )]
    Label {
        /// The volume.
        name: String,
        /// Why not.
        why: String,
    },
    /// Dirty bytes of volumes that are not exported.
    #[error(
        "the cache has bytes for {names} that their stores do not have, and these are not exported: export them too, or use --reset, \
         which loses them"
    )]
    Orphans {
        /// The volumes.
        names: String,
    },
    /// Too many volumes.
    #[error("a cache has at most {0} volumes")]
    Volumes(u16),
    /// A volume is too large.
    #[error("volume {name} has {size_bytes} bytes; with blocks this small the limit is {limit}")]
    VolumeSize {
        /// Its name.
        name: String,
        /// Its size.
        size_bytes: u64,
        /// The largest size.
        limit: u64,
    },
}

/// Configuration of a cache.
#[derive(Clone)]
pub struct EngineConfig {
    /// Block sizes, ascending. Default 32, 64, 128, 256 KiB.
    pub sizes_bytes: Vec<u64>,
    /// Bytes of a group; the largest block unless given.
    pub group_bytes: Option<u64>,
    /// Bytes fetched at a miss. Default units.
    pub fill: Fill,
    /// Rule for the size of new blocks. Default as observed.
    pub sizing: Sizing,
    /// Order of eviction. Default LRU.
    pub policy: Named,
    /// Owners of space with limits of their own. Default 1.
    pub shares: u16,
    /// DRAM for copies of what is read again and again. Default none.
    pub memory_bytes: u64,
    /// Reads with misses that are not cached. Default none.
    pub admission: AdmissionRules,
    /// When dirty bytes are written back.
    pub cleaning: CleanerRules,
    /// Bytes of the log on the cache's device; as its size suggests unless given.
    pub log_bytes: Option<u64>,
    /// DRAM for the log's table: checksums and places of what is cached. Where that is less than all of it, the rest is read when it is
    /// needed. All unless given.
    pub table_bytes: Option<u64>,
    /// For policies that draw.
    pub seed: u64,
    /// Nanoseconds since some moment; never goes back.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Waits for a duration of that clock, where the engine itself has to wait: when service begins, and at the end.
    pub pause: Arc<dyn Fn(Duration) + Send + Sync>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        let start = Instant::now();
        EngineConfig {
            sizes_bytes: vec![32 << 10, 64 << 10, 128 << 10, 256 << 10],
            group_bytes: None,
            fill: Fill::Units,
            sizing: Sizing::Observed(Default::default()),
            policy: Named::Lru,
            shares: 1,
            memory_bytes: 0,
            admission: AdmissionRules::default(),
            cleaning: CleanerRules::default(),
            log_bytes: None,
            table_bytes: None,
            seed: 0,
            clock: Arc::new(move || start.elapsed().as_nanos() as u64),
            pause: Arc::new(std::thread::sleep),
        }
    }
}

impl EngineConfig {
    pub(super) fn geometry(&self, device_bytes: u64) -> Result<Geometry, GeometryError> {
        Geometry::new(&self.sizes_bytes, self.group_bytes, device_bytes)
    }

    pub(super) fn layout(&self) -> LayoutConfig {
        LayoutConfig {
            block_bytes: self.sizes_bytes.clone(),
            group_bytes: self.group_bytes,
            log_bytes: self.log_bytes,
        }
    }
}

/// Configuration of a volume.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// The export's name.
    pub name: String,
    /// Words for people.
    pub description: String,
    /// Where writes go.
    pub mode: Mode,
    /// Whether clients' writes are refused.
    pub read_only: bool,
    /// The share that its blocks are charged to.
    pub share: u16,
    /// Quota of that share.
    pub quota_bytes: Option<u64>,
    /// Whether each write is durable when its client is told that it is done.
    pub acknowledges_durably: bool,
    /// What the operator accepts if cache and store are no pair.
    pub accepted: Accepted,
}

impl VolumeConfig {
    /// A volume in write-back mode.
    pub fn new(name: impl Into<String>) -> Self {
        VolumeConfig {
            name: name.into(),
            description: String::new(),
            mode: Mode::WriteBack,
            read_only: false,
            share: 0,
            quota_bytes: None,
            acknowledges_durably: false,
            accepted: Accepted::Nothing,
        }
    }

    pub(super) fn export(&self, size_bytes: u64, read_only: bool) -> Export {
        let features = [
            TransmissionFlags::SEND_FLUSH,
            TransmissionFlags::SEND_FUA,
            TransmissionFlags::SEND_TRIM,
            TransmissionFlags::SEND_WRITE_ZEROES,
            TransmissionFlags::SEND_DF,
            TransmissionFlags::SEND_CACHE,
            TransmissionFlags::CAN_MULTI_CONN,
        ];
        Export {
            description: self.description.clone(),
            read_only: self.read_only || read_only,
            features: features.into_iter().fold(TransmissionFlags::none(), TransmissionFlags::with),
            contexts: Contexts::all(),
            ..Export::new(self.name.clone(), size_bytes)
        }
    }
}
