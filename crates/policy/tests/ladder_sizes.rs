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
        let tenant = u16::from(key >= 1_000_000);
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
        eprintln!("NOROOM {bytes} at {}", now.requests); false
    }
}

/// How many points of hits, in hundredths, the worst of the windows lies below a list by bytes.
fn worst(config: LadderConfig, requests: &[(u64, u64)]) -> (i64, usize) {
    let capacity = config.levels.iter().map(|level| level.capacity_bytes).sum();
    let expected = hits_of_a_list(requests, capacity);
    let mut store = Store {
        ladder: Ladder::new(config),
        ids: HashMap::new(),
        keys: HashMap::new(),
        rng: Rng::seeded(7),
        acts_max: 0,
    };
    let mut hits = vec![0; expected.len()];
    for (number, &(key, bytes)) in (0..).zip(requests) {
        let now = Now { requests: number, ..Now::default() };
        hits[(number / WINDOW) as usize] += u32::from(store.is_hit(key, bytes, now));
    }
    let counts = |window: &usize| !SHIFTS.contains(&(*window as u64 * WINDOW));
    let below = (0..hits.len()).filter(counts).map(|window| i64::from(expected[window]) - i64::from(hits[window]));
    (below.max().unwrap(), store.acts_max)
}

#[test]
fn print() {
    let requests = requests();
    for mib in [8, 12, 16, 24, 32] {
        let one = || LadderConfig::with_capacities(&[mib << 20]);
        let order = |order| { let mut c = one(); c.levels[0].order = order; c };
        println!("{mib} lists {:?}", worst(one(), &requests));
        for k in [5, 10] { println!("{mib} samples {k} {:?}", worst(order(Order::Sample { k, by: Priority::Recency }), &requests)); }
        let two = || LadderConfig::with_capacities(&[(mib << 20) / 4, (mib << 20) / 4 * 3]);
        println!("{mib} two tiers {:?}", worst(two(), &requests));
        println!("{mib} two tiers, no watermarks {:?}", worst(LadderConfig { watermarks: None, ..two() }, &requests));
        println!("{mib} tenants {:?}", worst(LadderConfig { tenants: true, ..one() }, &requests));
        println!("{mib} tenants, two tiers {:?}", worst(LadderConfig { tenants: true, ..two() }, &requests));
    }
}
