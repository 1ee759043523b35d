//! Memory that processes share: pages of files, and of shared memory, that other processes have mapped too.
//!
//! Their bits cannot be cleared in a range, only in all mappings of files at once. So where most of what a process has mapped of files is
//! shared, as the buffers of a database are, that is done once a slice, as far as the costs allow, and all windows of the slice are
//! of that clearing. Each process has bits of its own, so what they tell adds up. Shared libraries are too little to be worth it.

use super::granule::{Granule, Part};
use super::token_bucket::TokenBucket;
use super::{PageTable, Settings};

/// The least that is worth it: 16 MiB.
const PAGES_MIN: u64 = 4096;

/// Whether, and when.
#[derive(Debug)]
pub(super) struct SharedFiles {
    pages_per_s: f64,
    is_cleared_at_once: bool,
    /// Pages that may be cleared and touched again.
    pages: TokenBucket,
    /// The slice in which they were cleared last.
    cleared: Option<u64>,
}

impl SharedFiles {
    pub fn new(settings: Settings) -> Self {
        let pages_per_s = settings.pages_per_s;
        let pages = TokenBucket::new(pages_per_s, pages_per_s);
        SharedFiles { pages_per_s, is_cleared_at_once: false, pages, cleared: None }
    }

    /// Whether pages of files are told about whoever else has mapped them.
    pub fn are_cleared_at_once(&self) -> bool {
        self.is_cleared_at_once
    }

    /// Decides at the end of a slice whether pages of files are cleared at once from now on.
    pub fn choose(&mut self, granules: &mut [Granule]) {
        let files = || granules.iter().filter(|granule| granule.is_file);
        let shared: u64 = files().map(|granule| u64::from(granule.shared)).sum();
        let resident: u64 = files().map(|granule| u64::from(granule.resident())).sum();
        self.is_cleared_at_once = shared >= PAGES_MIN && shared * 2 >= resident;
        for granule in granules {
            granule.set_cleared_at_once(self.is_cleared_at_once && granule.is_file);
        }
    }

    /// Opens a window of pages of files, if they are cleared at once and it is time for that. Slices are numbered.
    pub fn clear<P: PageTable>(
        &mut self,
        table: &mut P,
        granules: &mut [Granule],
        slice: u64,
    ) -> Result<(), P::Error> {
        if !self.is_cleared_at_once || self.cleared == Some(slice) {
            return Ok(());
        }
        let touched =
            |granule: &Granule| if granule.is_cleared_at_once { f64::from(granule.set) } else { 0.0 };
        let cost: f64 = granules.iter().map(touched).sum();
        self.pages.reckon(table.now_s());
        // What costs more than a second may has all of it, and leaves a debt.
        if self.pages.left() < cost.min(self.pages_per_s) {
            return Ok(());
        }
        self.pages.spend(cost);
        self.cleared = Some(slice);
        let from_s = table.ran_s();
        table.clear_files()?;
        let took_s = table.ran_s() - from_s;
        cleared_at_once(granules, (from_s, took_s), |granule| granule.is_cleared_at_once);
        Ok(())
    }
}

/// Takes in that all pages of some granules were cleared, from when on and for how long. The kernel walks them in the order of addresses: each
/// granule has its own time.
pub(super) fn cleared_at_once(
    granules: &mut [Granule],
    (from_s, took_s): (f64, f64),
    is_one: impl Fn(&Granule) -> bool,
) {
    let pages = |granule: &Granule| f64::from(granule.small_pages + granule.huge_pages);
    let all: f64 = granules.iter().filter(|it| is_one(it)).map(pages).sum();
    let mut passed = 0.0;
    for granule in granules.iter_mut().filter(|it| is_one(it)) {
        passed += pages(granule);
        granule.clear(Part::Whole, from_s + took_s * passed / all.max(1.0), 0.0);
    }
}
