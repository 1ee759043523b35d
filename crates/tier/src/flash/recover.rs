//! A warm restart: the index as the last checkpoint and the journal behind it say.

use std::collections::BTreeMap;

use tiermem_policy::index::{Found, Index};
use tiermem_policy::log::Log;

use super::format::{
    BLOCK_BYTES, CHECKPOINT_ENTRY_BYTES, CHECKPOINT_HEADER_BYTES, CHECKPOINT_SEGMENT_BYTES, CheckpointHeader,
    Layout, NO_SEGMENT, Superblock, read_entry_record, read_segment_record,
};
use super::journal::{Journal, Record, replay};
use super::{DATABASES, FlashConfig, FlashError, HASH_PROBE};
use crate::block::BlockIo;
use tiermem_policy::log::LogPlace;

/// What a restart begins with.
pub struct Recovered {
    pub superblock: Superblock,
    pub journal: Journal,
    pub checkpoint_segments: Vec<u32>,
    pub items: [u64; DATABASES],
}

impl Recovered {
    /// An empty region.
    pub fn empty(superblock: Superblock, layout: &Layout) -> Self {
        let journal = Journal::new(layout, superblock.journal_half, 0, superblock.journal_sequence);
        Recovered { superblock, journal, checkpoint_segments: Vec::new(), items: [0; DATABASES] }
    }
}

/// The superblock from which to recover; `None`: begin empty.
pub fn superblock(
    io: &mut dyn BlockIo,
    layout: &Layout,
    config: &FlashConfig,
    hash: &impl Fn(u64, &[u8]) -> u64,
) -> Result<Option<Superblock>, FlashError> {
    if config.reset {
        blank_both(io, layout)?;
        return Ok(None);
    }
    let mut newest: Option<Superblock> = None;
    let mut blank = true;
    for which in 0..2 {
        let mut block = [0; BLOCK_BYTES];
        io.read_at(layout.superblock(which), &mut block)?;
        blank &= block.iter().all(|&byte| byte == 0);
        if let Some(found) = Superblock::read(&block)?
            && newest.as_ref().is_none_or(|newest| newest.epoch < found.epoch)
        {
            newest = Some(found);
        }
    }
    let Some(found) = newest else {
        // Two torn blocks of our own cannot be told from a stranger's: nobody's data are overwritten unasked.
        return if blank { Ok(None) } else { Err(FlashError::Foreign) };
    };
    let division = |it: &Superblock| (it.shard, it.shards, it.region_bytes, it.segment_bytes);
    let wanted = (config.shard, config.shards, config.region_bytes, config.segment_bytes);
    if division(&found) != wanted {
        let words = |(shard, shards, region, segment): (u32, u32, u64, u32)| {
            format!("shard {shard} of {shards}, {region} bytes in segments of {segment}")
        };
        return Err(FlashError::Mismatch { found: words(division(&found)), wanted: words(wanted) });
    }
    let same_boot = found.boot_id == config.boot_id;
    let same_hash = found.hash_probe == hash(found.hash_seed, HASH_PROBE);
    if same_hash && (found.clean || same_boot) {
        return Ok(Some(found));
    }
    blank_both(io, layout)?;
    Ok(None)
}

fn blank_both(io: &mut dyn BlockIo, layout: &Layout) -> Result<(), FlashError> {
    let blank = [0; BLOCK_BYTES];
    io.write_at(layout.superblock(0), &blank)?;
    Ok(io.write_at(layout.superblock(1), &blank)?)
}

/// What is known of a segment's filling.
#[derive(Clone, Copy, Default)]
struct Filled {
    sequence: u32,
    items: u32,
    used: u32,
}

/// Reads checkpoint and journal into `index` and `log`.
pub fn recover(
    io: &mut dyn BlockIo,
    layout: &Layout,
    mut superblock: Superblock,
    log: &mut Log,
    index: &mut Index,
) -> Result<Recovered, FlashError> {
    let mut segments = BTreeMap::new();
    let Some(checkpoint_segments) = read_checkpoint(io, layout, &superblock, index, &mut segments)? else {
        // Damaged: what it said is not known, so nothing is.
        *index = Index::default();
        let sequence = superblock.journal_sequence;
        superblock = Superblock {
            checkpoint: NO_SEGMENT,
            items: [0; DATABASES],
            // Leftovers of the journal must not look like its continuation.
            journal_sequence: sequence.wrapping_add(1 << 30),
            ..superblock
        };
        return Ok(Recovered::empty(superblock, layout));
    };
    let mut items = superblock.items;
    let mut flushed = superblock.flushed;
    let pages = layout.segment_bytes / BLOCK_BYTES as u32;
    let end = replay(
        layout,
        superblock.journal_half,
        superblock.journal_sequence,
        |at, bytes| Ok(io.read_at(at, bytes)?),
        |record| match record {
            Record::Add { hash, place, db } => {
                if index.put_log(hash, place).is_none() {
                    items[usize::from(db)] += 1;
                }
                let filled: &mut Filled = segments.entry(place.page() / pages).or_default();
                filled.items += 1;
                let last = place.page() % pages + place.pages().min(pages - place.page() % pages);
                filled.used = filled.used.max(last * BLOCK_BYTES as u32);
            }
            Record::Remove { hash, db } => {
                if index.remove_log(hash).is_some() {
                    let items = &mut items[usize::from(db)];
                    *items = items.saturating_sub(1);
                }
            }
            Record::Open { segment, sequence } => {
                segments.insert(segment, Filled { sequence, items: 0, used: 0 });
            }
            Record::Flush { db, sequence } => match db {
                Some(db) => {
                    flushed[usize::from(db) % DATABASES] = sequence;
                    items[usize::from(db) % DATABASES] = 0;
                }
                None => {
                    (flushed, items) = ([sequence; DATABASES], [0; DATABASES]);
                    *index = Index::default();
                }
            },
        },
    )?;
    checkpoint_segments.iter().for_each(|&segment| {
        log.restore_taken(segment);
    });
    restore(log, index, segments);
    superblock.flushed = flushed;
    let journal = Journal::new(layout, end.0, end.1, end.2);
    Ok(Recovered { superblock, journal, checkpoint_segments, items })
}

/// Rebuilds the log's accounts from the index.
fn restore(log: &mut Log, index: &mut Index, segments: BTreeMap<u32, Filled>) {
    let mut segments: Vec<_> = segments.into_iter().collect();
    segments.sort_by_key(|(_, filled)| filled.sequence);
    for (segment, filled) in segments {
        log.restore_segment(segment, filled.sequence, filled.items, filled.used);
    }
    let mut astray = Vec::new();
    index.scan(0, usize::MAX, |hash, found| {
        if let Found::Log(place) = found
            && !log.restore_item(place)
        {
            astray.push(hash);
        }
    });
    for hash in astray {
        index.remove_log(hash);
    }
}

/// Reads the checkpoint that the superblock names. `None`: a part is damaged.
fn read_checkpoint(
    io: &mut dyn BlockIo,
    layout: &Layout,
    superblock: &Superblock,
    index: &mut Index,
    segments: &mut BTreeMap<u32, Filled>,
) -> Result<Option<Vec<u32>>, FlashError> {
    let mut taken = Vec::new();
    let mut next = superblock.checkpoint;
    let mut bytes = vec![0; layout.segment_bytes as usize];
    while next != NO_SEGMENT {
        // A chain that leads back to itself or outside is damaged.
        if next >= layout.segments || taken.contains(&next) {
            return Ok(None);
        }
        io.read_at(layout.segment(next), &mut bytes)?;
        let Some(header) = CheckpointHeader::read(&bytes).filter(|it| it.uuid == superblock.uuid) else {
            return Ok(None);
        };
        taken.push(next);
        let records = &bytes[CHECKPOINT_HEADER_BYTES..];
        let (of_segments, of_entries) = records.split_at(header.segments as usize * CHECKPOINT_SEGMENT_BYTES);
        for record in of_segments.chunks_exact(CHECKPOINT_SEGMENT_BYTES) {
            let (segment, sequence, items, used) = read_segment_record(record);
            segments.insert(segment, Filled { sequence, items, used });
        }
        let of_entries = &of_entries[..header.entries as usize * CHECKPOINT_ENTRY_BYTES];
        for record in of_entries.chunks_exact(CHECKPOINT_ENTRY_BYTES) {
            let (hash, place) = read_entry_record(record);
            index.put_log(hash, LogPlace(place & (u32::MAX >> 1)));
        }
        next = header.next;
    }
    Ok(Some(taken))
}
