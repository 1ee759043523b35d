//! Drawing random items from the tables of pages: every slot of a class is as likely as any other.

use super::Slots;
use crate::Id;
use crate::ladder::classes::Class;
use tiermem_base::Rng;

/// Pages whose tables are walked when draws met nobody.
const PAGES_WALKED: u64 = 4;

impl Slots {
    /// The item in a random slot of the class, if there is one in it.
    #[inline]
    pub fn draw(&self, class: Class, rng: &mut Rng) -> Option<Id> {
        let members = self.by_class.members(class);
        // One random number chooses page and slot: the halves of a product.
        let slots = if class == self.runs() { 1 } else { u64::from(self.classes.slots_per_page(class)) };
        let at = rng.below(members.len() as u64 * slots);
        let page = self.pages.get(*members.get((at / slots) as usize)?)?;
        page.item((at % slots) as usize)
    }

    /// Some item of the class that `may_go` accepts, looked for in a few pages from a random one on.
    pub fn any_of(&self, class: Class, rng: &mut Rng, may_go: impl Fn(Id) -> bool) -> Option<Id> {
        let members = self.by_class.members(class);
        let count = members.len() as u64;
        let first = rng.below(count);
        (0..PAGES_WALKED.min(count)).find_map(|step| {
            let page = members[((first + step) % count) as usize];
            self.pages.items(page).find(|&id| may_go(id))
        })
    }
}
