//! Five numbers for many: the least, the quartiles and the most.

/// Quartiles of some values by the nearest rank, so that each of them is one of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quartiles {
    /// The least.
    pub min: u64,
    /// A quarter of the values is not above it.
    pub p25: u64,
    /// The median: half of the values is not above it.
    pub p50: u64,
    /// Three quarters of the values are not above it.
    pub p75: u64,
    /// The most.
    pub max: u64,
}

impl Quartiles {
    /// Of these values; `None` of none.
    pub fn of(values: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut sorted: Vec<u64> = values.into_iter().collect();
        sorted.sort_unstable();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let at = |quarters: usize| sorted[(sorted.len() * quarters).div_ceil(4) - 1];
        Some(Quartiles { min, p25: at(1), p50: at(2), p75: at(3), max })
    }

    /// From the least to the most.
    pub fn all(&self) -> [u64; 5] {
        [self.min, self.p25, self.p50, self.p75, self.max]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_the_value_at_its_rank() {
        let of = |values: &[u64]| Quartiles::of(values.iter().copied()).map(|it| it.all());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[7]), Some([7; 5]));
        assert_eq!(of(&[9, 1]), Some([1, 1, 1, 9, 9]));
        assert_eq!(of(&[5, 4, 1, 3, 2]), Some([1, 2, 3, 4, 5]));
        assert_eq!(of(&[0, 8, 2, 6, 4, 10, 12, 14]), Some([0, 2, 6, 10, 14]));
    }
}
