//! Opening of a region: an empty one, or a warm restart with the
//! index from the last checkpoint and the journal behind it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::fetch::Fetches;
use super::format::{
    BLOCK_BYTES, CHECKPOINT_ENTRY_BYTES, CHECKPOINT_HEADER_BYTES, CHECKPOINT_SEGMENT_BYTES, CheckpointHeader,
    Layout, NO_SEGMENT, Superblock, read_entry_record, read_segment_record,
};
use super::gc_read_buffer::Emptying;
use super::journal::{End, Journal, Position, Record, erase, replay};
use super::recovery_writes::Restart;
use super::requests::Requests;
use super::syncs::Syncs;
use super::write_buffers::Segments;
use super::{DATABASES, Durability, Flash, FlashConfig, FlashError, FlashStats, HASH_PROBE};
use tiermem_policy::log::{Filled, Growths, LOG_PAGE_BYTES, LogConfig, LogPlace, PAGES_MAX};
use tiermem_policy::shard::LogState;
use tiermem_tier::block::BlockIo;

/// State found by a restart.
pub struct Recovered {
    pub superblock: Superblock,
    pub journal: Journal,
    pub items: [u64; DATABASES],
}

impl Recovered {
    /// An empty region.
    pub fn empty(superblock: Superblock, layout: &Layout) -> Self {
        let journal = Journal::new(layout, beginning(&superblock));
        Recovered { superblock, journal, items: [0; DATABASES] }
    }
}

impl Flash {
    /// Opens a region, or formats it where it is empty; what it holds is to be [attached](tiermem_policy::shard::Shard::attach_log).
    /// `hash` hashes a key with a seed.
    ///
    /// What was written by another boot of the machine and not closed in order is dropped, unless it was written to survive
    /// that: what is in the journal may not have reached the device.
    pub fn open(
        mut io: Box<dyn BlockIo>,
        config: &FlashConfig,
        hash: impl Fn(u64, &[u8]) -> u64,
    ) -> Result<(Flash, LogState), FlashError> {
        let too_small = || FlashError::TooSmall {
            region_bytes: config.region_bytes,
            segment_bytes: config.segment_bytes,
        };
        let ungrown =
            Layout::divide(config.start, config.region_bytes, config.segment_bytes).ok_or_else(too_small)?;
        let log = LogConfig::in_region(config.region_bytes, config.segment_bytes).ok_or_else(too_small)?;
        let (layout, growths) = grown(io.as_mut(), &ungrown, config)?;
        let (admission, reserve, segments) = (config.admission, config.reserve, layout.segments);
        let mut state = LogState::new(LogConfig { admission, reserve, segments, ..log });
        let fresh = Superblock {
            epoch: 0,
            uuid: config.uuid,
            boot_id: config.boot_id,
            hash_seed: config.hash_seed,
            hash_probe: hash(config.hash_seed, HASH_PROBE),
            shard: config.shard,
            shards: config.shards,
            region_bytes: config.region_bytes,
            segment_bytes: config.segment_bytes,
            clean: false,
            durable: false,
            checkpoint: NO_SEGMENT,
            journal_half: 0,
            // Anything but where a former life of the region began, so that its leftovers are not taken for ours.
            journal_sequence: (config.hash_seed >> 32) as u32 ^ config.hash_seed as u32,
            journal_skipped: 0,
            next_sequence: 1,
            flushed: [0; DATABASES],
            items: [0; DATABASES],
            session: config.session,
            growths: growths.given().to_vec(),
        };
        let found = superblock(io.as_mut(), &layout, config, &hash)?;
        let recovered = match found {
            Some(found) => recover(io.as_mut(), &layout, config, found, &mut state)?,
            None => None,
        };
        let found_session = recovered.as_ref().map(|found| found.superblock.session);
        let Recovered { superblock, journal, items } =
            recovered.unwrap_or_else(|| Recovered::empty(fresh, &layout));
        let needs_other_half = superblock.journal_half != journal.position().half;
        let (boot_id, session) = (config.boot_id, config.session);
        let superblock = Superblock { boot_id, session, clean: false, ..superblock };
        let syncs = Syncs::new(config.durability == Durability::Power);
        let mut requests = Requests::new(io, syncs);
        let segments = Segments::new(layout.segment_bytes, superblock.uuid);
        let mut restart = Restart::new(layout.clone(), superblock, journal, items);
        let records = restart.begin_run(&mut requests)?;
        state.set_journal(records, needs_other_half);
        let flash = Flash {
            layout,
            growths,
            shared_growths: config.growths.clone(),
            requests,
            segments,
            restart,
            emptying: Emptying::default(),
            fetches: Fetches::default(),
            items,
            now_ms: 0,
            stats: FlashStats { recovered_items: state.items(), ..FlashStats::default() },
            write_errors_in_row: 0,
            broken: false,
            found_session,
        };
        Ok((flash, state))
    }
}

/// Where replaying begins.
fn beginning(superblock: &Superblock) -> Position {
    let Superblock { journal_half: half, journal_skipped: skipped, journal_sequence: sequence, .. } =
        *superblock;
    Position { half: half & 1, skipped, sequence }
}

/// Bytes of each region of a file or device that has the first of `shards` such regions.
pub fn found_region_bytes(path: &Path, shards: u32, segment_bytes: u32) -> Option<u64> {
    let file = File::open(path).ok()?;
    let found = (0..2u64).filter_map(|which| {
        let mut block = [0; BLOCK_BYTES];
        file.read_exact_at(&mut block, which * BLOCK_BYTES as u64).ok()?;
        Superblock::read(&block).ok()?
    });
    let newest = found.max_by_key(|found| found.epoch)?;
    let is_ours = (newest.shard, newest.shards, newest.segment_bytes) == (0, shards, segment_bytes);
    is_ours.then_some(newest.region_bytes)
}

/// Which part of what device it is.
fn division(superblock: &Superblock) -> (u32, u32, u64, u32) {
    (superblock.shard, superblock.shards, superblock.region_bytes, superblock.segment_bytes)
}

fn wanted(config: &FlashConfig) -> (u32, u32, u64, u32) {
    (config.shard, config.shards, config.region_bytes, config.segment_bytes)
}

/// The layout with what its region was given later; also where its items count no more.
fn grown(
    io: &mut dyn BlockIo,
    layout: &Layout,
    config: &FlashConfig,
) -> Result<(Layout, Growths), FlashError> {
    let mut given = Vec::new();
    for which in (0..2).filter(|_| !config.reset) {
        let mut block = [0; BLOCK_BYTES];
        io.read_at(layout.superblock(which), &mut block)?;
        let found = Superblock::read(&block)?.filter(|it| division(it) == wanted(config));
        // Both are of the same growths, or the newer one has one more.
        given = found.map(|it| it.growths).filter(|it| it.len() > given.len()).unwrap_or(given);
    }
    let growths = Growths::new(config.region_bytes, config.segment_bytes, config.shards, given);
    let segments = growths.given().iter().try_fold(layout.segments, |sum, &more| sum.checked_add(more));
    let pages = segments.map(|it| u64::from(it) * u64::from(config.segment_bytes / LOG_PAGE_BYTES));
    if pages.is_none_or(|it| it > u64::from(PAGES_MAX)) {
        return Err(FlashError::Foreign);
    }
    if !growths.given().is_empty() {
        let region_bytes = growths.capacity_bytes();
        if let Some(found_bytes) = config.found_bytes.filter(|&it| it < region_bytes) {
            return Err(FlashError::Truncated { found_bytes, region_bytes });
        }
        // It may be opened with less than it has grown to.
        io.grow(region_bytes)?;
    }
    config.growths.note_found(growths.given());
    Ok((layout.with_growths(&growths, config.shard), growths))
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
    let mut epochs = [0; 2];
    for (which, epoch) in epochs.iter_mut().enumerate() {
        let mut block = [0; BLOCK_BYTES];
        io.read_at(layout.superblock(which), &mut block)?;
        blank &= block.iter().all(|&byte| byte == 0);
        if let Some(found) = Superblock::read(&block)? {
            *epoch = found.epoch;
            if newest.as_ref().is_none_or(|newest| newest.epoch < found.epoch) {
                newest = Some(found);
            }
        }
    }
    let Some(found) = newest else {
        // Two torn blocks of our own cannot be distinguished from foreign data, which are overwritten only on request.
        return if blank { Ok(None) } else { Err(FlashError::Foreign) };
    };
    if division(&found) != wanted(config) {
        let words = |(shard, shards, region, segment): (u32, u32, u64, u32)| {
            format!("shard {shard} of {shards}, {region} bytes in segments of {segment}")
        };
        return Err(FlashError::Mismatch { found: words(division(&found)), wanted: words(wanted(config)) });
    }
    let region_end = config.start + config.region_bytes;
    if let Some(found_bytes) = config.found_bytes.filter(|&it| it < region_end) {
        return Err(FlashError::Truncated { found_bytes, region_bytes: region_end });
    }
    let kept = found.clean || found.durable || found.boot_id == config.boot_id;
    let same_hash = found.hash_probe == hash(found.hash_seed, HASH_PROBE);
    // They are written in turn. Where one is missing it may be the newer, and what the other names is of another time.
    let whole = epochs[0].abs_diff(epochs[1]) == 1 && epochs.iter().all(|&epoch| epoch > 0);
    if whole && same_hash && kept {
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

/// Reads checkpoint and journal into `state`. `None`: either is damaged; then the region is blank, and what
/// was on it counts no more.
pub fn recover(
    io: &mut dyn BlockIo,
    layout: &Layout,
    config: &FlashConfig,
    mut superblock: Superblock,
    state: &mut LogState,
) -> Result<Option<Recovered>, FlashError> {
    let mut segments = BTreeMap::new();
    let Some(checkpoint_segments) = read_checkpoint(io, layout, &superblock, state, &mut segments)? else {
        // What it said is not known, so nothing is.
        state.clear();
        blank_both(io, layout)?;
        return Ok(None);
    };
    let mut items = superblock.items;
    let mut flushed = superblock.flushed;
    let pages = layout.segment_bytes / BLOCK_BYTES as u32;
    // Behind every filling that there ever was: its leftovers must not be taken for what is written now.
    let mut next_sequence = superblock.next_sequence;
    // Power was lost, and with it anything that was not promised.
    let torn = superblock.durable && !superblock.clean && superblock.boot_id != config.boot_id;
    let end = replay(
        layout,
        beginning(&superblock),
        torn,
        |at, bytes| Ok(io.read_at(at, bytes)?),
        |record| match record {
            Record::Add { hash, place, db, anew } => {
                state.put(hash, place);
                items[usize::from(db)] += u64::from(anew);
                let filled: &mut Filled = segments.entry(place.page() / pages).or_default();
                filled.segment = place.page() / pages;
                filled.items += 1;
                let last = place.page() % pages + place.pages().min(pages - place.page() % pages);
                filled.used_bytes = filled.used_bytes.max(last * BLOCK_BYTES as u32);
            }
            Record::Remove { hash, db, counted } => {
                state.remove(hash);
                let items = &mut items[usize::from(db)];
                *items = items.saturating_sub(u64::from(counted));
            }
            Record::Open { segment, sequence } => {
                segments.insert(segment, Filled { segment, sequence, items: 0, used_bytes: 0 });
                next_sequence = next_sequence.max(sequence.saturating_add(1));
            }
            Record::Flush { db, sequence } => {
                next_sequence = next_sequence.max(sequence);
                match db {
                    Some(db) => {
                        flushed[usize::from(db) % DATABASES] = sequence;
                        items[usize::from(db) % DATABASES] = 0;
                    }
                    None => {
                        (flushed, items) = ([sequence; DATABASES], [0; DATABASES]);
                        state.clear();
                    }
                }
            }
            Record::Durable { .. } => {}
        },
    )?;
    let Some(End { at: end, stray }) = end else {
        state.clear();
        blank_both(io, layout)?;
        return Ok(None);
    };
    if let Some(stray) = stray {
        erase(layout, end, stray, |at, bytes| Ok(io.write_at(at, bytes)?))?;
        io.sync()?;
    }
    if torn {
        // At most this number of fillings were begun, and their numbers lost, since the last sync.
        next_sequence = next_sequence.saturating_add(layout.segments);
    }
    state.settle(segments.into_values().collect(), &checkpoint_segments, next_sequence);
    superblock.flushed = flushed;
    let journal = Journal::new(layout, end);
    Ok(Some(Recovered { superblock, journal, items }))
}

/// Reads the checkpoint that the superblock names. `None`: a part is damaged.
fn read_checkpoint(
    io: &mut dyn BlockIo,
    layout: &Layout,
    superblock: &Superblock,
    state: &mut LogState,
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
            let filled = read_segment_record(record);
            segments.insert(filled.segment, filled);
        }
        let of_entries = &of_entries[..header.entries as usize * CHECKPOINT_ENTRY_BYTES];
        for record in of_entries.chunks_exact(CHECKPOINT_ENTRY_BYTES) {
            let (hash, place) = read_entry_record(record);
            state.put(hash, LogPlace(place & (u32::MAX >> 1)));
        }
        next = header.next;
    }
    Ok(Some(taken))
}
