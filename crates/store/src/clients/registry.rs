//! Registry of clients: a slot for each connected client, with its facts for `CLIENT LIST`.

use std::collections::BTreeMap;

use super::{ClientInfo, Peer};
use crate::resp::Version;

/// A client's place in the registry while it is connected. The slot is used again
/// afterwards, so all state kept by slot is removed together with its client.
pub type Slot = u32;

/// The clients by slot and by number.
#[derive(Debug, Default)]
pub struct Registry {
    /// A vacant slot has the number 0.
    entries: Vec<ClientInfo>,
    vacant: Vec<Slot>,
    slots: BTreeMap<u64, Slot>,
}

impl Registry {
    /// Gives a client that has connected a slot.
    pub(super) fn enter(&mut self, id: u64, peer: Peer, now_us: u64) -> Slot {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(ClientInfo::default());
            (self.entries.len() - 1) as Slot
        });
        self.slots.insert(id, slot);
        self.entries[slot as usize] = ClientInfo::new(id, peer, now_us);
        slot
    }

    /// Takes the slot back.
    pub(super) fn leave(&mut self, slot: Slot) {
        let gone = std::mem::take(&mut self.entries[slot as usize]);
        let had = self.slots.remove(&gone.id);
        debug_assert_eq!(had, Some(slot), "a client leaves the slot that it entered");
        self.vacant.push(slot);
    }

    /// The slot of a client that is connected.
    pub fn find(&self, id: u64) -> Option<Slot> {
        self.slots.get(&id).copied()
    }

    /// Clients that are connected and at home here, in the order in which they came.
    pub fn connected(&self) -> impl Iterator<Item = Slot> {
        self.slots.values().copied().filter(|slot| self.client_info(*slot).home.is_none())
    }

    /// The number of the client in a slot.
    pub fn id(&self, slot: Slot) -> u64 {
        self.entries[slot as usize].id
    }

    /// Facts about a client.
    pub fn client_info(&self, slot: Slot) -> &ClientInfo {
        &self.entries[slot as usize]
    }

    /// Facts about a client, to be changed. Its name is set by [`super::Clients::set_name`], which counts its bytes.
    #[inline]
    pub fn client_info_mut(&mut self, slot: Slot) -> &mut ClientInfo {
        &mut self.entries[slot as usize]
    }

    /// Sets the protocol of what is pushed to a client.
    pub fn set_version(&mut self, slot: Slot, version: Version) {
        self.entries[slot as usize].version = version;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_given_again_and_nothing_is_left_of_who_had_it() {
        let mut registry = Registry::default();
        let first = registry.enter(7, Peer::None, 1);
        let second = registry.enter(3, Peer::None, 2);
        registry.client_info_mut(first).db = 5;
        registry.set_version(first, Version::Resp3);
        assert_eq!(registry.connected().collect::<Vec<_>>(), [second, first], "by number");
        registry.leave(first);
        assert_eq!((registry.find(7), registry.find(3), registry.id(second)), (None, Some(second), 3));
        let third = registry.enter(9, Peer::None, 3);
        let client_info = registry.client_info(third);
        assert_eq!(
            (third, client_info.db, client_info.version, client_info.id),
            (first, 0, Version::Resp2, 9)
        );
    }

    #[test]
    fn a_guest_is_found_and_not_listed() {
        let mut registry = Registry::default();
        let slot = registry.enter(1, Peer::None, 0);
        registry.client_info_mut(slot).home = Some((1, 4));
        assert_eq!((registry.connected().count(), registry.find(1)), (0, Some(slot)));
    }
}
