//! Sizes that change: memory goes to the items that are used, whatever their size, as in one list of all items by last use.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap};

use tiermem_base::Rng;
use tiermem_policy::ladder::{Act, Admit, Ladder, LadderConfig, NewItem, Order, Priority};
use tiermem_policy::{Id, Now};

const REQUESTS: u64 = 200_000;
const WINDOW: u64 = 10_000;
/// Where the sizes change. Of the windows that follow one the first does not count.
const SHIFTS: [u64; 4] = [0, 60_000, 80_000, 140_000];
/// Decisions made at once at most: a piece of the room for a large item, and what it costs others.
const ACTS_MAX: usize = 600;
/// Bytes that a store adds to an item, in the list that it is compared with.
const OVERHEAD: u64 = 56;

/// Small values, large ones, small again, both: key and bytes of each request.
fn requests() -> Vec<(u64, u64)> {
    let mut rng = Rng::seeded(1);
    let request = |number| {
        let is_large = match number {
            0..60_000 | 80_000..140_000 => false,
            60_000..80_000 => true,
            _ => rng.below(50) == 0,
        };
        if is_large { (1_000_000 + rng.below(60), 400_000) } else { (rng.below(20_000), 1000) }
    };
    (0..REQUESTS).map(request).collect()
}

/// The hits in each window of a list of all items by last use, which holds so many bytes.
fn hits_of_a_list(requests: &[(u64, u64)], capacity: u64) -> Vec<u32> {
    let (mut by_use, mut used) = (BTreeMap::new(), HashMap::new());
    let (mut held, mut hits) = (0, vec![0; (REQUESTS / WINDOW) as usize]);
    for (now, &(key, bytes)) in requests.iter().enumerate() {
        if let Some(before) = used.insert(key, now) {
            by_use.remove(&before);
            hits[now / WINDOW as usize] += 1;
        } else {
            held += bytes + OVERHEAD;
        }
        by_use.insert(now, (key, bytes));
        while held > capacity {
            let (_, (key, bytes)) = by_use.pop_first().unwrap();
            used.remove(&key);
            held -= bytes + OVERHEAD;
        }
    }
    hits
}

/// A ladder whose moves are done at once, and that is asked for a value before it is given.
struct Store {
    ladder: Ladder,
    ids: HashMap<u64, Id>,
    keys: HashMap<Id, u64>,
    rng: Rng,
    /// The most that was decided at once.
    acts_max: usize,
    refused: u32,
}

impl Store {
    fn carry_out(&mut self, acts: Vec<Act>) {
        self.acts_max = self.acts_max.max(acts.len());
        for act in acts {
            if let Act::Drop { id, .. } = act {
                let key = self.keys.remove(&id).unwrap();
                self.ids.remove(&key);
            }
        }
        if let Some(last) = self.ladder.transit().last_ticket() {
            self.ladder.done(last, true, |_| {});
        }
    }

    fn is_hit(&mut self, key: u64, bytes: u64, now: Now) -> bool {
        let mut acts = Vec::new();
        if self.ladder.is_due(now) {
            self.ladder.step(now, &mut self.rng, &mut acts);
            self.carry_out(acts);
        }
        if let Some(&id) = self.ids.get(&key) {
            self.ladder.hit(None, id, now);
            return true;
        }
        let bytes = bytes + 14;
        loop {
            let mut acts = Vec::new();
            let is_ready = self.ladder.prepare(bytes, now, &mut self.rng, &mut acts);
            self.carry_out(acts);
            if is_ready {
                break;
            }
        }
        // Each has items of both sizes.
        let tenant = (key % 2) as u16;
        let item = NewItem { key, bytes, expires_at_ms: None, rewrites: None, tenant, is_newcomer: true };
        for _ in 0..100 {
            let mut acts = Vec::new();
            let answer = self.ladder.admit(&item, now, &mut self.rng, &mut acts);
            self.carry_out(acts);
            match answer {
                Admit::Ready { id, .. } => {
                    self.ids.insert(key, id);
                    self.keys.insert(id, key);
                    return false;
                }
                Admit::Full => break,
                Admit::After(_) | Admit::Again => {}
            }
        }
        eprintln!("NOROOM {bytes} at {}", now.requests);
        false
    }
}

/// How many points of hits, in hundredths, the worst of the windows lies below a list by bytes. No item is refused, and nothing is
/// decided in pieces that a request would wait for.
fn worst(config: LadderConfig, requests: &[(u64, u64)], expected: &[u32]) -> i64 {
    let mut store = Store {
        ladder: Ladder::new(config),
        ids: HashMap::new(),
        keys: HashMap::new(),
        rng: Rng::seeded(7),
        acts_max: 0,
        refused: 0,
    };
    let mut hits = vec![0; expected.len()];
    for (number, &(key, bytes)) in (0..).zip(requests) {
        let now = Now { requests: number, ..Now::default() };
        hits[(number / WINDOW) as usize] += i64::from(store.is_hit(key, bytes, now));
    }
    assert_eq!(store.refused, 0);
    assert!(store.acts_max <= ACTS_MAX, "{} at once", store.acts_max);
    let counts = |window: &usize| !SHIFTS.contains(&(*window as u64 * WINDOW));
    let below = (0..hits.len()).filter(counts).map(|window| i64::from(expected[window]) - hits[window]);
    below.max().unwrap() * 10_000 / WINDOW as i64
}

/// The worst window of each configuration, at several sizes. What more than one point is comes from the places of large items: each of
/// several tiers or tenants holds whole ones, and where small and large ones share a sampled tier, pages are filled in part where a
/// run of them ends.
#[test]
fn no_window_lies_clearly_below_a_list_by_bytes() {
    let requests = requests();
    let mut is_worse = false;
    for mib in [8, 12, 16, 24, 32] {
        let bytes = mib << 20;
        let expected = hits_of_a_list(&requests, bytes);
        // The list is charged with what an item costs beside its bytes.
        let over = |capacities: &[u64]| LadderConfig {
            charge_metadata: false,
            ..LadderConfig::with_capacities(capacities)
        };
        let sampled = |k| {
            let mut config = over(&[bytes]);
            config.levels[0].order = Order::Sample { k, by: Priority::Recency };
            config
        };
        let (one, two) = (over(&[bytes]), over(&[bytes / 4, bytes / 4 * 3]));
        let of_tenants = |config: &LadderConfig| LadderConfig { tenants: true, ..config.clone() };
        let mut no_worse = |name: &str, config: LadderConfig, points_hundredths: i64| {
            let worst = worst(config, &requests, &expected);
            println!("{mib} MiB, {name}: {worst} hundredths of a point below");
            is_worse |= worst > points_hundredths;
        };
        no_worse("tenants", of_tenants(&one), 300);
        no_worse("tenants, two tiers", of_tenants(&two), 400);
        no_worse("samples of 5", sampled(5), 300);
        no_worse("samples of 10", sampled(10), 400);
        if mib == 32 {
            // Slowly: below, hardly anything leaves for what comes down. If nothing of other sizes did, it were 33 points.
            no_worse("two tiers, no watermarks", LadderConfig { watermarks: None, ..two.clone() }, 2500);
        }
        no_worse("two tiers", two, 300);
        no_worse("one tier", one, 220);
    }
    assert!(!is_worse);
}
