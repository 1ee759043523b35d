//! Member: one shard's part in the division of memory. It tells how old its evicted items are, empties regions that it is to
//! give, and takes regions that it is given.
//!
//! A giving shard empties a region a little at a time, and a receiving one takes only memory that was given back to the system.
//! So all shards together never hold more than the tiers. The first shard decides, by what all have [shown](Shown) lately.

use super::{Divider, Share};
use crate::ladder::Eviction;
use crate::shard::Shard;

/// Nanoseconds between two ticks.
pub const TICK_NS: u64 = 100_000_000;
/// Ticks between two looks at which shard needs memory.
const LOOK_TICKS: u64 = 10;
/// Ticks that are made up for after a long time without any: no requests came in that time, so further ticks would change
/// nothing.
const LATE_TICKS_MAX: u64 = 64;

/// A message from one shard to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Memory of a tier is to go to another shard.
    Give {
        /// The tier.
        tier: usize,
        /// The bytes.
        bytes: u64,
        /// The number of the shard that gets it.
        to: usize,
    },
    /// Memory of a tier that another shard has given up.
    Take {
        /// The tier.
        tier: usize,
        /// The bytes.
        bytes: u64,
    },
    /// Memory of a tier has come to where it was to go.
    Moved {
        /// The tier.
        tier: usize,
    },
}

/// A shard with its driver.
pub trait Driven {
    /// The shard.
    fn shard(&self) -> &Shard;

    /// Changes a tier's capacity. Items above it leave, a few in every step.
    fn set_capacity(&mut self, tier: usize, bytes: u64);

    /// Makes a step that no request asks for.
    fn step(&mut self);
}

/// The state of a shard as it shows it to the first one, by tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Its capacities, in bytes.
    pub capacities: Vec<u64>,
    /// How long ago the items that leave it lately were last used, in milliseconds; `None`: none leaves.
    pub tail_ages_ms: Vec<Option<u64>>,
}

/// A region that is being emptied, and the shard that gets it.
#[derive(Clone, Copy, Debug)]
struct Giving {
    tier: usize,
    bytes: u64,
    to: usize,
}

/// A shard's part in the division of memory.
#[derive(Debug)]
pub struct Member {
    number: usize,
    giving: Vec<Giving>,
    /// The first shard's.
    divider: Divider,
    /// The departures of each tier when they were last looked at.
    departures: Vec<u64>,
    /// The requests when they were last looked at, and when that was, in nanoseconds.
    looked: Option<(u64, u64)>,
    tail_ages_ms: Vec<Option<u64>>,
    ticks: u64,
}

impl Member {
    /// The part of the shard of this number; 0 is the first.
    pub fn new(number: usize) -> Self {
        Member {
            number,
            giving: Vec::new(),
            divider: Divider::default(),
            departures: Vec::new(),
            looked: None,
            tail_ages_ms: Vec::new(),
            ticks: 0,
        }
    }

    /// How long ago the items that leave each tier were last used; `None`: none leaves.
    pub fn tail_ages_ms(&self) -> &[Option<u64>] {
        &self.tail_ages_ms
    }

    /// Every tick: empties regions that are to be given, and now and then looks at which shard needs memory. `now_ns` is of a
    /// clock that does not go back; `shown` gives the state that a shard, by its number, has shown of a tier.
    pub fn tick<D: Driven>(
        &mut self,
        now_ns: u64,
        driven: &mut D,
        shown: impl Fn(usize) -> Option<Vec<Share>>,
        mut tell: impl FnMut(usize, Word),
    ) {
        if !self.giving.is_empty() {
            if !is_within_capacity(driven.shard()) {
                driven.step();
            }
            let ladder = driven.shard().ladder();
            let emptied = self
                .giving
                .extract_if(.., |giving| ladder.residents().level(giving.tier).is_within_capacity());
            emptied.for_each(|Giving { tier, bytes, to }| tell(to, Word::Take { tier, bytes }));
        }
        self.ticks += 1;
        if self.ticks.is_multiple_of(LOOK_TICKS) {
            self.note_ages(now_ns, driven.shard());
            let eviction = driven.shard().ladder().config().eviction;
            // A shard that gives memory away must be able to evict items.
            if self.number == 0 && eviction != Eviction::Forbidden {
                self.divide(driven.shard().ladder().residents().levels(), shown, tell);
            }
        }
    }

    /// Ages are kept in requests; those of different shards are compared in time.
    fn note_ages(&mut self, now_ns: u64, shard: &Shard) {
        let requests = shard.now().requests;
        let (before, then_ns) = self.looked.replace((requests, now_ns)).unwrap_or((requests, now_ns));
        let ms_per_request = match requests - before {
            0 => None,
            made => Some(now_ns.saturating_sub(then_ns) as f64 / 1e6 / made as f64),
        };
        let ladder = shard.ladder();
        self.departures.resize(ladder.residents().levels(), 0);
        let ages = self.departures.iter_mut().enumerate().map(|(tier, before)| {
            let counters = ladder.residents().level(tier).counters();
            let departures = counters.demotions + counters.evictions;
            let leaves = std::mem::replace(before, departures) != departures;
            ms_per_request.filter(|_| leaves).map(|ms| (ladder.tail_age_requests(tier) as f64 * ms) as u64)
        });
        self.tail_ages_ms = ages.collect();
    }

    /// Decides for each tier whether memory moves.
    fn divide(
        &mut self,
        tiers: usize,
        shown: impl Fn(usize) -> Option<Vec<Share>>,
        mut tell: impl FnMut(usize, Word),
    ) {
        for tier in 0..tiers {
            // Before every shard has shown its figures nothing is known.
            let Some(shares) = shown(tier) else { continue };
            if let Some(transfer) = self.divider.look(tier, &shares) {
                let (bytes, to) = (transfer.bytes, transfer.to);
                tell(transfer.from, Word::Give { tier, bytes, to });
            }
        }
    }

    /// Does what another shard says.
    pub fn hear<D: Driven>(&mut self, word: Word, driven: &mut D, mut tell: impl FnMut(usize, Word)) {
        match word {
            Word::Give { tier, bytes, to } => {
                debug_assert_ne!(to, self.number, "memory goes to another shard");
                let left = driven.shard().ladder().config().levels[tier].capacity_bytes.saturating_sub(bytes);
                driven.set_capacity(tier, left);
                self.giving.push(Giving { tier, bytes, to });
            }
            Word::Take { tier, bytes } => {
                driven
                    .set_capacity(tier, driven.shard().ladder().config().levels[tier].capacity_bytes + bytes);
                tell(0, Word::Moved { tier });
            }
            Word::Moved { tier } => self.divider.moved(tier),
        }
    }

    /// The state that it shows now.
    pub fn show(&self, shard: &Shard) -> Shown {
        let ladder = shard.ladder();
        let capacities = (0..ladder.residents().levels())
            .map(|tier| ladder.config().levels[tier].capacity_bytes)
            .collect();
        Shown { capacities, tail_ages_ms: self.tail_ages_ms.clone() }
    }
}

/// Whether every tier holds no more than its capacity, and has given the rest back.
pub(super) fn is_within_capacity(shard: &Shard) -> bool {
    (0..shard.ladder().residents().levels())
        .all(|tier| shard.ladder().residents().level(tier).is_within_capacity())
}

/// The shares of a tier in all shards, by the states that they have shown. `None`: one has shown nothing yet.
pub fn shares_of(tier: usize, shown: &[Shown]) -> Option<Vec<Share>> {
    let share = |shown: &Shown| {
        let (capacity_bytes, tail_age_ms) = (*shown.capacities.get(tier)?, *shown.tail_ages_ms.get(tier)?);
        Some(Share { capacity_bytes, tail_age_ms })
    };
    shown.iter().map(share).collect()
}

/// When ticks are due where time comes with requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticks {
    next_ns: Option<u64>,
}

impl Ticks {
    /// The next tick that is due at this time; the first one is one tick's time behind the first call.
    pub fn next_due(&mut self, now_ns: u64) -> Option<u64> {
        let next_ns = self.next_ns.unwrap_or(now_ns.saturating_add(TICK_NS));
        let next_ns = next_ns.max(now_ns.saturating_sub(LATE_TICKS_MAX * TICK_NS));
        // At the end of time there are no more.
        let is_due = next_ns <= now_ns && next_ns < u64::MAX;
        self.next_ns = Some(if is_due { next_ns.saturating_add(TICK_NS) } else { next_ns });
        is_due.then_some(next_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::LadderConfig;

    /// A shard without a driver: nothing is in it.
    struct Empty {
        shard: Shard,
        steps: u64,
    }

    impl Driven for Empty {
        fn shard(&self) -> &Shard {
            &self.shard
        }

        fn set_capacity(&mut self, tier: usize, bytes: u64) {
            self.shard.configure(crate::shard::Change::Capacity { tier, bytes });
        }

        fn step(&mut self) {
            self.steps += 1;
        }
    }

    fn empty() -> Empty {
        let ladder = LadderConfig { growth: 2, ..LadderConfig::with_capacities(&[64 << 20]) };
        Empty { shard: Shard::new(ladder, 0), steps: 0 }
    }

    #[test]
    fn a_region_goes_from_one_shard_to_the_other_when_it_is_empty() {
        let (mut first, mut second) = (Member::new(0), Member::new(1));
        let (mut here, mut there) = (empty(), empty());
        let shares = [Some(100), Some(900)];
        let share = |tail_age_ms| Share { capacity_bytes: 64 << 20, tail_age_ms };
        let mut told = Vec::new();
        for tick in 0..30 {
            let shown = |_| Some(shares.map(share).to_vec());
            first.tick(tick * TICK_NS, &mut here, shown, |to, word| told.push((to, word)));
        }
        let bytes = 2 << 20;
        assert_eq!(told, [(1, Word::Give { tier: 0, bytes, to: 0 })], "one at a time");
        second.hear(told[0].1, &mut there, |_, _| unreachable!());
        assert_eq!(there.shard.ladder().config().levels[0].capacity_bytes, 62 << 20);
        told.clear();
        second.tick(0, &mut there, |_| None, |to, word| told.push((to, word)));
        assert_eq!(told, [(0, Word::Take { tier: 0, bytes })]);
        assert_eq!(there.steps, 0, "it was empty");
        let mut moved = Vec::new();
        first.hear(told[0].1, &mut here, |to, word| moved.push((to, word)));
        assert_eq!(moved, [(0, Word::Moved { tier: 0 })]);
        assert_eq!(first.show(&here.shard).capacities, [66 << 20]);
        first.hear(moved[0].1, &mut here, |_, _| unreachable!());
    }

    #[test]
    fn nothing_is_known_before_all_have_shown_something() {
        let shown = |age| Shown { capacities: vec![7], tail_ages_ms: vec![age] };
        let shares = shares_of(0, &[shown(None), shown(Some(3))]);
        let share = |tail_age_ms| Share { capacity_bytes: 7, tail_age_ms };
        assert_eq!(shares, Some(vec![share(None), share(Some(3))]));
        assert_eq!(shares_of(0, &[shown(None), Shown::default()]), None);
        assert_eq!(shares_of(1, &[shown(None)]), None);
    }

    #[test]
    fn ticks_come_in_time_and_long_silence_costs_little() {
        let mut ticks = Ticks::default();
        assert_eq!(ticks.next_due(5), None);
        assert_eq!(ticks.next_due(TICK_NS + 4), None);
        assert_eq!(ticks.next_due(2 * TICK_NS + 6), Some(TICK_NS + 5));
        assert_eq!(ticks.next_due(2 * TICK_NS + 6), Some(2 * TICK_NS + 5));
        assert_eq!(ticks.next_due(2 * TICK_NS + 6), None);
        let late = std::iter::from_fn(|| ticks.next_due(u64::MAX / 2)).count();
        assert!(late as u64 <= LATE_TICKS_MAX + 1, "{late}");
        assert!(std::iter::from_fn(|| ticks.next_due(u64::MAX)).count() as u64 <= LATE_TICKS_MAX + 1);
    }
}
