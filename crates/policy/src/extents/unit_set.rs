//! Sets of a volume's units, sparse and in order: a mask of 64 units (256 KiB) for each region that has any.

use std::collections::BTreeMap;
use std::ops::Range;

/// Units of a mask.
const FRAME_UNITS: u64 = u64::BITS as u64;

/// A set of units. A frame is in the map as long as its mask is not 0.
#[derive(Clone, Debug, Default)]
pub struct UnitSet {
    frames: BTreeMap<u64, u64>,
    units: u64,
}

/// The part of a frame that lies in a range.
fn mask(frame: u64, range: &Range<u64>) -> u64 {
    let base = frame * FRAME_UNITS;
    let from = range.start.saturating_sub(base).min(FRAME_UNITS);
    let to = range.end.saturating_sub(base).min(FRAME_UNITS);
    let below = |bits: u64| if bits == FRAME_UNITS { u64::MAX } else { (1 << bits) - 1 };
    below(to) & !below(from)
}

/// The frames that a range touches, and which part of each.
pub fn parts(range: Range<u64>) -> impl Iterator<Item = (u64, u64)> {
    let frames = if range.is_empty() { 0..0 } else { frames_of(&range) };
    frames.map(move |frame| (frame, mask(frame, &range)))
}

fn frames_of(range: &Range<u64>) -> Range<u64> {
    range.start / FRAME_UNITS..range.end.div_ceil(FRAME_UNITS)
}

/// The runs of a range that are in none of these sets, ascending.
pub fn absent<'a>(range: Range<u64>, sets: &'a [&'a UnitSet]) -> impl Iterator<Item = Range<u64>> + 'a {
    runs(
        parts(range)
            .map(|(frame, mask)| (frame, sets.iter().fold(mask, |mask, set| mask & !set.mask(frame)))),
    )
}

/// The runs of units in frames and their masks, as long as possible.
fn runs(masks: impl Iterator<Item = (u64, u64)>) -> impl Iterator<Item = Range<u64>> {
    let mut masks = masks.filter(|(_, mask)| *mask != 0);
    let (mut base, mut mask) = (0, 0u64);
    let mut pending: Option<Range<u64>> = None;
    std::iter::from_fn(move || {
        loop {
            if mask == 0 {
                match masks.next() {
                    Some((frame, bits)) => (base, mask) = (frame * FRAME_UNITS, bits),
                    None => return pending.take(),
                }
            }
            let first = mask.trailing_zeros();
            let length = (mask >> first).trailing_ones();
            // A run that ends with its frame may go on in the next.
            mask &= if first + length == u64::BITS { 0 } else { u64::MAX << (first + length) };
            let run = base + u64::from(first)..base + u64::from(first + length);
            match &mut pending {
                Some(before) if before.end == run.start => before.end = run.end,
                _ => {
                    if let Some(before) = pending.replace(run) {
                        return Some(before);
                    }
                }
            }
        }
    })
}

impl UnitSet {
    /// The units of a range.
    pub fn of(range: Range<u64>) -> Self {
        let mut set = UnitSet::default();
        parts(range).for_each(|(frame, mask)| set.insert_mask(frame, mask));
        set
    }

    /// How many units it has.
    #[inline]
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Whether it has none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.units == 0
    }

    /// The units of a frame.
    #[inline]
    pub fn mask(&self, frame: u64) -> u64 {
        self.frames.get(&frame).copied().unwrap_or(0)
    }

    /// Adds units of one frame.
    pub fn insert_mask(&mut self, frame: u64, mask: u64) {
        if mask != 0 {
            let before = self.frames.entry(frame).or_default();
            self.units += u64::from((mask & !*before).count_ones());
            *before |= mask;
        }
    }

    /// Takes units of one frame out.
    pub fn remove_mask(&mut self, frame: u64, mask: u64) {
        if let Some(before) = self.frames.get_mut(&frame) {
            self.units -= u64::from((mask & *before).count_ones());
            *before &= !mask;
            if *before == 0 {
                self.frames.remove(&frame);
            }
        }
    }

    /// The frames that have units of a range, and those units, ascending.
    pub fn masks(&self, range: Range<u64>) -> impl Iterator<Item = (u64, u64)> + '_ {
        let frames = if range.is_empty() { 0..0 } else { frames_of(&range) };
        self.frames.range(frames).map(move |(&frame, &units)| (frame, units & mask(frame, &range)))
    }

    /// Whether it has any unit of a range.
    #[inline]
    pub fn any(&self, range: Range<u64>) -> bool {
        self.units > 0 && self.masks(range).any(|(_, mask)| mask != 0)
    }

    /// The runs of its units in a range that no other set has, ascending.
    pub fn runs<'a>(
        &'a self,
        range: Range<u64>,
        except: &'a [&'a UnitSet],
    ) -> impl Iterator<Item = Range<u64>> + 'a {
        let left = |(frame, mask): (u64, u64)| {
            (frame, except.iter().fold(mask, |mask, other| mask & !other.mask(frame)))
        };
        runs(self.masks(range).map(left))
    }

    /// Takes out a range; its members move to another set, if one is given.
    pub fn remove(&mut self, range: Range<u64>, mut to: Option<&mut UnitSet>) {
        let mut at = range.start;
        // One by one: ranges may be as large as volumes, and sets are not.
        let first = |set: &Self, range| set.masks(range).next();
        while let Some((frame, mask)) = first(self, at..range.end) {
            self.remove_mask(frame, mask);
            if let Some(to) = &mut to {
                to.insert_mask(frame, mask);
            }
            at = (frame + 1) * FRAME_UNITS;
        }
    }

    /// Adds all of another set.
    pub fn insert_all(&mut self, other: &UnitSet) {
        other.frames.iter().for_each(|(&frame, &mask)| self.insert_mask(frame, mask));
    }

    /// Takes out all of another set.
    pub fn remove_all(&mut self, other: &UnitSet) {
        other.frames.iter().for_each(|(&frame, &mask)| self.remove_mask(frame, mask));
    }

    /// Whether it has any unit of another set.
    pub fn meets(&self, other: &UnitSet) -> bool {
        let (few, many) = if self.frames.len() < other.frames.len() { (self, other) } else { (other, self) };
        few.frames.iter().any(|(&frame, &mask)| many.mask(frame) & mask != 0)
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.units = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// All of a volume.
    const ALL: Range<u64> = 0..u64::MAX;

    fn units(set: &UnitSet, range: Range<u64>, except: &[&UnitSet]) -> BTreeSet<u64> {
        let runs: Vec<_> = set.runs(range, except).collect();
        assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start), "runs are as long as can be");
        runs.into_iter().flatten().collect()
    }

    proptest! {
        #[test]
        fn like_sets_of_numbers(steps in prop::collection::vec((0u8..5, 0u64..300, 0u64..300), 1..60)) {
            let (mut set, mut other) = (UnitSet::default(), UnitSet::default());
            let (mut naive, mut naive_other) = (BTreeSet::new(), BTreeSet::new());
            for (what, a, b) in steps {
                let range = a.min(b)..a.max(b);
                match what {
                    0 | 1 => {
                        parts(range.clone()).for_each(|(frame, mask)| set.insert_mask(frame, mask));
                        naive.extend(range.clone());
                    }
                    2 => {
                        set.remove(range.clone(), Some(&mut other));
                        naive_other.extend(naive.extract_if(range.clone(), |_| true));
                    }
                    3 => {
                        other.remove(range.clone(), None);
                        naive_other.retain(|unit| !range.contains(unit));
                    }
                    _ if a % 2 == 0 => {
                        set.insert_all(&other);
                        naive.extend(&naive_other);
                    }
                    _ => {
                        set.remove_all(&other);
                        naive.retain(|unit| !naive_other.contains(unit));
                    }
                }
                prop_assert_eq!(&units(&set, ALL, &[]), &naive);
                prop_assert_eq!(&units(&other, ALL, &[]), &naive_other);
                prop_assert_eq!((set.units(), set.is_empty()), (naive.len() as u64, naive.is_empty()));
                prop_assert_eq!(set.any(range.clone()), naive.range(range.clone()).next().is_some());
                prop_assert_eq!(set.meets(&other), !naive.is_disjoint(&naive_other));
                let left = naive.range(range.clone()).filter(|unit| !naive_other.contains(unit)).copied();
                prop_assert_eq!(units(&set, range, &[&other]), left.collect());
            }
        }
    }
}
