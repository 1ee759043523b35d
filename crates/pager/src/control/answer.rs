//! What is answered.

use serde::{Deserialize, Serialize};

/// An answer: one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// How it is now; also after a change.
    Status(Status),
    /// Why it was not done, with what would help.
    Error(String),
}

/// How a run or an attachment is now. Counts are from its begin on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The limit of DRAM.
    pub dram_bytes: u64,
    /// The limit of flash; `None`: all of the machine's swap.
    pub flash_bytes: Option<u64>,
    /// In DRAM.
    pub charged_bytes: u64,
    /// In swap.
    pub swapped_bytes: u64,
    /// Page faults that did not wait for a disk.
    pub minor_faults: u64,
    /// Page faults that did.
    pub major_faults: u64,
    /// Read from swap, as far as the kernel tells of the group, else by the machine.
    pub read_bytes: u64,
    /// Written to swap, likewise.
    pub written_bytes: u64,
    /// Pages fetched ahead; `None`: nothing is steered.
    pub prefetched_pages: Option<u64>,
    /// Those of them that were used.
    pub prefetch_used_pages: Option<u64>,
    /// Pages that steering has sent to flash.
    pub paged_out_pages: Option<u64>,
    /// Major faults that a quarter more DRAM would have saved.
    pub quarter_more_saves_faults: Option<u64>,
    /// Who leaves.
    pub evict: String,
    /// What is fetched ahead.
    pub prefetch: String,
    /// Whether it is steered.
    pub is_steered: bool,
    /// How long it has waited for room, as DRAM and flash are full; `None`: it does not wait.
    #[serde(default)]
    pub waits_ms: Option<u64>,
}
