//! Table of accesses by granule, slice and kind, in bounded memory.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use tiermem_base::Op;
use tiermem_trace::recording::{Level, Mode};

/// What accesses have to share to be counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    /// The process that accessed; 0 where only one process is observed.
    pub pid: u32,
    /// Slices from the one of the first access that was seen; those before it are negative.
    pub slice: i64,
    /// The address over the table's granule.
    pub granule: u64,
    /// [`Kind::code`].
    kind: u8,
}

/// What kind of access it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub op: Op,
    pub level: Level,
    pub mode: Mode,
}

impl Kind {
    fn code(self) -> u8 {
        u8::from(self.op == Op::Store) | (self.level as u8) << 1 | (self.mode as u8) << 3
    }
}

impl Key {
    /// Kind of access to the granule.
    pub fn kind(&self) -> Kind {
        let op = if self.kind & 1 == 1 { Op::Store } else { Op::Load };
        // Both codes have two bits and come from `code`.
        let level = Level::ALL[usize::from(self.kind >> 1 & 3)];
        let mode = Mode::ALL.get(usize::from(self.kind >> 3)).copied().unwrap_or_default();
        Kind { op, level, mode }
    }
}

/// How often, and how long it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Accesses.
    pub accesses: u64,
    /// Accesses with a known duration, and the cycles of all of them together.
    pub timed: u64,
    pub cycles: u64,
}

impl Count {
    fn add(&mut self, other: Count) {
        self.accesses += other.accesses;
        self.timed += other.timed;
        self.cycles = self.cycles.saturating_add(other.cycles);
    }

    /// Mean cycles of an access; 0 where that is not known.
    pub fn mean_cycles(&self) -> f32 {
        if self.timed == 0 { 0.0 } else { (self.cycles as f64 / self.timed as f64) as f32 }
    }
}

/// The table. When it is full its granule doubles, and what then falls together is added up, until there is room: a finer
/// picture than memory has room for cannot be had.
#[derive(Debug)]
pub(super) struct Table {
    counts: HashMap<Key, Count, FixedState>,
    granule_bits: u32,
    entries_max: usize,
}

/// The coarsest granule, 1 GiB: the bytes of a sample are a number of 32 bits.
const GRANULE_BITS_MAX: u32 = 30;

impl Table {
    /// An empty table; `granule_bytes` is a power of two.
    pub fn new(granule_bytes: u64, entries_max: usize) -> Self {
        let granule_bits = granule_bytes.max(1).ilog2().min(GRANULE_BITS_MAX);
        Table { counts: HashMap::default(), granule_bits, entries_max: entries_max.max(1) }
    }

    /// Bytes of a granule, by now.
    pub fn granule_bytes(&self) -> u64 {
        1 << self.granule_bits
    }

    /// Whether there is more in it than it has room for, since no granule is coarse enough: too many slices or processes.
    pub fn is_overfull(&self) -> bool {
        self.counts.len() > self.entries_max
    }

    /// Counts one access. `cycles` is 0 where it is not known.
    #[inline]
    pub fn add(&mut self, pid: u32, slice: i64, address: u64, kind: Kind, cycles: u64) {
        let key = Key { pid, slice, granule: address >> self.granule_bits, kind: kind.code() };
        let count = Count { accesses: 1, timed: u64::from(cycles > 0), cycles };
        self.counts.entry(key).or_default().add(count);
        if self.counts.len() > self.entries_max {
            self.make_room();
        }
    }

    /// Doubles the granule until at least an eighth is free, so that this does not happen again at once.
    #[cold]
    fn make_room(&mut self) {
        while self.counts.len() > self.entries_max - self.entries_max / 8
            && self.granule_bits < GRANULE_BITS_MAX
        {
            self.coarsen(self.granule_bits + 1);
        }
    }

    fn coarsen(&mut self, granule_bits: u32) {
        let shift = granule_bits - self.granule_bits;
        for (key, count) in std::mem::take(&mut self.counts) {
            let key = Key { granule: key.granule >> shift, ..key };
            self.counts.entry(key).or_default().add(count);
        }
        self.granule_bits = granule_bits;
    }

    /// Adds what another table has counted; the coarser granule of both holds.
    pub fn merge(&mut self, mut other: Table) {
        let granule_bits = self.granule_bits.max(other.granule_bits);
        for table in [&mut *self, &mut other] {
            if table.granule_bits < granule_bits {
                table.coarsen(granule_bits);
            }
        }
        if self.counts.len() < other.counts.len() {
            std::mem::swap(&mut self.counts, &mut other.counts);
        }
        for (key, count) in other.counts {
            self.counts.entry(key).or_default().add(count);
        }
        if self.counts.len() > self.entries_max {
            self.make_room();
        }
    }

    /// Everything, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Count)> {
        self.counts.iter()
    }

    /// Everything that `takes` agrees to, in the order of slices, then of addresses.
    pub fn into_sorted(self, mut takes: impl FnMut(&Key) -> bool) -> Vec<(Key, Count)> {
        let mut sorted: Vec<_> = self.counts.into_iter().filter(|(key, _)| takes(key)).collect();
        sorted.sort_unstable_by_key(|(key, _)| (key.slice, key.granule, key.kind, key.pid));
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const LOAD: Kind = Kind { op: Op::Load, level: Level::Cache, mode: Mode::User };

    #[test]
    fn kinds_are_kept() {
        for op in [Op::Load, Op::Store] {
            for level in Level::ALL {
                for mode in Mode::ALL {
                    let mut table = Table::new(4096, 10);
                    table.add(7, -3, 0x5000, Kind { op, level, mode }, 9);
                    let (key, count) = table.into_sorted(|_| true)[0];
                    assert_eq!((key.pid, key.slice, key.granule), (7, -3, 5));
                    assert_eq!(key.kind(), Kind { op, level, mode });
                    assert_eq!((count.accesses, count.mean_cycles()), (1, 9.0));
                }
            }
        }
    }

    #[test]
    fn a_full_table_gets_coarser_and_loses_nothing() {
        let mut table = Table::new(64, 100);
        (0..1000).for_each(|at| table.add(0, 0, at * 64, LOAD, at % 2));
        assert!(table.granule_bytes() >= 1024 && table.counts.len() <= 100);
        let all = table.into_sorted(|_| true);
        assert_eq!(all.iter().map(|(_, count)| count.accesses).sum::<u64>(), 1000);
        assert!(all.iter().all(|(_, count)| count.mean_cycles() == 1.0));
        // No granule is coarse enough: then it holds more than it should.
        let mut table = Table::new(64, 1);
        (0..4).for_each(|slice| table.add(0, slice, 0, LOAD, 0));
        assert!(table.counts.len() == 4 && table.is_overfull());
    }

    proptest! {
        #[test]
        fn tables_merge_into_what_one_would_have_counted(
            accesses in prop::collection::vec((any::<bool>(), 0i64..3, 0u64..1 << 16), 0..300), max in 4usize..400
        ) {
            let mut parts = [Table::new(64, max), Table::new(64, max)];
            for (which, slice, address) in &accesses {
                parts[usize::from(*which)].add(1, *slice, *address, LOAD, 0);
            }
            let [mut one, other] = parts;
            one.merge(other);
            let granule = one.granule_bytes();
            let mut wanted = BTreeMap::new();
            for (_, slice, address) in &accesses {
                *wanted.entry((*slice, address / granule)).or_insert(0) += 1;
            }
            let found: Vec<_> = one.into_sorted(|_| true).iter().map(|(key, count)| ((key.slice, key.granule), count.accesses)).collect();
            prop_assert_eq!(found, wanted.into_iter().collect::<Vec<_>>());
        }
    }
}
