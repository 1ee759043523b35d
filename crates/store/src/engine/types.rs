//! Arguments and results of the engine's methods.

/// Number of databases that `SELECT` can choose from.
pub const DATABASES: u8 = 16;
/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// Why a value was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No space, and the policy forbids evicting (`noeviction`) or nothing can be evicted.
    #[error("no tier has room for the value and nothing may be evicted")]
    OutOfMemory,
    /// The value is longer than `max-value`.
    #[error("the value is longer than the limit of {limit_bytes} bytes")]
    ValueTooLarge {
        /// The limit.
        limit_bytes: usize,
    },
    /// A part of a tier was lost while the value was written, which may be made of what was there. The key has no value now.
    #[error("a part of a tier was lost meanwhile, and the key with it")]
    Lost,
    /// The key is longer than [`KEY_BYTES_MAX`].
    #[error("the key is longer than the limit of {KEY_BYTES_MAX} bytes")]
    KeyTooLarge,
}

/// Kind of a value; a byte of its item's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValueKind {
    /// A string of bytes.
    #[default]
    String,
    /// Fields and their values, as [`crate::hash`] lays them out.
    Hash,
}

impl ValueKind {
    #[inline]
    pub(super) fn byte(self) -> u8 {
        self as u8
    }

    /// Any byte but the hash's is a string's: only this engine writes headers.
    #[inline]
    pub(super) fn from_byte(byte: u8) -> Self {
        if byte == ValueKind::Hash as u8 { ValueKind::Hash } else { ValueKind::String }
    }

    /// The name that `TYPE` replies.
    pub fn name(self) -> &'static str {
        match self {
            ValueKind::String => "string",
            ValueKind::Hash => "hash",
        }
    }
}

/// Under which condition [`Engine::set`] writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    #[default]
    Always,
    /// Only a key that does not exist (`NX`).
    IfAbsent,
    /// Only a key that exists (`XX`).
    IfPresent,
}

/// What [`Engine::set`] does to the key's time to live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiry {
    /// The key lives until deleted or evicted.
    #[default]
    Never,
    /// The key keeps the expiry it has.
    Keep,
    /// The key expires at this Unix time in milliseconds.
    AtUnixMs(u64),
}

/// Keys that may be evicted when space runs short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// Any key, the coldest first (`allkeys-lru`).
    #[default]
    AllKeys,
    /// Nothing: writes that need space fail (`noeviction`).
    Forbidden,
}
