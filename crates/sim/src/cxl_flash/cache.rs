//! DRAM cache of the device in front of its flash: sets of lines, ordered by an eviction policy.
//!
//! The line of a page is known from the page ([`super::pages`]). This file knows only which line is evicted when a set is full,
//! and that is decided by the usual policies ([`tiermem_policy::evict`]): a set is a domain, a line an item.

use tiermem_base::Rng;
use tiermem_policy::Id;
use tiermem_policy::evict::{Departure, Domain, Evict, Item, Origin, Touch};
use tiermem_policy::prefetch::Insertion;

/// Sets of more lines have no steered insertion: finding the place takes a step a line.
pub const STEERED_WAYS_MAX: u32 = 64;

/// A line of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line(pub u32);

impl Line {
    /// No line.
    pub const NONE: Line = Line(u32::MAX);

    /// Its number as a position.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The page in a line.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// The page's number in the table of pages.
    page: u32,
    dirty: bool,
}

/// The line that was evicted to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// The page's number in the table of pages.
    pub page: u32,
    /// Whether it must be written to flash.
    pub dirty: bool,
}

/// Lines in sets, with a policy.
#[derive(Clone, Debug)]
pub struct Cache<E> {
    policy: E,
    sets: u32,
    ways: u32,
    /// Lines of each set that were ever used; after that a set stays full.
    used: Vec<u32>,
    held: Vec<Held>,
    rng: Rng,
    /// Accesses so far: the policies' clock.
    now: u64,
}

impl<E: Evict> Cache<E> {
    /// An empty cache of `sets * ways` lines; the policy has `sets` domains.
    pub fn new(policy: E, sets: u32, ways: u32, seed: u64) -> Self {
        Cache {
            policy,
            sets,
            ways,
            used: vec![0; sets as usize],
            held: Vec::new(),
            rng: Rng::seeded(seed),
            now: 0,
        }
    }

    fn domain_of(&self, line: Line) -> Domain {
        Domain(line.0 / self.ways)
    }

    /// An access to a line that holds its page.
    #[inline]
    pub fn hit(&mut self, line: Line, write: bool) {
        self.now += 1;
        let domain = self.domain_of(line);
        self.policy.hit(Id(line.0), Touch { now: self.now, write }, || domain);
        self.held[line.index()].dirty |= write;
    }

    /// Notes that a page was asked for and is not there.
    #[inline]
    pub fn miss(&mut self, number: u64) {
        self.policy.miss(Domain((number % u64::from(self.sets)) as u32), number);
    }

    /// Puts a page into a line of its set. `number` is its number in the device, `page` that in the table of pages.
    /// `insertion`: where in the order of eviction a prefetched one enters; others, and all in sets of more than
    /// [`STEERED_WAYS_MAX`] lines, enter where the policy puts new ones.
    pub fn fill(
        &mut self,
        number: u64,
        page: u32,
        dirty: bool,
        insertion: Insertion,
    ) -> (Line, Option<Evicted>) {
        self.now += 1;
        let set = (number % u64::from(self.sets)) as u32;
        let domain = Domain(set);
        let used = &mut self.used[set as usize];
        let (line, evicted) = if *used < self.ways {
            let line = Line(set * self.ways + *used);
            *used += 1;
            if self.held.len() <= line.index() {
                self.held.resize(line.index() + 1, Held { page: u32::MAX, dirty: false });
            }
            (line, None)
        } else {
            // Every item may go, so a full set has a victim.
            let victim = self.policy.victim(domain, self.now, &mut self.rng, |_| true);
            let line = Line(victim.map_or(set * self.ways, |id| id.0));
            debug_assert!(victim.is_some(), "a full set without a victim");
            self.policy.remove(Id(line.0), domain, Departure::Evicted);
            let Held { page, dirty } = self.held[line.index()];
            (line, Some(Evicted { page, dirty }))
        };
        self.held[line.index()] = Held { page, dirty };
        let item = Item { key: number, size: 1, dirty, now: self.now };
        let go_before = match insertion {
            _ if self.ways > STEERED_WAYS_MAX => None,
            Insertion::Mru => None,
            Insertion::Mid => Some(self.ways / 2),
            Insertion::Quarter => Some(self.ways / 4),
            Insertion::Lru => Some(0),
        };
        match go_before {
            Some(others) => self.policy.insert_low(Id(line.0), domain, item, others),
            None => self.policy.insert(Id(line.0), domain, Origin::Admitted(item)),
        }
        (line, evicted)
    }
}
