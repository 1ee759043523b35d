//! Pause of requests (`CLIENT PAUSE`).

use super::registry::Slot;

/// Which requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PauseKind {
    /// Requests that may change a key.
    Write,
    /// All.
    All,
}

/// Paused requests: which kind, until when, and the clients that wait.
#[derive(Debug, Default)]
pub struct Pause {
    /// The kind and the Unix time in microseconds of its end.
    until: Option<(PauseKind, u64)>,
    waiting: Vec<Slot>,
}

impl Pause {
    /// Pauses requests. The stricter kind and the later end of an earlier pause still hold, as in Redis.
    pub(super) fn begin(&mut self, kind: PauseKind, until_us: u64) {
        let old = self.until.unwrap_or((kind, until_us));
        self.until = Some((kind.max(old.0), until_us.max(old.1)));
    }

    /// Which requests wait now.
    pub fn kind(&self) -> Option<PauseKind> {
        self.until.map(|(kind, _)| kind)
    }

    /// Whether its time is over.
    pub(super) fn is_over(&self, now_us: u64) -> bool {
        self.until.is_some_and(|(_, until_us)| until_us <= now_us)
    }

    /// Notes that a request of this client waits.
    pub(super) fn wait(&mut self, slot: Slot) {
        self.waiting.push(slot);
    }

    /// How many clients wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// A client has gone, and waits no more.
    pub(super) fn forget(&mut self, slot: Slot) {
        self.waiting.retain(|waiting| *waiting != slot);
    }

    /// Ends the pause and returns the clients to wake.
    #[must_use]
    pub(super) fn end(&mut self) -> Vec<Slot> {
        self.until = None;
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stricter_kind_and_the_later_end_hold() {
        let mut pause = Pause::default();
        assert!(pause.kind().is_none() && !pause.is_over(u64::MAX));
        pause.begin(PauseKind::All, 10);
        pause.begin(PauseKind::Write, 20);
        pause.begin(PauseKind::Write, 5);
        assert_eq!(pause.kind(), Some(PauseKind::All));
        assert!(!pause.is_over(19) && pause.is_over(20));
        [1, 2, 3].into_iter().for_each(|slot| pause.wait(slot));
        pause.forget(2);
        assert_eq!(pause.waiting(), 2);
        assert_eq!((pause.end(), pause.kind()), (vec![1, 3], None));
        assert!(pause.end().is_empty(), "nobody waits twice");
    }
}
