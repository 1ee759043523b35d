//! Split of one trace into several parts.

use tiermem_base::Access;
use tiermem_base::hash::sample_hash;

/// The part out of `parts` to which a key belongs: its [`sample_hash`] modulo `parts`.
///
/// All accesses to a key are in one part, and each part is a spatial sample of the keys at rate `1 / parts`. The
/// remainder leaves the hash's high bits, which [`tiermem_base::hash::Sample`] looks at, free: a part can be sampled further.
#[inline]
pub fn key_part(key: u64, parts: u64) -> u64 {
    sample_hash(key) % parts.max(1)
}

/// By what a trace is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Splitter {
    /// Each tenant's accesses; the part is the tenant's number.
    Tenant,
    /// Windows of this many nanoseconds.
    Time(u64),
    /// Runs of this many accesses.
    Count(u64),
    /// This many parts by [`key_part`].
    Key(u64),
}

impl Splitter {
    /// The part to which the access with this number (from 0) belongs.
    #[inline]
    pub fn part(&self, number: u64, access: &Access) -> u64 {
        match *self {
            Splitter::Tenant => u64::from(access.tenant),
            Splitter::Time(window_ns) => access.time_ns / window_ns.max(1),
            Splitter::Count(count) => number / count.max(1),
            Splitter::Key(parts) => key_part(access.key, parts),
        }
    }

    /// Whether a part is complete as soon as a later one begins, if time does not go back.
    pub fn is_in_order(&self) -> bool {
        matches!(self, Splitter::Time(_) | Splitter::Count(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_what_they_are_named_for() {
        let access = Access { tenant: 7, ..Access::get(2_500, 42, 1) };
        assert_eq!(Splitter::Tenant.part(9, &access), 7);
        assert_eq!(Splitter::Time(1_000).part(9, &access), 2);
        assert_eq!(Splitter::Count(4).part(9, &access), 2);
        assert_eq!(Splitter::Key(16).part(9, &access), sample_hash(42) % 16);
        // What makes no sense is one part, not a division by zero.
        assert_eq!(Splitter::Key(0).part(9, &access) + Splitter::Count(0).part(0, &access), 0);
    }

    #[test]
    fn parts_by_key_are_even_and_each_is_a_sample_that_can_be_sampled_again() {
        let sample = tiermem_base::hash::Sample::with_rate(0.1);
        let mut counts = [(0u32, 0u32); 8];
        for key in 0..80_000 {
            let (all, sampled) = &mut counts[key_part(key, 8) as usize];
            *all += 1;
            *sampled += u32::from(sample.holds(sample_hash(key)));
        }
        // Deviations 94 and 30.
        assert!(
            counts.iter().all(|(all, sampled)| all.abs_diff(10_000) < 470 && sampled.abs_diff(1000) < 150)
        );
    }
}
