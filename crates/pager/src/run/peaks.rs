//! Peaks and slices of a run, gathered from looks at its group.

use std::time::Duration;

use super::memory_use::MemoryUse;
use super::report::{SLICES_MAX, Slice};

const PAGE_BYTES: u64 = 4096;

/// A look at a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Since the program's start.
    pub at: Duration,
    /// The group's use.
    pub group: MemoryUse,
    /// Pages read from swap and written to it, so far.
    pub swapped_in: u64,
    /// See [`Self::swapped_in`].
    pub swapped_out: u64,
    /// Bytes of other programs in the run's swap.
    pub foreign_bytes: u64,
}

/// What the looks together say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peaks {
    first: Option<Look>,
    last: Look,
    /// Peaks of what is needed, charged, on flash, shared, and of others.
    pub required_bytes: u64,
    /// See [`Self::required_bytes`].
    pub charged_bytes: u64,
    /// See [`Self::required_bytes`].
    pub flash_bytes: u64,
    /// See [`Self::required_bytes`].
    pub shared_bytes: u64,
    /// See [`Self::required_bytes`].
    pub foreign_bytes: u64,
    slices: Vec<Slice>,
    /// Looks that make a slice: twice as many each time that there are too many slices.
    per_slice: u32,
    /// Looks in the slice that is not at its end.
    open_looks: u32,
    open: Slice,
}

impl Peaks {
    /// Takes a look in.
    pub fn add(&mut self, look: Look) {
        let MemoryUse { charged_bytes, swap_bytes, required_bytes, shared_bytes, .. } = look.group;
        self.required_bytes = self.required_bytes.max(required_bytes);
        self.charged_bytes = self.charged_bytes.max(charged_bytes);
        self.flash_bytes = self.flash_bytes.max(swap_bytes);
        self.shared_bytes = self.shared_bytes.max(shared_bytes);
        self.foreign_bytes = self.foreign_bytes.max(look.foreign_bytes);
        let Some(first) = self.first else {
            (self.first, self.last, self.per_slice) = (Some(look), look, 1);
            return;
        };
        debug_assert!(first.at <= look.at, "looks come in the order of time");
        self.open = self.open.and(&slice_between(&self.last, &look));
        self.last = look;
        self.open_looks += 1;
        if self.open_looks >= self.per_slice {
            self.slices.push(std::mem::take(&mut self.open));
            self.open_looks = 0;
        }
        if self.slices.len() >= SLICES_MAX {
            self.per_slice *= 2;
            self.slices = self
                .slices
                .chunks(2)
                .map(|pair| pair.iter().fold(Slice::default(), |sum, one| sum.and(one)))
                .collect();
        }
    }

    /// Takes the look in that follows the program's end: what it did until then counts, and that nothing is left of its memory does not.
    pub fn add_end(&mut self, mut look: Look) {
        let MemoryUse { charged_bytes, swap_bytes, .. } = self.last.group;
        (look.group.charged_bytes, look.group.swap_bytes) = (charged_bytes, swap_bytes);
        self.add(look);
    }

    /// What was charged at the last look.
    pub fn charged_now(&self) -> u64 {
        self.last.group.charged_bytes
    }

    /// What it used at the last look.
    pub fn now(&self) -> MemoryUse {
        self.last.group
    }

    /// What was in swap at the last look.
    pub fn swapped_now(&self) -> u64 {
        self.last.group.swap_bytes
    }

    /// All from the first look to the last.
    pub fn total(&self) -> Slice {
        slice_between(&self.first.unwrap_or_default(), &self.last)
    }

    /// The slices; the last may be shorter than the others.
    pub fn slices(&self) -> Vec<Slice> {
        let open = (self.open_looks > 0).then_some(self.open);
        self.slices.iter().copied().chain(open).collect()
    }
}

impl Slice {
    /// This one and the one behind it.
    fn and(&self, next: &Slice) -> Slice {
        Slice {
            minor_faults: self.minor_faults + next.minor_faults,
            major_faults: self.major_faults + next.major_faults,
            read_bytes: self.read_bytes + next.read_bytes,
            written_bytes: self.written_bytes + next.written_bytes,
            ..*next
        }
    }
}

/// What has happened between two looks. Counts of the kernel may fall behind each other a little: none is below zero.
fn slice_between(before: &Look, after: &Look) -> Slice {
    let faults = after.group.faults.saturating_sub(before.group.faults);
    let major_faults = after.group.major_faults.saturating_sub(before.group.major_faults);
    Slice {
        at: after.at,
        charged_bytes: after.group.charged_bytes,
        flash_bytes: after.group.swap_bytes,
        minor_faults: faults.saturating_sub(major_faults),
        major_faults,
        read_bytes: after.swapped_in.saturating_sub(before.swapped_in) * PAGE_BYTES,
        written_bytes: after.swapped_out.saturating_sub(before.swapped_out) * PAGE_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(number: u64) -> Look {
        let group = MemoryUse {
            charged_bytes: 100 - number % 100,
            faults: 3 * number,
            major_faults: number,
            ..MemoryUse::default()
        };
        Look { at: Duration::from_millis(number), group, swapped_in: 2 * number, ..Look::default() }
    }

    #[test]
    fn however_many_looks_there_are_slices_add_up_to_all() {
        for looks in [0, 1, 2, 5, 1000, 1001, 1002, 5003] {
            let mut peaks = Peaks::default();
            (0..looks).for_each(|number| peaks.add(look(number)));
            let slices = peaks.slices();
            assert!(slices.len() <= SLICES_MAX, "{looks}");
            let sum = |field: fn(&Slice) -> u64| slices.iter().map(field).sum::<u64>();
            let last = looks.saturating_sub(1);
            assert_eq!(sum(|slice| slice.major_faults), last, "{looks}");
            assert_eq!(sum(|slice| slice.minor_faults), 2 * last);
            assert_eq!(sum(|slice| slice.read_bytes), 2 * last * 4096);
            assert_eq!(peaks.total().minor_faults, 2 * last);
            assert!(slices.is_sorted_by_key(|slice| slice.at));
            assert_eq!(slices.last().map_or(0, |slice| slice.at.as_millis() as u64), last);
        }
    }

    #[test]
    fn the_end_of_the_program_is_no_end_of_its_memory() {
        let mut peaks = Peaks::default();
        (0..3).for_each(|number| peaks.add(look(number)));
        peaks.add_end(Look { group: MemoryUse { charged_bytes: 0, ..look(9).group }, ..look(9) });
        let last = *peaks.slices().last().unwrap();
        assert_eq!((last.charged_bytes, last.major_faults, peaks.charged_now()), (98, 7, 98));
    }

    #[test]
    fn peaks_are_those_of_all_looks() {
        let mut peaks = Peaks::default();
        [5, 3, 150].into_iter().for_each(|number| peaks.add(Look { at: Duration::ZERO, ..look(number) }));
        assert_eq!(peaks.charged_bytes, 97);
    }
}
