//! Busy polling: after an event the loop polls for more for a moment before it sleeps.
//!
//! A wake-up costs tens of microseconds, in a virtual machine more than serving a request, and a
//! client with one request in flight waits for that each time. So do clients with many: a loop woken
//! for each request never gets several at once. The moments are short, and where they are in vain (the
//! next request comes later, or the client needs this very processor to send it) they become rare.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::yield_now;

/// Time of polling before sleeping: a little more than a read of a flash device takes (70 us), for which a client with one request in flight
/// waits.
const MOMENT: Duration = Duration::from_micros(100);
/// Most occasions to skip, after any number of vain ones: too few
/// to be seen in latencies, and soon over where the client changes.
const PASSED_MAX: u32 = 1023;

/// Decides which occasions to poll at: all, as long as polling helps.
#[derive(Debug, Default)]
struct Occasions {
    /// Number of occasions to skip after one that was in vain, and how many of these are left.
    passed: u32,
    left: u32,
}

impl Occasions {
    /// Whether this one is taken.
    fn take(&mut self) -> bool {
        let is_taken = self.left == 0;
        self.left = self.left.saturating_sub(1);
        is_taken
    }

    /// One that was taken is over.
    fn was(&mut self, of_use: bool) {
        self.passed = if of_use { 0 } else { (2 * self.passed + 1).min(PASSED_MAX) };
        self.left = self.passed;
    }
}

/// Busy polling of the event loop; the sources of events report to it.
#[derive(Debug, Default)]
pub(super) struct BusyPoll {
    turns: Cell<u64>,
    is_kept: Cell<bool>,
    begin: Notify,
}

impl BusyPoll {
    /// Something has happened: a client sent something, or disks have done something.
    #[inline]
    pub(super) fn turn(&self) {
        self.turns.set(self.turns.get().wrapping_add(1));
        if !self.is_kept.get() {
            self.begin.notify_one();
        }
    }

    /// Keeps the loop awake. Never ends.
    pub(super) async fn keep(self: Rc<Self>) {
        let mut occasions = Occasions::default();
        loop {
            self.begin.notified().await;
            if !occasions.take() {
                continue;
            }
            let first = self.turns.get();
            self.is_kept.set(true);
            let (mut seen, mut since) = (first, Instant::now());
            loop {
                // Sockets are polled before this continues.
                yield_now().await;
                let now = Instant::now();
                if self.turns.get() != seen {
                    (seen, since) = (self.turns.get(), now);
                } else if now - since >= MOMENT {
                    break;
                }
            }
            self.is_kept.set(false);
            occasions.was(seen != first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_vain_becomes_rare_and_what_is_of_use_does_not() {
        let mut occasions = Occasions::default();
        let taken = |occasions: &mut Occasions, of_use: bool| {
            let is_taken = occasions.take();
            if is_taken {
                occasions.was(of_use);
            }
            is_taken
        };
        assert!((0..100).all(|_| taken(&mut occasions, true)));
        let in_vain = (0..102_400).filter(|_| taken(&mut occasions, false)).count();
        assert!((100..120).contains(&in_vain), "{in_vain}");
        let until_tried = (0..).take_while(|_| !taken(&mut occasions, true)).count();
        assert!(until_tried < 1024);
        assert!((0..100).all(|_| taken(&mut occasions, true)));
    }
}
