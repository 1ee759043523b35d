//! Paging: which pages of an unmodified program leave DRAM, and which are fetched ahead, while the kernel serves its faults.
//!
//! The frames ([`crate::frames`]) are the program's pages: tier 0 is DRAM, the tiers below are what the kernel swaps to. This
//! machine adds the world of a program that knows nothing of it. [`Paging::on`] is its only door: [`Event`]s go in, in one order,
//! with the time as a number; [`Act`]s come out. The same events give the same acts, so a log of both can be replayed. A live
//! pager and a simulator are the two bodies that it drives.
//!
//! ```text
//!   Fault ────────────────┐                      ┌──> PageOut ──┐
//!   Used, Referenced ─────┤                      │              ├──> Settled, with the ticket of the act
//!   Found (a page scan) ──┼──> Paging::on ───────┤              │
//!   Discarded, Unmapped ──┤                      └──> Fetch ────┘
//!   Capacity, Charged ────┤
//!   Planned, Step ────────┘
//! ```
//!
//! **A fault has been answered already.** The kernel has brought the page in, whether there was room by the count here or not. So
//! DRAM can hold more pages than its capacity; [`Event::Step`] brings it down. With watermarks ([`Config::watermarks`]) a step
//! keeps some of it free, so that the group's limit is not reached and the kernel has no reason to choose a page. Without, a
//! fault that takes the last page of DRAM makes another leave, and DRAM is as full as it can be.
//!
//! **An act is a wish.** The kernel may keep a page that two processes map, or take a page by itself. [`Event::Settled`] says
//! what the driver was told; [`Event::Found`] says what a page scan saw, and the scan is right: a page that is present though it
//! was paged out stays and is as good as new, one that was swapped though it should be in DRAM is counted in
//! [`Counts::kernel_evicted`].
//!
//! **References come as they can be had.** A fault is told exactly, and so is the first use of a page that was fetched ahead: it
//! lies in the swap cache and is not mapped, so its first use is a minor fault. Other uses are told by the granule, at each look
//! ([`Event::Referenced`]); [`LookPace`] says when, and [`Granules`] which ones. [`ScanPace`] says when pages are
//! scanned. A trace tells each ([`Event::Used`]).
//!
//! **Pages.** A page is a number: its address over the size of a page, with the number of its process above that where there are
//! several. It has a frame from when it is first present until its range is unmapped. A mapping costs nothing, and needs no event:
//! what is reserved and never touched has no frame. `mremap` is an unmapping of the old range; a scan finds the pages at the new.
//!
//! **Prefetching** ([`crate::prefetch`]) hears of faults and first uses, and wishes for pages, which are fetched if they have a
//! frame below. With watermarks a wish takes a page that is free above the low one, or waits for a step, which is due then.
//! Without, room is made for one wish after another. Evictions pay for what has arrived: see [`Counts::pollution`].
//!
//! **Dropping behind** ([`behind`]). Passes over more memory than DRAM holds drop what they have passed, where that is needed later than
//! what else lies in DRAM. So a part of such memory stays, whoever reclaims.
//!
//! **What was written** ([`Written`]) and is still charged is given up.
//!
//! **Files** ([`swappiness`]). Fetching ahead must not drive the kernel to take the program's code instead.
//!
//! **More DRAM** ([`refaults`]). Each page that comes back tells how much more DRAM would have kept it.
//!
//! **Several tiers of memory** ([`Config::arrival`]). With [`Spill`](crate::frames::Arrival::Spill) pages fill local DRAM first, then
//! the memory of other nodes, and are paged out from the last of these alone. What is said here of DRAM that is full, of watermarks
//! and of dropping behind holds for that one tier.
//!
//! **Plans** ([`Role`]). A plan names pages that are held, and pages that are swept in order, again and again. What is held is pinned in
//! DRAM, as far as there is room for it. A sweep ([`path`]) tells by its faults, and by first uses of what was fetched for it, where
//! the program is: what comes next is fetched, whatever lies between, and what was passed leaves while DRAM is full. Of several sets of pages
//! that are used one at a time ([`phases`]) the one that is used is fetched. A program that does not follow its plan has nothing fetched
//! and nothing dropped.
//!
//! Invariants, held by [`Paging::audit`]: a frame and its page know each other; a frame without a page lies nowhere; pages that a
//! prefetch threw out lie below; what is pinned is held, and lies in DRAM.

mod ahead;
mod audit;
mod behind;
mod config;
mod counts;
mod event;
mod fetch_back;
mod follow_plan;
mod granules;
mod look_pace;
mod machine;
mod page_map;
mod page_range;
mod pages;
mod path;
mod phases;
mod planned;
mod reconcile;
mod refaults;
mod room;
mod scan_pace;
mod swappiness;
mod sweeps;
mod wishes;
mod written;

pub use config::{Config, GRANULE_BYTES, LOOK_NS, Reclaim, Watermarks};
pub use counts::Counts;
pub use event::{Act, Event, PageState};
pub use granules::Granules;
pub use look_pace::LookPace;
pub use machine::Paging;
pub use page_range::PageRange;
pub use planned::Role;
pub use refaults::{MoreDram, Saved};
pub use scan_pace::ScanPace;
pub use swappiness::SwappinessAdvice;
pub use written::Written;

pub use crate::moves::{Outcome, Ticket};
