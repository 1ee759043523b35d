//! Keeps the kernel from taking a program's code where its data is fetched ahead ([`SwappinessAdvice`]).

use std::time::{Duration, Instant};

use tiermem_policy::paging::{Counts, SwappinessAdvice};
use tiermem_sys::control_group::{Group, set_swappiness};

const APART: Duration = Duration::from_secs(1);
/// A smaller difference is not worth a write.
const STEP: u32 = 5;

/// What was advised so far, and what the group has.
#[derive(Clone, Copy, Debug)]
pub struct ReclaimBalance {
    advice: SwappinessAdvice,
    next: Instant,
    /// `None`: it was not set yet.
    set: Option<u32>,
    /// The group cannot be told: its reclaim goes by the machine's swappiness, as with version 2.
    is_refused: bool,
}

impl ReclaimBalance {
    /// Nothing is set before the first look.
    pub fn new(now: Instant) -> Self {
        ReclaimBalance { advice: SwappinessAdvice::default(), next: now, set: None, is_refused: false }
    }

    /// Looks at the counts once a second, and tells a group that was made for the program.
    pub fn look(&mut self, group: &Group, now: Instant, counts: impl FnOnce() -> Counts) {
        if self.is_refused || now < self.next {
            return;
        }
        self.next = now + APART;
        let advised = self.advice.by(counts());
        if self.set.is_none_or(|set| set.abs_diff(advised) >= STEP) {
            self.is_refused = set_swappiness(group, advised).is_err();
            self.set = Some(advised);
        }
    }
}
