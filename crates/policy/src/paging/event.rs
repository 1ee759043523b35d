//! Events that go into the machine, and acts that come out.

use super::config::Watermarks;
use super::page_range::PageRange;
use super::planned::Role;
use crate::moves::{Outcome, Ticket};
use crate::prefetch::Why;

/// The state in which a page scan finds a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageState {
    /// It is mapped.
    Present,
    /// It is swapped, or in the swap cache and not mapped: a scan cannot tell these apart.
    Swapped,
    /// There is nothing: it was never touched, or was discarded.
    Absent,
}

/// Something that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The kernel has answered a fault at a page.
    Fault {
        /// The page.
        page: u64,
        /// Whether the kernel had to read it: a major fault. A minor one is the first touch of a page, or of one that was fetched
        /// ahead, or finds a page that was paged out and is still in the swap cache.
        major: bool,
        /// Whether it is known to have been a write.
        write: bool,
    },
    /// The page was used, and that needed no fault.
    Used {
        /// The page.
        page: u64,
        /// Whether it was written.
        write: bool,
    },
    /// Something in a granule was used since the last look. Pages of it that were fetched ahead are not meant: their first use
    /// is a fault.
    Referenced {
        /// The granule's first page.
        first: u64,
        /// It has 2^this pages.
        pages_log2: u32,
    },
    /// A page scan found these pages in this state.
    Found {
        /// The pages.
        pages: PageRange,
        /// The state of each.
        state: PageState,
    },
    /// The content of these pages was given up (`MADV_DONTNEED`); they are still mapped.
    Discarded {
        /// The pages.
        pages: PageRange,
    },
    /// These pages are mapped no longer, or were replaced by another mapping.
    Unmapped {
        /// The pages.
        pages: PageRange,
    },
    /// An act was carried out, or could not be. Each ticket is settled once, in any order.
    Settled {
        /// The act's ticket.
        ticket: Ticket,
        /// How it ended.
        outcome: Outcome,
    },
    /// DRAM has so many pages from now on; where pages spill ([`Arrival::Spill`](crate::frames::Arrival::Spill)), the tier of memory
    /// from which they leave.
    Capacity {
        /// Pages of DRAM: the group's limit.
        dram_pages: u32,
        /// Pages of it that are kept free.
        watermarks: Watermarks,
    },
    /// So many pages of DRAM are used, for whatever: what the group is charged.
    Charged {
        /// Pages.
        pages: u64,
    },
    /// A plan says this of these pages from now on, until they are unmapped.
    Planned {
        /// The pages.
        pages: PageRange,
        /// What it says.
        role: Role,
    },
    /// Time to bring DRAM below its watermarks, with this many moves at most.
    Step {
        /// How many moves may begin.
        budget: u32,
    },
}

/// Something to carry out. Acts of one step are in the order of their pages, those that page out before those that fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Send a page to a slower tier: `MADV_PAGEOUT` where that is swap.
    PageOut {
        /// To settle it.
        ticket: Ticket,
        /// The page.
        page: u64,
        /// The tier that it lies in.
        from: u8,
        /// The tier that it shall lie in; `None`: it holds zeros, and may be dropped.
        to: Option<u8>,
        /// Whether it is known to need no write.
        clean: bool,
    },
    /// Bring a page to a faster tier: `MADV_WILLNEED` where it is swapped.
    Fetch {
        /// To settle it.
        ticket: Ticket,
        /// The page.
        page: u64,
        /// The tier that it lies in.
        from: u8,
        /// The tier that it shall lie in.
        to: u8,
        /// [`Why::Prefetch`], or [`Why::Demand`] where it is promoted because it is used.
        why: Why,
    },
}

impl Act {
    /// The ticket that settles it.
    pub fn ticket(&self) -> Ticket {
        match self {
            Act::PageOut { ticket, .. } | Act::Fetch { ticket, .. } => *ticket,
        }
    }

    /// The page that moves.
    pub fn page(&self) -> u64 {
        match self {
            Act::PageOut { page, .. } | Act::Fetch { page, .. } => *page,
        }
    }
}
