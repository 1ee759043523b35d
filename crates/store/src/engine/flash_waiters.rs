//! Requests that wait for the flash tier: writers for space, and clients whose replies wait until a change is durable.

use std::task::Waker;

use crate::flash::Moment;

/// The wakers of waiting requests.
#[derive(Debug, Default)]
pub(super) struct FlashWaiters {
    /// Writers that wait for space.
    choked: Vec<Waker>,
    /// Clients with a reply that waits, and the moment that must be durable.
    undurable: Vec<(Moment, Waker)>,
}

impl FlashWaiters {
    /// A writer waits for space; once, however often it asks.
    pub fn await_space(&mut self, waker: &Waker) {
        if !self.choked.iter().any(|choked| choked.will_wake(waker)) {
            self.choked.push(waker.clone());
        }
    }

    /// A client waits for a moment to be durable.
    pub fn await_durable(&mut self, moment: Moment, waker: &Waker) {
        self.undurable.push((moment, waker.clone()));
    }

    /// Wakes the writers if there is space, and the clients whose moment is durable.
    pub fn wake(&mut self, is_choked: bool, is_durable: impl Fn(Moment) -> bool) {
        if !is_choked {
            self.choked.drain(..).for_each(Waker::wake);
        }
        self.undurable.extract_if(.., |(moment, _)| is_durable(*moment)).for_each(|(_, waker)| waker.wake());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn each_is_woken_once_when_what_it_waits_for_is_there() {
        let counts = [(); 3].map(|()| Arc::new(Count::default()));
        let [writer, other, client] = counts.each_ref().map(|count| Waker::from(Arc::clone(count)));
        let woken = || counts.each_ref().map(|count| count.0.load(Ordering::Relaxed));
        let mut waiters = FlashWaiters::default();
        waiters.await_space(&writer);
        waiters.await_space(&writer);
        waiters.await_space(&other);
        waiters.await_durable(Moment::default(), &client);
        waiters.wake(true, |_| false);
        assert_eq!(woken(), [0, 0, 0]);
        waiters.wake(true, |_| true);
        assert_eq!(woken(), [0, 0, 1]);
        waiters.wake(false, |_| true);
        assert_eq!(woken(), [1, 1, 1]);
        waiters.wake(false, |_| true);
        assert_eq!(woken(), [1, 1, 1]);
    }
}
