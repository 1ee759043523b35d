//! The shard, its driver, and the bytes that every key must have.

use std::collections::BTreeMap;

use crate::counts::Counts;
use crate::restart::Restart;
use crate::shard_world::{Bytes, Cell, HEADER_BYTES, PAGE, SEGMENT_BYTES, Segment, hash_of, is_over};
use tiermem_base::Rng;
use tiermem_policy::Id;
use tiermem_policy::ladder::{LadderConfig, Loc, Ticket};
use tiermem_policy::log::{Admission, Appended, LOG_PAGE_BYTES, LogConfig, RESERVE};
use tiermem_policy::shard::{Act, Away, Duty, Entered, Entry, From, LogState, Settling, Shard, Staged, Why};

const SEGMENTS: u32 = 24;
const KEYS: u64 = 1500;
/// Few enough that checkpoints follow each other.
const JOURNAL_RECORDS: u64 = 1024;

#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub bytes: u64,
    pub version: u64,
    pub expires_at_ms: Option<u64>,
}

#[derive(Debug)]
pub struct World {
    pub shard: Shard,
    pub bytes: Bytes,
    pub rng: Rng,
    pub chance: Rng,
    pub wanted: BTreeMap<u64, Wanted>,
    /// Moves whose bytes have not arrived; none where all answers come at once.
    pub on_the_way: Option<Vec<(Ticket, Loc, Loc)>>,
    pub reading: Option<u32>,
    /// Parts of a checkpoint that are being written, and what waits until something is safe.
    pub parts: u64,
    pub settling: Vec<Settling>,
    /// Whether some of them cannot be written.
    pub parts_fail: bool,
    pub restart: Restart,
    pub versions: u64,
    pub counts: Counts,
}

impl World {
    pub fn new(config: LadderConfig, admission: Admission, late: bool, seed: u64) -> Self {
        let log = log_config(admission, JOURNAL_RECORDS);
        World::over(LogState::new(log), config, late, seed)
    }

    pub fn over(state: LogState, config: LadderConfig, late: bool, seed: u64) -> Self {
        let mut shard = Shard::new(config, 0);
        shard.attach_log(state);
        let below = vec![Segment::default(); SEGMENTS as usize];
        World {
            shard,
            bytes: Bytes { below, ..Bytes::default() },
            rng: Rng::seeded(seed),
            chance: Rng::seeded(seed + 1),
            wanted: BTreeMap::new(),
            on_the_way: late.then(Vec::new),
            reading: None,
            parts: 0,
            settling: Vec::new(),
            parts_fail: false,
            restart: Restart::new(),
            versions: 0,
            counts: Counts::default(),
        }
    }

    /// Whether a device that is late does something now.
    pub fn comes(&mut self) -> bool {
        self.on_the_way.is_none() || self.chance.below(3) == 0
    }

    pub fn carry_out(&mut self) {
        while let Some(act) = self.shard.next_act(&mut self.bytes, &mut self.rng) {
            match act {
                Act::Move { ticket, from, to, bytes, .. } => self.copy(ticket, from, to, bytes),
                Act::Settled { from, to, bytes, .. } => {
                    assert_eq!(self.bytes.here[&to].bytes, bytes, "it stands where its bytes are");
                    self.bytes.here.remove(&from);
                    self.counts.moves += 1;
                }
                Act::Leave { loc, hash, why, below, .. } => {
                    below.into_iter().for_each(|place| self.restart.remove(hash, place, &mut self.shard));
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
                Act::Free { .. } => {}
                Act::Gone { hash, place, at, why, has_copy } => {
                    self.restart.remove(hash, place, &mut self.shard);
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

    pub fn copy(&mut self, ticket: Ticket, from: Loc, to: Loc, bytes: u64) {
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

    pub fn say_goodbye(&mut self, cell: Cell, why: Why) {
        let wanted = self.wanted.remove(&cell.key).expect("who leaves was there");
        assert_eq!(wanted.version, cell.version, "it is the last version that leaves");
        let over = is_over(wanted.expires_at_ms, self.bytes.now_ms);
        assert_eq!(over, why == Why::Expired || over && why != Why::Expired && why != Why::Stays);
        assert!(why != Why::Lost, "everything can be read");
    }

    pub fn append(&mut self, from: From, to: &Appended, hash: u64, bytes: u32) {
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
        let is_begun = self.bytes.below[to.segment as usize].sequence != to.sequence;
        if is_begun {
            let needed = self.restart.segments(SEGMENT_BYTES / LOG_PAGE_BYTES);
            assert!(!needed.contains(&to.segment), "a restart would begin with what is written over");
            self.restart.open(&mut self.shard);
        }
        let it = &mut self.bytes.below[to.segment as usize];
        if is_begun {
            assert!(!it.is_filling);
            *it = Segment { sequence: to.sequence, is_filling: true, ..Segment::default() };
        }
        assert!(it.is_filling && !it.is_sealed && to.offset >= it.submitted && to.offset >= it.used);
        it.items.insert(to.offset, cell);
        it.used = to.offset + bytes;
        assert!(it.used <= SEGMENT_BYTES);
    }

    /// The device does some of what it was asked.
    pub fn device(&mut self) {
        for segment in 0..SEGMENTS {
            let Segment { is_filling, submitted, .. } = self.bytes.below[segment as usize];
            if is_filling && self.comes() {
                self.bytes.below[segment as usize].safe = submitted;
                self.shard.device().note_safe(segment, submitted);
            }
        }
        if let Some(segment) = self.reading
            && self.comes()
        {
            self.reading = None;
            self.shard.device().arrived(segment, true);
        }
        for _ in 0..self.parts {
            if self.comes() {
                self.parts -= 1;
                let is_written = !self.parts_fail || self.chance.below(3) > 0;
                if !is_written {
                    self.restart.give_up_checkpoint();
                }
                self.shard.device().part_written(is_written);
            }
        }
        self.shard.device().announce();
        self.carry_out_duties();
        for settling in std::mem::take(&mut self.settling) {
            match self.comes() {
                true => self.settled(settling),
                false => self.settling.push(settling),
            }
        }
        self.carry_out_duties();
    }

    pub fn settled(&mut self, settling: Settling) {
        self.counts.freed += u64::from(matches!(settling, Settling::Emptied { .. }));
        self.counts.checkpoints += u64::from(settling == Settling::Name);
        if settling == Settling::Name {
            self.restart.note_named();
        }
        self.shard.device().settled(settling);
    }

    pub fn carry_out_duties(&mut self) {
        while let Some(duty) = self.shard.device().next_duty() {
            match duty {
                Duty::Announce { segment, at, hash, place, .. } => {
                    let it = &self.bytes.below[segment as usize];
                    let cell = it.items[&at];
                    let end = u64::from(at) + self.bytes.below_bytes(&cell);
                    assert!(end <= u64::from(it.safe), "what is announced is on the device");
                    assert_eq!(hash_of(cell.key), hash);
                    self.restart.add(hash, place, &mut self.shard);
                }
                Duty::Release { segment } => {
                    let it = &mut self.bytes.below[segment as usize];
                    assert!(
                        it.is_filling && it.is_sealed && it.safe >= it.used,
                        "all of it is on the device"
                    );
                    it.is_filling = false;
                }
                Duty::Settle(settling) => self.settling.push(settling),
                Duty::WritePart { segment, next } => {
                    let it = &self.bytes.below[segment as usize];
                    assert!(!it.is_filling, "what is borrowed is not filled");
                    self.restart.write_part(segment, next);
                    self.parts += 1;
                }
                Duty::Name { first, .. } => {
                    assert_eq!(self.parts, 0, "what is named is written");
                    self.restart.name(first);
                    self.shard.device().named(true);
                }
            }
        }
    }

    /// A piece of the log's own work.
    pub fn advance(&mut self) {
        self.device();
        if self.chance.below(400) == 0 {
            self.shard.device().write_out(false);
        }
        self.carry_out();
        self.shard.advance(&mut self.rng);
        self.carry_out();
        self.shard.device().step_checkpoint(&mut self.restart);
        self.carry_out_duties();
        self.carry_out();
    }

    /// The bytes of some move arrive.
    pub fn arrive(&mut self) {
        let Some(moves) = self.on_the_way.as_mut().filter(|moves| !moves.is_empty()) else { return };
        let (ticket, from, to) = moves.swap_remove(self.chance.below(moves.len() as u64) as usize);
        if let Some(&cell) = self.bytes.here.get(&from) {
            self.bytes.here.insert(to, cell);
        }
        self.shard.moved(ticket, true);
        self.carry_out();
    }

    pub fn prepare(&mut self) {
        if self.shard.is_due() {
            self.shard.step(&mut self.rng);
            self.carry_out();
            self.advance();
        }
    }

    pub fn find(&mut self, key: u64) -> Option<Id> {
        let id = self.shard.memory().find(hash_of(key), key, &self.bytes)?;
        if !self.shard.is_expired(id) {
            return Some(id);
        }
        self.counts.lapsed += 1;
        self.forget_copy(id, key);
        self.remove(id, key);
        None
    }

    pub fn forget_copy(&mut self, id: Id, key: u64) {
        if let Some(place) = self.shard.forget_copy(id, hash_of(key), &mut self.bytes) {
            self.restart.remove(hash_of(key), place, &mut self.shard);
        }
    }

    /// Whether the log had something of a key.
    pub fn forget_below(&mut self, key: u64) -> bool {
        let place = self.shard.forget_below(hash_of(key));
        place.into_iter().for_each(|place| self.restart.remove(hash_of(key), place, &mut self.shard));
        place.is_some()
    }

    pub fn remove(&mut self, id: Id, key: u64) {
        let loc = self.shard.forget(id, hash_of(key), &self.bytes);
        assert_eq!(self.bytes.here.remove(&loc).expect("a live item has bytes").key, key);
        self.wanted.remove(&key).expect("a live item is wanted");
    }

    /// The item of a key that lies below alone, read while others go on.
    pub fn recall(&mut self, key: u64) -> Option<Cell> {
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

    pub fn get(&mut self, key: u64) {
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
            assert!(self.forget_below(key), "it lay there");
            self.wanted.remove(&key);
            return;
        }
        if self.shard.hit_below(hash, cell.bytes) {
            let entry = Entry {
                hash,
                bytes: cell.bytes,
                expires_at_ms: cell.expires_at_ms,
                tenant: 0,
                is_newcomer: true,
            };
            self.shard.enter(&entry, &mut self.rng);
            if let Entered::Placed { loc, .. } = self.entered() {
                // What made room may have thrown the copy out of the log, but not this item's: it does so in pieces of its own.
                self.bytes.here.insert(loc, Cell { is_unchanged: true, ..cell });
                self.shard.promoted();
                self.counts.promoted += 1;
            }
        }
    }

    pub fn entered(&mut self) -> Entered {
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

    pub fn set(&mut self, key: u64, bytes: u64, expires_at_ms: Option<u64>) {
        self.prepare();
        for _ in 0..4096 {
            if self.shard.ladder().transit().outlet().must_wait() {
                self.counts.waits += 1;
                self.advance();
            }
        }
        self.shard.begin();
        let hash = hash_of(key);
        let entry = Entry { hash, bytes, expires_at_ms, tenant: 0, is_newcomer: true };
        let old = self.find(key);
        match old {
            None => self.shard.enter(&entry, &mut self.rng),
            Some(old) => {
                self.forget_copy(old, key);
                match key.is_multiple_of(2) {
                    true => self.shard.replace(old, &entry, &mut self.rng),
                    false => self.shard.rewrite(old, &entry, &self.bytes, &mut self.rng),
                }
            }
        }
        if let Entered::Placed { loc, replaces, .. } = self.entered() {
            match (old, replaces) {
                (_, Some(old)) => self.remove(old, key),
                (None, _) => _ = self.forget_below(key),
                _ => {}
            }
            self.versions += 1;
            let version = self.versions;
            self.bytes.here.insert(loc, Cell { key, bytes, version, is_unchanged: false, expires_at_ms });
            self.wanted.insert(key, Wanted { bytes, version, expires_at_ms });
        }
    }

    pub fn delete(&mut self, key: u64) {
        self.prepare();
        let staged = self.recall(key);
        self.shard.begin();
        if let Some(id) = self.find(key) {
            self.forget_copy(id, key);
            self.remove(id, key);
        } else if staged.is_some() && self.forget_below(key) {
            self.wanted.remove(&key);
        }
    }

    pub fn check(&self) {
        let (ladder, memory) = (self.shard.ladder(), self.shard.memory());
        let mut held = vec![0; ladder.residents().levels()];
        let (mut here, mut below) = (0, 0);
        for (&key, wanted) in &self.wanted {
            let hash = hash_of(key);
            let copy = memory.keys().place_below(hash).map(|place| {
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
        assert_eq!(
            (here, below),
            (ladder.residents().items(), memory.keys().items_below()),
            "nobody else is there"
        );
        let counted: Vec<u64> =
            (0..ladder.residents().levels()).map(|tier| memory.item_bytes(tier)).collect();
        assert_eq!(counted, held, "bytes add up");
        assert_eq!(self.shard.log().expect("there is one").log().items(), below);
        self.check_restart();
    }

    /// A restart would find the last version of every key of which it was told, and those that it was not told of are being filled.
    pub fn check_restart(&self) {
        let Some(found) = self.restart.replay() else {
            assert!(self.shard.log().is_some_and(|work| work.checkpoints().is_blank()));
            return;
        };
        let versions: BTreeMap<u64, u64> =
            self.wanted.iter().map(|(key, wanted)| (hash_of(*key) >> 24, wanted.version)).collect();
        for (&hash, &place) in &found {
            let (_, cell) = self.bytes.read(place.page(), hash << 24).expect("what was announced is there");
            assert_eq!(
                Some(&cell.version),
                versions.get(&hash),
                "no key comes back, and none is an older one"
            );
        }
        for key in self.wanted.keys() {
            let hash = hash_of(*key);
            if let Some(place) = self.shard.memory().keys().place_below(hash)
                && !found.contains_key(&(hash >> 24))
            {
                let segment = place.page() / (SEGMENT_BYTES / LOG_PAGE_BYTES);
                assert!(self.bytes.below[segment as usize].is_filling, "key {key} is not announced");
            }
        }
    }

    pub fn run(&mut self, requests: u64) {
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

pub fn log_config(admission: Admission, journal_records: u64) -> LogConfig {
    LogConfig {
        segments: SEGMENTS,
        segment_bytes: SEGMENT_BYTES,
        admission,
        reserve: RESERVE,
        journal_records,
    }
}
