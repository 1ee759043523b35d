//! Credit for fetching ahead: what is not used is fetched no more.

/// What a page gives back that was fetched and is used: where half of them are used, credit does not fall.
const USED_PAGES: u32 = 2;

/// Pages that may be fetched ahead. One that is costs one, and one that is used then gives two.
///
/// So whatever is fetched, no more than the pages of a full credit are fetched for nothing beyond those that are used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credit {
    pages: u32,
    most: u32,
}

impl Credit {
    /// A full credit of so many pages.
    pub fn full(most: u32) -> Self {
        Credit { pages: most, most }
    }

    /// Pages that may be fetched.
    pub fn pages(self) -> u32 {
        self.pages
    }

    /// A page is fetched.
    pub fn spend(&mut self) {
        self.pages = self.pages.saturating_sub(1);
    }

    /// A page that was fetched is used. Returns whether the credit is full.
    pub fn earn(&mut self) -> bool {
        self.pages = self.pages.saturating_add(USED_PAGES).min(self.most);
        self.pages == self.most
    }

    /// A page was not fetched after all.
    pub fn give_back(&mut self) {
        self.pages = self.pages.saturating_add(1).min(self.most);
    }

    /// Half of the credit is left from now on.
    pub fn halve(&mut self) {
        self.pages = self.most / 2;
    }
}
