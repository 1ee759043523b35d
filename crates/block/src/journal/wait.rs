//! Wait of an operation that may continue only once records are on the device.

use super::Lsn;

/// Records that must be durable, and records that must be sealed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// All up to this one are durable.
    pub synced: Lsn,
    /// The seals of all up to this one are durable.
    pub sealed: Lsn,
}
