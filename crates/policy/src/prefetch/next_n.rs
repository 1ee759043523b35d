//! The next N pages: N. P. Jouppi, "Improving direct-mapped cache performance by the addition of a small fully-associative
//! cache and prefetch buffers", ISCA 1990, section 4 (tagged prefetch), with degree and offset as S.-P. Yang et al.,
//! "Overcoming the memory wall with CXL-enabled SSDs", ATC 2023, section 4.3, use it in a CXL-flash device.
//!
//! A miss or the first use of a prefetched page p fetches the pages p + offset + 1 to p + offset + degree. No state. Not
//! where accesses are random: each miss then fetches `degree` pages for nothing.

use super::{Demand, Prefetch, wish_above};

/// How far and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NextNParameters {
    /// Pages fetched at a time.
    pub degree: u32,
    /// Pages left out between the one asked for and those fetched.
    pub offset: u32,
}

impl NextNParameters {
    /// The parameters of the program published with the CXL-flash study; Jouppi's own are degree 1 at offset 0.
    pub const DEFAULT: Self = NextNParameters { degree: 4, offset: 16 };
}

impl Default for NextNParameters {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The prefetcher, which has no state but its parameters.
#[derive(Clone, Debug)]
pub struct NextN {
    parameters: NextNParameters,
}

impl NextN {
    /// With these parameters; a degree of 0 wishes for nothing.
    pub fn new(parameters: NextNParameters) -> Self {
        NextN { parameters }
    }
}

impl Prefetch for NextN {
    #[inline]
    fn demand(&mut self, page: u64, found: Demand, wanted: &mut Vec<u64>) {
        if found.is_first() {
            wish_next(page, self.parameters.degree, self.parameters.offset, wanted);
        }
    }

    fn metadata_bytes(&self) -> u64 {
        0
    }
}

/// Wishes for the pages `page + offset + 1` to `page + offset + degree`, as far as there are such.
#[inline]
pub(super) fn wish_next(page: u64, degree: u32, offset: u32, wanted: &mut Vec<u64>) {
    if let Some(last) = page.checked_add(u64::from(offset)) {
        wish_above(last, degree, wanted);
    }
}
