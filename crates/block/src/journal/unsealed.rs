//! Unsealed units: those with a dirty state that is not sealed yet. If power is lost while one of them
//! is overwritten, recovery could not tell a mix of its own sectors from another block's leftovers.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use foldhash::fast::FixedState;

use super::Lsn;
use super::table::{Table, UnitState};

/// Runs of units: the first, how many.
type Runs = Vec<(u64, u32)>;

/// A generation with a known end.
#[derive(Debug)]
struct Generation {
    number: u8,
    /// Its first record and its last.
    first: Lsn,
    last: Lsn,
    runs: Runs,
}

/// The generation in which each of them became dirty. A generation ends as a whole when the log is sealed up to its
/// last record. Their number is that of the units that become dirty between two seals, independent of the cache's size.
#[derive(Debug)]
pub struct Unsealed {
    marks: HashMap<u64, u8, FixedState>,
    /// Oldest first.
    ending: VecDeque<Generation>,
    current: u8,
    /// The first record of the current one, and the last.
    first: Lsn,
    last: Lsn,
    runs: Runs,
    spare: Vec<Runs>,
}

impl Default for Unsealed {
    /// No unit.
    fn default() -> Self {
        Unsealed {
            marks: HashMap::default(),
            ending: VecDeque::new(),
            current: 1,
            first: Lsn(0),
            last: Lsn(0),
            runs: Vec::new(),
            spare: Vec::new(),
        }
    }
}

impl Unsealed {
    /// Whether a unit is marked.
    #[inline]
    pub fn has(&self, unit: u64) -> bool {
        self.marks.contains_key(&unit)
    }

    /// Whether a unit is marked, and its generation has records up to this one.
    #[inline]
    pub fn has_before(&self, unit: u64, upto: Lsn) -> bool {
        let Some(mark) = self.marks.get(&unit) else { return false };
        let ending = self.ending.iter().find(|generation| generation.number == *mark);
        ending.map_or(self.first, |generation| generation.first) <= upto
    }

    /// Marks a unit that a record makes dirty.
    #[inline]
    pub fn add(&mut self, unit: u64, lsn: Lsn) {
        if self.runs.is_empty() {
            self.first = lsn;
        }
        self.last = lsn;
        if self.marks.insert(unit, self.current) == Some(self.current) {
            return;
        }
        match self.runs.last_mut() {
            Some((first, count)) if *first + u64::from(*count) == unit => *count += 1,
            _ => self.runs.push((unit, 1)),
        }
    }

    /// Marks those units that a record makes dirty, and that were not dirty as of the last seal, until they are sealed.
    pub fn add_dirty(&mut self, table: &Table, units: Range<u64>, lsn: Lsn) {
        for unit in units {
            if table.state(unit) != UnitState::Dirty || self.has(unit) {
                self.add(unit, lsn);
            }
        }
    }

    /// A seal is under way: what becomes dirty from now on need not be waited for by what did before.
    pub fn end_generation(&mut self) {
        // All three numbers are in use: the current one continues, and ends with a later seal.
        if self.runs.is_empty() || self.ending.len() == 2 {
            return;
        }
        let runs = std::mem::replace(&mut self.runs, self.spare.pop().unwrap_or_default());
        self.ending.push_back(Generation { number: self.current, first: self.first, last: self.last, runs });
        self.current = self.current % 3 + 1;
    }

    /// The log is sealed up to here.
    pub fn sealed(&mut self, upto: Lsn) {
        while self.ending.front().is_some_and(|generation| generation.last <= upto)
            && let Some(Generation { number, mut runs, .. }) = self.ending.pop_front()
        {
            self.clear(number, &mut runs);
            self.spare.push(runs);
        }
        if self.last <= upto {
            let mut runs = std::mem::take(&mut self.runs);
            self.clear(self.current, &mut runs);
            self.runs = runs;
        }
    }

    fn clear(&mut self, number: u8, runs: &mut Runs) {
        for (first, count) in runs.drain(..) {
            for unit in first..first + u64::from(count) {
                // Marked again since, it belongs to a later one.
                if self.marks.get(&unit) == Some(&number) {
                    self.marks.remove(&unit);
                }
            }
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.marks.capacity() * size_of::<(u64, u8)>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_goes_with_the_seal_of_its_last_record() {
        let mut unsealed = Unsealed::default();
        unsealed.add(3, Lsn(4));
        unsealed.add(4, Lsn(5));
        assert!(unsealed.has_before(4, Lsn(4)) && !unsealed.has_before(4, Lsn(3)));
        unsealed.end_generation();
        unsealed.add(4, Lsn(8));
        assert!(
            unsealed.has_before(4, Lsn(8))
                && !unsealed.has_before(4, Lsn(7))
                && unsealed.has_before(3, Lsn(4))
        );
        unsealed.end_generation();
        unsealed.add(9, Lsn(9));
        unsealed.end_generation();
        unsealed.sealed(Lsn(4));
        assert!(unsealed.has(3) && unsealed.has(4) && unsealed.has(9) && !unsealed.has(5));
        unsealed.sealed(Lsn(7));
        assert!(!unsealed.has(3) && unsealed.has(4));
        unsealed.end_generation();
        unsealed.add(1, Lsn(10));
        unsealed.sealed(Lsn(9));
        assert!(!unsealed.has(4) && !unsealed.has(9) && unsealed.has(1));
        // The last generation was never ended, and yet it is removed.
        unsealed.sealed(Lsn(10));
        assert!(!unsealed.has(1));
    }
}
