//! Prefetching: which pages to fetch before they are requested.
//!
//! A prefetcher sees the demands of a device whose unit is a page, and the outcomes of its own wishes; it knows neither the cache
//! nor time. Its driver (a simulator, a live engine) tells it everything in one order and sends for the pages. Pages are numbered
//! by all of `u64`: pages below 0 or above `u64::MAX` are not wished for.

pub mod best_offset;
pub(crate) mod credit;
pub mod feedback;
pub mod leap;
pub mod named;
pub mod next_n;
pub mod readahead;
pub mod stream;

pub use named::{Named, Prefetcher};

/// The result of a demand access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Demand {
    /// The page is in the cache and was used before, or was fetched for a demand.
    Hit,
    /// The page is in the cache, was fetched as a prefetch, and this is its first use.
    PrefetchHit,
    /// The page is being fetched as a prefetch, and this is the first demand for it.
    LatePrefetch,
    /// The page is being fetched for an earlier demand, or as a prefetch that a demand already waits for.
    UnderMiss,
    /// The page is neither here nor on its way.
    Miss,
}

impl Demand {
    /// Whether this is the first demand for a page since it was last sent for: a miss, or the first demand for a prefetched page.
    /// The papers' caches lie behind another cache, which absorbs the other demands.
    #[inline]
    pub fn is_first(self) -> bool {
        matches!(self, Demand::PrefetchHit | Demand::LatePrefetch | Demand::Miss)
    }
}

/// Why a page is fetched. It is settled when the page is sent for: a demand that comes while a prefetch is under way
/// makes it late, not a demand's fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// It was asked for.
    Demand,
    /// It was wished for.
    Prefetch,
    /// The host announced it: nothing that the prefetcher wished for, and no demand yet.
    Hint,
}

/// Where a prefetched page enters the order of eviction of its set (of n pages, n being the associativity).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Insertion {
    /// At the most recently used end, like a page that was demanded.
    #[default]
    Mru,
    /// As the floor(n/2)th least recently used.
    Mid,
    /// As the floor(n/4)th least recently used, called LRU-4 in the paper.
    Quarter,
    /// At the least recently used end: it is evicted next.
    Lru,
}

/// The contract of a prefetcher.
///
/// The caller guarantees: every demand access is told by `demand`, before the fetch that it causes and before anything
/// that follows from it; a wish that is really sent for is told by `issued`, once; every fetched page that enters the
/// cache is told by `filled`, after the `evicted` of what made room for it. Wishes are dropped for being cached, being
/// under way, lying outside the device or finding no room, and nothing is told of those.
///
/// The prefetcher guarantees: the same calls give the same wishes; no call allocates but by growing `wanted`; no call
/// panics, whatever the order of the calls and the numbers of the pages; the page asked for is not among the wishes.
pub trait Prefetch {
    /// A demand access to `page`. Pages to fetch are appended to `wanted`, the most wished for first.
    fn demand(&mut self, page: u64, found: Demand, wanted: &mut Vec<u64>);
    /// A wished page was sent for.
    fn issued(&mut self, _page: u64) {}
    /// A fetched page has arrived in the cache.
    fn filled(&mut self, _page: u64, _why: Why) {}
    /// `page` left the cache to make room for a page fetched for `for_why`. `unused_prefetch`: it was wished for and no
    /// demand ever used it.
    fn evicted(&mut self, _page: u64, _for_why: Why, _unused_prefetch: bool) {}
    /// Where prefetched pages enter the order of eviction from now on.
    fn insertion(&self) -> Insertion {
        Insertion::Mru
    }
    /// Bytes of state held.
    fn metadata_bytes(&self) -> u64;
}

/// Wishes for the `count` pages that follow `page`.
#[inline]
fn wish_above(page: u64, count: u32, wanted: &mut Vec<u64>) {
    wanted.extend((1..=u64::from(count)).map_while(|step| page.checked_add(step)));
}

/// Wishes for the `count` pages before `page`, the nearest first.
#[inline]
fn wish_below(page: u64, count: u32, wanted: &mut Vec<u64>) {
    wanted.extend((1..=u64::from(count)).map_while(|step| page.checked_sub(step)));
}
