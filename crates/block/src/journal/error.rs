//! Errors of a cache device that cannot be used, and what the operator can do.

use tiermem_policy::extents::GeometryError;
use tiermem_tier::block::BlockError;

use super::FORMAT_VERSION;

/// Why a cache device cannot be formatted or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// The sizes cannot be.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The device has no room for what a cache needs.
    #[error(
        "the cache device has {device_bytes} bytes and needs at least {wanted_bytes}: give it a larger one"
    )]
    TooSmall {
        /// Its bytes.
        device_bytes: u64,
        /// The least.
        wanted_bytes: u64,
    },
    /// The log cannot have this size.
    #[error(
        "a log of {asked_bytes} bytes is not possible: give a multiple of 4096 from {least_bytes} to {most_bytes}"
    )]
    LogSize {
        /// As asked.
        asked_bytes: u64,
        /// The least.
        least_bytes: u64,
        /// The most.
        most_bytes: u64,
    },
    /// The device holds zeros where a cache begins.
    #[error("the device holds no block cache; format it first")]
    NotFormatted,
    /// The device holds something else.
    #[error("the device holds {what}; give another device, or use --reset if all of that may be lost")]
    Occupied {
        /// What it holds.
        what: String,
    },
    /// Another version of the format.
    #[error(
        "the cache was written in version {found} of the format, and this program knows version {FORMAT_VERSION}: write \
         its dirty data back with the program that wrote it, then use --reset"
    )]
    Version {
        /// The version on the device.
        found: u32,
    },
    /// The cache was formatted with other sizes.
    #[error(
        "the cache was formatted with {what} of {found}, and {asked} is asked for: ask for what it has, or write its \
         dirty data back and use --reset"
    )]
    OtherLayout {
        /// Which size.
        what: &'static str,
        /// As formatted.
        found: String,
        /// As asked.
        asked: String,
    },
    /// The device is shorter than when it was formatted.
    #[error(
        "the cache device has {device_bytes} bytes, and the cache on it needs {wanted_bytes}: give the device its length \
         back; if the rest is lost, use --reset, which loses what was not written back"
    )]
    Shrunk {
        /// Its bytes.
        device_bytes: u64,
        /// What the cache on it needs.
        wanted_bytes: u64,
    },
    /// The metadata are not what was written.
    #[error(
        "the cache's metadata are damaged: {what}. Restore a copy of the device if there is one; else use --reset: the \
         volumes are then as their backing stores have them, without the writes that only the cache held"
    )]
    Damaged {
        /// What was found, and where.
        what: String,
    },
    /// The device failed.
    #[error("cannot {doing} the cache device: {source}; see to the device and start again")]
    Device {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: BlockError,
    },
    /// The log failed while recovery was being completed.
    #[error("cannot complete the recovery of the cache: {why}; see to the device and start again")]
    Log {
        /// Why.
        why: String,
    },
}

impl JournalError {
    pub(super) fn damaged(what: impl Into<String>) -> Self {
        JournalError::Damaged { what: what.into() }
    }

    pub(super) fn device(doing: &'static str) -> impl Fn(BlockError) -> Self {
        move |source| JournalError::Device { doing, source }
    }
}
