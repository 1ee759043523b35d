//! Least part of a division: the minimum that every tenant keeps, however little it would gain.

use tiermem_policy::choose_k::Overheads;

use super::{Profile, Share, Terms, share_at};

/// However little a tenant would gain, it keeps this many bytes of all memory, or this part of an equal share (1 in
/// `LEAST_OF_EQUAL`), if that is less. With room for fewer items than it has size classes, its writes would find no item to
/// replace, and be refused.
const LEAST_BYTES: u64 = 1 << 20;
const LEAST_OF_EQUAL: u64 = 16;

/// A division within the terms to the byte, in which every tenant has its least part: it comes from tenants that have more. The
/// shares are those of [`super::divide`], of `total_bytes`.
pub fn keep_least(
    profiles: &[Profile],
    shares: &[Share],
    total_bytes: u64,
    overheads: &Overheads,
) -> Vec<Share> {
    let mut bytes: Vec<u64> = profiles.iter().zip(shares).map(within_terms).collect();
    let equal = total_bytes / (profiles.len() as u64).max(1);
    raise(&mut bytes, profiles, LEAST_BYTES.min(equal / LEAST_OF_EQUAL));
    profiles.iter().zip(bytes).map(|(profile, bytes)| share_at(profile, bytes, overheads)).collect()
}

/// The part of a tenant, within its terms.
fn within_terms((profile, share): (&Profile, &Share)) -> u64 {
    let Terms { least_bytes, most_bytes, .. } = profile.terms;
    share.bytes.max(least_bytes).min(most_bytes)
}

/// Raises the part of each tenant to `least_bytes`, and takes that from tenants that have more, but not below what they were
/// promised.
fn raise(bytes: &mut [u64], profiles: &[Profile], least_bytes: u64) {
    let kept = |profile: &Profile| least_bytes.min(profile.terms.most_bytes).max(profile.terms.least_bytes);
    let total: u64 = bytes.iter().sum();
    bytes.iter_mut().zip(profiles).for_each(|(bytes, profile)| *bytes = (*bytes).max(kept(profile)));
    let excess = bytes.iter().sum::<u64>() - total;
    let spare = |(&bytes, profile): (&u64, &Profile)| bytes - kept(profile);
    let spares: Vec<u64> = bytes.iter().zip(profiles).map(spare).collect();
    let all: u64 = spares.iter().sum();
    for (bytes, spare) in bytes.iter_mut().zip(spares) {
        *bytes -= (u128::from(spare) * u128::from(excess.min(all)) / u128::from(all.max(1))) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// No tenant keeps less than it must or more than its most, and together they have what they had, or what they must keep.
        #[test]
        fn what_is_kept_comes_from_those_who_have_more(
            parts in prop::collection::vec((0u64..1000, 0u64..300, 0u64..1500), 1..20),
            least_bytes in 0u64..200,
        ) {
            let profile = |&(_, least_bytes, more): &(u64, u64, u64)| Profile {
                curves: Vec::new(),
                keys_sampled: 0,
                rate: 1.0,
                miss_ns: 1.0,
                k: 5,
                terms: Terms { least_bytes, most_bytes: least_bytes + more, ..Terms::default() },
            };
            let profiles: Vec<Profile> = parts.iter().map(profile).collect();
            let share = |&(bytes, ..): &(u64, u64, u64)| Share { bytes, k: 5, miss_ratio: 0.0, is_kept: true };
            let shares: Vec<Share> = parts.iter().map(share).collect();
            let before: Vec<u64> = profiles.iter().zip(&shares).map(within_terms).collect();
            let mut bytes = before.clone();
            raise(&mut bytes, &profiles, least_bytes);
            let mut kept_all = 0;
            for (&bytes, profile) in bytes.iter().zip(&profiles) {
                let Terms { least_bytes: promised, most_bytes, .. } = profile.terms;
                let kept = least_bytes.min(most_bytes).max(promised);
                kept_all += kept;
                prop_assert!((kept..=most_bytes).contains(&bytes), "{bytes} of {kept} to {most_bytes}");
            }
            let (sum, had) = (bytes.iter().sum::<u64>(), before.iter().sum::<u64>());
            // Each may be rounded up by less than a byte.
            prop_assert!(sum <= had.max(kept_all) + bytes.len() as u64, "{sum} of {had}, {kept_all} to be kept");
            prop_assert!(sum >= had.min(kept_all) && sum + (bytes.len() as u64) >= had, "{sum} of {had}");
        }
    }
}
