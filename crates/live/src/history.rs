//! History of a server's views, so that a page opened now shows rates and plots at once: the plots' counters and whole views of the last
//! hour, the fewer the older they are.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Serialize;

use crate::view::View;

/// Seconds for which anything is kept.
const KEPT_S: f64 = 3600.0;
/// Of samples as old as this (seconds) one is kept in so many seconds. The page's plots show an hour in fewer points than that.
const SAMPLE_STEPS: [Step; 2] = [Step { age_s: 0.0, every_s: 1.0 }, Step { age_s: 600.0, every_s: 10.0 }];
/// The same of whole views. They are large, and the page compares with the one that is as old as the window it shows: `feed.js` keeps as
/// many.
const VIEW_STEPS: [Step; 3] = [
    Step { age_s: 0.0, every_s: 10.0 },
    Step { age_s: 65.0, every_s: 60.0 },
    Step { age_s: 660.0, every_s: 300.0 },
];
/// The period is a second, and ticks come late: of two uptimes in one second the second is not lost.
const SLACK_S: f64 = 0.5;

/// From an age on, one is kept in so many seconds.
struct Step {
    age_s: f64,
    every_s: f64,
}

/// The counters of one view, for the plots.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample<C> {
    /// When: Unix time in seconds.
    pub unix_s: f64,
    /// The view's uptime, by which rates are worked out.
    pub uptime_s: f64,
    /// The counters.
    #[serde(flatten)]
    pub counters: C,
}

/// The newest samples and views, oldest first.
pub struct History<V: View> {
    samples: VecDeque<Sample<V::Counters>>,
    views: VecDeque<Arc<V>>,
}

impl<V: View> Default for History<V> {
    fn default() -> Self {
        History { samples: VecDeque::new(), views: VecDeque::new() }
    }
}

impl<V: View> Clone for History<V> {
    fn clone(&self) -> Self {
        History { samples: self.samples.clone(), views: self.views.clone() }
    }
}

impl<V: View> History<V> {
    /// Adds the view at `unix_s`, unless it is the last one added, or the placeholder before any is published.
    pub fn push(&mut self, view: &Arc<V>, unix_s: f64) {
        let uptime_s = view.uptime_s();
        if uptime_s == 0.0 || self.samples.back().is_some_and(|last| last.uptime_s == uptime_s) {
            return;
        }
        self.samples.push_back(Sample { unix_s, uptime_s, counters: view.counters() });
        thin(&mut self.samples, uptime_s, &SAMPLE_STEPS, |sample| sample.uptime_s);
        let newest_s = self.views.back().map(|view| view.uptime_s());
        if newest_s.is_none_or(|newest_s| uptime_s - newest_s >= VIEW_STEPS[0].every_s - SLACK_S) {
            self.views.push_back(view.clone());
            thin(&mut self.views, uptime_s, &VIEW_STEPS, |view| view.uptime_s());
        }
    }

    /// The samples.
    pub fn samples(&self) -> &VecDeque<Sample<V::Counters>> {
        &self.samples
    }

    /// The views.
    pub fn views(&self) -> impl Iterator<Item = &V> {
        self.views.iter().map(Arc::as_ref)
    }
}

/// Keeps of the items, oldest first, those that `steps` want at `now_s`. An item that goes lies within its step of an older one that stays.
fn thin<T>(items: &mut VecDeque<T>, now_s: f64, steps: &[Step], uptime_s: impl Fn(&T) -> f64) {
    let mut last_s = None;
    items.retain(|item| {
        let at_s = uptime_s(item);
        let age_s = now_s - at_s;
        let every_s = steps.iter().rev().find(|step| age_s >= step.age_s).map_or(0.0, |step| step.every_s);
        let stays =
            age_s <= KEPT_S + every_s && last_s.is_none_or(|last_s| at_s - last_s >= every_s - SLACK_S);
        if stays {
            last_s = Some(at_s);
        }
        stays
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::File;

    #[derive(Serialize)]
    struct Clock {
        uptime_s: f64,
    }

    impl View for Clock {
        type Counters = ();
        const PAGE: &'static [File] = &[];

        fn uptime_s(&self) -> f64 {
            self.uptime_s
        }
        fn counters(&self) {}
        fn metrics(&self, _: bool) -> String {
            String::new()
        }
    }

    #[test]
    fn it_keeps_an_hour_and_nothing_twice() {
        let mut history = History::default();
        let view = |uptime_s| Arc::new(Clock { uptime_s });
        history.push(&view(0.0), 0.0);
        // The server publishes less often than is asked, and not to the second.
        for half in 2..2 * 9000 {
            let second = half / 2;
            history.push(&view(f64::from(second) + 0.1 * f64::from(second % 3)), f64::from(half) / 2.0);
        }
        let uptimes: Vec<f64> = history.samples().iter().map(|sample| sample.uptime_s).collect();
        assert!(
            uptimes.is_sorted_by(|a, b| a < b) && (900..930).contains(&uptimes.len()),
            "{}",
            uptimes.len()
        );
        let last_s = uptimes[uptimes.len() - 1];
        assert!((3590.0..3612.0).contains(&(last_s - uptimes[0])), "{last_s} {}", uptimes[0]);
        for pair in uptimes.windows(2) {
            let most_s = if last_s - pair[1] < 590.0 { 1.5 } else { 11.0 };
            assert!(pair[1] - pair[0] <= most_s, "{pair:?} at {last_s}");
        }
        let views: Vec<f64> = history.views().map(|view| view.uptime_s).collect();
        assert!((20..32).contains(&views.len()), "{views:?}");
        // For each window of the page there is one about as old.
        for (window_s, slack_s) in [(10.0, 10.0), (60.0, 10.0), (600.0, 60.0), (3300.0, 300.0)] {
            assert!(
                views.iter().any(|at_s| (last_s - at_s - window_s).abs() <= slack_s),
                "{window_s}: {views:?}"
            );
        }
    }
}
