//! Outcome of a simulation: counts, latencies, and the figures derived from them.

use hdrhistogram::Histogram;

use super::config::Device;

/// Counts up to some request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that came, and the reads among them.
    pub requests: u64,
    /// Reads among them.
    pub reads: u64,
    /// Requests that found their line in the cache.
    pub hits: u64,
    /// Requests that found it on its way, and had not to send for it.
    pub hits_under_miss: u64,
    /// Requests for which it was sent for.
    pub misses: u64,
    /// Reads of flash while the same line was already on its way.
    pub repeated_reads: u64,
    /// Lines sent for by the prefetcher or by hints.
    pub prefetches: u64,
    /// Prefetched lines that a request used, those that it had to wait for included.
    pub prefetches_used: u64,
    /// Prefetched lines that a request had to wait for.
    pub prefetches_late: u64,
    /// Hits on lines that were prefetched.
    pub prefetch_hits: u64,
    /// Misses on lines that a prefetched one had thrown out.
    pub polluted: u64,
    /// Hints that sent for a line.
    pub hints: u64,
    /// Lines read from flash for requests and prefetches.
    pub flash_reads: u64,
    /// Reads that found their line in the write log.
    pub log_hits: u64,
    /// Lines written to flash.
    pub flash_writes: u64,
    /// Lines moved by cleaning and wear levelling.
    pub moves: u64,
    /// Blocks erased.
    pub erases: u64,
    /// How requests were answered.
    pub answers: Answers,
}

/// How requests were answered: nanoseconds that they waited, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Requests answered within less than a microsecond.
    pub sub_us: u64,
    /// All of the wait, which is the sum of the next four.
    pub latency_ns: u64,
    /// For a place in host and device.
    pub queue_ns: u64,
    /// On the link, both ways.
    pub link_ns: u64,
    /// For DRAM.
    pub dram_ns: u64,
    /// For flash.
    pub flash_ns: u64,
    /// The summed latency of the requests that missed.
    pub miss_latency_ns: u64,
}

macro_rules! minus {
    ($self:expr, $other:expr, $($field:ident),*) => {
        Counts { $($field: $self.$field - $other.$field,)* answers: Answers::default() }
    };
}

impl Counts {
    /// The counts since `before`, without answers: those of requests before it come after it.
    pub fn since(&self, before: &Counts) -> Counts {
        minus!(
            self,
            before,
            requests,
            reads,
            hits,
            hits_under_miss,
            misses,
            repeated_reads,
            prefetches,
            prefetches_used,
            prefetches_late,
            prefetch_hits,
            polluted,
            hints,
            flash_reads,
            log_hits,
            flash_writes,
            moves,
            erases
        )
    }

    /// Requests within less than a microsecond, in percent.
    pub fn sub_us_percent(&self) -> f64 {
        100.0 * share(self.answers.sub_us, self.requests)
    }

    /// Prefetched lines that were used, of all.
    pub fn accuracy(&self) -> f64 {
        share(self.prefetches_used, self.prefetches)
    }

    /// Hits on prefetched lines, of all requests.
    pub fn coverage(&self) -> f64 {
        share(self.prefetch_hits, self.requests)
    }

    /// Prefetched lines that came too late, of all.
    pub fn lateness(&self) -> f64 {
        share(self.prefetches_late, self.prefetches)
    }

    /// Misses that prefetches caused, of all.
    pub fn pollution(&self) -> f64 {
        share(self.polluted, self.misses)
    }

    /// Lines written to flash, those moved included, for each line of the host; 1 if there was none.
    pub fn write_amplification(&self) -> f64 {
        if self.flash_writes == 0 { 1.0 } else { 1.0 + share(self.moves, self.flash_writes) }
    }

    /// A sum over all requests, for each of them.
    pub fn per_request(&self, sum: u64) -> f64 {
        share(sum, self.requests)
    }

    /// Mean latency of requests that had to wait for flash.
    pub fn mean_miss_latency_ns(&self) -> f64 {
        share(self.answers.miss_latency_ns, self.hits_under_miss + self.misses)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A part of the trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceWindow {
    /// When its first request came.
    pub start_ns: u64,
    /// Its counts.
    pub counts: Counts,
}

/// The outcome of a simulation.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Over the whole trace.
    pub counts: Counts,
    /// Its parts, if they were asked for.
    pub windows: Vec<TraceWindow>,
    /// Latencies in nanoseconds, to three digits.
    pub latency: Histogram<u64>,
    /// From the first request until the last answer.
    pub duration_ns: u64,
    /// From the first request until the last: in an open loop as the trace has them, else as the host sent them.
    pub sent_span_ns: u64,
    /// From the first request to flash until the last.
    pub flash_span_ns: u64,
    /// The most and the least that blocks were erased.
    pub wear: (u32, u32),
    /// Operations that were interrupted for others.
    pub suspensions: u64,
    /// The bytes that the simulator held for the device.
    pub metadata_bytes: u64,
}

impl Outcome {
    /// A percentile of the latency, 0 to 100, in ns.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        self.latency.value_at_quantile(percent / 100.0)
    }

    /// From one request to flash until the next, in ns.
    pub fn flash_interarrival_ns(&self) -> f64 {
        share(self.flash_span_ns, self.counts.flash_reads + self.counts.flash_writes)
    }

    /// Years until every block of the capacity has been erased as often as it may be, amplified so much: endurance x
    /// capacity / rate, where the rate is what was written between the first request and the last answer. A device that keeps
    /// its host waiting is written more slowly than the trace would have it.
    pub fn lifetime_years(&self, device: &Device, amplification: f64) -> f64 {
        const YEAR_S: f64 = 365.0 * 24.0 * 3600.0;
        let line_bytes = f64::from(device.geometry.unit_bytes);
        let written = self.counts.flash_writes as f64 * line_bytes * amplification;
        let endurance = f64::from(device.timing.memory.endurance_cycles);
        let may_be_written = endurance * device.config.flash.capacity.0 as f64;
        may_be_written / (written / (self.duration_ns as f64 / 1e9)) / YEAR_S
    }

    /// Performance for a price, against the same capacity of DRAM whose every request is below a microsecond: the share of
    /// requests below a microsecond times the ratio of prices (Yang 2023, Figure 14). With `device_dram`, the device's own DRAM is paid
    /// for too.
    pub fn performance_per_dollar(&self, device: &Device, device_dram: bool) -> f64 {
        let (price, capacity) = (&device.config.price, device.config.flash.capacity.0 as f64);
        let cache = if device_dram { device.config.cache.size.0 as f64 } else { 0.0 };
        let cost = price.flash.of(capacity) + price.dram.of(cache);
        self.counts.sub_us_percent() / 100.0 * price.dram.of(capacity) / cost
    }
}
