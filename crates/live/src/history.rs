//! History of a server's views, so that a page opened now shows rates and plots at once: the plots' counters
//! of the last ten minutes, one sample a second, and whole views of the last minute, one every ten seconds.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Serialize;

use crate::view::View;

/// Samples kept: ten minutes of them.
const SAMPLES_MAX: usize = 600;
/// Whole views kept: a minute from the first to the last.
const VIEWS_MAX: usize = 7;
/// Samples from one whole view to the next.
const VIEW_EVERY: u64 = 10;

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
    samples_seen: u64,
}

impl<V: View> Default for History<V> {
    fn default() -> Self {
        History { samples: VecDeque::new(), views: VecDeque::new(), samples_seen: 0 }
    }
}

impl<V: View> Clone for History<V> {
    fn clone(&self) -> Self {
        let (samples, views) = (self.samples.clone(), self.views.clone());
        History { samples, views, samples_seen: self.samples_seen }
    }
}

impl<V: View> History<V> {
    /// Adds the view at `unix_s`, unless it is the last one added, or the placeholder before any is published.
    pub fn push(&mut self, view: &Arc<V>, unix_s: f64) {
        let uptime_s = view.uptime_s();
        if uptime_s == 0.0 || self.samples.back().is_some_and(|last| last.uptime_s == uptime_s) {
            return;
        }
        push_bounded(&mut self.samples, Sample { unix_s, uptime_s, counters: view.counters() }, SAMPLES_MAX);
        if self.samples_seen.is_multiple_of(VIEW_EVERY) {
            push_bounded(&mut self.views, view.clone(), VIEWS_MAX);
        }
        self.samples_seen += 1;
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

fn push_bounded<T>(queue: &mut VecDeque<T>, item: T, limit: usize) {
    if queue.len() == limit {
        queue.pop_front();
    }
    queue.push_back(item);
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
    fn it_keeps_the_newest_and_nothing_twice() {
        let mut history = History::default();
        let view = |uptime_s| Arc::new(Clock { uptime_s });
        history.push(&view(0.0), 0.0);
        for second in 0..2 * SAMPLES_MAX {
            history.push(&view((second / 2 + 1) as f64), second as f64);
        }
        assert_eq!(history.samples().len(), SAMPLES_MAX);
        history.push(&view(601.0), 0.0);
        let uptimes = |sample: Option<&Sample<()>>| sample.map(|sample| sample.uptime_s);
        assert_eq!(uptimes(history.samples().front()), Some(2.0));
        assert_eq!(uptimes(history.samples().back()), Some(601.0));
        let views: Vec<_> = history.views().map(|view| view.uptime_s).collect();
        assert_eq!(views, [541.0, 551.0, 561.0, 571.0, 581.0, 591.0, 601.0]);
    }
}
