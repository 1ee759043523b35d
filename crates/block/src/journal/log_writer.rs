//! Log writer: records are gathered into batches, which are written one at a time, synced, sealed.
//!
//! A batch's seal says that all data of the records up to there are durable. A record is
//! *sealed* when such a batch is durable itself, so a seal takes two syncs, one after the other.

use tiermem_tier::block::Request;

use super::batch::Header;
use super::record::Record;
use super::ring::Ring;
use super::{LOG_TOKEN, Layout, Lsn, SYNC_TOKEN, Stats};

/// Bytes of records at which a batch is written, whether or not an operation waits for it.
const BATCH_BYTES: usize = 64 << 10;
/// Age of its first record at which it is written.
const BATCH_AGE_NS: u64 = 5_000_000;
/// Age at which appended records are sealed.
const SEAL_AGE_NS: u64 = 1_000_000_000;
/// Bytes of data after which they are sealed.
const SEAL_DATA_BYTES: u64 = 256 << 20;

/// A sync in flight, and what it makes durable.
#[derive(Clone, Copy, Debug)]
struct Sync {
    written: Lsn,
    seal: Lsn,
    sequence: u64,
}

/// Syncs submitted and done: one at a time, so in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Syncs {
    /// Submitted.
    pub begun: u64,
    /// Done.
    pub done: u64,
    /// The last batch that is durable.
    pub sequence: u64,
}

/// There is no room for the batch that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFull {
    /// The last seal in a batch that was built.
    pub seal_built: Lsn,
}

/// Writes the log.
#[derive(Debug)]
pub struct LogWriter {
    ring: Ring,
    log_at: u64,
    uuid: [u8; 16],
    session: u64,
    /// The last record; the last in a batch that was built; written; durable.
    appended: Lsn,
    built: Lsn,
    written: Lsn,
    synced: Lsn,
    /// The last seal in a batch that was built; written; durable.
    seal_built: Lsn,
    seal_written: Lsn,
    sealed: Lsn,
    /// The last batch that is written.
    sequence_written: u64,
    syncs: Syncs,
    batch: Option<Header>,
    sync: Option<Sync>,
    want_written: Lsn,
    /// The first and the last record that an operation waits for.
    want_synced: Option<(Lsn, Lsn)>,
    want_sealed: Lsn,
    /// Since when a record waits for its batch, and for its seal.
    waits_since_ns: Option<u64>,
    unsealed_since_ns: Option<u64>,
    /// Bytes of data since the last seal for their sake.
    data_bytes: u64,
    batches: u64,
    written_bytes: u64,
    seals: u64,
}

impl LogWriter {
    /// With all of `appended` written and durable, `sealed` the last durable seal, and `sequence` the last batch.
    pub fn new(
        layout: &Layout,
        uuid: [u8; 16],
        ring: Ring,
        (appended, sealed, sequence): (Lsn, Lsn, u64),
    ) -> Self {
        LogWriter {
            ring,
            log_at: layout.log_at,
            uuid,
            session: super::random(),
            appended,
            built: appended,
            written: appended,
            synced: appended,
            seal_built: sealed,
            seal_written: sealed,
            sealed,
            sequence_written: sequence,
            syncs: Syncs { begun: 0, done: 0, sequence },
            batch: None,
            sync: None,
            want_written: Lsn(0),
            want_synced: None,
            want_sealed: Lsn(0),
            waits_since_ns: None,
            unsealed_since_ns: None,
            data_bytes: 0,
            batches: 0,
            written_bytes: 0,
            seals: 0,
        }
    }

    /// Adds a record to the batch in the making. It has the LSN behind [`Self::appended`].
    pub fn append(&mut self, record: &Record<'_>) {
        self.appended.0 += 1;
        self.ring.add(record);
    }

    /// The last record.
    pub fn appended(&self) -> Lsn {
        self.appended
    }

    /// The last record that survives the death of the process.
    pub fn written(&self) -> Lsn {
        self.written
    }

    /// The last record that survives power loss.
    pub fn synced(&self) -> Lsn {
        self.synced
    }

    /// The last record that is strict after power loss.
    pub fn sealed(&self) -> Lsn {
        self.sealed
    }

    /// The batches.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The batches.
    pub fn ring_mut(&mut self) -> &mut Ring {
        &mut self.ring
    }

    /// Syncs so far.
    pub fn syncs(&self) -> Syncs {
        self.syncs
    }

    /// Asks for everything up to a record to be written soon.
    pub fn want_written(&mut self, lsn: Lsn) {
        self.want_written = self.want_written.max(lsn.min(self.appended));
    }

    /// Asks for everything up to a record to be written and synced soon.
    pub fn want_synced(&mut self, lsn: Lsn) {
        let lsn = lsn.min(self.appended);
        self.want_written(lsn);
        if lsn > self.synced {
            let (first, last) = self.want_synced.unwrap_or((lsn, lsn));
            self.want_synced = Some((first.min(lsn), last.max(lsn)));
        }
    }

    /// Asks for everything up to a record to be sealed soon.
    pub fn want_sealed(&mut self, lsn: Lsn) {
        self.want_synced(lsn);
        self.want_sealed = self.want_sealed.max(lsn.min(self.appended));
    }

    /// Records that this number of bytes of data were written to the device.
    pub fn note_data(&mut self, bytes: u64) {
        self.data_bytes += bytes;
    }

    /// When [`Self::submit_batch`] is to be called again, if nothing else happens before.
    pub fn deadline_ns(&self) -> Option<u64> {
        let batch = self.waits_since_ns.map(|since| since.saturating_add(BATCH_AGE_NS));
        let seal = self.unsealed_since_ns.map(|since| since.saturating_add(SEAL_AGE_NS));
        batch.into_iter().chain(seal).min()
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

    /// Submits a batch if one is due. One at a time: so the whole prefix is there when one is.
    ///
    /// # Errors
    /// When one is due and there is no room for it.
    pub fn submit_batch(&mut self, now_ns: u64, out: &mut Vec<Request>) -> Result<(), LogFull> {
        self.look_at_clock(now_ns);
        if self.batch.is_some() {
            return Ok(());
        }
        let is_old = |since: u64| now_ns.saturating_sub(since) >= BATCH_AGE_NS;
        let is_wanted = self.want_written > self.built
            || self.ring.is_full()
            || self.ring.waiting_bytes() >= BATCH_BYTES
            || self.waits_since_ns.is_some_and(is_old);
        let must_seal = self.want_sealed > self.seal_built && self.synced > self.seal_built;
        if !is_wanted && !must_seal {
            return Ok(());
        }
        let built = self.ring.build(&self.uuid, self.session, self.synced);
        let (at, buffer, header) = built.ok_or(LogFull { seal_built: self.seal_built })?;
        self.batches += 1;
        self.written_bytes += buffer.len() as u64;
        self.built = Lsn(header.last_lsn());
        self.seal_built = self.synced;
        self.batch = Some(header);
        self.waits_since_ns = (self.ring.waiting_bytes() > 0).then_some(now_ns);
        out.push(Request::write(LOG_TOKEN, self.log_at + at, buffer));
        Ok(())
    }

    /// The batch with all that was appended, without a newer seal;
    /// the caller writes it and syncs. Nothing else is in flight.
    pub fn build_for_recovery(&mut self) -> Option<Request> {
        let (at, buffer, header) = self.ring.build(&self.uuid, self.session, self.seal_built)?;
        let last = Lsn(header.last_lsn());
        (self.built, self.written, self.synced) = (last, last, last);
        (self.sequence_written, self.syncs.sequence) = (header.sequence, header.sequence);
        Some(Request::write(LOG_TOKEN, self.log_at + at, buffer))
    }

    /// Submits a sync if an operation waits for one, or for the sync with the number
    /// `wanted`; returns whether it did. One at a time, beside the next batch.
    pub fn submit_sync(&mut self, wanted: u64, out: &mut Vec<Request>) -> bool {
        if self.sync.is_some() {
            return false;
        }
        let for_log = self.want_synced.is_some_and(|(first, _)| first <= self.written);
        let for_seal = self.want_sealed > self.sealed && self.seal_written > self.sealed;
        if !for_log && !for_seal && wanted <= self.syncs.begun {
            return false;
        }
        self.syncs.begun += 1;
        self.sync =
            Some(Sync { written: self.written, seal: self.seal_written, sequence: self.sequence_written });
        out.push(Request::sync(SYNC_TOKEN));
        true
    }

    /// The batch in flight is written.
    pub fn batch_written(&mut self) {
        if let Some(header) = self.batch.take() {
            self.written = Lsn(header.last_lsn());
            self.seal_written = Lsn(header.sealed);
            self.sequence_written = header.sequence;
        }
    }

    /// The sync in flight is done; whether a newer seal is durable now.
    pub fn sync_done(&mut self) -> bool {
        let Some(sync) = self.sync.take() else { return false };
        self.syncs.done += 1;
        self.syncs.sequence = sync.sequence;
        self.synced = sync.written;
        let is_sealed = sync.seal > self.sealed;
        if is_sealed {
            self.seals += 1;
            self.sealed = sync.seal;
        }
        debug_assert!(
            self.sealed <= self.synced && self.synced <= self.written && self.written <= self.appended,
            "what is sealed is durable, what is durable is written"
        );
        // Which records between the first and the last are waited for is not known any more: the last represents them.
        self.want_synced = self
            .want_synced
            .filter(|(_, last)| *last > self.synced)
            .map(|(first, last)| if first > self.synced { (first, last) } else { (last, last) });
        is_sealed
    }

    /// Adds its counts so far.
    pub fn count_into(&self, stats: &mut Stats) {
        stats.batches = self.batches;
        stats.log_written_bytes = self.written_bytes;
        stats.syncs = self.syncs.done;
        stats.seals = self.seals;
        stats.log_used_bytes = self.ring.used_bytes();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::super::LayoutConfig;
    use super::super::superblock::Tail;
    use super::*;

    fn writer() -> LogWriter {
        let config =
            LayoutConfig { block_bytes: vec![64 << 10], group_bytes: None, log_bytes: Some(1 << 20) };
        let layout = Layout::plan(64 << 20, &config).unwrap();
        LogWriter::new(&layout, [7; 16], Ring::new(&layout, VecDeque::new()), (Lsn(0), Lsn(0), 0))
    }

    fn tokens(out: &mut Vec<Request>) -> Vec<u64> {
        out.drain(..).map(|request| request.token).collect()
    }

    #[test]
    fn a_record_is_written_then_synced_then_sealed_by_a_second_sync() {
        let (mut log, mut out) = (writer(), Vec::new());
        log.append(&Record::Open { slot: 0 });
        log.want_sealed(Lsn(9));
        log.submit_batch(0, &mut out).unwrap();
        assert!(!log.submit_sync(0, &mut out), "nothing is written yet");
        assert_eq!((tokens(&mut out), log.written()), (vec![LOG_TOKEN], Lsn(0)));
        log.batch_written();
        assert!(log.submit_sync(0, &mut out) && !log.submit_sync(0, &mut out), "one at a time");
        assert!(!log.sync_done(), "the first batch seals nothing");
        assert_eq!((log.written(), log.synced(), log.sealed()), (Lsn(1), Lsn(1), Lsn(0)));
        log.submit_batch(0, &mut out).unwrap();
        log.batch_written();
        assert!(log.submit_sync(0, &mut out) && log.sync_done());
        assert_eq!((log.sealed(), log.syncs().done), (Lsn(1), 2));
        assert_eq!(tokens(&mut out), [SYNC_TOKEN, LOG_TOKEN, SYNC_TOKEN]);
        log.submit_batch(u64::MAX, &mut out).unwrap();
        assert!(!log.submit_sync(2, &mut out) && out.is_empty(), "nothing is left to do");
        assert!(log.submit_sync(3, &mut out), "a checkpoint asks for one");
    }

    #[test]
    fn a_sync_does_not_cover_what_was_written_behind_it() {
        let (mut log, mut out) = (writer(), Vec::new());
        let mut write = |log: &mut LogWriter| {
            log.append(&Record::Open { slot: 0 });
            log.want_synced(log.appended());
            log.submit_batch(0, &mut out).unwrap();
            log.batch_written();
        };
        write(&mut log);
        let mut syncs = Vec::new();
        log.submit_sync(0, &mut syncs);
        write(&mut log);
        log.sync_done();
        assert_eq!((log.written(), log.synced()), (Lsn(2), Lsn(1)));
        assert!(log.submit_sync(0, &mut syncs));
        log.sync_done();
        assert_eq!((log.synced(), syncs.len()), (Lsn(2), 2));
    }

    #[test]
    fn records_wait_for_no_longer_than_their_batch_and_their_seal_may_take() {
        let (mut log, mut out) = (writer(), Vec::new());
        log.append(&Record::Open { slot: 0 });
        log.submit_batch(100, &mut out).unwrap();
        assert_eq!((out.len(), log.deadline_ns()), (0, Some(100 + BATCH_AGE_NS)));
        log.submit_batch(100 + BATCH_AGE_NS, &mut out).unwrap();
        assert_eq!((out.len(), log.deadline_ns()), (1, Some(100 + SEAL_AGE_NS)));
        log.batch_written();
        log.submit_batch(100 + SEAL_AGE_NS, &mut out).unwrap();
        assert!(log.submit_sync(0, &mut out), "the seal is due");
        log.note_data(SEAL_DATA_BYTES);
        log.append(&Record::Close { slot: 0 });
        log.submit_batch(0, &mut out).unwrap();
        assert_eq!(log.deadline_ns(), None, "so many data are sealed at once");
    }

    #[test]
    fn a_log_without_room_says_so_until_its_old_end_is_freed() {
        let (mut log, mut out) = (writer(), Vec::new());
        let mut write = |log: &mut LogWriter| {
            log.append(&Record::Open { slot: 0 });
            log.want_written(log.appended());
            let written = log.submit_batch(0, &mut out);
            log.batch_written();
            written
        };
        let batches = (0..).take_while(|_| write(&mut log).is_ok()).count();
        assert_eq!(batches, (1 << 20) / 4096);
        assert_eq!(write(&mut log), Err(LogFull { seal_built: Lsn(0) }));
        let tail: Tail = log.ring().tail_for(Lsn(100), u64::MAX);
        log.ring_mut().free_before(&tail);
        assert_eq!(write(&mut log), Ok(()));
    }
}
