//! Heat that is not known: of a mapping that was looked at as a whole it is known how often it was accessed, and not where.

use super::{Recording, Sample, Selection};

/// The source that looks at whole mappings where it has no agent within the program. (Others that tell of large ranges, such as `damon`,
/// have found them to be alike.)
const LOOKS_AT_WHOLES: &str = "refs";
/// Of a recording in which so much of all accesses is not known to any granule, the heat is not known.
pub const UNKNOWN_MIN: f64 = 0.1;

impl Recording {
    /// Whether a sample says nothing about granules of this size, or of the recording's if those are coarser.
    pub(super) fn is_whole(&self, sample: &Sample, granule_bytes: u64) -> bool {
        let source = self.head.sources.get(usize::from(sample.source));
        source.is_some_and(|source| source.name == LOOKS_AT_WHOLES)
            && u64::from(sample.bytes) > granule_bytes.max(self.head.granule_bytes)
    }

    /// The share of the selected accesses of which it is not known to which granules of this size they went; of those of one region, or of
    /// all. `None` if it is so small that the heat is known nevertheless.
    pub fn unknown_heat(
        &self,
        selection: &Selection,
        region: Option<usize>,
        granule_bytes: u64,
    ) -> Option<f64> {
        let (mut all, mut unknown) = (0.0, 0.0);
        let is_meant =
            |it: &&Sample| selection.takes(it) && region.is_none_or(|region| it.region as usize == region);
        for sample in self.samples.iter().filter(is_meant) {
            let weight = f64::from(sample.weight);
            all += weight;
            unknown += if self.is_whole(sample, granule_bytes) { weight } else { 0.0 };
        }
        (unknown > 0.0 && unknown >= all * UNKNOWN_MIN).then(|| unknown / all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Head, Region, Slice, Source};

    #[test]
    fn heat_within_what_was_looked_at_as_a_whole_is_not_known() {
        let sample =
            |region, bytes, weight| Sample { region, bytes, resident: 4096, weight, ..Sample::default() };
        let source = |name: &str| Source { name: name.to_owned(), ..Source::default() };
        let head = Head {
            granule_bytes: 4096,
            slices: vec![Slice::default()],
            sources: vec![source("refs")],
            regions: vec![
                Region { bytes: 65536, ..Region::default() },
                Region { bytes: 4096, ..Region::default() },
            ],
            ..Head::default()
        };
        let mut recording = Recording { head, samples: vec![sample(0, 65536, 3.0), sample(1, 4096, 1.0)] };
        let all = Selection::default();
        assert_eq!(recording.unknown_heat(&all, None, 4096), Some(0.75));
        assert_eq!(recording.unknown_heat(&all, Some(0), 4096), Some(1.0));
        assert_eq!(recording.unknown_heat(&all, Some(1), 4096), None);
        // In granules as large as it, a mapping is no riddle.
        assert_eq!(recording.unknown_heat(&all, None, 65536), None);
        recording.samples[1].weight = 40.0;
        assert_eq!(recording.unknown_heat(&all, None, 4096), None);
        recording.samples[1].weight = 1.0;
        recording.head.sources = vec![source("damon")];
        assert_eq!(recording.unknown_heat(&all, None, 4096), None);
    }
}
