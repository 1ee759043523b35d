//! Page table of the simulator: the pages of the device that were ever requested, each with the simulator's record of it.
//!
//! The device may have 2^28 pages and more of which a trace touches few: a table of hashes gives each touched neighbourhood of
//! eight pages a number, and everything else is an array over these numbers. So one look-up answers where a page is (in the
//! cache, on its way, on flash), and the pages that a prefetcher asks about after it are in the processor's cache already.

use tiermem_base::intern::Interner;

/// Pages of a neighbourhood, as a power of two.
const SHIFT: u32 = 3;
const PAGES: usize = 1 << SHIFT;

#[derive(Clone, Debug)]
struct Neighbours<T> {
    /// The device's number of the first page.
    first: u64,
    records: [T; PAGES],
}

/// Records by page.
#[derive(Clone, Debug)]
pub struct Pages<T> {
    numbers: Interner,
    neighbours: Vec<Neighbours<T>>,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Pages { numbers: Interner::new(), neighbours: Vec::new() }
    }
}

fn place_in(neighbourhood: u32, number: u64) -> u32 {
    neighbourhood << SHIFT | (number % PAGES as u64) as u32
}

impl<T: Copy + Default> Pages<T> {
    /// The place of the page's record, which is made if there is none.
    #[inline]
    pub fn place(&mut self, number: u64) -> u32 {
        let (neighbourhood, new) = self.numbers.intern(number >> SHIFT);
        if new {
            let first = number >> SHIFT << SHIFT;
            self.neighbours.push(Neighbours { first, records: [T::default(); PAGES] });
        }
        place_in(neighbourhood, number)
    }

    /// The place of the page's record, if it has one.
    #[inline]
    pub fn find(&self, number: u64) -> Option<u32> {
        self.numbers.get(number >> SHIFT).map(|neighbourhood| place_in(neighbourhood, number))
    }

    /// The device's number of the page at a place.
    #[inline]
    pub fn number(&self, place: u32) -> u64 {
        self.neighbours[(place >> SHIFT) as usize].first + u64::from(place) % PAGES as u64
    }

    /// The record at a place.
    #[inline]
    pub fn at(&self, place: u32) -> &T {
        &self.neighbours[(place >> SHIFT) as usize].records[place as usize % PAGES]
    }

    /// The record at a place, to change.
    #[inline]
    pub fn at_mut(&mut self, place: u32) -> &mut T {
        &mut self.neighbours[(place >> SHIFT) as usize].records[place as usize % PAGES]
    }
}
