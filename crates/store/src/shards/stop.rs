//! Stops of the store: all shards halt together, and either all of them stop or none.
//!
//! A shard joins the attempt that another has begun, or begins one and tells the others. From then on its thread runs nothing but the
//! steps of the attempt; behind each step it waits for the others, and the first failure counts for all.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How a stop was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopRequest {
    /// Whether a snapshot is written; `None`: where one is configured.
    pub saves: Option<bool>,
    /// Whether the store stops even if something cannot be kept, as after SIGTERM.
    pub forced: bool,
}

#[derive(Debug)]
struct State {
    /// Shards that take part.
    shards: usize,
    /// Shards that have taken the present step.
    arrived: usize,
    /// Number of the present step.
    step: u64,
    /// The first failure in the present step ...
    failure: Option<String>,
    /// ... and in the step before it.
    verdict: Option<String>,
}

/// An attempt to stop all shards. Each takes part once.
#[derive(Debug)]
pub struct StopAttempt {
    /// Its number, from 1.
    pub number: u64,
    /// How it was asked for.
    pub request: StopRequest,
    state: Mutex<State>,
    complete: Condvar,
}

impl StopAttempt {
    /// An attempt of so many shards.
    pub fn new(number: u64, request: StopRequest, shards: usize) -> Self {
        let state = State { shards, arrived: 0, step: 0, failure: None, verdict: None };
        StopAttempt { number, request, state: Mutex::new(state), complete: Condvar::new() }
    }

    /// The state is whole at any moment, so that of a thread that has panicked is as good as another.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a step of this shard's and waits for those of all others.
    ///
    /// # Errors
    /// When the step has failed at any shard.
    pub fn agree(&self, own: Result<(), String>) -> Result<(), String> {
        let mut state = self.lock();
        if let Err(failure) = own {
            state.failure.get_or_insert(failure);
        }
        state.arrived += 1;
        let step = state.step;
        self.end_step_if_complete(&mut state);
        while state.step == step {
            state = self.complete.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // The next step is not complete before this shard has taken it.
        state.verdict.clone().map_or(Ok(()), Err)
    }

    /// Goes on without a shard whose thread has ended.
    pub fn excuse_one(&self) {
        let mut state = self.lock();
        state.shards -= 1;
        state.failure.get_or_insert_with(|| "the thread of a shard has ended before".to_owned());
        self.end_step_if_complete(&mut state);
    }

    fn end_step_if_complete(&self, state: &mut State) {
        if state.arrived == state.shards {
            state.verdict = state.failure.take();
            state.arrived = 0;
            state.step += 1;
            self.complete.notify_all();
        }
    }
}

/// The newest attempt of a store's shards.
#[derive(Debug, Default)]
pub struct StopAttempts(Mutex<Option<Arc<StopAttempt>>>);

impl StopAttempts {
    /// The attempt under way, or a new one of `shards` shards, and whether it is new. `last` is the number of the one that the
    /// calling shard took part in last.
    pub fn join(&self, last: u64, request: StopRequest, shards: usize) -> (Arc<StopAttempt>, bool) {
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(attempt) = newest.as_ref().filter(|attempt| attempt.number > last) {
            return (Arc::clone(attempt), false);
        }
        let attempt = Arc::new(StopAttempt::new(last + 1, request, shards));
        *newest = Some(Arc::clone(&attempt));
        (attempt, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shards_hear_of_the_failure_of_one() {
        let attempts = Arc::new(StopAttempts::default());
        let run = |shard: usize| {
            let attempts = Arc::clone(&attempts);
            move || {
                let mut heard = Vec::new();
                for last in 0..3 {
                    let (attempt, _) = attempts.join(last, StopRequest::default(), 3);
                    assert_eq!(attempt.number, last + 1);
                    let own = if shard as u64 == last { Err(format!("{shard} fails")) } else { Ok(()) };
                    heard.push((attempt.agree(Ok(())), attempt.agree(own), attempt.agree(Ok(()))));
                }
                heard
            }
        };
        let threads: Vec<_> = (0..3).map(|shard| std::thread::spawn(run(shard))).collect();
        for thread in threads {
            let expected = (0..3).map(|shard| (Ok(()), Err(format!("{shard} fails")), Ok(())));
            assert_eq!(thread.join().unwrap(), expected.collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_shard_that_has_ended_keeps_nobody_waiting() {
        let attempt = StopAttempt::new(1, StopRequest::default(), 2);
        attempt.excuse_one();
        assert!(attempt.agree(Ok(())).is_err());
        assert_eq!(attempt.agree(Ok(())), Ok(()));
    }
}
