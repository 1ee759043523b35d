//! Anonymous memory in pages, every byte of which is known at any time: the number of the page, and how often it was written.

use std::env;
use std::fmt;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::mix;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
const PAGE_WORDS: usize = PAGE_BYTES as usize / 8;
/// What the words of a page differ by: odd, and with bits in every byte, so that no page shrinks when it is compressed.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// Where the C library is told to ask for huge pages for all that `malloc` maps (glibc 2.35 or newer).
const TUNABLES: &str = "GLIBC_TUNABLES";
const HUGE: &str = "glibc.malloc.hugetlb=1";

/// Which pages the kernel is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSize {
    /// As the system has it.
    Default,
    /// Huge ones, where it has them.
    Huge,
    /// Of 4 KiB alone.
    Small,
}

impl PageSize {
    /// Of the two flags of a program.
    pub fn of_flags(is_huge: bool, is_small: bool) -> Self {
        match (is_huge, is_small) {
            (true, _) => PageSize::Huge,
            (false, true) => PageSize::Small,
            (false, false) => PageSize::Default,
        }
    }

    /// Asks for them. To be called first: for huge pages the program begins anew, since the C library is asked by the environment.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn ask(self) -> io::Result<()> {
        match self {
            PageSize::Default => Ok(()),
            PageSize::Small => Ok(rustix::thread::disable_transparent_huge_pages(true)?),
            PageSize::Huge => {
                let tunables = env::var(TUNABLES).unwrap_or_default();
                if tunables.split(':').any(|it| it == HUGE) {
                    return Ok(());
                }
                let both = if tunables.is_empty() { HUGE.to_owned() } else { format!("{tunables}:{HUGE}") };
                Err(Command::new(env::current_exe()?).args(env::args_os().skip(1)).env(TUNABLES, both).exec())
            }
        }
    }
}

/// A page that holds something else than what was written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageError {
    /// Its number.
    pub page: usize,
    /// How often it was written since it was filled.
    pub version: u64,
    /// The first word that is wrong.
    pub word: usize,
    /// What is there.
    pub found: u64,
    /// What should be.
    pub wanted: u64,
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PageError { page, version, word, found, wanted } = self;
        write!(f, "page {page}, version {version}, word {word}: {found:016x} instead of {wanted:016x}")
    }
}

impl std::error::Error for PageError {}

/// Pages of memory that the C library maps for this value alone, if they are more than 32 MiB.
#[derive(Debug)]
pub struct Pages {
    words: Vec<u64>,
    /// The word with which the first page begins.
    first: usize,
    count: usize,
}

impl Pages {
    /// Pages that are filled, all of version 0.
    pub fn filled(count: usize) -> Self {
        // Zeros that the kernel gives: nothing is touched before it is filled.
        let mut words = vec![0_u64; (count + 1) * PAGE_WORDS];
        let first = words.as_ptr().align_offset(PAGE_BYTES as usize);
        // A page that begins elsewhere would be two.
        assert!(first <= PAGE_WORDS, "memory of words has an aligned word in each page");
        let pages = words[first..].chunks_exact_mut(PAGE_WORDS).take(count);
        for (number, page) in pages.enumerate() {
            fill(page, word_0(number, 0));
        }
        Pages { words, first, count }
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The first address, and the one behind the last page.
    pub fn range(&self) -> (usize, usize) {
        let start = self.words[self.first..].as_ptr().addr();
        (start, start + self.count * PAGE_BYTES as usize)
    }

    fn at(&self, page: usize) -> std::ops::Range<usize> {
        let start = self.first + page * PAGE_WORDS;
        start..start + PAGE_WORDS
    }

    /// Reads every byte of a page, and returns the sum of its words.
    ///
    /// # Errors
    /// If it does not hold what that version of it does.
    pub fn check(&self, page: usize, version: u64) -> Result<u64, PageError> {
        let words = &self.words[self.at(page)];
        let (mut wanted, mut wrong, mut sum) = (word_0(page, version), 0, 0_u64);
        for word in words {
            wrong |= word ^ wanted;
            sum = sum.wrapping_add(*word);
            wanted = wanted.wrapping_add(STEP);
        }
        if wrong == 0 { Ok(sum) } else { Err(self.first_error(page, version)) }
    }

    #[cold]
    fn first_error(&self, page: usize, version: u64) -> PageError {
        let wanted = |word: usize| word_0(page, version).wrapping_add(STEP.wrapping_mul(word as u64));
        let words = &self.words[self.at(page)];
        let word = (0..PAGE_WORDS).find(|&word| words[word] != wanted(word)).unwrap_or_default();
        PageError { page, version, word, found: words[word], wanted: wanted(word) }
    }

    /// Writes every byte of a page.
    pub fn write(&mut self, page: usize, version: u64) {
        let at = self.at(page);
        fill(&mut self.words[at], word_0(page, version));
    }
}

fn word_0(page: usize, version: u64) -> u64 {
    mix(mix(page as u64 + 1).wrapping_add(version))
}

fn fill(page: &mut [u64], mut word: u64) {
    for place in page {
        *place = word;
        word = word.wrapping_add(STEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_told_from_every_other_page_and_version() {
        let mut pages = Pages::filled(3);
        let (start, end) = pages.range();
        assert_eq!((pages.count(), start % 4096, end - start), (3, 0, 3 * 4096));
        let sums: Vec<u64> = (0..3).map(|page| pages.check(page, 0).unwrap()).collect();
        assert!(sums[0] != sums[1] && sums[1] != sums[2]);
        pages.write(1, 7);
        assert!(pages.check(0, 0).is_ok() && pages.check(1, 7).is_ok() && pages.check(2, 0).is_ok());
        assert_eq!(pages.check(1, 0).unwrap_err().word, 0);
        let place = pages.at(2).start + 511;
        pages.words[place] ^= 1 << 63;
        let error = pages.check(2, 0).unwrap_err();
        assert_eq!((error.page, error.word, error.found ^ error.wanted), (2, 511, 1 << 63));
        assert!(error.to_string().starts_with("page 2, version 0, word 511: "), "{error}");
    }
}
