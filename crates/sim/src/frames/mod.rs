//! Frames over a trace: how often a program faults when its memory is DRAM and slower tiers.
//!
//! The machine is [`tiermem_policy::paging`], which the live pager drives too. Here it is driven by the touches that a trace is cut
//! into ([`touches`]); moves are carried out and counted ([`replay`]). Two orders know the trace: Belady's ([`belady`]) and the
//! best fixed set ([`fixed`]).
//!
//! **What the machine hears** ([`References`]). A simulator can tell it of every touch: then it is an ideal observer, and DRAM is
//! full to the last frame. Or it tells what a live pager can know, in the way in which that is told: faults, first uses of what
//! was fetched ahead, and at each look which granules were touched; and some of DRAM is kept free.
//!
//! Source: Yang 2024, chapter 4: a hybrid pool of DRAM and flash under a program.

pub mod belady;
mod counts;
pub mod fixed;
pub mod plans;
pub mod replay;
mod slices;
pub mod touches;
mod world;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tiermem_policy::evict::Named;
use tiermem_policy::frames::{self, Arrival, TierConfig};
use tiermem_policy::paging::{Config, PageRange, Reclaim, Role, Watermarks};
use tiermem_policy::prefetch;

pub use counts::{Counts, Eviction, TierCounts};
pub use replay::ReplayError;
pub use touches::{Cut, Look, TooLarge, Touches, TouchesError};

use belady::Future;

/// An order of eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One that can be had live.
    Named(Named),
    /// The kernel's own reclaim, taken for LRU: it sees an accessed bit for each page, and does not depend on what is told.
    Kernel,
    /// [`belady`].
    Belady,
    /// [`fixed`].
    Fixed,
}

impl Order {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Order::Named(named) => named.name(),
            Order::Kernel => "kernel",
            Order::Belady => "belady",
            Order::Fixed => "fixed",
        }
    }
}

/// What the machine hears of touches that need no fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum References {
    /// Each of them, and whether it writes.
    #[default]
    Told,
    /// At each look ([`Cut::look`]) the granules of 2^`frames_log2` frames that were touched. Frames of DRAM are kept free as the
    /// live pager does.
    ByGranule {
        /// Frames of a granule.
        frames_log2: u32,
    },
    /// Nothing: the live pager where nobody tells it of references. Frames of DRAM are kept free.
    Faults,
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The tiers, fastest first.
    pub tiers: Vec<TierConfig>,
    /// Where a frame comes that is needed, if several tiers are memory.
    pub arrival: Arrival,
    /// The state in which a first touch finds a frame.
    pub first_touch: FirstTouch,
    /// What is heard of touches. Orders that know the trace need to hear nothing.
    pub references: References,
    /// Touches until a page that is fetched ahead has come. Other moves take no time.
    pub fetch_delay: u64,
    /// Whether sweeps drop what they have passed. Orders that know the trace need not.
    pub drop_behind: bool,
    /// What a plan says of pages, the most important first. Orders that know the trace need none.
    pub plan: Vec<(PageRange, Role)>,
    /// Whether [`Counts::evictions`] are told.
    pub tells_evictions: bool,
    /// For orders that draw, and for what is drawn to see whether dropping pays.
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
    /// What a setup hears of. Orders that know the trace hear each touch, so that they are the bounds that they are; the kernel
    /// need not be told.
    fn references_of(&self, setup: Setup) -> References {
        match setup.order {
            Order::Named(_) => self.references,
            Order::Kernel | Order::Belady | Order::Fixed => References::Told,
        }
    }

    /// How the machine is made for these touches.
    fn config(&self, touches: &Touches, setup: Setup) -> Config {
        let is_live = self.references_of(setup) != References::Told;
        let extent = touches.extent().filter(|_| self.first_touch == FirstTouch::Fetch);
        let knows_trace = matches!(setup.order, Order::Belady | Order::Fixed);
        let mut config = Config {
            tiers: self.tiers.clone(),
            arrival: self.arrival,
            // Here the kernel's reclaim is an order, too.
            reclaim: if setup.order == Order::Kernel { Reclaim::SimulatedKernel } else { Reclaim::Order },
            drop_behind: self.drop_behind && !knows_trace,
            references: match setup.order {
                Order::Named(named) if is_live => Config::references_of(named),
                _ => frames::References::Told,
            },
            writes_told: !is_live,
            moves_max: MOVES_MAX,
            prefetch: setup.prefetch,
            stored: extent.map_or(PageRange::default(), |(first, last)| PageRange {
                first,
                end: last.saturating_add(1),
            }),
            page_bytes: touches.frame_bytes(),
        };
        let turnover_tier = config.turnover_tier();
        if let Some(tier) = config.tiers.get_mut(turnover_tier).filter(|_| is_live) {
            let Watermarks { low, high } = Watermarks::of(tier.frames);
            (tier.low, tier.high) = (low, high);
        }
        config
    }
}

/// Moves under way at once: a step's, and fetches that are delayed.
const MOVES_MAX: u32 = 1024;

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
