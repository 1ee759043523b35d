//! Kinds of tiers.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::latency_curve::{DEFAULT_CURVE, FLASH_CURVE, LOCAL_DRAM_CURVE, NUMA_CURVE, STORE_CURVE};

/// The kind of a tier: what its memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TierKind {
    /// The machine's local memory.
    Dram,
    /// Memory of another NUMA node.
    Numa,
    /// A file or device that is mapped and outlives the process.
    Dax,
    /// Local memory that charges a slower device's time.
    Emulated,
    /// Local memory whose contents are compressed.
    Compressed,
    /// A file or block device on flash.
    Flash,
    /// Memory of another machine, or a store behind a network.
    Remote,
}

impl TierKind {
    /// All kinds with their words in files, flags, metrics and tables.
    pub const ALL: [(TierKind, &'static str); 7] = [
        (TierKind::Dram, "dram"),
        (TierKind::Numa, "numa"),
        (TierKind::Dax, "dax"),
        (TierKind::Emulated, "emulated"),
        (TierKind::Compressed, "compressed"),
        (TierKind::Flash, "flash"),
        (TierKind::Remote, "remote"),
    ];

    /// The kinds whose bytes the processor reads and writes one by one.
    pub const MEMORY: [TierKind; 4] = [TierKind::Dram, TierKind::Numa, TierKind::Dax, TierKind::Emulated];

    /// The word for it.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    /// The curve that it is taken to have where none is given. No figure is known for compressed memory: it depends on the
    /// algorithm and on what is compressed.
    pub fn usual_curve(self) -> Option<&'static str> {
        match self {
            TierKind::Dram => Some(LOCAL_DRAM_CURVE),
            TierKind::Numa | TierKind::Dax => Some(NUMA_CURVE),
            TierKind::Emulated => Some(DEFAULT_CURVE),
            TierKind::Compressed => None,
            TierKind::Flash => Some(FLASH_CURVE),
            TierKind::Remote => Some(STORE_CURVE),
        }
    }

    /// Whether the processor reads and writes it byte by byte.
    pub fn is_memory(self) -> bool {
        Self::MEMORY.contains(&self)
    }
}

/// The words for some kinds, as a sentence lists them.
pub(super) fn listed(kinds: &[TierKind]) -> String {
    let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => "none".to_owned(),
    }
}

impl fmt::Display for TierKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TierKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|(_, name)| *name == text);
        known.map(|(kind, _)| kind).ok_or_else(|| {
            let names = Self::ALL.map(|(_, name)| name).join(", ");
            format!("{text:?} is not a kind of tier; there are {names}")
        })
    }
}
