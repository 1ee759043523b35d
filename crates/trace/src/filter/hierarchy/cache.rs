//! One cache: sets of lines in the order of their use.

use super::shape::Shape;

/// A line number that no address has: the largest is 2^58 - 1.
const NO_LINE: u64 = u64::MAX;

/// A line in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The address over 64.
    pub line: u64,
    /// The tag that the memory gave at the fill.
    pub tag: u32,
    /// Whether it was stored to since.
    pub dirty: bool,
}

const EMPTY: Entry = Entry { line: NO_LINE, tag: 0, dirty: false };

/// Sets stand one behind the other. In each the line used last comes first and empty places come last, so that a hit
/// on the line that was just used, which is what most accesses are, looks at one entry.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    entries: Vec<Entry>,
    ways: usize,
    set_mask: u64,
}

impl Cache {
    pub fn new(shape: Shape) -> Result<Self, String> {
        let sets = shape.sets()?;
        let ways = shape.ways as usize;
        Ok(Cache { entries: vec![EMPTY; sets as usize * ways], ways, set_mask: sets - 1 })
    }

    #[inline]
    fn set(&mut self, line: u64) -> &mut [Entry] {
        let start = (line & self.set_mask) as usize * self.ways;
        &mut self.entries[start..start + self.ways]
    }

    /// The line, if it is here, which is now the one used last.
    #[inline]
    pub fn touch(&mut self, line: u64) -> Option<&mut Entry> {
        let set = self.set(line);
        if set[0].line != line {
            let at = set.iter().position(|entry| entry.line == line)?;
            set[..=at].rotate_right(1);
        }
        Some(&mut set[0])
    }

    /// The line, if it is here; its order stays.
    pub fn find(&mut self, line: u64) -> Option<&mut Entry> {
        self.set(line).iter_mut().find(|entry| entry.line == line)
    }

    /// Puts in a line that is not here as the one used last, and returns the one that had to go.
    pub fn insert(&mut self, entry: Entry) -> Option<Entry> {
        let set = self.set(entry.line);
        debug_assert!(set.iter().all(|other| other.line != entry.line), "a line is in a cache once");
        set.rotate_right(1);
        let last = std::mem::replace(&mut set[0], entry);
        (last.line != NO_LINE).then_some(last)
    }

    /// Takes the line out.
    pub fn remove(&mut self, line: u64) -> Option<Entry> {
        let set = self.set(line);
        let at = set.iter().position(|entry| entry.line == line)?;
        set[at..].rotate_left(1);
        let last = set.len() - 1;
        Some(std::mem::replace(&mut set[last], EMPTY))
    }
}
