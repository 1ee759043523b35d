//! Journal at work: a record changes table and volumes and is appended to the log; requests that are due are submitted.

use std::ops::Range;

use tiermem_tier::block::{BlockIo, Completion, Op, Request};

use super::checkpoint::Checkpoint;
use super::fetch::Images;
use super::log_writer::LogWriter;
use super::page_reads::PageReads;
use super::record::{Record, SUMS_MAX, VolumeInfo};
use super::ring::Ring;
use super::superblock::Superblock;
use super::table::{BlockState, Table, UnitState};
use super::unsealed::Unsealed;
use super::volumes::Volumes;
use super::{JournalError, LOG_TOKEN, Layout, Lsn, SYNC_TOKEN, Stats, TOKEN_BIT};

/// The metadata of a cache device. See the [module](super).
#[derive(Debug)]
pub struct Journal {
    pub(super) layout: Layout,
    pub(super) table: Table,
    pub(super) volumes: Volumes,
    pub(super) superblock: Superblock,
    pub(super) checkpoint: Checkpoint,
    log: LogWriter,
    unsealed: Unsealed,
    reads: PageReads,
    /// What was promised to be durable.
    promised: Lsn,
    failed: Option<String>,
}

impl Journal {
    /// With all of `appended` written and durable, and `sealed` the last durable seal.
    pub(super) fn new(
        layout: Layout,
        (table, volumes): (Table, Volumes),
        ring: Ring,
        superblock: Superblock,
        (appended, sealed, sequence): (Lsn, Lsn, u64),
    ) -> Self {
        let log = LogWriter::new(&layout, superblock.uuid, ring, (appended, sealed, sequence));
        Journal {
            layout,
            table,
            volumes,
            superblock,
            checkpoint: Checkpoint::default(),
            log,
            unsealed: Unsealed::default(),
            reads: PageReads::default(),
            promised: Lsn(0),
            failed: None,
        }
    }

    /// Identity of the cache.
    pub fn cache(&self) -> u128 {
        u128::from_le_bytes(self.superblock.uuid)
    }

    /// Layout of the device.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Applies a record to the table, and adds it to the batch in the making; its LSN. Units behind `u32::MAX` of a range are not
    /// thought of: a range lies within a block.
    ///
    /// A record that cannot be (of another geometry, or a volume that [does not fit](Self::fits)) makes the journal fail.
    pub fn append(&mut self, record: Record<'_>) -> Lsn {
        match record {
            Record::Units { mut first, dirty, sums } => {
                for sums in sums.chunks(SUMS_MAX) {
                    let end = first.saturating_add(sums.len() as u64);
                    if dirty && end <= self.layout.units() {
                        let lsn = Lsn(self.log.appended().0 + 1);
                        self.unsealed.add_dirty(&self.table, first..end, lsn);
                    }
                    self.append_one(&Record::Units { first, dirty, sums });
                    first = end;
                }
            }
            Record::Volume(volume) if !self.fits(volume) => {
                self.fail(format!("the volume {} does not fit into the log", volume.number));
            }
            record => self.append_one(&record),
        }
        self.log.appended()
    }

    fn append_one(&mut self, record: &Record<'_>) {
        if self.failed.is_some() {
            return;
        }
        let lsn = Lsn(self.log.appended().0 + 1);
        if let Err(illegal) = self.table.apply(lsn, record, false) {
            self.fail(format!("a record cannot be: {}", illegal.0));
            return;
        }
        if let Record::Volume(volume) = record {
            self.volumes.apply(lsn, volume);
        }
        self.log.append(record);
        debug_assert_eq!(self.log.appended(), lsn, "the log has what the table was told");
    }

    /// Whether the log can keep what is said of a volume: its texts are short enough, and all volumes take no more than 1/16 of it.
    pub fn fits(&self, volume: &VolumeInfo) -> bool {
        volume.fits() && self.volumes.record_bytes(Some(volume)) <= self.layout.log_bytes / 16
    }

    /// The last record.
    pub fn appended(&self) -> Lsn {
        self.log.appended()
    }

    /// All records up to this one survive the death of the process.
    pub fn written(&self) -> Lsn {
        self.log.written()
    }

    /// All records up to this one survive power loss.
    pub fn synced(&self) -> Lsn {
        self.log.synced()
    }

    /// All records up to this one are strict after power loss: their data are durable, and the log says so durably.
    pub fn sealed(&self) -> Lsn {
        self.log.sealed()
    }

    /// Asks for everything up to a record to be written soon.
    pub fn want_written(&mut self, lsn: Lsn) {
        self.log.want_written(lsn);
    }

    /// Asks for everything up to a record to be written and synced soon.
    pub fn want_synced(&mut self, lsn: Lsn) {
        self.log.want_synced(lsn);
    }

    /// Asks for everything up to a record to be sealed soon: two syncs, one after the other.
    pub fn want_sealed(&mut self, lsn: Lsn) {
        self.log.want_sealed(lsn);
    }

    /// Records that this number of bytes of data were written to the device.
    pub fn note_data(&mut self, bytes: u64) {
        self.log.note_data(bytes);
    }

    /// Whether these units may be overwritten in place, as far as their last writes are
    /// concerned (their block must be open as well). Otherwise they became dirty without
    /// a seal yet: call [`Self::want_sealed`] with [`Self::appended`], and wait for it.
    ///
    /// That is so only for units [promised](Self::promise) before; see [`Self::is_unsealed`].
    ///
    /// After power loss in the middle of the write the unit would hold a mix of sectors. If
    /// the last sealed state is dirty, the mix is kept as it is, as from any disk. If it is
    /// not, it might be another block's leftover, and recovery drops it, though a flush may
    /// have been acknowledged in between. A unit that stays dirty waits only once.
    pub fn may_overwrite(&self, mut units: Range<u64>) -> bool {
        units.all(|unit| {
            !self.unsealed.has_before(unit, self.promised) || self.table.state(unit) != UnitState::Dirty
        })
    }

    /// Whether any of these units became dirty without a seal yet. Overwriting one that was promised to no client
    /// loses nothing, but a flush that promises it meanwhile must wait for the record of the overwriting write.
    pub fn is_unsealed(&self, mut units: Range<u64>) -> bool {
        units.any(|unit| self.unsealed.has(unit) && self.table.state(unit) == UnitState::Dirty)
    }

    /// Everything up to a record is about to be acknowledged as durable.
    pub fn promise(&mut self, lsn: Lsn) {
        self.promised = self.promised.max(lsn.min(self.log.appended()));
    }

    /// Whether the checksums of these units are in memory, or [lost](Self::has_lost_sums). What is neither will be read, also when the log
    /// has [`Self::failed`]: ask again after more completions, before the next [`Self::poll`].
    pub fn has_sums(&mut self, units: Range<u64>) -> bool {
        self.table.has_sums(units)
    }

    /// Whether checksums of these units cannot be read, so that their data cannot be verified.
    pub fn has_lost_sums(&self, units: Range<u64>) -> bool {
        self.table.has_lost_sums(units)
    }

    /// Number of units, in any pages, that may change before a checkpoint should complete.
    pub fn units_at_once(&self) -> u64 {
        self.table.dirty_pages_max() as u64
    }

    /// The checksum of a valid unit; `None` as well where the journal does not [have](Self::has_sums) it.
    pub fn sum(&self, unit: u64) -> Option<u32> {
        self.table.sum(unit)
    }

    /// The state of a unit.
    pub fn state(&self, unit: u64) -> UnitState {
        self.table.state(unit)
    }

    /// Whether there was any record of a unit since its block was mapped: then its block must be open before it is overwritten.
    pub fn is_recorded(&self, unit: u64) -> bool {
        self.table.is_recorded(unit)
    }

    /// Whether the block at a slot is open; never so where its page is not in memory.
    pub fn is_open(&self, slot: u32) -> bool {
        self.table.slot(slot).is_some_and(|entry| entry.open)
    }

    /// Visits all blocks in the order of their slots. To be called before anything is appended; what is not in memory is read.
    ///
    /// # Errors
    /// When the device fails or is damaged.
    pub fn each_block(
        &self,
        device: &mut dyn BlockIo,
        mut each: impl FnMut(&BlockState),
    ) -> Result<(), JournalError> {
        let mut images = Images::new(device, &self.layout, &self.superblock.uuid);
        let image = |page: u32, image: &mut [u8]| images.read(&self.table, page, image);
        self.table.each_block(image, |block, _| {
            each(block);
            Ok(())
        })
    }

    /// The volumes, by number.
    pub fn volumes(&self) -> impl Iterator<Item = &VolumeInfo> {
        self.volumes.list()
    }

    /// Why nothing more is written: the log is not what it should be from then on, for good.
    pub fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    pub(super) fn fail(&mut self, why: String) {
        self.failed.get_or_insert(why);
    }

    /// Whether a completion is the journal's.
    pub fn owns(token: u64) -> bool {
        token & TOKEN_BIT != 0
    }

    /// Statistics so far.
    pub fn stats(&self) -> Stats {
        let (checkpoints, pages_written) = self.checkpoint.counts();
        let mut stats = Stats {
            checkpoints,
            pages_written,
            pages_read: self.reads.done(),
            log_bytes: self.layout.log_bytes,
            dirty_pages: self.table.dirty_pages() as u64,
            memory_bytes: self.table.bytes() + self.unsealed.bytes() + self.log.ring().bytes(),
            ..Stats::default()
        };
        self.log.count_into(&mut stats);
        stats
    }

    /// Whether the engine may begin new work. Where it is false it finishes what it has begun, which may append records of up to 1/32
    /// of the log, and asks again after more completions.
    pub fn has_room(&self) -> bool {
        self.checkpoint.has_room(&self.layout, &self.table, &self.volumes, &self.log)
    }

    /// Asks for a checkpoint, whether it is due or not.
    pub fn want_checkpoint(&mut self) {
        self.checkpoint.want();
    }

    /// Whether no checkpoint is asked for or under way.
    pub fn is_checkpointed(&self) -> bool {
        self.checkpoint.is_idle()
    }

    /// When [`Self::poll`] is to be called again, if nothing else happens before; by the clock that it is given.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.log.deadline_ns().filter(|_| self.failed.is_none())
    }

    /// Appends the requests that are due. Call it after completions, after appending, and at [`Self::deadline_ns`].
    pub fn poll(&mut self, now_ns: u64, out: &mut Vec<Request>) {
        self.table.make_room();
        if self.failed.is_none() {
            self.advance_checkpoint(out);
            if let Err(full) = self.log.submit_batch(now_ns, out)
                // A checkpoint on its way will make room, unless it needs a batch itself.
                && self.checkpoint.is_stuck(&self.table, full.seal_built)
            {
                self.fail("the log is full: more was appended than it has room for".to_owned());
            }
            if self.log.submit_sync(self.checkpoint.wanted_sync(), out) {
                self.unsealed.end_generation();
            }
        }
        self.reads.submit(&mut self.table, out);
    }

    fn advance_checkpoint(&mut self, out: &mut Vec<Request>) {
        loop {
            if self.checkpoint.is_due(&self.layout, &self.table, &self.log) {
                self.begin_checkpoint();
            }
            let content = (&self.table, &self.volumes);
            if !self.checkpoint.advance(&self.layout, content, &mut self.log, &mut self.superblock, out) {
                return;
            }
        }
    }

    fn begin_checkpoint(&mut self) {
        let includes = self.log.appended();
        let images = self.checkpoint.take_pages(&mut self.table, &self.superblock.uuid, includes);
        for image in &images {
            self.append(Record::Page { page: image.page, version: image.version, since: image.since.0 });
        }
        // Volumes with records that would keep the log's end in place.
        let end = self.table.oldest().unwrap_or(Lsn(includes.0 + 1));
        for volume in self.volumes.older(end) {
            self.append(Record::Volume(&volume));
        }
        let upto = self.log.appended();
        self.log.want_sealed(upto);
        self.checkpoint.begin(images, upto);
    }

    /// The batch with all that was appended, without a newer seal;
    /// the caller writes it and syncs. Nothing else is in flight.
    pub(super) fn build_for_recovery(&mut self) -> Option<Request> {
        self.log.build_for_recovery()
    }

    /// Takes the completion of one of the journal's requests.
    pub fn complete(&mut self, completion: Completion) {
        let Completion { token, op, result, buffer, .. } = completion;
        if op == Op::Read {
            let read = (&*buffer, result);
            if let Err(why) = self.reads.complete(&mut self.table, &self.superblock.uuid, token, read) {
                self.fail(why);
            }
            return;
        }
        if let Err(error) = result {
            let what = if token == SYNC_TOKEN { "made durable" } else { "written" };
            return self.fail(format!("the cache's metadata cannot be {what}: {error}"));
        }
        if self.failed.is_some() {
            return;
        }
        match token {
            LOG_TOKEN => self.log.batch_written(),
            SYNC_TOKEN => {
                if self.log.sync_done() {
                    self.unsealed.sealed(self.log.sealed());
                }
                self.volumes.synced(self.log.synced());
            }
            _ => {
                if let Some(page) = self.checkpoint.written(token, &self.log) {
                    self.table.written(page);
                }
            }
        }
    }
}
