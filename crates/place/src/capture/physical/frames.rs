//! Page frames of a program: which frame each page lies in, as far as it is known, and since when.
//!
//! A *mapping* is a page in a frame for a while. A line in the modelled caches carries the
//! mapping that its page had when it was filled, since real caches know lines by their physical
//! address: it is written back there, even if its virtual address means other memory by then.
//!
//! The table is asked when a transaction needs a page, and it asks the kernel when it does not know the frame.
//! An entry is valid until a fault in the same 2 MiB: a fault may install a huge page, or several pages around
//! the one that was touched, so the neighbours are looked up again when they are next needed. Changes without
//! a fault (a moved mapping, compaction, huge pages made in the background) are found by [`Frames::sweep`].

use std::num::NonZeroU64;

use tiermem_base::intern::Interner;

/// Result of looking up a page in the page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageLookup {
    /// It lies in this frame, the physical address over 4096.
    Frame(NonZeroU64),
    /// It is not in memory.
    Absent,
    /// There is no table any more: the program has gone. What was known before stays.
    NoTable,
}

/// The kernel's page table of the program, or a test's.
pub trait PageTable {
    /// Where a page (an address over 4096) is.
    fn page(&mut self, page: u64) -> PageLookup;

    /// Where as many pages as there is room for are, from `first` on.
    fn pages(&mut self, first: u64, found: &mut [PageLookup]);
}

/// A page in a frame for a while; a number for [`Frames::frame`].
pub type Mapping = u32;

const NONE: Mapping = u32::MAX;
/// Pages of a region, in which one fault makes everything uncertain: 2 MiB, as a huge page.
const REGION_PAGES: u64 = 512;
/// Looks at the table for a frame that is not there before it is given up. The access has happened by the second.
const LOOKS_MAX: u32 = 8;

/// Pages by how they were resolved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Pages that transactions asked for.
    pub pages: u64,
    /// Pages with a frame that was known when it was first asked for.
    pub at_once: u64,
    /// Pages with a frame that became known later.
    pub late: u64,
    /// Number of times that a page was found in another frame than before.
    pub remapped: u64,
}

impl FrameCounts {
    /// Pages with a frame that never became known.
    pub fn unresolved(&self) -> u64 {
        self.pages - self.at_once - self.late
    }
}

#[derive(Clone, Copy, Debug)]
struct Page {
    number: u64,
    region: u32,
    /// The mapping that holds now.
    mapping: Mapping,
    /// The faults in the region when it was last looked at.
    seen: u32,
    asked: bool,
    known: bool,
    /// The frame that it had last.
    last: Option<NonZeroU64>,
}

/// The table.
#[derive(Debug, Default)]
pub struct Frames {
    ids: Interner,
    pages: Vec<Page>,
    regions: Interner,
    /// Faults in each region.
    faults: Vec<u32>,
    /// The frame of each mapping, once it is known.
    mappings: Vec<Option<NonZeroU64>>,
    /// Mappings without a frame: their pages, and how often these were looked at.
    waiting: Vec<(Mapping, u32, u32)>,
    moved: Vec<u64>,
    counts: FrameCounts,
}

impl Frames {
    /// The mapping of a page that a transaction needs now. Its frame may become known later.
    pub fn mapping(&mut self, page: u64, table: &mut impl PageTable) -> Mapping {
        let id = self.id(page);
        let Page { region, mapping, seen, asked, .. } = self.pages[id];
        if mapping == NONE || seen != self.faults[region as usize] {
            self.found(id, table.page(page));
        }
        if self.pages[id].mapping == NONE {
            self.pages[id].mapping = self.new_mapping(None);
            self.waiting.push((self.pages[id].mapping, id as u32, 0));
        }
        let mapping = self.pages[id].mapping;
        if !asked {
            let known = self.mappings[mapping as usize].is_some();
            self.counts.pages += 1;
            self.counts.at_once += u64::from(known);
            self.pages[id].asked = true;
            self.pages[id].known = known;
        }
        mapping
    }

    /// Takes in that the kernel has answered a fault at a page. It is looked at whether it has been asked for or not: what is
    /// said of it may be read only when it has gone again.
    pub fn fault(&mut self, page: u64, table: &mut impl PageTable) {
        let id = self.id(page);
        let faults = &mut self.faults[self.pages[id].region as usize];
        *faults = faults.wrapping_add(1);
        // Not in memory: it has gone again already. If it was known, its next use will tell.
        if let found @ PageLookup::Frame(_) = table.page(page) {
            self.found(id, found);
        }
    }

    /// Looks again for the pages with unknown frames.
    pub fn retry(&mut self, table: &mut impl PageTable) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain_mut(|(mapping, id, looks)| {
            let id = *id as usize;
            if self.pages[id].mapping == *mapping && self.mappings[*mapping as usize].is_none() {
                self.found(id, table.page(self.pages[id].number));
            }
            *looks += 1;
            let given_up = *looks >= LOOKS_MAX;
            if given_up && self.pages[id].mapping == *mapping && self.mappings[*mapping as usize].is_none() {
                self.pages[id].mapping = NONE;
            }
            self.mappings[*mapping as usize].is_none() && self.pages[id].mapping == *mapping && !given_up
        });
        self.waiting = waiting;
    }

    /// Looks at everything that is known, many pages at a time.
    pub fn sweep(&mut self, table: &mut impl PageTable) {
        let with_mapping = |(page, id): &(u64, u32)| {
            let mapping = self.pages[*id as usize].mapping;
            (mapping != NONE && self.mappings[mapping as usize].is_some()).then_some((*page, *id))
        };
        let mut known: Vec<(u64, u32)> =
            self.ids.entries().filter_map(|entry| with_mapping(&entry)).collect();
        known.sort_unstable();
        let mut found = [PageLookup::Absent; REGION_PAGES as usize];
        for part in known.chunk_by(|a, b| a.0 / REGION_PAGES == b.0 / REGION_PAGES) {
            let (first, last) = (part[0].0, part[part.len() - 1].0);
            let window = &mut found[..=(last - first) as usize];
            table.pages(first, window);
            for (page, id) in part {
                self.found(*id as usize, window[(page - first) as usize]);
            }
        }
    }

    /// The frame of a mapping, if it is known.
    pub fn frame(&self, mapping: Mapping) -> Option<NonZeroU64> {
        self.mappings.get(mapping as usize).copied().flatten()
    }

    /// Pages with addresses that mean other memory since the last call, if any.
    pub fn take_moved(&mut self) -> Option<Vec<u64>> {
        (!self.moved.is_empty()).then(|| std::mem::take(&mut self.moved))
    }

    /// Counts of resolved pages so far.
    pub fn counts(&self) -> FrameCounts {
        self.counts
    }

    fn id(&mut self, page: u64) -> usize {
        let (id, is_new) = self.ids.intern(page);
        if is_new {
            let (region, is_new) = self.regions.intern(page / REGION_PAGES);
            if is_new {
                self.faults.push(0);
            }
            let (asked, known, last) = (false, false, None);
            self.pages.push(Page { number: page, region, mapping: NONE, seen: 0, asked, known, last });
        }
        id as usize
    }

    fn new_mapping(&mut self, frame: Option<NonZeroU64>) -> Mapping {
        self.mappings.push(frame);
        (self.mappings.len() - 1) as Mapping
    }

    /// Takes in where a page was just found to be.
    fn found(&mut self, id: usize, found: PageLookup) {
        let Page { number, region, mapping, last, .. } = self.pages[id];
        let frame = match found {
            PageLookup::Frame(frame) => Some(frame),
            PageLookup::Absent => None,
            PageLookup::NoTable => return,
        };
        self.pages[id].seen = self.faults[region as usize];
        let before = if mapping == NONE { None } else { self.mappings[mapping as usize] };
        if before == frame {
            return;
        }
        let Some(frame) = frame else {
            // Unmapped or swapped out. Lines of it in the caches belong to the memory that it was.
            self.pages[id].mapping = NONE;
            self.moved.push(number);
            return;
        };
        match before {
            None if mapping != NONE => self.mappings[mapping as usize] = Some(frame),
            None => self.pages[id].mapping = self.new_mapping(Some(frame)),
            Some(_) => {
                self.pages[id].mapping = self.new_mapping(Some(frame));
                self.moved.push(number);
            }
        }
        self.counts.remapped += u64::from(last.is_some_and(|last| last != frame));
        let page = &mut self.pages[id];
        page.last = Some(frame);
        self.counts.late += u64::from(page.asked && !page.known);
        page.known |= page.asked;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Default)]
    struct Fake(BTreeMap<u64, NonZeroU64>);

    impl PageTable for Fake {
        fn page(&mut self, page: u64) -> PageLookup {
            self.0.get(&page).map_or(PageLookup::Absent, |frame| PageLookup::Frame(*frame))
        }

        fn pages(&mut self, first: u64, found: &mut [PageLookup]) {
            found.iter_mut().zip(first..).for_each(|(found, page)| *found = self.page(page));
        }
    }

    fn frame(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }

    #[test]
    fn a_page_is_known_at_once_late_or_never() {
        let (mut frames, mut table) = (Frames::default(), Fake::default());
        table.0.insert(1, frame(11));
        let one = frames.mapping(1, &mut table);
        let two = frames.mapping(2, &mut table);
        let three = frames.mapping(3, &mut table);
        assert_eq!((frames.frame(one), frames.frame(two)), (Some(frame(11)), None));
        table.0.insert(2, frame(12));
        frames.retry(&mut table);
        assert_eq!((frames.frame(two), frames.frame(three)), (Some(frame(12)), None));
        (0..LOOKS_MAX).for_each(|_| frames.retry(&mut table));
        assert!(frames.waiting.is_empty() && frames.take_moved().is_none());
        let counts = frames.counts();
        assert_eq!((counts.pages, counts.at_once, counts.late, counts.unresolved()), (3, 1, 1, 1));
        // What was given up is looked for again when it is needed again.
        table.0.insert(3, frame(13));
        let again = frames.mapping(3, &mut table);
        assert_eq!((frames.frame(again), frames.frame(three)), (Some(frame(13)), None));
        assert_eq!(frames.counts().unresolved(), 0);
    }

    #[test]
    fn a_page_unmapped_and_touched_again_is_another_mapping() {
        let (mut frames, mut table) = (Frames::default(), Fake::default());
        table.0.insert(1, frame(11));
        let before = frames.mapping(1, &mut table);
        table.0.insert(1, frame(22));
        // Nothing says so yet.
        assert_eq!(frames.mapping(1, &mut table), before);
        frames.fault(1, &mut table);
        assert_eq!(frames.take_moved(), Some(vec![1]));
        let after = frames.mapping(1, &mut table);
        assert_eq!((frames.frame(before), frames.frame(after)), (Some(frame(11)), Some(frame(22))));
        assert_eq!(frames.counts().remapped, 1);
        // Back in the same frame, as after a fault that only changed what is allowed.
        frames.fault(1, &mut table);
        assert_eq!((frames.mapping(1, &mut table), frames.take_moved()), (after, None));
    }

    #[test]
    fn a_fault_makes_its_neighbours_uncertain() {
        let (mut frames, mut table) = (Frames::default(), Fake::default());
        table.0.insert(7, frame(17));
        table.0.insert(600, frame(60));
        let (near, far) = (frames.mapping(7, &mut table), frames.mapping(600, &mut table));
        // A huge page comes in at page 0, and pages around it change without a fault of their own.
        table.0.extend((0..1000).map(|page| (page, frame(5000 + page))));
        frames.fault(0, &mut table);
        let now = frames.mapping(7, &mut table);
        assert_eq!((frames.frame(near), frames.frame(now)), (Some(frame(17)), Some(frame(5007))));
        // Beyond 2 MiB only a sweep finds it.
        assert_eq!(frames.mapping(600, &mut table), far);
        frames.sweep(&mut table);
        let moved = frames.mapping(600, &mut table);
        assert_eq!(frames.frame(moved), Some(frame(5600)));
        assert_eq!(frames.counts().remapped, 2);
    }

    #[test]
    fn what_came_and_went_before_it_was_asked_for_is_known_from_its_fault() {
        let (mut frames, mut table) = (Frames::default(), Fake::default());
        table.0.insert(1, frame(11));
        frames.fault(1, &mut table);
        table.0.clear();
        let mapping = frames.mapping(1, &mut table);
        assert_eq!(frames.frame(mapping), Some(frame(11)));
        assert_eq!(frames.counts().at_once, 1);
    }

    #[test]
    fn what_was_known_outlives_the_program() {
        struct Gone;
        impl PageTable for Gone {
            fn page(&mut self, _: u64) -> PageLookup {
                PageLookup::NoTable
            }
            fn pages(&mut self, _: u64, found: &mut [PageLookup]) {
                found.fill(PageLookup::NoTable);
            }
        }
        let (mut frames, mut table) = (Frames::default(), Fake::default());
        table.0.insert(1, frame(11));
        let mapping = frames.mapping(1, &mut table);
        table.0.insert(2, frame(12));
        frames.fault(2, &mut table);
        frames.sweep(&mut Gone);
        frames.retry(&mut Gone);
        assert_eq!((frames.mapping(1, &mut Gone), frames.take_moved()), (mapping, None));
        let never = frames.mapping(3, &mut Gone);
        assert_eq!(frames.frame(never), None);
    }

    proptest! {
        /// With a fault reported for every change, the known frame of a page is right whenever it is used.
        #[test]
        fn what_is_told_of_is_known(steps in prop::collection::vec((0u8..4, 0u64..1200, 1u64..1 << 40), 1..300)) {
            let (mut frames, mut table) = (Frames::default(), Fake::default());
            for (what, page, number) in steps {
                match what {
                    0 => {
                        table.0.insert(page, frame(number));
                        frames.fault(page, &mut table);
                    }
                    1 => frames.retry(&mut table),
                    2 => frames.sweep(&mut table),
                    _ => {
                        let mapping = frames.mapping(page, &mut table);
                        prop_assert_eq!(frames.frame(mapping), table.0.get(&page).copied());
                    }
                }
            }
            let counts = frames.counts();
            prop_assert!(counts.pages >= counts.at_once + counts.late);
        }
    }
}
