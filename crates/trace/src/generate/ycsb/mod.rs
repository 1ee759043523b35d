//! The core workloads A to F of YCSB: B. Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010.
//!
//! Keys are YCSB's record numbers as with `insertorder=ordered`, so that a scan reads neighbouring keys. One operation
//! may be several accesses: a scan is one `scan` access for each record it reads, a read-modify-write a `get` and a
//! `set` of the same key. Updates and inserts are `set`. Records exist before the first access; YCSB's load phase is
//! not part of the trace.

mod zipfian;

use tiermem_base::{Access, Op, Rng};

pub use zipfian::{Scrambled, THETA, Zipfian, fnv_hash, zeta};

use super::{STEP_NS, Sizes};

/// The most records that a scan of workload E reads, unless it is told otherwise.
pub const SCAN_LENGTH_MAX: u64 = 100;

/// A core workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Half reads, half updates.
    A,
    /// 95% reads, 5% updates.
    B,
    /// Reads only.
    C,
    /// 95% reads of what was inserted lately, 5% inserts.
    D,
    /// 95% short scans, 5% inserts.
    E,
    /// Half reads, half read-modify-writes.
    F,
}

/// The shares of the operations, and how keys are chosen.
struct Shares {
    read: f64,
    update: f64,
    insert: f64,
    scan: f64,
    latest: bool,
}

impl Workload {
    /// The shares of operations, as in the workload files of YCSB; the rest to 1 is read-modify-write.
    const fn shares(self) -> Shares {
        let none = Shares { read: 0.0, update: 0.0, insert: 0.0, scan: 0.0, latest: false };
        match self {
            Workload::A => Shares { read: 0.5, update: 0.5, ..none },
            Workload::B => Shares { read: 0.95, update: 0.05, ..none },
            Workload::C => Shares { read: 1.0, ..none },
            Workload::D => Shares { read: 0.95, insert: 0.05, latest: true, ..none },
            Workload::E => Shares { scan: 0.95, insert: 0.05, ..none },
            Workload::F => Shares { read: 0.5, ..none },
        }
    }
}

#[derive(Clone, Debug)]
enum Keys {
    Scrambled(Scrambled),
    Latest(Zipfian),
}

/// The remaining accesses of an operation of several.
#[derive(Clone, Copy, Debug)]
enum Rest {
    Nothing,
    Write { key: u64 },
    Scan { next: u64, left: u64 },
}

/// The accesses of one workload.
#[derive(Clone, Debug)]
pub struct Ycsb {
    workload: Workload,
    keys: Keys,
    /// Records that exist: keys `0..records`.
    records: u64,
    scan_length_max: u64,
    rest: Rest,
    sizes: Sizes,
    rng: Rng,
    time_ns: u64,
}

impl Ycsb {
    /// A workload over `records` records that exist at the start, at least 2. `accesses` is how many will be taken:
    /// as YCSB does, the keys that inserts will add are foreseen, so that they do not move the hot keys. Scans read
    /// from 1 to `scan_length_max` records, each length as likely as any other.
    pub fn new(
        workload: Workload,
        records: u64,
        accesses: u64,
        scan_length_max: u64,
        sizes: Sizes,
        seed: u64,
    ) -> Ycsb {
        let (records, scan_length_max) = (records.max(2), scan_length_max.max(1));
        let shares = workload.shares();
        let keys = if shares.latest {
            // The newest record's number, and one less than there are records: YCSB's first record is never read.
            Keys::Latest(Zipfian::new(records - 1))
        } else {
            let accesses_per_scan = (scan_length_max as f64 + 1.0) / 2.0;
            let operations = accesses as f64 / (1.0 - shares.scan + shares.scan * accesses_per_scan);
            // Twice as many as will be needed, and one for a bound that YCSB means to be included.
            let foreseen = (operations * shares.insert * 2.0) as u64;
            Keys::Scrambled(Scrambled::new(records.saturating_add(foreseen).saturating_add(1)))
        };
        Ycsb {
            workload,
            keys,
            records,
            scan_length_max,
            rest: Rest::Nothing,
            sizes,
            rng: Rng::seeded(seed),
            time_ns: 0,
        }
    }

    /// The key of a record that exists.
    fn draw_key(&mut self) -> u64 {
        match &mut self.keys {
            Keys::Scrambled(keys) => loop {
                let key = keys.draw(&mut self.rng);
                if key < self.records {
                    return key;
                }
            },
            Keys::Latest(ranks) => {
                let newest = self.records - 1;
                ranks.grow(newest);
                newest.saturating_sub(ranks.draw(&mut self.rng))
            }
        }
    }

    fn operation(&mut self) -> (Op, u64) {
        let shares = self.workload.shares();
        let mut choice = self.rng.unit_f64();
        let mut is = |share: f64| {
            let chosen = choice < share;
            choice -= share;
            chosen
        };
        if is(shares.insert) {
            let key = self.records;
            self.records += 1;
            return (Op::Set, key);
        }
        let (read, update, scan) = (is(shares.read), is(shares.update), is(shares.scan));
        let key = self.draw_key();
        if read {
            return (Op::Get, key);
        }
        if update {
            return (Op::Set, key);
        }
        // Rounding can leave a hair's breadth behind the last share; the workload says what is meant there.
        if scan || self.workload == Workload::E {
            let length = 1 + self.rng.below(self.scan_length_max);
            let left = (length - 1).min(self.records - 1 - key);
            self.rest = Rest::Scan { next: key + 1, left };
            return (Op::Scan, key);
        }
        if self.workload == Workload::F {
            self.rest = Rest::Write { key };
        }
        (Op::Get, key)
    }
}

impl Iterator for Ycsb {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        let (op, key) = match self.rest {
            Rest::Scan { next, left } if left > 0 => {
                self.rest = Rest::Scan { next: next + 1, left: left - 1 };
                (Op::Scan, next)
            }
            Rest::Write { key } => {
                self.rest = Rest::Nothing;
                (Op::Set, key)
            }
            Rest::Nothing | Rest::Scan { .. } => {
                self.rest = Rest::Nothing;
                self.operation()
            }
        };
        let access = Access { op, ..Access::get(self.time_ns, key, self.sizes.of(key)) };
        self.time_ns = self.time_ns.wrapping_add(STEP_NS);
        Some(access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::SizeDistribution;

    const RECORDS: u64 = 10_000;
    const ACCESSES: usize = 200_000;

    fn trace(workload: Workload) -> Vec<Access> {
        let sizes = Sizes::new(SizeDistribution::Fixed(1000), 1);
        Ycsb::new(workload, RECORDS, ACCESSES as u64, SCAN_LENGTH_MAX, sizes, 9).take(ACCESSES).collect()
    }

    fn share(trace: &[Access], is: impl Fn(&Access) -> bool) -> f64 {
        trace.iter().filter(|access| is(access)).count() as f64 / trace.len() as f64
    }

    fn close(share: f64, wanted: f64) {
        // Five deviations of a share of 200,000 are at most 0.0056.
        assert!((share - wanted).abs() < 0.0056, "{share} for {wanted}");
    }

    #[test]
    fn operations_have_their_shares() {
        let sets = |workload| share(&trace(workload), |access| access.op == Op::Set);
        close(sets(Workload::A), 0.5);
        close(sets(Workload::B), 0.05);
        assert_eq!(sets(Workload::C), 0.0);
        close(sets(Workload::D), 0.05);
        // Half of the operations are two accesses, so a third of all accesses write.
        close(sets(Workload::F), 1.0 / 3.0);
        // 95 scans of 50.5 records on average, some cut short at the end of the keys, and 5 inserts.
        let inserts = sets(Workload::E);
        assert!((0.9..1.2).contains(&(inserts * (95.0 * 50.5 + 5.0) / 5.0)), "{inserts}");
    }

    #[test]
    fn a_read_modify_write_writes_what_it_read() {
        let trace = trace(Workload::F);
        let writes = trace.windows(2).filter(|pair| pair[1].op == Op::Set);
        assert!(writes.clone().count() > 60_000);
        assert!({ writes }.all(|pair| pair[0].op == Op::Get && pair[0].key == pair[1].key));
    }

    #[test]
    fn inserts_append_records_and_nothing_reads_beyond_them() {
        for workload in [Workload::D, Workload::E] {
            let mut records = RECORDS;
            for access in trace(workload) {
                if access.op == Op::Set {
                    assert_eq!(access.key, records);
                    records += 1;
                }
                assert!(access.key < records);
            }
            assert!(records > RECORDS);
        }
    }

    #[test]
    fn scans_have_every_length_alike_and_read_neighbours() {
        let trace = trace(Workload::E);
        // Scans that start where none is cut short. Two that happen to adjoin look like one, once in 10,000.
        let mut lengths = vec![0u32; 101];
        let runs = trace.chunk_by(|a, b| a.op == Op::Scan && b.op == Op::Scan && b.key == a.key + 1);
        for run in runs.filter(|run| run[0].op == Op::Scan && run[0].key < RECORDS - 100) {
            lengths[run.len().min(100)] += 1;
        }
        let scans = f64::from(lengths.iter().sum::<u32>());
        let mean: f64 =
            lengths.iter().zip(0u32..).map(|(n, length)| f64::from(n * length)).sum::<f64>() / scans;
        assert!((mean - 50.5).abs() < 2.5 && lengths[0] == 0 && lengths[1] > 0 && lengths[100] > 0, "{mean}");
        let chi_square: f64 =
            lengths[1..].iter().map(|n| (f64::from(*n) - scans / 100.0).powi(2) / (scans / 100.0)).sum();
        // Mean 99, deviation 14.
        assert!(chi_square < 180.0, "{chi_square}");
    }

    #[test]
    fn latest_reads_follow_the_distance_from_the_newest_record() {
        let (mut records, mut distances) = (RECORDS, Vec::new());
        for access in trace(Workload::D) {
            match access.op {
                Op::Set => records += 1,
                _ => distances.push(records - 1 - access.key),
            }
        }
        let below = |limit| distances.iter().filter(|d| **d < limit).count() as f64 / distances.len() as f64;
        // The normalisation grows with the records, from 9.96 to 10.6 here.
        let (low, high) = (zeta(RECORDS, THETA), zeta(records, THETA));
        assert!(below(1) < 1.0 / low + 0.002 && below(1) > 1.0 / high - 0.002, "{}", below(1));
        // Gray's approximation lies a little below the exact sum.
        let exact = zeta(100, THETA) / zeta((RECORDS + records) / 2, THETA);
        assert!((below(100) - exact).abs() < 0.04, "{} {exact}", below(100));
    }

    #[test]
    fn the_hot_keys_of_the_others_are_those_of_the_hash() {
        let keys = RECORDS + 1;
        let hottest = fnv_hash(0) % keys;
        let got = share(&trace(Workload::C), |access| access.key == hottest);
        // Its own rank and its share of the cold ones.
        assert!((0.0377..0.040).contains(&got), "{got}");
    }

    #[test]
    fn the_smallest_key_spaces_work() {
        use Workload::{A, B, C, D, E, F};
        for workload in [A, B, C, D, E, F] {
            for records in 0..6 {
                let sizes = Sizes::new(SizeDistribution::Fixed(1), 1);
                let mut inserted = 0;
                for access in Ycsb::new(workload, records, 5000, SCAN_LENGTH_MAX, sizes, 1).take(5000) {
                    inserted += u64::from(access.op == Op::Set && access.key == records.max(2) + inserted);
                    assert!(access.key < records.max(2) + inserted, "{workload:?} {records}");
                }
            }
        }
    }
}
