//! One pass over a trace for many caches.
//!
//! The reading thread gives keys their numbers and packs requests into batches; the caches are dealt out to worker threads, each
//! of which sees every batch in order. So a cache's state stays with one core, nothing is locked, and the result does not depend
//! on the number of threads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use tiermem_base::{Access, Interner};
use tiermem_policy::flat::{Cache, Counts, Request};

/// Requests of a batch: 400 KB, which stay in the cache between reading and simulating.
const BATCH_REQUESTS: usize = 1 << 15;
/// Batches that may wait for a worker.
const BATCHES_AHEAD: usize = 4;
/// Batches whose memory may be used again: those on their way to the slowest worker, and some.
const BATCHES_KEPT: usize = 2 * BATCHES_AHEAD;

/// A piece of a trace.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The requests, their keys numbered.
    pub requests: Vec<Request>,
    /// The numbers of keys so far are below this.
    pub keys: u32,
    /// Whether the counts at its end are wanted.
    pub marked: bool,
}

/// An error that ends a trace before its end.
#[derive(Debug, thiserror::Error)]
pub enum PassError<E> {
    /// The trace could not be read.
    #[error(transparent)]
    Trace(E),
    /// The trace has too many keys.
    #[error(
        "the trace has more than {} distinct keys, which is as many as can be simulated",
        Interner::KEYS_MAX
    )]
    Keys,
}

/// Cuts a trace into batches, so that some end at marks.
#[derive(Debug)]
pub struct Batches<I> {
    records: I,
    keys: Interner,
    read: u64,
    warmup: u64,
    window: u64,
    /// Where the next mark is, in requests from the start.
    next_mark: u64,
    /// Where the last one was.
    last_mark: Option<u64>,
    finished: bool,
    /// Keys of the batch that is being made.
    unnumbered: Vec<u64>,
    /// The last batches: the memory of one that all workers have released is used for another.
    handed_out: VecDeque<Arc<Batch>>,
}

impl<I> Batches<I> {
    /// Batches of `records`, marked after the first `warmup` (0: no such mark), every `window` from there (0: never),
    /// and at the end.
    pub fn new(records: I, warmup: u64, window: u64) -> Self {
        let after = if window == 0 { u64::MAX } else { window };
        let next_mark = if warmup == 0 { after } else { warmup };
        Batches {
            records,
            keys: Interner::new(),
            read: 0,
            warmup,
            window,
            next_mark,
            last_mark: None,
            finished: false,
            unnumbered: Vec::new(),
            handed_out: VecDeque::new(),
        }
    }

    /// An empty buffer, if possible that of a batch which is no longer needed.
    fn spare_buffer(&mut self) -> Vec<Request> {
        let oldest = self.handed_out.pop_front();
        match oldest.map(Arc::try_unwrap) {
            Some(Ok(Batch { mut requests, .. })) => {
                requests.clear();
                requests
            }
            Some(Err(needed)) if self.handed_out.len() < BATCHES_KEPT => {
                self.handed_out.push_front(needed);
                Vec::with_capacity(BATCH_REQUESTS)
            }
            Some(Err(_)) | None => Vec::with_capacity(BATCH_REQUESTS),
        }
    }

    /// Whether a mark is here; the next one is set.
    fn mark(&mut self) -> bool {
        let here = self.read == self.next_mark || self.finished && self.last_mark != Some(self.read);
        if here {
            self.last_mark = Some(self.read);
            self.next_mark = if self.window == 0 { u64::MAX } else { self.read.saturating_add(self.window) };
        }
        here
    }

    /// Requests read so far.
    pub fn read(&self) -> u64 {
        self.read
    }

    /// Whether the first mark is the end of the warm-up, which the trace has reached.
    pub fn is_warm(&self) -> bool {
        self.warmup > 0 && self.read >= self.warmup
    }
}

impl<I, E> Iterator for Batches<I>
where
    I: Iterator<Item = Result<Access, E>>,
{
    type Item = Result<Arc<Batch>, PassError<E>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        let room = (self.next_mark - self.read).min(BATCH_REQUESTS as u64) as usize;
        let mut requests = self.spare_buffer();
        self.unnumbered.clear();
        while requests.len() < room {
            match self.records.next() {
                Some(Ok(access)) => {
                    self.unnumbered.push(access.key);
                    requests.push(Request { key: 0, size: access.size, op: access.op });
                }
                Some(Err(error)) => {
                    self.finished = true;
                    return Some(Err(PassError::Trace(error)));
                }
                None => {
                    self.finished = true;
                    break;
                }
            }
        }
        let mut unnumbered = requests.iter_mut();
        let numbered = self.keys.intern_all(&self.unnumbered, |number| {
            // As many as there are keys.
            if let Some(request) = unnumbered.next() {
                request.key = number;
            }
        });
        if !numbered {
            self.finished = true;
            return Some(Err(PassError::Keys));
        }
        self.read += requests.len() as u64;
        let marked = self.mark();
        let batch = Arc::new(Batch { requests, keys: self.keys.len() as u32, marked });
        self.handed_out.push_back(batch.clone());
        Some(Ok(batch))
    }
}

/// A cache and its counts at each mark.
struct Marked {
    cache: Box<dyn Cache>,
    counts: Vec<Counts>,
}

impl Marked {
    fn run(&mut self, batch: &Batch) {
        self.cache.run(&batch.requests, batch.keys);
        if batch.marked {
            self.counts.push(self.cache.counts());
        }
    }
}

/// Runs every cache over all batches on up to `threads` threads in addition to this one, or on this one alone if `threads` is 1.
/// Returns the counts of each cache, in the order given, at each mark, from the start of the trace.
pub fn run<E>(
    batches: impl Iterator<Item = Result<Arc<Batch>, E>>,
    caches: Vec<Box<dyn Cache>>,
    threads: usize,
) -> Result<Vec<Vec<Counts>>, E> {
    let count = caches.len();
    let mut caches: Vec<_> = caches.into_iter().map(|cache| Marked { cache, counts: Vec::new() }).collect();
    if threads <= 1 || count == 0 {
        for batch in batches {
            let batch = batch?;
            caches.iter_mut().for_each(|cache| cache.run(&batch));
        }
        return Ok(caches.into_iter().map(|cache| cache.counts).collect());
    }
    let workers = threads.min(count);
    let mut hands: Vec<Vec<Marked>> = (0..workers).map(|_| Vec::new()).collect();
    for (at, cache) in caches.into_iter().enumerate() {
        hands[at % workers].push(cache);
    }
    std::thread::scope(|scope| {
        let mut senders = Vec::new();
        let mut handles = Vec::new();
        for mut hand in hands {
            let (sender, batches) = sync_channel::<Arc<Batch>>(BATCHES_AHEAD);
            senders.push(sender);
            handles.push(scope.spawn(move || {
                for batch in batches {
                    hand.iter_mut().for_each(|cache| cache.run(&batch));
                }
                hand
            }));
        }
        let mut outcome = Ok(());
        for batch in batches {
            match batch {
                // A worker that is gone has panicked, which joining it will tell.
                Ok(batch) => senders.iter().for_each(|sender| drop(sender.send(batch.clone()))),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        drop(senders);
        let mut counts = vec![Vec::new(); count];
        for (worker, handle) in handles.into_iter().enumerate() {
            let hand = handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            for (at, cache) in hand.into_iter().enumerate() {
                counts[at * workers + worker] = cache.counts;
            }
        }
        outcome.map(|()| counts)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::belady::{Belady, Future};
    use tiermem_policy::evict::Named;
    use tiermem_policy::flat::{Capacity, cache};

    type Nothing = std::convert::Infallible;

    fn trace(requests: u64) -> impl Iterator<Item = Result<Access, Nothing>> {
        // Squares modulo a prime: keys that come back at irregular distances.
        (0..requests).map(|n| Ok(Access::get(0, n * n % 1009, 10)))
    }

    fn misses(counts: &[Counts]) -> Vec<u64> {
        counts.iter().map(|counts| counts.misses).collect()
    }

    #[test]
    fn marks_fall_where_they_were_wanted() {
        let marks = |requests, warmup, window| {
            let batches = Batches::new(trace(requests), warmup, window);
            let counts = run(batches, vec![cache(Named::Lru, Capacity::Objects(10), 0)], 1).unwrap();
            counts[0].iter().map(|counts| counts.requests).collect::<Vec<_>>()
        };
        assert_eq!(marks(0, 0, 0), [0]);
        assert_eq!(marks(100, 0, 0), [100]);
        assert_eq!(marks(100_000, 0, 0), [100_000]);
        assert_eq!(marks(100, 0, 30), [30, 60, 90, 100]);
        assert_eq!(marks(90, 0, 30), [30, 60, 90]);
        assert_eq!(marks(100, 10, 0), [10, 100]);
        assert_eq!(marks(100, 10, 45), [10, 55, 100]);
        assert_eq!(marks(100, 200, 45), [100]);
        assert_eq!(marks(70_000, 1, 40_000), [1, 40_001, 70_000]);
    }

    #[test]
    fn threads_and_company_change_nothing() {
        let caches = || Named::ALL.map(|policy| cache(policy, Capacity::Objects(100), 3));
        let alone: Vec<_> = caches()
            .into_iter()
            .map(|one| misses(&run(Batches::new(trace(70_000), 0, 9_999), vec![one], 1).unwrap()[0]))
            .collect();
        for threads in [1, 2, 5, 64] {
            let together = run(Batches::new(trace(70_000), 0, 9_999), caches().into(), threads).unwrap();
            assert_eq!(together.iter().map(|counts| misses(counts)).collect::<Vec<_>>(), alone);
        }
    }

    #[test]
    fn an_error_of_the_trace_comes_out() {
        let broken = || (0..50u64).map(|n| if n == 40 { Err("broken") } else { Ok(Access::get(0, n, 1)) });
        for threads in [1, 3] {
            let caches =
                vec![cache(Named::Fifo, Capacity::Objects(1), 0), cache(Named::Lru, Capacity::Objects(1), 0)];
            let outcome = run(Batches::new(broken(), 0, 10), caches, threads);
            assert!(matches!(outcome, Err(PassError::Trace("broken"))));
        }
    }

    #[test]
    fn nobody_misses_less_than_belady() {
        let batches: Vec<_> = Batches::new(trace(20_000), 0, 0).collect::<Result<_, _>>().unwrap();
        let future = Future::of(&batches).unwrap();
        for objects in [1, 2, 10, 100, 400, 600] {
            let capacity = Capacity::Objects(objects);
            let mut caches: Vec<Box<dyn Cache>> = vec![Box::new(Belady::new(future.clone(), capacity))];
            caches.extend(Named::ALL.map(|policy| cache(policy, capacity, 1)));
            let counts = run(batches.iter().cloned().map(Ok::<_, Nothing>), caches, 2).unwrap();
            let least = counts[0][0].misses;
            for (policy, counts) in Named::ALL.iter().zip(&counts[1..]) {
                assert!(counts[0].misses >= least, "{policy} at {objects}: {} < {least}", counts[0].misses);
            }
        }
    }
}
