//! Hierarchy of caches: which accesses of a program reach its memory, and what is written back there.
//!
//! A memory device does not see loads and stores but the transactions of the last-level cache (Yang 2023, section 3.1): a line of
//! 64 bytes is filled when no cache holds it, for a store too (write-allocate), and written back when it leaves the last level
//! after it was stored to. All levels are LRU.
//!
//! The hierarchy is inclusive: a line in a level is in all levels below it, and a line that leaves the last level leaves the
//! caches. So every write-back is of a line that was filled before and not written back since, the last level alone knows what
//! the memory said of a line, and a line is dirty in one sense only. Exclusive caches would hold a few percent more lines (L2
//! beside the last level), and a line hot in L1 may leave with its cold copy below; with a last level many times the size of L2
//! both hardly show.

mod cache;
mod shape;

use self::cache::{Cache, Entry};
pub use self::shape::{Shape, Shapes};

/// Bytes of a line.
pub const LINE_BYTES: u64 = 64;

/// The memory behind the last-level cache. Lines are addresses over 64.
pub trait Memory {
    /// A line is read. What is returned stays with the line in the caches.
    fn fill(&mut self, line: u64) -> u32;
    /// A line that was stored to is written, with what [`Self::fill`] returned for it.
    fn write_back(&mut self, line: u64, tag: u32);
}

/// The kind of a program's access to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads an instruction.
    Fetch,
    /// Reads data.
    Load,
    /// Writes data.
    Store,
}

/// Where a line was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// In a cache of the first level.
    L1,
    /// In the second.
    L2,
    /// In the last.
    Llc,
    /// In none.
    Memory,
}

/// The caches.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    l1i: Cache,
    l1d: Cache,
    l2: Cache,
    llc: Cache,
}

impl Hierarchy {
    /// Empty caches; an error says which of the shapes cannot be.
    pub fn new(shapes: &Shapes) -> Result<Self, String> {
        shapes.check()?;
        Ok(Hierarchy {
            l1i: Cache::new(shapes.l1i)?,
            l1d: Cache::new(shapes.l1d)?,
            l2: Cache::new(shapes.l2)?,
            llc: Cache::new(shapes.llc)?,
        })
    }

    /// Accesses a line (an address over 64, so below 2^58). The fill goes to the memory before the write-back that makes
    /// room for it, as the program waits for the first and not for the second.
    #[inline]
    pub fn access(&mut self, kind: Kind, line: u64, memory: &mut impl Memory) -> Level {
        debug_assert!(line < 1 << 58, "a line is an address over 64");
        let l1 = if kind == Kind::Fetch { &mut self.l1i } else { &mut self.l1d };
        match l1.touch(line) {
            Some(entry) => {
                entry.dirty |= kind == Kind::Store;
                Level::L1
            }
            None => self.miss(kind, line, memory),
        }
    }

    fn miss(&mut self, kind: Kind, line: u64, memory: &mut impl Memory) -> Level {
        let clean = Entry { line, tag: 0, dirty: false };
        let mut level = Level::L2;
        if self.l2.touch(line).is_none() {
            level = Level::Llc;
            if self.llc.touch(line).is_none() {
                level = Level::Memory;
                let tag = memory.fill(line);
                if let Some(victim) = self.llc.insert(Entry { tag, ..clean }) {
                    let above = self.remove_above_llc(victim.line);
                    if victim.dirty || above {
                        memory.write_back(victim.line, victim.tag);
                    }
                }
            }
            if let Some(victim) = self.l2.insert(clean) {
                let above = self.remove_from_l1(victim.line);
                if (victim.dirty || above)
                    && let Some(below) = self.llc.find(victim.line)
                {
                    below.dirty = true;
                }
            }
        }
        let l1 = if kind == Kind::Fetch { &mut self.l1i } else { &mut self.l1d };
        let victim = l1.insert(Entry { dirty: kind == Kind::Store, ..clean });
        if let Some(victim) = victim.filter(|victim| victim.dirty)
            && let Some(below) = self.l2.find(victim.line)
        {
            below.dirty = true;
        }
        level
    }

    /// Takes the 64 lines of a page of 4096 bytes out of the caches, because its address now means other memory. Those that
    /// were stored to are written back.
    pub fn drop_page(&mut self, page: u64, memory: &mut impl Memory) {
        self.drop_page_but(page, u64::MAX, memory);
    }

    /// [`Self::drop_page`] but for one line, which was filled from the other memory already.
    pub fn drop_page_but(&mut self, page: u64, kept: u64, memory: &mut impl Memory) {
        for line in (page << 6..(page + 1) << 6).filter(|line| *line != kept) {
            if let Some(entry) = self.llc.remove(line) {
                let above = self.remove_above_llc(line);
                if entry.dirty || above {
                    memory.write_back(line, entry.tag);
                }
            }
        }
    }

    /// Whether the line was dirty in L1 or L2, from which it goes.
    fn remove_above_llc(&mut self, line: u64) -> bool {
        // What is not in L2 is not in L1 either.
        self.l2.remove(line).is_some_and(|entry| self.remove_from_l1(line) || entry.dirty)
    }

    fn remove_from_l1(&mut self, line: u64) -> bool {
        self.l1i.remove(line);
        self.l1d.remove(line).is_some_and(|entry| entry.dirty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A transaction that reached the memory: a fill with the tag that it was given, or a write-back.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Seen {
        Fill(u64, u32),
        WriteBack(u64, u32),
    }

    #[derive(Default)]
    struct Log(Vec<Seen>);

    impl Memory for Log {
        fn fill(&mut self, line: u64) -> u32 {
            let tag = self.0.len() as u32;
            self.0.push(Seen::Fill(line, tag));
            tag
        }

        fn write_back(&mut self, line: u64, tag: u32) {
            self.0.push(Seen::WriteBack(line, tag));
        }
    }

    /// A level of the slow twin: every line with the time of its last use; whatever is asked is searched for.
    struct Slow {
        sets: u64,
        ways: usize,
        lines: BTreeMap<u64, (u64, bool)>,
    }

    impl Slow {
        fn new(shape: Shape) -> Self {
            Slow { sets: shape.sets().unwrap(), ways: shape.ways as usize, lines: BTreeMap::new() }
        }

        fn use_it(&mut self, line: u64, now: u64) -> bool {
            self.lines.get_mut(&line).map(|entry| entry.0 = now).is_some()
        }

        /// The line that leaves.
        fn put(&mut self, line: u64, now: u64, dirty: bool) -> Option<u64> {
            let of_set = self.lines.iter().filter(|(other, _)| **other % self.sets == line % self.sets);
            let oldest = of_set.clone().min_by_key(|(_, (used, _))| *used).map(|(other, _)| *other);
            let victim = oldest.filter(|_| of_set.count() == self.ways);
            self.lines.insert(line, (now, dirty));
            victim
        }

        fn take(&mut self, line: u64) -> bool {
            self.lines.remove(&line).is_some_and(|(_, dirty)| dirty)
        }

        fn soil(&mut self, line: u64) {
            self.lines.get_mut(&line).unwrap().1 = true;
        }
    }

    /// The levels in the order L1I, L1D, L2, LLC.
    struct Twin {
        levels: [Slow; 4],
        tags: BTreeMap<u64, u32>,
        now: u64,
        log: Log,
    }

    impl Twin {
        fn new(shapes: &Shapes) -> Self {
            let levels = [shapes.l1i, shapes.l1d, shapes.l2, shapes.llc].map(Slow::new);
            Twin { levels, tags: BTreeMap::new(), now: 0, log: Log::default() }
        }

        fn leave(&mut self, line: u64) {
            let dirty = self.levels.iter_mut().map(|level| level.take(line)).fold(false, |a, b| a | b);
            let tag = self.tags.remove(&line).unwrap();
            if dirty {
                self.log.write_back(line, tag);
            }
        }

        fn access(&mut self, kind: Kind, line: u64) -> Level {
            self.now += 1;
            let (now, first) = (self.now, usize::from(kind != Kind::Fetch));
            let mut level = Level::L1;
            if !self.levels[first].use_it(line, now) {
                level = Level::L2;
                if !self.levels[2].use_it(line, now) {
                    level = Level::Llc;
                    if !self.levels[3].use_it(line, now) {
                        level = Level::Memory;
                        let tag = self.log.fill(line);
                        self.tags.insert(line, tag);
                        if let Some(victim) = self.levels[3].put(line, now, false) {
                            self.leave(victim);
                        }
                    }
                    if let Some(victim) = self.levels[2].put(line, now, false) {
                        let dirty = [0, 1, 2].map(|at| self.levels[at].take(victim)).contains(&true);
                        if dirty {
                            self.levels[3].soil(victim);
                        }
                    }
                }
                if let Some(victim) = self.levels[first].put(line, now, false)
                    && self.levels[first].take(victim)
                {
                    self.levels[2].soil(victim);
                }
            }
            if kind == Kind::Store {
                self.levels[first].soil(line);
            }
            level
        }
    }

    /// Caches so small that everything happens at once.
    fn tiny() -> Shapes {
        let shape = |lines: u64, ways| Shape { bytes: lines * LINE_BYTES, ways };
        Shapes { l1i: shape(2, 2), l1d: shape(4, 2), l2: shape(8, 4), llc: shape(12, 3) }
    }

    fn operation() -> impl Strategy<Value = (u8, u64)> {
        // Two pages, so that dropping one leaves the other.
        (0u8..40, (0u64..24, any::<bool>()).prop_map(|(line, other)| line + 64 * u64::from(other)))
    }

    proptest! {
        #[test]
        fn it_does_what_the_slow_twin_does(operations in prop::collection::vec(operation(), 1..600)) {
            let mut fast = Hierarchy::new(&tiny()).unwrap();
            let mut slow = Twin::new(&tiny());
            let mut log = Log::default();
            for (what, line) in operations {
                match what {
                    0 => {
                        fast.drop_page(line >> 6, &mut log);
                        let there: Vec<u64> = slow.tags.keys().copied().filter(|it| it >> 6 == line >> 6).collect();
                        there.into_iter().for_each(|line| slow.leave(line));
                    }
                    _ => {
                        let kind = [Kind::Fetch, Kind::Load, Kind::Store][usize::from(what) % 3];
                        prop_assert_eq!(fast.access(kind, line, &mut log), slow.access(kind, line));
                    }
                }
            }
            prop_assert_eq!(log.0, slow.log.0);
        }

        /// Each store is a new version of its line: what is filled must be the newest, so no store is ever lost.
        #[test]
        fn no_store_is_lost(operations in prop::collection::vec((0u64..40, any::<bool>()), 1..2000)) {
            #[derive(Default)]
            struct Versions {
                newest: BTreeMap<u64, u32>,
                written: BTreeMap<u64, u32>,
                cached: BTreeMap<u64, bool>,
            }
            impl Memory for Versions {
                fn fill(&mut self, line: u64) -> u32 {
                    assert_eq!(self.written.get(&line), self.newest.get(&line), "a store was lost");
                    assert_ne!(self.cached.insert(line, true), Some(true), "filled twice");
                    0
                }
                fn write_back(&mut self, line: u64, _: u32) {
                    assert_ne!(self.written.get(&line), self.newest.get(&line), "written back clean");
                    self.written.insert(line, self.newest[&line]);
                    self.cached.insert(line, false);
                }
            }
            let shapes = tiny();
            let mut caches = Hierarchy::new(&shapes).unwrap();
            let mut memory = Versions::default();
            for (line, is_store) in operations {
                let kind = if is_store { Kind::Store } else { Kind::Load };
                // A clean line leaves without a word, so that a fill is the only sign of it.
                if caches.llc.find(line).is_none() {
                    memory.cached.insert(line, false);
                }
                caches.access(kind, line, &mut memory);
                if is_store {
                    *memory.newest.entry(line).or_default() += 1;
                }
            }
            // What is still dirty is written back when its pages go; then memory has everything.
            caches.drop_page(0, &mut memory);
            prop_assert_eq!(memory.written, memory.newest);
        }
    }

    #[test]
    fn a_program_that_fits_fills_once_and_writes_nothing() {
        let mut caches = Hierarchy::new(&Shapes::default()).unwrap();
        let mut log = Log::default();
        let lines = Shapes::default().llc.bytes / LINE_BYTES;
        for _ in 0..2 {
            for line in 0..lines {
                caches.access(Kind::Store, line, &mut log);
            }
        }
        assert_eq!(log.0.len() as u64, lines);
        // One line more in each set, and the first ones go.
        let sets = lines / 16;
        for line in lines..lines + sets {
            caches.access(Kind::Load, line, &mut log);
        }
        let written = log.0.iter().filter(|seen| matches!(seen, Seen::WriteBack(..))).count();
        assert_eq!(written as u64, sets);
    }

    #[test]
    fn a_level_smaller_than_the_one_above_is_refused() {
        let shapes = Shapes { llc: Shape { bytes: 512 << 10, ways: 8 }, ..Shapes::default() };
        let error = Hierarchy::new(&shapes).unwrap_err();
        assert!(error.contains("LLC of 512KiB cannot hold all of L2"), "{error}");
    }
}
