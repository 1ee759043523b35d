//! On-device format, to the byte; drawn in `docs/store-format.md`. All numbers are little-endian.

use tiermem_policy::log::{
    Filled, GROWTHS_MAX, Growths, ITEM_ROW_BYTES, PART_HEADER_BYTES, Region, SEGMENT_ROW_BYTES,
};

use super::{FlashError, VERSION, VERSION_UNGROWN};

/// The unit of the layout: superblocks, journal halves and segments begin at multiples of it.
pub const BLOCK_BYTES: usize = 4096;
/// Bytes of an item before its key.
pub const ITEM_HEADER_BYTES: usize = tiermem_policy::log::ITEM_HEADER_BYTES as usize;

const SUPERBLOCK_MAGIC: [u8; 8] = *b"TMFLASH\0";
/// The type of an item that died in the memory where its segment was being filled; no value has it.
const BURIED: u8 = u8::MAX;
const SEGMENT_MAGIC: [u8; 4] = *b"TMSG";
const CHECKPOINT_MAGIC: [u8; 4] = *b"TMCP";
/// No segment.
pub const NO_SEGMENT: u32 = u32::MAX;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Header of an item on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemHeader {
    /// The filling of the segment that it belongs to; one of another filling is a leftover.
    pub sequence: u32,
    /// The hash of the key, with the seed of the superblock.
    pub hash: u64,
    /// Bytes of the value.
    pub value_len: u32,
    /// Bytes of the key.
    pub key_len: u16,
    /// The database.
    pub db: u8,
    /// The value's type, as the store counts them.
    pub kind: u8,
    /// When it expires, in Unix milliseconds; 0: never.
    pub expires_at_ms: u64,
}

impl ItemHeader {
    /// Bytes of header, key and value.
    pub fn item_len(&self) -> usize {
        ITEM_HEADER_BYTES + usize::from(self.key_len) + self.value_len as usize
    }

    /// Writes the header before the key and value, which are in `item` already, and the checksum over all of them.
    pub fn seal(&self, item: &mut [u8]) {
        put(item, 4, &self.sequence.to_le_bytes());
        put(item, 8, &self.hash.to_le_bytes());
        put(item, 16, &self.value_len.to_le_bytes());
        put(item, 20, &self.key_len.to_le_bytes());
        (item[22], item[23]) = (self.db, self.kind);
        put(item, 24, &self.expires_at_ms.to_le_bytes());
        let crc = crc32fast::hash(&item[4..self.item_len()]);
        put(item, 0, &crc.to_le_bytes());
    }

    /// The database of an item that was sealed, given by its bytes.
    pub fn db_of(item: &[u8]) -> Option<u8> {
        item.get(22).copied()
    }

    /// Whether it died before it was written.
    fn is_buried(&self) -> bool {
        self.kind == BURIED
    }

    /// The item of filling `sequence` that begins with `bytes`, if there is a whole and sound one.
    pub fn read(bytes: &[u8], sequence: u32) -> Option<ItemHeader> {
        // Checked before the checksum: leftovers are skipped without being read to their end.
        if bytes.len() < ITEM_HEADER_BYTES || u32_at(bytes, 4) != sequence {
            return None;
        }
        let header = ItemHeader {
            sequence: u32_at(bytes, 4),
            hash: u64_at(bytes, 8),
            value_len: u32_at(bytes, 16),
            key_len: u16_at(bytes, 20),
            db: bytes[22],
            kind: bytes[23],
            expires_at_ms: u64_at(bytes, 24),
        };
        let item = bytes.get(4..header.item_len())?;
        (crc32fast::hash(item) == u32_at(bytes, 0)).then_some(header)
    }
}

/// Marks an item, given by its bytes, as dead. A walk over the segment still finds the items behind it.
pub fn bury(item: &mut [u8]) {
    item[23] = BURIED;
    let crc = crc32fast::hash(&item[4..]);
    put(item, 0, &crc.to_le_bytes());
}

/// Where the item of `hash` (its first 40 bits, which are all that an index entry knows) and `sequence` begins, among
/// the items that begin in the first block of `bytes`. Of several versions in one block all but the last are buried.
pub fn find_item(bytes: &[u8], first: usize, hash: u64, sequence: u32) -> Option<(usize, ItemHeader)> {
    let block = BLOCK_BYTES.min(bytes.len());
    let starts = (first..block.saturating_sub(7)).step_by(8).rev();
    let hash = hash.to_le_bytes();
    for at in starts {
        // The hash is at the same offset in every header, so one comparison skips most places.
        if bytes.get(at + 11..at + 16) == Some(&hash[3..])
            && let Some(header) = ItemHeader::read(&bytes[at..], sequence)
            && !header.is_buried()
        {
            return Some((at, header));
        }
    }
    None
}

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The number of this filling.
    pub sequence: u32,
    /// The device it belongs to.
    pub uuid: [u8; 16],
}

impl SegmentHeader {
    /// Writes it to the first 64 bytes of a segment.
    pub fn write(&self, bytes: &mut [u8]) {
        bytes[..64].fill(0);
        put(bytes, 0, &SEGMENT_MAGIC);
        put(bytes, 4, &self.sequence.to_le_bytes());
        put(bytes, 8, &self.uuid);
        let crc = crc32fast::hash(&bytes[..24]);
        put(bytes, 24, &crc.to_le_bytes());
    }

    /// The header of a segment, if it is sound.
    pub fn read(bytes: &[u8]) -> Option<SegmentHeader> {
        let sound = bytes.len() >= 64
            && bytes[..4] == SEGMENT_MAGIC
            && u32_at(bytes, 24) == crc32fast::hash(&bytes[..24]);
        let mut uuid = [0; 16];
        sound.then(|| {
            uuid.copy_from_slice(&bytes[8..24]);
            SegmentHeader { sequence: u32_at(bytes, 4), uuid }
        })
    }
}

/// Where the parts of a region lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Where the region begins on the device.
    pub start: u64,
    /// Bytes of one of the journal's halves.
    pub journal_bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// Segments, those of all growths among them.
    pub segments: u32,
    /// The first segment of each growth, and where that lies.
    grown: Vec<(u32, u64)>,
}

impl Layout {
    /// Divides a region. `None` where fewer than eight segments would fit.
    pub fn divide(start: u64, region_bytes: u64, segment_bytes: u32) -> Option<Layout> {
        let Region { journal_bytes, segments } = Region::divide(region_bytes, segment_bytes)?;
        Some(Layout { start, journal_bytes, segment_bytes, segments, grown: Vec::new() })
    }

    /// The same with what growths have given to region `region`, whatever it had of them.
    pub fn with_growths(&self, growths: &Growths, region: u32) -> Layout {
        let mut layout = Layout { grown: Vec::new(), ..self.clone() };
        layout.segments = self.grown.first().map_or(self.segments, |&(first, _)| first);
        for (start, segments) in growths.of_region(region) {
            layout.grown.push((layout.segments, start));
            layout.segments += segments;
        }
        layout
    }

    /// Where superblock `which` (0 or 1) lies.
    pub fn superblock(&self, which: usize) -> u64 {
        self.start + (which * BLOCK_BYTES) as u64
    }

    /// Where half `which` of the journal lies.
    pub fn journal(&self, which: u32) -> u64 {
        self.superblock(2) + u64::from(which) * self.journal_bytes
    }

    /// Where a segment lies.
    pub fn segment(&self, segment: u32) -> u64 {
        let grown = &self.grown[..self.grown.partition_point(|&(first, _)| first <= segment)];
        let (first, start) = grown.last().map_or_else(|| (0, self.journal(2)), |&growth| growth);
        start + u64::from(segment - first) * u64::from(self.segment_bytes)
    }

    /// Where a page of the log lies.
    pub fn page(&self, page: u32) -> u64 {
        let pages = self.segment_bytes / BLOCK_BYTES as u32;
        self.segment(page / pages) + u64::from(page % pages) * BLOCK_BYTES as u64
    }
}

/// The state from which a restart begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Grows with each writing; of the two blocks the higher counts.
    pub epoch: u64,
    /// Made when the region was formatted.
    pub uuid: [u8; 16],
    /// The boot of the machine in which it was written.
    pub boot_id: [u8; 16],
    /// Seeds the hash of keys.
    pub hash_seed: u64,
    /// The hash of a fixed word with that seed: another one means another hash function.
    pub hash_probe: u64,
    /// The region's number among the shards.
    pub shard: u32,
    /// Number of shards.
    pub shards: u32,
    /// Bytes of the region.
    pub region_bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// Whether the store was stopped in order.
    pub clean: bool,
    /// Whether the run that wrote it keeps what it promises over power loss too.
    pub durable: bool,
    /// The first segment of the last checkpoint, or [`NO_SEGMENT`].
    pub checkpoint: u32,
    /// The half of the journal where replay begins.
    pub journal_half: u32,
    /// Number of the first record to replay.
    pub journal_sequence: u32,
    /// Number of records before it in that half.
    pub journal_skipped: u32,
    /// The number of the next filling, when the checkpoint began.
    pub next_sequence: u32,
    /// Per database: items of an earlier filling were flushed.
    pub flushed: [u32; 16],
    /// Per database: items announced when the checkpoint began.
    pub items: [u64; 16],
    /// The run that wrote it.
    pub session: [u8; 16],
    /// The segments that each growth of the device gave to each region.
    pub growths: Vec<u32>,
}

impl Superblock {
    /// The block.
    pub fn write(&self) -> [u8; BLOCK_BYTES] {
        let mut bytes = [0; BLOCK_BYTES];
        put(&mut bytes, 0, &SUPERBLOCK_MAGIC);
        let version = if self.growths.is_empty() { VERSION_UNGROWN } else { VERSION };
        put(&mut bytes, 8, &version.to_le_bytes());
        put(&mut bytes, 16, &self.epoch.to_le_bytes());
        put(&mut bytes, 24, &self.uuid);
        put(&mut bytes, 40, &self.boot_id);
        put(&mut bytes, 56, &self.hash_seed.to_le_bytes());
        put(&mut bytes, 64, &self.hash_probe.to_le_bytes());
        put(&mut bytes, 72, &self.shard.to_le_bytes());
        put(&mut bytes, 76, &self.shards.to_le_bytes());
        put(&mut bytes, 80, &self.region_bytes.to_le_bytes());
        put(&mut bytes, 88, &self.segment_bytes.to_le_bytes());
        put(&mut bytes, 92, &(u32::from(self.clean) | u32::from(self.durable) << 1).to_le_bytes());
        put(&mut bytes, 96, &self.checkpoint.to_le_bytes());
        put(&mut bytes, 100, &self.journal_half.to_le_bytes());
        put(&mut bytes, 104, &self.journal_sequence.to_le_bytes());
        put(&mut bytes, 108, &self.next_sequence.to_le_bytes());
        for (at, flushed) in self.flushed.iter().enumerate() {
            put(&mut bytes, 112 + 4 * at, &flushed.to_le_bytes());
        }
        for (at, items) in self.items.iter().enumerate() {
            put(&mut bytes, 176 + 8 * at, &items.to_le_bytes());
        }
        put(&mut bytes, 304, &self.journal_skipped.to_le_bytes());
        put(&mut bytes, 308, &self.session);
        put(&mut bytes, 324, &(self.growths.len() as u32).to_le_bytes());
        for (at, segments) in self.growths.iter().enumerate() {
            put(&mut bytes, 328 + 4 * at, &segments.to_le_bytes());
        }
        let crc = crc32fast::hash(&bytes[16..]);
        put(&mut bytes, 12, &crc.to_le_bytes());
        bytes
    }

    /// Reads a block. `Ok(None)`: there is none, or one that was torn. An error: it is of another version.
    pub fn read(bytes: &[u8; BLOCK_BYTES]) -> Result<Option<Superblock>, FlashError> {
        if bytes[..8] != SUPERBLOCK_MAGIC {
            return Ok(None);
        }
        let version = u32_at(bytes, 8);
        if !(VERSION_UNGROWN..=VERSION).contains(&version) {
            return Err(FlashError::Version { found: version });
        }
        if crc32fast::hash(&bytes[16..]) != u32_at(bytes, 12) {
            return Ok(None);
        }
        let id = |at: usize| {
            let mut id = [0; 16];
            id.copy_from_slice(&bytes[at..at + 16]);
            id
        };
        let flushed = core::array::from_fn(|db| u32_at(bytes, 112 + 4 * db));
        let items = core::array::from_fn(|db| u64_at(bytes, 176 + 8 * db));
        let growths =
            (0..(u32_at(bytes, 324) as usize).min(GROWTHS_MAX)).map(|at| u32_at(bytes, 328 + 4 * at));
        Ok(Some(Superblock {
            epoch: u64_at(bytes, 16),
            uuid: id(24),
            boot_id: id(40),
            hash_seed: u64_at(bytes, 56),
            hash_probe: u64_at(bytes, 64),
            shard: u32_at(bytes, 72),
            shards: u32_at(bytes, 76),
            region_bytes: u64_at(bytes, 80),
            segment_bytes: u32_at(bytes, 88),
            clean: u32_at(bytes, 92) & 1 == 1,
            durable: u32_at(bytes, 92) & 2 == 2,
            checkpoint: u32_at(bytes, 96),
            journal_half: u32_at(bytes, 100),
            journal_sequence: u32_at(bytes, 104),
            journal_skipped: u32_at(bytes, 304),
            next_sequence: u32_at(bytes, 108),
            flushed,
            items,
            session: id(308),
            growths: growths.collect(),
        }))
    }
}

/// Bytes of a checkpoint segment before its records.
pub const CHECKPOINT_HEADER_BYTES: usize = PART_HEADER_BYTES as usize;
/// Bytes of a segment's record in a checkpoint.
pub const CHECKPOINT_SEGMENT_BYTES: usize = SEGMENT_ROW_BYTES as usize;
/// Bytes of an entry's record in a checkpoint.
pub const CHECKPOINT_ENTRY_BYTES: usize = ITEM_ROW_BYTES as usize;

/// The header of a segment that holds a part of a checkpoint. Behind it stand the records of segments, then those of
/// entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointHeader {
    /// The device it belongs to.
    pub uuid: [u8; 16],
    /// The epoch of the superblock that will name it.
    pub epoch: u64,
    /// The segment with the next part, or [`NO_SEGMENT`].
    pub next: u32,
    /// Records of segments here.
    pub segments: u32,
    /// Records of entries here.
    pub entries: u32,
}

impl CheckpointHeader {
    fn body_len(&self) -> usize {
        self.segments as usize * CHECKPOINT_SEGMENT_BYTES + self.entries as usize * CHECKPOINT_ENTRY_BYTES
    }

    /// Writes the header before the records, which are in `bytes` already, and the checksum over all.
    pub fn seal(&self, bytes: &mut [u8]) {
        bytes[..CHECKPOINT_HEADER_BYTES].fill(0);
        put(bytes, 0, &CHECKPOINT_MAGIC);
        put(bytes, 8, &self.uuid);
        put(bytes, 24, &self.epoch.to_le_bytes());
        put(bytes, 32, &self.next.to_le_bytes());
        put(bytes, 36, &self.segments.to_le_bytes());
        put(bytes, 40, &self.entries.to_le_bytes());
        let crc = crc32fast::hash(&bytes[8..CHECKPOINT_HEADER_BYTES + self.body_len()]);
        put(bytes, 4, &crc.to_le_bytes());
    }

    /// The header, if it and its records are sound.
    pub fn read(bytes: &[u8]) -> Option<CheckpointHeader> {
        if bytes.len() < CHECKPOINT_HEADER_BYTES || bytes[..4] != CHECKPOINT_MAGIC {
            return None;
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&bytes[8..24]);
        let header = CheckpointHeader {
            uuid,
            epoch: u64_at(bytes, 24),
            next: u32_at(bytes, 32),
            segments: u32_at(bytes, 36),
            entries: u32_at(bytes, 40),
        };
        let end = CHECKPOINT_HEADER_BYTES.checked_add(
            (u64::from(header.segments) * CHECKPOINT_SEGMENT_BYTES as u64
                + u64::from(header.entries) * CHECKPOINT_ENTRY_BYTES as u64) as usize,
        )?;
        (crc32fast::hash(bytes.get(8..end)?) == u32_at(bytes, 4)).then_some(header)
    }
}

/// A segment in a checkpoint: number, sequence, items appended, bytes used.
pub fn segment_record(filled: Filled) -> [u8; CHECKPOINT_SEGMENT_BYTES] {
    let Filled { segment, sequence, items, used_bytes } = filled;
    let mut bytes = [0; CHECKPOINT_SEGMENT_BYTES];
    for (at, value) in [segment, sequence, items, used_bytes].into_iter().enumerate() {
        put(&mut bytes, 4 * at, &value.to_le_bytes());
    }
    bytes
}

/// Reads a record of [`segment_record`].
pub fn read_segment_record(bytes: &[u8]) -> Filled {
    let [segment, sequence, items, used_bytes] = [0, 4, 8, 12].map(|at| u32_at(bytes, at));
    Filled { segment, sequence, items, used_bytes }
}

/// An entry in a checkpoint: the hash's first 40 bits (in the upper bits), and the place.
pub fn entry_record(hash: u64, place: u32) -> [u8; CHECKPOINT_ENTRY_BYTES] {
    let mut bytes = [0; CHECKPOINT_ENTRY_BYTES];
    put(&mut bytes, 0, &hash.to_le_bytes());
    put(&mut bytes, 8, &place.to_le_bytes());
    bytes
}

/// Reads a record of [`entry_record`].
pub fn read_entry_record(bytes: &[u8]) -> (u64, u32) {
    (u64_at(bytes, 0), u32_at(bytes, 8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn item(header: ItemHeader, fill: u8) -> Vec<u8> {
        let mut bytes = vec![fill; header.item_len()];
        header.seal(&mut bytes);
        bytes
    }

    fn header(hash: u64, sequence: u32, value_len: u32) -> ItemHeader {
        ItemHeader { sequence, hash, value_len, key_len: 3, db: 2, kind: 1, expires_at_ms: 77 }
    }

    proptest! {
        #[test]
        fn an_item_survives_and_any_flipped_bit_is_seen(len in 0u32..300, at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let written = header(9, 4, len);
            let mut bytes = item(written, 5);
            prop_assert_eq!(ItemHeader::read(&bytes, 4), Some(written));
            let end = bytes.len() - 1;
            prop_assert_eq!(ItemHeader::read(&bytes[..end], 4), None);
            bytes[at.index(end + 1)] ^= 1 << bit;
            prop_assert_eq!(ItemHeader::read(&bytes, 4), None);
        }

        #[test]
        fn no_bytes_are_read_as_more_than_they_are(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if bytes.len() >= 8
                && let Some(header) = ItemHeader::read(&bytes, u32_at(&bytes, 4))
            {
                prop_assert!(header.item_len() <= bytes.len());
            }
            if let Some(header) = CheckpointHeader::read(&bytes) {
                prop_assert!(CHECKPOINT_HEADER_BYTES + header.body_len() <= bytes.len());
            }
            SegmentHeader::read(&bytes);
        }
    }

    #[test]
    fn the_later_of_two_versions_is_found() {
        let mut block = vec![0; 2 * BLOCK_BYTES];
        let (old, new) = (item(header(7 << 24, 1, 50), 1), item(header(7 << 24, 1, 60), 2));
        block[64..64 + old.len()].copy_from_slice(&old);
        block[256..256 + new.len()].copy_from_slice(&new);
        assert_eq!(find_item(&block, 64, 7 << 24, 1), Some((256, header(7 << 24, 1, 60))));
        assert_eq!(find_item(&block, 64, 7 << 24, 2), None, "another filling");
        assert_eq!(find_item(&block, 64, 8 << 24, 1), None, "another key");
    }

    #[test]
    fn a_superblock_survives_and_strangers_are_told_apart() {
        let written = Superblock {
            epoch: 5,
            uuid: [1; 16],
            boot_id: [2; 16],
            hash_seed: 3,
            hash_probe: 4,
            shard: 1,
            shards: 2,
            region_bytes: 1 << 30,
            segment_bytes: 1 << 20,
            clean: true,
            durable: true,
            checkpoint: 9,
            journal_half: 1,
            journal_sequence: 1000,
            journal_skipped: 11,
            next_sequence: 12,
            flushed: core::array::from_fn(|db| db as u32),
            items: core::array::from_fn(|db| 7 << db),
            session: [5; 16],
            growths: vec![7, 1 << 20, 9],
        };
        let mut bytes = written.write();
        assert_eq!(Superblock::read(&bytes).unwrap(), Some(written));
        bytes[100] ^= 1;
        assert_eq!(Superblock::read(&bytes).unwrap(), None, "torn");
        bytes[8] = 9;
        assert!(Superblock::read(&bytes).is_err(), "another version");
        assert_eq!(Superblock::read(&[0; BLOCK_BYTES]).unwrap(), None);
    }

    #[test]
    fn the_parts_of_a_region_do_not_overlap() {
        let layout = Layout::divide(1 << 20, 1 << 30, 2 << 20).unwrap();
        assert_eq!(layout.journal(0), (1 << 20) + 8192);
        assert_eq!(layout.segment(0), layout.journal(0) + 2 * layout.journal_bytes);
        assert!(layout.segment(layout.segments) <= (1 << 20) + (1 << 30));
        assert_eq!(layout.page(512), layout.segment(1));
        assert_eq!(Layout::divide(0, 16 << 20, 2 << 20), None);
    }
}
