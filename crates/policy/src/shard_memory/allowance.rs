//! Allowance: how much of the memory that a process may have its tiers get.
//!
//! The limit of a process may change while it runs. What the process needs beside its tiers comes first; the tiers get the rest, up to what
//! is configured, and what they had at the start is divided no further than [`Resize::least_bytes`].

use super::Resize;

/// What decides about the memory of all shards' tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// What the tiers had at the start, in bytes. They never get more.
    pub most_bytes: u64,
    /// What they are to have.
    pub wanted_bytes: u64,
    /// What the process needs beside them.
    pub beside_bytes: u64,
}

/// What a changed limit does to the tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitChange {
    /// Nothing: they have as much as they are to have, before and now.
    None,
    /// They grow.
    Grows,
    /// They shrink.
    Shrinks,
    /// They shrink as far as they can, which is more than the limit leaves.
    TooLow,
}

impl Allowance {
    /// Bytes that the tiers get under this limit of the process; `None`: there is none.
    pub fn tier_bytes(&self, limit_bytes: Option<u64>) -> u64 {
        let least_bytes = Resize::least_bytes(self.most_bytes);
        self.left_bytes(limit_bytes)
            .min(self.wanted_bytes)
            .clamp(least_bytes, self.most_bytes.max(least_bytes))
    }

    /// What becomes of the tiers as the limit changes.
    pub fn change(&self, before_bytes: Option<u64>, now_bytes: Option<u64>) -> LimitChange {
        let (before, now) = (self.left_bytes(before_bytes), self.left_bytes(now_bytes));
        match now {
            _ if before == now || before.min(now) >= self.wanted_bytes => LimitChange::None,
            now if now > before => LimitChange::Grows,
            now if now < Resize::least_bytes(self.most_bytes) => LimitChange::TooLow,
            _ => LimitChange::Shrinks,
        }
    }

    /// What a limit leaves the tiers.
    fn left_bytes(&self, limit_bytes: Option<u64>) -> u64 {
        limit_bytes.map_or(u64::MAX, |limit| limit.saturating_sub(self.beside_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWANCE: Allowance = Allowance { most_bytes: 800, wanted_bytes: 600, beside_bytes: 50 };

    #[test]
    fn tiers_get_what_the_limit_leaves_up_to_what_they_are_to_have() {
        let of = |limit| ALLOWANCE.tier_bytes(limit);
        assert_eq!(
            [None, Some(u64::MAX), Some(650), Some(649), Some(350)].map(of),
            [600, 600, 600, 599, 300]
        );
        assert_eq!([Some(150), Some(149), Some(20), Some(0)].map(of), [100; 4], "an eighth of what they had");
        let all = Allowance { wanted_bytes: u64::MAX, ..ALLOWANCE };
        assert_eq!((all.tier_bytes(None), all.tier_bytes(Some(10_000))), (800, 800), "there is no more");
        assert_eq!(Allowance { wanted_bytes: 1, ..ALLOWANCE }.tier_bytes(None), 100);
    }

    #[test]
    fn a_change_is_told_where_the_tiers_feel_it() {
        let change = |before, now| ALLOWANCE.change(before, now);
        assert_eq!(change(None, Some(650)), LimitChange::None);
        assert_eq!(change(Some(700), Some(651)), LimitChange::None);
        assert_eq!(change(None, Some(649)), LimitChange::Shrinks);
        assert_eq!(change(Some(649), Some(400)), LimitChange::Shrinks);
        assert_eq!(change(Some(400), Some(150)), LimitChange::Shrinks);
        assert_eq!(change(Some(400), Some(149)), LimitChange::TooLow);
        assert_eq!(change(Some(149), Some(400)), LimitChange::Grows);
        assert_eq!(change(Some(149), None), LimitChange::Grows);
        assert_eq!(change(Some(400), Some(400)), LimitChange::None);
    }
}
