//! Limits of memory and of swap of a group.

use super::error::GroupError;
use super::files::{self, NEEDS_VERSION_2};
use super::group::Group;
use super::version::Version;

const MEMORY_1: &str = "memory.limit_in_bytes";
/// Memory and swap together.
const TOTAL_1: &str = "memory.memsw.limit_in_bytes";
const MEMORY_2: &str = "memory.max";
const SWAP_2: &str = "memory.swap.max";
const NEEDS_SWAP_1: &str = "it needs a kernel that counts swap by group: boot with swapaccount=1";
const NEEDS_SWAP_2: &str = "it needs a kernel with swap (CONFIG_SWAP), and a group below the root";
/// The value of version 1 for no limit: the most pages of 4 KiB that a signed number of bytes holds.
const UNLIMITED_1: u64 = i64::MAX as u64 / 4096 * 4096;

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// At most this many bytes; the kernel rounds them down to whole pages.
    Bytes(u64),
    /// As many as there are.
    Unlimited,
}

impl Limit {
    fn of(bytes: Option<u64>) -> Self {
        match bytes {
            Some(bytes) if bytes < UNLIMITED_1 => Limit::Bytes(bytes),
            _ => Limit::Unlimited,
        }
    }

    fn text(self, version: Version) -> String {
        match (self, version) {
            (Limit::Bytes(bytes), _) => bytes.to_string(),
            (Limit::Unlimited, Version::One) => "-1".to_owned(),
            (Limit::Unlimited, Version::Two) => "max".to_owned(),
        }
    }

    fn plus(self, other: Limit) -> Limit {
        match (self, other) {
            (Limit::Bytes(one), Limit::Bytes(other)) => Limit::of(one.checked_add(other)),
            _ => Limit::Unlimited,
        }
    }
}

impl Group {
    /// How much memory may be charged.
    ///
    /// # Errors
    /// The system's error.
    pub fn memory_limit(&self) -> Result<Limit, GroupError> {
        match self.version() {
            Version::One => self.limit(MEMORY_1),
            Version::Two => self.limit(MEMORY_2),
        }
    }

    /// Sets how much memory may be charged, and leaves swap as it is limited. What is over it is reclaimed at once.
    ///
    /// # Errors
    /// `EBUSY` (version 1) if not enough can be reclaimed; `EINVAL` (version 1) above the limit of memory and swap together.
    pub fn set_memory_limit(&self, limit: Limit) -> Result<(), GroupError> {
        match self.version() {
            Version::One => self.set(MEMORY_1, limit),
            Version::Two => self.set(MEMORY_2, limit),
        }
    }

    /// The limit of swap, in addition to memory. With version 1 it is the limit of both together less that of memory.
    ///
    /// # Errors
    /// The system's error, or that swap is not counted here.
    pub fn swap_limit(&self) -> Result<Limit, GroupError> {
        const ATTEMPTED: &str = "read the swap limit of";
        match self.version() {
            Version::One => {
                self.existing(ATTEMPTED, TOTAL_1, NEEDS_SWAP_1)?;
                Ok(match (self.limit(TOTAL_1)?, self.limit(MEMORY_1)?) {
                    (Limit::Bytes(total), Limit::Bytes(memory)) => Limit::Bytes(total.saturating_sub(memory)),
                    _ => Limit::Unlimited,
                })
            }
            Version::Two => {
                self.existing(ATTEMPTED, SWAP_2, NEEDS_SWAP_2)?;
                self.limit(SWAP_2)
            }
        }
    }

    /// Sets both limits. Version 1 limits memory, and memory and swap together; the second may never be below the first, so they
    /// are written in the order that keeps that.
    ///
    /// # Errors
    /// Those of [`Group::set_memory_limit`], or that swap is not counted here. The first of the two may be set already.
    pub fn set_limits(&self, memory: Limit, swap: Limit) -> Result<(), GroupError> {
        const ATTEMPTED: &str = "set the swap limit of";
        match self.version() {
            Version::One => {
                self.existing(ATTEMPTED, TOTAL_1, NEEDS_SWAP_1)?;
                let total = memory.plus(swap);
                if memory > self.limit(TOTAL_1)? {
                    self.set(TOTAL_1, total)?;
                    self.set(MEMORY_1, memory)
                } else {
                    self.set(MEMORY_1, memory)?;
                    self.set(TOTAL_1, total)
                }
            }
            Version::Two => {
                self.existing(ATTEMPTED, SWAP_2, NEEDS_SWAP_2)?;
                // Swap first: what the new limit of memory pushes out may need it.
                self.set(SWAP_2, swap)?;
                self.set(MEMORY_2, memory)
            }
        }
    }

    /// Sets the high mark: above it the group is reclaimed from and slowed down, but no process is killed.
    ///
    /// # Errors
    /// With version 1, which has none; the system's error.
    pub fn set_high(&self, limit: Limit) -> Result<(), GroupError> {
        self.existing("set the high mark of", "memory.high", NEEDS_VERSION_2)?;
        self.set("memory.high", limit)
    }

    /// The high mark.
    ///
    /// # Errors
    /// With version 1, which has none; the system's error.
    pub fn high(&self) -> Result<Limit, GroupError> {
        self.existing("read the high mark of", "memory.high", NEEDS_VERSION_2)?;
        self.limit("memory.high")
    }

    fn limit(&self, name: &str) -> Result<Limit, GroupError> {
        let file = self.file(name);
        let text = files::read("read the limit of", &file)?;
        Ok(Limit::of(files::number(&file, &text)?))
    }

    fn set(&self, name: &str, limit: Limit) -> Result<(), GroupError> {
        files::write("set the limit", &self.file(name), &limit.text(self.version()))
    }
}
