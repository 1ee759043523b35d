//! Tuning: the settings of a ladder that may change while it runs.

use super::config::{Eviction, LadderConfig, Reactive, Watermarks};
use crate::promotion_rule::{Promotion, WHOLE};

/// The parameters of a [`LadderConfig`] that hold from the next decision on when they change: none of them has a say
/// in how state is laid out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// Whether anything may be thrown out.
    pub eviction: Eviction,
    /// When the fast tier is full.
    pub reactive: Reactive,
    /// The rule by which items are promoted. [`Promotion::ReuseTimeScan`] keeps a reuse time for each item, so a ladder either
    /// began with it and keeps it, or never has it.
    pub promotion: Promotion,
    /// Whether free space is kept ready in the background.
    pub proactive: bool,
    /// How much, then.
    pub watermarks: Watermarks,
    /// Items promoted in one step at most.
    pub promote_batch: u32,
    /// Items demoted in one step at most.
    pub demote_batch: u32,
    /// Items evicted or expired in one step at most.
    pub evict_batch: u32,
    /// Requests between two scans of [`Promotion::ReuseTimeScan`].
    pub scan_requests: u64,
    /// Items that one scan looks at in each list.
    pub scan_depth: usize,
}

impl Default for Tuning {
    fn default() -> Self {
        LadderConfig::default().tuning()
    }
}

impl LadderConfig {
    /// The part that may change while a ladder runs.
    pub fn tuning(&self) -> Tuning {
        Tuning {
            eviction: self.eviction,
            reactive: self.reactive,
            promotion: self.promotion,
            proactive: self.watermarks.is_some(),
            watermarks: self.watermarks.unwrap_or_default(),
            promote_batch: self.promote_batch,
            demote_batch: self.demote_batch,
            evict_batch: self.evict_batch,
            scan_requests: self.scan_requests,
            scan_depth: self.scan_depth,
        }
    }

    /// [`Self::promote_below`] in parts of [`WHOLE`].
    pub(super) fn promote_below_parts(&self) -> u32 {
        (self.promote_below.unwrap_or(self.promotion.below()) * f64::from(WHOLE)) as u32
    }

    /// Takes over the settings that may change.
    pub fn tune(&mut self, tuning: Tuning) {
        self.eviction = tuning.eviction;
        self.reactive = tuning.reactive;
        self.promotion = tuning.promotion;
        self.watermarks = tuning.proactive.then_some(tuning.watermarks);
        self.promote_batch = tuning.promote_batch;
        self.demote_batch = tuning.demote_batch;
        self.evict_batch = tuning.evict_batch;
        self.scan_requests = tuning.scan_requests;
        self.scan_depth = tuning.scan_depth;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Ladder;
    use super::*;

    #[test]
    fn what_is_tuned_holds_and_scanning_is_for_life() {
        let config = LadderConfig::with_capacities(&[1 << 20]);
        let mut ladder = Ladder::new(config.clone());
        let mut tuning = config.tuning();
        ladder.tune(tuning);
        assert_eq!(*ladder.config(), config, "telling a ladder what it does changes nothing");
        tuning.proactive = false;
        tuning.evict_batch = 7;
        tuning.promotion = Promotion::Naive;
        ladder.tune(tuning);
        assert_eq!((ladder.config().watermarks, ladder.config().evict_batch), (None, 7));
        assert_eq!(ladder.config().tuning().promotion, Promotion::Naive);
        ladder.tune(Tuning { promotion: Promotion::ReuseTimeScan, ..tuning });
        assert_eq!(ladder.config().promotion, Promotion::Naive);
    }
}
