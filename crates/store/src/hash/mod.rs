//! Hash as one blob of bytes: fields, their values and their expiries, found in O(1), without pointers.
//!
//! A blob means the same at any address, so tiers and files move it as they move strings.
//! All functions are pure: bytes and the time come in as arguments, and no bytes, however
//! broken, make them panic or loop; a blob that cannot be parsed is [`Broken`].
//!
//! # The format
//!
//! All numbers are little-endian. A blob has a *form*: a **sequence** up to [`SEQUENCE_FIELDS_MAX`] fields and
//! [`SEQUENCE_BYTES_MAX`] bytes of entries, a **table** beyond. The bytes behind `used` are slack and mean nothing.
//!
//! ```text
//! offset size
//!      0    1  form: 1 sequence, 2 table
//!      1    1  0
//!      2    6  earliest: no field expires before this Unix time in ms; 0: none expires
//!      8    4  count: fields, those past their time that were not collected among them
//!     12    4  used: where the entries end
//!                                               a sequence's entries begin here, at 16
//!     16    4  dead: bytes of holes among the entries
//!     20    4  sweep: where the running sweep stands; 0: none runs
//!     24    4  slots: of the directory
//!     28    4  seed of the fields' hash (`tiermem_base::hash::field_hash`)
//!     32    6  next_earliest: what the running sweep has found for `earliest`
//!     38    2  0
//!     40  5 x slots  the directory, then the entries
//! ```
//!
//! An **entry** is a byte of flags, the field's length, the value's length, its expiry as Unix time in ms (6
//! bytes, 0 is never) if it may expire, the field, the value. Of the flags, bits 0 and 1 give the width of the
//! field's length, bits 2 and 3 that of the value's (0: no bytes, the length is 0; 1: one byte; 2: two; 3:
//! four), bit 4 an expiry. Bit 7 makes it a **hole**: bits 0 and 1 give the width of the length of the bytes
//! behind, and the rest is 0. So a hole is as short as one byte. Entries and holes are contiguous up to `used`.
//!
//! A **sequence** has neither holes nor a directory: fields are
//! in insertion order, and a change moves the bytes behind it.
//!
//! A **table**'s directory is open addressing with linear probing. A slot is the entry's offset from the blob's
//! start (4 bytes, 0: free) and the low byte of the field's hash. A field's home is its hash's upper half, scaled
//! to the number of slots: so homes follow the order of hashes for any number of slots, and a scan's cursor,
//! which is a hash, outlives growth. New entries go to the end; a removed or replaced entry becomes a hole.
//!
//! # What a change costs
//!
//! A **sweep** collects holes and expired fields in small steps, paid for by the changes that make holes: it carries
//! one hole from the front to the end, and swaps it with each entry that it meets. It starts when a quarter of the
//! entries' bytes are holes, and advances [`SWEEP_FACTOR`] bytes for each byte written or removed, at most
//! [`SWEEP_BYTES_MAX`]. So no change of a table takes time that grows with the table, except for **rebuilding** when
//! there is no room left: entries are copied into a longer blob, with a quarter (below 256 KiB a half) of it free.

mod build;
mod change;
mod directory;
mod entry;
mod head;
mod scan;
mod sweep;
#[cfg(test)]
mod tests;
mod view;

pub use build::{Size, plan, rebuild};
pub use change::{Change, Ttl, collect, remove, room_for, set, set_expiry};
pub use entry::entry_bytes;
pub use scan::Scanned;
pub use view::{Field, Fields, Hash};

/// Fields that a sequence has at most.
pub const SEQUENCE_FIELDS_MAX: usize = 64;
/// Bytes of entries that a sequence has at most.
pub const SEQUENCE_BYTES_MAX: usize = 1024;
/// Bytes that a sweep advances for each byte that a change writes or removes. At 8 a sweep
/// over a table with a quarter of holes ends before an eighth of it has been written.
pub const SWEEP_FACTOR: usize = 8;
/// Bytes that a sweep advances in one change, about 50 us, except for a longer entry at its position.
pub const SWEEP_BYTES_MAX: usize = 128 << 10;
/// Expiries are below this Unix time in ms: 46 bits, as in Redis.
pub const EXPIRES_MS_MAX: u64 = (1 << 46) - 1;

/// The bytes are no hash of this format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes of this hash are damaged")]
pub struct Broken;
