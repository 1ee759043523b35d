//! Payoff of moves: whether items that came into a faster tier lately have saved more time there than their moves took.
//!
//! A copy takes the processor's time and waits for both tiers; a use in the faster tier saves the difference of the tiers' speeds.
//! A sample of the items that come up, by number, is watched until each leaves, and so is a sample of those that make room
//! for them: what they would have saved if they had stayed is lost. Sums by cause and size say whether such moves pay. Where
//! they do not, only the items of the sample still come up, so that it shows when they pay again.
//!
//! A use costs one comparison, and one in sixteen at most a look into the table.

use tiermem_base::latency_curve::{LOCAL_DRAM, Surcharge};

use super::config::LadderConfig;
use crate::Id;

/// Processor time of a move beside its charges, at any size and per byte: measured on copies between memory that no cache
/// holds (`docs/RESULTS.md`).
const MOVE_NS: f64 = 800.0;
const MOVE_BYTE_NS: f64 = 0.16;
/// Items watched at once. A direct-mapped table: who comes later ends the watch over who was there.
const WATCHED: usize = 1024;
/// One item number in 2^this is watched at least.
const SHIFT_MIN: u32 = 4;
/// An item that has saved this many times its price is counted at once: it need not leave first.
const COUNTED_AT: f32 = 16.0;
/// Fewer items say nothing.
const COUNT_MIN: u32 = 32;
/// Above this number the sums are halved.
const COUNT_MAX: u32 = 256;
/// Sizes are told apart by their power of two, from 16 bytes to half a MiB.
const SIZES: usize = 16;
/// How much sooner than the bound a promoted item was used again, in powers of two.
pub(super) const CLOSENESS: usize = 4;

/// Why an item is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// It was admitted to the faster tier, and something had to make room.
    Admitted,
    /// It was promoted: with a reuse time within the bound, half of it, a quarter, or less.
    Promoted(u8),
    /// It was demoted.
    Demoted,
}

/// How many causes are told apart.
const CAUSES: usize = 2 + CLOSENESS;

impl Cause {
    fn index(self) -> usize {
        match self {
            Cause::Admitted => 0,
            Cause::Promoted(closeness) => 1 + usize::from(closeness),
            Cause::Demoted => 1 + CLOSENESS,
        }
    }
}

/// An item under watch.
#[derive(Clone, Copy, Debug)]
struct Watch {
    id: Id,
    /// Sizes beyond 4 GiB are not told apart.
    bytes: u32,
    uses: u32,
    cause: Cause,
    /// Where its uses count.
    tier: u8,
}

/// What became of items that moved for one cause, of one size.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u32,
    /// What their uses have saved, or would have saved above.
    used_ns: f32,
    /// What their moves took.
    moved_ns: f32,
}

impl Sum {
    fn add(&mut self, used_ns: f32, moved_ns: f32) {
        self.count += 1;
        self.used_ns += used_ns;
        self.moved_ns += moved_ns;
        if self.count > COUNT_MAX {
            *self = Sum { count: self.count / 2, used_ns: self.used_ns / 2.0, moved_ns: self.moved_ns / 2.0 };
        }
    }
}

/// The costs of a tier and the next slower one.
#[derive(Clone, Copy, Debug)]
struct Pair {
    read: [Surcharge; 2],
    write: [Surcharge; 2],
}

impl Pair {
    /// What a use in the faster tier saves.
    fn saved_ns(&self, bytes: u64) -> f64 {
        (self.read[1].range_ns(bytes) - self.read[0].range_ns(bytes)).max(0.0)
    }

    /// What a move takes, to the faster tier (0) or the slower one (1).
    fn move_ns(&self, to: usize, bytes: u64) -> f64 {
        MOVE_NS
            + MOVE_BYTE_NS * bytes as f64
            + self.read[1 - to].range_ns(bytes)
            + self.write[to].range_ns(bytes)
    }

    /// What the moves take that a cause brings about.
    fn moves_ns(&self, cause: Cause, bytes: u64) -> f64 {
        let down_ns = self.move_ns(1, bytes);
        match cause {
            // It would have been written below otherwise.
            Cause::Admitted => {
                down_ns - (self.write[1].range_ns(bytes) - self.write[0].range_ns(bytes)).max(0.0)
            }
            Cause::Promoted(_) => self.move_ns(0, bytes) + down_ns,
            Cause::Demoted => 0.0,
        }
    }
}

/// Items under watch, and what became of others.
#[derive(Clone, Debug)]
pub(super) struct Payoff {
    watched: Vec<Option<Watch>>,
    /// By faster tier, cause and size.
    sums: Vec<[[Sum; SIZES]; CAUSES]>,
    pairs: Vec<Pair>,
    /// One item number in 2^this is watched.
    shift: u32,
    /// The bits of such a number that are 0; all of them where nothing is watched.
    mask: u32,
}

impl Payoff {
    pub fn new(config: &LadderConfig) -> Self {
        let slower = config.levels.len().saturating_sub(1);
        let is_used = config.weighs_moves && slower > 0;
        let pair = |at: usize| {
            let curve = |tier: usize| config.levels[tier].curve;
            Pair {
                read: [at, at + 1].map(|tier| Surcharge::over_dram(curve(tier).read, LOCAL_DRAM.read)),
                write: [at, at + 1].map(|tier| Surcharge::over_dram(curve(tier).write, LOCAL_DRAM.write)),
            }
        };
        Payoff {
            watched: if is_used { vec![None; WATCHED] } else { Vec::new() },
            sums: if is_used { vec![Default::default(); slower] } else { Vec::new() },
            pairs: (0..slower).map(pair).collect(),
            shift: SHIFT_MIN,
            mask: if is_used { (1 << SHIFT_MIN) - 1 } else { u32::MAX },
        }
    }

    /// Whether an item of this number is watched when it moves.
    #[inline]
    pub fn is_sampled(&self, id: Id) -> bool {
        id.0 & self.mask == 0
    }

    /// Watches so many that the fast tier's items take about half of the table: who stays there for long is seen for long.
    #[inline]
    pub fn fit(&mut self, fast_items: u64) {
        if !self.watched.is_empty() {
            self.shift = (fast_items >> (WATCHED.ilog2() - 1)).max(1).ilog2().clamp(SHIFT_MIN, 24);
            self.mask = (1 << self.shift) - 1;
        }
    }

    /// An item is used in a tier.
    #[inline]
    pub fn note_use(&mut self, id: Id, tier: u8) {
        if self.is_sampled(id) {
            self.count_use(id, tier);
        }
    }

    fn count_use(&mut self, id: Id, tier: u8) {
        let Some(slot) = self.slot(id) else { return };
        let Some(watch) = self.watched[slot].as_mut().filter(|watch| watch.id == id && watch.tier == tier)
        else {
            return;
        };
        watch.uses += 1;
        let watch = *watch;
        let (used_ns, _) = self.outcome(&watch);
        let moved_ns = self.pair(&watch).moves_ns(Cause::Promoted(0), u64::from(watch.bytes)) as f32;
        if used_ns >= COUNTED_AT * moved_ns {
            self.end(slot);
        }
    }

    /// An item has come to a tier, or is about to: it is watched from now on if it is of the sample.
    pub fn watch(&mut self, id: Id, tier: u8, bytes: u64, cause: Cause) {
        if self.is_sampled(id)
            && let Some(slot) = self.slot(id)
        {
            self.end(slot);
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.watched[slot] = Some(Watch { id, bytes, uses: 0, cause, tier });
        }
    }

    /// The item that had a number is gone.
    pub fn forget(&mut self, id: Id) {
        if self.is_sampled(id)
            && let Some(slot) = self.slot(id)
            && self.watched[slot].is_some_and(|watch| watch.id == id)
        {
            self.end(slot);
        }
    }

    /// Whether moves for this cause into `tier` have paid: it is not known that they do not.
    pub fn pays(&self, tier: usize, bytes: u64, cause: Cause) -> bool {
        let Some(sums) = self.sums.get(tier) else { return true };
        if self.pairs[tier].saved_ns(bytes) <= 0.0 {
            // Of tiers alike in speed it cannot be said which is the better one.
            return true;
        }
        let size = size(bytes);
        let sum = sums[cause.index()][size];
        let down = sums[Cause::Demoted.index()][size];
        let lost_ns = if down.count < COUNT_MIN { 0.0 } else { down.used_ns / down.count as f32 };
        sum.count < COUNT_MIN || sum.used_ns >= sum.moved_ns + lost_ns * sum.count as f32
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.watched.capacity() * size_of::<Option<Watch>>()
            + self.sums.capacity() * size_of::<[[Sum; SIZES]; CAUSES]>()) as u64
    }

    /// There are no items any more; what became of them stays known.
    pub fn clear(&mut self) {
        self.watched.fill(None);
    }

    fn slot(&self, id: Id) -> Option<usize> {
        (!self.watched.is_empty()).then(|| (id.0 >> self.shift) as usize % WATCHED)
    }

    /// The pair of tiers between which an item moved.
    fn pair(&self, watch: &Watch) -> &Pair {
        &self.pairs[faster(watch)]
    }

    /// What an item's uses have saved or would have saved, and what its moves took.
    fn outcome(&self, watch: &Watch) -> (f32, f32) {
        let (pair, bytes) = (self.pair(watch), u64::from(watch.bytes));
        let used_ns = pair.saved_ns(bytes) * f64::from(watch.uses);
        (used_ns as f32, pair.moves_ns(watch.cause, bytes) as f32)
    }

    /// Ends a watch and counts it.
    fn end(&mut self, slot: usize) {
        let Some(watch) = self.watched[slot].take() else { return };
        let (used_ns, moved_ns) = self.outcome(&watch);
        self.sums[faster(&watch)][watch.cause.index()][size(u64::from(watch.bytes))].add(used_ns, moved_ns);
    }
}

/// The faster one of the two tiers.
fn faster(watch: &Watch) -> usize {
    usize::from(watch.tier) - usize::from(watch.cause == Cause::Demoted)
}

fn size(bytes: u64) -> usize {
    ((bytes >> 4).max(1).ilog2() as usize).min(SIZES - 1)
}
#[cfg(test)]
mod tests {
    use super::super::PAGE_BYTES;
    use super::*;
    use proptest::prelude::*;

    const BYTES: u64 = 1000;

    fn payoff() -> Payoff {
        Payoff::new(&LadderConfig::with_capacities(&[PAGE_BYTES, PAGE_BYTES]))
    }

    /// The number of a watched item.
    fn sampled(at: u32) -> Id {
        Id(at << SHIFT_MIN)
    }

    /// An item comes up, is used so often, and another takes its number.
    fn one(payoff: &mut Payoff, at: u32, cause: Cause, uses: u32) {
        let id = sampled(at);
        let tier = u8::from(cause == Cause::Demoted);
        payoff.watch(id, tier, BYTES, cause);
        (0..uses).for_each(|_| payoff.note_use(id, tier));
        payoff.forget(id);
    }

    proptest! {
        /// Each watch is counted once, when it ends, with the uses in the tier where it began; numbers outside the sample never are.
        #[test]
        fn what_was_watched_is_counted_as_it_happened(
            ops in prop::collection::vec((0u8..8, 0u32..200, 0u8..2, 0usize..3), 0..400),
        ) {
            let mut payoff = payoff();
            let causes = [Cause::Admitted, Cause::Promoted(2), Cause::Demoted];
            let mut watched = std::collections::BTreeMap::<u32, (u8, usize, u32)>::new();
            let (mut counts, mut uses) = ([0u32; 3], [0u32; 3]);
            let pair = payoff.pairs[0];
            let saved_ns = pair.saved_ns(BYTES);
            let enough = (f64::from(COUNTED_AT) * pair.moves_ns(Cause::Promoted(0), BYTES) / saved_ns).ceil() as u32;
            for (what, number, tier, cause) in ops {
                let id = Id(number);
                let mut ended = None;
                match what {
                    0 => {
                        let to = u8::from(causes[cause] == Cause::Demoted);
                        payoff.watch(id, to, BYTES, causes[cause]);
                        if number % 16 == 0 {
                            ended = watched.insert(number, (to, cause, 0));
                        }
                    }
                    1 => {
                        payoff.forget(id);
                        ended = watched.remove(&number);
                    }
                    _ => {
                        // Some are used very often.
                        for _ in 0..=(number % 64) * 4 {
                            payoff.note_use(id, tier);
                            if let Some(watch) = watched.get_mut(&number).filter(|watch| watch.0 == tier) {
                                watch.2 += 1;
                                if watch.2 >= enough {
                                    let (_, cause, all) = watched.remove(&number).unwrap();
                                    counts[cause] += 1;
                                    uses[cause] += all;
                                }
                            }
                        }
                    }
                }
                if let Some((_, cause, all)) = ended {
                    counts[cause] += 1;
                    uses[cause] += all;
                }
            }
            for (at, cause) in causes.into_iter().enumerate() {
                let sum = payoff.sums[0][cause.index()][size(BYTES)];
                prop_assert_eq!(sum.count, counts[at]);
                let used_ns = saved_ns * f64::from(uses[at]);
                prop_assert!((f64::from(sum.used_ns) - used_ns).abs() <= used_ns * 1e-3, "{} {}", sum.used_ns, used_ns);
                let moved_ns = pair.moves_ns(cause, BYTES) * f64::from(counts[at]);
                prop_assert!((f64::from(sum.moved_ns) - moved_ns).abs() <= moved_ns * 1e-3);
            }
        }
    }

    #[test]
    fn moves_pay_until_it_is_known_that_they_do_not_and_again_when_they_do() {
        let mut payoff = payoff();
        let cause = Cause::Promoted(1);
        (0..COUNT_MIN - 1).for_each(|at| one(&mut payoff, at, cause, 1));
        assert!(payoff.pays(0, BYTES, cause), "too few are known");
        one(&mut payoff, 99, cause, 1);
        assert!(!payoff.pays(0, BYTES, cause));
        assert!(
            payoff.pays(0, BYTES, Cause::Promoted(2)) && payoff.pays(0, 4 * BYTES, cause),
            "of these nothing is"
        );
        let needed = (0..1000).find(|&at| {
            one(&mut payoff, at, cause, 1000);
            payoff.pays(0, BYTES, cause)
        });
        assert!(needed.is_some_and(|needed| needed < 10), "{needed:?}");
    }

    #[test]
    fn a_long_past_is_forgotten() {
        let mut payoff = payoff();
        (0..5000).for_each(|at| one(&mut payoff, at, Cause::Admitted, 0));
        let needed = (0..1000).find(|&at| {
            one(&mut payoff, at, Cause::Admitted, 1000);
            payoff.pays(0, BYTES, Cause::Admitted)
        });
        assert!(needed.is_some_and(|needed| needed < 40), "{needed:?}");
    }

    #[test]
    fn what_made_room_is_missed() {
        let mut payoff = payoff();
        let pair = payoff.pairs[0];
        let uses = (pair.moves_ns(Cause::Admitted, BYTES) / pair.saved_ns(BYTES)) as u32 + 2;
        (0..COUNT_MIN).for_each(|at| one(&mut payoff, at, Cause::Admitted, uses));
        assert!(payoff.pays(0, BYTES, Cause::Admitted));
        // They would have been used above as often as those that took their place.
        (0..COUNT_MIN).for_each(|at| one(&mut payoff, at, Cause::Demoted, uses));
        assert!(!payoff.pays(0, BYTES, Cause::Admitted));
    }

    #[test]
    fn a_slower_tier_repays_moves_sooner_and_tiers_of_one_speed_are_not_weighed() {
        let known = |curve| {
            let mut config = LadderConfig::with_capacities(&[PAGE_BYTES, PAGE_BYTES]);
            config.levels[1].curve = curve;
            let mut payoff = Payoff::new(&config);
            (0..COUNT_MIN).for_each(|at| one(&mut payoff, at, Cause::Admitted, 3));
            payoff.pays(0, BYTES, Cause::Admitted)
        };
        let far = tiermem_base::latency_curve::Curve::custom(
            tiermem_base::Nanos(2000),
            tiermem_base::Nanos(2000),
            10.0,
        );
        assert!(!known(tiermem_base::latency_curve::A1000_CXL) && known(far) && known(LOCAL_DRAM));
    }

    #[test]
    fn the_sample_is_as_large_as_the_table_whatever_the_tier_holds() {
        let mut payoff = payoff();
        for (items, one_in) in [(0, 16), (8191, 16), (8192, 16), (16_384, 32), (5_000_000, 8192)] {
            payoff.fit(items);
            let sampled = (0..1 << 20).filter(|&id| payoff.is_sampled(Id(id))).count();
            assert_eq!((1 << 20) / sampled, one_in, "{items}");
        }
        let mut off = Payoff::new(&LadderConfig::with_capacities(&[PAGE_BYTES]));
        off.fit(1 << 20);
        off.watch(Id(0), 0, BYTES, Cause::Admitted);
        off.note_use(Id(0), 0);
        assert_eq!((off.bytes(), off.pays(0, BYTES, Cause::Admitted)), (0, true), "one tier weighs nothing");
    }
}
