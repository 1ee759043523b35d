//! The path of a sweep: its pages in the order in which they are used, where the program is on it, what it will use next and what
//! it has passed.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};

use super::page_range::PageRange;
use crate::prefetch::credit::Credit;

/// Pages between one use and the next beyond what was fetched ahead: the kernel brings neighbours by itself.
const GAP: u64 = 16;
/// What may be fetched for nothing: two windows at their most.
const CREDIT_PAGES: u32 = 2048;
/// A use that lies so many pages behind the last one, and in so small a part of the path, is late, and no turning back.
const LATE_MAX: u64 = 1024;
const LATE_ONE_OF: u64 = 64;
/// A program that is found beyond what was fetched, but in so small a part of the path, has gone on.
const SKIP_ONE_OF: u64 = 4;
/// A program is on the path after so many uses that follow each other.
const RUN_MIN: u64 = 16;
/// Behind it a walk begins anew: so no place of a round behind it is more than a number can be.
const PLACES_MAX: u64 = 1 << 62;
/// Pages that are fetched ahead at first; then twice as many each time.
const WINDOW_MIN: u32 = 16;
/// Pages that are looked at for one use: those that are held are passed over.
const LOOKS_MAX: u32 = 8192;
/// Pages that are looked at for one use to leave.
const LEAVE_LOOKS_MAX: u32 = 1024;

/// A path that is walked again and again.
///
/// Places on it are counted on from one round to the next, so that an earlier one is always a smaller number. The walk has the `last`
/// place that was used and the `next` one to look at for fetching it ahead. Uses of pages that stay in DRAM are not told, so the last
/// one can be far behind the program where much of it stays.
///
/// **What was passed last is needed last.** So where something has to leave, the places just behind the program leave first, and then
/// those farther behind, as far as what comes next. Places from `gone` on were looked at for that.
///
/// **A program that leaves out most of its pages** would have them fetched for nothing. So there is a [`Credit`] for what is fetched.
///
/// **A program that turns back to what has left for it** does not do what the plan says. Then nothing leaves before it has gone a whole round
/// in order: so a plan that does not fit costs what leaves in one round.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// In the order of pages, each with the number of pages before it.
    ranges: Vec<(PageRange, u64)>,
    pages: u64,
    is_down: bool,
    /// `None`: the program was not seen on it.
    walk: Option<Walk>,
    /// Uses that must follow each other before something leaves.
    run_min: u64,
    credit: Credit,
}

#[derive(Clone, Debug)]
struct Walk {
    last: u64,
    next: u64,
    gone: Range<u64>,
    /// Uses that followed each other.
    run: u64,
    window: u32,
    /// Places of the window that the program has not come to yet.
    ahead: VecDeque<u64>,
}

/// Where a page lies that a program comes to next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lies {
    /// In DRAM, where it is held.
    Stays,
    /// In DRAM for now, on its way there, or nowhere.
    Here,
    /// Below DRAM.
    Below,
}

impl Path {
    /// Over ranges in the order of pages, apart from each other.
    pub fn new(ranges: &[PageRange], is_down: bool) -> Self {
        let mut pages = 0;
        let placed = ranges.iter().map(|range| {
            let before = pages;
            pages += range.end - range.first;
            (*range, before)
        });
        let ranges = placed.collect();
        Path { ranges, pages, is_down, walk: None, run_min: RUN_MIN, credit: Credit::full(CREDIT_PAGES) }
    }

    /// The place of a page in the first round.
    fn place_of(&self, page: u64) -> Option<u64> {
        let at = self.ranges.partition_point(|(range, _)| range.end <= page);
        let (range, before) = self.ranges.get(at).filter(|(range, _)| range.holds(page))?;
        let up = before + (page - range.first);
        Some(if self.is_down { self.pages - 1 - up } else { up })
    }

    /// The page at a place.
    fn page_at(&self, place: u64) -> Option<u64> {
        let place = place.checked_rem(self.pages)?;
        let up = if self.is_down { self.pages - 1 - place } else { place };
        let at = self.ranges.partition_point(|(_, before)| *before <= up).checked_sub(1)?;
        let (range, before) = self.ranges.get(at)?;
        Some(range.first + (up - before))
    }

    /// A page was used for the first time since it came to DRAM. `is_missed`: it had to be read, and nobody had fetched it. Returns
    /// whether the walk goes on by that.
    pub fn used(&mut self, page: u64, is_missed: bool) -> bool {
        let Some(place) = self.place_of(page) else { return false };
        let pages = self.pages;
        let Some(walk) = &mut self.walk else {
            self.walk = Some(Walk::at(place + pages));
            return false;
        };
        let step = (place + pages - walk.last % pages) % pages;
        // Threads and the kernel's own order make uses that come a little late, and recordings do.
        if step == 0 || pages - step <= LATE_MAX.min(pages / LATE_ONE_OF) {
            return false;
        }
        let is_next = step <= (walk.next - walk.last).saturating_add(GAP);
        if !is_next && step <= pages / SKIP_ONE_OF && walk.last <= PLACES_MAX {
            // It has gone over what lies in DRAM without being held, of which nothing is told.
            *walk = Walk {
                last: walk.last + step,
                next: walk.last + step + 1,
                window: 0,
                ahead: VecDeque::new(),
                ..walk.clone()
            };
            return false;
        }
        if !is_next || walk.last > PLACES_MAX {
            let before = (walk.last + step).saturating_sub(pages);
            if is_missed && walk.gone.contains(&before) {
                self.run_min = pages.max(RUN_MIN);
            }
            *walk = Walk::at(place + pages);
            return false;
        }
        // Where each page follows the one before, it would have been used if it had been fetched.
        if !is_missed || step == 1 {
            self.credit.earn();
        }
        walk.last += step;
        walk.next = walk.next.max(walk.last + 1);
        walk.run = walk.run.saturating_add(1);
        // It was in DRAM when it was looked at. What lies behind it may have left, too.
        if is_missed && walk.next > walk.last + 1 {
            walk.next = walk.last + 1;
            walk.ahead.clear();
        }
        while walk.ahead.front().is_some_and(|ahead| *ahead <= walk.last) {
            walk.ahead.pop_front();
        }
        true
    }

    /// Adds the pages to fetch, if it is time: those that are not in DRAM, within a window beyond the program. It is time when a half of
    /// the window before is left. Only what stays in DRAM does not count for the window: what is fetched earlier than it must be takes
    /// the room of something else for so long.
    pub fn fetch_ahead(&mut self, window_max: u32, mut lies: impl FnMut(u64) -> Lies, wanted: &mut Vec<u64>) {
        let Some(mut walk) = self.walk.take() else { return };
        if walk.ahead.len() <= walk.window as usize / 2 {
            walk.window = walk.window.saturating_mul(2).max(WINDOW_MIN).min(window_max);
            for _ in 0..LOOKS_MAX {
                // No more than the rest of the round.
                if walk.ahead.len() >= walk.window as usize || walk.next - walk.last >= self.pages {
                    break;
                }
                let Some(page) = self.page_at(walk.next) else { break };
                let lies = lies(page);
                if lies == Lies::Below {
                    if self.credit.pages() == 0 {
                        break;
                    }
                    self.credit.spend();
                    wanted.push(page);
                }
                if lies != Lies::Stays {
                    walk.ahead.push_back(walk.next);
                }
                walk.next += 1;
            }
        }
        self.walk = Some(walk);
    }

    /// Whether what was passed may leave: the program is known to be on the path.
    pub fn is_followed(&self) -> bool {
        self.walk.as_ref().is_some_and(|walk| walk.run >= self.run_min)
    }

    /// Calls `leave` with pages that were passed, farther behind than `lag_pages`, those that are needed last first, as long as it asks
    /// for more; with none before the program is known to be on the path.
    pub fn leave_passed(&mut self, lag_pages: u64, mut leave: impl FnMut(u64) -> ControlFlow<()>) {
        let Some(Walk { last, next, ref gone, run, .. }) = self.walk else { return };
        if run < self.run_min {
            return;
        }
        let mut gone = gone.clone();
        let mut looks = LEAVE_LOOKS_MAX;
        let mut goes_on = |place: u64| {
            looks = looks.saturating_sub(1);
            looks > 0 && self.page_at(place).is_some_and(|page| leave(page).is_continue())
        };
        let mut is_wanted = true;
        let top = last.saturating_sub(lag_pages);
        if top > gone.end {
            let mut place = top;
            while is_wanted && place > gone.end {
                place -= 1;
                is_wanted = goes_on(place);
            }
            // Where some of them stay they are looked at again when they are the next to leave.
            gone = if place == gone.end { gone.start..top } else { place..top };
        }
        // What comes next, and lies in DRAM, is not passed.
        let floor = next.max(last + 1).saturating_sub(self.pages);
        while is_wanted && gone.start > floor {
            gone.start -= 1;
            is_wanted = goes_on(gone.start);
        }
        self.walk.iter_mut().for_each(|walk| walk.gone = gone.clone());
    }

    pub fn metadata_bytes(&self) -> u64 {
        let ahead = self.walk.as_ref().map_or(0, |walk| walk.ahead.capacity() * size_of::<u64>());
        (self.ranges.capacity() * size_of::<(PageRange, u64)>() + ahead) as u64
    }
}

impl Walk {
    fn at(place: u64) -> Self {
        Walk { last: place, next: place + 1, gone: place..place, run: 0, window: 0, ahead: VecDeque::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RANGES: [PageRange; 2] =
        [PageRange { first: 1000, end: 1400 }, PageRange { first: 5000, end: 5600 }];

    /// Uses pages, with all below; what is fetched for each.
    fn fetched(path: &mut Path, pages: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut wanted = Vec::new();
        for page in pages {
            if path.used(page, false) {
                path.fetch_ahead(128, |_| Lies::Below, &mut wanted);
            }
        }
        wanted
    }

    #[test]
    fn places_go_over_holes_and_round() {
        for is_down in [false, true] {
            let path = Path::new(&RANGES, is_down);
            let mut pages: Vec<u64> = (1000..1400).chain(5000..5600).collect();
            if is_down {
                pages.reverse();
            }
            for (place, page) in (0..).zip(&pages) {
                assert_eq!((path.place_of(*page), path.page_at(place + 3000)), (Some(place), Some(*page)));
            }
            assert_eq!((path.place_of(999), path.place_of(1400), path.place_of(5600)), (None, None, None));
        }
        assert_eq!(Path::new(&[], false).page_at(7), None);
    }

    #[test]
    fn windows_double_go_over_holes_and_begin_the_next_round_before_it_comes() {
        let mut path = Path::new(&RANGES, false);
        assert_eq!(fetched(&mut path, [1390]), []);
        assert_eq!(fetched(&mut path, [1391]), (1392..1400).chain(5000..5008).collect::<Vec<_>>());
        // Eight of the sixteen are left.
        assert_eq!(fetched(&mut path, 1392..1399), []);
        assert_eq!(fetched(&mut path, [1399]), (5008..5032).collect::<Vec<_>>());
        let rest = fetched(&mut path, 5000..5600);
        assert_eq!(rest[..568], (5032..5600).collect::<Vec<_>>());
        assert!(rest[568..].starts_with(&[1000, 1001]) && rest.len() < 568 + 128);
    }

    #[test]
    fn what_is_held_is_passed_over_and_what_lies_in_dram_is_not_fetched() {
        let mut path = Path::new(&[PageRange { first: 0, end: 100_000 }], false);
        let mut wanted = Vec::new();
        path.used(99, false);
        assert!(path.used(100, false));
        let lies = |page: u64| match page {
            ..5000 => Lies::Stays,
            5000..5010 => Lies::Here,
            _ => Lies::Below,
        };
        path.fetch_ahead(128, lies, &mut wanted);
        assert_eq!(wanted, (5010..5016).collect::<Vec<_>>());
        // No use is told of what lies in between.
        assert!(path.used(5000, false));
        // Of what was passed over, something has left meanwhile.
        wanted.clear();
        assert!(path.used(5002, true));
        let lies = |page: u64| if page.is_multiple_of(2) { Lies::Below } else { Lies::Here };
        path.fetch_ahead(128, lies, &mut wanted);
        assert_eq!(wanted, (5003..5035).filter(|page| page % 2 == 0).collect::<Vec<_>>());
    }

    #[test]
    fn a_program_that_leaves_out_most_of_a_path_has_little_of_it_fetched_for_nothing() {
        let mut path = Path::new(&[PageRange { first: 0, end: 1 << 20 }], false);
        let used = (100..102).chain((1..20_000).map(|step| 101 + step * 15));
        let wanted = fetched(&mut path, used);
        // What it uses is fetched, and as much again, and the credit.
        assert!(wanted.len() < 2 * 20_000 + CREDIT_PAGES as usize + 2, "{}", wanted.len());
        // In order it has all of it fetched again.
        let wanted = fetched(&mut path, 400_000..500_000);
        assert!(wanted.len() > 99_900, "{}", wanted.len());
    }

    #[test]
    fn a_program_that_goes_elsewhere_begins_anew() {
        let mut path = Path::new(&RANGES, false);
        fetched(&mut path, 1000..1100);
        assert_eq!(fetched(&mut path, [5300, 1010]), []);
        assert_eq!(fetched(&mut path, [5300, 5301]), (5302..5318).collect::<Vec<_>>());
        // The same page, one that is late and one that is on no path change nothing.
        assert_eq!(fetched(&mut path, [5301, 5295, 7]), []);
    }

    /// The first `most` pages that leave.
    fn left(path: &mut Path, most: usize) -> Vec<u64> {
        let mut left = Vec::new();
        path.leave_passed(4, |page| {
            left.push(page);
            if left.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        left
    }

    #[test]
    fn what_was_passed_last_leaves_first_and_what_comes_next_does_not() {
        let mut path = Path::new(&RANGES, false);
        fetched(&mut path, 1100..1116);
        assert_eq!(left(&mut path, 9), [], "fifteen pages follow the first");
        fetched(&mut path, [1116]);
        assert_eq!(left(&mut path, 3), [1111, 1110, 1109]);
        assert_eq!(left(&mut path, 2), [1108, 1107]);
        // What was passed since, then what was left out, and what was passed before the program was seen.
        fetched(&mut path, 1117..1120);
        assert_eq!(left(&mut path, 5), [1114, 1113, 1112, 1106, 1105]);
        assert_eq!(left(&mut path, 106), (5599..5600).chain(1000..1105).rev().collect::<Vec<_>>());
        // All of the round but what is fetched already, which comes next.
        let rest = left(&mut path, 2000);
        let next = path.walk.as_ref().map(|walk| walk.next).unwrap();
        assert_eq!(rest.last().copied(), path.page_at(next));
        assert_eq!(left(&mut path, 1), []);
    }

    #[test]
    fn who_turns_back_to_what_has_left_has_to_go_a_round_in_order() {
        let mut path = Path::new(&RANGES, false);
        fetched(&mut path, 1000..1200);
        assert!(path.is_followed());
        assert_eq!(left(&mut path, 100).last(), Some(&1095));
        // What has not left has not left for it.
        path.used(1050, true);
        fetched(&mut path, 1051..1200);
        assert!(path.is_followed());
        assert_eq!(left(&mut path, 100).len(), 100);
        path.used(1150, true);
        fetched(&mut path, (1151..1400).chain(5000..5600).chain(1000..1150));
        assert!(!path.is_followed() && left(&mut path, 9).is_empty());
        fetched(&mut path, [1150]);
        assert!(path.is_followed());
    }

    proptest! {
        /// Whatever is used: no page is fetched that is off the path, or twice in a window.
        #[test]
        fn all_that_is_told_lies_on_the_path(uses in prop::collection::vec(990u64..1420, 0..400), is_down in any::<bool>()) {
            let mut path = Path::new(&RANGES, is_down);
            for page in uses {
                let (mut wanted, mut passed) = (Vec::new(), Vec::new());
                if path.used(page, page % 5 == 0) {
                    let lies = |page| [Lies::Below, Lies::Here, Lies::Stays][page as usize % 3];
                    path.fetch_ahead(64, lies, &mut wanted);
                    passed = left(&mut path, 100);
                }
                prop_assert!(wanted.len() <= 64 && !passed.contains(&page));
                prop_assert!(wanted.iter().all(|page| !passed.contains(page)));
                let is_on = |page: &u64| RANGES.iter().any(|range| range.holds(*page));
                prop_assert!(wanted.iter().chain(&passed).all(is_on));
            }
        }
    }
}
