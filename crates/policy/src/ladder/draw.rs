//! Drawing random items from the tables of pages: every slot of a class is as likely as any other.

use super::classes::Class;
use super::slots::{FREE, GHOST, PageState, Slots};
use crate::Id;
use tiermem_base::Rng;

/// Pages whose tables are walked when draws met nobody.
const PAGES_WALKED: u64 = 4;

impl Slots {
    /// The item in a random slot of the class, if there is one in it.
    #[inline]
    pub fn draw(&self, class: Class, rng: &mut Rng) -> Option<Id> {
        let members = &self.members[class.index()];
        // One random number chooses page and slot: the halves of a product.
        let slots = if class == self.runs() { 1 } else { u64::from(self.classes.slots_per_page(class)) };
        let at = rng.below(members.len() as u64 * slots);
        let page = &self.pages[*members.get((at / slots) as usize)? as usize];
        let slot = (at % slots) as usize;
        if page.state == PageState::Slots && slot >= usize::from(page.fresh) {
            return None;
        }
        let cell = *page.table.get(slot)?;
        (cell & FREE == 0 && cell != GHOST).then_some(Id(cell))
    }

    /// Some item of the class that `may_go` accepts, looked for in a few pages from a random one on.
    pub fn any_of(&self, class: Class, rng: &mut Rng, may_go: impl Fn(Id) -> bool) -> Option<Id> {
        let members = &self.members[class.index()];
        let count = members.len() as u64;
        let first = rng.below(count);
        (0..PAGES_WALKED.min(count)).find_map(|step| {
            let page = members[((first + step) % count) as usize];
            self.holders(page).find_map(|holder| match holder {
                super::slots::Holder::Item(id) if may_go(id) => Some(id),
                _ => None,
            })
        })
    }

    /// A page of the class, each as likely as any other.
    pub fn draw_page(&self, class: Class, rng: &mut Rng) -> Option<u32> {
        let members = &self.members[class.index()];
        members.get(rng.below(members.len() as u64) as usize).copied()
    }

    /// Pages that a class has, a run counting once.
    pub fn class_pages(&self, class: Class) -> u32 {
        self.members[class.index()].len() as u32
    }

    /// Items on a page; `None` when it is free, a run's tail, or being emptied.
    pub fn page_used(&self, at: u32) -> Option<u32> {
        let page = self.pages.get(at as usize)?;
        let can_give = page.state == PageState::Slots && !page.draining;
        can_give.then_some(u32::from(page.used))
    }

    /// Whether the page belongs to `class` and is being emptied.
    pub fn is_draining(&self, at: u32, class: Class) -> bool {
        self.pages.get(at as usize).is_some_and(|page| page.draining && page.class == class)
    }

    /// Slots within the class's pages that nobody has, those being emptied not counted.
    pub fn slots_free(&self, class: Class) -> u32 {
        self.spaces.get(class.index()).map_or(0, |space| space.slots - space.used)
    }

    /// Takes back the pages that classes keep although nothing lies on them, where they are next to be given.
    pub(super) fn close_idle_pages(&mut self) {
        for class in 0..self.spaces.len() {
            let at = self.spaces[class].partial;
            if self.pages.get(at as usize).is_some_and(|page| page.used == 0) {
                self.drain(at);
            }
        }
    }

    /// Items of a class, those on their way to or from it counted.
    #[inline]
    pub fn class_used(&self, class: Class) -> u32 {
        match self.spaces.get(class.index()) {
            Some(space) => space.used,
            None => self.members[class.index()].len() as u32,
        }
    }

    /// The class of page runs.
    #[inline]
    pub fn runs(&self) -> Class {
        self.classes.runs()
    }

    /// Enters a page among those of its class.
    pub(super) fn join(&mut self, at: u32) {
        let page = &mut self.pages[at as usize];
        if page.state == PageState::RunTail {
            return;
        }
        let members = &mut self.members[page.class.index()];
        page.at = members.len() as u32;
        super::slots::reserve_some(members, 1);
        members.push(at);
    }

    /// Takes a page out from those of its class.
    pub(super) fn part(&mut self, at: u32) {
        let page = &self.pages[at as usize];
        if page.state == PageState::RunTail {
            return;
        }
        let (members, position) = (&mut self.members[page.class.index()], page.at);
        members.swap_remove(position as usize);
        if let Some(&moved) = members.get(position as usize) {
            self.pages[moved as usize].at = position;
        }
    }
}
