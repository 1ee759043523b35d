//! Persistent tiers: the order in which their bytes are written.
//! [`Kept`] defines the meaning of a region's seals and table.

use std::io;

use tiermem_policy::ladder::Loc;

use super::Tiers;
use super::device::Device;
use super::persistent_region::{Kept, SEAL, SEAL_AT, TAIL_BYTES, in_order};
use super::region::Region;
use super::region_format::Form;

/// Bytes of an item's header: copied by themselves, for the seal is among them.
const HEAD_BYTES: usize = SEAL_AT + 1;

impl Tiers {
    /// A bit for each persistent tier.
    #[inline]
    pub fn keeping(&self) -> u8 {
        self.keeping
    }

    /// Whether items of this tier outlive the process.
    #[inline]
    pub fn keeps(&self, tier: u8) -> bool {
        // None does where it matters most: that is asked first.
        self.keeping != 0 && self.keeping >> tier & 1 != 0
    }

    fn kept(&mut self, tier: u8) -> Option<(&mut Kept, &mut [u8])> {
        match &mut self.tiers[usize::from(tier)].device {
            Device::Region(device) => Some(device.kept()),
            _ => None,
        }
    }

    fn each_kept(&mut self) -> impl Iterator<Item = (&mut Kept, &mut [u8])> {
        self.tiers.iter_mut().filter_map(|tier| match &mut tier.device {
            Device::Region(device) => Some(device.kept()),
            _ => None,
        })
    }

    /// Prepares a place of `place_bytes` for an item: until it is sealed, a restart does not take it for one.
    pub fn prepare(&mut self, loc: Loc, place_bytes: u64) {
        if let Some((kept, region)) = self.kept(loc.tier) {
            kept.prepare(region, loc.byte_offset() as usize, place_bytes);
            self.unseal(loc);
        }
    }

    /// Seals the item at `loc`, of `item_len` bytes, with its expiry in Unix milliseconds.
    pub fn seal(&mut self, loc: Loc, item_len: usize, expires_at_ms: Option<u64>) {
        let bytes = self.bytes_mut(loc, item_len + TAIL_BYTES);
        bytes[item_len..].copy_from_slice(&expires_at_ms.unwrap_or(0).to_le_bytes());
        in_order();
        bytes[SEAL_AT] |= SEAL;
        in_order();
    }

    /// Breaks the seal at `loc`: the item there is about to change or to be removed.
    pub fn unseal(&mut self, loc: Loc) {
        in_order();
        self.bytes_mut(loc, HEAD_BYTES)[SEAL_AT] &= !SEAL;
        in_order();
    }

    /// Copies an item to a place in a tier that keeps its items, without its seal, and charges both ranges.
    pub fn copy_unsealed(&mut self, from: Loc, to: Loc, len: usize, place_bytes: u64) {
        self.prepare(to, place_bytes);
        self.charge_read(from.tier, len);
        self.charge_write(to.tier, len);
        let (source, target) = self.bytes_from_to(from, len, to, len);
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(&source[..HEAD_BYTES]);
        head[SEAL_AT] &= !SEAL;
        target[..HEAD_BYTES].copy_from_slice(&head);
        target[HEAD_BYTES..].copy_from_slice(&source[HEAD_BYTES..]);
    }

    /// Notes in all regions that a run of this name is about to take them up.
    pub fn announce_session(&mut self, session: [u8; 16]) {
        self.each_kept().for_each(|(kept, region)| kept.announce(region, session));
    }

    /// The runs that may have left what the regions hold.
    pub fn sessions(&mut self) -> Vec<[u8; 16]> {
        self.each_kept().filter_map(|(kept, _)| kept.sessions()).flatten().collect()
    }

    /// Whether the contents of all regions were left by the same run, and by the run
    /// `other` where that is given. Otherwise another run may have continued without
    /// one of them, and its contents are of another time: then all are emptied.
    pub fn agree(&mut self, other: Option<[u8; 16]>) -> bool {
        let sessions: Vec<_> = self.each_kept().filter_map(|(kept, _)| kept.sessions()).collect();
        let candidates = other.map_or_else(|| sessions.first().copied(), |other| Some([other; 2]));
        let common = |session: &[u8; 16]| sessions.iter().all(|has| has.contains(session));
        let agree = candidates.is_none_or(|candidates| candidates.iter().any(common));
        if !agree {
            self.forget_kept();
        }
        agree
    }

    /// Begins the run of this name in all regions.
    pub fn begin_session(&mut self, session: [u8; 16]) {
        self.each_kept().for_each(|(kept, region)| kept.begin(region, session));
    }

    /// Empties all regions.
    pub fn forget_kept(&mut self) {
        self.each_kept().for_each(|(kept, region)| kept.begin_empty(region));
    }

    /// Pages of a tier that keeps its items, 0 of another.
    pub fn kept_pages(&mut self, tier: u8) -> u32 {
        self.kept(tier).map_or(0, |(kept, _)| kept.pages())
    }

    /// How a page is divided, as left by a run before this one.
    pub fn kept_form(&mut self, tier: u8, page: u32) -> Option<Form> {
        let (kept, region) = self.kept(tier)?;
        kept.find(region, page)
    }

    /// Whether there is a sealed item at `loc`.
    pub fn is_sealed(&self, loc: Loc) -> bool {
        self.bytes(loc, SEAL_AT, 1)[0] & SEAL != 0
    }

    /// When the item at `loc`, of `item_len` bytes, expires.
    pub fn kept_expiry(&self, loc: Loc, item_len: usize) -> Option<u64> {
        let tail = self.bytes(loc, item_len, TAIL_BYTES);
        let at_ms = u64::from_le_bytes(core::array::from_fn(|at| tail[at]));
        (at_ms != 0).then_some(at_ms)
    }

    /// Writes everything back that outlives the process. Waits for the device.
    ///
    /// # Errors
    /// When something cannot be written.
    pub fn write_back_kept(&mut self) -> io::Result<()> {
        self.regions().map(Region::write_back).fold(Ok(()), Result::and)
    }

    /// The same, and notes that it was written.
    ///
    /// # Errors
    /// When something cannot be written: then it outlives the process, but not the machine.
    pub fn close_kept(&mut self) -> io::Result<()> {
        // One that fails keeps no other from being closed.
        self.regions().map(Region::close).fold(Ok(()), Result::and)
    }

    fn regions(&mut self) -> impl Iterator<Item = &mut Region> {
        self.tiers.iter_mut().filter_map(|tier| match &mut tier.device {
            Device::Region(device) => Some(&mut **device),
            _ => None,
        })
    }
}
