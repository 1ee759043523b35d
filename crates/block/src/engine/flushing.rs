//! Flushes of one volume: which flushes of its store are needed, and what each client's flush waits for.

use super::op::Failure;
use super::write_order::Promise;
use crate::disks::Asker;
use crate::journal::Lsn;

/// A client's flush, or a write that must be durable, and what it waits for.
#[derive(Debug)]
pub(super) struct Waiter {
    pub asker: Asker,
    /// It is about its own bytes alone.
    pub is_write: bool,
    /// All epochs up to this one must be in the store.
    pub epoch: Option<u64>,
    /// This flush of the store must have ended.
    pub flush: Option<u64>,
    /// Condition on the log.
    pub promise: Promise,
}

/// The flushes of a store are sequential, so one that is requested while another runs waits for that, or for the next.
#[derive(Debug, Default)]
pub(super) struct Flushing {
    /// How many flushes of the store were begun.
    begun: u64,
    /// How many have ended.
    ended: u64,
    /// The last flush that is needed.
    wanted: u64,
    /// The oldest session in which the store was written to by clients' requests since its last flush began.
    direct_writes: Option<u64>,
    /// The same, as it was when the flush that runs began.
    direct_flushing: Option<u64>,
    waiters: Vec<Waiter>,
    /// The failure of a lost write that its client saw as done: the next flush must report it.
    lost: Option<Failure>,
}

impl Flushing {
    /// A client's request wrote to the store directly, in this session of it.
    pub fn wrote(&mut self, session: u64) {
        self.direct_writes = Some(self.direct_writes.map_or(session, |oldest| oldest.min(session)));
    }

    /// Whether the store has had a flush behind all that was written to it directly.
    pub fn is_flushed(&self) -> bool {
        self.direct_writes.is_none() && self.direct_flushing.is_none()
    }

    /// The flush that covers all direct writes to the store until now: the one that runs, if nothing was written since it began, else the
    /// next. `None` where there were none: what a flush of the cleaner's is for is in the log, or waited for by epochs.
    pub fn needed(&self) -> Option<u64> {
        match (self.direct_writes, self.direct_flushing) {
            (Some(_), _) => Some(self.begun + 1),
            (None, Some(_)) => Some(self.begun),
            (None, None) => None,
        }
    }

    /// Asks for this flush.
    pub fn want(&mut self, flush: u64) {
        self.wanted = self.wanted.max(flush);
    }

    /// Whether a flush is needed that has not begun.
    pub fn is_wanted(&self) -> bool {
        self.wanted > self.begun
    }

    /// Whether this flush has ended.
    pub fn has_ended(&self, flush: u64) -> bool {
        self.ended >= flush
    }

    /// A flush of the store begins.
    pub fn begin(&mut self) {
        assert_eq!(self.begun, self.ended, "one flush of a store at a time");
        self.begun += 1;
        self.direct_flushing = self.direct_writes.take();
    }

    /// The flush has ended, in this session of the store, and failed or not. Returns
    /// whether direct writes to the store may be lost although it did not fail.
    pub fn end(&mut self, failed: bool, session: u64) -> bool {
        self.ended = self.begun;
        let written = self.direct_flushing.take();
        if failed {
            // The next flush is for that as well.
            self.direct_writes = self.direct_writes.into_iter().chain(written).min();
        }
        !failed && written.is_some_and(|written| written != session)
    }

    /// Adds a waiting flush.
    pub fn wait(&mut self, waiter: Waiter) {
        if let Some(flush) = waiter.flush {
            self.want(flush);
        }
        self.waiters.push(waiter);
    }

    /// Whether any flush waits.
    pub fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// What the log must make durable for each waiting flush.
    pub fn promises(&mut self) -> impl Iterator<Item = &mut Promise> {
        self.waiters.iter_mut().map(|waiter| &mut waiter.promise)
    }

    /// Takes the flushes that are complete, by the state of the store and the log. Second
    /// come those that waited for the store's flush that has just ended, if that failed.
    pub fn take_done(
        &mut self,
        failed: bool,
        synced: Option<Lsn>,
        is_flushed: impl Fn(u64) -> bool,
    ) -> (Vec<Waiter>, Vec<Waiter>) {
        let ended = self.ended;
        let (mut done, mut lost) = (Vec::new(), Vec::new());
        for mut waiter in std::mem::take(&mut self.waiters) {
            if failed && waiter.flush.is_some_and(|flush| flush <= ended) {
                lost.push(waiter);
                continue;
            }
            waiter.flush = waiter.flush.filter(|flush| *flush > ended);
            waiter.epoch = waiter.epoch.filter(|epoch| !is_flushed(*epoch));
            let log = &mut waiter.promise.log;
            *log = log.filter(|log| synced.is_none_or(|synced| *log > synced));
            let waits =
                waiter.flush.is_some() || waiter.epoch.is_some() || waiter.promise != Promise::default();
            if waits { self.waiters.push(waiter) } else { done.push(waiter) }
        }
        (done, lost)
    }

    /// Whether flushes wait for writes that are not over.
    pub fn has_owing(&self) -> bool {
        self.waiters.iter().any(|it| it.promise.owed.is_some() && !it.is_write)
    }

    /// Flushes that wait for writes wait until the store has all epochs up to this one as well.
    pub fn wait_for_epoch(&mut self, epoch: u64) {
        for waiter in self.waiters.iter_mut().filter(|it| it.promise.owed.is_some() && !it.is_write) {
            waiter.epoch = waiter.epoch.max(Some(epoch));
        }
    }

    /// Takes those that wait until the store has epochs.
    pub fn take_for_epoch(&mut self) -> Vec<Waiter> {
        self.waiters.extract_if(.., |waiter| waiter.epoch.is_some()).collect()
    }

    /// Takes all waiting flushes.
    pub fn take_all(&mut self) -> Vec<Waiter> {
        std::mem::take(&mut self.waiters)
    }

    /// Records the loss of a write that its client saw as done, and takes the flushes
    /// that wait for it and must report it. If there is none, the next flush reports it.
    pub fn lose(&mut self, failure: &Failure) -> Vec<Waiter> {
        let is_told = |it: &Waiter| it.promise.owed.is_some() && !it.is_write;
        let (owing, others): (Vec<_>, _) = std::mem::take(&mut self.waiters).into_iter().partition(is_told);
        self.waiters = others;
        if owing.is_empty() {
            self.lost = Some(failure.clone());
        }
        owing
    }

    /// Takes the failure of lost writes that the next flush must report; once.
    pub fn take_lost(&mut self) -> Option<Failure> {
        self.lost.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::unflushed_writes::Owed;
    use crate::nbd::Errno;

    fn waiter(cookie: u64, flush: Option<u64>) -> Waiter {
        let asker = Asker { connection: 1, cookie };
        Waiter { asker, is_write: false, epoch: None, flush, promise: Promise::default() }
    }

    fn cookies(waiters: &[Waiter]) -> Vec<u64> {
        waiters.iter().map(|waiter| waiter.asker.cookie).collect()
    }

    #[test]
    fn what_is_written_while_a_flush_runs_is_covered_by_the_next() {
        let mut flushing = Flushing::default();
        assert!(flushing.is_flushed() && flushing.needed().is_none());
        flushing.wrote(3);
        flushing.wait(waiter(1, flushing.needed()));
        assert!(flushing.is_wanted());
        flushing.begin();
        flushing.wrote(3);
        flushing.wait(waiter(2, flushing.needed()));
        assert!(!flushing.end(false, 3) && !flushing.is_flushed() && flushing.is_wanted());
        let (done, lost) = flushing.take_done(false, None, |_| true);
        assert_eq!((cookies(&done), lost.len(), flushing.has_waiters()), (vec![1], 0, true));
        flushing.begin();
        assert!(!flushing.end(false, 3) && flushing.is_flushed() && flushing.has_ended(2));
    }

    #[test]
    fn what_a_failed_flush_did_not_cover_the_next_one_must() {
        let mut flushing = Flushing::default();
        flushing.wrote(3);
        flushing.wait(waiter(1, flushing.needed()));
        flushing.begin();
        flushing.wrote(4);
        assert!(!flushing.end(true, 4) && !flushing.is_flushed());
        let (done, lost) = flushing.take_done(true, None, |_| true);
        assert_eq!((done.len(), cookies(&lost)), (0, vec![1]));
        flushing.begin();
        assert!(flushing.end(false, 4), "the first write was another session's, and may be lost");
    }

    #[test]
    fn flushes_hear_of_a_write_that_was_lost_once() {
        let mut flushing = Flushing::default();
        let failure = (Errno::Io, "the cache".to_owned());
        assert!(flushing.lose(&failure).is_empty());
        assert_eq!((flushing.take_lost(), flushing.take_lost()), (Some(failure.clone()), None));
        let owed = Promise { owed: Some(Owed::default().enter(1)), log: None };
        flushing.wait(Waiter { promise: owed, ..waiter(1, None) });
        flushing.wait(Waiter { promise: owed, is_write: true, ..waiter(2, None) });
        assert_eq!(cookies(&flushing.lose(&failure)), [1]);
        assert_eq!((flushing.take_lost(), cookies(&flushing.take_all())), (None, vec![2]));
    }
}
