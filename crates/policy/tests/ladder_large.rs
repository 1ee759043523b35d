//! Room for large items is made in pieces, between which everything else goes on.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::BTreeSet;

use tiermem_base::Rng;
use tiermem_policy::Now;
use tiermem_policy::ladder::{
    Act, Admit, Eviction, Ladder, LadderConfig, LevelCounters, NewItem, PAGE_BYTES, Watermarks,
};

struct World {
    ladder: Ladder,
    ids: BTreeSet<u32>,
    now: Now,
    rng: Rng,
    keys: u64,
}

impl World {
    /// Tiers full of small items.
    fn filled(pages: &[u64], eviction: Eviction, watermarks: Option<Watermarks>) -> Self {
        let capacities: Vec<u64> = pages.iter().map(|pages| pages * PAGE_BYTES).collect();
        let config = LadderConfig {
            charge_metadata: false,
            eviction,
            watermarks,
            ..LadderConfig::with_capacities(&capacities)
        };
        let mut world = World {
            ladder: Ladder::new(config),
            ids: BTreeSet::new(),
            now: Now { requests: 0, unix_ms: 1 },
            rng: Rng::seeded(1),
            keys: 0,
        };
        for _ in 0..pages.iter().sum::<u64>() * 1100 {
            world.admit(64);
        }
        world
    }

    fn execute(&mut self, acts: Vec<Act>) -> usize {
        for act in &acts {
            if let Act::Drop { id, .. } = act {
                assert!(self.ids.remove(&id.0));
            }
        }
        if let Some(last) = self.ladder.last_ticket() {
            self.ladder.done(last, true, |_| {});
        }
        acts.len()
    }

    /// Whether it came in, how often it had to ask again, and the most that was decided at once.
    fn admit(&mut self, bytes: u64) -> (bool, usize, usize) {
        self.now.requests += 1;
        self.keys += 1;
        let item = NewItem {
            key: self.keys.wrapping_mul(0x9E37_79B9_7F4A_7C15),
            bytes,
            expires_at_ms: None,
            rewrites: None,
        };
        let (mut again, mut acts_max) = (0, 0);
        loop {
            let mut acts = Vec::new();
            let answer = self.ladder.admit(&item, self.now, &mut self.rng, &mut acts);
            acts_max = acts_max.max(self.execute(acts));
            match answer {
                Admit::Ready { id, .. } => {
                    self.ids.insert(id.0);
                    break;
                }
                Admit::After(_) => {}
                Admit::Again => again += 1,
                Admit::Full => return (false, again, acts_max),
            }
        }
        if self.now.requests.is_multiple_of(16) {
            let mut acts = Vec::new();
            self.ladder.step(self.now, &mut self.rng, &mut acts);
            self.execute(acts);
        }
        (true, again, acts_max)
    }

    /// A piece; whether it was the last, and what was decided.
    fn prepare(&mut self, bytes: u64) -> (bool, usize) {
        let mut acts = Vec::new();
        let done = self.ladder.prepare(bytes, self.now, &mut self.rng, &mut acts);
        (done, self.execute(acts))
    }

    fn held(&self) -> u64 {
        self.ladder.items()
    }
}

const LARGE: u64 = 256 * PAGE_BYTES - 100;
/// Items that a piece may move or drop, and a few for a page that metadata needs.
const PIECE_MAX: usize = 300;

#[test]
fn the_room_is_made_in_pieces_while_small_items_come_and_go() {
    for watermarks in [None, Some(Watermarks::default())] {
        let mut world = World::filled(&[40, 600], Eviction::AllItems, watermarks);
        let before = world.held();
        let mut pieces = 0;
        loop {
            let (done, decided) = world.prepare(LARGE);
            assert!(decided <= PIECE_MAX, "{decided} at once");
            if done {
                break;
            }
            pieces += 1;
            assert!(pieces < 20_000, "it comes to an end");
            // They would take every page that they are given.
            for _ in 0..20 {
                let (came, _, acts) = world.admit(64);
                assert!(came && acts <= PIECE_MAX);
            }
        }
        assert!(pieces > 256 * 1000 / PIECE_MAX, "{pieces} pieces");
        assert_eq!(world.admit(LARGE), (true, 0, 0), "the room is there, and was given to nobody else");
        // No more had to go than lay there.
        assert!(before - world.held() < 256 * 1100, "{before} and then {}", world.held());
    }
}

#[test]
fn who_does_not_ask_beforehand_makes_the_same_pieces() {
    let mut world = World::filled(&[600], Eviction::AllItems, None);
    let (came, again, acts_max) = world.admit(LARGE);
    assert!(came && again > 500 && acts_max <= PIECE_MAX, "{again} times, {acts_max} at once");
    // The next one of its size takes its place, and no other goes.
    let held = world.held();
    assert!(world.prepare(LARGE).0);
    assert_eq!(world.admit(LARGE), (true, 0, 1));
    assert_eq!(world.held(), held);
}

#[test]
fn where_nothing_may_go_it_is_refused_after_a_few_tries() {
    let mut world = World::filled(&[40, 600], Eviction::Forbidden, None);
    let held = world.held();
    let (came, again, _) = world.admit(LARGE);
    assert!(!came && again < 200, "{again}");
    assert_eq!(world.held(), held);
    let pieces = (0..).take_while(|_| !world.prepare(LARGE).0).count();
    assert!(pieces < 200, "{pieces}");
    // And what was set aside for it is everybody's again.
    let LevelCounters { evictions, .. } = world.ladder.level(1);
    assert_eq!(evictions, 0);
}

#[test]
fn a_window_that_nobody_waits_for_is_given_up() {
    let mut world = World::filled(&[600], Eviction::AllItems, None);
    while world.held() > 500 * 1000 {
        assert!(!world.prepare(LARGE).0);
    }
    world.now.requests += 1 << 17;
    for _ in 0..150 * 1024 {
        assert!(world.admit(64).0);
    }
    assert!(world.held() > 590 * 1000, "all pages are used again: {}", world.held());
}
