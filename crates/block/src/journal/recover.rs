//! Recovery of a cache: superblock, table, log, and a check of the data that power loss may have damaged.

use std::ops::Range;

use tiermem_tier::block::BlockIo;

use super::fetch::{Images, fetch_for};
use super::finish_recovery;
use super::io::DeviceReader;
use super::overlap_check::Placement;
use super::page::{self, PAGE_BYTES};
use super::record::Record;
use super::ring::Ring;
use super::scan::Scan;
use super::superblock::Superblock;
use super::table::Table;
use super::torn_units::{Suspects, Verdicts};
use super::volumes::Volumes;
use super::{Journal, JournalError, Layout, LayoutConfig, Lsn, VolumeInfo};

/// Pages in memory at least: while one waits for its image to be written another can be looked at.
const PAGES_MIN: usize = 2;

/// Result of recovery. The blocks are in the journal: [`Journal::each_block`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The volumes, by number.
    pub volumes: Vec<VolumeInfo>,
    /// Blocks.
    pub blocks: u64,
    /// Records read from the log.
    pub records: u64,
    /// Units with data that were checked and fit.
    pub kept_units: u64,
    /// Units that were dropped: the backing store has them, or they were never acknowledged as durable.
    pub dropped_units: u64,
    /// Dirty units that were being overwritten, and are taken as they are: old, new, or a mix of sectors.
    pub taken_units: u64,
    /// Their bytes, by the number of the volume: damage to them could not be told from a write that was cut off.
    pub unchecked: Vec<(u16, Range<u64>)>,
    /// Units that are lost: they could not be read, or were lost before and what was written over them was cut off.
    pub poisoned_units: u64,
    /// One of the two superblocks was torn or damaged; the other one counts, and both are written anew in time.
    pub superblock_repaired: bool,
}

/// Opens the cache on a device and recovers it; all of it is durable when this returns. Nothing may be in flight. At
/// most `table_bytes` of the table are kept in memory, or all of it. In addition the state of each unit is always in
/// memory (288 bytes for a page of the usual shape), and until this returns also everything that the log has changed.
///
/// # Errors
/// No cache, another one than asked for, damage, a device that fails. Each says what can be done; nothing
/// was written to the device unless it failed in the middle of recovery, which can be tried again.
pub fn open(
    device: &mut dyn BlockIo,
    config: &LayoutConfig,
    table_bytes: Option<u64>,
) -> Result<(Journal, Recovered), JournalError> {
    let device_bytes = device.capacity_bytes();
    let mut front = [0; 2 * PAGE_BYTES];
    if device_bytes < front.len() as u64 {
        return Err(JournalError::TooSmall { device_bytes, wanted_bytes: front.len() as u64 });
    }
    device.read_at(0, &mut front).map_err(JournalError::device("read"))?;
    let (superblock, is_alone) = Superblock::choose(&front[..PAGE_BYTES], &front[PAGE_BYTES..])?;
    let layout = superblock.layout(device_bytes, config)?;
    let mut scan = Scan::new(device, &layout, &superblock)?;
    let pages_max = table_bytes.map_or(usize::MAX, |bytes| (bytes / PAGE_BYTES as u64) as usize);
    let mut table = Table::new(&layout, pages_max.max(PAGES_MIN));
    load_pages(device, &mut table, &layout, &superblock, &scan)?;

    let mut volumes = Volumes::default();
    let mut suspects = Suspects::new(&layout, &table, scan.sealed);
    let mut records = 0;
    for live in scan.batches.clone() {
        scan.records(device, live, |device, lsn, record| {
            suspects.note(&table, lsn, record);
            fetch_for(device, &mut table, &superblock.uuid, lsn, record)?;
            table.apply(lsn, record, false).map_err(|illegal| {
                JournalError::damaged(format!("record {} of the log cannot be: {}", lsn.0, illegal.0))
            })?;
            if let Record::Volume(volume) = record {
                volumes.apply(lsn, volume);
            }
            records += 1;
            Ok(())
        })?;
    }
    volumes.synced(Lsn(u64::MAX));

    let (mut blocks, mut placement) = (0, Placement::default());
    let mut images = Images::new(device, &layout, &superblock.uuid);
    let image = |page: u32, image: &mut [u8]| images.read(&table, page, image);
    table.each_block(image, |block, is_open| {
        placement.check(&layout, block).map_err(|illegal| JournalError::damaged(illegal.0))?;
        blocks += 1;
        suspects.meet(block, is_open);
        Ok(())
    })?;
    let verdicts = suspects.judge(device, &mut table, &superblock.uuid)?;
    let Verdicts { kept_units, ref dropped, ref taken, ref poisoned, .. } = verdicts;
    let recovered = Recovered {
        volumes: volumes.list().cloned().collect(),
        blocks,
        records,
        kept_units,
        dropped_units: dropped.iter().map(|run| run.end - run.start).sum(),
        taken_units: taken.len() as u64,
        unchecked: verdicts.unchecked.clone(),
        poisoned_units: poisoned.iter().map(|run| run.end - run.start).sum(),
        superblock_repaired: is_alone,
    };

    let (last, sealed, unfinished) = (scan.last_lsn(), scan.sealed, scan.mend);
    let batches = scan.batches;
    let sequence = batches.back().map_or(0, |live| live.header.sequence);
    let ring = Ring::new(&layout, batches);
    let mut journal = Journal::new(layout, (table, volumes), ring, superblock, (last, sealed, sequence));
    finish_recovery::mend(device, &mut journal, &verdicts, unfinished)?;
    finish_recovery::upgrade(device, &mut journal)?;
    Ok((journal, recovered))
}

/// Takes the newer image of each page, and makes sure that none is missing which was once there.
fn load_pages(
    device: &mut dyn BlockIo,
    table: &mut Table,
    layout: &Layout,
    superblock: &Superblock,
    scan: &Scan<'_>,
) -> Result<(), JournalError> {
    let mut window = DeviceReader::new(layout.table_at, layout.data_at);
    let last = scan.mend.unwrap_or(scan.sealed);
    for number in 0..layout.pages {
        let damaged = |what: &str| {
            let at = layout.page_at(number, 0);
            Err(JournalError::damaged(format!("page {number} of the table (byte {at} and on) {what}")))
        };
        let at = u64::from(number) * 2 * PAGE_BYTES as u64;
        let bytes = window.get(device, at, 2 * PAGE_BYTES);
        let bytes = bytes.map_err(JournalError::device("read the table of"))?;
        let (even, odd) = bytes.split_at(PAGE_BYTES);
        let sound = |image, place| page::is_sound(image, &superblock.uuid, number, place);
        let image = match (sound(even, 0), sound(odd, 1)) {
            (true, true) if page::version(even).abs_diff(page::version(odd)) != 1 => {
                return damaged("has two images that do not belong together");
            }
            (true, true) if page::version(even) > page::version(odd) => even,
            (true, true) => odd,
            (false, false) => return damaged("has no image that is as it was written"),
            (is_even, _) => {
                let image = if is_even { even } else { odd };
                // Only an image that was being written can be torn, and only
                // if the log still has all that the other lacks.
                let next = page::version(image) + 1;
                let announced = scan.announced.get(&number);
                let is_torn = announced
                    .is_some_and(|(version, since)| *version == next && *since >= scan.first_lsn().0);
                if !is_torn && scan.mend.is_none() {
                    return damaged("has lost an image that was durable");
                }
                image
            }
        };
        if page::lsn(image) > last.0 {
            return damaged("is ahead of the log");
        }
        table.load(number, image);
    }
    Ok(())
}
