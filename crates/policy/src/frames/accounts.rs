//! Accounts of frames: space of the tiers and accounts of the owners, which change together when a frame is taken, given back,
//! begins to leave and has left.

use super::config::Config;
use super::owners::Owners;
use super::space::Space;

/// Both sides of the books.
#[derive(Clone, Debug)]
pub(super) struct Accounts {
    pub space: Space,
    pub owners: Owners,
}

impl Accounts {
    pub fn new(config: &Config) -> Self {
        Accounts { space: Space::new(config), owners: Owners::new(config) }
    }

    /// Whether the owner may take a frame of the tier now.
    pub fn has_room(&self, owner: u16, tier: u8) -> bool {
        self.space.free(tier) > 0 && !self.owners.is_at_quota(owner, tier)
    }

    pub fn take(&mut self, owner: u16, tier: u8) {
        self.space.take(tier);
        self.owners.charge(owner, tier);
    }

    /// As [`Self::take`], though the tier may be full.
    pub fn overfill(&mut self, owner: u16, tier: u8) {
        self.space.overfill(tier);
        self.owners.charge(owner, tier);
    }

    pub fn release(&mut self, owner: u16, tier: u8) {
        self.space.release(tier);
        self.owners.release(owner, tier);
    }

    pub fn leaves(&mut self, owner: u16, tier: u8) {
        self.space.leaves(tier);
        self.owners.leaves(owner, tier);
    }

    pub fn left(&mut self, owner: u16, tier: u8) {
        self.space.left(tier);
        self.owners.left(owner, tier);
    }
}
