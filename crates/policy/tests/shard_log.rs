//! A shard over a log whose device answers whenever it likes: every key that nobody has said goodbye to is found with the bytes
//! that were written last, in memory or below; nothing is written over that is still needed; and what was decided is what was
//! decided when these counts were taken.

mod shard_world;

use std::collections::BTreeMap;

use shard_world::{Bytes, Cell, HEADER_BYTES, PAGE, SEGMENT_BYTES, Segment, hash_of, is_over};
use tiermem_base::Rng;
use tiermem_policy::Id;
use tiermem_policy::ladder::{LadderConfig, Loc, Ticket};
use tiermem_policy::log::{Admission, Appended, LOG_PAGE_BYTES, LogConfig, RESERVE};
use tiermem_policy::promote::Promotion;
use tiermem_policy::shard::{Act, Away, Entered, Entry, From, LogState, Shard, Staged, Why};

const SEGMENTS: u32 = 24;
const KEYS: u64 = 1500;

#[derive(Clone, Copy, Debug)]
struct Wanted {
    bytes: u64,
    version: u64,
    expires_at_ms: Option<u64>,
}

/// What was decided.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    /// By [`Why`], out of memory.
    left: [u64; 5],
    moves: u64,
    appended: u64,
    survived: u64,
    gone: u64,
    freed: u64,
    promoted: u64,
    full: u64,
    lapsed: u64,
    waits: u64,
    read_again: u64,
}

/// A segment that was emptied, and what of it is not safe elsewhere yet: segments, and the bytes of them that must be written.
#[derive(Clone, Debug)]
struct Emptied {
    segment: u32,
    needs: Vec<(u32, u32, u32)>,
}

#[derive(Debug)]
struct World {
    shard: Shard,
    bytes: Bytes,
    rng: Rng,
    chance: Rng,
    wanted: BTreeMap<u64, Wanted>,
    /// Moves whose bytes have not arrived; none where all answers come at once.
    on_the_way: Option<Vec<(Ticket, Loc, Loc)>>,
    reading: Option<u32>,
    emptied: Vec<Emptied>,
    lent: Vec<u32>,
    versions: u64,
    counts: Counts,
}

impl World {
    fn new(config: LadderConfig, admission: Admission, late: bool, seed: u64) -> Self {
        let log = LogConfig { segments: SEGMENTS, segment_bytes: SEGMENT_BYTES, admission, reserve: RESERVE };
        let mut shard = Shard::new(config, 0);
        shard.attach_log(LogState::new(log));
        let below = vec![Segment::default(); SEGMENTS as usize];
        World {
            shard,
            bytes: Bytes { below, ..Bytes::default() },
            rng: Rng::seeded(seed),
            chance: Rng::seeded(seed + 1),
            wanted: BTreeMap::new(),
            on_the_way: late.then(Vec::new),
            reading: None,
            emptied: Vec::new(),
            lent: Vec::new(),
            versions: 0,
            counts: Counts::default(),
        }
    }

    /// Whether a device that is late does something now.
    fn comes(&mut self) -> bool {
        self.on_the_way.is_none() || self.chance.below(3) == 0
    }

    fn carry_out(&mut self) {
        while let Some(act) = self.shard.next_act(&mut self.bytes, &mut self.rng) {
            match act {
                Act::Move { ticket, from, to, bytes, .. } => self.copy(ticket, from, to, bytes),
                Act::Settled { from, to, bytes, .. } => {
                    assert_eq!(self.bytes.here[&to].bytes, bytes, "it stands where its bytes are");
                    self.bytes.here.remove(&from);
                    self.counts.moves += 1;
                }
                Act::Leave { loc, hash, why, .. } => {
                    let cell = self.bytes.here.remove(&loc).expect("its bytes are there until the next act");
                    assert_eq!(hash_of(cell.key), hash);
                    self.counts.left[why as usize] += 1;
                    if why != Why::Stays {
                        self.say_goodbye(cell, why);
                    }
                }
                Act::Append { from, to, hash, bytes, replaced } => {
                    assert_eq!(
                        replaced, None,
                        "no two of these keys share 40 bits, and none lies there twice"
                    );
                    self.append(from, &to, hash, bytes);
                }
                Act::Seal { segment } => self.bytes.below[segment as usize].is_sealed = true,
                Act::Write { segment, start, end } => {
                    let it = &mut self.bytes.below[segment as usize];
                    assert_eq!(it.submitted, start, "a segment is written in order, once");
                    assert!(end <= it.used.next_multiple_of(LOG_PAGE_BYTES), "only what is there is written");
                    // The rest of a page that was written is lost.
                    (it.submitted, it.used) = (end, it.used.max(end));
                }
                Act::Read { segment } => {
                    let it = &self.bytes.below[segment as usize];
                    assert!(!it.is_filling && self.reading.is_none(), "what is read is on the device");
                    self.reading = Some(segment);
                }
                Act::Free { segment } => self.empty(segment),
                Act::Gone { hash, place, at, why, has_copy } => {
                    let (found, cell) = self.bytes.read(place.page(), hash).expect("what goes was there");
                    assert_eq!((found, hash_of(cell.key)), (at, hash));
                    self.counts.gone += 1;
                    if !has_copy {
                        self.say_goodbye(cell, why);
                    }
                }
                Act::Discard { .. } | Act::Populate { .. } => {}
            }
        }
    }

    fn copy(&mut self, ticket: Ticket, from: Loc, to: Loc, bytes: u64) {
        assert_eq!(self.bytes.here[&from].bytes, bytes);
        match &mut self.on_the_way {
            Some(moves) => moves.push((ticket, from, to)),
            None => {
                let cell = self.bytes.here[&from];
                self.bytes.here.insert(to, cell);
                self.shard.moved(ticket, true);
            }
        }
    }

    fn say_goodbye(&mut self, cell: Cell, why: Why) {
        let wanted = self.wanted.remove(&cell.key).expect("who leaves was there");
        assert_eq!(wanted.version, cell.version, "it is the last version that leaves");
        let over = is_over(wanted.expires_at_ms, self.bytes.now_ms);
        assert_eq!(over, why == Why::Expired || over && why != Why::Expired && why != Why::Stays);
        assert!(why != Why::Lost, "everything can be read");
    }

    fn append(&mut self, from: From, to: &Appended, hash: u64, bytes: u32) {
        let cell = match from {
            From::Memory { loc, expires_at_ms, .. } => {
                self.counts.appended += 1;
                let cell = self.bytes.here.remove(&loc).expect("its bytes are there until the next act");
                Cell { expires_at_ms, is_unchanged: false, ..cell }
            }
            From::Segment { segment, at } => {
                self.counts.survived += 1;
                self.bytes.below[segment as usize].items[&at]
            }
        };
        assert_eq!(hash_of(cell.key), hash);
        let it = &mut self.bytes.below[to.segment as usize];
        if it.sequence != to.sequence {
            assert!(!it.is_filling && self.emptied.iter().all(|emptied| emptied.segment != to.segment));
            assert!(!self.lent.contains(&to.segment), "what was lent is not filled");
            *it = Segment { sequence: to.sequence, is_filling: true, ..Segment::default() };
        }
        assert!(it.is_filling && !it.is_sealed && to.offset >= it.submitted && to.offset >= it.used);
        it.items.insert(to.offset, cell);
        it.used = to.offset + bytes;
        assert!(it.used <= SEGMENT_BYTES);
    }

    /// Nothing is needed of a segment once all that was appended by now is written.
    fn empty(&mut self, segment: u32) {
        let filling = (0..SEGMENTS).zip(&self.bytes.below).filter(|(_, it)| it.is_filling);
        let needs = filling.map(|(at, it)| (at, it.sequence, it.used)).collect();
        self.emptied.push(Emptied { segment, needs });
    }

    /// The device does some of what it was asked.
    fn device(&mut self) {
        let Bytes { below, .. } = &mut self.bytes;
        let mut written = Vec::new();
        for (at, it) in (0..SEGMENTS).zip(below.iter_mut()) {
            if it.is_filling && it.is_sealed && it.submitted >= it.used {
                written.push(at);
            }
        }
        for segment in written {
            if self.comes() {
                self.bytes.below[segment as usize].is_filling = false;
                self.shard.device().written(segment);
            }
        }
        if let Some(segment) = self.reading
            && self.comes()
        {
            self.reading = None;
            self.shard.device().arrived(segment, true);
        }
        let below = &self.bytes.below;
        let is_safe = |&(segment, sequence, used): &(u32, u32, u32)| {
            let it = &below[segment as usize];
            it.sequence != sequence || it.submitted >= used
        };
        let safe = |emptied: &Emptied| emptied.needs.iter().all(is_safe);
        let freed: Vec<u32> = self.emptied.iter().filter(|it| safe(it)).map(|it| it.segment).collect();
        for segment in freed {
            if self.comes() {
                self.emptied.retain(|it| it.segment != segment);
                self.shard.device().freed(segment);
                self.counts.freed += 1;
            }
        }
    }

    /// A piece of the log's own work; now and then a segment is borrowed.
    fn advance(&mut self) {
        self.device();
        match self.chance.below(400) {
            0..=2 => self.lent.extend(self.shard.device().lend_segment()),
            3..=6 => {
                if let Some(segment) = self.lent.pop() {
                    self.shard.device().give_back_segment(segment);
                }
            }
            7 => self.shard.device().write_out(false),
            _ => {}
        }
        self.carry_out();
        self.shard.advance(&mut self.rng);
        self.carry_out();
    }

    /// The bytes of some move arrive.
    fn arrive(&mut self) {
        let Some(moves) = self.on_the_way.as_mut().filter(|moves| !moves.is_empty()) else { return };
        let (ticket, from, to) = moves.swap_remove(self.chance.below(moves.len() as u64) as usize);
        if let Some(&cell) = self.bytes.here.get(&from) {
            self.bytes.here.insert(to, cell);
        }
        self.shard.moved(ticket, true);
        self.carry_out();
    }

    fn prepare(&mut self) {
        if self.shard.is_due() {
            self.shard.step(&mut self.rng);
            self.carry_out();
            self.advance();
        }
    }

    fn find(&mut self, key: u64) -> Option<Id> {
        let id = self.shard.memory().find(hash_of(key), key, &self.bytes)?;
        if !self.shard.is_expired(id) {
            return Some(id);
        }
        self.counts.lapsed += 1;
        self.shard.forget_copy(id, hash_of(key), &mut self.bytes);
        self.remove(id, key);
        None
    }

    fn remove(&mut self, id: Id, key: u64) {
        let loc = self.shard.forget(id, hash_of(key), &self.bytes);
        assert_eq!(self.bytes.here.remove(&loc).expect("a live item has bytes").key, key);
        self.wanted.remove(&key).expect("a live item is wanted");
    }

    /// The item of a key that lies below alone, read while others go on.
    fn recall(&mut self, key: u64) -> Option<Cell> {
        let hash = hash_of(key);
        while let Some(away) = self.shard.seek(hash, key, &self.bytes) {
            let Away { place, is_in_memory, .. } = away;
            let segment = (place.page() / (SEGMENT_BYTES / LOG_PAGE_BYTES)) as usize;
            assert_eq!(is_in_memory, self.bytes.below[segment].is_filling);
            let read = self.bytes.read(place.page(), hash).map(|(_, cell)| cell);
            // While the device reads, something else is done for a while.
            for _ in 0..if is_in_memory { 0 } else { self.chance.below(4) } {
                self.advance();
            }
            if self.shard.stage(&away) == Staged::Here {
                return read;
            }
            self.counts.read_again += 1;
        }
        None
    }

    fn get(&mut self, key: u64) {
        self.prepare();
        let staged = self.recall(key);
        self.shard.begin();
        if let Some(id) = self.find(key) {
            let loc = self.shard.ladder().residents().nodes().loc(id);
            assert_eq!(self.bytes.here[&loc].version, self.wanted[&key].version);
            self.shard.item(id).hit(None);
            return;
        }
        let Some(cell) = staged else { return };
        assert_eq!(
            (cell.key, cell.version),
            (key, self.wanted[&key].version),
            "the log has the last version"
        );
        let hash = hash_of(key);
        if is_over(cell.expires_at_ms, self.bytes.now_ms) {
            self.counts.lapsed += 1;
            self.shard.forget_below(hash).expect("it lay there");
            self.wanted.remove(&key);
            return;
        }
        if self.shard.hit_below(hash, cell.bytes) {
            let entry = Entry { hash, bytes: cell.bytes, expires_at_ms: cell.expires_at_ms, tenant: 0 };
            self.shard.enter(&entry, &mut self.rng);
            if let Entered::Placed { loc, .. } = self.entered() {
                // What made room may have thrown the copy out of the log, but not this item's: it does so in pieces of its own.
                self.bytes.here.insert(loc, Cell { is_unchanged: true, ..cell });
                self.shard.promoted();
                self.counts.promoted += 1;
            }
        }
    }

    fn entered(&mut self) -> Entered {
        self.carry_out();
        let mut entered = self.shard.entered();
        while entered == Entered::Waits {
            assert!(self.on_the_way.as_ref().is_some_and(|moves| !moves.is_empty()), "it waits for a move");
            self.arrive();
            entered = self.shard.entered();
        }
        self.counts.full += u64::from(matches!(entered, Entered::Full { .. }));
        entered
    }

    fn set(&mut self, key: u64, bytes: u64, expires_at_ms: Option<u64>) {
        self.prepare();
        for _ in 0..4096 {
            if self.shard.ladder().transit().outlet().must_wait() {
                self.counts.waits += 1;
                self.advance();
            }
        }
        self.shard.begin();
        let hash = hash_of(key);
        let entry = Entry { hash, bytes, expires_at_ms, tenant: 0 };
        let old = self.find(key);
        match old {
            None => self.shard.enter(&entry, &mut self.rng),
            Some(old) => {
                self.shard.forget_copy(old, hash, &mut self.bytes);
                match key.is_multiple_of(2) {
                    true => self.shard.replace(old, &entry, &mut self.rng),
                    false => self.shard.rewrite(old, &entry, &self.bytes, &mut self.rng),
                }
            }
        }
        if let Entered::Placed { loc, replaces, .. } = self.entered() {
            match (old, replaces) {
                (_, Some(old)) => self.remove(old, key),
                (None, _) => {
                    self.shard.forget_below(hash);
                }
                _ => {}
            }
            self.versions += 1;
            let version = self.versions;
            self.bytes.here.insert(loc, Cell { key, bytes, version, is_unchanged: false, expires_at_ms });
            self.wanted.insert(key, Wanted { bytes, version, expires_at_ms });
        }
    }

    fn delete(&mut self, key: u64) {
        self.prepare();
        let staged = self.recall(key);
        self.shard.begin();
        if let Some(id) = self.find(key) {
            self.shard.forget_copy(id, hash_of(key), &mut self.bytes);
            self.remove(id, key);
        } else if staged.is_some() && self.shard.forget_below(hash_of(key)).is_some() {
            self.wanted.remove(&key);
        }
    }

    fn check(&self) {
        let (ladder, memory) = (self.shard.ladder(), self.shard.memory());
        let mut held = vec![0; ladder.residents().levels()];
        let (mut here, mut below) = (0, 0);
        for (&key, wanted) in &self.wanted {
            let hash = hash_of(key);
            let copy = memory.place_below(hash).map(|place| {
                below += 1;
                let (_, cell) = self.bytes.read(place.page(), hash).expect("the index names what is there");
                cell
            });
            let Some(id) = memory.find(hash, key, &self.bytes) else {
                let cell = copy.unwrap_or_else(|| panic!("key {key} is lost"));
                assert_eq!((cell.key, cell.version, cell.bytes), (key, wanted.version, wanted.bytes));
                continue;
            };
            let loc = ladder.residents().nodes().loc(id);
            let cell = self.bytes.here[&loc];
            assert_eq!((cell.key, cell.version, cell.bytes), (key, wanted.version, wanted.bytes));
            assert_eq!(
                cell.is_unchanged,
                copy.is_some(),
                "key {key}: the log has it too, and only then it says so"
            );
            here += 1;
            held[usize::from(loc.tier)] += cell.bytes;
        }
        assert_eq!((here, below), (ladder.residents().items(), memory.items_below()), "nobody else is there");
        let counted: Vec<u64> =
            (0..ladder.residents().levels()).map(|tier| memory.item_bytes(tier)).collect();
        assert_eq!(counted, held, "bytes add up");
        assert_eq!(self.shard.log().expect("there is one").log().items(), below);
    }

    fn run(&mut self, requests: u64) {
        for at in (self.bytes.now_ms..).take(requests as usize) {
            self.bytes.now_ms = at;
            self.shard.set_clock(at);
            // Small numbers are the more frequent ones.
            let key = self.chance.below(KEYS) * self.chance.below(KEYS) / KEYS;
            match self.chance.below(20) {
                0..=8 => self.get(key),
                9..=16 => {
                    let bytes = HEADER_BYTES
                        + match self.chance.below(100) {
                            // Some need pages in a row, and some of these are too large for a segment.
                            0 => self.chance.below(8 * PAGE),
                            1..=9 => self.chance.below(PAGE / 2),
                            _ => self.chance.below(4000),
                        };
                    let expires = self.chance.below(5) == 0;
                    let expires_at_ms = expires.then(|| at + self.chance.below(3000));
                    if bytes > PAGE {
                        while !self.shard.make_room(bytes, &mut self.rng) {
                            self.carry_out();
                            while self.on_the_way.as_ref().is_some_and(|moves| !moves.is_empty()) {
                                self.arrive();
                            }
                        }
                        self.carry_out();
                    }
                    self.set(key, bytes, expires_at_ms);
                }
                17 => self.delete(key),
                18 => {
                    self.shard.idle();
                    self.carry_out();
                    self.advance();
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

fn config(fast_pages: u64, slow_pages: u64) -> LadderConfig {
    let config = LadderConfig::with_capacities(&[fast_pages * PAGE, slow_pages * PAGE]);
    LadderConfig { charge_metadata: false, promotion: Promotion::ReuseTime, promote_batch: 8, ..config }
}

impl Counts {
    /// All in a row: left (evicted, expired, replaced, stays, lost), moves, appended, survived, gone, freed, promoted, full, lapsed,
    /// waits, read again.
    fn row(&self) -> [u64; 15] {
        let [evicted, expired, replaced, stays, lost] = self.left;
        let Counts {
            moves, appended, survived, gone, freed, promoted, full, lapsed, waits, read_again, ..
        } = *self;
        let below = [appended, survived, gone, freed, promoted, full, lapsed, waits, read_again];
        let mut row = [0; 15];
        row[..6].copy_from_slice(&[evicted, expired, replaced, stays, lost, moves]);
        row[6..].copy_from_slice(&below);
        row
    }
}

/// What was decided over all seeds, with a device that answers at once and with one that is late. A change of a decision changes them:
/// whoever means to makes sure that it is for the better, and writes down the new ones.
const DECIDED: [(Admission, bool, [u64; 15]); 4] = [
    (Admission::All, false, [34, 105, 0, 6667, 0, 5362, 11761, 17366, 743, 509, 7066, 34, 176, 28305, 7]),
    (Admission::All, true, [41, 125, 0, 6413, 0, 5315, 11696, 17762, 1160, 557, 6802, 35, 176, 35163, 11]),
    (Admission::Seen, false, [38, 102, 0, 6656, 0, 5364, 11716, 17034, 719, 502, 7076, 35, 186, 27730, 7]),
    (Admission::Seen, true, [106, 118, 0, 6221, 0, 5225, 11553, 18754, 1292, 601, 6657, 38, 180, 38777, 14]),
];

#[test]
fn every_key_has_the_bytes_that_were_written_last_wherever_it_lies() {
    let mut decided = DECIDED;
    for (admission, late, row) in &mut decided {
        *row = [0; 15];
        for seed in 0..4 {
            println!("{admission:?}, late: {late}, seed {seed}");
            let mut world = World::new(config(8, 12), *admission, *late, seed);
            world.run(8000);
            let counts = world.counts.row();
            row.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let [evicted, expired, _, stays, _, moves, below @ ..] = *row;
        assert!([evicted, expired, stays, moves].iter().all(|&count| count > 0), "{row:?}");
        let [appended, survived, gone, freed, promoted, _, lapsed, _, read_again] = below;
        let works = [appended, survived, gone, freed, promoted, lapsed];
        assert!(works.iter().all(|&count| count > 0), "{row:?}");
        assert!(!*late || read_again > 0, "something moves while it is read");
    }
    assert_eq!(decided, DECIDED);
}

/// All that has expired leaves without a request, and nothing else does.
#[test]
fn what_has_expired_leaves_while_nobody_asks() {
    let mut world = World::new(config(8, 12), Admission::All, false, 11);
    world.run(500);
    let lasting = world.wanted.values().filter(|wanted| wanted.expires_at_ms.is_none()).count();
    assert!(lasting < world.wanted.len());
    let in_memory = world.shard.ladder().residents().nodes().items_with_expiry();
    assert!(in_memory > 0);
    world.bytes.now_ms = 1 << 20;
    world.shard.set_clock(1 << 20);
    for _ in 0..64 {
        world.shard.idle();
        world.carry_out();
    }
    assert_eq!(world.shard.ladder().residents().nodes().items_with_expiry(), 0);
    assert_eq!(world.counts.left[Why::Evicted as usize], 0);
    world.check();
}

/// Survivors wait for space, but not where none can come: then they go.
#[test]
fn the_log_goes_on_though_all_that_was_free_is_lent_for_good() {
    let mut world = World::new(config(8, 12), Admission::All, false, 12);
    world.run(4000);
    let lent: Vec<u32> = std::iter::from_fn(|| world.shard.device().lend_segment()).collect();
    assert!(lent.len() > 2, "there was something free");
    let before = world.counts.freed;
    world.run(4000);
    assert!(world.counts.freed > before + 20, "{} freed before, {} after", before, world.counts.freed);
}
