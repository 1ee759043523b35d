//! Counts of a shard's decisions.

/// What was decided.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// By [`tiermem_policy::shard::Why`], out of memory.
    pub left: [u64; 5],
    pub moves: u64,
    pub appended: u64,
    pub survived: u64,
    pub gone: u64,
    pub freed: u64,
    pub checkpoints: u64,
    pub promoted: u64,
    pub full: u64,
    pub lapsed: u64,
    pub waits: u64,
    pub read_again: u64,
}

impl Counts {
    /// All in a row: left (evicted, expired, replaced, stays, lost), moves, appended, survived, gone, freed, checkpoints, promoted,
    /// full, lapsed, waits, read again.
    pub fn row(&self) -> [u64; 16] {
        let [evicted, expired, replaced, stays, lost] = self.left;
        let Counts {
            moves,
            appended,
            survived,
            gone,
            freed,
            checkpoints,
            promoted,
            full,
            lapsed,
            waits,
            read_again,
            ..
        } = *self;
        let below = [appended, survived, gone, freed, checkpoints, promoted, full, lapsed, waits, read_again];
        let mut row = [0; 16];
        row[..6].copy_from_slice(&[evicted, expired, replaced, stays, lost, moves]);
        row[6..].copy_from_slice(&below);
        row
    }
}
