//! Space of each class: its pages, those with a free slot, and the number of slots.

use std::ops::Range;
use std::sync::Arc;

use super::page::{NO_PAGE, Page, PageState};
use super::pages::{Pages, reserve_some};
use crate::Id;
use crate::ladder::classes::{Class, SizeClasses};
use tiermem_base::Rng;

/// Pages whose tables are walked when draws found no item.
const PAGES_WALKED: u64 = 4;

/// The space of one class.
#[derive(Clone, Debug)]
struct Space {
    /// The first of the pages that have a free slot.
    partial: u32,
    /// Slots that it has, those not counted that are free on pages being emptied.
    slots: u32,
    used: u32,
}

/// The use of space by a class. For runs a slot is a page, and none of theirs is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ladder) struct ClassUse {
    /// Items, those on their way to or from it counted.
    pub items: u32,
    /// Slots within its pages, free ones on pages being emptied not counted.
    pub slots: u32,
    /// Slots among them that are free.
    pub slots_free: u32,
}

/// The pages of each class. Runs have a class of their own behind the others, and no slots.
#[derive(Clone, Debug)]
pub(in crate::ladder) struct ByClass {
    classes: Arc<SizeClasses>,
    spaces: Vec<Space>,
    /// Pages of each class, of runs those on which one begins: random items are drawn from them.
    members: Vec<Vec<u32>>,
    /// Of those lists. Each step of the ladder asks for it, so it is counted when a list grows.
    member_bytes: u64,
    run_pages: u32,
    /// Of all free slots.
    free_units: u64,
}

impl ByClass {
    pub(super) fn new(classes: Arc<SizeClasses>) -> Self {
        let space = Space { partial: NO_PAGE, slots: 0, used: 0 };
        let spaces = vec![space; classes.count()];
        let members = vec![Vec::new(); classes.count() + 1];
        ByClass { classes, spaces, members, member_bytes: 0, run_pages: 0, free_units: 0 }
    }

    /// The first of a class's pages that have a free slot.
    pub(super) fn partial(&self, class: Class) -> Option<u32> {
        self.spaces.get(class.index()).map(|space| space.partial).filter(|&at| at != NO_PAGE)
    }

    /// All of a class's pages that have a free slot.
    pub(super) fn partials<'a>(
        &self,
        class: Class,
        pages: &'a Pages,
    ) -> impl Iterator<Item = (u32, &'a Page)> {
        let with = |at: u32| pages.get(at).map(|page| (at, page));
        std::iter::successors(self.partial(class).and_then(with), move |(_, page)| with(page.next))
    }

    /// A slot of a page was taken.
    pub(super) fn note_taken(&mut self, at: u32, pages: &mut Pages) {
        let page = pages.page(at);
        let class = page.class();
        self.spaces[class.index()].used += 1;
        self.free_units -= u64::from(self.classes.slot_units(class));
        if page.slots_free() == 0 {
            self.unlink(at, pages);
        }
    }

    /// A slot of a page was given back. On a page that is being emptied it is not given again.
    pub(super) fn note_released(&mut self, at: u32, pages: &mut Pages) {
        let page = pages.page(at);
        let space = &mut self.spaces[page.class().index()];
        space.used -= 1;
        if page.draining {
            space.slots -= 1;
            return;
        }
        self.free_units += u64::from(self.classes.slot_units(page.class()));
        if page.slots_free() == 1 {
            self.link(at, pages);
        }
    }

    /// The free slots of a page count no longer: they are not given out.
    pub(super) fn begin_draining(&mut self, at: u32, pages: &mut Pages) {
        let page = pages.page(at);
        let (class, free) = (page.class(), page.slots_free());
        self.spaces[class.index()].slots -= free;
        self.free_units -= u64::from(free * self.classes.slot_units(class));
        if free > 0 {
            self.unlink(at, pages);
        }
    }

    /// The free slots of a page count again.
    pub(super) fn end_draining(&mut self, at: u32, pages: &mut Pages) {
        if self.count_free(at, pages) > 0 {
            self.link(at, pages);
        }
    }

    /// Counts the slots that a page has free. Returns how many.
    fn count_free(&mut self, at: u32, pages: &mut Pages) -> u32 {
        let page = pages.page(at);
        let (class, free) = (page.class(), page.slots_free());
        self.spaces[class.index()].slots += free;
        self.free_units += u64::from(free * self.classes.slot_units(class));
        free
    }

    /// Whether a page is the only one of its class that has a free slot.
    pub(super) fn is_alone(&self, at: u32, pages: &Pages) -> bool {
        pages.get(at).is_some_and(|page| self.partial(page.class()) == Some(at) && page.next == NO_PAGE)
    }

    fn link(&mut self, at: u32, pages: &mut Pages) {
        let page = pages.page(at);
        let first = std::mem::replace(&mut self.spaces[page.class().index()].partial, at);
        (page.next, page.prev) = (first, NO_PAGE);
        if first != NO_PAGE {
            pages.page(first).prev = at;
        }
    }

    fn unlink(&mut self, at: u32, pages: &mut Pages) {
        let page = pages.page(at);
        let (class, prev, next) = (page.class(), page.prev, page.next);
        if prev == NO_PAGE {
            self.spaces[class.index()].partial = next;
        } else {
            pages.page(prev).next = next;
        }
        if next != NO_PAGE {
            pages.page(next).prev = prev;
        }
    }

    /// A page has been given to its class, all slots of it free. A page of runs is a member once a run begins there.
    pub(super) fn join(&mut self, at: u32, pages: &mut Pages) {
        if pages.page(at).state() == PageState::Runs {
            self.run_pages += 1;
            return;
        }
        self.add_member(at, pages);
        self.count_free(at, pages);
        self.link(at, pages);
    }

    /// A run begins on a page.
    pub(super) fn join_run(&mut self, head: u32, pages: &mut Pages) {
        self.add_member(head, pages);
    }

    fn add_member(&mut self, at: u32, pages: &mut Pages) {
        let page = pages.page(at);
        let members = &mut self.members[page.class().index()];
        page.at = members.len() as u32;
        let before = members.capacity();
        reserve_some(members, 1);
        self.member_bytes += (members.capacity() - before) as u64 * 4;
        members.push(at);
    }

    /// Takes a page out of its class.
    pub(super) fn part(&mut self, at: u32, pages: &mut Pages) {
        if pages.page(at).state() == PageState::Runs {
            self.run_pages -= 1;
        } else {
            self.remove_member(at, pages);
        }
    }

    /// No run begins on a page any more.
    pub(super) fn part_run(&mut self, head: u32, pages: &mut Pages) {
        self.remove_member(head, pages);
    }

    fn remove_member(&mut self, at: u32, pages: &mut Pages) {
        let page = pages.page(at);
        let (members, position) = (&mut self.members[page.class().index()], page.at);
        members.swap_remove(position as usize);
        if let Some(&moved) = members.get(position as usize) {
            pages.page(moved).at = position;
        }
    }

    /// Pages that a class has, of runs those on which one begins.
    #[inline]
    pub fn members(&self, class: Class) -> &[u32] {
        &self.members[class.index()]
    }

    /// The class of runs.
    #[inline]
    pub fn runs(&self) -> Class {
        self.classes.runs()
    }

    /// The items and slots of a class.
    #[inline]
    pub fn class_use(&self, class: Class) -> ClassUse {
        match self.spaces.get(class.index()) {
            Some(space) => {
                ClassUse { items: space.used, slots: space.slots, slots_free: space.slots - space.used }
            }
            None => {
                ClassUse { items: self.members(class).len() as u32, slots: self.run_pages, slots_free: 0 }
            }
        }
    }

    /// Free slots of a class on pages that give them, those on pages `but` not counted.
    pub fn slots_free_beside(&self, class: Class, but: &Range<u32>, pages: &Pages) -> u64 {
        let others = self.partials(class, pages).filter(|(at, _)| !but.contains(at));
        others.map(|(_, page)| u64::from(page.slots_free())).sum()
    }

    /// The item in a random slot of the class, if there is one in it: every slot is as likely as any other.
    #[inline]
    pub fn draw(&self, class: Class, pages: &Pages, rng: &mut Rng) -> Option<Id> {
        let members = self.members(class);
        // One random number chooses page and slot: the halves of a product.
        let slots = if class == self.runs() { 1 } else { u64::from(self.classes.slots_per_page(class)) };
        let at = rng.below(members.len() as u64 * slots);
        let page = pages.get(*members.get((at / slots) as usize)?)?;
        page.item((at % slots) as usize)
    }

    /// Some item of the class that `may_go` accepts, looked for in a few pages from a random one on: the fallback when draws
    /// found none.
    pub fn any_of(
        &self,
        class: Class,
        pages: &Pages,
        rng: &mut Rng,
        may_go: impl Fn(Id) -> bool,
    ) -> Option<Id> {
        let members = self.members(class);
        let count = members.len() as u64;
        let first = rng.below(count);
        (0..PAGES_WALKED.min(count)).find_map(|step| {
            let page = members[((first + step) % count) as usize];
            pages.items(page).find(|&id| may_go(id))
        })
    }

    /// Units of all free slots.
    pub(super) fn free_units(&self) -> u64 {
        self.free_units
    }

    /// Bytes of the lists of pages.
    pub(super) fn bytes(&self) -> u64 {
        self.member_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::Slots;
    use super::*;
    use crate::ladder::classes::PAGE_UNITS;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const PAGES: u32 = 24;

    /// The pages of a class by a look at all pages: all of them, those with a free slot, slots, and slots taken.
    fn recount(pages: &Pages, class: Class) -> (BTreeSet<u32>, BTreeSet<u32>, u32, u32) {
        let mut of_class = (BTreeSet::new(), BTreeSet::new(), 0, 0);
        for (at, page) in (0..PAGES).filter_map(|at| Some((at, pages.get(at)?))) {
            let is_here = (page.state() == PageState::Slots || page.has_run_head()) && page.class() == class;
            if is_here {
                of_class.0.insert(at);
                of_class.3 += page.used();
                of_class.2 += if page.draining { page.used() } else { page.used() + page.slots_free() };
                if page.slots_free() > 0 && !page.draining {
                    of_class.1.insert(at);
                }
            }
        }
        of_class
    }

    proptest! {
        /// Over any sequence of takes, returns, drains and keeps, the lists and sums equal a recount.
        #[test]
        fn lists_and_sums_equal_a_recount(ops in prop::collection::vec((0u8..9, 0u64..200_000, any::<prop::sample::Index>()), 1..200)) {
            let classes = Arc::new(SizeClasses::geometric(2.0));
            let mut slots = Slots::new(classes.clone(), PAGES);
            let mut held = Vec::new();
            for (number, (what, bytes, pick)) in ops.into_iter().enumerate() {
                match what {
                    0..5 => held.extend(slots.take(classes.fit(if what == 0 { bytes } else { bytes % 9000 }), Id(number as u32))),
                    5 => slots.drain(pick.index(PAGES as usize) as u32),
                    6 if !held.is_empty() => slots.undrain(held[pick.index(held.len())] / PAGE_UNITS),
                    _ if !held.is_empty() => {
                        slots.release(held.swap_remove(pick.index(held.len())));
                    }
                    _ => {}
                }
                let (by_class, pages) = (slots.by_class(), slots.pages());
                let mut free_units = 0;
                for class in (0..=classes.runs().0).map(Class) {
                    let (members, partials, count, used) = recount(pages, class);
                    prop_assert_eq!(by_class.members(class).iter().copied().collect::<BTreeSet<_>>(), members);
                    let of_class = by_class.class_use(class);
                    prop_assert_eq!(of_class.items, used);
                    if class == classes.runs() {
                        let run_pages = (0..PAGES).filter(|&at| !pages.is_free(at) && pages.page_use(at).is_none());
                        prop_assert_eq!((of_class.slots, of_class.slots_free), (run_pages.count() as u32, 0));
                    } else {
                        prop_assert_eq!(&by_class.partials(class, pages).map(|(at, _)| at).collect::<BTreeSet<_>>(), &partials);
                        prop_assert_eq!((of_class.slots, of_class.slots_free), (count, count - used));
                        let beside = by_class.slots_free_beside(class, &(0..PAGES / 2), pages);
                        let others = partials.range(PAGES / 2..).filter_map(|&at| pages.get(at));
                        prop_assert_eq!(beside, others.map(|page| u64::from(page.slots_free())).sum::<u64>());
                        free_units += u64::from((count - used) * classes.slot_units(class));
                    }
                }
                prop_assert_eq!(by_class.free_units(), free_units);
                let capacity = by_class.members.iter().map(Vec::capacity).sum::<usize>();
                prop_assert_eq!(by_class.bytes(), capacity as u64 * 4);
            }
        }
    }
}
