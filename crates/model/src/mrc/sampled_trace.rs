//! Sampled trace: the requests of a trace's sample, held so that any number of models can be run over them.

use std::collections::BinaryHeap;

use tiermem_base::hash::{Sample, sample_hash};
use tiermem_base::{Access, Interner, Op};
use tiermem_policy::flat::Request;

use super::Unit;
use super::distinct::Distinct;

/// Parts of a sample; its error is estimated from their differences.
pub(super) const PARTS: usize = 16;
/// Mark a removal and a write among the requests; numbers of keys stay below.
const REMOVAL: u32 = 1 << 31;
const WRITE: u32 = 1 << 30;
/// Takes both marks away.
const KEY: u32 = WRITE - 1;

/// The sampled requests and counts of a trace.
#[derive(Clone, Debug)]
pub(super) struct Gathered {
    sample: Sample,
    /// How many keys the sample may hold; the rate falls when it would hold more.
    keys_max: usize,
    /// Mixed into keys before hashing: another sample of the same rate.
    salt: u64,
    interner: Interner,
    /// By key number: the key, its hash, and its last size.
    keys: Vec<Key>,
    /// The keys of the sample by their hashes, largest first; only where their number is bounded.
    by_hash: BinaryHeap<(u64, u32)>,
    /// Key numbers, marked with [`REMOVAL`] or [`WRITE`] or not, and sizes.
    requests: Vec<(u32, u32)>,
    /// Look-ups and writes of the whole trace.
    pub total: u64,
    distinct: Distinct,
    /// Where windows end.
    pub marks: Vec<Mark>,
}

#[derive(Clone, Copy, Debug)]
struct Key {
    key: u64,
    hash: u64,
    size: u32,
}

/// The end of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mark {
    /// Requests held until then.
    pub at: usize,
    /// Requests of the whole trace until then.
    pub total: u64,
}

impl Gathered {
    pub fn new(rate: f64, keys_max: usize, seed: u64) -> Self {
        Gathered {
            sample: Sample::with_rate(rate),
            keys_max,
            salt: if seed == 0 { 0 } else { sample_hash(seed) },
            interner: Interner::new(),
            keys: Vec::new(),
            by_hash: BinaryHeap::new(),
            requests: Vec::new(),
            total: 0,
            distinct: Distinct::default(),
            marks: Vec::new(),
        }
    }

    /// Whether every key is held and always will be.
    fn is_certainly_whole(&self) -> bool {
        self.keys_max == usize::MAX && self.is_whole()
    }

    /// Whether every key is held.
    pub fn is_whole(&self) -> bool {
        self.sample.rate() >= 1.0
    }

    #[inline]
    pub fn access(&mut self, access: &Access) -> bool {
        let removal = access.op == Op::Del;
        self.total += u64::from(!removal);
        if self.is_certainly_whole() {
            return self.keep(access, 0);
        }
        let hash = sample_hash(access.key ^ self.salt);
        if !removal {
            self.distinct.insert(hash);
        }
        !self.sample.holds(hash) || self.keep(access, hash)
    }

    fn keep(&mut self, access: &Access, hash: u64) -> bool {
        let (key, size) = (access.key, access.size);
        if access.op == Op::Del {
            if let Some(id) = self.interner.get(key) {
                self.requests.push((id | REMOVAL, 0));
            }
            return true;
        }
        let (id, new) = self.interner.intern(key);
        if id > KEY {
            return false;
        }
        if new {
            self.keys.push(Key { key, hash, size });
        }
        // Logs do not say the sizes of what is read: 0 is no news.
        let known = &mut self.keys[id as usize].size;
        *known = if size == 0 { *known } else { size };
        let mark = if access.op.is_write() { WRITE } else { 0 };
        self.requests.push((id | mark, *known));
        if new && self.keys_max != usize::MAX {
            self.by_hash.push((hash, id));
            self.shrink();
        }
        true
    }

    /// Lowers the rate until the sample holds no more keys than it may. What it held of others goes when there is as much
    /// of that as of the rest.
    fn shrink(&mut self) {
        while self.by_hash.len() > self.keys_max {
            if let Some((hash, _)) = self.by_hash.pop() {
                self.sample = Sample::below(hash);
            }
        }
        if self.keys.len() > 2 * self.keys_max {
            self.settle();
        }
    }

    /// Forgets all that is not in the sample any more, and numbers the keys anew.
    fn settle(&mut self) {
        const GONE: u32 = u32::MAX;
        let mut interner = Interner::new();
        let number = |key: &Key| if self.sample.holds(key.hash) { interner.intern(key.key).0 } else { GONE };
        let numbers: Vec<u32> = self.keys.iter().map(number).collect();
        self.interner = interner;
        let sample = self.sample;
        self.keys.retain(|key| sample.holds(key.hash));
        self.by_hash = self.keys.iter().enumerate().map(|(id, key)| (key.hash, id as u32)).collect();
        let mut left = 0;
        let mut marks = self.marks.iter_mut().peekable();
        for at in 0..=self.requests.len() {
            while let Some(mark) = marks.next_if(|mark| mark.at == at) {
                mark.at = left;
            }
            let Some(&(marked, size)) = self.requests.get(at) else { break };
            let new = numbers[(marked & KEY) as usize];
            if new != GONE {
                self.requests[left] = (new | marked & !KEY, size);
                left += 1;
            }
        }
        self.requests.truncate(left);
    }

    pub fn end_window(&mut self) {
        if self.marks.last().is_none_or(|last| last.total < self.total) {
            self.marks.push(self.end());
        }
    }

    /// The ends of all windows, the last one at the end.
    pub fn ends(&self) -> Vec<Mark> {
        let mut ends = self.marks.clone();
        if ends.last().is_none_or(|last| last.total < self.total) {
            ends.push(self.end());
        }
        ends
    }

    /// Key numbers are below this.
    pub fn key_bound(&self) -> usize {
        self.keys.len()
    }

    /// Keys of the sample.
    pub fn keys_sampled(&self) -> usize {
        if self.keys_max == usize::MAX { self.keys.len() } else { self.by_hash.len() }
    }

    /// Distinct keys of the whole trace.
    pub fn keys_total(&self) -> f64 {
        if self.is_whole() { self.keys.len() as f64 } else { self.distinct.estimate() }
    }

    /// All keys at their last sizes.
    pub fn working_set(&self, unit: Unit) -> u64 {
        let objects = self.keys_total();
        match unit {
            Unit::Objects => objects.round() as u64,
            Unit::Bytes => {
                let held = self.keys.iter().filter(|key| self.sample.holds(key.hash));
                let sampled: u64 = held.map(|key| u64::from(key.size)).sum();
                (sampled as f64 * objects / self.keys_sampled().max(1) as f64).round() as u64
            }
        }
    }

    /// The requests from one mark to another that are in the sample still, in order. What a key's size was before it was
    /// first told is taken to be its last.
    pub fn requests(&self, from: usize, to: usize) -> impl Iterator<Item = Request> + '_ {
        let held = self.requests[from..to].iter().filter(|(marked, _)| self.holds(marked & KEY));
        held.map(|&(marked, size)| {
            let key = marked & KEY;
            let op = match marked & !KEY {
                REMOVAL => Op::Del,
                WRITE => Op::Set,
                _ => Op::Get,
            };
            Request { key, size: if size == 0 { self.keys[key as usize].size } else { size }, op }
        })
    }

    /// The end of all requests.
    pub fn end(&self) -> Mark {
        Mark { at: self.requests.len(), total: self.total }
    }

    #[inline]
    fn holds(&self, id: u32) -> bool {
        self.sample.holds(self.keys[id as usize].hash)
    }

    /// The part of a key.
    pub fn part(&self, id: u32) -> u8 {
        self.keys[id as usize].hash as u8 % PARTS as u8
    }
}
