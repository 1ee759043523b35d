//! Pace of clients that replay a trace: when they send its requests.

/// When requests are sent.
///
/// In a closed loop a server that stalls for a second gets no requests in that second, and one
/// bad latency stands for the thousands of requests that would have met it (Tene's coordinated
/// omission). In an open loop they are all due, and their latency counts from when they were due.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Pace {
    /// A closed loop: when a worker, or a place in a connection's pipeline, is free.
    #[default]
    Closed,
    /// An open loop: this number of requests a second, in even steps. Above 0.
    Rate(f64),
    /// An open loop at the times of the trace, this many times as fast. Above 0.
    Speed(f64),
}

impl Pace {
    /// When the request of this number and time in the trace is due, in nanoseconds from the start; `None` in a closed loop. `time_ns`
    /// counts from the trace's first request.
    pub fn due_ns(self, number: u64, time_ns: u64) -> Option<u64> {
        match self {
            Pace::Closed => None,
            Pace::Rate(per_second) => Some((number as f64 * 1e9 / per_second) as u64),
            Pace::Speed(times) => Some((time_ns as f64 / times) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;

    #[test]
    fn requests_are_due_by_number_or_by_time() {
        assert_eq!(Pace::Closed.due_ns(3, 900), None);
        assert_eq!(Pace::Rate(1e6).due_ns(3, 900), Some(3000));
        assert_eq!(Pace::Speed(10.0).due_ns(3, 900), Some(90));
    }
}
