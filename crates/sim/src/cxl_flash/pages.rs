//! The pages of the device that were ever asked for, each with a record of what the simulator knows of it.
//!
//! The device may have 2^28 pages and more of which a trace touches few: a table of hashes gives each touched page a number,
//! and everything else is an array over these numbers. So one look-up answers where a page is: in the cache, on its way, on
//! flash.

use tiermem_base::intern::Interner;

/// Records by page.
#[derive(Clone, Debug)]
pub struct Pages<T> {
    numbers: Interner,
    records: Vec<T>,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Pages { numbers: Interner::new(), records: Vec::new() }
    }
}

impl<T> Pages<T> {
    /// The place of the page's record, which `make` makes if there is none.
    #[inline]
    pub fn place(&mut self, number: u64, make: impl FnOnce() -> T) -> u32 {
        let (place, new) = self.numbers.intern(number);
        if new {
            self.records.push(make());
        }
        place
    }

    /// The place of the page's record, if it has one.
    #[inline]
    pub fn find(&self, number: u64) -> Option<u32> {
        self.numbers.get(number)
    }

    /// The record at a place.
    #[inline]
    pub fn at(&self, place: u32) -> &T {
        &self.records[place as usize]
    }

    /// The record at a place, to change.
    #[inline]
    pub fn at_mut(&mut self, place: u32) -> &mut T {
        &mut self.records[place as usize]
    }

    /// How many pages have a record.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}
