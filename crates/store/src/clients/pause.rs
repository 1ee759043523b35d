//! `CLIENT PAUSE`: requests that wait.

use super::Clients;

/// Which requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PauseKind {
    /// Those that may change something.
    Write,
    /// All.
    All,
}

/// What is paused until when, and whose requests wait.
#[derive(Debug, Default)]
pub(super) struct Pause {
    /// The kind and the Unix time in microseconds of its end.
    until: Option<(PauseKind, u64)>,
    waiting: Vec<u64>,
}

impl Pause {
    pub(super) fn is_on(&self) -> bool {
        self.until.is_some()
    }

    pub(super) fn forget(&mut self, id: u64) {
        self.waiting.retain(|waiting| *waiting != id);
    }
}

impl Clients {
    /// Pauses. The stricter kind and the later end of an earlier pause go on to hold, as in Redis.
    pub fn pause(&mut self, kind: PauseKind, until_us: u64) {
        let old = self.pause.until.unwrap_or((kind, until_us));
        self.pause.until = Some((kind.max(old.0), until_us.max(old.1)));
        self.update_attention();
    }

    /// Which requests wait now.
    pub fn paused(&self) -> Option<PauseKind> {
        self.pause.until.map(|(kind, _)| kind)
    }

    /// Notes that a request of this client waits.
    pub fn wait_for_unpause(&mut self, id: u64) {
        self.pause.waiting.push(id);
    }

    /// Ends a pause whose time is over.
    pub fn end_pause(&mut self, now_us: u64) {
        if self.pause.until.is_some_and(|(_, until_us)| until_us <= now_us) {
            self.unpause();
        }
    }

    /// Ends the pause: whoever waits goes on.
    pub fn unpause(&mut self) {
        self.pause.until = None;
        for id in std::mem::take(&mut self.pause.waiting) {
            if let Some(slot) = self.find(id)
                && let Some(waker) = &self.entry(slot).waker
            {
                waker.wake_by_ref();
            }
        }
        self.update_attention();
    }
}
