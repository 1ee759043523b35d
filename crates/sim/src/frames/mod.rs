//! Frames over a trace: how often a program faults when its memory is DRAM and slower tiers.
//!
//! The machine is [`tiermem_policy::frames`], driven by touches that a trace is cut into ([`touches`]); moves are carried out at
//! once and counted ([`replay`]). Belady's order ([`belady`]) knows the trace.
//!
//! Source: Wang 2024, chapter 4: a hybrid pool of DRAM and flash under a program.

pub mod belady;
pub mod replay;
pub mod touches;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tiermem_policy::evict::Named;
use tiermem_policy::frames::{Config, TierConfig};
use tiermem_policy::prefetch;

pub use replay::{Counts, ReplayError};
pub use touches::{TooLarge, Touches, TouchesError};

use belady::Future;

/// An order of eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One that can be had live.
    Named(Named),
    /// [`belady`].
    Belady,
}

/// The state in which a first touch finds a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstTouch {
    /// Nothing: the frame is filled with zeros, which is no fault.
    #[default]
    Zero,
    /// Data in the last tier, which must be fetched: a fault.
    Fetch,
}

/// Memory to simulate.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// The tiers, fastest first.
    pub tiers: Vec<TierConfig>,
    /// The state in which a first touch finds a frame.
    pub first_touch: FirstTouch,
    /// For orders that draw.
    pub seed: u64,
}

/// The setup of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// The eviction order.
    pub order: Order,
    /// The prefetcher.
    pub prefetch: prefetch::Named,
}

impl Memory {
    /// How the machine is made for these touches.
    fn config(&self, touches: &Touches) -> Config {
        Config {
            owners: touches.owners().max(1),
            frame_bytes: touches.frame_bytes(),
            ..Config::of(&self.tiers)
        }
    }
}

/// Runs all setups over the touches on up to `threads` threads; their counts in the order of the setups.
pub fn run(
    touches: &Touches,
    memory: &Memory,
    setups: &[Setup],
    threads: usize,
) -> Vec<Result<Counts, ReplayError>> {
    let needs_future = setups.iter().any(|setup| setup.order == Order::Belady);
    let future = if needs_future { Future::of(touches) } else { Future::default() };
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(setup) = setups.get(at) else { return done };
            done.push((at, replay::replay(touches, memory, *setup, &future)));
        }
    };
    let mut outcomes = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads.clamp(1, setups.len().max(1))).map(|_| scope.spawn(work)).collect();
        let join = |handle: std::thread::ScopedJoinHandle<'_, Vec<_>>| {
            handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        handles.into_iter().flat_map(join).collect::<Vec<_>>()
    });
    outcomes.sort_by_key(|(at, _)| *at);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}
