//! Placement plan, made from a recording.

use tiermem_base::Heat;
use tiermem_model::placement::{self, Assumed, MadeFrom, Plan, PlannedRegion, Program};
use tiermem_trace::recording::{Recording, Region, RegionKind, Selection};

/// Input of a plan: the regions that were accessed, and their heat.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The regions.
    pub regions: Vec<PlannedRegion>,
    /// The heat of each, in the same order.
    pub heats: Vec<Heat>,
    /// The first and the last slice in which each was mapped, in the same order.
    pub lifetimes: Vec<(u32, u32)>,
    /// Start and end of each slice, in nanoseconds.
    pub slices: Vec<(u64, u64)>,
    /// Bytes of regions that were accessed and are smaller than a granule: libraries, stacks. They are left where the kernel puts
    /// them, in fast memory, which they take from the rest.
    pub small_bytes: u64,
}

impl Recorded {
    /// Takes the selected accesses of a recording in granules of `granule_bytes`.
    ///
    /// # Errors
    /// If there are none, or the granule is none that pages can be moved in.
    pub fn of(recording: &Recording, selection: &Selection, granule_bytes: u64) -> Result<Self, String> {
        if granule_bytes == 0 || !granule_bytes.is_multiple_of(4096) {
            return Err(format!("a granule of {granule_bytes} bytes cannot be moved: pages have 4096"));
        }
        let all: u64 = recording.head.regions.iter().map(|region| region.bytes.div_ceil(granule_bytes)).sum();
        if all.saturating_mul(recording.head.slices.len() as u64) > 1 << 30 {
            return Err(format!("{all} granules in each slice are too many; take a coarser granule"));
        }
        let (mut regions, mut heats, mut lifetimes, mut small_bytes) =
            (Vec::new(), Vec::new(), Vec::new(), 0);
        for found in recording.heat(selection, granule_bytes) {
            let region = &recording.head.regions[found.region];
            match region.kind {
                // What the kernel maps into every program is not the program's to place.
                RegionKind::Special => {}
                _ if region.bytes < granule_bytes => small_bytes += region.bytes,
                _ => {
                    regions.push(planned(region));
                    heats.push(found.heat);
                    lifetimes.push((region.first_slice, region.last_slice));
                }
            }
        }
        if heats.is_empty() {
            return Err(
                "the recording has no such accesses, or none in a region as large as a granule".to_owned()
            );
        }
        let slices = recording.head.slices.iter().map(|slice| (slice.start_ns, slice.end_ns)).collect();
        Ok(Recorded { regions, heats, lifetimes, slices, small_bytes })
    }

    /// The heats as a program takes them.
    pub fn heats(&self) -> Vec<&Heat> {
        self.heats.iter().collect()
    }

    /// The program as a placement sees it, of [`Self::heats`].
    ///
    /// # Errors
    /// If there are more granules than a plan can name.
    pub fn program<'a>(&'a self, heats: &'a [&'a Heat]) -> Result<Program<'a>, String> {
        Ok(Program::new(heats, &self.slices)?.with_lifetimes(&self.lifetimes))
    }

    /// Makes the plan for this much fast memory.
    ///
    /// # Errors
    /// If there is nothing to plan.
    pub fn plan(
        &self,
        recording: &Recording,
        file: &str,
        fast_bytes: u64,
        assumed: &Assumed,
    ) -> Result<Plan, String> {
        let left = fast_bytes.saturating_sub(self.small_bytes);
        let heats = self.heats();
        let plan = placement::analyse(self.regions.clone(), &self.program(&heats)?, left, assumed)?;
        let executable = &recording.head.executable;
        let made_from = MadeFrom {
            recording: file.to_owned(),
            command: recording.head.command.clone(),
            executable: executable.path.clone(),
            build_id: executable.build_id.clone(),
        };
        Ok(Plan { made_from, small_bytes: self.small_bytes, ..plan })
    }
}

/// A region as a plan knows it.
pub fn planned(region: &Region) -> PlannedRegion {
    let kind = match region.kind {
        RegionKind::File => "file",
        RegionKind::Anonymous => "anonymous",
        RegionKind::Heap => "heap",
        RegionKind::Stack => "stack",
        RegionKind::Special => "special",
    };
    PlannedRegion {
        name: region.name.clone(),
        kind: kind.to_owned(),
        path: region.path.clone(),
        build_id: region.build_id.clone(),
        file_offset: region.file_offset,
        permissions: region.permissions.clone(),
        bytes: region.bytes,
    }
}
