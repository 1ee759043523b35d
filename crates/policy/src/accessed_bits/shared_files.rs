//! Memory that processes share: pages of files, and of shared memory, that other processes have mapped too.
//!
//! Their bits cannot be cleared in a range, only in all mappings of files at once. So where most of what a process has mapped of files is
//! shared, as the buffers of a database are, that is done once a slice, as far as the costs allow, and all windows of the slice are
//! of that clearing. Each process has bits of its own, so what they tell adds up. Shared libraries are too little to be worth it.

use super::Settings;
use super::granule::{Granule, Part};
use super::sampler::Sampler;
use super::token_bucket::TokenBucket;
use super::{Clearing, PageTable};

/// The least that is worth it: 16 MiB.
const PAGES_MIN: u64 = 4096;

/// Whether, and when.
#[derive(Debug)]
pub(super) struct SharedFiles {
    is_cleared_at_once: bool,
    /// Pages that may be cleared and touched again.
    pages: TokenBucket,
    /// The slice in which they were cleared last, as it is counted by [`Sampler`].
    cleared: Option<u64>,
}

impl SharedFiles {
    pub fn new(settings: Settings) -> Self {
        let pages = TokenBucket::new(settings.pages_per_s, settings.pages_per_s);
        SharedFiles { is_cleared_at_once: false, pages, cleared: None }
    }
}

impl Sampler {
    /// Whether pages of files are told about whoever else has mapped them.
    pub fn clears_shared_files(&self) -> bool {
        self.shared_files.is_cleared_at_once
    }

    /// Decides at the end of a slice whether pages of files are cleared at once from now on.
    pub(super) fn choose_for_shared_files(&mut self) {
        if self.settings.clearing != Clearing::Sampled {
            return;
        }
        let files = || self.granules.iter().filter(|granule| granule.is_file);
        let shared: u64 = files().map(|granule| u64::from(granule.shared)).sum();
        let resident: u64 = files().map(|granule| u64::from(granule.resident())).sum();
        let is_mostly_shared = shared >= PAGES_MIN && shared * 2 >= resident;
        self.shared_files.is_cleared_at_once = is_mostly_shared;
        for granule in &mut self.granules {
            granule.set_cleared_at_once(is_mostly_shared && granule.is_file);
        }
    }

    /// Opens a window of pages of files, if they are cleared at once and it is time for that.
    pub(super) fn clear_shared_files<P: PageTable>(&mut self, table: &mut P) -> Result<(), P::Error> {
        let SharedFiles { is_cleared_at_once, pages, cleared } = &mut self.shared_files;
        if !*is_cleared_at_once || *cleared == Some(self.slices) {
            return Ok(());
        }
        let touched =
            |granule: &Granule| if granule.is_cleared_at_once { f64::from(granule.set) } else { 0.0 };
        let cost: f64 = self.granules.iter().map(touched).sum();
        pages.reckon(table.now_s());
        // What costs more than a second may has all of it, and leaves a debt.
        if pages.left() < cost.min(self.settings.pages_per_s) {
            return Ok(());
        }
        pages.spend(cost);
        *cleared = Some(self.slices);
        let from_s = table.ran_s();
        table.clear_files()?;
        let took_s = table.ran_s() - from_s;
        self.cleared_at_once(from_s, took_s, |granule| granule.is_cleared_at_once);
        Ok(())
    }

    /// The kernel walks the pages in the order of addresses when it clears them all: each granule has its own time.
    pub(super) fn cleared_at_once(&mut self, from_s: f64, took_s: f64, is_one: impl Fn(&Granule) -> bool) {
        let pages = |granule: &Granule| f64::from(granule.small_pages + granule.huge_pages);
        let all: f64 = self.granules.iter().filter(|it| is_one(it)).map(pages).sum();
        let mut passed = 0.0;
        for granule in self.granules.iter_mut().filter(|it| is_one(it)) {
            passed += pages(granule);
            granule.clear(Part::Whole, from_s + took_s * passed / all.max(1.0), 0.0);
        }
    }
}
