//! Log of the engine: whether there is one, how far it is durable, which
//! operations wait for it, and the records of stored and lost units.

use std::ops::Range;

use tiermem_policy::extents::{Part, UNIT_BYTES, Volume};
use tiermem_tier::block as device;

use super::units_at;
use crate::engine::op::{Op, common};
use crate::journal::{Journal, Record, VolumeInfo, Wait, checksum};

/// The log of a cache that outlives the process. Of one that does not nothing is written down, and nothing waits.
pub(in crate::engine) struct Log {
    journal: Option<Journal>,
    /// Operations that wait for the log, and how far.
    waiting: Vec<(u32, Wait)>,
    /// Operations wait until there is room in it.
    room_is_awaited: bool,
    /// How often one found none, and some.
    refusals: u64,
    admissions: u64,
}

/// Whether a journal has got as far as that.
fn has(journal: &Journal, wait: Wait) -> bool {
    journal.synced() >= wait.synced && journal.sealed() >= wait.sealed
}

impl Log {
    /// Of a cache with this journal, or without one.
    pub fn new(journal: Option<Journal>) -> Self {
        Log { journal, waiting: Vec::new(), room_is_awaited: false, refusals: 0, admissions: 0 }
    }

    /// Whether the cache outlives the process.
    pub fn is_kept(&self) -> bool {
        self.journal.is_some()
    }

    /// The journal, to be read.
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// The journal, to append to it. Only the write order may do that, as it knows what must be durable before what.
    pub(super) fn journal_mut(&mut self) -> Option<&mut Journal> {
        self.journal.as_mut()
    }

    /// Why nothing can be written down any more.
    pub fn failure(&self) -> Option<&str> {
        self.journal.as_ref().and_then(Journal::failed)
    }

    /// Makes all records durable; returns the wait for that.
    pub fn sync(&mut self) -> Wait {
        let Some(journal) = &mut self.journal else { return Wait::default() };
        let synced = journal.appended();
        journal.want_synced(synced);
        Wait { synced, ..Wait::default() }
    }

    /// Whether the log has got as far as that, or never will.
    pub fn is_past(&self, wait: Wait) -> bool {
        self.journal.as_ref().is_none_or(|journal| has(journal, wait) || journal.failed().is_some())
    }

    /// Does what the log has to do.
    pub fn poll(&mut self, now_ns: u64, outgoing: &mut Vec<device::Request>) {
        if let Some(journal) = &mut self.journal {
            journal.poll(now_ns, outgoing);
        }
    }

    /// A request of the log's own is done.
    pub fn complete(&mut self, completion: device::Completion) {
        if let Some(journal) = &mut self.journal {
            journal.complete(completion);
        }
    }

    /// Whether the log takes more work now, or never again.
    pub fn has_room(&self) -> bool {
        self.journal.as_ref().is_none_or(|journal| journal.has_room() || journal.failed().is_some())
    }

    /// Whether the log takes more work now; if not, the operation is retried when there is room.
    pub fn await_room(&mut self) -> bool {
        let has_room = self.has_room();
        self.room_is_awaited |= !has_room;
        self.refusals += u64::from(!has_room);
        self.admissions += u64::from(has_room);
        has_room
    }

    /// Number of times that an operation found no room in the log.
    pub fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Number of times that an operation found room in the log.
    pub fn admissions(&self) -> u64 {
        self.admissions
    }

    /// Whether there is room again that operations wait for; once.
    pub fn take_awaited_room(&mut self) -> bool {
        self.has_room() && std::mem::take(&mut self.room_is_awaited)
    }

    /// Whether an operation must wait for the log; it is resumed then.
    pub fn must_wait(&mut self, id: u32, wait: Wait) -> bool {
        let Some(journal) = &mut self.journal else { return false };
        if has(journal, wait) {
            return false;
        }
        journal.want_synced(wait.synced);
        if wait.sealed > journal.sealed() {
            journal.want_sealed(wait.sealed);
        }
        self.waiting.push((id, wait));
        true
    }

    /// Operations for which the log has got far enough, or all that wait where it never will.
    pub fn take_woken(&mut self) -> Vec<u32> {
        let waiting = std::mem::take(&mut self.waiting);
        let (woken, waiting): (Vec<_>, _) = waiting.into_iter().partition(|(_, wait)| self.is_past(*wait));
        self.waiting = waiting;
        woken.into_iter().map(|(id, _)| id).collect()
    }

    /// Writes down how a volume stands.
    pub fn note_volume(&mut self, info: &VolumeInfo) {
        if let Some(journal) = &mut self.journal {
            journal.append(Record::Volume(info));
        }
    }

    /// These units are lost.
    pub fn note_lost(&mut self, units: Range<u64>) {
        if let Some(journal) = &mut self.journal {
            journal.append(Record::Poison(units));
        }
    }

    /// An operation's plan is stored: what it made dirty, and what was fetched beside that.
    pub fn note_stored(&mut self, op: &Op) {
        let Some(journal) = &mut self.journal else { return };
        let mut sums = &op.sums[..];
        for (fill, part) in op.plan.fill.iter().enumerate() {
            let units = units_at(part);
            let (own, rest) = sums.split_at(((units.end - units.start) as usize).min(sums.len()));
            sums = rest;
            if op.unstored.contains(&(fill as u32)) {
                continue;
            }
            for_each_run(part, &op.plan.dirtied, |from, to, dirty| {
                let sums = &own[from as usize..to as usize];
                journal.append(Record::Units { first: units.start + from, dirty, sums });
            });
            journal.note_data(part.bytes);
        }
    }

    /// Whether the log has the checksums of these units in memory; starts reading those that it has not.
    pub fn has_sums(&mut self, units: Range<u64>) -> bool {
        self.journal.as_mut().is_none_or(|journal| journal.has_sums(units))
    }

    /// The runs of a volume's units, read from byte `at` of the cache on, that are not what was stored there.
    pub fn misfits(&self, volume: Volume, range: &Range<u64>, at: u64, bytes: &[u8]) -> Vec<Range<u64>> {
        let mut misfits: Vec<Range<u64>> = Vec::new();
        let Some(journal) = &self.journal else { return misfits };
        for (place, unit) in bytes.chunks_exact(UNIT_BYTES as usize).enumerate() {
            let offset = range.start + place as u64 * UNIT_BYTES;
            if journal.sum(at / UNIT_BYTES + place as u64) != Some(checksum(volume.0, offset, unit)) {
                match misfits.last_mut() {
                    Some(last) if last.end == offset => last.end += UNIT_BYTES,
                    _ => misfits.push(offset..offset + UNIT_BYTES),
                }
            }
        }
        misfits
    }
}

/// Calls `each` for the ascending runs of a part's units that lie in some of these ranges of the
/// volume, and for the runs that do not: from where to where in the part, and whether it is in a range.
fn for_each_run(part: &Part, ranges: &[Range<u64>], mut each: impl FnMut(u64, u64, bool)) {
    let whole = part.offset..part.offset + part.bytes;
    let mut at = whole.start;
    let mut run = |from: u64, to: u64, is_in: bool| {
        if from < to {
            each((from - whole.start) / UNIT_BYTES, (to - whole.start) / UNIT_BYTES, is_in);
        }
    };
    for range in ranges {
        let shared = common(range, &whole);
        if !shared.is_empty() {
            run(at, shared.start, false);
            run(shared.start, shared.end, true);
            at = shared.end;
        }
    }
    run(at, whole.end, false);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{self, LayoutConfig, Lsn, UnitState};
    use tiermem_tier::block::{BlockIo, MemoryDisk};

    const UNIT: usize = UNIT_BYTES as usize;

    /// A log on an empty device, and the device.
    fn empty() -> (Log, Box<dyn BlockIo>) {
        let mut disk: Box<dyn BlockIo> = Box::new(MemoryDisk::new(4 << 20).open());
        let layout =
            LayoutConfig { block_bytes: vec![64 << 10], group_bytes: None, log_bytes: Some(512 << 10) };
        journal::format(&mut disk, &layout, false).unwrap();
        let (journal, _) = journal::open(&mut disk, &layout, None).unwrap();
        (Log::new(Some(journal)), disk)
    }

    /// Runs the log's requests on the device.
    fn run(log: &mut Log, disk: &mut Box<dyn BlockIo>) {
        for _ in 0..100 {
            let (mut outgoing, mut done) = (Vec::new(), Vec::new());
            log.poll(0, &mut outgoing);
            disk.submit_all(&mut outgoing);
            disk.completed(&mut done);
            done.into_iter().for_each(|completion| log.complete(completion));
        }
    }

    /// Four units of a volume are written to the first block, of which the second and third are dirty; the bytes.
    fn store(log: &mut Log) -> Vec<u8> {
        let bytes: Vec<u8> = (0..4).flat_map(|unit| [unit; UNIT]).collect();
        let mut op = Op::default();
        op.plan.fill.push(Part { offset: 4 * UNIT_BYTES, at: 0, bytes: 4 * UNIT_BYTES });
        op.plan.dirtied.push(5 * UNIT_BYTES..7 * UNIT_BYTES);
        op.note_sums(Volume(0), 0, &bytes);
        log.journal_mut().unwrap().append(Record::Map { slot: 0, class: 0, volume: 0, piece: 0 });
        log.note_stored(&op);
        bytes
    }

    #[test]
    fn operations_wait_until_the_log_has_got_as_far_and_are_called_once() {
        let (mut log, mut disk) = empty();
        assert!(!log.must_wait(1, Wait::default()), "there is nothing to wait for");
        store(&mut log);
        let appended = log.journal().unwrap().appended();
        assert!(log.must_wait(2, Wait { synced: appended, ..Wait::default() }));
        assert!(log.must_wait(3, Wait { synced: Lsn(appended.0 + 1), ..Wait::default() }));
        assert!(log.must_wait(4, Wait { sealed: appended, ..Wait::default() }));
        assert!(log.take_woken().is_empty(), "the device has done nothing");
        run(&mut log, &mut disk);
        assert_eq!(log.take_woken(), [2, 4]);
        assert!(!log.must_wait(5, Wait { synced: appended, sealed: appended }));
        store(&mut log);
        let wait = log.sync();
        assert!(wait.synced > Lsn(appended.0 + 1) && !log.is_past(wait));
        run(&mut log, &mut disk);
        assert!(log.is_past(wait));
        assert_eq!((log.take_woken(), log.take_woken()), (vec![3], vec![]));
    }

    #[test]
    fn all_are_called_when_the_log_has_failed() {
        let (mut log, _disk) = empty();
        store(&mut log);
        let wait = log.sync();
        assert!(log.must_wait(7, wait) && log.failure().is_none());
        // No block of this size can be.
        log.journal_mut().unwrap().append(Record::Map { slot: 0, class: 9, volume: 0, piece: 0 });
        assert!(log.failure().is_some() && log.is_past(wait) && log.has_room());
        assert_eq!(log.take_woken(), [7]);
    }

    #[test]
    fn who_finds_no_room_is_counted_and_called_once_when_there_is_some() {
        let (mut log, mut disk) = empty();
        assert!(log.await_room() && !log.take_awaited_room(), "nobody waits");
        store(&mut log);
        while log.has_room() {
            log.journal_mut().unwrap().append(Record::Clean(0..1));
        }
        assert!(!log.await_room() && !log.await_room() && !log.take_awaited_room());
        assert_eq!((log.refusals(), log.admissions()), (2, 1));
        run(&mut log, &mut disk);
        assert!(log.take_awaited_room() && !log.take_awaited_room());
        assert_eq!(log.refusals(), 2);
    }

    #[test]
    fn what_is_stored_is_dirty_where_it_was_written_and_other_bytes_are_told() {
        let (mut log, _disk) = empty();
        let mut bytes = store(&mut log);
        let states = |log: &Log| [0, 1, 2, 3].map(|unit| log.journal().unwrap().state(unit));
        use UnitState::{Clean, Dirty, Poisoned};
        assert_eq!(states(&log), [Clean, Dirty, Dirty, Clean]);
        log.note_lost(1..2);
        assert_eq!(states(&log), [Clean, Poisoned, Dirty, Clean]);
        let (mut log, _disk) = empty();
        store(&mut log);
        let range = 4 * UNIT_BYTES..8 * UNIT_BYTES;
        assert!(log.has_sums(0..4));
        assert_eq!(log.misfits(Volume(0), &range, 0, &bytes), []);
        assert_eq!(log.misfits(Volume(1), &range, 0, &bytes).first(), Some(&range), "another volume's");
        (bytes[0], bytes[2 * UNIT], bytes[4 * UNIT - 1]) = (9, 9, 9);
        let (first, rest) = (4 * UNIT_BYTES..5 * UNIT_BYTES, 6 * UNIT_BYTES..8 * UNIT_BYTES);
        assert_eq!(log.misfits(Volume(0), &range, 0, &bytes), [first, rest]);
    }

    #[test]
    fn without_a_log_nothing_waits_and_nothing_is_told() {
        let mut log = Log::new(None);
        let wait = Wait { synced: Lsn(1), sealed: Lsn(1) };
        assert!(!log.is_kept() && log.has_room() && log.await_room() && log.is_past(wait));
        assert!(!log.must_wait(1, wait) && log.take_woken().is_empty() && log.has_sums(0..1));
        assert_eq!(log.misfits(Volume(0), &(0..UNIT_BYTES), 0, &[7; UNIT]), []);
        assert_eq!((log.sync(), log.failure(), log.refusals()), (Wait::default(), None, 0));
    }
}
