//! Superblock: identity of the device, its layout, and where the log begins.
//! Two copies are written in turn, so a torn write leaves the other.

use super::bytes::{crc, put, u32_at, u64_at};
use super::page::PAGE_BYTES;
use super::{FORMAT_VERSION, JournalError, Layout, LayoutConfig, OLDEST_VERSION};

const MAGIC: [u8; 8] = *b"TMBLOCK\0";
/// Stands in the place of the version while the device is being formatted.
const UNFINISHED: u32 = 0;
/// Sizes of blocks that there can be: powers of two from 4 KiB to 4 MiB.
const CLASSES_MAX: usize = 11;

/// Where the log begins: at a batch that is surely there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Where in the log, in bytes.
    pub at: u64,
    /// The batch's number.
    pub sequence: u64,
    /// The checksum of its header, which makes it this batch and no other.
    pub header_sum: u32,
}

/// Contents of a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The version of the format in which it was written.
    pub version: u32,
    /// Number of times that it was written.
    pub epoch: u64,
    /// Identity of the cache, drawn when it was formatted.
    pub uuid: [u8; 16],
    /// The sizes asked for, all given.
    pub config: LayoutConfig,
    /// Groups in the data area.
    pub groups: u32,
    /// Where the log begins.
    pub tail: Tail,
}

/// State of a block that may be a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuperblockState {
    /// Zeros.
    Nothing,
    /// A superblock.
    Sound(Box<Superblock>),
    /// Formatting was begun and not finished.
    Unfinished,
    /// One of another version, with any contents.
    Version(u32),
    /// One that is not as it was written.
    Damaged,
    /// Something else.
    Stranger,
}

impl Superblock {
    /// That of a cache that is divided so.
    pub fn new(layout: &Layout, uuid: [u8; 16], tail: Tail) -> Self {
        let config = LayoutConfig {
            block_bytes: layout.block_bytes.clone(),
            group_bytes: Some(layout.geometry.group_bytes()),
            log_bytes: Some(layout.log_bytes),
        };
        Superblock { version: FORMAT_VERSION, epoch: 1, uuid, config, groups: layout.groups, tail }
    }

    /// Where the copy of an epoch lies, in bytes.
    pub fn at(epoch: u64) -> u64 {
        epoch % 2 * PAGE_BYTES as u64
    }

    /// Makes a block of zeros say that the device is being formatted.
    pub fn write_unfinished(block: &mut [u8]) {
        put(block, 0, &MAGIC);
        put(block, 8, &UNFINISHED.to_le_bytes());
    }

    /// Writes it into a block of zeros, as one of the present version.
    pub fn write(&self, block: &mut [u8]) {
        put(block, 0, &MAGIC);
        put(block, 8, &FORMAT_VERSION.to_le_bytes());
        put(block, 16, &self.epoch.to_le_bytes());
        put(block, 24, &self.uuid);
        put(block, 40, &self.config.log_bytes.unwrap_or(0).to_le_bytes());
        put(block, 48, &self.config.group_bytes.unwrap_or(0).to_le_bytes());
        put(block, 56, &self.groups.to_le_bytes());
        put(block, 60, &(self.config.block_bytes.len() as u32).to_le_bytes());
        put(block, 64, &self.tail.at.to_le_bytes());
        put(block, 72, &self.tail.sequence.to_le_bytes());
        put(block, 80, &self.tail.header_sum.to_le_bytes());
        for (class, bytes) in self.config.block_bytes.iter().take(CLASSES_MAX).enumerate() {
            put(block, 88 + class * 4, &(*bytes as u32).to_le_bytes());
        }
        let sum = crc(&self.uuid, &[&block[..12], &block[16..PAGE_BYTES]]);
        put(block, 12, &sum.to_le_bytes());
    }

    /// Reads what a block holds.
    pub fn read(block: &[u8]) -> SuperblockState {
        if block.iter().all(|byte| *byte == 0) {
            return SuperblockState::Nothing;
        }
        if block[..8] != MAGIC {
            return SuperblockState::Stranger;
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&block[24..40]);
        let is_whole = u32_at(block, 12) == crc(&uuid, &[&block[..12], &block[16..PAGE_BYTES]]);
        let version = u32_at(block, 8);
        let classes = u32_at(block, 60) as usize;
        match is_whole {
            _ if version == UNFINISHED => SuperblockState::Unfinished,
            // Other versions may keep their checksum elsewhere, and a flipped bit may make one of this version look like them.
            _ if !(OLDEST_VERSION..=FORMAT_VERSION).contains(&version) => SuperblockState::Version(version),
            true if classes <= CLASSES_MAX && u64_at(block, 16) < 1 << 62 => {
                SuperblockState::Sound(Box::new(Superblock {
                    version,
                    epoch: u64_at(block, 16),
                    uuid,
                    config: LayoutConfig {
                        block_bytes: (0..classes)
                            .map(|class| u64::from(u32_at(block, 88 + class * 4)))
                            .collect(),
                        group_bytes: Some(u64_at(block, 48)),
                        log_bytes: Some(u64_at(block, 40)),
                    },
                    groups: u32_at(block, 56),
                    tail: Tail {
                        at: u64_at(block, 64),
                        sequence: u64_at(block, 72),
                        header_sum: u32_at(block, 80),
                    },
                }))
            }
            _ => SuperblockState::Damaged,
        }
    }

    /// The one that counts of two blocks, and whether the other one is not as it should be.
    ///
    /// # Errors
    /// Zeros, strangers, another version, damage to both.
    pub fn choose(first: &[u8], second: &[u8]) -> Result<(Self, bool), JournalError> {
        match [Self::read(first), Self::read(second)] {
            [SuperblockState::Sound(a), SuperblockState::Sound(b)] => {
                let is_pair = a.uuid == b.uuid && a.epoch.abs_diff(b.epoch) == 1;
                if !is_pair {
                    return Err(JournalError::damaged("the two superblocks do not belong together"));
                }
                Ok((if a.epoch > b.epoch { *a } else { *b }, false))
            }
            [SuperblockState::Sound(one), _] | [_, SuperblockState::Sound(one)] => Ok((*one, true)),
            [SuperblockState::Unfinished, SuperblockState::Unfinished | SuperblockState::Nothing]
            | [SuperblockState::Nothing, SuperblockState::Unfinished] => Err(JournalError::NotFormatted),
            [SuperblockState::Nothing, SuperblockState::Nothing] => Err(JournalError::NotFormatted),
            [SuperblockState::Version(a), SuperblockState::Version(b)] if a == b => {
                Err(JournalError::Version { found: a })
            }
            [
                SuperblockState::Stranger | SuperblockState::Nothing,
                SuperblockState::Stranger | SuperblockState::Nothing,
            ] => Err(JournalError::Occupied { what: "something that is not a block cache".to_owned() }),
            _ => Err(JournalError::damaged("neither superblock (bytes 0 and 4096) is as it was written")),
        }
    }

    /// Where the cache ends on its device, if its sizes can be.
    pub fn end(&self) -> Option<u64> {
        Layout::with_end(&self.config, self.groups).ok().map(|layout| layout.end())
    }

    /// Layout of the device, checked against the requested one; parts that were not requested may be anything.
    ///
    /// # Errors
    /// Other sizes, a device that is too short, invalid contents.
    pub fn layout(&self, device_bytes: u64, asked: &LayoutConfig) -> Result<Layout, JournalError> {
        let layout = Layout::with_end(&self.config, self.groups)
            .ok()
            .filter(|layout| layout.groups == self.groups)
            .ok_or_else(|| JournalError::damaged("the superblock's sizes cannot be"))?;
        let differs = |what, found: &dyn std::fmt::Debug, asked: &dyn std::fmt::Debug| {
            Err(JournalError::OtherLayout { what, found: format!("{found:?}"), asked: format!("{asked:?}") })
        };
        let found = &self.config;
        if found.block_bytes != asked.block_bytes {
            return differs("block sizes", &found.block_bytes, &asked.block_bytes);
        }
        let group_bytes = asked.group_bytes.or(asked.block_bytes.last().copied());
        if found.group_bytes != group_bytes {
            return differs("groups", &found.group_bytes.unwrap_or(0), &group_bytes.unwrap_or(0));
        }
        if let Some(log_bytes) = asked.log_bytes.filter(|bytes| found.log_bytes != Some(*bytes)) {
            return differs("a log", &found.log_bytes.unwrap_or(0), &log_bytes);
        }
        if layout.end() > device_bytes {
            return Err(JournalError::Shrunk { device_bytes, wanted_bytes: layout.end() });
        }
        Ok(layout)
    }
}
