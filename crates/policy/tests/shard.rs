//! A shard over bytes that lie in a map. Over any sequence of writes, moves, overwrites, removals, expiries and evictions, and
//! whenever moves arrive, every key that should be there is found with the bytes that were written last.

use std::collections::BTreeMap;

use tiermem_base::Rng;
use tiermem_policy::Id;
use tiermem_policy::ladder::{Eviction, LadderConfig, Loc, Reactive, Ticket};
use tiermem_policy::promotion_rule::Promotion;
use tiermem_policy::shard::{Act, Change, Entered, Entry, Items, LosesPages, Lying, Shard, Sizes, Why};

const PAGE: u64 = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    key: u64,
    bytes: u64,
    version: u64,
}

/// The version of bytes that are gone.
const GONE: u64 = u64::MAX;

/// What lies where. Facts are read from it when they are asked for, so that an act that comes too early is told nonsense.
#[derive(Debug, Default)]
struct Bytes(BTreeMap<Loc, Cell>);

fn hash_of(key: u64) -> u64 {
    (key + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Items for Bytes {
    type Key<'a> = u64;

    fn has_key(&self, _: Id, loc: Loc, key: u64) -> bool {
        self.0[&loc].key == key && self.0[&loc].version != GONE
    }

    fn hash(&self, _: Id, loc: Loc) -> Option<u64> {
        let cell = &self.0[&loc];
        match cell.version {
            // What is lost reads as something else, if it is not known to be lost.
            GONE => (cell.key % 2 == 1).then(|| !hash_of(cell.key)),
            _ => Some(hash_of(cell.key)),
        }
    }

    fn bytes(&self, _: Id, loc: Loc) -> Sizes {
        Sizes { here: self.0[&loc].bytes, below: 0 }
    }

    fn is_unchanged(&self, _: Id, _: Loc) -> bool {
        false
    }

    fn note_changed(&mut self, _: Id, _: Loc) {}

    fn lying_at(&self, _: u32, _: u32, _: u32) -> Option<Lying> {
        None
    }

    fn bring_near(&self, _: Id, _: Loc) {}
}

#[derive(Clone, Copy, Debug)]
struct Wanted {
    bytes: u64,
    version: u64,
    expires_at_ms: Option<u64>,
}

#[derive(Debug)]
struct World {
    shard: Shard,
    bytes: Bytes,
    rng: Rng,
    chance: Rng,
    wanted: BTreeMap<u64, Wanted>,
    /// Moves whose bytes have not arrived; none where they arrive at once.
    on_the_way: Option<Vec<(Ticket, Loc, Loc)>>,
    versions: u64,
    left: [u64; 5],
    failed: u64,
}

impl World {
    fn new(config: LadderConfig, late: bool, seed: u64) -> Self {
        World {
            shard: Shard::new(config, 0),
            bytes: Bytes::default(),
            rng: Rng::seeded(seed),
            chance: Rng::seeded(seed + 1),
            wanted: BTreeMap::new(),
            on_the_way: late.then(Vec::new),
            versions: 0,
            left: [0; 5],
            failed: 0,
        }
    }

    fn copy(&mut self, from: Loc, to: Loc) {
        // An item that was removed on the way left nothing to copy.
        if let Some(&cell) = self.bytes.0.get(&from) {
            self.bytes.0.insert(to, cell);
        }
    }

    fn carry_out(&mut self) {
        while let Some(act) = self.shard.next_act(&mut self.bytes, &mut self.rng) {
            match act {
                Act::Move { ticket, from, to, bytes, .. } => {
                    assert_eq!(self.bytes.0[&from].bytes, bytes);
                    match &mut self.on_the_way {
                        Some(moves) => moves.push((ticket, from, to)),
                        None => {
                            let arrives = self.bytes.0[&from].version != GONE;
                            if arrives {
                                self.copy(from, to);
                            }
                            self.shard.moved(ticket, arrives);
                        }
                    }
                }
                Act::Settled { from, to, bytes, .. } => {
                    assert_eq!(self.bytes.0[&to].bytes, bytes, "it stands where its bytes are");
                    self.bytes.0.remove(&from);
                }
                Act::Leave { loc, hash, why, .. } => {
                    let cell = self.bytes.0.remove(&loc).expect("its bytes are there until the next act");
                    assert_eq!(cell.version == GONE, why == Why::Lost);
                    self.left[why as usize] += 1;
                    if why == Why::Lost {
                        assert_eq!(hash_of(cell.key) >> 24, hash >> 24, "it is found by its place");
                        self.wanted.remove(&cell.key).expect("who leaves was there");
                        continue;
                    }
                    assert_eq!(hash_of(cell.key), hash);
                    let wanted = self.wanted.remove(&cell.key).expect("who leaves was there");
                    assert_eq!(wanted.version, cell.version);
                    let now_ms = self.shard.now().unix_ms;
                    let is_over = wanted.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms);
                    assert_eq!(is_over, why == Why::Expired);
                }
                Act::Discard { .. } | Act::Populate { .. } => {}
                act => panic!("there is no log, so why {act:?}"),
            }
        }
    }

    /// The bytes of some move arrive, or cannot be copied.
    fn arrive(&mut self) {
        let Some(moves) = self.on_the_way.as_mut().filter(|moves| !moves.is_empty()) else { return };
        let (ticket, from, to) = moves.swap_remove(self.chance.below(moves.len() as u64) as usize);
        let arrives = self.chance.below(10) > 0;
        if arrives {
            self.copy(from, to);
        }
        self.failed += u64::from(!arrives);
        self.shard.moved(ticket, arrives);
        self.carry_out();
    }

    fn begin(&mut self) {
        self.shard.begin();
        if self.shard.is_due() {
            self.shard.step(&mut self.rng);
            self.carry_out();
        }
    }

    fn find(&mut self, key: u64) -> Option<Id> {
        let id = self.shard.memory().find(hash_of(key), key, &self.bytes)?;
        if !self.shard.is_expired(id) {
            return Some(id);
        }
        self.remove(id, key);
        None
    }

    fn remove(&mut self, id: Id, key: u64) {
        let loc = self.shard.forget(id, hash_of(key), &self.bytes);
        assert_eq!(self.bytes.0.remove(&loc).expect("a live item has bytes").key, key);
        self.wanted.remove(&key).expect("a live item is wanted");
    }

    fn set(&mut self, key: u64, bytes: u64, expires_at_ms: Option<u64>) {
        self.begin();
        let entry =
            Entry { hash: hash_of(key), bytes, expires_at_ms, tenant: (key % 3) as u16, is_newcomer: true };
        let old = self.find(key);
        match old {
            None => self.shard.enter(&entry, &mut self.rng),
            Some(old) if key.is_multiple_of(2) => self.shard.replace(old, &entry, &mut self.rng),
            Some(old) => self.shard.rewrite(old, &entry, &self.bytes, &mut self.rng),
        }
        self.carry_out();
        let mut entered = self.shard.entered();
        while entered == Entered::Waits {
            assert!(self.on_the_way.as_ref().is_some_and(|moves| !moves.is_empty()), "it waits for a move");
            self.arrive();
            entered = self.shard.entered();
        }
        match entered {
            Entered::Placed { loc, replaces, .. } => {
                if let Some(old) = replaces {
                    self.remove(old, key);
                }
                self.versions += 1;
                let version = self.versions;
                self.bytes.0.insert(loc, Cell { key, bytes, version });
                self.wanted.insert(key, Wanted { bytes, version, expires_at_ms });
            }
            Entered::Full { old_left } => {
                assert_eq!(self.wanted.contains_key(&key), old.is_some() && !old_left);
            }
            Entered::Waits => unreachable!(),
        }
    }

    fn check(&self) {
        let ladder = self.shard.ladder();
        assert_eq!(ladder.residents().items(), self.wanted.len() as u64);
        let mut bytes = vec![0; ladder.residents().levels()];
        for (&key, wanted) in &self.wanted {
            let id = self.shard.memory().find(hash_of(key), key, &self.bytes);
            let loc = ladder.residents().nodes().loc(id.unwrap_or_else(|| panic!("key {key} is lost")));
            let Wanted { bytes: len, version, expires_at_ms } = *wanted;
            assert_eq!(self.bytes.0[&loc], Cell { key, bytes: len, version });
            assert_eq!(id.and_then(|id| ladder.residents().nodes().expires_at_ms(id)), expires_at_ms);
            bytes[usize::from(loc.tier)] += len;
        }
        let counted: Vec<u64> =
            (0..ladder.residents().levels()).map(|tier| self.shard.memory().item_bytes(tier)).collect();
        assert_eq!(counted, bytes, "bytes add up");
    }

    fn run(&mut self, requests: u64) {
        for at in 0..requests {
            let key = self.chance.below(800);
            self.shard.set_clock(at);
            match self.chance.below(20) {
                0..=6 => {
                    self.begin();
                    if let Some(id) = self.find(key) {
                        self.shard.item(id).hit(None);
                    }
                }
                7..=15 => {
                    let bytes = match self.chance.below(200) {
                        // Some need many pages in a row.
                        0 => self.chance.below(12 * PAGE),
                        1..=10 => self.chance.below(2 * PAGE),
                        _ => self.chance.below(3000),
                    };
                    let expires = self.chance.below(4) == 0;
                    let expires_at_ms = expires.then(|| at + self.chance.below(1500));
                    if self.chance.below(2) == 0 {
                        self.shard.make_room(1 + bytes, &mut self.rng);
                        self.carry_out();
                        while !self.on_the_way.as_ref().is_none_or(Vec::is_empty) {
                            self.arrive();
                        }
                    }
                    self.set(key, 1 + bytes, expires_at_ms);
                }
                16..=17 => {
                    self.begin();
                    if let Some(id) = self.find(key) {
                        self.remove(id, key);
                    }
                }
                18 => {
                    self.shard.idle();
                    self.carry_out();
                }
                _ => self.arrive(),
            }
            if at.is_multiple_of(128) {
                self.check();
            }
        }
        self.check();
    }
}

fn configs() -> Vec<(&'static str, LadderConfig)> {
    let pages =
        |pages: &[u64]| LadderConfig::with_capacities(&pages.iter().map(|it| it * PAGE).collect::<Vec<_>>());
    let two = LadderConfig { charge_metadata: false, ..pages(&[16, 40]) };
    vec![
        ("one tier", LadderConfig { charge_metadata: false, ..pages(&[40]) }),
        ("three tiers", LadderConfig { charge_metadata: false, ..pages(&[12, 12, 40]) }),
        ("no watermarks", LadderConfig { watermarks: None, ..two.clone() }),
        ("drop", LadderConfig { reactive: Reactive::Drop, ..two.clone() }),
        ("promoting", LadderConfig { promotion: Promotion::Naive, promote_batch: 8, ..two.clone() }),
        ("tenants", LadderConfig { tenants: true, ..two.clone() }),
        ("nothing may go", LadderConfig { eviction: Eviction::Forbidden, ..two.clone() }),
        ("metadata charged", pages(&[48, 40])),
        ("default", two),
    ]
}

#[test]
fn every_key_has_the_bytes_that_were_written_last_whenever_moves_arrive() {
    for (name, config) in configs() {
        for late in [false, true] {
            for seed in 0..2 {
                println!("{name}, late: {late}, seed {seed}");
                let mut world = World::new(config.clone(), late, seed);
                world.run(2000);
                let [evicted, expired, ..] = world.left;
                assert!(expired > 0, "items expire");
                assert_eq!(evicted == 0, config.eviction == Eviction::Forbidden, "items are thrown out");
                assert!(!late || config.levels.len() == 1 || world.failed > 0, "moves fail");
            }
        }
    }
}

/// Capacity that is taken away and given back: what is above it leaves, a little in each step.
#[test]
fn a_tier_that_shrinks_gives_its_pages_back() {
    for (name, config) in configs() {
        let mut world = World::new(LadderConfig { growth: 2, ..config.clone() }, false, 9);
        world.run(1500);
        let (tier, capacity_bytes) =
            (config.levels.len() - 1, config.levels[config.levels.len() - 1].capacity_bytes);
        world.shard.configure(Change::Capacity { tier, bytes: capacity_bytes / 2 });
        let is_within = |world: &World| world.shard.ladder().residents().level(tier).is_within_capacity();
        for _ in 0..2000 {
            if !is_within(&world) {
                world.shard.step(&mut world.rng);
                world.carry_out();
            }
        }
        assert!(is_within(&world) || config.eviction == Eviction::Forbidden, "{name}");
        world.check();
        world.shard.configure(Change::Capacity { tier, bytes: capacity_bytes * 2 });
        world.run(1500);
    }
}

/// Where an item lies in the middle of a tier there may be no room for its new bytes beside the old ones, whatever else leaves.
#[test]
fn an_item_leaves_for_its_own_new_bytes_where_both_do_not_fit() {
    let mut world = World::new(configs().remove(0).1, false, 3);
    world.set(0, 11 * PAGE, None);
    world.set(1, 18 * PAGE, None);
    world.set(1, 19 * PAGE, None);
    assert_eq!(world.left[..3], [0, 0, 1], "nobody else goes in vain");
    assert_eq!(world.wanted[&1].bytes, 19 * PAGE);
    world.check();
}

/// Bytes of some pages are gone. Who is asked to move or to leave before that is known stays or leaves without them; then all on these
/// pages are out, and no others.
#[test]
fn items_of_lost_pages_are_out_and_all_others_stay() {
    let mut asked = [0; 2];
    for (name, config) in configs() {
        for seed in 0..8 {
            let mut world = World::new(config.clone(), false, seed);
            world.run(1500);
            let tier = (seed % config.levels.len() as u64) as u8;
            let pages = config.levels[usize::from(tier)].capacity_bytes / PAGE;
            let first = world.chance.below(pages) as u32;
            let lost = [first..first + 3, pages as u32 - 2..u32::MAX];
            let place_bytes = |world: &World, loc: &Loc| {
                world.shard.ladder().residents().level(usize::from(loc.tier)).place_bytes(loc.unit)
            };
            let is_lost = |world: &World, loc: &Loc| {
                let end = (loc.byte_offset() + place_bytes(world, loc)).div_ceil(PAGE) as u32;
                let on = (loc.byte_offset() / PAGE) as u32..end;
                loc.tier == tier && lost.iter().any(|lost| on.start < lost.end && lost.start < on.end)
            };
            world.shard.settle_moves();
            world.carry_out();
            let gone: Vec<Loc> = world.bytes.0.keys().filter(|loc| is_lost(&world, loc)).copied().collect();
            for loc in &gone {
                let cell = world.bytes.0.get_mut(loc).unwrap();
                (cell.version, cell.bytes) = (GONE, 8);
            }
            // Before it is known some of them are thrown out, or moved.
            for key in 10_000..10_200 {
                world.set(key, 700, None);
                world.begin();
            }
            asked[0] += world.left[Why::Lost as usize];
            world.shard.settle_moves();
            world.carry_out();
            let left = world.shard.lose_pages(tier, &lost, &world.bytes);
            asked[1] += left.len() as u64;
            for item in &left {
                let cell =
                    world.bytes.0.remove(&item.loc).unwrap_or_else(|| panic!("{name}: {item:?} was there"));
                assert!(hash_of(cell.key) >> 24 == item.hash >> 24 && !item.has_copy, "{name}: {item:?}");
                world.wanted.remove(&cell.key).unwrap();
            }
            assert!(world.bytes.0.values().all(|cell| cell.version != GONE), "{name}: all of them are out");
            world.check();
            world.run(1500);
        }
    }
    assert!(asked[0] > 0 && asked[1] > 100, "{asked:?}");
}

#[test]
fn nothing_is_there_after_all_was_removed() {
    let mut world = World::new(configs().remove(1).1, false, 5);
    world.run(2000);
    assert!(world.shard.clear());
    (world.bytes.0, world.wanted) = Default::default();
    world.check();
    world.run(2000);
}
