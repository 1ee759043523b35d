//! The limits that a group of somebody else's had before it was attached to, as the register keeps them.

use serde::{Deserialize, Serialize};
use tiermem_sys::control_group::{Group, GroupError, Limit, Version};

/// Limits in bytes; `None`: unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedLimits {
    memory: Option<u64>,
    swap: Option<u64>,
    /// The high mark, which version 2 alone has.
    high: Option<u64>,
    /// Whether processes that find no memory wait (version 1).
    waits: bool,
}

impl SavedLimits {
    /// Those that a group has now.
    pub fn of(group: &Group) -> Result<Self, GroupError> {
        let high = match group.version() {
            Version::One => Limit::Unlimited,
            Version::Two => group.high()?,
        };
        Ok(SavedLimits {
            memory: bytes(group.memory_limit()?),
            swap: bytes(group.swap_limit()?),
            high: bytes(high),
            waits: group.version() == Version::One && group.out_of_memory_waits().unwrap_or(false),
        })
    }

    /// Memory.
    pub fn memory(&self) -> Limit {
        limit(self.memory)
    }

    /// Swap.
    pub fn swap(&self) -> Limit {
        limit(self.swap)
    }

    /// The high mark.
    pub fn high(&self) -> Limit {
        limit(self.high)
    }

    /// Whether processes that find no memory wait.
    pub fn waits(&self) -> bool {
        self.waits
    }
}

fn bytes(limit: Limit) -> Option<u64> {
    match limit {
        Limit::Bytes(bytes) => Some(bytes),
        Limit::Unlimited => None,
    }
}

fn limit(bytes: Option<u64>) -> Limit {
    bytes.map_or(Limit::Unlimited, Limit::Bytes)
}
