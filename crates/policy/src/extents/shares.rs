//! Shares of space: which volume takes its space from which share, the limit of each share, and what it has.

use super::Volume;
use super::geometry::Geometry;

/// A *share* of the cache: the space that a number of volumes may have together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(pub u16);

/// Groups that a share has, and may have.
#[derive(Clone, Copy, Debug)]
struct Held {
    groups: u32,
    groups_max: u32,
}

/// The shares of a cache.
#[derive(Clone, Debug)]
pub struct Shares {
    held: Vec<Held>,
    /// The share of each volume.
    of: Vec<Share>,
    group_bytes: u64,
    /// Groups of the cache.
    groups: u32,
    /// The least number of groups of a share: one for each block size.
    groups_min: u64,
}

impl Shares {
    /// `count` empty shares without a limit.
    pub(super) fn new(geometry: &Geometry, count: u16) -> Self {
        Shares {
            held: vec![Held { groups: 0, groups_max: u32::MAX }; usize::from(count)],
            of: Vec::new(),
            group_bytes: geometry.group_bytes(),
            groups: geometry.groups(),
            groups_min: geometry.classes() as u64,
        }
    }

    /// How many owners of space there may be.
    pub fn count(&self) -> u16 {
        self.held.len() as u16
    }

    /// Lets a volume take its space from a share; share 0 unless said otherwise. Its present blocks stay in the share that they
    /// were taken from.
    pub fn assign(&mut self, volume: Volume, share: Share) {
        let at = usize::from(volume.0);
        if self.of.len() <= at {
            self.of.resize(at + 1, Share(0));
        }
        self.of[at] = share;
    }

    /// From which share a volume takes its space.
    pub fn of(&self, volume: Volume) -> Share {
        self.of.get(usize::from(volume.0)).copied().unwrap_or(Share(0))
    }

    /// Limits a share to `bytes_max`, rounded down to groups, but at least one group for each block size.
    pub fn set_limit(&mut self, share: Share, bytes_max: u64) {
        let groups = (bytes_max / self.group_bytes).max(self.groups_min);
        self.held[usize::from(share.0)].groups_max = u32::try_from(groups).unwrap_or(u32::MAX);
    }

    /// Bytes of groups that a share holds.
    pub fn held_bytes(&self, share: Share) -> u64 {
        u64::from(self.held[usize::from(share.0)].groups) * self.group_bytes
    }

    /// The limit of a share, in bytes; no more than the cache has.
    pub fn limit_bytes(&self, share: Share) -> u64 {
        u64::from(self.held[usize::from(share.0)].groups_max.min(self.groups)) * self.group_bytes
    }

    /// How many more groups a share may have.
    pub(super) fn groups_left(&self, share: Share) -> u32 {
        let Held { groups, groups_max } = self.held[usize::from(share.0)];
        groups_max.saturating_sub(groups)
    }

    /// A group is given to a share.
    pub(super) fn gained(&mut self, share: Share) {
        self.held[usize::from(share.0)].groups += 1;
    }

    /// A group is taken from it.
    pub(super) fn gave(&mut self, share: Share) {
        debug_assert!(self.held[usize::from(share.0)].groups > 0, "it had that group");
        self.held[usize::from(share.0)].groups -= 1;
    }

    /// The share that loses a group when this share needs one: itself where it is at its limit, or else the share with the most
    /// beyond an even part of the groups.
    pub(super) fn loser(&self, share: Share) -> Share {
        if self.held.len() == 1 || self.groups_left(share) == 0 {
            return share;
        }
        let most = (0..self.count()).map(Share).max_by_key(|&other| {
            let Held { groups, groups_max } = self.held[usize::from(other.0)];
            (groups.saturating_sub(groups_max), groups, other == share)
        });
        most.unwrap_or(share)
    }

    /// Bytes held.
    pub(super) fn metadata_bytes(&self) -> u64 {
        (self.held.len() * size_of::<Held>() + self.of.len() * size_of::<Share>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    #[test]
    fn a_share_has_what_it_gained_up_to_its_limit() {
        let geometry = Geometry::new(&[32 * KIB, 64 * KIB], None, 10 * 64 * KIB).unwrap();
        let mut shares = Shares::new(&geometry, 2);
        shares.assign(Volume(3), Share(1));
        assert_eq!(
            (shares.of(Volume(3)), shares.of(Volume(2)), shares.of(Volume(9))),
            (Share(1), Share(0), Share(0))
        );
        assert_eq!(shares.limit_bytes(Share(1)), 640 * KIB);
        shares.set_limit(Share(1), 1);
        assert_eq!(
            (shares.limit_bytes(Share(1)), shares.groups_left(Share(1))),
            (128 * KIB, 2),
            "one for each size"
        );
        shares.set_limit(Share(1), 200 * KIB);
        shares.gained(Share(1));
        assert_eq!((shares.held_bytes(Share(1)), shares.groups_left(Share(1))), (64 * KIB, 2));
        shares.gave(Share(1));
        assert_eq!((shares.held_bytes(Share(1)), shares.groups_left(Share(1))), (0, 3));
    }

    #[test]
    fn who_has_most_beyond_its_limit_loses_and_who_is_at_it_loses_its_own() {
        let geometry = Geometry::new(&[64 * KIB], None, 10 * 64 * KIB).unwrap();
        let mut shares = Shares::new(&geometry, 3);
        (0..5).for_each(|_| shares.gained(Share(0)));
        (0..4).for_each(|_| shares.gained(Share(1)));
        shares.gained(Share(2));
        assert_eq!(shares.loser(Share(2)), Share(0));
        shares.set_limit(Share(1), 128 * KIB);
        assert_eq!(shares.loser(Share(2)), Share(1), "it has two too many");
        shares.set_limit(Share(2), 64 * KIB);
        assert_eq!(shares.loser(Share(2)), Share(2));
    }
}
