//! Touched memory: what the word means in recordings, heatmaps and plans.
//!
//! A stretch of memory is *touched* in a slice if an access to it was recorded there. Of a touched stretch count the bytes that were in
//! memory ([`Sample::resident`]): a granule of 4 MiB of which 4 KiB exist counts as 4 KiB. Over several slices it counts once, with the
//! most that it held in any of them. Granules of a picture change nothing: what counts are the stretches that were recorded.

use super::{Recording, RegionRange, Sample, Selection};

/// Bytes of a stretch that were touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// In each slice: the working set.
    pub per_slice: Vec<u64>,
    /// Up to the end of each slice: the curve of the working set.
    pub since_start: Vec<u64>,
    /// In each granule, over all slices; the first granule is that in which the stretch begins.
    pub granules: Vec<u64>,
}

impl Touched {
    /// In all.
    pub fn bytes(&self) -> u64 {
        self.since_start.last().copied().unwrap_or(0)
    }
}

/// The bytes that selected accesses touched in some stretches, each of another region. `slices` are indices in the recording, ascending.
pub fn touched(
    recording: &Recording,
    selection: &Selection,
    stretches: &[RegionRange],
    slices: &[usize],
) -> Vec<Touched> {
    let mut row_of: Vec<Option<u32>> = vec![None; recording.head.slices.len()];
    for (row, slice) in (0..).zip(slices) {
        if let Some(at) = row_of.get_mut(*slice) {
            *at = Some(row);
        }
    }
    let mut stretch_of: Vec<Option<usize>> = vec![None; recording.head.regions.len()];
    for (at, stretch) in stretches.iter().enumerate() {
        if let Some(its) = stretch_of.get_mut(stretch.region) {
            *its = Some(at);
        }
    }
    let mut samples: Vec<Vec<(u32, &Sample)>> = vec![Vec::new(); stretches.len()];
    for sample in recording.samples.iter().filter(|sample| selection.takes(sample)) {
        let row = row_of.get(sample.slice as usize).copied().flatten();
        let stretch = stretch_of.get(sample.region as usize).copied().flatten();
        if let (Some(row), Some(stretch)) = (row, stretch) {
            samples[stretch].push((row, sample));
        }
    }
    stretches
        .iter()
        .zip(samples)
        .map(|(stretch, samples)| of_stretch(stretch, samples, slices.len()))
        .collect()
}

fn of_stretch(stretch: &RegionRange, mut samples: Vec<(u32, &Sample)>, rows: usize) -> Touched {
    let (start, end) = (stretch.offset, stretch.offset.saturating_add(stretch.bytes));
    let range = |sample: &Sample| {
        let (from, to) = (sample.offset, sample.offset.saturating_add(u64::from(sample.bytes)));
        (from.clamp(start, end), to.clamp(start, end))
    };
    samples.sort_by_key(|(row, _)| *row);
    // Between two neighbouring bounds lies nothing of which only a part was told.
    let mut bounds: Vec<u64> =
        samples.iter().flat_map(|(_, sample)| [range(sample).0, range(sample).1]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let pieces = bounds.len().saturating_sub(1);
    // Numbers of bytes, of which each has its share where a sample covers several.
    let (mut now, mut most) = (vec![0_f64; pieces], vec![0_f64; pieces]);
    let (mut per_slice, mut since_start) = (vec![0; rows], vec![0; rows]);
    let mut sum_of_most = 0.0;
    let mut next = samples.as_slice();
    for (row, (per_slice, since_start)) in (0..).zip(per_slice.iter_mut().zip(&mut since_start)) {
        let (of_row, rest) = next.split_at(next.partition_point(|(its, _)| *its <= row));
        next = rest;
        let mut sum = 0.0;
        for (_, sample) in of_row {
            let (from, to) = range(sample);
            let first = bounds.partition_point(|bound| *bound < from);
            for piece in (first..pieces).take_while(|piece| bounds[*piece] < to) {
                let part = (bounds[piece + 1] - bounds[piece]) as f64 / f64::from(sample.bytes.max(1));
                let bytes = f64::from(sample.resident) * part;
                sum += (bytes - now[piece]).max(0.0);
                now[piece] = now[piece].max(bytes);
                sum_of_most += (bytes - most[piece]).max(0.0);
                most[piece] = most[piece].max(bytes);
            }
        }
        for (_, sample) in of_row {
            let (from, to) = range(sample);
            let first = bounds.partition_point(|bound| *bound < from);
            (first..pieces).take_while(|piece| bounds[*piece] < to).for_each(|piece| now[piece] = 0.0);
        }
        (*per_slice, *since_start) = (sum.round() as u64, sum_of_most.round() as u64);
    }
    let granules = by_granule(stretch, &bounds, &most);
    Touched { per_slice, since_start, granules }
}

/// Bytes of pieces between bounds, by granule.
fn by_granule(stretch: &RegionRange, bounds: &[u64], bytes: &[f64]) -> Vec<u64> {
    let size = stretch.granule_bytes.max(1);
    let first = stretch.offset / size;
    let count = stretch.offset.saturating_add(stretch.bytes).div_ceil(size).saturating_sub(first);
    let mut granules = vec![0_f64; usize::try_from(count).unwrap_or(0)];
    for (piece, bytes) in bounds.windows(2).zip(bytes).filter(|(_, bytes)| **bytes > 0.0) {
        let (from, to) = (piece[0], piece[1]);
        for granule in from / size..=(to - 1) / size {
            let overlap = to.min((granule + 1).saturating_mul(size)) - from.max(granule * size);
            if let Some(sum) = granules.get_mut((granule - first) as usize) {
                *sum += bytes * overlap as f64 / (to - from) as f64;
            }
        }
    }
    granules.into_iter().map(|sum| sum.round() as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Head, Region, Slice};
    use tiermem_base::Op;

    fn sample(slice: u32, offset: u64, bytes: u32, resident: u32) -> Sample {
        Sample { slice, offset, bytes, resident, op: Op::Load, ..Sample::default() }
    }

    fn recording(samples: Vec<Sample>) -> Recording {
        let head = Head {
            slices: vec![Slice::default(); 3],
            regions: vec![Region { bytes: 100, ..Region::default() }],
            ..Head::default()
        };
        Recording { head, samples }
    }

    fn of(recording: &Recording, offset: u64, bytes: u64, granule_bytes: u64) -> Touched {
        let stretch = RegionRange { region: 0, offset, bytes, granule_bytes };
        touched(recording, &Selection::default(), &[stretch], &[0, 1, 2]).remove(0)
    }

    #[test]
    fn bytes_in_memory_count_once_with_the_most_that_there_were() {
        let recording = recording(vec![
            sample(0, 0, 40, 10),
            // The same once more, by another operation, say.
            sample(0, 0, 40, 10),
            sample(1, 0, 40, 30),
            sample(1, 40, 40, 0),
            sample(2, 0, 40, 20),
            sample(2, 80, 20, 20),
        ]);
        let found = of(&recording, 0, 100, 40);
        assert_eq!(found.per_slice, [10, 30, 40]);
        assert_eq!(found.since_start, [10, 30, 50]);
        assert_eq!((found.granules.as_slice(), found.bytes()), (&[30, 0, 20][..], 50));
        // Whatever the granules of the picture.
        for granule_bytes in [1, 7, 20, 80, 1000] {
            let other = of(&recording, 0, 100, granule_bytes);
            assert_eq!(
                (other.per_slice, other.since_start),
                (found.per_slice.clone(), found.since_start.clone())
            );
        }
        assert_eq!(of(&recording, 0, 100, 20).granules, [15, 15, 0, 0, 20]);
        // Half of a stretch has half of its bytes.
        assert_eq!(of(&recording, 20, 70, 10).since_start, [5, 15, 25]);
    }

    #[test]
    fn stretches_that_overlap_count_once() {
        let recording = recording(vec![sample(0, 0, 80, 80), sample(0, 20, 20, 20), sample(1, 70, 30, 15)]);
        let found = of(&recording, 0, 100, 100);
        assert_eq!((found.per_slice, found.since_start), (vec![80, 15, 0], vec![80, 90, 90]));
    }

    #[test]
    fn only_selected_accesses_and_slices_count() {
        let mut recording = recording(vec![sample(0, 0, 10, 10), sample(2, 20, 10, 10)]);
        recording.samples[1].op = Op::Store;
        let stretch = RegionRange { region: 0, offset: 0, bytes: 100, granule_bytes: 10 };
        let stores = Selection { op: Some(Op::Store), ..Selection::default() };
        assert_eq!(touched(&recording, &stores, &[stretch], &[0, 2])[0].since_start, [0, 10]);
        assert_eq!(touched(&recording, &stores, &[stretch], &[0])[0].since_start, [0]);
    }
}
