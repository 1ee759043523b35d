//! The log against a naive one that remembers where every item lies, and what it writes for each byte that comes in.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tiermem_base::Rng;
use tiermem_policy::log::{
    Admission, Appended, LOG_PAGE_BYTES, Leaving, Log, LogConfig, LogPlace, SEGMENT_HEADER_BYTES, Stream,
};

const SEGMENT_BYTES: u32 = 64 << 10;

/// An item where the naive log knows it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Item {
    place: LogPlace,
    offset: u32,
    bytes: u32,
}

/// A log and the items that lie in it. Emptying is done at once, as by a driver whose device takes no time.
struct World {
    log: Log,
    rng: Rng,
    /// Live items by key.
    items: BTreeMap<u32, Item>,
    /// Items of each segment in the order of their appending, dead ones too.
    appended: BTreeMap<u32, Vec<(u32, Item)>>,
    /// Segments that the driver took for itself.
    taken: Vec<u32>,
    written_bytes: u64,
    evicted: u64,
    now: u64,
}

impl World {
    fn new(config: LogConfig) -> World {
        World {
            log: Log::new(config),
            rng: Rng::seeded(3),
            items: BTreeMap::new(),
            appended: BTreeMap::new(),
            taken: Vec::new(),
            written_bytes: 0,
            evicted: 0,
            now: 0,
        }
    }

    fn note(&mut self, key: u32, appended: Appended, bytes: u32, heat: u32) {
        let Appended { place, segment, offset, .. } = appended;
        let item = Item { place: place.with_heat(heat), offset, bytes };
        self.items.insert(key, item);
        self.written_bytes += u64::from(bytes);
        let of_segment = self.appended.entry(segment).or_default();
        if let Some((_, last)) = of_segment.last() {
            assert!(last.offset + last.bytes <= offset, "two items in one place");
        }
        assert!(offset >= SEGMENT_HEADER_BYTES && offset + bytes <= SEGMENT_BYTES);
        let page = segment * (SEGMENT_BYTES / LOG_PAGE_BYTES) + offset / LOG_PAGE_BYTES;
        let pages = (offset % LOG_PAGE_BYTES + bytes).div_ceil(LOG_PAGE_BYTES);
        assert!(place.page() == page && place.pages() >= pages, "what is read holds the item");
        of_segment.push((key, item));
    }

    fn remove(&mut self, key: u32) {
        if let Some(item) = self.items.remove(&key) {
            self.log.forget(item.place);
        }
    }

    /// Whether it came in.
    fn put(&mut self, key: u32, bytes: u32) -> bool {
        self.now += 1;
        self.remove(key);
        let hash = u64::from(key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        if !self.log.admits(&Leaving { hash, bytes, last_used: self.now }) {
            return false;
        }
        for _ in 0..10_000 {
            if let Some(appended) = self.log.append(Stream::Fresh, bytes) {
                self.note(key, appended, bytes, 0);
                return true;
            }
            assert!(self.empty_one(), "writers wait and nothing is emptied");
        }
        panic!("emptying does not get on");
    }

    fn hit(&mut self, key: u32) {
        self.now += 1;
        if let Some(item) = self.items.get_mut(&key) {
            item.place = self.log.hit(u64::from(key), item.place, self.now).0;
        }
    }

    /// Empties one segment, if one is wanted.
    fn empty_one(&mut self) -> bool {
        let Some(victim) = self.log.victim(&mut self.rng) else { return false };
        let mut kept_bytes = 0;
        for (key, item) in self.appended.remove(&victim).unwrap_or_default() {
            let live = self.items.get(&key).filter(|live| live.offset == item.offset);
            let Some(&live) = live.filter(|live| live.place.is_same(item.place)) else { continue };
            self.log.forget(live.place);
            match self.log.keeps(live.place, live.bytes, kept_bytes, false) {
                Some(heat) => {
                    // Survivors always find space: a free segment is kept for them.
                    let appended = self.log.append(Stream::Kept, live.bytes).unwrap();
                    self.note(key, appended, live.bytes, heat);
                    kept_bytes += live.bytes;
                }
                None => {
                    self.items.remove(&key);
                    self.evicted += 1;
                }
            }
        }
        assert_eq!(self.log.live_in(victim), 0, "all of the victim's items are dealt with");
        self.log.emptied(victim);
        true
    }

    fn check(&self) {
        assert_eq!(self.log.items(), self.items.len() as u64);
        let mut live_in = BTreeMap::<u32, u32>::new();
        let mut places = BTreeSet::new();
        for item in self.items.values() {
            let segment = self.log.segment_of(item.place.page());
            *live_in.entry(segment).or_default() += 1;
            assert!(places.insert((segment, item.offset)), "no place is given twice");
        }
        for (segment, live) in live_in {
            assert_eq!(self.log.live_in(segment), live);
            assert!(!self.taken.contains(&segment));
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u32, u32),
    Remove(u32),
    Hit(u32),
    Empty,
    Take,
    Give,
    Pad,
    Seal,
    Clear,
}

fn steps(keys: u32, bytes_max: u32) -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![10 => 40u32..3000, 1 => 3000..bytes_max];
    let step = prop_oneof![
        60 => (0..keys, bytes).prop_map(|(key, bytes)| Step::Put(key, bytes)),
        8 => (0..keys).prop_map(Step::Remove),
        20 => (0..keys).prop_map(Step::Hit),
        5 => Just(Step::Empty),
        1 => Just(Step::Take),
        2 => Just(Step::Give),
        3 => Just(Step::Pad),
        1 => Just(Step::Seal),
    ];
    let clear = Just(Step::Clear);
    prop::collection::vec(prop_oneof![300 => step, 1 => clear], 1..4000)
}

fn run(steps: Vec<Step>, config: LogConfig) -> World {
    let mut world = World::new(config);
    for step in steps {
        match step {
            Step::Put(key, bytes) => {
                world.put(key, bytes);
            }
            Step::Remove(key) => world.remove(key),
            Step::Hit(key) => world.hit(key),
            Step::Empty => {
                world.empty_one();
            }
            // No more than two checkpoints of a few items.
            Step::Take if world.taken.len() < 2 => world.taken.extend(world.log.take_segment()),
            Step::Give | Step::Take => {
                if let Some(segment) = world.taken.pop() {
                    world.log.give_segment(segment);
                }
            }
            Step::Pad => world.log.pad(Stream::Fresh),
            Step::Seal => world.log.seal(Stream::Fresh),
            Step::Clear => {
                world.log.kill_all();
                world.items.clear();
            }
        }
        if world.now.is_multiple_of(64) {
            world.check();
        }
    }
    world.check();
    world
}

fn config(segments: u32) -> LogConfig {
    let admission = Admission::All;
    LogConfig { segments, segment_bytes: SEGMENT_BYTES, admission, reserve: 0.1, journal_records: 1 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Forty keys of at most 60 KB in 4 MiB have room, even where each has a segment to itself.
    #[test]
    fn with_room_nothing_is_evicted(steps in steps(40, 60 << 10)) {
        let world = run(steps, config(64));
        prop_assert_eq!((world.evicted, world.log.counters().evictions), (0, 0));
        prop_assert_eq!(world.log.counters().rejected, 0);
    }

    /// Two thousand keys in 1.5 MiB: most go, all accounts stay right, and writers never wait for ever.
    #[test]
    fn without_room_accounts_stay_right(steps in steps(2000, 60 << 10), seen in any::<bool>()) {
        let admission = if seen { Admission::Seen } else { Admission::All };
        let world = run(steps, LogConfig { admission, ..config(24) });
        prop_assert_eq!(world.evicted, world.log.counters().evictions);
        prop_assert!(world.log.live_bytes() <= 24 * u64::from(SEGMENT_BYTES));
    }

    /// Sizes chosen so that the ends of segments are wasted: emptying must get on whatever they are.
    #[test]
    fn ends_that_nothing_fits_stop_nobody(share in 0.05f64..1.0, other in 0.001f64..1.0, mix in 0u64..4, seed in any::<u64>()) {
        let mut world = World::new(config(48));
        let mut rng = Rng::seeded(seed);
        let most = f64::from(SEGMENT_BYTES - SEGMENT_HEADER_BYTES);
        for _ in 0..1500 {
            let share = if rng.below(4) < mix { other } else { share };
            world.put(rng.below(5000) as u32, (most * share) as u32);
        }
        world.check();
    }
}

/// Items of one size in a log of this many segments.
const ITEM_BYTES: u32 = 1016;
const SEGMENTS: u32 = 256;

fn live_items(utilisation: f64) -> u32 {
    (f64::from(SEGMENTS) * f64::from(SEGMENT_BYTES) * utilisation) as u32 / ITEM_BYTES
}

/// Writes for each overwriting: as many overwritings as make the log forget how it began, then as many that count.
fn write_amplification(live: u32, mut key: impl FnMut(&mut Rng) -> u32) -> f64 {
    let mut world = World::new(config(SEGMENTS));
    let mut rng = Rng::seeded(5);
    (0..live).for_each(|key| assert!(world.put(key, ITEM_BYTES)));
    (0..6 * live).for_each(|_| assert!(world.put(key(&mut rng), ITEM_BYTES)));
    let before = world.written_bytes;
    (0..6 * live).for_each(|_| assert!(world.put(key(&mut rng), ITEM_BYTES)));
    assert_eq!(world.evicted, 0, "there is room");
    (world.written_bytes - before) as f64 / f64::from(6 * live) / f64::from(ITEM_BYTES)
}

/// The same with the simplest of logs: one stream, and the victim is the oldest segment.
fn naive_write_amplification(live: u32, mut key: impl FnMut(&mut Rng) -> u32) -> f64 {
    let per_segment = ((SEGMENT_BYTES - SEGMENT_HEADER_BYTES) / ITEM_BYTES) as usize;
    let mut log = std::collections::VecDeque::from([Vec::new()]);
    let mut newest = vec![0u64; live as usize];
    let mut writes = 0u64;
    let mut rng = Rng::seeded(5);
    let mut counted = 0;
    for round in 0..13 {
        for key_in_order in 0..live {
            let mut waiting = vec![if round == 0 { key_in_order } else { key(&mut rng) }];
            while let Some(key) = waiting.pop() {
                writes += 1;
                newest[key as usize] = writes;
                let last = log.back_mut().unwrap();
                last.push((key, writes));
                if last.len() == per_segment {
                    log.push_back(Vec::new());
                }
                if log.len() > SEGMENTS as usize {
                    let victim = log.pop_front().unwrap();
                    let lives = victim.into_iter().filter(|&(key, write)| newest[key as usize] == write);
                    waiting.extend(lives.map(|(key, _)| key));
                }
            }
        }
        counted = if round == 6 { writes } else { counted };
    }
    (writes - counted) as f64 / f64::from(6 * live)
}

/// Of segments emptied in the order of their filling under uniform overwriting at utilisation u, a share s of the victim
/// lives with s = exp(-(1 - s) / u) (Desnoyers, "Analytic models of SSD write performance", TOS 2014), and 1 / (1 - s) items
/// are written for each that comes in.
fn in_filling_order(utilisation: f64) -> f64 {
    let live = (0..1000).fold(0.5, |live: f64, _| (-(1.0 - live) / utilisation).exp());
    1.0 / (1.0 - live)
}

/// (Share of the device that lives, writes for each overwriting): a change of the victim rule shows here.
const UNIFORM: [(f64, f64); 4] = [(0.5, 1.259), (0.7, 1.918), (0.8, 2.801), (0.85, 3.724)];
const ZIPF: [(f64, f64); 3] = [(0.5, 1.403), (0.7, 2.020), (0.85, 3.449)];

#[test]
fn writes_under_uniform_overwriting_are_those_of_the_victim_rule() {
    for (utilisation, expected) in UNIFORM {
        let live = live_items(utilisation);
        let uniform = |rng: &mut Rng| rng.below(u64::from(live)) as u32;
        let (found, naive) = (write_amplification(live, uniform), naive_write_amplification(live, uniform));
        let formula = in_filling_order(utilisation);
        assert!((found - expected).abs() < 0.01, "uniform at {utilisation}: {found:.3}, not {expected}");
        assert!((naive - formula).abs() < 0.05 * formula, "the naive log is not the formula's");
        // Eight segments of 256 are open or free, which the naive log does without.
        assert!(found < in_filling_order(utilisation * 256.0 / 248.0));
    }
}

#[test]
fn writes_under_zipf_overwriting_are_fewer_than_in_filling_order() {
    for (utilisation, expected) in ZIPF {
        let live = live_items(utilisation);
        let zipf = |rng: &mut Rng| {
            // The inverse of the continuous Zipf distribution with exponent 0.99; ranks are spread over the keys.
            let uniform = rng.below(1 << 32) as f64 / (1u64 << 32) as f64;
            let (power, most) = (0.01, f64::from(live));
            let rank = (1.0 + uniform * (most.powf(power) - 1.0)).powf(1.0 / power);
            ((rank as u64 - 1) * 7919 % u64::from(live)) as u32
        };
        let (found, naive) = (write_amplification(live, zipf), naive_write_amplification(live, zipf));
        assert!((found - expected).abs() < 0.01, "zipf at {utilisation}: {found:.3}, not {expected}");
        assert!(found < naive * 1.01);
    }
}
