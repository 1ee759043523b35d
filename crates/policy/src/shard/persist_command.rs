//! Persistence duties: what the log's device has to do so that a restart finds the items of the log.
//!
//! [`Act`](super::Act)s move items; duties make their places known to a restart. They need no facts about items, so the driver of
//! the device carries them out by itself, one after the other, when it [has told](super::Device::announce) what is done:
//!
//! ```text
//! while let Some(duty) = shard.device().next_duty() { carry_out(duty) }
//! ```

use crate::log::{Filled, LogPlace};

/// A duty of the device's driver, to be carried out before it asks for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Write a [record](super::Device::note_record) that an item lies here now and nowhere else: its bytes are on the device.
    Announce {
        /// The segment that is being filled.
        segment: u32,
        /// The byte of it at which the item begins.
        at: u32,
        /// The hash of its key.
        hash: u64,
        /// Its place.
        place: LogPlace,
        /// Whether it came from memory; else it was announced before, where it has survived.
        is_new: bool,
    },
    /// All of a sealed segment is on the device and announced: its bytes in memory are needed no longer.
    Release {
        /// The segment.
        segment: u32,
    },
    /// Say so with [`settled`](super::Device::settled) when all that was written by now is safe.
    Settle(Settling),
    /// Write the gathered rows as a part of the checkpoint to this segment, and call
    /// [`part_written`](super::Device::part_written).
    WritePart {
        /// The segment.
        segment: u32,
        /// The segment of the next part; `None`: this is the last one.
        next: Option<u32>,
    },
    /// Write the superblock that names the checkpoint, and say so with [`named`](super::Device::named).
    Name {
        /// The segment of its first part.
        first: u32,
        /// The number of the next filling when its first row was gathered.
        next_sequence: u32,
    },
}

/// The work that waits until something is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settling {
    /// An emptied segment, for the records that announce what survived of it.
    Emptied {
        /// The segment.
        segment: u32,
    },
    /// A checkpoint, for its parts.
    Parts,
    /// The checkpoint before it, for the superblock that names the new one.
    Name,
}

/// Where a record of the journal has its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Behind the last one.
    Behind,
    /// At the beginning of the other half. A checkpoint begins here: replaying begins with this record when it is complete.
    InOtherHalf,
    /// At the beginning of the same half, over records that a restart would need: before it is written a restart must find
    /// nothing, until another checkpoint is complete.
    OverLost {
        /// Whether a restart would have found something until now.
        is_first: bool,
    },
}

/// The writer of a checkpoint's rows, until [`Duty::WritePart`].
pub trait Parts {
    /// A checkpoint begins: replaying begins with the next record when it is complete. `rewinds`: which is the first one of the
    /// journal's half that is in use, for what that holds is worth nothing.
    fn begin(&mut self, rewinds: bool);

    /// A segment, before all items.
    fn add_segment(&mut self, filled: Filled);

    /// An item: the first 40 bits of the hash of its key, and its place.
    fn add_item(&mut self, hash: u64, place: LogPlace);
}
