//! The counters of the last ten minutes, one sample a second, so that a page opened now has plots at once.

use std::collections::VecDeque;

use serde::Serialize;

use super::view::View;

/// Samples kept: ten minutes of them.
pub const SAMPLES_MAX: usize = 600;

/// What the plots need of one view.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// When: Unix time in seconds.
    pub unix_s: f64,
    /// The view's uptime, by which rates are worked out.
    pub uptime_s: f64,
    /// Requests answered.
    pub commands: u64,
    /// Look-ups.
    pub gets: u64,
    /// Look-ups that found their key.
    pub hits: u64,
    /// Those that found it in tier 0.
    pub fast_hits: u64,
    /// Items moved up, over all tiers.
    pub promotions: u64,
    /// Items moved down, over all tiers.
    pub demotions: u64,
    /// Items thrown out, over all tiers.
    pub evictions: u64,
}

impl Sample {
    /// The counters of `view`, which was seen at `unix_s`.
    pub fn of(view: &View, unix_s: f64) -> Sample {
        let tiers = &view.engine.tiers;
        Sample {
            unix_s,
            uptime_s: view.uptime_s,
            commands: view.commands_total,
            gets: view.engine.gets,
            hits: view.engine.hits,
            fast_hits: tiers.first().map_or(0, |tier| tier.hits),
            promotions: tiers.iter().map(|tier| tier.promotions).sum(),
            demotions: tiers.iter().map(|tier| tier.demotions).sum(),
            evictions: tiers.iter().map(|tier| tier.evictions).sum(),
        }
    }
}

/// The newest samples, oldest first.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct History {
    samples: VecDeque<Sample>,
}

impl History {
    /// Adds a sample, unless it is of the same moment as the last one.
    pub fn push(&mut self, sample: Sample) {
        if self.samples.back().is_some_and(|last| last.uptime_s == sample.uptime_s) {
            return;
        }
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_the_newest_and_nothing_twice() {
        let mut history = History::default();
        for second in 0..2 * SAMPLES_MAX {
            let view = View { uptime_s: (second / 2 * 2) as f64, ..Default::default() };
            history.push(Sample::of(&view, second as f64));
        }
        assert_eq!(history.samples.len(), SAMPLES_MAX);
        let last = (2 * SAMPLES_MAX - 2) as f64;
        assert_eq!(history.samples.back().map(|sample| sample.uptime_s), Some(last));
        history.push(Sample::of(&View { uptime_s: last + 1.0, ..Default::default() }, 0.0));
        assert_eq!(history.samples.front().map(|sample| sample.uptime_s), Some(2.0));
    }
}
