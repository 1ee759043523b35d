//! Flushes: of clients, and of the stores.

use tiermem_policy::extents::cleaner::{Outcome, Token};

use super::Engine;
use super::io::failure;
use super::op::Failure;
use super::volume::Waiter;
use crate::backing::BackingError;
use crate::disks::{Answer, Asker};
use crate::nbd::Errno;

impl Engine {
    /// A client wants all that it was told is done to be durable; or what a write brought, which is over, where `is_write` says so.
    pub(super) fn begin_flush(&mut self, asker: Asker, disk: usize, is_write: bool) {
        let volume = &mut self.volumes[disk];
        // What was lost of others is for flushes to tell: a write answers for its own bytes.
        if let Some(failure) = volume.lost.take_if(|_| !is_write) {
            return self.tell(asker, Err(failure));
        }
        let mut log = None;
        let mut owed = None;
        let mut epoch = None;
        if let Some(ledger) = &mut self.ledger {
            let journal = &mut ledger.journal;
            if let Some(why) = journal.failed() {
                let failure = (Errno::Io, why.to_owned());
                return self.tell(asker, Err(failure));
            }
            let lsn = journal.appended();
            journal.promise(lsn);
            owed = ledger.owed.flush();
            if owed.is_none() && lsn > journal.synced() {
                log = Some(lsn);
                journal.want_synced(lsn);
            }
        } else {
            // Nothing of the cache outlives the process, so all that is dirty goes to the store.
            epoch = self.cleaner.close_epoch(volume.number);
            if let Some(epoch) = epoch {
                self.cleaner.want(volume.number, epoch);
            }
        }
        // What went to the store directly since a flush of it began is covered by the next one only.
        let flush = (volume.direct_writes.is_some() || volume.flushes.begun > volume.flushes.ended)
            .then_some(volume.flushes.begun + 1);
        if epoch.is_none() && flush.is_none() && log.is_none() && owed.is_none() {
            self.cleaner.close_epoch(volume.number);
            return self.tell(asker, Ok(Answer::Done));
        }
        if let Some(flush) = flush {
            volume.flushes.wanted = volume.flushes.wanted.max(flush);
        }
        volume.waiters.push(Waiter { asker, is_write, epoch, flush, owed, log });
        self.flush_store(disk);
    }

    /// Begins a flush of the store if a client needs one and none runs.
    pub(super) fn flush_store(&mut self, at: usize) {
        let volume = &self.volumes[at];
        if volume.flushes.wanted > volume.flushes.begun
            && let Some(token) = self.cleaner.begin_flush(volume.number)
        {
            self.begin_store_flush(at, token);
        }
    }

    /// Begins a flush of the store, for clients or the cleaner: one is for both.
    pub(super) fn begin_store_flush(&mut self, at: usize, token: Token) {
        let volume = &mut self.volumes[at];
        assert_eq!(volume.flushes.begun, volume.flushes.ended, "one flush of a store at a time");
        volume.flushes.begun += 1;
        volume.direct_flushing = volume.direct_writes.take();
        self.submit_flush(at, token);
    }

    /// A flush of a volume's store has ended.
    pub(super) fn store_flushed(
        &mut self,
        at: usize,
        token: Token,
        result: Result<(), BackingError>,
        session: u64,
    ) {
        let volume = &mut self.volumes[at];
        volume.flushes.ended = volume.flushes.begun;
        let written = volume.direct_flushing.take();
        let lost = written.is_some_and(|written| written != session);
        if result.is_err() {
            // The next flush is for that as well.
            volume.direct_writes = volume.direct_writes.into_iter().chain(written).min();
        }
        let result = if lost && result.is_ok() {
            Err(BackingError::Failed(
                "the connection broke, and what was written before may be lost".to_owned(),
            ))
        } else {
            result
        };
        match &result {
            Ok(()) => {
                for act in self.tell_cleaner(token, Outcome::Flushed { session }) {
                    self.carry_out(act);
                }
            }
            Err(error) => self.write_back_failed(at, token, error),
        }
        let ended = self.volumes[at].flushes.ended;
        self.answer_waiters(at, result.as_ref().err().map(|error| (ended, failure(error))));
        self.flush_store(at);
    }

    /// A write was lost whose client was told that it is done: the flushes that wait for it are told, or the next one.
    pub(super) fn lost(&mut self, at: usize, failure: Failure) {
        let volume = &mut self.volumes[at];
        let is_told = |it: &Waiter| it.owed.is_some() && !it.is_write;
        let (owing, others) = std::mem::take(&mut volume.waiters).into_iter().partition(is_told);
        volume.waiters = others;
        let owing: Vec<Waiter> = owing;
        if owing.is_empty() {
            volume.lost = Some(failure);
            return;
        }
        for waiter in owing {
            self.tell(waiter.asker, Err(failure.clone()));
        }
    }

    /// Answers the flushes that have what they wait for, and those that waited for a flush that failed.
    pub(super) fn answer_waiters(&mut self, at: usize, failed: Option<(u64, (Errno, String))>) {
        let volume = &mut self.volumes[at];
        let (number, ended) = (volume.number, volume.flushes.ended);
        let mut waiters = std::mem::take(&mut volume.waiters);
        waiters.retain_mut(|waiter| {
            if let (Some((number, failure)), Some(flush)) = (&failed, waiter.flush)
                && flush <= *number
            {
                self.done.push(crate::disks::Outcome { asker: waiter.asker, result: Err(failure.clone()) });
                return false;
            }
            waiter.flush = waiter.flush.filter(|flush| *flush > ended);
            waiter.epoch = waiter.epoch.filter(|epoch| !self.cleaner.is_flushed(number, *epoch));
            let synced = self.ledger.as_ref().map(|ledger| ledger.journal.synced());
            waiter.log = waiter.log.filter(|log| synced.is_none_or(|synced| *log > synced));
            let waits = waiter.flush.is_some()
                || waiter.epoch.is_some()
                || waiter.owed.is_some()
                || waiter.log.is_some();
            if !waits {
                // What comes from now on may not reach the store before what was promised.
                self.cleaner.close_epoch(number);
                self.done.push(crate::disks::Outcome { asker: waiter.asker, result: Ok(Answer::Done) });
            }
            waits
        });
        self.volumes[at].waiters = waiters;
    }
}
