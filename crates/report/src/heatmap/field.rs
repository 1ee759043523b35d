//! Field: the selected part of a recording, gathered in one pass, as granules by slices of ranges of regions.

use std::ops::Range;

use tiermem_base::{Heat, Op};
use tiermem_trace::recording::{Level, Recording, RegionRange, Sample, Selection, Touched, touched};

/// Values (of four bytes) that are held at most.
const VALUES_MAX: u64 = 1 << 28;

/// A part of the accesses that are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessClass {
    /// All of them.
    Accesses,
    /// Loads.
    Loads,
    /// Stores.
    Stores,
    /// Answered by memory of the processor's own node.
    Local,
    /// Answered by memory elsewhere.
    Remote,
    /// Answered by a cache.
    Cached,
}

impl AccessClass {
    /// All of them.
    pub const ALL: [AccessClass; 6] = [
        AccessClass::Accesses,
        AccessClass::Loads,
        AccessClass::Stores,
        AccessClass::Local,
        AccessClass::Remote,
        AccessClass::Cached,
    ];

    fn has(self, sample: &Sample) -> bool {
        match self {
            AccessClass::Accesses => true,
            AccessClass::Loads => sample.op == Op::Load,
            AccessClass::Stores => sample.op == Op::Store,
            AccessClass::Local => sample.level == Level::Local,
            AccessClass::Remote => sample.level == Level::Remote,
            AccessClass::Cached => sample.level == Level::Cache,
        }
    }
}

/// Observations of one stretch of a region.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The stretch.
    pub window: RegionRange,
    /// The number of its first granule, counted from the region's start.
    pub first_granule: u64,
    /// The slices, by their index in the recording: the rows of the heats.
    pub slices: Vec<usize>,
    /// When each of them ends.
    ends_ns: Vec<u64>,
    /// The heats of the parts that were asked for.
    parts: Vec<(AccessClass, Heat)>,
    /// Accesses that are looked at, over all of the slices.
    pub sum: f64,
    /// The bytes that they touched.
    pub touched: Touched,
}

impl Field {
    /// The heat of a part; an empty one if it was not asked for.
    pub fn heat(&self, part: AccessClass) -> Heat {
        self.heat_of(part).cloned().unwrap_or_else(|| Heat::cold(self.window.granule_bytes, 0, 0))
    }

    /// The heat of a part, if it was asked for.
    pub fn heat_of(&self, part: AccessClass) -> Option<&Heat> {
        self.parts.iter().find(|(its, _)| *its == part).map(|(_, heat)| heat)
    }

    /// Bytes from the region's start to that of a granule of the heats.
    pub fn offset(&self, granule: usize) -> u64 {
        (self.first_granule + granule as u64).saturating_mul(self.window.granule_bytes)
    }

    /// Bytes of a granule that lie in the stretch.
    pub fn bytes_of(&self, granule: usize) -> u64 {
        let window = &self.window;
        let (from, to) = (self.offset(granule), self.offset(granule + 1));
        let end = window.offset.saturating_add(window.bytes);
        to.min(end).saturating_sub(from.max(window.offset))
    }

    /// How long ago each granule was last accessed when some rows of the heats ended; `None` if it was not accessed in them.
    pub fn ages_ns(&self, rows: Range<usize>) -> Vec<Option<u64>> {
        let mut ages = vec![None; self.granules()];
        let end_ns = |row: usize| self.ends_ns.get(row).copied().unwrap_or(0);
        let last_ns = rows.clone().next_back().map_or(0, end_ns);
        let Some(heat) = self.heat_of(AccessClass::Accesses) else { return ages };
        for row in rows {
            let age_ns = last_ns.saturating_sub(end_ns(row));
            for (age, value) in ages.iter_mut().zip(heat.row(row)) {
                if *value > 0.0 {
                    *age = Some(age_ns);
                }
            }
        }
        ages
    }

    /// The last row of the heats with an access.
    pub fn last_access(&self) -> Option<usize> {
        let heat = self.heat_of(AccessClass::Accesses)?;
        (0..heat.slices()).rev().find(|row| heat.row(*row).iter().any(|value| *value > 0.0))
    }

    /// Granules of the heats.
    pub fn granules(&self) -> usize {
        self.parts.first().map_or(0, |(_, heat)| heat.granules())
    }
}

/// The selected granules and slices do not fit into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{granules} granules in {slices} slices are too many")]
pub struct TooFine {
    /// Granules of all stretches together.
    pub granules: u64,
    /// Slices.
    pub slices: u64,
    /// A granule that would do.
    pub granule_bytes: u64,
}

/// Gathers stretches of a recording in one pass over its samples. `slices` are indices in the recording, ascending; there may be
/// one stretch of a region at most.
///
/// # Errors
/// If they would not fit into memory.
pub fn gather(
    recording: &Recording,
    selection: &Selection,
    windows: &[RegionRange],
    slices: &[usize],
    parts: &[AccessClass],
) -> Result<Vec<Field>, TooFine> {
    let values_each = (slices.len() as u64).saturating_mul(parts.len() as u64);
    let granules = windows.iter().fold(0u64, |sum, window| sum.saturating_add(window.granules().1));
    if granules.saturating_mul(values_each) > VALUES_MAX {
        let too_many = granules.saturating_mul(values_each).div_ceil(VALUES_MAX);
        let largest = windows.iter().map(|window| window.granule_bytes).max().unwrap_or(1);
        let granule_bytes = largest.saturating_mul(too_many.next_power_of_two());
        return Err(TooFine { granules, slices: slices.len() as u64, granule_bytes });
    }
    let mut field_of: Vec<Option<usize>> = vec![None; recording.head.regions.len()];
    let mut fields = Vec::with_capacity(windows.len());
    for (window, touched) in windows.iter().zip(touched(recording, selection, windows, slices)) {
        let (first_granule, count) = window.granules();
        let cold =
            |part: &AccessClass| (*part, Heat::cold(window.granule_bytes, count as usize, slices.len()));
        if let Some(at) = field_of.get_mut(window.region) {
            *at = Some(fields.len());
        }
        fields.push(Field {
            window: *window,
            first_granule,
            slices: slices.to_vec(),
            ends_ns: slices
                .iter()
                .map(|slice| recording.head.slices.get(*slice).map_or(0, |it| it.end_ns))
                .collect(),
            parts: parts.iter().map(cold).collect(),
            sum: 0.0,
            touched,
        });
    }
    let mut row_of: Vec<Option<usize>> = vec![None; recording.head.slices.len()];
    for (row, slice) in slices.iter().enumerate() {
        if let Some(at) = row_of.get_mut(*slice) {
            *at = Some(row);
        }
    }
    for sample in recording.samples.iter().filter(|sample| selection.takes(sample)) {
        let field = field_of.get(sample.region as usize).copied().flatten();
        let row = row_of.get(sample.slice as usize).copied().flatten();
        if let (Some(field), Some(row)) = (field, row) {
            fields[field].add(sample, row);
        }
    }
    Ok(fields)
}

impl Field {
    /// Adds a sample, spread evenly over its bytes and time; parts outside of the window are left out.
    fn add(&mut self, sample: &Sample, row: usize) {
        let size = self.window.granule_bytes;
        let (from, to) = (sample.offset, sample.offset.saturating_add(u64::from(sample.bytes.max(1))));
        let (first, last) = (from / size, (to - 1) / size);
        let end = self.first_granule + self.granules() as u64;
        for granule in first.max(self.first_granule)..last.saturating_add(1).min(end) {
            let weight = if first == last {
                sample.weight
            } else {
                let overlap = to.min((granule + 1).saturating_mul(size)) - from.max(granule * size);
                sample.weight * (overlap as f64 / (to - from) as f64) as f32
            };
            let at = (granule - self.first_granule) as usize;
            self.sum += f64::from(weight);
            for (part, heat) in &mut self.parts {
                if part.has(sample) {
                    heat.row_mut(row)[at] += weight;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heatmap::tests::recording;

    #[test]
    fn what_is_gathered_is_what_the_recording_says() {
        let recording = recording();
        let slices: Vec<usize> = (0..recording.head.slices.len()).collect();
        for granule_bytes in [1024, 4096, 12_288, 1 << 20] {
            let expected = recording.heat(&Selection::default(), granule_bytes);
            let windows: Vec<RegionRange> = expected
                .iter()
                .map(|region| RegionRange::whole(&recording, region.region, Some(granule_bytes)))
                .collect();
            let fields =
                gather(&recording, &Selection::default(), &windows, &slices, &AccessClass::ALL).unwrap();
            for (field, expected) in fields.iter().zip(&expected) {
                let heat = field.heat(AccessClass::Accesses);
                assert_eq!(heat.granules(), expected.heat.granules());
                for (ours, theirs) in heat.totals().iter().zip(expected.heat.totals()) {
                    assert!((ours - theirs).abs() < 1e-3 * theirs.max(1.0));
                }
                let split = field.heat(AccessClass::Loads).sum() + field.heat(AccessClass::Stores).sum();
                assert!((split - field.sum).abs() < 1e-3 * field.sum);
            }
        }
    }

    #[test]
    fn a_window_keeps_the_numbers_of_granules() {
        let recording = recording();
        let window = RegionRange { region: 0, offset: 10_000, bytes: 20_000, granule_bytes: 4096 };
        let fields =
            gather(&recording, &Selection::default(), &[window], &[1], &[AccessClass::Accesses]).unwrap();
        assert_eq!((fields[0].first_granule, fields[0].granules()), (2, 6));
        assert_eq!(fields[0].offset(1), 3 * 4096);
    }

    #[test]
    fn an_age_is_from_the_end_of_the_last_slice_with_an_access() {
        let mut recording = recording();
        // The granules that are hot in the first slices are accessed in them alone.
        recording
            .samples
            .retain(|it| it.offset / 4096 >= 128 || it.offset / 4096 / 32 == u64::from(it.slice));
        let window = RegionRange::whole(&recording, 0, None);
        let slices = [0, 1, 2, 3, 4, 5];
        let fields =
            gather(&recording, &Selection::default(), &[window], &slices, &[AccessClass::Accesses]).unwrap();
        let second = 1_000_000_000;
        let at = |ages: &[Option<u64>]| [0, 32, 64, 96, 128, 129].map(|granule| ages[granule]);
        let ages = fields[0].ages_ns(0..6);
        assert_eq!(
            at(&ages),
            [Some(5 * second), Some(4 * second), Some(3 * second), Some(2 * second), Some(0), None]
        );
        assert_eq!(at(&fields[0].ages_ns(0..2)), [Some(second), Some(0), None, None, Some(0), None]);
        assert_eq!(at(&fields[0].ages_ns(2..3)), [None, None, Some(0), None, Some(0), None]);
        assert_eq!(fields[0].last_access(), Some(5));
        let values = fields[0].values(crate::heatmap::Show::Idle, 0..6);
        assert!(values[0] == 5e9 && values[128] == 0.0 && values[129].is_nan());
        // The region ends within its last granule.
        assert_eq!((fields[0].bytes_of(0), fields[0].bytes_of(256)), (4096, 100));
    }

    #[test]
    fn what_would_not_fit_is_refused_with_what_would() {
        let recording = recording();
        let window = RegionRange { region: 0, offset: 0, bytes: 1 << 40, granule_bytes: 1 };
        let error =
            gather(&recording, &Selection::default(), &[window], &[0], &[AccessClass::Accesses]).unwrap_err();
        assert!(error.granule_bytes >= 4096);
        let coarser = RegionRange { granule_bytes: error.granule_bytes, ..window };
        assert!(
            gather(&recording, &Selection::default(), &[coarser], &[0], &[AccessClass::Accesses]).is_ok()
        );
    }
}
