//! Persistent tiers of which a part is lost while the store runs: finding it, and having it again.
//!
//! Every read of such a tier may have been of zeros that take the place of what was lost. So whoever reads asks [`Tiers::have_lost`]
//! behind it, before what was read becomes another item, a part of a reply, or anything else that stays.

use std::ops::Range;

use tiermem_policy::ladder::Loc;

use super::Tiers;
use super::device::Device;
use super::region::{Region, Unmended};

/// What tiers know of their losses.
pub trait Losing {
    /// Whether something was lost since [`Self::take_lost`].
    fn have_lost(&self) -> bool;
    /// As its name says.
    fn regions_have_lost(&self) -> bool;
    /// Whether all of the `len` bytes at a place of a persistent tier can be read; every place of another tier can.
    fn are_there(&self, loc: Loc, len: usize) -> bool;
    /// Looks for losses that no access shows. Once a second or so.
    fn look_for_losses(&mut self);
    /// The pages of each tier of which something was lost since the last call, or was and could not be had again.
    fn take_lost(&mut self) -> Vec<(u8, Vec<Range<u32>>)>;
    /// Has the files hold again what was lost, once nothing lies there any more. Tells of each tier that had lost something whether it has
    /// all of it again.
    fn mend(&mut self) -> Vec<(u8, Result<(), Unmended>)>;
    /// As its name says.
    fn each_region(&mut self) -> impl Iterator<Item = (u8, &mut Region)>;
}

impl Losing for Tiers {
    #[inline]
    fn have_lost(&self) -> bool {
        // No tier is persistent where it matters most: that is asked first.
        self.keeping != 0 && self.regions_have_lost()
    }

    fn regions_have_lost(&self) -> bool {
        self.tiers.iter().any(|tier| matches!(&tier.device, Device::Region(region) if region.has_lost()))
    }

    fn are_there(&self, loc: Loc, len: usize) -> bool {
        let Device::Region(region) = &self.tiers[usize::from(loc.tier)].device else { return true };
        region.touch(loc.byte_offset() as usize, len);
        !region.has_lost()
    }

    fn look_for_losses(&mut self) {
        self.each_region().for_each(|(_, region)| region.look());
    }

    fn take_lost(&mut self) -> Vec<(u8, Vec<Range<u32>>)> {
        self.each_region().filter_map(|(tier, region)| Some((tier, region.take_lost()?))).collect()
    }

    fn mend(&mut self) -> Vec<(u8, Result<(), Unmended>)> {
        self.each_region().filter_map(|(tier, region)| Some((tier, region.mend()?))).collect()
    }

    fn each_region(&mut self) -> impl Iterator<Item = (u8, &mut Region)> {
        self.tiers.iter_mut().zip(0..).filter_map(|(tier, number)| match &mut tier.device {
            Device::Region(region) => Some((number, &mut **region)),
            _ => None,
        })
    }
}
