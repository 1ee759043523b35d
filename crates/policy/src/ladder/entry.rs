//! Entry tier of a new item.
//!
//! Wang 2024 (section 5.1.1) admits everything to the fast tier. An item that is not used there is copied down for nothing, and
//! takes the place of another one meanwhile: with large values, new ones at every tenth request, that costs more than it gains.
//! [`Admission::Proven`] admits to the tier below where new items of this size have shown not to be used before they leave the
//! fast tier. It keeps learning because one new item in sixteen still enters the fast tier.
//!
//! The rule in costs, per byte alike for all items of a size: entering above costs a copy down, M, unless the item is used.
//! Entering below costs, if it is used, about two slow hits and a copy up, M + 2L. With the share `w` of new items that leave
//! unused, entering below pays when w M > (1 - w)(M + 2L). L is small beside M (a hit costs a latency, a copy several and the
//! processor's time), so it pays from a little above one half on, whatever M and L are. The threshold here is three quarters:
//! where items are used twice shortly after they come and never again, the share of hits lost was found to weigh more than the
//! formula says.

/// Where new items enter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Admission {
    /// The fast tier: Wang's rule.
    Fast,
    /// The fast tier while new items of the size are used there before they leave it, or the key was seen lately.
    #[default]
    Proven,
    /// By the key's hash, this share of keys in the fast tier, for ever: what interleaved pages of memory do.
    Interleaved {
        /// The share, between 0 and 1.
        fast_share: f64,
    },
}

impl std::str::FromStr for Admission {
    type Err = String;
    /// Reads `fast`, `proven` or `interleaved:SHARE`.
    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "fast" => Ok(Admission::Fast),
            "proven" => Ok(Admission::Proven),
            _ => {
                let share = word.strip_prefix("interleaved:").and_then(|share| share.parse().ok());
                let share = share.filter(|share| (0.0..=1.0).contains(share));
                share
                    .map(|fast_share| Admission::Interleaved { fast_share })
                    .ok_or_else(|| format!("{word:?} is none of fast, proven, interleaved:SHARE"))
            }
        }
    }
}

/// Sizes are told apart by their power of two; beyond 64 KiB by no more than that.
const SIZES: usize = 32;
/// Above this number of new items of a size, their counts are halved.
const COUNT_MAX: u32 = 1024;
/// Fewer say nothing.
const COUNT_MIN: u32 = 64;
/// New items enter below where more than this share left unused, in 1/16.
const UNUSED_SIXTEENTHS: u32 = 12;
/// One new item in this many enters above all the same.
const EXPLORED: u64 = 16;
/// Keys that are remembered: a power of two of 16-bit tags.
const SEEN: usize = 1 << 15;

/// Counts of new items of each size in the fast tier: used, and left unused.
#[derive(Clone, Debug)]
pub(super) struct Proof {
    /// Used there; gone unused.
    counts: [[u32; 2]; SIZES],
    /// Tags of keys that were admitted lately, by hash.
    seen: Vec<u16>,
}

impl Proof {
    pub fn new(admission: Admission) -> Self {
        let kept = if admission == Admission::Proven { SEEN } else { 0 };
        Proof { counts: [[0; 2]; SIZES], seen: vec![0; kept] }
    }

    fn size(units: u32) -> usize {
        units.max(1).ilog2() as usize % SIZES
    }

    /// Notes that a new item of `units` units was used for the first time, or left unused.
    #[inline]
    pub fn note(&mut self, units: u32, used: bool) {
        let counts = &mut self.counts[Self::size(units)];
        counts[usize::from(!used)] += 1;
        if counts[0] + counts[1] > COUNT_MAX {
            counts.iter_mut().for_each(|count| *count /= 2);
        }
    }

    /// Whether a new item of this key and of `units` units is to enter below, as where entering above does not pay. The key counts as
    /// seen from now on.
    pub fn sends_below(&mut self, key: u64, units: u32, pays: bool) -> bool {
        let seen = self.is_seen(key);
        let explores = (key >> 16).is_multiple_of(EXPLORED);
        !seen && !explores && (!pays || self.is_wasted(units))
    }

    fn is_wasted(&self, units: u32) -> bool {
        let [used, unused] = self.counts[Self::size(units)];
        used + unused >= COUNT_MIN && unused * 16 > (used + unused) * UNUSED_SIXTEENTHS
    }

    /// Whether the key was admitted lately; it is from now on.
    fn is_seen(&mut self, key: u64) -> bool {
        // The low bits choose the place; those above make the tag, which is never that of an empty place.
        let tag = (key >> 48) as u16 | 1;
        std::mem::replace(&mut self.seen[key as usize % SEEN], tag) == tag
    }

    pub fn bytes(&self) -> u64 {
        self.seen.capacity() as u64 * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_admissions() {
        assert_eq!("proven".parse(), Ok(Admission::Proven));
        assert_eq!("interleaved:0.75".parse(), Ok(Admission::Interleaved { fast_share: 0.75 }));
        for wrong in ["slow", "interleaved", "interleaved:2", "interleaved:x"] {
            assert!(wrong.parse::<Admission>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_left_unused_counts_by_size_and_is_forgotten() {
        let mut proof = Proof::new(Admission::Proven);
        assert!(!proof.is_wasted(900), "nothing is known yet");
        (0..200).for_each(|_| proof.note(900, false));
        assert!(proof.is_wasted(900) && proof.is_wasted(600) && !proof.is_wasted(30));
        (0..2000).for_each(|_| proof.note(900, true));
        assert!(!proof.is_wasted(900));
    }

    #[test]
    fn a_key_is_seen_the_second_time() {
        let mut proof = Proof::new(Admission::Proven);
        assert!(!proof.is_seen(0xABCD_0000_0000_0007) && proof.is_seen(0xABCD_0000_0000_0007));
        assert!(!proof.is_seen(0xAB0D_0000_0000_0007));
    }
}
