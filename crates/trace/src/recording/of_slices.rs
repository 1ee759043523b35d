//! Some slices of a recording.

use super::{Recording, Region, Sample};

impl Recording {
    /// What was recorded in some slices, as if there had been no others; `slices` are indices, ascending. All regions stay: one that was
    /// mapped in none of the slices counts as mapped in the nearest. The notes and the cost stay those of all.
    pub fn of_slices(&self, slices: &[usize]) -> Recording {
        let mut head = self.head.clone();
        let mut places: Vec<Option<u32>> = vec![None; head.slices.len()];
        for (place, slice) in (0..).zip(slices) {
            if let Some(its) = places.get_mut(*slice) {
                *its = Some(place);
            }
        }
        let own = |it: &Sample| Some(Sample { slice: places.get(it.slice as usize).copied()??, ..*it });
        let samples = self.samples.iter().filter_map(own).collect();
        head.slices = slices.iter().filter_map(|slice| self.head.slices.get(*slice).copied()).collect();
        let last = head.slices.len().saturating_sub(1);
        for region in &mut head.regions {
            let before = |slice: u32| slices.partition_point(|its| *its < slice as usize);
            let first_slice = before(region.first_slice).min(last) as u32;
            let last_slice = before(region.last_slice.saturating_add(1)).saturating_sub(1).min(last) as u32;
            *region =
                Region { first_slice, last_slice: last_slice.max(first_slice), ..std::mem::take(region) };
        }
        head.sites = head.sites.map(|sites| sites.of_slices(slices));
        for process in &mut head.processes {
            process.rss = process.rss.of_slices(slices);
        }
        Recording { head, samples }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Head, Slice};
    use tiermem_base::Op;

    #[test]
    fn other_slices_are_as_if_they_had_not_been() {
        let sample = |slice, offset| Sample {
            slice,
            offset,
            bytes: 1,
            resident: 1,
            op: Op::Load,
            ..Sample::default()
        };
        let region =
            |first_slice, last_slice| Region { bytes: 10, first_slice, last_slice, ..Region::default() };
        let head = Head {
            slices: (0..6).map(|at| Slice { start_ns: at * 10, end_ns: at * 10 + 10 }).collect(),
            regions: vec![region(0, 5), region(1, 1), region(3, 4), region(5, 5)],
            ..Head::default()
        };
        let samples = (0..6).map(|slice| sample(slice, u64::from(slice))).collect();
        let found = Recording { head, samples }.of_slices(&[2, 3, 5]);
        assert_eq!(found.head.slices.iter().map(|it| it.start_ns).collect::<Vec<_>>(), [20, 30, 50]);
        let samples: Vec<(u32, u64)> = found.samples.iter().map(|it| (it.slice, it.offset)).collect();
        assert_eq!(samples, [(0, 2), (1, 3), (2, 5)]);
        let lives: Vec<(u32, u32)> =
            found.head.regions.iter().map(|it| (it.first_slice, it.last_slice)).collect();
        assert_eq!(lives, [(0, 2), (0, 0), (1, 1), (2, 2)]);
        assert!(found.of_slices(&[]).samples.is_empty());
    }
}
