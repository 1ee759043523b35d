//! Latency events: when the server was slow, and the cause.

use std::collections::{BTreeMap, VecDeque};

use crate::command::{Flags, Spec};

/// Samples kept of each event, as in Redis.
const SAMPLES: usize = 160;
/// Number of buckets: times up to 2^40 us.
const BUCKETS: usize = 41;

/// When an event took long.
#[derive(Debug, Default)]
pub struct Event {
    /// A second of the store's time, and the longest of it in milliseconds.
    pub samples: VecDeque<(u64, u64)>,
    /// The longest of all.
    pub longest_ms: u64,
}

/// Latency events by name, and histograms by command.
#[derive(Debug, Default)]
pub struct Latencies {
    /// Events that took long.
    pub events: BTreeMap<&'static str, Event>,
    /// Calls of each command, by the power of two of microseconds that they took.
    pub calls: BTreeMap<String, [u64; BUCKETS]>,
    /// Least duration of an event that is kept, in milliseconds; 0: none is kept (`latency-monitor-threshold`).
    pub threshold_ms: u64,
    /// Whether each request's time is put into its command's histogram (`latency-tracking`).
    pub histograms: bool,
}

impl Latencies {
    /// Keeps an event if it took long enough.
    pub fn note(&mut self, event: &'static str, us: u64, now_s: u64) {
        let ms = us / 1000;
        if self.threshold_ms == 0 || ms < self.threshold_ms {
            return;
        }
        let event = self.events.entry(event).or_default();
        event.longest_ms = event.longest_ms.max(ms);
        match event.samples.back_mut() {
            Some((second, longest)) if *second == now_s => *longest = ms.max(*longest),
            _ => event.samples.push_back((now_s, ms)),
        }
        if event.samples.len() > SAMPLES {
            event.samples.pop_front();
        }
    }

    /// Keeps how long a command took, as an event and in its histogram.
    pub fn note_command(&mut self, spec: &Spec, us: u64, now_s: u64) {
        let event = if spec.flags.contains(Flags::FAST) { "fast-command" } else { "command" };
        self.note(event, us, now_s);
        if self.histograms {
            // The bucket's upper bound is 2^bucket us.
            let bucket = (64 - us.saturating_sub(1).leading_zeros()) as usize;
            self.calls.entry(spec.full_name()).or_insert([0; BUCKETS])[bucket.min(BUCKETS - 1)] += 1;
        }
    }
}
