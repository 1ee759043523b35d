//! Region match: finds a plan's region in the running program.

use std::ops::Range;

use tiermem_model::placement::{Misfit, Plan, PlannedRegion, begins_behind};

use crate::capture::mappings::regions::Regions;

/// Where a region of the plan is in this run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attached {
    /// Its number among the program's regions.
    pub region: u32,
    /// Where the plan's offsets count from, which may lie before or behind its start.
    pub origin: u64,
    /// Its mapped stretches, in the order of addresses: other
    /// mappings may fill holes that the program made in its middle.
    pub mapped: Vec<(u64, u64)>,
}

impl Attached {
    /// The existing parts of a stretch between two offsets of the plan's: start and end of each.
    pub fn parts(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        let (from, to) = (self.origin.saturating_add(from), self.origin.saturating_add(to));
        let within = move |&(start, end): &(u64, u64)| (start.max(from), end.min(to));
        self.mapped.iter().map(within).filter(|(start, end)| start < end)
    }

    /// Whether offsets count from the same place of the same region.
    fn is_same(&self, other: &Attached) -> bool {
        self.region == other.region && self.origin == other.origin
    }

    /// Of `count` granules, those with a mapping between two addresses.
    pub fn granules(&self, (from, to): (u64, u64), granule_bytes: u64, count: u32) -> Range<u32> {
        let within = |granule: u64| granule.min(u64::from(count)) as u32;
        let first = within(from.saturating_sub(self.origin) / granule_bytes);
        first..within(to.saturating_sub(self.origin).div_ceil(granule_bytes)).max(first)
    }

    /// Of `count` granules, those that were mapped and are not now.
    pub fn lost_to(&self, now: Option<&Attached>, granule_bytes: u64, count: u32) -> Vec<u32> {
        let now = now.filter(|now| self.is_same(now));
        let of = |it: &Attached, granule: u32| {
            let offset = u64::from(granule) * granule_bytes;
            it.parts(offset, offset.saturating_add(granule_bytes)).next().is_some()
        };
        let mut lost: Vec<u32> = (self.mapped.iter())
            .flat_map(|stretch| self.granules(*stretch, granule_bytes, count))
            .filter(|granule| !now.is_some_and(|now| of(now, *granule)))
            .collect();
        lost.dedup();
        lost
    }

    /// The parts of it that are mapped and were not before.
    pub fn added_to(&self, before: Option<&Attached>) -> Vec<(u64, u64)> {
        let same = before.filter(|before| self.is_same(before));
        let known = same.map_or(&[][..], |before| &before.mapped);
        let mut added = Vec::new();
        for &(mut start, end) in &self.mapped {
            for &(from, to) in known {
                if from < end && to > start {
                    added.extend((start < from).then_some((start, from)));
                    start = to;
                }
            }
            added.extend((start < end).then_some((start, end)));
        }
        added
    }
}

/// A region that a program has mapped now.
#[derive(Clone, Debug)]
pub struct MappedRegion {
    /// Its number, the same as long as it is there.
    pub number: u32,
    /// Its first address.
    pub start: u64,
    /// The region as the plan describes it.
    pub described: PlannedRegion,
    /// Its mapped stretches, start and end of each, in the order of addresses.
    pub stretches: Vec<(u64, u64)>,
}

/// The regions that a program has mapped now, of its mappings.
pub(super) fn mapped(regions: &mut Regions) -> Vec<MappedRegion> {
    let planned = regions.planned();
    let region = |(number, start, described)| {
        let stretches = regions.mapped(number);
        MappedRegion { number, start, described, stretches }
    };
    planned.into_iter().map(region).collect()
}

/// What has changed of a plan's region.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    /// The region, by its number in the plan.
    pub planned: usize,
    /// Where it was before, if it was there.
    pub before: Option<Attached>,
    /// The stretches that are mapped now and were not before.
    pub added: Vec<(u64, u64)>,
}

/// Finds the plan's regions among the present mappings. `attached` has one entry for each of the plan's regions, which is where it is
/// from now on. Returns what has changed, in the order of the plan's regions.
///
/// # Errors
/// If a region is not what the plan was made for. Then nothing changes.
pub(super) fn attach(
    plan: &Plan,
    now: &[MappedRegion],
    attached: &mut [Option<Attached>],
) -> Result<Vec<Changed>, Misfit> {
    let described: Vec<PlannedRegion> = now.iter().map(|it| it.described.clone()).collect();
    let places = plan.find(&described)?;
    let changed = places.into_iter().zip(attached).enumerate().map(|(planned, (place, attached))| {
        let found = place.map(|at| {
            let MappedRegion { number, start, described, stretches } = &now[at];
            // Offsets of the plan count from where the region began then.
            let behind = begins_behind(&plan.regions[planned], described);
            let origin = start.saturating_add_signed(behind.saturating_neg());
            Attached { region: *number, origin, mapped: stretches.clone() }
        });
        let before = std::mem::replace(attached, found);
        let added = attached.as_ref().map(|found| found.added_to(before.as_ref())).unwrap_or_default();
        Changed { planned, before, added }
    });
    Ok(changed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attached(origin: u64, mapped: &[(u64, u64)]) -> Attached {
        Attached { region: 1, origin, mapped: mapped.to_vec() }
    }

    #[test]
    fn what_is_given_back_in_the_middle_is_nobodys_and_what_comes_is_told() {
        let whole = attached(100, &[(100, 200)]);
        let holed = attached(100, &[(100, 130), (150, 200)]);
        assert_eq!(holed.parts(20, 60).collect::<Vec<_>>(), [(120, 130), (150, 160)]);
        assert_eq!(holed.parts(30, 50).count(), 0);
        assert_eq!(whole.added_to(None), [(100, 200)]);
        assert_eq!(holed.added_to(Some(&whole)), []);
        assert_eq!(whole.added_to(Some(&holed)), [(130, 150)]);
        let grown = attached(100, &[(90, 140), (150, 220), (300, 310)]);
        assert_eq!(grown.added_to(Some(&holed)), [(90, 100), (130, 140), (200, 220), (300, 310)]);
        // Offsets count from elsewhere: all of it is another thing.
        assert_eq!(attached(110, &[(100, 200)]).added_to(Some(&whole)), [(100, 200)]);
    }

    #[test]
    fn granules_of_which_nothing_is_left_are_lost() {
        let whole = attached(100, &[(100, 200)]);
        let holed = attached(100, &[(100, 125), (150, 200)]);
        assert_eq!(whole.lost_to(Some(&holed), 10, 10), [3, 4]);
        assert!(holed.lost_to(Some(&whole), 10, 10).is_empty());
        assert_eq!(whole.lost_to(None, 10, 5), [0, 1, 2, 3, 4]);
        assert_eq!(whole.lost_to(Some(&attached(90, &[(100, 200)])), 50, 10), [0, 1]);
        // What lies before the origin is not the plan's.
        assert_eq!(attached(100, &[(90, 112)]).granules((90, 112), 10, 10), 0..2);
        assert_eq!(holed.granules((150, 200), 10, 7), 5..7);
    }
}
