//! DRAM of the published simulator: one server, 46 ns an access, whatever its size, and eight places to wait.

use std::collections::VecDeque;

/// The time of every access.
pub const ACCESS_NS: u64 = 46;
/// Accesses that may wait.
const WAITING_MAX: usize = 8;

/// The purpose of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// A request that found its page.
    Hit,
    /// The request that a fetched page was fetched for.
    Miss,
    /// A request that found its page being fetched.
    HitUnderMiss,
    /// A prefetched page that no request waits for.
    Prefetch,
    /// The first request that waits for a prefetched page.
    LatePrefetch,
}

/// An access.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// What for.
    pub what: For,
    /// Since when the request waits.
    pub since_ns: u64,
}

/// The access that the server is busy with, and those that wait.
#[derive(Clone, Debug, Default)]
pub struct Dram {
    serving: Option<Access>,
    waiting: VecDeque<Access>,
}

impl Dram {
    /// How many accesses could be sent before it is full.
    pub fn room(&self) -> usize {
        WAITING_MAX.saturating_sub(self.waiting.len()) + usize::from(self.serving.is_none())
    }

    /// Takes an access: whether it is started now, and whether the server is full by it.
    pub fn send(&mut self, access: Access) -> (bool, bool) {
        if self.serving.is_none() {
            self.serving = Some(access);
            (true, false)
        } else {
            self.waiting.push_back(access);
            (false, self.waiting.len() >= WAITING_MAX)
        }
    }

    /// The access that is served is done: it, and whether another was started and room was made.
    pub fn done(&mut self) -> (Option<Access>, bool) {
        let done = self.serving.take();
        self.serving = self.waiting.pop_front();
        (done, self.serving.is_some())
    }
}
