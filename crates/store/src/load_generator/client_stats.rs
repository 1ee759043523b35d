//! Statistics of one application, and when it is done.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::{End, Options};
use crate::replay::latency_histogram;

/// Figures of one application while it was measured.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Look-ups, each with what followed its miss.
    pub accesses: u64,
    /// Look-ups that found their key.
    pub hits: u64,
    /// Commands that the server answered with an error, measured or not.
    pub errors: u64,
    /// The first of them, as the server worded it.
    pub first_error: Option<String>,
    /// Sum of the latencies of all accesses. A histogram has three digits only, and a mean should be exact.
    pub latency_sum_ns: u128,
    /// Latency of accesses, in nanoseconds.
    pub latency_ns: Histogram<u64>,
    /// From the first measured access to the end of the last.
    pub elapsed: Duration,
    /// WindowStats by window from the very start, warm-up and all; empty without windows.
    pub windows: Vec<WindowStats>,
}

/// Figures of one application in one window: accesses count where they end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowStats {
    /// Look-ups.
    pub accesses: u64,
    /// Look-ups that found their key.
    pub hits: u64,
    /// Sum of the latencies.
    pub latency_sum_ns: u128,
}

impl Figures {
    /// Of nothing yet.
    pub fn new() -> Self {
        Figures {
            accesses: 0,
            hits: 0,
            errors: 0,
            first_error: None,
            latency_sum_ns: 0,
            latency_ns: latency_histogram(),
            elapsed: Duration::ZERO,
            windows: Vec::new(),
        }
    }

    /// Hits over accesses; 0 when there were none.
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.hits as f64, self.accesses)
    }

    /// Hits per second.
    pub fn hits_per_second(&self) -> f64 {
        self.hits as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Mean latency of an access, in microseconds; 0 when there were none.
    pub fn mean_us(&self) -> f64 {
        ratio(self.latency_sum_ns as f64 / 1e3, self.accesses)
    }

    /// The latency in microseconds that this share of the accesses stayed below.
    pub fn latency_us(&self, quantile: f64) -> f64 {
        self.latency_ns.value_at_quantile(quantile) as f64 / 1e3
    }

    /// Adds another application's accesses. Windows stay apart, and the time is that of the longest.
    pub fn add(&mut self, other: &Figures) {
        self.accesses += other.accesses;
        self.hits += other.hits;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or_else(|| other.first_error.clone());
        self.latency_sum_ns += other.latency_sum_ns;
        // Both have the same bounds, so adding does not fail.
        let _ = self.latency_ns.add(&other.latency_ns);
        self.elapsed = self.elapsed.max(other.elapsed);
    }
}

impl Default for Figures {
    fn default() -> Self {
        Figures::new()
    }
}

impl WindowStats {
    /// Hits over accesses; 0 when there were none.
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.hits as f64, self.accesses)
    }

    /// Mean latency of an access, in microseconds; 0 when there were none.
    pub fn mean_us(&self) -> f64 {
        ratio(self.latency_sum_ns as f64 / 1e3, self.accesses)
    }
}

fn ratio(sum: f64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { sum / count as f64 }
}

/// One access and what followed, with times from the start of the run.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredAccess {
    pub begun: Duration,
    pub ended: Duration,
    /// Its latency as counted: the time between the two only where applications really wait.
    pub latency: Duration,
    pub is_hit: bool,
}

/// An application's way through its run.
pub struct ClientStats {
    figures: Figures,
    end: End,
    warm_up: f64,
    window: Option<Duration>,
    accesses: u64,
    measured_from: Option<Duration>,
}

impl ClientStats {
    /// At the start.
    pub fn new(options: &Options) -> Self {
        let Options { end, warm_up, window, .. } = *options;
        ClientStats { figures: Figures::new(), end, warm_up, window, accesses: 0, measured_from: None }
    }

    /// Counts an access, and says whether the application is done.
    pub fn count(&mut self, access: MeasuredAccess) -> bool {
        let number = self.accesses;
        self.accesses += 1;
        let (is_warm, is_late) = match self.end {
            End::Accesses(count) => ((number as f64) >= self.warm_up * count as f64, number >= count),
            End::Time(time) => (access.begun >= time.mul_f64(self.warm_up), access.ended > time),
        };
        let latency_ns = u64::try_from(access.latency.as_nanos()).unwrap_or(u64::MAX);
        if !is_late && let Some(window) = self.window {
            // What ends on a border belongs to the window that ends there: so the last one is never beyond the run.
            let at = (access.ended.as_nanos().saturating_sub(1) / window.as_nanos().max(1)) as usize;
            if self.figures.windows.len() <= at {
                self.figures.windows.resize(at + 1, WindowStats::default());
            }
            let window = &mut self.figures.windows[at];
            window.accesses += 1;
            window.hits += u64::from(access.is_hit);
            window.latency_sum_ns += u128::from(latency_ns);
        }
        if is_warm && !is_late {
            let from = *self.measured_from.get_or_insert(access.begun);
            self.figures.elapsed = access.ended - from;
            self.figures.accesses += 1;
            self.figures.hits += u64::from(access.is_hit);
            self.figures.latency_sum_ns += u128::from(latency_ns);
            self.figures.latency_ns.saturating_record(latency_ns);
        }
        match self.end {
            End::Accesses(count) => self.accesses >= count,
            End::Time(time) => access.ended >= time,
        }
    }

    /// Counts an error of the server.
    pub fn refused(&mut self, text: String) {
        self.figures.errors += 1;
        self.figures.first_error.get_or_insert(text);
    }

    /// The final figures.
    pub fn finish(self) -> Figures {
        self.figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_generator::{By, MissWait};

    fn client_stats(end: End, warm_up: f64) -> ClientStats {
        let window = Some(Duration::from_micros(100));
        let to = "127.0.0.1:1".parse().unwrap();
        let options = Options {
            to,
            auth: None,
            by: By::Prefix,
            miss_wait: MissWait::Wait,
            end,
            warm_up,
            window,
            value_scale: 1.0,
        };
        ClientStats::new(&options)
    }

    /// Access `number` of accesses that take 10 microseconds each, one after another; every third hits.
    fn access(number: u32) -> MeasuredAccess {
        let latency = Duration::from_micros(10);
        MeasuredAccess {
            begun: latency * number,
            ended: latency * (number + 1),
            latency,
            is_hit: number.is_multiple_of(3),
        }
    }

    #[test]
    fn what_is_warming_up_or_late_is_not_measured() {
        for end in [End::Accesses(100), End::Time(Duration::from_millis(1))] {
            let mut client_stats = client_stats(end, 0.4);
            let done: Vec<bool> = (0..120).map(|number| client_stats.count(access(number))).collect();
            assert_eq!(done.iter().position(|done| *done), Some(99), "{end:?}");
            let figures = client_stats.finish();
            assert_eq!((figures.accesses, figures.hits), (60, 20), "{end:?}");
            assert_eq!((figures.mean_us(), figures.elapsed), (10.0, Duration::from_micros(600)));
            assert!((figures.hits_per_second() - 20.0 / 600e-6).abs() < 1e-6);
            // Windows begin with the run.
            assert_eq!(figures.windows.iter().map(|window| window.accesses).sum::<u64>(), 100);
            assert_eq!((figures.windows[0].accesses, figures.windows.len()), (10, 10));
            assert_eq!(figures.windows[1].mean_us(), 10.0);
        }
    }

    #[test]
    fn figures_of_several_add_up() {
        let mut one = client_stats(End::Accesses(10), 0.0);
        let mut other = client_stats(End::Accesses(20), 0.0);
        (0..20).for_each(|number| {
            one.count(access(number));
            other.count(access(number));
        });
        one.refused("OOM".to_owned());
        let mut sum = Figures::new();
        sum.add(&one.finish());
        sum.add(&other.finish());
        assert_eq!((sum.accesses, sum.hits, sum.errors), (30, 4 + 7, 1));
        assert_eq!((sum.mean_us(), sum.latency_ns.len()), (10.0, 30));
        assert_eq!(Figures::new().mean_us(), 0.0);
    }
}
