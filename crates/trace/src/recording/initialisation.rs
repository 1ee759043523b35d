//! The beginning of a program's run, in which it touches most of its memory for the first time.

use super::{Recording, RegionRange, Selection, touched};

/// So much of all that a program touches it has touched when its initialisation is over.
const SHARE: f64 = 0.9;
/// What takes more than such a part of all slices is no beginning.
const PART_MAX: f64 = 0.5;

/// The first slices of a program, in which it touches most of its memory for the first time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Initialisation {
    /// How many slices.
    pub slices: usize,
    /// The share of the touched bytes that was touched in them for the first time.
    pub share: f64,
}

impl Initialisation {
    /// Its slices, in words.
    pub fn range(&self) -> String {
        match self.slices {
            1 => "slice 0".to_owned(),
            slices => format!("slices 0 to {}", slices - 1),
        }
    }
}

impl Recording {
    /// The initialisation, if the recording has the program's beginning, and goes on for at least as long after it.
    pub fn initialisation(&self, selection: &Selection) -> Option<Initialisation> {
        // Of what ran already, and of a trace, the first slice is no beginning.
        if self.head.command.is_empty() || self.head.delay_ns > 0 {
            return None;
        }
        let regions = 0..self.head.regions.len();
        let windows: Vec<RegionRange> =
            regions.map(|region| RegionRange::whole(self, region, None)).collect();
        let all: Vec<usize> = (0..self.head.slices.len()).collect();
        let mut curve = vec![0_u64; all.len()];
        for touched in touched(self, selection, &windows, &all) {
            curve.iter_mut().zip(touched.since_start).for_each(|(sum, bytes)| *sum += bytes);
        }
        let whole = *curve.last().filter(|bytes| **bytes > 0)?;
        let share = |bytes: u64| bytes as f64 / whole as f64;
        let last = curve.iter().position(|bytes| share(*bytes) >= SHARE)?;
        let slices = last + 1;
        let is_beginning = slices as f64 <= all.len() as f64 * PART_MAX;
        is_beginning.then_some(Initialisation { slices, share: share(curve[last]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Head, Region, Sample, Slice};

    /// A program that touches these granules of 1 KiB for the first time in these slices.
    fn recording(slices: usize, first_touches: &[(u32, u64)]) -> Recording {
        let sample = |(slice, granule): &(u32, u64)| Sample {
            slice: *slice,
            offset: granule * 1024,
            bytes: 1024,
            resident: 1024,
            ..Sample::default()
        };
        let head = Head {
            command: vec!["app".to_owned()],
            granule_bytes: 1024,
            slices: (0..slices as u64).map(|at| Slice { start_ns: at, end_ns: at + 1 }).collect(),
            regions: vec![Region { bytes: 1 << 20, ..Region::default() }],
            ..Head::default()
        };
        Recording { head, samples: first_touches.iter().map(sample).collect() }
    }

    fn found(recording: &Recording) -> Option<(usize, String)> {
        recording.initialisation(&Selection::default()).map(|it| (it.slices, it.range()))
    }

    #[test]
    fn the_slices_in_which_most_is_touched_first_are_told() {
        let mut touches: Vec<(u32, u64)> = (0..19).map(|granule| ((granule / 10) as u32, granule)).collect();
        touches.push((5, 19));
        let begun = recording(6, &touches);
        assert_eq!(found(&begun), Some((2, "slices 0 to 1".to_owned())));
        assert!((begun.initialisation(&Selection::default()).unwrap().share - 0.95).abs() < 1e-9);
        assert_eq!(found(&recording(2, &[(0, 1), (1, 1)])), Some((1, "slice 0".to_owned())));
        // A hotspot that moves on and on has no beginning, nor has what is over so soon.
        let moving: Vec<(u32, u64)> = (0..20).map(|at| (at as u32, at)).collect();
        assert_eq!(found(&recording(20, &moving)), None);
        assert_eq!(found(&recording(3, &touches[..19])), None);
        assert_eq!(found(&recording(3, &[])), None);
    }

    #[test]
    fn what_was_not_recorded_from_its_start_has_none() {
        let whole = recording(6, &[(0, 1)]);
        assert!(found(&whole).is_some());
        let mut late = whole.clone();
        late.head.delay_ns = 1;
        assert_eq!(found(&late), None);
        let mut running = whole;
        running.head.command.clear();
        assert_eq!(found(&running), None);
    }
}
