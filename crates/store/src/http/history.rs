//! The past that a page opened now needs to show rates and plots at once: the plots' counters of the last ten
//! minutes, a sample a second, and whole views of the last minute, a view every ten seconds.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Serialize;

use super::view::View;

/// Samples kept: ten minutes of them.
pub const SAMPLES_MAX: usize = 600;
/// Whole views kept: a minute from the first to the last.
pub const VIEWS_MAX: usize = 7;
/// Samples from one whole view to the next.
const VIEW_EVERY: u64 = 10;

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

/// The newest samples and views, oldest first.
#[derive(Clone, Debug, Default)]
pub struct History {
    samples: VecDeque<Sample>,
    views: VecDeque<Arc<View>>,
    samples_seen: u64,
}

impl History {
    /// Adds what was seen at `unix_s`, unless it is the view that was added last.
    pub fn push(&mut self, view: &Arc<View>, unix_s: f64) {
        if self.samples.back().is_some_and(|last| last.uptime_s == view.uptime_s) {
            return;
        }
        push_bounded(&mut self.samples, Sample::of(view, unix_s), SAMPLES_MAX);
        if self.samples_seen.is_multiple_of(VIEW_EVERY) {
            push_bounded(&mut self.views, view.clone(), VIEWS_MAX);
        }
        self.samples_seen += 1;
    }

    /// The samples.
    pub fn samples(&self) -> &VecDeque<Sample> {
        &self.samples
    }

    /// The views.
    pub fn views(&self) -> impl Iterator<Item = &View> {
        self.views.iter().map(Arc::as_ref)
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, item: T, limit: usize) {
    if queue.len() == limit {
        queue.pop_front();
    }
    queue.push_back(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_the_newest_and_nothing_twice() {
        let mut history = History::default();
        let view = |uptime_s| Arc::new(View { uptime_s, ..Default::default() });
        for second in 0..2 * SAMPLES_MAX {
            history.push(&view((second / 2) as f64), second as f64);
        }
        assert_eq!(history.samples().len(), SAMPLES_MAX);
        history.push(&view(600.0), 0.0);
        let uptimes = |sample: Option<&Sample>| sample.map(|sample| sample.uptime_s);
        assert_eq!(uptimes(history.samples().front()), Some(1.0));
        assert_eq!(uptimes(history.samples().back()), Some(600.0));
        let views: Vec<_> = history.views().map(|view| view.uptime_s).collect();
        assert_eq!(views, [540.0, 550.0, 560.0, 570.0, 580.0, 590.0, 600.0]);
    }
}
