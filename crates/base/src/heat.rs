//! Heatmap of a memory region: access counts over time, as a matrix of granules and slices.

/// Accesses of one region: `slices` rows of `granules` values. A granule is `granule_bytes` of the region, counted from its
/// start; a slice is a stretch of time (Fisher 2025, section 3.2). Values are accesses or, from samples, estimates of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    granule_bytes: u64,
    granules: usize,
    slices: usize,
    /// Slice by slice.
    values: Vec<f32>,
}

impl Heat {
    /// A region without accesses. `granule_bytes` is at least 1.
    pub fn cold(granule_bytes: u64, granules: usize, slices: usize) -> Self {
        assert!(granule_bytes > 0, "a granule has bytes");
        Heat { granule_bytes, granules, slices, values: vec![0.0; granules * slices] }
    }

    /// A heatmap of values as they stand in [`Self::row`], one row after the other; their number is a multiple of `granules`.
    pub fn of(granule_bytes: u64, granules: usize, values: Vec<f32>) -> Self {
        assert!(granule_bytes > 0 && granules > 0 && values.len().is_multiple_of(granules));
        Heat { granule_bytes, granules, slices: values.len() / granules, values }
    }

    /// Bytes of a granule.
    pub fn granule_bytes(&self) -> u64 {
        self.granule_bytes
    }

    /// Granules of the region; the last one may lie partly outside.
    pub fn granules(&self) -> usize {
        self.granules
    }

    /// Slices of time.
    pub fn slices(&self) -> usize {
        self.slices
    }

    /// Accesses of one granule in one slice.
    pub fn at(&self, slice: usize, granule: usize) -> f32 {
        self.row(slice)[granule]
    }

    /// Accesses in one slice, granule by granule.
    pub fn row(&self, slice: usize) -> &[f32] {
        &self.values[slice * self.granules..][..self.granules]
    }

    /// Accesses in one slice, granule by granule, to change them.
    pub fn row_mut(&mut self, slice: usize) -> &mut [f32] {
        &mut self.values[slice * self.granules..][..self.granules]
    }

    /// Accesses of each granule over all slices.
    pub fn totals(&self) -> Vec<f64> {
        let mut totals = vec![0.0; self.granules];
        for slice in 0..self.slices {
            for (total, value) in totals.iter_mut().zip(self.row(slice)) {
                *total += f64::from(*value);
            }
        }
        totals
    }

    /// All accesses.
    pub fn sum(&self) -> f64 {
        self.values.iter().map(|value| f64::from(*value)).sum()
    }

    /// A coarser heatmap, with `factor` (at least 1) granules made one.
    pub fn coarser(&self, factor: usize) -> Heat {
        let factor = factor.max(1);
        let granules = self.granules.div_ceil(factor);
        let mut coarse = Heat::cold(self.granule_bytes * factor as u64, granules, self.slices);
        for slice in 0..self.slices {
            let row = self.row(slice);
            for (sum, part) in coarse.row_mut(slice).iter_mut().zip(row.chunks(factor)) {
                *sum = part.iter().sum();
            }
        }
        coarse
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarser_granules_keep_every_access() {
        let heat = Heat::of(4096, 5, vec![1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 0.0, 7.0, 0.0, 1.0]);
        let coarse = heat.coarser(2);
        assert_eq!((coarse.granules(), coarse.granule_bytes(), coarse.slices()), (3, 8192, 2));
        assert_eq!((coarse.row(0), coarse.row(1)), (&[3.0, 7.0, 5.0][..], &[0.0, 7.0, 1.0][..]));
        assert_eq!(coarse.totals(), [3.0, 14.0, 6.0]);
        assert_eq!(coarse.sum(), heat.sum());
    }
}
