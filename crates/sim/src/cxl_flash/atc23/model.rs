//! Model of the published simulator: its settings, its counts, and its record of a page.

use super::mshr::Row;
use super::prefetch::{Feedback, Kind};
use crate::cxl_flash::cache::Line;
use crate::cxl_flash::flash::{Geometry, Timing};

/// Settings of the simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Whether there is a cache.
    pub cache: bool,
    /// Whether there are registers of misses.
    pub mshr: bool,
    /// The prefetcher.
    pub prefetch: Kind,
    /// The back end.
    pub geometry: Geometry,
    /// Its times; [`transfer_ns_per_byte`] gives the one of the channel.
    pub timing: Timing,
    /// The last page that may be prefetched.
    pub last_page: u64,
}

/// The channel's time for a byte at `mega_transfers` million transfers a second: the division drops fractions of a nanosecond.
pub fn transfer_ns_per_byte(mega_transfers: u64) -> f64 {
    (1000 / mega_transfers.max(1) * 2) as f64 / 2.0
}

/// Counts of the simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Requests completed.
    pub requests: u64,
    /// Requests that found their page in the cache.
    pub hits: u64,
    /// Requests that found their page being fetched, for another request or for a prefetch.
    pub hits_under_miss: u64,
    /// Requests for which their page was fetched.
    pub misses: u64,
    /// Requests whose page a prefetch was still fetching.
    pub late: u64,
    /// Hits on prefetched pages.
    pub prefetch_hits: u64,
    /// Pages that were prefetched and came before they were asked for, and late ones.
    pub prefetched: u64,
    /// The counts from which the prefetchers' measures are computed.
    pub feedback: Feedback,
    /// Pages read from flash.
    pub flash_reads: u64,
    /// Pages written to flash.
    pub flash_writes: u64,
    /// Reads of a page that was already being read; only without registers of misses.
    pub repeated_reads: u64,
    /// When the first request came.
    pub begin_ns: u64,
    /// When the last event happened.
    pub end_ns: u64,
}

/// The record of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub line: Line,
    pub row: Row,
    /// Times that it stands in Best-Offset's history.
    pub in_history: u32,
    /// Where it was written last: its plane and page, if it was.
    pub written: Option<(u32, u32)>,
    /// In the cache, or on its way there, for a prefetch.
    pub prefetched: bool,
    pub in_flight: bool,
    pub tagged: bool,
    pub polluted: bool,
    /// Has come for a prefetch, was used, was waited for.
    pub counted: bool,
    pub used: bool,
    pub late: bool,
}

impl Default for Page {
    fn default() -> Self {
        Page {
            line: Line::NONE,
            row: Row::NONE,
            in_history: 0,
            written: None,
            prefetched: false,
            in_flight: false,
            tagged: false,
            polluted: false,
            counted: false,
            used: false,
            late: false,
        }
    }
}
