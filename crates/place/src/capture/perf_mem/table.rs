//! How often what was accessed when: counts of a bounded number of stretches of addresses.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use tiermem_base::Op;
use tiermem_trace::recording::{Level, Mode};

/// Bits of a key that are not the address.
const WHAT_BITS: u32 = 5;

/// Accesses of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct What {
    /// Load or store.
    pub op: Op,
    /// Where they were answered.
    pub level: Level,
    /// Who accessed.
    pub mode: Mode,
}

/// A slice, and a stretch of addresses with what is done to it. The order is that of time, then addresses.
type Key = (i32, u64);

/// How often, and how long it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Samples.
    pub count: u64,
    /// Those among them whose latency is known.
    pub timed: u64,
    /// Their latency, in cycles.
    pub cycles: u64,
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: Tally) {
        self.count = self.count.saturating_add(other.count);
        self.timed = self.timed.saturating_add(other.timed);
        self.cycles = self.cycles.saturating_add(other.cycles);
    }
}

/// One line of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Slices from the one of the first sample, which may not be the earliest.
    pub slice: i32,
    /// The stretch's first address.
    pub address: u64,
    /// What was done.
    pub what: What,
    /// How often.
    pub tally: Tally,
}

/// Counts. When there are too many stretches, they are counted in twice as long ones, up to the granule.
#[derive(Debug)]
pub(super) struct Table {
    counts: HashMap<Key, Tally, FixedState>,
    /// The length of a stretch is two to this.
    shift: u32,
    granule_bytes: u64,
    entries_max: usize,
}

impl Table {
    /// An empty table with stretches of `unit_bytes`, a power of two of at least 64 that divides the granule.
    pub fn new(unit_bytes: u64, granule_bytes: u64, entries_max: usize) -> Self {
        let shift = unit_bytes.trailing_zeros().max(6);
        Table { counts: HashMap::default(), shift, granule_bytes, entries_max }
    }

    /// Counts one access. False if there is no more room.
    #[inline]
    pub fn add(&mut self, slice: i32, address: u64, what: What, weight: u64) -> bool {
        let key = (slice, (address >> self.shift) << WHAT_BITS | what.code());
        let tally = self.counts.entry(key).or_default();
        tally.add(Tally { count: 1, timed: u64::from(weight > 0), cycles: weight });
        self.counts.len() <= self.entries_max || self.shrink()
    }

    /// Bytes of a stretch.
    pub fn unit_bytes(&self) -> u64 {
        1 << self.shift
    }

    fn shrink(&mut self) -> bool {
        while self.counts.len() > self.entries_max {
            if !self.granule_bytes.is_multiple_of(2 << self.shift) {
                return false;
            }
            self.coarsen();
        }
        true
    }

    fn coarsen(&mut self) {
        self.shift += 1;
        let mut coarse: HashMap<Key, Tally, FixedState> = HashMap::default();
        for ((slice, key), tally) in std::mem::take(&mut self.counts) {
            let what = key & ((1 << WHAT_BITS) - 1);
            let stretch = key >> WHAT_BITS >> 1;
            coarse.entry((slice, stretch << WHAT_BITS | what)).or_default().add(tally);
        }
        self.counts = coarse;
    }

    /// All that several tables have, in order. They are made equally coarse.
    pub fn merge(mut tables: Vec<Table>) -> Vec<Row> {
        let shift = tables.iter().map(|table| table.shift).max().unwrap_or_default();
        let mut all: Vec<(Key, Tally)> = Vec::new();
        for table in &mut tables {
            while table.shift < shift {
                table.coarsen();
            }
            all.extend(std::mem::take(&mut table.counts));
        }
        all.sort_unstable_by_key(|(key, _)| *key);
        all.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                kept.1.add(next.1);
            }
            is_same
        });
        let row = |((slice, key), tally): (Key, Tally)| {
            let what = What::of_code(key & ((1 << WHAT_BITS) - 1));
            Row { slice, address: key >> WHAT_BITS << shift, what, tally }
        };
        all.into_iter().map(row).collect()
    }
}

impl What {
    fn code(self) -> u64 {
        u64::from(self.op == Op::Store) << 4 | (self.level as u64) << 2 | self.mode as u64
    }

    fn of_code(code: u64) -> Self {
        What {
            op: if code & 0x10 == 0 { Op::Load } else { Op::Store },
            level: Level::ALL[(code >> 2 & 3) as usize],
            mode: Mode::ALL.get((code & 3) as usize).copied().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: What = What { op: Op::Load, level: Level::Local, mode: Mode::User };

    #[test]
    fn what_was_put_in_comes_out_in_order() {
        let store = What { op: Op::Store, level: Level::Remote, mode: Mode::Kernel };
        let (mut one, mut other) = (Table::new(64, 64, 100), Table::new(64, 64, 100));
        assert!(one.add(1, u64::MAX, store, 0) && one.add(0, 130, LOAD, 10));
        assert!(other.add(0, 190, LOAD, 30) && other.add(-1, 5, LOAD, 0));
        let tally = |count, timed, cycles| Tally { count, timed, cycles };
        let wanted = [
            Row { slice: -1, address: 0, what: LOAD, tally: tally(1, 0, 0) },
            Row { slice: 0, address: 128, what: LOAD, tally: tally(2, 2, 40) },
            Row { slice: 1, address: u64::MAX - 63, what: store, tally: tally(1, 0, 0) },
        ];
        assert_eq!(Table::merge(vec![one, other]), wanted);
    }

    #[test]
    fn a_table_that_is_full_counts_in_longer_stretches_up_to_the_granule() {
        let mut table = Table::new(4096, 3 * 16384, 4);
        for page in 0..16 {
            assert!(table.add(0, page * 4096, LOAD, 0));
        }
        assert_eq!(table.unit_bytes(), 16384);
        assert!(!table.add(0, 1 << 30, LOAD, 0));
        assert_eq!(Table::merge(vec![table]).iter().map(|row| row.tally.count).sum::<u64>(), 17);
    }
}
