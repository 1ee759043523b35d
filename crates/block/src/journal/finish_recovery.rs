//! Last step of recovery: its decisions are written down, all at once.
//!
//! Nothing may be sealed before every suspect unit is decided, and the verdicts may need more room than the log
//! has. So they go into the pages. A batch with [`Record::Mend`] announces that pages are about to be written;
//! then all pages that the log has changed are written over their older images and synced; then a batch is sealed
//! up to that record. After a crash in between, that record is the last one of the log; recovery then allows torn
//! pages and pages that are ahead, and repeats the rest. Open blocks stay open until records behind the seal
//! close them: a page that is written already must not make the units of its blocks in other pages look strict.

use tiermem_tier::block::{AlignedBuffer, BlockIo, Request};

use super::fetch::{fetch, fetch_for};
use super::io;
use super::page::PAGE_BYTES;
use super::record::Record;
use super::superblock::Superblock;
use super::torn_units::Verdicts;
use super::{FORMAT_VERSION, Journal, JournalError, Lsn};

/// Images in flight.
const WRITES: usize = 256;

/// Writes down the verdicts and begins the log anew. `unfinished` is the record of a recovery that got no further.
pub fn mend(
    device: &mut dyn BlockIo,
    journal: &mut Journal,
    verdicts: &Verdicts,
    unfinished: Option<Lsn>,
) -> Result<(), JournalError> {
    // What a process left behind that died may be in the device's cache only. What was judged must stay as it is.
    io::sync(device)?;
    let is_clean = verdicts.dropped.is_empty() && verdicts.taken.is_empty() && verdicts.poisoned.is_empty();
    if !is_clean || journal.table.dirty_pages() > 0 || unfinished.is_some() {
        let lsn = match unfinished.filter(|lsn| *lsn == journal.appended()) {
            Some(lsn) => lsn,
            None => announce(device, journal)?,
        };
        write_down(device, journal, verdicts, lsn)?;
        write_pages(device, journal, lsn)?;
    }
    for slot in &verdicts.open {
        journal.append(Record::Close { slot: *slot });
    }
    journal.want_sealed(journal.appended());
    journal.want_checkpoint();
    drive(device, journal, |journal| journal.sealed() == journal.appended() && journal.is_checkpointed())
}

fn announce(device: &mut dyn BlockIo, journal: &mut Journal) -> Result<Lsn, JournalError> {
    let lsn = journal.append(Record::Mend);
    let Some(request) = journal.build_for_recovery() else {
        let why = "its log is full; format it again, which loses data that was not written back".to_owned();
        return Err(JournalError::Log { why });
    };
    io::write(device, vec![request])?;
    io::sync(device)?;
    Ok(lsn)
}

fn write_down(
    device: &mut dyn BlockIo,
    journal: &mut Journal,
    verdicts: &Verdicts,
    lsn: Lsn,
) -> Result<(), JournalError> {
    let Journal { table, superblock, .. } = journal;
    let mut apply = |record: &Record<'_>| {
        fetch_for(device, table, &superblock.uuid, lsn, record)?;
        table.apply(lsn, record, true).map_err(|illegal| JournalError::damaged(illegal.0))
    };
    for run in &verdicts.dropped {
        apply(&Record::Drop(run.clone()))?;
    }
    for run in &verdicts.poisoned {
        apply(&Record::Poison(run.clone()))?;
    }
    for (unit, sum) in &verdicts.taken {
        apply(&Record::Units { first: *unit, dirty: true, sums: &[*sum] })?;
    }
    Ok(())
}

fn write_pages(device: &mut dyn BlockIo, journal: &mut Journal, lsn: Lsn) -> Result<(), JournalError> {
    let Journal { table, layout, superblock, checkpoint, .. } = journal;
    while table.dirty_pages() > 0 {
        let (mut requests, mut pages) = (Vec::new(), Vec::new());
        while requests.len() < WRITES
            && let Some(page) = table.next_dirty()
        {
            // What was dropped of it did not need its bytes.
            fetch(device, table, &superblock.uuid, page)?;
            table.take_dirty();
            let mut image = AlignedBuffer::zeroed(PAGE_BYTES);
            let version = table.capture(page, &superblock.uuid, lsn, &mut image);
            requests.push(Request::write(u64::from(page), layout.page_at(page, version), image));
            pages.push(page);
        }
        checkpoint.count_pages(requests.len() as u64);
        io::write(device, requests)?;
        pages.into_iter().for_each(|page| table.written(page));
        table.make_room();
    }
    io::sync(device)
}

/// Makes a cache of an earlier version one of the present version, before it gets records that the earlier one does not know. Whichever
/// superblock counts after a crash in between, nothing else has changed.
pub fn upgrade(device: &mut dyn BlockIo, journal: &mut Journal) -> Result<(), JournalError> {
    if journal.superblock.version == FORMAT_VERSION {
        return Ok(());
    }
    journal.superblock.version = FORMAT_VERSION;
    for _ in 0..2 {
        journal.superblock.epoch += 1;
        let mut block = AlignedBuffer::zeroed(PAGE_BYTES);
        journal.superblock.write(&mut block);
        io::write(device, vec![Request::write(0, Superblock::at(journal.superblock.epoch), block)])?;
        io::sync(device)?;
    }
    Ok(())
}

/// Has all that a closure waits for done, with nothing else in flight.
pub(super) fn drive(
    device: &mut dyn BlockIo,
    journal: &mut Journal,
    is_done: impl Fn(&Journal) -> bool,
) -> Result<(), JournalError> {
    loop {
        let mut requests = Vec::new();
        journal.poll(0, &mut requests);
        if let Some(why) = journal.failed() {
            return Err(JournalError::Log { why: why.to_owned() });
        }
        if is_done(journal) && requests.is_empty() {
            return Ok(());
        }
        if requests.is_empty() {
            return Err(JournalError::Log { why: "the log waits for nothing".to_owned() });
        }
        for done in io::all(device, requests) {
            journal.complete(done);
        }
    }
}
