//! Losses of parts of tiers that outlive the process, as they are counted and told.

use tiermem_base::Bytes as Size;
use tiermem_policy::Id;

use super::StoreError;

/// What was lost, and what became of it.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Items that were dropped.
    pub items: u64,
    /// Whether replies may have been written of what was lost.
    pub is_doubtful: bool,
    /// Bytes, by tier, that are not in use as the file cannot hold them.
    pub missing: Vec<u64>,
    pub looks: u32,
    pub reports: Vec<LossReport>,
}

/// A loss, for whoever runs the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossReport {
    /// The tier, by its number.
    pub tier: u8,
    /// Items that were dropped.
    pub items: u64,
    /// What the tier has less than it was given, and why.
    pub missing: Option<(Size, String)>,
}

impl Losses {
    /// Bytes that tiers have less than they were given.
    pub fn missing_bytes(&self) -> u64 {
        self.missing.iter().sum()
    }
}

/// Contents of which a part may be lost at any moment.
pub(super) trait LosesParts {
    /// Whether something was lost, so that what was read lately may be zeros.
    fn has_lost(&self) -> bool;

    /// The same, and looks for what no access shows: behind a copy that stays, for it shows zeros as values for ever.
    fn has_lost_by_now(&mut self) -> bool;

    /// Drops what is lost, also where no access has shown it: what a restart takes up must be whole.
    fn look_for_losses(&mut self);

    /// The item of this key, if all of it is there.
    fn find_there(&mut self, db: u8, key: &[u8], hash: u64) -> Option<Id>;

    /// Behind a write: takes the value out again that was written while something was lost, for it may be made of that.
    fn keep_unless_lost(&mut self, db: u8, key: &[u8], hash: u64) -> Result<(), StoreError>;

    /// An item came to flash from a place where something was lost meanwhile.
    fn take_back_from_flash(&mut self, db: u8, hash: u64);

    /// An item has left memory whose bytes are gone.
    fn leave_lost(&mut self, hash: u64);

    /// Drops the items of all parts that were lost, and has the files hold these parts again.
    fn drop_lost(&mut self);
}
