//! Drafts of plans, replayed over a program's touches: which of them takes least time.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tiermem_policy::paging::{PageRange, Role};
use tiermem_policy::prefetch::{self, readahead::ReadaheadParameters};

use super::belady::Future;
use super::replay::{ReplayError, replay};
use super::{Counts, Memory, Order, Setup, Touches};

/// The flash below DRAM.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlashSpeed {
    /// How long a fault that reads from it takes.
    pub fault_ns: f64,
    /// Bytes that can be read in a second, many at a time.
    pub read_bytes_per_s: f64,
}

impl FlashSpeed {
    /// Seconds of waiting: each fault for its own read, and what is read for its transfer.
    pub fn waiting_s(&self, counts: &Counts) -> f64 {
        counts.faults as f64 * self.fault_ns / 1e9 + counts.read_bytes as f64 / self.read_bytes_per_s.max(1.0)
    }
}

/// What a plan says of pages, the most important first.
pub type PlanPages = Vec<(PageRange, Role)>;

/// Counts without a plan, and with each of these, on up to `threads` threads. As a live program is paged where nothing is asked for: by the
/// kernel's reclaim, with readahead, dropping behind sweeps.
///
/// # Errors
/// If the memory cannot be, or is too small.
pub fn replay_plans(
    touches: &Touches,
    memory: &Memory,
    plans: &[PlanPages],
    threads: usize,
) -> Result<(Counts, Vec<Counts>), ReplayError> {
    let none = PlanPages::new();
    let all: Vec<&PlanPages> = std::iter::once(&none).chain(plans).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(plan) = all.get(at) else { return done };
            done.push((at, one(touches, memory, plan)));
        }
    };
    let mut outcomes = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads.clamp(1, all.len())).map(|_| scope.spawn(work)).collect();
        let join = |handle: std::thread::ScopedJoinHandle<'_, Vec<_>>| {
            handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        handles.into_iter().flat_map(join).collect::<Vec<_>>()
    });
    outcomes.sort_by_key(|(at, _)| *at);
    let mut counts = outcomes.into_iter().map(|(_, outcome)| outcome).collect::<Result<Vec<_>, _>>()?;
    let with = counts.split_off(1);
    Ok((counts.pop().unwrap_or_default(), with))
}

fn one(touches: &Touches, memory: &Memory, plan: &PlanPages) -> Result<Counts, ReplayError> {
    let prefetch = match plan.is_empty() {
        true => prefetch::Named::Readahead(ReadaheadParameters::DEFAULT),
        false => prefetch::Named::Plan(ReadaheadParameters::DEFAULT),
    };
    let memory = Memory { plan: plan.clone(), drop_behind: true, ..memory.clone() };
    replay(touches, &memory, Setup { order: Order::Kernel, prefetch }, &Future::default())
}
