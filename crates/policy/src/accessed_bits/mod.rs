//! Heat from accessed bits: which bits of a process's page tables to clear, when to read them, and what they say.
//!
//! The kernel tells accessed bits only by a walk over all mappings, in the order of addresses ([`PageTable::read`]), and the walk
//! over a large process takes long: 16 ms a GiB. But it comes in small pieces. So bits are cleared just ahead of the reader, and a
//! *window*, from when a bit is cleared until it is read, is as short as the rate asks for, whatever the size of the process. A
//! walk over everything is a *pass*; [`Sampler::open`] plans the clearing for the next one.
//!
//! A *granule* is a mapping of its own. What is cleared of it need not be all of it:
//!
//! - Where few pages were touched since they were last cleared, all pages are: only those that are touched again cost the program
//!   something, and none of them is missed.
//! - Where all pages are touched, a *run* of them is cleared. All others stay touched, so the sum for the granule says how many of
//!   the run were touched again.
//! - Huge pages have one bit each. They are cleared as wholes, as the kernel would divide one otherwise. Where they are touched in
//!   windows that are as short as they can be, a huge page is *examined*: the body makes the kernel map it page by page for one
//!   pass, and its 512 pages have a bit each.
//!
//! What is shared with other processes is another matter ([`mod@shared_files`]).
//!
//! Windows are measured in the time for which the process ran, since it may have to wait for a processor that the reader has.
//!
//! Bits that stay clear after a window are read again in the next pass: the same clearing gives a long window as well. What
//! clearing costs the program, in pages that are touched again, is bounded ([`Settings::pages_per_s`]).

mod granule;
mod huge;
mod pacing;
mod pieces;
pub mod rate;
mod sampler;
mod shared_files;
mod token_bucket;

pub use huge::TOO_FAST_PER_S;
pub use pacing::{Pacing, Window};
pub use sampler::Sampler;

/// Pages of a huge page.
pub const HUGE_PAGES: u32 = 512;
/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of a huge page.
pub const HUGE_BYTES: u64 = PAGE_BYTES * HUGE_PAGES as u64;

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first address.
    pub start: u64,
    /// Behind the last one.
    pub end: u64,
}

impl Span {
    /// All addresses.
    pub const ALL: Span = Span { start: 0, end: u64::MAX };
}

/// What a walk tells of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Told {
    /// Its first address.
    pub start: u64,
    /// Behind its last one.
    pub end: u64,
    /// Resident pages that are mapped one by one.
    pub small: u32,
    /// Resident huge pages.
    pub huge: u32,
    /// Pages whose bits are set; 512 for each huge page.
    pub touched: u32,
    /// Pages that other processes have mapped too: they cannot be cleared in a range.
    pub shared: u32,
    /// Whether it is one of a file, or of shared memory.
    pub is_file: bool,
    /// When the walk reached it, by [`PageTable::now_s`].
    pub from_s: f64,
    /// The same by [`PageTable::ran_s`], and when the walk left it.
    pub ran_from_s: f64,
    /// See `ran_from_s`.
    pub ran_to_s: f64,
}

/// Page tables of a process, and two clocks.
pub trait PageTable {
    /// Why it cannot be looked at.
    type Error;

    /// Seconds of a clock that never goes back.
    fn now_s(&mut self) -> f64;

    /// Seconds for which the process has run, all of its threads together. Rates are of this clock: what waits for a processor
    /// accesses nothing, and on a busy machine it waits just when it is looked at.
    fn ran_s(&mut self) -> f64;

    /// Lets the process run for so long.
    fn pause(&mut self, seconds: f64);

    /// Clears the accessed bits of ranges; what is not mapped is passed over. [`Span::ALL`] alone means all pages.
    ///
    /// # Errors
    /// If the process cannot be looked at any more.
    fn clear(&mut self, spans: &[Span]) -> Result<(), Self::Error>;

    /// Clears the accessed bits of all pages of files, those that other processes have mapped too.
    ///
    /// # Errors
    /// If the process cannot be looked at any more.
    fn clear_files(&mut self) -> Result<(), Self::Error>;

    /// Goes on with the walk, from the first mapping after it had ended, and appends what it tells. False if it has ended.
    ///
    /// # Errors
    /// If the process cannot be looked at any more.
    fn read(&mut self, told: &mut Vec<Told>) -> Result<bool, Self::Error>;
}

/// How much is cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clearing {
    /// Samples, or all pages where that costs little.
    Sampled,
    /// Each granule as a whole, whatever it costs.
    EveryPage,
    /// All pages of the process at once, as no range can be cleared for itself.
    AtOnce,
}

/// Settings of a sampler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// What is cleared.
    pub clearing: Clearing,
    /// Cleared pages that the program may touch again in a second, on the average.
    pub pages_per_s: f64,
    /// Seed of the random draws.
    pub seed: u64,
}

impl Default for Settings {
    /// A page that is touched again costs the program 0.4 us, so all of them together 1% of a processor.
    fn default() -> Self {
        Settings { clearing: Clearing::Sampled, pages_per_s: 24_576.0, seed: 1 }
    }
}
