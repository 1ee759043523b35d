//! Pins: which values replies have pinned, where their bytes are, and how much each holder has of each tier.

use std::collections::BTreeMap;

use tiermem_policy::ladder::Loc;

use super::memory::Memory;

/// A value that stays as it is until it is given free, even if its key is changed or removed.
#[derive(Debug)]
#[must_use = "a pin that is not unpinned keeps its memory for ever"]
pub struct Pin {
    pub(super) number: u64,
    pub(super) len: usize,
}

impl Pin {
    /// Bytes of the value.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the value is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Who pins a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A client, by its slot, and the tenant that is charged once only this reply has the value; `None`: the value's tenant.
    Client(u32, Option<u16>),
    /// The store itself, for a moment. It is never robbed of a pin.
    Store,
}

/// Where a pinned value is.
#[derive(Debug)]
pub(super) enum Bytes {
    /// In its place, whose bytes count.
    InPlace { loc: Loc, offset: usize, place_bytes: u64 },
    /// Others needed the place.
    Copied(Box<[u8]>),
    /// Others needed the place, and there was no memory for a copy.
    Lost,
}

#[derive(Debug)]
pub(super) struct Held {
    pub holder: Holder,
    pub len: usize,
    pub bytes: Bytes,
}

/// The pinned values.
#[derive(Debug)]
pub(super) struct Pins {
    pub held: BTreeMap<u64, Held>,
    /// Those in place, by place.
    pub by_place: BTreeMap<Loc, Vec<u64>>,
    /// Bytes of places that a holder has in a tier.
    pub by_holder: BTreeMap<(Option<u32>, u8), u64>,
    /// Bytes of places, by tier.
    pub tier_bytes: BTreeMap<u8, u64>,
    /// The part of a tier that may be pinned.
    pub share: f64,
    pub copied_bytes: usize,
    pub copied_bytes_max: usize,
    /// Clients that lost pins since this was last asked.
    pub robbed: Vec<u32>,
    pub next: u64,
}

impl Pins {
    pub fn new(share: f64) -> Self {
        Pins {
            held: BTreeMap::new(),
            by_place: BTreeMap::new(),
            by_holder: BTreeMap::new(),
            tier_bytes: BTreeMap::new(),
            share,
            copied_bytes: 0,
            copied_bytes_max: usize::MAX,
            robbed: Vec::new(),
            next: 0,
        }
    }

    /// The bytes of a pinned value. `None`: they were lost, and its client must be disconnected.
    pub fn bytes_of<'a>(&'a self, pin: &Pin, items: &'a Memory) -> Option<&'a [u8]> {
        match &self.held.get(&pin.number)?.bytes {
            Bytes::InPlace { loc, offset, .. } => Some(items.tiers.bytes(*loc, *offset, pin.len)),
            Bytes::Copied(bytes) => Some(bytes),
            Bytes::Lost => None,
        }
    }

    /// Bytes of places pinned now.
    pub fn bytes(&self) -> u64 {
        self.tier_bytes.values().sum()
    }

    /// Bytes that were copied out of their places.
    pub fn copied_bytes(&self) -> usize {
        self.copied_bytes
    }

    /// Sets how many bytes may be copied out of their places.
    pub fn set_copied_bytes_max(&mut self, bytes: usize) {
        self.copied_bytes_max = bytes;
    }

    /// Clients that lost pins since this was last called: they cannot be sent the rest of their replies.
    #[inline]
    pub fn take_robbed(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.robbed)
    }

    /// Takes a value out of its place: to a copy if there may be one, else for good. Whether it could be.
    pub fn take_out(&mut self, number: u64, bytes: &[u8]) -> bool {
        let Some(held) = self.held.get_mut(&number) else { return false };
        let is_clients = matches!(held.holder, Holder::Client(..));
        let fits = self.copied_bytes + held.len <= self.copied_bytes_max;
        if is_clients && !fits {
            return false;
        }
        self.copied_bytes += if is_clients { held.len } else { 0 };
        held.bytes = Bytes::Copied(bytes.into());
        true
    }

    /// A value in place is no longer: whose place it was.
    pub fn uncount(&mut self, number: u64, holder: Holder, loc: Loc, place_bytes: u64) {
        if let Some(numbers) = self.by_place.get_mut(&loc) {
            numbers.retain(|&other| other != number);
            if numbers.is_empty() {
                self.by_place.remove(&loc);
            }
        }
        let key = (client_of(holder), loc.tier);
        if let Some(bytes) = self.by_holder.get_mut(&key) {
            *bytes -= place_bytes;
            if *bytes == 0 {
                self.by_holder.remove(&key);
            }
        }
        if let Some(bytes) = self.tier_bytes.get_mut(&loc.tier) {
            *bytes -= place_bytes;
        }
    }
}

pub(super) fn client_of(holder: Holder) -> Option<u32> {
    match holder {
        Holder::Client(slot, _) => Some(slot),
        Holder::Store => None,
    }
}
