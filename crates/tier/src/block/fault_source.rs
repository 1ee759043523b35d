//! Source of faults: seeded draws, limits that count down, and completions that are held back.
//! [`super::Faulty`] and [`crate::backing::Faulty`] share it; what a fault does to a request is their own.

use tiermem_base::rng::Rng;

/// Calls of `completed` for which a delayed completion is held back at most.
const DELAY_POLLS_MAX: u64 = 8;

/// The source, for completions of type `C`.
pub struct FaultSource<C> {
    rng: Rng,
    /// Completions held back, with the calls of `completed` for which they still are.
    held: Vec<(u64, C)>,
}

impl<C> FaultSource<C> {
    /// Outcomes follow from the state of `rng` and the order of draws alone.
    pub fn new(rng: Rng) -> Self {
        FaultSource { rng, held: Vec::new() }
    }

    /// Whether something of this probability happens.
    pub fn chance(&mut self, probability: f64) -> bool {
        // No draw for what never happens: other faults then stay where they were.
        probability > 0.0 && self.rng.unit_f64() < probability
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    /// The calls of `completed` for which a new request's completion is to be held back.
    pub fn delay_polls(&mut self, probability: f64) -> u64 {
        if self.chance(probability) { 1 + self.below(DELAY_POLLS_MAX) } else { 0 }
    }

    /// Holds a completion back for so many calls of [`FaultSource::release`].
    pub fn hold(&mut self, polls: u64, completion: C) {
        self.held.push((polls, completion));
    }

    /// Hands out what is due, in the order in which it came.
    pub fn release(&mut self, out: &mut Vec<C>) {
        for (polls, completion) in std::mem::take(&mut self.held) {
            match polls.checked_sub(1) {
                None => out.push(completion),
                Some(left) => self.held.push((left, completion)),
            }
        }
    }

    /// Completions that are held back.
    pub fn held(&self) -> usize {
        self.held.len()
    }
}

/// Counts down to the one error that was asked for; `true`: it is due now, and is asked for no longer.
pub fn error_is_due(error_after: &mut Option<u64>) -> bool {
    let after = *error_after;
    *error_after = after.and_then(|spared| spared.checked_sub(1));
    after == Some(0)
}

/// Takes room for a write; `false`: there is too little, and none is taken. `None` is no limit.
pub fn take_room(room_bytes: &mut Option<u64>, bytes: u64) -> bool {
    match *room_bytes {
        None => true,
        Some(room) => room.checked_sub(bytes).map(|left| *room_bytes = Some(left)).is_some(),
    }
}
