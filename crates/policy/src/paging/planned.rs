//! What a plan says of a program's pages: which are held in DRAM, which are swept in order, again and again, and which are used together.

use std::collections::BTreeMap;

use super::page_range::PageRange;
use super::path::Path;
use super::phases::Phases;

/// Ranges that a plan can have at once; more are not followed.
const RANGES_MAX: usize = 1 << 16;
/// Pages of a range: 16 TiB. The rest of a longer one is not followed.
const RANGE_PAGES_MAX: u64 = 1 << 32;

/// What a plan says of a range of pages. A range can be held and swept: then the sweep finds it in DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// They stay in DRAM, and come back first. Where a plan holds more than DRAM has room for, those told first are held.
    Held,
    /// They are used one after another, and then again from the beginning. They leave when they were passed.
    Swept {
        /// The number of the sweep, whose ranges follow each other in the order of their pages.
        sweep: u16,
        /// Whether it goes to lower pages.
        is_down: bool,
    },
    /// They are used together with others of this phase, while those of other phases are not. Pages can belong to several phases; those told
    /// first come first.
    Phase {
        /// The number of the phase.
        phase: u16,
    },
    /// The plan says nothing of them any more.
    Free,
}

/// A plan. What is told is kept as it comes; what follows from it is made anew at [`Self::renew`].
#[derive(Clone, Debug, Default)]
pub(super) struct Planned {
    /// Ranges to hold, the most important first. Some may overlap.
    told_held: Vec<PageRange>,
    told_swept: Vec<(u16, bool, PageRange)>,
    told_phases: Vec<(u16, PageRange)>,
    is_stale: bool,
    held_pages_max: u64,
    /// Ranges that are held, in the order of pages, apart from each other.
    held: Vec<PageRange>,
    paths: Vec<Path>,
    /// Ranges of paths, in the order of pages, apart from each other: the path of each.
    swept: Vec<(PageRange, usize)>,
    phases: Phases,
}

impl Planned {
    /// A range has a role from now on.
    pub fn tell(&mut self, pages: PageRange, role: Role) {
        if pages.first >= pages.end {
            return;
        }
        let followed = PageRange { end: pages.end.min(pages.first.saturating_add(RANGE_PAGES_MAX)), ..pages };
        let told = self.told_held.len() + self.told_swept.len() + self.told_phases.len();
        let has_room = told < RANGES_MAX;
        match role {
            Role::Free => return self.forget(pages),
            _ if !has_room => return,
            Role::Held => self.told_held.push(followed),
            Role::Swept { sweep, is_down } => self.told_swept.push((sweep, is_down, followed)),
            Role::Phase { phase } => self.told_phases.push((phase, followed)),
        }
        self.is_stale = true;
    }

    /// Nothing is said of a range any more.
    pub fn forget(&mut self, pages: PageRange) {
        if self.is_empty() {
            return;
        }
        let overlaps = |other: &PageRange| other.first < pages.end && pages.first < other.end;
        let swept = self.told_swept.iter().map(|(.., range)| range);
        let phases = self.told_phases.iter().map(|(_, range)| range);
        let is_told = self.told_held.iter().chain(swept).chain(phases).any(overlaps);
        if is_told {
            self.told_held = self.told_held.iter().flat_map(|range| range.without(pages)).collect();
            let left = self.told_swept.iter().flat_map(|&(sweep, is_down, range)| {
                range.without(pages).map(move |part| (sweep, is_down, part))
            });
            self.told_swept = left.collect();
            let left = self.told_phases.iter();
            let left = left.flat_map(|&(phase, range)| range.without(pages).map(move |part| (phase, part)));
            self.told_phases = left.collect();
            self.is_stale = true;
        }
    }

    /// So many pages can be held.
    pub fn limit_held(&mut self, pages_max: u64) {
        self.is_stale |= pages_max != self.held_pages_max;
        self.held_pages_max = pages_max;
    }

    /// Whether no plan was told.
    pub fn is_empty(&self) -> bool {
        self.told_held.is_empty() && self.told_swept.is_empty() && self.told_phases.is_empty()
    }

    /// Whether something was told since the last [`Self::renew`].
    pub fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Makes what is held and the paths anew, from what was told.
    pub fn renew(&mut self) {
        self.is_stale = false;
        let (mut held, mut left) = (Apart::default(), self.held_pages_max);
        for range in &self.told_held {
            for part in held.uncovered(*range) {
                let pages = (part.end - part.first).min(left);
                left -= pages;
                held.add(PageRange { end: part.first + pages, ..part }, ());
            }
        }
        self.held = held.into_ranges().map(|(range, ())| range).collect();
        let mut told = self.told_swept.clone();
        told.sort_by_key(|(sweep, _, range)| (*sweep, range.first));
        let (mut swept, mut ranges): (Apart<usize>, Vec<Vec<PageRange>>) = (Apart::default(), Vec::new());
        let mut paths: Vec<(u16, bool)> = Vec::new();
        for (sweep, is_down, range) in told {
            if paths.last().is_none_or(|(last, _)| *last != sweep) {
                paths.push((sweep, is_down));
                ranges.push(Vec::new());
            }
            let path = paths.len() - 1;
            for part in swept.uncovered(range) {
                swept.add(part, path);
                ranges[path].push(part);
            }
        }
        self.paths =
            ranges.iter().zip(paths).map(|(ranges, (_, is_down))| Path::new(ranges, is_down)).collect();
        self.swept = swept.into_ranges().collect();
        self.phases.set(&self.told_phases);
    }

    /// Pages that are used together.
    pub fn phases(&mut self) -> &mut Phases {
        &mut self.phases
    }

    /// Ranges that are held, in the order of pages.
    pub fn held(&self) -> &[PageRange] {
        &self.held
    }

    /// The held range that a page lies in.
    pub fn held_around(&self, page: u64) -> Option<PageRange> {
        let at = self.held.partition_point(|range| range.end <= page);
        self.held.get(at).copied().filter(|range| range.holds(page))
    }

    /// Whether a page is held.
    pub fn is_held(&self, page: u64) -> bool {
        self.held_around(page).is_some()
    }

    /// The path that a page lies on.
    pub fn path_of(&mut self, page: u64) -> Option<&mut Path> {
        let at = self.swept.partition_point(|(range, _)| range.end <= page);
        let (_, path) = self.swept.get(at).filter(|(range, _)| range.holds(page))?;
        self.paths.get_mut(*path)
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        let ranges = (self.told_held.capacity() + self.held.capacity()) * size_of::<PageRange>();
        let swept = self.told_swept.capacity() * size_of::<(u16, bool, PageRange)>()
            + self.swept.capacity() * size_of::<(PageRange, usize)>();
        let phases = self.told_phases.capacity() * size_of::<(u16, PageRange)>();
        (ranges + swept + phases) as u64
            + self.phases.metadata_bytes()
            + self.paths.iter().map(Path::metadata_bytes).sum::<u64>()
    }
}

/// Ranges apart from each other, each with what it is.
#[derive(Debug)]
struct Apart<T>(BTreeMap<u64, (u64, T)>);

impl<T> Default for Apart<T> {
    fn default() -> Self {
        Apart(BTreeMap::new())
    }
}

impl<T> Apart<T> {
    /// The parts of a range that lie in none of them.
    fn uncovered(&self, range: PageRange) -> Vec<PageRange> {
        let before = self.0.range(..=range.first).next_back().map(|(_, (end, _))| *end);
        let mut next = range.first.max(before.unwrap_or(0));
        let mut parts = Vec::new();
        for (first, (end, _)) in self.0.range(range.first..range.end) {
            parts.extend((next < *first).then_some(PageRange { first: next, end: *first }));
            next = next.max(*end);
        }
        parts.extend((next < range.end).then_some(PageRange { first: next, end: range.end }));
        parts
    }

    /// Adds a range that no other overlaps.
    fn add(&mut self, range: PageRange, what: T) {
        if range.first < range.end {
            self.0.insert(range.first, (range.end, what));
        }
    }

    fn into_ranges(self) -> impl Iterator<Item = (PageRange, T)> {
        self.0.into_iter().map(|(first, (end, what))| (PageRange { first, end }, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn range(first: u64, end: u64) -> PageRange {
        PageRange { first, end }
    }

    fn of(told: &[(PageRange, Role)], held_pages_max: u64) -> Planned {
        let mut planned = Planned::default();
        planned.limit_held(held_pages_max);
        told.iter().for_each(|(pages, role)| planned.tell(*pages, *role));
        planned.renew();
        planned
    }

    #[test]
    fn what_was_told_first_is_held_as_far_as_there_is_room() {
        let told =
            [(range(100, 200), Role::Held), (range(0, 150), Role::Held), (range(300, 400), Role::Held)];
        assert_eq!(of(&told, 1000).held(), [range(0, 100), range(100, 200), range(300, 400)]);
        let planned = of(&told, 120);
        assert_eq!(planned.held(), [range(0, 20), range(100, 200)]);
        assert!(planned.is_held(19) && !planned.is_held(20) && planned.is_held(199) && !planned.is_held(200));
        assert_eq!(of(&told, 0).held(), []);
    }

    #[test]
    fn what_is_unmapped_is_in_no_plan() {
        let swept = Role::Swept { sweep: 0, is_down: false };
        let mut planned = of(&[(range(0, 100), Role::Held), (range(0, 100), swept)], 1000);
        planned.forget(range(200, 300));
        assert!(!planned.is_stale());
        planned.tell(range(40, 60), Role::Free);
        planned.renew();
        assert_eq!(planned.held(), [range(0, 40), range(60, 100)]);
        assert!(
            planned.path_of(39).is_some() && planned.path_of(40).is_none() && planned.path_of(60).is_some()
        );
        planned.forget(range(0, u64::MAX));
        planned.renew();
        assert!(planned.is_empty() && planned.held().is_empty() && planned.path_of(0).is_none());
    }

    #[test]
    fn more_ranges_than_can_be_followed_are_left_out() {
        let mut planned = Planned::default();
        planned.limit_held(u64::MAX);
        (0..RANGES_MAX as u64 + 10).for_each(|at| planned.tell(range(2 * at, 2 * at + 1), Role::Held));
        planned.renew();
        assert_eq!(planned.held().len(), RANGES_MAX);
        assert!(planned.metadata_bytes() < 4 << 20);
    }

    proptest! {
        /// As sets of pages would have it.
        #[test]
        fn equals_sets(told in prop::collection::vec((0u64..200, 0u64..40, 0u8..6), 0..30), most in 0u64..100) {
            let (mut held, mut swept, mut in_phase) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
            let mut planned = Planned::default();
            planned.limit_held(most);
            for (first, pages, what) in told {
                let pages = range(first, first + pages);
                let role = match what {
                    0 | 1 => Role::Held,
                    2 => Role::Free,
                    5 => Role::Phase { phase: 1 },
                    sweep => Role::Swept { sweep: u16::from(sweep), is_down: sweep == 3 },
                };
                planned.tell(pages, role);
                for page in pages.first..pages.end {
                    match role {
                        Role::Held if held.contains(&page) => {}
                        Role::Held => held.push(page),
                        Role::Swept { .. } => _ = swept.insert(page),
                        Role::Phase { .. } => _ = in_phase.insert(page),
                        Role::Free => {
                            in_phase.remove(&page);
                            held.retain(|other| *other != page);
                            swept.remove(&page);
                        }
                    }
                }
            }
            planned.renew();
            held.truncate(most as usize);
            for page in 0..240 {
                prop_assert_eq!(planned.path_of(page).is_some(), swept.contains(&page), "swept {}", page);
                prop_assert_eq!(planned.phases().holds(page), in_phase.contains(&page), "in a phase {}", page);
            }
            let all: u64 = planned.held().iter().map(|range| range.end - range.first).sum();
            prop_assert_eq!(all, held.len() as u64);
        }
    }
}
