//! Monitoring clients (`MONITOR`): each is sent every request as a line.

use std::collections::BTreeSet;

use super::output_buffers::OutputBuffers;
use super::registry::{Registry, Slot};

/// The slots of monitoring clients.
#[derive(Debug, Default)]
pub(super) struct Monitors(BTreeSet<Slot>);

impl Monitors {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A client begins to monitor.
    pub(super) fn add(&mut self, slot: Slot) {
        self.0.insert(slot);
    }

    /// A client monitors no more, if it did.
    pub(super) fn remove(&mut self, slot: Slot) {
        self.0.remove(&slot);
    }

    /// Whether a client monitors.
    pub(super) fn has(&self, slot: Slot) -> bool {
        self.0.contains(&slot)
    }

    /// Sends a line to all of them.
    pub(super) fn tell(&self, registry: &Registry, output: &mut OutputBuffers, line: &[u8]) {
        for slot in &self.0 {
            output.push(*slot, registry, line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Peer;
    use super::*;

    #[test]
    fn a_line_reaches_those_who_monitor() {
        let (mut registry, mut output) = (Registry::default(), OutputBuffers::default());
        let slots = [1, 2, 3].map(|id| registry.enter(id, Peer::None, 0));
        slots.iter().for_each(|slot| output.enter(*slot));
        let mut monitors = Monitors::default();
        monitors.add(slots[0]);
        monitors.add(slots[2]);
        monitors.remove(slots[2]);
        monitors.tell(&registry, &mut output, b"line");
        let pushed = slots.map(|slot| output.take_pushed(slot));
        assert_eq!(pushed, [Some(b"line".to_vec()), None, None]);
        assert!(monitors.has(slots[0]) && !monitors.has(slots[2]) && !monitors.is_empty());
    }
}
