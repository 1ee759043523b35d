//! Precise waits until a point in time, exact to some microseconds.
//!
//! The kernel lets a sleeper oversleep by its timer slack, 50 microseconds unless a thread asks for less, so that it may wake
//! several at once. A stand-in for a database that answers in 200 microseconds cannot give that away.

use std::hint;
use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;

/// Below this a sleep takes longer than it should, and offering the core to others costs a thread its turn, some milliseconds
/// where several are at work. So the thread keeps it.
const SLEEP_LEAST: Duration = Duration::from_micros(20);

/// Asks that sleeps of the calling thread end as soon as they can. Where the system refuses, they end later.
pub fn sharpen_sleeps() {
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

/// Returns at `moment`, or a little later, never before.
pub fn wait_until(moment: Instant) {
    loop {
        match moment.checked_duration_since(Instant::now()) {
            None | Some(Duration::ZERO) => return,
            Some(left) if left < SLEEP_LEAST => hint::spin_loop(),
            Some(left) => thread::sleep(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_early() {
        sharpen_sleeps();
        for us in [0, 1, 10, 30, 500] {
            let moment = Instant::now() + Duration::from_micros(us);
            wait_until(moment);
            assert!(Instant::now() >= moment, "{us}");
        }
    }
}
