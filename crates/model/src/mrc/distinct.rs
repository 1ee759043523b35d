//! Number of distinct keys, estimated from their hashes.

/// Registers, 2^16: the standard error is 1.04/√65536, 0.4%.
const REGISTER_BITS: u32 = 16;
/// Bits of the hash that are left for a register's value.
const REST_BITS: u32 = u64::BITS - REGISTER_BITS;
/// The standard error of an estimate, relative to it.
pub const RELATIVE_ERROR: f64 = 1.04 / 256.0;

/// HyperLogLog in 64 KiB with the estimator of Ertl (arXiv:1702.01284, algorithm 6), which has no bias at any count.
#[derive(Clone, Debug)]
pub struct Distinct {
    registers: Vec<u8>,
}

impl Default for Distinct {
    fn default() -> Self {
        Distinct { registers: vec![0; 1 << REGISTER_BITS] }
    }
}

impl Distinct {
    /// Notes a hash, all of whose bits must be random.
    #[inline]
    pub fn insert(&mut self, hash: u64) {
        // The rest is never zero by the bit that marks its end.
        let rest = hash << REGISTER_BITS | 1 << (REGISTER_BITS - 1);
        let register = &mut self.registers[(hash >> REST_BITS) as usize];
        let value = rest.leading_zeros() as u8 + 1;
        if value > *register {
            *register = value;
        }
    }

    /// Adds what another counter has seen.
    pub fn merge(&mut self, other: &Distinct) {
        self.registers.iter_mut().zip(&other.registers).for_each(|(mine, other)| *mine = (*mine).max(*other));
    }

    /// The estimated number of distinct hashes.
    pub fn estimate(&self) -> f64 {
        let count = self.registers.len() as f64;
        let mut values = [0u32; REST_BITS as usize + 2];
        self.registers.iter().for_each(|&value| values[usize::from(value)] += 1);
        let top = REST_BITS as usize;
        let mut sum = count * tau(1.0 - f64::from(values[top + 1]) / count);
        for &value in values[1..=top].iter().rev() {
            sum = 0.5 * (sum + f64::from(value));
        }
        sum += count * sigma(f64::from(values[0]) / count);
        count * count / (2.0 * std::f64::consts::LN_2) / sum
    }
}

/// The contribution of registers that are still zero.
fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut sum) = (1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * y;
        y += y;
        if sum == before {
            return sum;
        }
    }
}

/// The contribution of registers that are full.
fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut y, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = sum;
        y *= 0.5;
        sum -= (1.0 - x).powi(2) * y;
        if sum == before {
            return sum / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use tiermem_base::hash::sample_hash;

    use super::*;

    #[test]
    fn estimates_are_within_three_deviations_at_every_magnitude() {
        let mut distinct = Distinct::default();
        assert_eq!(distinct.estimate(), 0.0);
        let mut key = 0u64;
        for count in [1u64, 10, 1_000, 30_000, 100_000, 200_000, 400_000, 1_500_000] {
            while key < count {
                distinct.insert(sample_hash(key));
                distinct.insert(sample_hash(key));
                key += 1;
            }
            let error = distinct.estimate() / count as f64 - 1.0;
            assert!(error.abs() < 3.0 * RELATIVE_ERROR, "{count}: {error}");
        }
    }

    #[test]
    fn merging_is_seeing_both() {
        let (mut a, mut b, mut both) = (Distinct::default(), Distinct::default(), Distinct::default());
        for key in 0..10_000 {
            if key % 3 == 0 {
                a.insert(sample_hash(key))
            } else {
                b.insert(sample_hash(key))
            }
            both.insert(sample_hash(key));
        }
        a.merge(&b);
        assert_eq!(a.estimate(), both.estimate());
    }
}
