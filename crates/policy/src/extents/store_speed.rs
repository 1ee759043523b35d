//! Speed of a store, as measured while it serves: the latency and the time per byte of its reads and writes, and its flushes.
//!
//! Both are found from whatever requests there are, by normalised least mean squares: each one moves the estimates by a part of
//! what it differs from them, the latency more than the time per byte where it is small, and the other way round where it is
//! large. So a store that gets requests of one size only keeps what was believed of the other half. Times are taken at
//! completions, by the driver's clock, in the order in which the driver takes them.

use super::sizing::RequestCost;

/// Each request moves the estimates by this part of its difference.
const PART: f64 = 1.0 / 16.0;
/// A request of so many KiB tells as much of the time per byte as of the latency.
const EVEN_KIB: f64 = 256.0;
/// Longer than any store should take: what a request that hung took says nothing of the others.
const TOOK_NS_MAX: u64 = 10_000_000_000;

/// What a store has done, and how long it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// It gave bytes for one request of a client, asked for together.
    Read {
        /// How many.
        bytes: u64,
        /// From when they were asked for until the last was there.
        took_ns: u64,
    },
    /// It took bytes that were written back.
    Write {
        /// How many.
        bytes: u64,
        /// When they were sent.
        asked_ns: u64,
        /// When it had taken them.
        done_ns: u64,
    },
    /// It was flushed.
    Flush {
        /// How long that took.
        took_ns: u64,
    },
}

/// A latency, and a time per KiB.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    latency_ns: f64,
    kib_ns: f64,
}

impl Line {
    fn of(cost: &RequestCost) -> Self {
        Line { latency_ns: cost.request_ns as f64, kib_ns: cost.kib_ns as f64 }
    }

    /// A request of `kib` took so long.
    fn learn(&mut self, kib: f64, took_ns: f64) {
        let weight = kib / EVEN_KIB;
        let part = PART * (took_ns - self.latency_ns - kib * self.kib_ns) / (1.0 + weight * weight);
        self.latency_ns = (self.latency_ns + part).max(0.0);
        self.kib_ns = (self.kib_ns + part * weight / EVEN_KIB).max(0.0);
    }

    /// So many KiB more took so much longer.
    fn learn_rate(&mut self, kib: f64, took_ns: f64) {
        // As much as one request of so many would tell.
        let part = PART * (kib / EVEN_KIB).min(1.0);
        self.kib_ns += part * (took_ns / kib - self.kib_ns);
    }

    fn cost(&self) -> RequestCost {
        RequestCost { request_ns: self.latency_ns.round() as u64, kib_ns: self.kib_ns.round() as u64 }
    }
}

/// The speed of a store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoreSpeed {
    reads: Line,
    writes: Line,
    flush_ns: f64,
    /// When it took bytes last.
    written_ns: u64,
}

impl StoreSpeed {
    /// What is believed before anything is measured.
    pub fn new(believed: &RequestCost) -> Self {
        let line = Line::of(believed);
        StoreSpeed { reads: line, writes: line, flush_ns: line.latency_ns, written_ns: 0 }
    }

    /// Notes what it has done.
    pub fn learn(&mut self, measured: Measured) {
        match measured {
            Measured::Read { bytes, took_ns } if took_ns <= TOOK_NS_MAX => {
                self.reads.learn(bytes as f64 / 1024.0, took_ns as f64);
            }
            Measured::Write { bytes, asked_ns, done_ns } => {
                let last_ns = std::mem::replace(&mut self.written_ns, done_ns);
                let took_ns = done_ns.saturating_sub(asked_ns);
                if bytes == 0 || took_ns > TOOK_NS_MAX {
                    return;
                }
                let kib = bytes as f64 / 1024.0;
                if last_ns <= asked_ns {
                    self.writes.learn(kib, took_ns as f64);
                } else {
                    // It had others to take meanwhile: what it was asked for earlier kept it busy, and its latency had passed.
                    self.writes.learn_rate(kib, done_ns.saturating_sub(last_ns) as f64);
                }
            }
            Measured::Flush { took_ns } if took_ns <= TOOK_NS_MAX => {
                self.flush_ns += PART * (took_ns as f64 - self.flush_ns);
            }
            Measured::Read { .. } | Measured::Flush { .. } => {}
        }
    }

    /// The cost of a read.
    pub fn read(&self) -> RequestCost {
        self.reads.cost()
    }

    /// The cost of a write: how long after another it can be taken, and how much later it has been.
    pub fn write(&self) -> RequestCost {
        self.writes.cost()
    }

    /// How long a flush takes.
    pub fn flush_ns(&self) -> u64 {
        self.flush_ns.round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn near(found: u64, right: u64) -> bool {
        found.abs_diff(right) <= right / 20 + 20
    }

    #[test]
    fn latency_and_rate_are_found_from_requests_of_several_sizes() {
        let mut speed = StoreSpeed::new(&RequestCost::default());
        // 5 ms, and 100 MB/s.
        for at in 0..4000u64 {
            let bytes = [4, 64, 256, 1024][(at % 4) as usize] << 10;
            speed.learn(Measured::Read { bytes, took_ns: 5 * MS + bytes * 10 });
        }
        let RequestCost { request_ns, kib_ns } = speed.read();
        assert!(near(request_ns, 5 * MS) && near(kib_ns, 10_240), "{request_ns} {kib_ns}");
        assert_eq!(speed.write(), RequestCost::default(), "nothing was written");
    }

    #[test]
    fn requests_of_one_size_leave_the_other_half_as_it_was() {
        let mut speed = StoreSpeed::new(&RequestCost::default());
        for _ in 0..4000 {
            speed.learn(Measured::Read { bytes: 4096, took_ns: 20 * MS });
        }
        let RequestCost { request_ns, kib_ns } = speed.read();
        assert!(
            near(request_ns, 20 * MS) && kib_ns < 3 * RequestCost::default().kib_ns,
            "{request_ns} {kib_ns}"
        );
    }

    #[test]
    fn writes_that_queue_tell_the_rate_and_not_the_time_that_they_queued() {
        let mut speed = StoreSpeed::new(&RequestCost::default());
        let mut now_ns = 0;
        for _ in 0..500 {
            // Eight at once: 1 MiB takes 10 ms of the store, which is 2 ms away.
            let asked_ns = now_ns;
            for at in 1..=8 {
                now_ns = asked_ns + 2 * MS + at * 10 * MS;
                speed.learn(Measured::Write { bytes: 1 << 20, asked_ns, done_ns: now_ns });
            }
            // And a small one by itself.
            now_ns += MS;
            let asked_ns = now_ns;
            now_ns += 2 * MS + 40_000;
            speed.learn(Measured::Write { bytes: 4096, asked_ns, done_ns: now_ns });
            speed.learn(Measured::Flush { took_ns: 7 * MS });
        }
        let RequestCost { request_ns, kib_ns } = speed.write();
        assert!(near(request_ns, 2 * MS) && near(kib_ns, 9_766), "{request_ns} {kib_ns}");
        assert!(near(speed.flush_ns(), 7 * MS));
    }

    #[test]
    fn a_request_that_hung_says_nothing() {
        let mut speed = StoreSpeed::new(&RequestCost::default());
        let before = speed;
        speed.learn(Measured::Read { bytes: 4096, took_ns: u64::MAX });
        speed.learn(Measured::Write { bytes: 0, asked_ns: 0, done_ns: 0 });
        speed.learn(Measured::Flush { took_ns: u64::MAX });
        assert_eq!(speed, before);
    }
}
