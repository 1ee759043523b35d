//! LRU lists with an insertion point (Wang 2024, section 5.1.2) and lazy bumps.
//!
//! Each list is split in an upper and a lower part; the lower part holds `insertion_point` of the items. New
//! and demoted items enter at the top of the lower part, so that one-hit wonders reach the tail soon and demoted
//! items are not at once candidates for promotion. With `insertion_point = 1` the list is plain LRU.
//!
//! What a hit does is the [`Bump`]. Plain LRU moves the item to the head at every hit, which touches four other nodes
//! at random places in memory (Wang's Figure 5.3 shows list updates as the largest cost where there are few
//! classes). `LowerOnly` moves it only from the lower part, where it is in danger. `AtTail` only marks it: a marked item
//! that reaches the tail is moved to the head instead of going, so that a hit writes one bit and the list is written
//! once per journey through it (the second chance of CLOCK, on a list with an insertion point).

use super::list::{Links, List};
use super::{Departure, Domain, Evict, Item, Origin, Touch};
use crate::Id;
use crate::column::{Bits, Column};
use crate::deferred_free::DeferredFree;
use tiermem_base::Rng;

/// When a hit moves an item to the head of its list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bump {
    /// At once: plain LRU.
    Always,
    /// At once, if the item is in the list's lower part.
    LowerOnly,
    /// When it would be the next to go.
    #[default]
    AtTail,
}

impl std::str::FromStr for Bump {
    type Err = String;
    /// Reads the word that configuration and command line use.
    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "always" => Ok(Bump::Always),
            "lower-only" => Ok(Bump::LowerOnly),
            "at-tail" => Ok(Bump::AtTail),
            _ => Err(format!("{word:?} is none of always, lower-only, at-tail")),
        }
    }
}

/// How many items at a list's tail are asked before `victim` gives up.
const VICTIM_TRIES: usize = 64;

#[derive(Clone, Debug)]
struct Parted {
    list: List,
    /// The first item of the lower part; `NONE` when that is empty.
    middle: Id,
    lower_len: u32,
    /// Share of the items in the lower part, in 1/1024.
    lower_share: u32,
}

impl Parted {
    fn new(lower_share: u32) -> Self {
        Parted { list: List::default(), middle: Id::NONE, lower_len: 0, lower_share }
    }
}

/// LRU lists, one per domain, sharing one array of links.
#[derive(Clone, Debug)]
pub struct Lru {
    links: Column<Links>,
    lower: Bits,
    /// Hit since it was last placed, for `Bump::AtTail`.
    hit: Bits,
    lists: Vec<Parted>,
    bump: Bump,
    /// All items enter at the head and move there at once: the part that an item is in is never asked for.
    plain: bool,
}

impl Lru {
    /// Makes one list per entry of `insertion_points`. An insertion point is where new items enter, as a share of the list from
    /// its tail, in `(0, 1]`; 1 is the head.
    pub fn new(insertion_points: impl IntoIterator<Item = f64>, bump: Bump) -> Self {
        let list = |point: f64| Parted::new(((point * 1024.0) as u32).clamp(1, 1024));
        let lists: Vec<_> = insertion_points.into_iter().map(list).collect();
        Lru {
            links: Column::default(),
            lower: Bits::default(),
            hit: Bits::default(),
            plain: bump == Bump::Always && lists.iter().all(|list| list.lower_share == 1024),
            lists,
            bump,
        }
    }

    fn unlink(&mut self, id: Id, domain: Domain) {
        let parted = &mut self.lists[domain.0 as usize];
        let links = parted.list.unlink(&mut self.links, id);
        if self.lower.get(id) {
            parted.lower_len -= 1;
            if parted.middle == id {
                // All below the first of the lower part is lower too.
                parted.middle = links.next;
            }
        }
    }

    /// Moves the boundary so that the lower part has its share, within 1/64 of the list.
    fn balance(&mut self, domain: Domain) {
        let parted = &mut self.lists[domain.0 as usize];
        let len = parted.list.len;
        let wanted = (u64::from(len) * u64::from(parted.lower_share)).div_ceil(1024) as u32;
        while parted.lower_len < wanted {
            let next_up = match parted.middle {
                Id::NONE => parted.list.tail,
                middle => self.links.get(middle).prev,
            };
            self.lower.set(next_up, true);
            parted.middle = next_up;
            parted.lower_len += 1;
        }
        while parted.lower_len > wanted + len / 64 {
            let first = parted.middle;
            self.lower.set(first, false);
            parted.middle = self.links.get(first).next;
            parted.lower_len -= 1;
        }
    }

    fn insert_at_head(&mut self, id: Id, domain: Domain) {
        self.lower.set(id, false);
        self.lists[domain.0 as usize].list.push_head(&mut self.links, id);
        self.balance(domain);
    }
}

impl Lru {
    /// Gives a second chance to used items at the tail, to `tries` at most, ahead of need: a request that needs a victim then
    /// finds one without doing this work itself. Returns whether a victim is at hand, also where no item was passed over.
    pub fn pass_over(&mut self, domain: Domain, tries: usize, may_go: impl Fn(Id) -> bool) -> bool {
        let mut id = self.lists[domain.0 as usize].list.tail;
        let mut passed = 0;
        for _ in 0..tries {
            if id == Id::NONE || may_go(id) && !self.hit.get(id) {
                return true;
            }
            let before = self.links.get(id).prev;
            if may_go(id) {
                self.second_chance(id, domain);
                passed += 1;
            }
            id = before;
        }
        passed == 0
    }

    fn second_chance(&mut self, id: Id, domain: Domain) {
        self.hit.set(id, false);
        self.unlink(id, domain);
        self.insert_at_head(id, domain);
    }

    /// Like [`Evict::clear`], but the memory is freed later, a little at a time.
    pub fn clear_into(&mut self, deferred_free: &mut DeferredFree) {
        self.links.clear_into(deferred_free);
        self.clear();
    }
}

impl Evict for Lru {
    fn insert(&mut self, id: Id, domain: Domain, origin: Origin) {
        self.links.grow_to(id);
        self.lower.grow_to(id);
        self.hit.grow_to(id);
        self.hit.set(id, false);
        if self.plain {
            return self.lists[domain.0 as usize].list.push_head(&mut self.links, id);
        }
        match origin {
            Origin::Promoted | Origin::Rewritten(_) => self.insert_at_head(id, domain),
            Origin::Admitted(_) | Origin::Demoted => {
                let parted = &mut self.lists[domain.0 as usize];
                parted.list.insert_before(&mut self.links, id, parted.middle);
                self.lower.set(id, true);
                parted.middle = id;
                parted.lower_len += 1;
                self.balance(domain);
            }
        }
    }

    fn insert_low(&mut self, id: Id, domain: Domain, item: Item, go_before: u32) {
        if !self.plain {
            // The insertion point says where new items enter.
            return self.insert(id, domain, Origin::Admitted(item));
        }
        self.links.grow_to(id);
        self.lower.grow_to(id);
        self.hit.grow_to(id);
        self.lists[domain.0 as usize].list.insert_low(&mut self.links, id, go_before);
    }

    #[inline]
    fn hit(&mut self, id: Id, _touch: Touch, domain: impl FnOnce() -> Domain) {
        match self.bump {
            Bump::AtTail => return self.hit.set(id, true),
            Bump::LowerOnly if !self.lower.get(id) => return,
            Bump::LowerOnly | Bump::Always => {}
        }
        let domain = domain();
        if self.plain {
            return self.lists[domain.0 as usize].list.move_to_head(&mut self.links, id);
        }
        if self.lists[domain.0 as usize].list.head != id {
            self.unlink(id, domain);
            self.insert_at_head(id, domain);
        }
    }

    #[inline]
    fn mark(&self, id: Id) -> Option<&u64> {
        match self.bump {
            Bump::AtTail => self.hit.word(id),
            Bump::LowerOnly => self.lower.word(id),
            Bump::Always => None,
        }
    }

    fn remove(&mut self, id: Id, domain: Domain, _departure: Departure) {
        if self.plain {
            self.lists[domain.0 as usize].list.unlink(&mut self.links, id);
            return;
        }
        self.unlink(id, domain);
        self.balance(domain);
    }

    fn victim(
        &mut self,
        domain: Domain,
        _now: u64,
        _rng: &mut Rng,
        may_go: impl Fn(Id) -> bool,
    ) -> Option<Id> {
        let mut id = self.lists[domain.0 as usize].list.tail;
        for _ in 0..VICTIM_TRIES {
            if id == Id::NONE {
                break;
            }
            let before = self.links.get(id).prev;
            if may_go(id) {
                if !self.hit.get(id) {
                    return Some(id);
                }
                self.second_chance(id, domain);
            }
            id = before;
        }
        // Every item at this end was used: the last one may be evicted all the same.
        let tail = self.lists[domain.0 as usize].list.tail;
        (tail != Id::NONE && may_go(tail)).then_some(tail)
    }

    fn hottest(&self, domain: Domain, count: usize, visit: impl FnMut(Id)) {
        self.lists[domain.0 as usize].list.first(&self.links, count, visit);
    }

    fn coldest(&self, domain: Domain, count: usize, visit: impl FnMut(Id)) {
        self.lists[domain.0 as usize].list.last(&self.links, count, visit);
    }

    fn clear(&mut self) {
        self.links = Column::default();
        self.lower = Bits::default();
        self.hit = Bits::default();
        for list in &mut self.lists {
            *list = Parted::new(list.lower_share);
        }
    }

    fn len(&self, domain: Domain) -> u32 {
        self.lists[domain.0 as usize].list.len
    }

    fn metadata_bytes(&self) -> u64 {
        self.links.bytes()
            + self.lower.bytes()
            + self.hit.bytes()
            + (self.lists.capacity() * size_of::<Parted>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::super::Item;
    use super::*;
    use proptest::prelude::*;
    use tiermem_base::Rng;

    const LIST: Domain = Domain(0);
    const TOUCH: Touch = Touch { now: 0, write: false };
    const NEW: Origin = Origin::Admitted(Item { key: 0, size: 1, dirty: false, now: 0 });

    fn order(lru: &Lru) -> Vec<u32> {
        let mut ids = Vec::new();
        lru.hottest(LIST, usize::MAX, |id| ids.push(id.0));
        ids
    }

    #[test]
    fn with_the_point_at_the_head_it_is_plain_lru() {
        let mut lru = Lru::new([1.0], Bump::LowerOnly);
        for id in 0..4 {
            lru.insert(Id(id), LIST, NEW);
        }
        lru.hit(Id(1), TOUCH, || LIST);
        assert_eq!(order(&lru), [1, 3, 2, 0]);
        assert_eq!(lru.victim(LIST, 0, &mut Rng::seeded(0), |_| true), Some(Id(0)));
        assert_eq!(lru.victim(LIST, 0, &mut Rng::seeded(0), |id| id != Id(0)), Some(Id(2)));
    }

    #[test]
    fn new_items_enter_a_quarter_from_the_tail() {
        let mut lru = Lru::new([0.25], Bump::Always);
        for id in 0..8 {
            lru.insert(Id(id), LIST, Origin::Promoted);
        }
        assert_eq!(order(&lru), [7, 6, 5, 4, 3, 2, 1, 0]);
        lru.insert(Id(8), LIST, NEW);
        assert_eq!(order(&lru), [7, 6, 5, 4, 3, 2, 8, 1, 0]);
        lru.hit(Id(8), TOUCH, || LIST);
        assert_eq!(order(&lru)[0], 8);
    }

    #[test]
    fn lazy_bumps_move_only_what_is_in_danger() {
        let mut lru = Lru::new([0.5], Bump::LowerOnly);
        for id in 0..4 {
            lru.insert(Id(id), LIST, Origin::Promoted);
        }
        lru.hit(Id(2), TOUCH, || unreachable!("an upper hit needs no list"));
        assert_eq!(order(&lru), [3, 2, 1, 0]);
        lru.hit(Id(0), TOUCH, || LIST);
        assert_eq!(order(&lru), [0, 3, 2, 1]);
    }

    #[test]
    fn second_chances_can_be_given_a_few_at_a_time() {
        let mut lru = Lru::new([0.5], Bump::AtTail);
        for id in 0..6 {
            lru.insert(Id(id), LIST, Origin::Promoted);
        }
        (0..4).for_each(|id| lru.hit(Id(id), TOUCH, || LIST));
        assert!(!lru.pass_over(LIST, 3, |_| true));
        assert_eq!(order(&lru), [2, 1, 0, 5, 4, 3]);
        assert!(lru.pass_over(LIST, 3, |_| true));
        assert_eq!(order(&lru), [3, 2, 1, 0, 5, 4]);
        assert!(lru.pass_over(LIST, 3, |_| false), "nobody may go, and nobody is passed over");
        assert!(lru.pass_over(LIST, 3, |_| true));
        assert_eq!(lru.victim(LIST, 0, &mut Rng::seeded(0), |_| true), Some(Id(4)));
    }

    #[test]
    fn a_marked_item_at_the_tail_has_a_second_chance() {
        let mut lru = Lru::new([0.5], Bump::AtTail);
        for id in 0..4 {
            lru.insert(Id(id), LIST, Origin::Promoted);
        }
        lru.hit(Id(0), TOUCH, || unreachable!("a hit needs no list"));
        assert_eq!(lru.victim(LIST, 0, &mut Rng::seeded(0), |_| true), Some(Id(1)));
        assert_eq!(order(&lru), [0, 3, 2, 1]);
        (0..4).for_each(|id| lru.hit(Id(id), TOUCH, || LIST));
        assert!(
            lru.victim(LIST, 0, &mut Rng::seeded(0), |_| true).is_some(),
            "somebody goes though all were hit"
        );
    }

    /// The obvious twin: a vector from head to tail and a boundary.
    struct Naive {
        items: Vec<u32>,
        lower: usize,
        share: f64,
        bump: Bump,
        hit: std::collections::BTreeSet<u32>,
    }

    impl Naive {
        fn balance(&mut self) {
            let share = ((self.share * 1024.0) as usize).clamp(1, 1024);
            let wanted = (self.items.len() * share).div_ceil(1024);
            self.lower = self.lower.clamp(wanted, wanted + self.items.len() / 64);
        }
        fn boundary(&self) -> usize {
            self.items.len() - self.lower
        }
        fn take(&mut self, id: u32) -> bool {
            let at = self.items.iter().position(|&item| item == id).expect("present");
            let was_lower = at >= self.boundary();
            self.lower -= usize::from(was_lower);
            self.items.remove(at);
            was_lower
        }
        fn hit(&mut self, id: u32) {
            if self.bump == Bump::AtTail {
                self.hit.insert(id);
                return;
            }
            let at = self.items.iter().position(|&item| item == id).expect("present");
            if (self.bump == Bump::LowerOnly && at < self.boundary()) || at == 0 {
                return;
            }
            self.lift(id);
        }
        fn lift(&mut self, id: u32) {
            self.take(id);
            self.items.insert(0, id);
            self.balance();
        }
        fn victim(&mut self) -> Option<u32> {
            for _ in 0..VICTIM_TRIES {
                let id = *self.items.last()?;
                if !self.hit.remove(&id) {
                    return Some(id);
                }
                self.lift(id);
            }
            self.items.last().copied()
        }
    }

    proptest! {
        #[test]
        fn equals_its_naive_twin(
            ops in prop::collection::vec((0u8..7, 0u32..200), 1..1200),
            share in prop_oneof![4 => 0.05f64..=1.0, 1 => Just(1.0)],
            bump in prop::sample::select(vec![Bump::Always, Bump::LowerOnly, Bump::AtTail]),
        ) {
            let mut lru = Lru::new([share], bump);
            let mut naive = Naive { items: vec![], lower: 0, share, bump, hit: Default::default() };
            for (what, id) in ops {
                let present = naive.items.contains(&id);
                match what {
                    0 | 1 if !present => {
                        let origin = if what == 0 { NEW } else { Origin::Promoted };
                        lru.insert(Id(id), LIST, origin);
                        let at = if what == 0 { naive.boundary() } else { 0 };
                        naive.items.insert(at, id);
                        naive.hit.remove(&id);
                        naive.lower += usize::from(what == 0);
                        naive.balance();
                    }
                    2 if present => {
                        lru.remove(Id(id), LIST, Departure::Deleted);
                        naive.take(id);
                        naive.balance();
                    }
                    3 => {
                        let victim = lru.victim(LIST, 0, &mut Rng::seeded(0), |_| true);
                        prop_assert_eq!(victim.map(|id| id.0), naive.victim());
                    }
                    _ if present => {
                        lru.hit(Id(id), TOUCH, || LIST);
                        naive.hit(id);
                    }
                    _ => {}
                }
                prop_assert_eq!(order(&lru), naive.items.clone());
                if !lru.plain {
                    prop_assert_eq!(lru.lists[0].lower_len as usize, naive.lower);
                }
            }
        }
    }
}
