//! Owners of space: which volume takes its space from which share, and what each may have.

use crate::evict::Evict;

use super::{Extents, Share, Volume};

impl<O: Evict> Extents<O> {
    /// Lets a volume take its space from a share; share 0 unless said otherwise. What it has stays where it was taken.
    pub fn assign(&mut self, volume: Volume, share: Share) {
        let at = usize::from(volume.0);
        if self.shares.len() <= at {
            self.shares.resize(at + 1, Share(0));
        }
        self.shares[at] = share;
    }

    /// Lets a share have so many bytes at most, rounded down to groups, but at least one group for each block size.
    pub fn set_limit(&mut self, share: Share, bytes_max: u64) {
        let groups = (bytes_max / self.geometry.group_bytes()).max(self.geometry.classes() as u64);
        self.space.set_limit(share, u32::try_from(groups).unwrap_or(u32::MAX));
    }

    /// Bytes of groups that a share holds.
    pub fn held_bytes(&self, share: Share) -> u64 {
        u64::from(self.space.held(share).0) * self.geometry.group_bytes()
    }

    /// What a share may hold, in bytes; no more than there is.
    pub fn limit_bytes(&self, share: Share) -> u64 {
        let groups = self.space.held(share).1.min(self.geometry.groups());
        u64::from(groups) * self.geometry.group_bytes()
    }

    /// How many owners of space there may be.
    pub fn shares(&self) -> u16 {
        self.space.shares()
    }

    pub(super) fn share_of(&self, volume: Volume) -> Share {
        self.shares.get(usize::from(volume.0)).copied().unwrap_or(Share(0))
    }
}
