//! The journal at work: records are gathered into batches, written one at a time, synced, sealed.

use std::ops::Range;

use tiermem_policy::extents::UNIT_BYTES;
use tiermem_tier::block::{AlignedBuffer, BlockError, BlockIo, Completion, Op, Request};

use super::batch::Header;
use super::checkpoint_progress::Round;
use super::fetch::Images;
use super::page::PAGE_BYTES;
use super::record::{Record, SUMS_MAX, VolumeInfo};
use super::ring::Ring;
use super::superblock::Superblock;
use super::table::{BlockState, Table, UnitState};
use super::unsealed::Unsealed;
use super::volumes::Volumes;
use super::{JournalError, LOG_TOKEN, Layout, Lsn, PAGE_READ_TOKEN, SYNC_TOKEN, Stats, TOKEN_BIT};

/// A batch is written when it has so many bytes of records, whether somebody waits or not.
const BATCH_BYTES: usize = 64 << 10;
/// Or when its first record has waited so long.
const BATCH_AGE_NS: u64 = 5_000_000;
/// What was appended is sealed after so long.
const SEAL_AGE_NS: u64 = 1_000_000_000;
/// Or after so many bytes of data.
const SEAL_DATA_BYTES: u64 = 256 << 20;

/// Pages that are read at a time.
const READS_MAX: usize = 64;

/// A sync in flight, and what it makes durable.
#[derive(Clone, Copy, Debug)]
struct Sync {
    written: Lsn,
    seal: Lsn,
    sequence: u64,
}

/// The metadata of a cache device. See the [module](super).
#[derive(Debug)]
pub struct Journal {
    pub(super) layout: Layout,
    pub(super) table: Table,
    pub(super) volumes: Volumes,
    pub(super) ring: Ring,
    pub(super) superblock: Superblock,
    session: u64,
    unsealed: Unsealed,
    /// The last record; the last in a batch that was built; written; durable.
    pub(super) appended: Lsn,
    built: Lsn,
    written: Lsn,
    synced: Lsn,
    /// The last seal in a batch that was built; written; durable.
    seal_built: Lsn,
    seal_written: Lsn,
    pub(super) sealed: Lsn,
    /// The last batch that is written, and durable.
    sequence_written: u64,
    pub(super) sequence_synced: u64,
    batch: Option<Header>,
    sync: Option<Sync>,
    /// Pages that are being read.
    reads: usize,
    /// Syncs submitted and done: one at a time, so in order.
    pub(super) syncs_begun: u64,
    pub(super) syncs_done: u64,
    want_written: Lsn,
    /// The first and the last that somebody waits for.
    want_synced: Option<(Lsn, Lsn)>,
    want_sealed: Lsn,
    /// What was promised to be durable.
    promised: Lsn,
    /// Since when a record waits for its batch, and for its seal.
    waits_since_ns: Option<u64>,
    unsealed_since_ns: Option<u64>,
    data_bytes: u64,
    pub(super) round: Round,
    /// Pages whose images are on their way.
    pub(super) round_pages: usize,
    pub(super) checkpoint_wanted: bool,
    failed: Option<String>,
    pub(super) stats: Stats,
}

impl Journal {
    /// With all of `appended` written and durable, and `sealed` the last durable seal.
    pub(super) fn new(
        layout: Layout,
        table: Table,
        ring: Ring,
        superblock: Superblock,
        (appended, sealed, sequence): (Lsn, Lsn, u64),
    ) -> Self {
        Journal {
            unsealed: Unsealed::default(),
            session: super::random(),
            layout,
            table,
            volumes: Volumes::default(),
            ring,
            superblock,
            appended,
            built: appended,
            written: appended,
            synced: appended,
            seal_built: sealed,
            seal_written: sealed,
            sealed,
            sequence_written: sequence,
            sequence_synced: sequence,
            batch: None,
            sync: None,
            reads: 0,
            syncs_begun: 0,
            syncs_done: 0,
            want_written: Lsn(0),
            want_synced: None,
            want_sealed: Lsn(0),
            promised: Lsn(0),
            waits_since_ns: None,
            unsealed_since_ns: None,
            data_bytes: 0,
            round: Round::Idle,
            round_pages: 0,
            checkpoint_wanted: false,
            failed: None,
            stats: Stats::default(),
        }
    }

    /// How the device is divided.
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
                    if dirty {
                        self.note_dirty(first..first.saturating_add(sums.len() as u64));
                    }
                    self.append_one(&Record::Units { first, dirty, sums });
                    first = first.saturating_add(sums.len() as u64);
                }
            }
            Record::Volume(volume) if !self.fits(volume) => {
                self.fail(format!("the volume {} does not fit into the log", volume.number));
            }
            record => self.append_one(&record),
        }
        self.appended
    }

    fn append_one(&mut self, record: &Record<'_>) {
        if self.failed.is_some() {
            return;
        }
        let lsn = Lsn(self.appended.0 + 1);
        if let Err(illegal) = self.table.apply(lsn, record, false) {
            self.fail(format!("a record cannot be: {}", illegal.0));
            return;
        }
        if let Record::Volume(volume) = record {
            self.volumes.apply(lsn, volume);
        }
        self.appended = lsn;
        self.ring.add(record);
    }

    /// Units that become dirty now, and were not as of the last seal, are marked until they are sealed.
    fn note_dirty(&mut self, units: Range<u64>) {
        if units.end > self.layout.units() {
            return;
        }
        for unit in units {
            if self.table.state(unit) != UnitState::Dirty || self.unsealed.has(unit) {
                self.unsealed.add(unit, Lsn(self.appended.0 + 1));
            }
        }
    }

    /// Whether the log can keep what is said of a volume: its texts are short enough, and all volumes take no more than 1/16 of it.
    pub fn fits(&self, volume: &VolumeInfo) -> bool {
        volume.fits() && self.volumes.record_bytes(Some(volume)) <= self.layout.log_bytes / 16
    }

    /// The last record.
    pub fn appended(&self) -> Lsn {
        self.appended
    }

    /// All records up to this one survive the death of the process.
    pub fn written(&self) -> Lsn {
        self.written
    }

    /// All records up to this one survive power loss.
    pub fn synced(&self) -> Lsn {
        self.synced
    }

    /// All records up to this one are strict after power loss: their data are durable, and the log says so durably.
    pub fn sealed(&self) -> Lsn {
        self.sealed
    }

    /// Has everything up to a record written soon.
    pub fn want_written(&mut self, lsn: Lsn) {
        self.want_written = self.want_written.max(lsn.min(self.appended));
    }

    /// Has everything up to a record written and synced soon.
    pub fn want_synced(&mut self, lsn: Lsn) {
        let lsn = lsn.min(self.appended);
        self.want_written(lsn);
        if lsn > self.synced {
            let (first, last) = self.want_synced.unwrap_or((lsn, lsn));
            self.want_synced = Some((first.min(lsn), last.max(lsn)));
        }
    }

    /// Has everything up to a record sealed soon: two syncs, one behind the other.
    pub fn want_sealed(&mut self, lsn: Lsn) {
        self.want_synced(lsn);
        self.want_sealed = self.want_sealed.max(lsn.min(self.appended));
    }

    /// So many bytes of data were written to the device.
    pub fn note_data(&mut self, bytes: u64) {
        self.data_bytes += bytes;
    }

    /// Whether these units may be overwritten in place, as far as their last writes are concerned (their block must be open as well).
    /// Otherwise they became dirty and that is not sealed: [`Self::want_sealed`] of what is [`Self::appended`], and wait for it.
    ///
    /// That is so only for what was [promised](Self::promise) before; see [`Self::is_unsealed`].
    ///
    /// After power loss in the midst of the write a mix of sectors would lie there. If the last sealed state is dirty, that is
    /// taken as it is, as from any disk. If it is not, it might be what another block left, and recovery drops it, though a
    /// flush may have been acknowledged in between. A unit that stays dirty waits only once.
    pub fn may_overwrite(&self, mut units: Range<u64>) -> bool {
        units.all(|unit| {
            !self.unsealed.has_before(unit, self.promised) || self.table.state(unit) != UnitState::Dirty
        })
    }

    /// Whether any of these units became dirty and that is not sealed. To overwrite one that was not promised to anybody is no loss, but
    /// whoever promises it meanwhile must wait for the record of the write that overwrites it.
    pub fn is_unsealed(&self, mut units: Range<u64>) -> bool {
        units.any(|unit| self.unsealed.has(unit) && self.table.state(unit) == UnitState::Dirty)
    }

    /// Somebody is about to be told that everything up to a record is durable.
    pub fn promise(&mut self, lsn: Lsn) {
        self.promised = self.promised.max(lsn.min(self.appended));
    }

    /// Whether the checksums of these units are in memory, or [lost](Self::has_lost_sums). What is neither will be read, also when the log
    /// has [`Self::failed`]: ask again after more completions, before the next [`Self::poll`].
    pub fn has_sums(&mut self, units: Range<u64>) -> bool {
        self.table.has_sums(units)
    }

    /// Whether checksums of these units cannot be had, so that nobody can tell what lies there.
    pub fn has_lost_sums(&self, units: Range<u64>) -> bool {
        self.table.has_lost_sums(units)
    }

    /// How many units, wherever they lie, may be changed before a checkpoint should have gone by.
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

    /// What has happened so far.
    pub fn stats(&self) -> Stats {
        Stats {
            log_bytes: self.layout.log_bytes,
            log_used_bytes: self.ring.used_bytes(),
            dirty_pages: self.table.dirty_pages() as u64,
            memory_bytes: self.table.bytes() + self.unsealed.bytes() + self.ring.bytes(),
            ..self.stats
        }
    }

    /// When [`Self::poll`] is to be called again, if nothing else happens before; by the clock that it is given.
    pub fn deadline_ns(&self) -> Option<u64> {
        let batch = self.waits_since_ns.map(|since| since.saturating_add(BATCH_AGE_NS));
        let seal = self.unsealed_since_ns.map(|since| since.saturating_add(SEAL_AGE_NS));
        batch.into_iter().chain(seal).min().filter(|_| self.failed.is_none())
    }

    /// Appends the requests that are due. Call it after completions, after appending, and at [`Self::deadline_ns`].
    pub fn poll(&mut self, now_ns: u64, out: &mut Vec<Request>) {
        self.table.make_room();
        if self.failed.is_some() {
            return self.submit_reads(out);
        }
        self.advance_checkpoint(out);
        self.look_at_clock(now_ns);
        self.submit_batch(now_ns, out);
        self.submit_sync(out);
        self.submit_reads(out);
    }

    /// Reads pages that somebody needs.
    fn submit_reads(&mut self, out: &mut Vec<Request>) {
        while self.reads < READS_MAX
            && let Some(page) = self.table.next_wanted()
        {
            if self.table.is_here(page) {
                continue;
            }
            self.reads += 1;
            let (token, at) = (PAGE_READ_TOKEN | u64::from(page), self.table.image_at(page));
            out.push(Request::read(token, at, AlignedBuffer::zeroed(PAGE_BYTES)));
        }
    }

    fn look_at_clock(&mut self, now_ns: u64) {
        let waits = self.ring.waiting_bytes() > 0;
        self.waits_since_ns = waits.then(|| self.waits_since_ns.unwrap_or(now_ns));
        let unsealed = self.appended > self.sealed && self.want_sealed < self.appended;
        self.unsealed_since_ns = unsealed.then(|| self.unsealed_since_ns.unwrap_or(now_ns));
        let is_old = |since: u64| now_ns.saturating_sub(since) >= SEAL_AGE_NS;
        if self.data_bytes >= SEAL_DATA_BYTES || self.unsealed_since_ns.is_some_and(is_old) {
            self.data_bytes = 0;
            self.unsealed_since_ns = None;
            self.want_sealed(self.appended);
        }
    }

    /// One batch at a time: so the whole prefix is there when one is.
    fn submit_batch(&mut self, now_ns: u64, out: &mut Vec<Request>) {
        if self.batch.is_some() {
            return;
        }
        let is_old = |since: u64| now_ns.saturating_sub(since) >= BATCH_AGE_NS;
        let is_wanted = self.want_written > self.built
            || self.ring.is_full()
            || self.ring.waiting_bytes() >= BATCH_BYTES
            || self.waits_since_ns.is_some_and(is_old);
        let must_seal = self.want_sealed > self.seal_built && self.synced > self.seal_built;
        if !is_wanted && !must_seal {
            return;
        }
        let Some((at, buffer, header)) = self.ring.build(&self.superblock.uuid, self.session, self.synced)
        else {
            // A checkpoint on its way will make room, unless it needs a batch itself.
            let is_stuck = match self.round {
                Round::Idle => !self.table.waits_for_dirty(),
                Round::Sealed { upto, .. } => self.seal_built < upto,
                _ => false,
            };
            if is_stuck {
                self.fail("the log is full: more was appended than it has room for".to_owned());
            }
            return;
        };
        self.stats.batches += 1;
        self.stats.log_written_bytes += buffer.len() as u64;
        self.built = Lsn(header.last_lsn());
        self.seal_built = self.synced;
        self.batch = Some(header);
        self.waits_since_ns = (self.ring.waiting_bytes() > 0).then_some(now_ns);
        out.push(Request::write(LOG_TOKEN, self.layout.log_at + at, buffer));
    }

    /// The batch with all that was appended, without a newer seal; whoever asks writes it and syncs. Nothing else is in flight.
    pub(super) fn build_for_recovery(&mut self) -> Option<Request> {
        let (at, buffer, header) = self.ring.build(&self.superblock.uuid, self.session, self.seal_built)?;
        let last = Lsn(header.last_lsn());
        (self.built, self.written, self.synced) = (last, last, last);
        (self.sequence_written, self.sequence_synced) = (header.sequence, header.sequence);
        Some(Request::write(LOG_TOKEN, self.layout.log_at + at, buffer))
    }

    /// One sync at a time, beside the next batch.
    fn submit_sync(&mut self, out: &mut Vec<Request>) {
        if self.sync.is_some() {
            return;
        }
        let for_log = self.want_synced.is_some_and(|(first, _)| first <= self.written);
        let for_seal = self.want_sealed > self.sealed && self.seal_written > self.sealed;
        if !for_log && !for_seal && self.checkpoint_sync() <= self.syncs_begun {
            return;
        }
        self.syncs_begun += 1;
        self.unsealed.end_generation();
        self.sync =
            Some(Sync { written: self.written, seal: self.seal_written, sequence: self.sequence_written });
        out.push(Request::sync(SYNC_TOKEN));
    }

    /// Takes the completion of one of the journal's requests.
    pub fn complete(&mut self, completion: Completion) {
        let Completion { token, op, result, buffer, .. } = completion;
        if op == Op::Read {
            return self.page_read((token & !PAGE_READ_TOKEN) as u32, &buffer, result);
        }
        if let Err(error) = result {
            let what = if token == SYNC_TOKEN { "made durable" } else { "written" };
            self.fail(format!("the cache's metadata cannot be {what}: {error}"));
            self.batch = self.batch.filter(|_| token != LOG_TOKEN);
            self.sync = self.sync.filter(|_| token != SYNC_TOKEN);
            return;
        }
        if self.failed.is_some() {
            return;
        }
        match token {
            LOG_TOKEN => {
                if let Some(header) = self.batch.take() {
                    self.written = Lsn(header.last_lsn());
                    self.seal_written = Lsn(header.sealed);
                    self.sequence_written = header.sequence;
                }
            }
            SYNC_TOKEN => {
                if let Some(sync) = self.sync.take() {
                    self.sync_done(sync);
                }
            }
            _ => self.checkpoint_written(token),
        }
    }

    /// A page of the table was read, or not: then no image of it can be written any more.
    fn page_read(&mut self, page: u32, image: &[u8], result: Result<(), BlockError>) {
        self.reads -= 1;
        self.stats.pages_read += 1;
        let taken = match result {
            Ok(()) => {
                let taken = self.table.arrived(page, image, &self.superblock.uuid);
                taken.map_err(|illegal| format!("the cache's metadata are damaged: {}", illegal.0))
            }
            Err(error) => Err(format!("the cache's metadata cannot be read: {error}")),
        };
        if let Err(why) = taken {
            self.table.lose(page);
            self.fail(why);
        }
    }

    fn sync_done(&mut self, sync: Sync) {
        self.stats.syncs += 1;
        self.syncs_done += 1;
        self.synced = sync.written;
        self.sequence_synced = sync.sequence;
        if sync.seal > self.sealed {
            self.stats.seals += 1;
            self.sealed = sync.seal;
            self.unsealed.sealed(self.sealed);
        }
        self.volumes.synced(self.synced);
        // Which of those between the first and the last are waited for is not known any more: the last stands for them.
        self.want_synced = self
            .want_synced
            .filter(|(_, last)| *last > self.synced)
            .map(|(first, last)| if first > self.synced { (first, last) } else { (last, last) });
    }

    /// Where a unit lies on the device, in bytes.
    pub fn unit_at(&self, unit: u64) -> u64 {
        debug_assert!(unit < self.layout.units());
        self.layout.data_at + unit * UNIT_BYTES
    }
}
