//! Journal of a cache device, its metadata: which block of which volume lies
//! where, which units of it are valid and dirty, and their checksums. A log with
//! checkpoints keeps them through the death of the process and through power loss.
//!
//! `docs/block-design.md` has the protocol, `docs/block-format.md` the bytes. [`format()`] and [`open`] work
//! synchronously, at the start; a [`Journal`] does no I/O itself: it returns requests and takes completions.
//!
//! - [`Layout`] divides the device: superblock, log, table, data.
//! - [`Record`]s change the table ([`table`]), during operation and in recovery by the same function; batches of them
//!   make the log. The table need not be in memory as a whole: the state of a unit always is, its checksum when it
//!   [`Journal::has_sums`].
//! - Checkpoints write pages of the table, so that the log's space can be reused.
//! - Recovery reads table and log, and checks the data that power loss may have damaged.
//!
//! # What the engine keeps to
//!
//! *Unit*, *slot*, *group* and *class* are those of the data area ([`tiermem_policy::extents::Geometry`]). "Waited for" is
//! [`Journal::want_synced`] and [`Journal::synced`], since what is only written may be taken back by power loss.
//!
//! 1. [`Record::Units`] is appended when the completion of its data was taken.
//! 2. Before a unit that [`Journal::is_recorded`] is written in place, or its volume past it, its block is [`Record::Open`] and that is
//!    waited for. Beside that a unit is overwritten only when [`Journal::may_overwrite`] says so.
//! 3. [`Record::Close`] is appended when no such write is in flight and each has left a record: UNITS, DROP or POISON.
//! 4. [`Record::Clean`] is appended when the backing store has been flushed. It, an UNMAP of what was dirty, and a DROP of what was dirty
//!    are waited for before other data are written to these units.
//! 5. UNITS that are clean over units that were dirty follow a flush of the backing store.
//! 6. While [`Journal::has_room`] is false, nothing new is begun.

mod batch;
mod bytes;
mod checkpoint;
mod error;
mod fetch;
mod finish_recovery;
#[cfg(test)]
mod forged;
mod format;
mod io;
mod layout;
mod live;
mod log_writer;
mod marks;
mod overlap_check;
mod page;
mod page_buffers;
mod page_reads;
mod record;
mod recover;
mod ring;
mod scan;
mod states;
mod superblock;
pub mod table;
mod torn_units;
mod unsealed;
mod volumes;
mod wait;

use std::hash::{BuildHasher, Hasher, RandomState};

pub use error::JournalError;
pub use format::{cache_on, format, refuse_stranger};
pub use layout::{LOG_BYTES_MAX, LOG_BYTES_MIN, Layout, LayoutConfig};
pub use live::Journal;
pub use record::{PIECES_MAX, Reader, Record, TEXT_BYTES_MAX, VOLUMES_MAX, VolumeInfo, VolumeState};
pub use recover::{Recovered, open};
pub use table::{BlockState, UnitState};
pub use wait::Wait;

/// The version of the format: 2 has marks of volumes.
pub const FORMAT_VERSION: u32 = 2;
/// The oldest version that is opened. A cache of it becomes one of the present version.
const OLDEST_VERSION: u32 = 1;

/// The tokens of the journal's requests have this bit.
pub const TOKEN_BIT: u64 = 1 << 63;
/// Writes of pages have the page's number behind this, and reads of them behind the other.
const PAGE_TOKEN: u64 = TOKEN_BIT | 1 << 62;
const PAGE_READ_TOKEN: u64 = TOKEN_BIT | 1 << 61;
const LOG_TOKEN: u64 = TOKEN_BIT | 1;
const SYNC_TOKEN: u64 = TOKEN_BIT | 2;
const SUPERBLOCK_TOKEN: u64 = TOKEN_BIT | 3;

/// A record's number; the first has 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// Statistics of a journal since it was opened, and its present contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Batches submitted.
    pub batches: u64,
    /// Their bytes.
    pub log_written_bytes: u64,
    /// Syncs done.
    pub syncs: u64,
    /// Seals that became durable.
    pub seals: u64,
    /// Checkpoints that freed space of the log.
    pub checkpoints: u64,
    /// Images of pages written.
    pub pages_written: u64,
    /// Images of pages read again, for want of memory for all.
    pub pages_read: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Bytes of the log in use.
    pub log_used_bytes: u64,
    /// Pages with images that lack records.
    pub dirty_pages: u64,
    /// Memory held.
    pub memory_bytes: u64,
}

/// The checksum of a unit's bytes at a byte of a volume.
///
/// It is seeded with volume and address: what belongs elsewhere (left by another block, or written to the wrong place) does
/// not fit, whole as it may be. CRC-32 is for accidents, not for adversaries, and a torn or foreign unit slips through once
/// in 2^32.
#[inline]
pub fn checksum(volume: u16, offset: u64, unit: &[u8]) -> u32 {
    // The seed differs for each address, which a plain CRC over the same bytes turns into a difference of the result.
    let mut seed = [0; 10];
    seed[..2].copy_from_slice(&volume.to_le_bytes());
    seed[2..].copy_from_slice(&offset.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&seed);
    hasher.update(unit);
    hasher.finalize()
}

/// A number that no other process draws: the hash of nothing with keys from the system.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
