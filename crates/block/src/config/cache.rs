//! Configuration section `[cache]`.

use std::path::PathBuf;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use tiermem_base::{Bytes, Nanos};
use tiermem_policy::evict::Named;
use tiermem_policy::extents::Geometry;
use tiermem_policy::extents::admission::AdmissionRules;
use tiermem_policy::extents::cleaner::{CleanerRules, WriteBackOrder};

use super::ConfigError;

/// With less for the log's table hardly anything would be there when it is needed.
const TABLE_MEMORY_BYTES_MIN: u64 = 1 << 20;

/// `[cache]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSection {
    /// Names of tiers: the one that the cache lies on, and before it, where there is one, DRAM for copies of what is read again
    /// and again.
    #[serde(default)]
    pub tiers: Vec<String>,
    /// Instead of a tier's name: a file or block device, or `dram`.
    pub path: Option<String>,
    /// Its size.
    pub capacity: Option<Bytes>,
    /// The name of the tier that says how far away and how fast the exports' stores are: the sizes of blocks are chosen by that until it
    /// is measured. Default a millisecond, behind ten gigabits.
    pub backing_tier: Option<String>,
    /// Block sizes, ascending powers of two. Default 32, 64, 128 and 256 KiB.
    #[serde(default = "blocks")]
    pub blocks: Vec<Bytes>,
    /// Bytes of a group; the largest block unless given.
    pub group: Option<Bytes>,
    /// Bytes fetched at a miss: `units` (default) or `whole` blocks.
    #[serde(default)]
    pub fill: FillName,
    /// Size of new blocks: as `observed` (default) or as the `request` is.
    #[serde(default)]
    pub sizing: SizingName,
    /// How much longer clients may wait, in all, for each MiB less that is moved from the stores and to them. Default a millisecond; with
    /// 0 only the time decides that clients wait.
    pub store_price: Option<Nanos>,
    /// Order of eviction, by the name that the simulator gives it too: `lru` (default), `s3-fifo`, `sieve`, ...
    #[serde(default, deserialize_with = "policy")]
    pub policy: Option<Named>,
    /// Age at which dirty data are written back. Default 30 s.
    pub dirty_age: Option<Nanos>,
    /// Percentage of the cache above which dirty data are written back. Default 75.
    pub dirty_percent: Option<u8>,
    /// Order in which dirty data reach the stores: in a `group` of flushes (default), `flush` by flush, or in `none`.
    #[serde(default)]
    pub order: OrderName,
    /// What becomes of writes that must wait for a store which has no room: they fail after this time (default 60 s), or `wait`.
    #[serde(default, deserialize_with = "store_full")]
    pub store_full: StoreFull,
    /// DRAM for copies of what is read again and again. Default a sixteenth of the capacity, 256 MiB at most.
    pub memory: Option<Bytes>,
    /// DRAM for checksums and places of cached data, which take 1.3 GiB for each TiB. With
    /// less, the rest is read from the device when needed. Default: enough for all of them.
    pub table_memory: Option<Bytes>,
    /// Length of a sequential read stream above which its misses are not cached. Default: none.
    pub sequential_cutoff: Option<Bytes>,
    /// Misses of a block before it is cached. Default 1.
    pub promote_after: Option<u8>,
    /// Folder for records of stores that can keep none themselves: devices and NBD exports. See [`Self::state_dir`].
    pub state_dir: Option<PathBuf>,
    /// Whether to overwrite existing contents of the device.
    #[serde(default)]
    pub reset: bool,
}

/// Bytes fetched at a miss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FillName {
    /// What was asked for.
    #[default]
    Units,
    /// Whole blocks.
    Whole,
}

/// Rule for the size of new blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizingName {
    /// As what was seen says.
    #[default]
    Observed,
    /// As the request is.
    Request,
}

/// Order in which dirty data reach the stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderName {
    /// All flushes that wait go together.
    #[default]
    Group,
    /// One flush after the other.
    Flush,
    /// As suits the store.
    None,
}

/// Writes that must wait for a store without room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFull {
    /// They wait until it has.
    Wait,
    /// They fail after this time.
    FailAfter(Nanos),
}

impl Default for StoreFull {
    fn default() -> Self {
        CleanerRules::default().full_wait_ns.map_or(StoreFull::Wait, |ns| StoreFull::FailAfter(Nanos(ns)))
    }
}

fn store_full<'de, D: Deserializer<'de>>(deserializer: D) -> Result<StoreFull, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == "wait" {
        return Ok(StoreFull::Wait);
    }
    let time = text.parse().map_err(|error| D::Error::custom(format!("{error}; or \"wait\"")))?;
    Ok(StoreFull::FailAfter(time))
}

fn policy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Named>, D::Error> {
    let name = String::deserialize(deserializer)?;
    name.parse().map(Some).map_err(D::Error::custom)
}

fn blocks() -> Vec<Bytes> {
    [32, 64, 128, 256].map(|kib| Bytes(kib << 10)).to_vec()
}

impl CacheSection {
    /// A cache in a file or block device, or in `dram`, and everything else as it is by default.
    pub(super) fn on(path: String, capacity: Bytes) -> Self {
        CacheSection {
            tiers: Vec::new(),
            path: Some(path),
            capacity: Some(capacity),
            backing_tier: None,
            blocks: blocks(),
            group: None,
            fill: FillName::default(),
            sizing: SizingName::default(),
            store_price: None,
            policy: None,
            dirty_age: None,
            dirty_percent: None,
            order: OrderName::default(),
            store_full: StoreFull::default(),
            memory: None,
            table_memory: None,
            sequential_cutoff: None,
            promote_after: None,
            state_dir: None,
            reset: false,
        }
    }

    /// The folder for records of stores: as configured, or where services and users keep their state.
    pub fn state_dir(&self) -> Option<PathBuf> {
        let variable =
            |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let of_service = || {
            let folders = variable("STATE_DIRECTORY")?;
            // A service may have several, with colons between them.
            std::env::split_paths(&folders).next()
        };
        let of_root = || rustix::process::geteuid().is_root().then(|| PathBuf::from("/var/lib/tiermem"));
        let of_user = || Some(variable("HOME")?.join(".local/state/tiermem"));
        self.state_dir
            .clone()
            .or_else(of_service)
            .or_else(|| Some(variable("XDG_STATE_HOME")?.join("tiermem")))
            .or_else(of_root)
            .or_else(of_user)
    }

    pub(super) fn validate(&self, capacity_bytes: u64) -> Result<(), ConfigError> {
        let value = |key, problem: String| Err(ConfigError::Value { key, problem });
        if let Some(percent @ (0 | 91..)) = self.dirty_percent {
            return value("dirty_percent", format!("{percent} is not between 1 and 90"));
        }
        if let Some(bytes) = self.table_memory.filter(|bytes| bytes.0 < TABLE_MEMORY_BYTES_MIN) {
            let least = Bytes(TABLE_MEMORY_BYTES_MIN);
            return value(
                "table_memory",
                format!("{bytes} is less than {least}; leave it out to have all in memory"),
            );
        }
        if self.store_price.is_some() && self.sizing != SizingName::Observed {
            return value("store_price", "is for sizing = \"observed\": leave one of them out".to_owned());
        }
        let sizes: Vec<u64> = self.blocks.iter().map(|size| size.0).collect();
        match Geometry::new(&sizes, self.group.map(|group| group.0), capacity_bytes) {
            Ok(_) => Ok(()),
            Err(error) => value("cache", error.to_string()),
        }
    }

    pub(super) fn admission(&self) -> AdmissionRules {
        AdmissionRules {
            sequential_cutoff_bytes: self.sequential_cutoff.map(|size| size.0),
            promote_after: self.promote_after.unwrap_or(1),
        }
    }

    pub(super) fn cleaning(&self) -> CleanerRules {
        let default = CleanerRules::default();
        let high_percent = self.dirty_percent.unwrap_or(default.high_percent);
        CleanerRules {
            order: match self.order {
                OrderName::Group => WriteBackOrder::Group,
                OrderName::Flush => WriteBackOrder::Flush,
                OrderName::None => WriteBackOrder::None,
            },
            age_ns: self.dirty_age.map_or(default.age_ns, |age| age.0),
            low_percent: default.low_percent.min(high_percent / 3 * 2),
            high_percent,
            full_wait_ns: match self.store_full {
                StoreFull::Wait => None,
                StoreFull::FailAfter(time) => Some(time.0),
            },
        }
    }
}
