//! Counts of what the order of write-back has kept, and at which price.

/// Of a volume's store, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderCounts {
    /// Flushes of the store that began, whoever asked for them.
    pub store_flushes: u64,
    /// Flushes that the order of write-back has not heeded, where it is to heed each.
    pub merges: u64,
    /// Groups of epochs that the store has got as a whole.
    pub groups: u64,
    /// How often a group grew to a later flush.
    pub grown_groups: u64,
    /// Copies of what a write was to change and the group under way needed.
    pub copies_out: u64,
    /// Their bytes.
    pub copied_out_bytes: u64,
}

impl OrderCounts {
    fn each(&self, other: &OrderCounts, of: impl Fn(u64, u64) -> u64) -> OrderCounts {
        OrderCounts {
            store_flushes: of(self.store_flushes, other.store_flushes),
            merges: of(self.merges, other.merges),
            groups: of(self.groups, other.groups),
            grown_groups: of(self.grown_groups, other.grown_groups),
            copies_out: of(self.copies_out, other.copies_out),
            copied_out_bytes: of(self.copied_out_bytes, other.copied_out_bytes),
        }
    }

    /// The sum with those of another volume.
    pub fn plus(&self, other: &OrderCounts) -> OrderCounts {
        self.each(other, |one, other| one + other)
    }

    /// What has been counted since they were `before`.
    pub fn since(&self, before: &OrderCounts) -> OrderCounts {
        self.each(before, |now, before| now - before)
    }
}
