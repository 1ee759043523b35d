//! Duels: which is used first again, a page that a sweep has just passed or another one of DRAM.

use std::collections::{BTreeMap, VecDeque};

/// Duels that are open at once; the oldest is given up for a new one.
const OPEN_MAX: usize = 2048;
/// The last so many that were decided count.
const DECIDED: u32 = 16;
/// Dropping begins when so many of them were won by the other page.
const BEGIN: u32 = 14;
/// And ends when fewer were.
const END: u32 = 12;

#[derive(Clone, Copy, Debug)]
struct Duel {
    passed: u64,
    held: u64,
    /// The other one was used.
    is_won: bool,
}

/// Duels, and what the last ones have told.
///
/// A duel is decided when its passed page is used: the other one has won if it was used before. So both had the same time, and
/// one that returns sooner than any other is not all that is seen.
#[derive(Clone, Debug, Default)]
pub struct Duels {
    /// Numbered one after another from `first` on; `None`: decided.
    open: VecDeque<Option<Duel>>,
    first: u64,
    by_page: BTreeMap<u64, u64>,
    /// A bit for each of the last that were decided, set where the other page has won.
    won: u32,
    decided: u32,
    is_dropping: bool,
}

impl Duels {
    /// Both pages have just left DRAM.
    pub fn begin(&mut self, passed: u64, held: u64) {
        // A page is in one duel at a time.
        if passed == held || [passed, held].iter().any(|page| self.by_page.contains_key(page)) {
            return;
        }
        if self.open.len() == OPEN_MAX {
            let oldest = self.open.pop_front().flatten();
            self.first += 1;
            oldest.into_iter().for_each(|duel| self.forget(duel));
        }
        let number = self.first + self.open.len() as u64;
        self.by_page.extend([(passed, number), (held, number)]);
        self.open.push_back(Some(Duel { passed, held, is_won: false }));
    }

    /// A page was used, after it was out of DRAM.
    pub fn used(&mut self, page: u64) {
        let Some(number) = self.by_page.get(&page).copied() else { return };
        let Some(slot) = self.open.get_mut((number - self.first) as usize) else { return };
        let Some(duel) = slot else { return };
        if duel.passed != page {
            duel.is_won = true;
            return;
        }
        let duel = *duel;
        *slot = None;
        self.forget(duel);
        self.won = self.won << 1 | u32::from(duel.is_won);
        self.decided = (self.decided + 1).min(DECIDED);
        let won = (self.won & ((1 << DECIDED) - 1)).count_ones();
        self.is_dropping = self.decided == DECIDED && won >= if self.is_dropping { END } else { BEGIN };
    }

    fn forget(&mut self, duel: Duel) {
        self.by_page.remove(&duel.passed);
        self.by_page.remove(&duel.held);
    }

    /// Whether pages that were passed are needed later than others.
    pub fn is_dropping(&self) -> bool {
        self.is_dropping
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        let open = self.open.capacity() * size_of::<Option<Duel>>();
        // A node of the ordered map is at least half full.
        (open + self.by_page.len() * size_of::<(u64, u64)>() * 2) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Duels of pages 2n and 2n + 1, of which these were won by the other page.
    fn decide(duels: &mut Duels, numbers: std::ops::Range<u64>, is_won: bool) {
        for number in numbers {
            duels.begin(2 * number, 2 * number + 1);
            if is_won {
                duels.used(2 * number + 1);
            }
            duels.used(2 * number);
        }
    }

    #[test]
    fn dropping_begins_when_nearly_all_were_won_and_ends_soon() {
        let mut duels = Duels::default();
        decide(&mut duels, 0..2, false);
        decide(&mut duels, 2..15, true);
        assert!(!duels.is_dropping(), "too few were decided");
        decide(&mut duels, 15..16, true);
        assert!(duels.is_dropping());
        decide(&mut duels, 16..18, false);
        decide(&mut duels, 18..20, false);
        assert!(duels.is_dropping(), "twelve of sixteen");
        decide(&mut duels, 20..21, false);
        assert!(!duels.is_dropping());
        decide(&mut duels, 21..30, true);
        assert!(!duels.is_dropping(), "it begins again with as many as at first");
        decide(&mut duels, 30..36, true);
        assert!(duels.is_dropping());
    }

    #[test]
    fn a_duel_is_decided_by_the_passed_page_alone() {
        let mut duels = Duels::default();
        (0..100).for_each(|number| duels.begin(2 * number, 2 * number + 1));
        (0..100).for_each(|number| duels.used(2 * number + 1));
        assert!(!duels.is_dropping());
        (0..16).for_each(|number| duels.used(2 * number));
        assert!(duels.is_dropping());
        // A page that is in no duel, or not any more, changes nothing.
        duels.used(1000);
        (0..16).for_each(|number| duels.used(2 * number));
        assert!(duels.is_dropping());
    }

    #[test]
    fn the_oldest_are_given_up_and_a_page_is_in_one_at_a_time() {
        let mut duels = Duels::default();
        for number in 0..10 * OPEN_MAX as u64 {
            duels.begin(2 * number, 2 * number + 1);
            duels.begin(2 * number, 7);
            duels.begin(5, 5);
        }
        assert_eq!((duels.open.len(), duels.by_page.len()), (OPEN_MAX, 2 * OPEN_MAX));
        duels.used(0);
        assert_eq!(duels.decided, 0);
        duels.used(2 * (10 * OPEN_MAX as u64 - 1));
        assert_eq!((duels.decided, duels.won), (1, 0));
        assert!(duels.metadata_bytes() < 1 << 18);
    }
}
