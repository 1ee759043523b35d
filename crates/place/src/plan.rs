//! Placement plan, made from a recording.

use tiermem_base::Heat;
use tiermem_model::placement::{self, Assumed, MadeFrom, Plan, PlannedRegion, Program};
use tiermem_trace::recording::{Recording, Region, RegionKind, RegionRange, Selection, Touched, touched};

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
    /// Touched bytes of regions that are smaller than a granule: libraries, stacks. They are left where the kernel puts
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
        if let Some(share) = recording.unknown_heat(selection, None, granule_bytes) {
            let percent = share * 100.0;
            return Err(format!(
                "it is not known which memory is hot: {percent:.0}% of the accesses are of mappings that were looked at as wholes. Record the \
                 program from its start, or a running one with --pid PID --inject or --source damon (the notes of the recording say what \
                 was in the way)"
            ));
        }
        let all: u64 = recording.head.regions.iter().map(|region| region.bytes.div_ceil(granule_bytes)).sum();
        if all.saturating_mul(recording.head.slices.len() as u64) > 1 << 30 {
            return Err(format!("{all} granules in each slice are too many; take a coarser granule"));
        }
        let (mut regions, mut heats, mut lifetimes, mut small) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for found in recording.heat(selection, granule_bytes) {
            let region = &recording.head.regions[found.region];
            match region.kind {
                // What the kernel maps into every program is not the program's to place.
                RegionKind::Special => {}
                _ if region.bytes < granule_bytes => {
                    small.push(RegionRange::whole(recording, found.region, Some(granule_bytes)))
                }
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
        let all: Vec<usize> = (0..recording.head.slices.len()).collect();
        let small_bytes = touched(recording, selection, &small, &all).iter().map(Touched::bytes).sum();
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
        Ok(self.signed(plan, recording, file))
    }

    /// A plan, with what it was made from.
    pub fn signed(&self, plan: Plan, recording: &Recording, file: &str) -> Plan {
        let executable = &recording.head.executable;
        let made_from = MadeFrom {
            recording: file.to_owned(),
            command: recording.head.command.clone(),
            executable: executable.path.clone(),
            build_id: executable.build_id.clone(),
        };
        Plan { made_from, small_bytes: self.small_bytes, ..plan }
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

#[cfg(test)]
mod tests {
    use super::*;

    use tiermem_trace::recording::{Head, Sample, Slice, Source};

    #[test]
    fn small_regions_take_the_memory_that_they_touched() {
        let sample = |region, bytes, resident| Sample { region, bytes, resident, ..Sample::default() };
        let region =
            |name: &str, start, bytes| Region { name: name.to_owned(), start, bytes, ..Region::default() };
        let head = Head {
            granule_bytes: 1 << 20,
            slices: vec![Slice { start_ns: 0, end_ns: 1 }],
            regions: vec![region("large", 0, 4 << 20), region("small", 8 << 20, 64 << 10)],
            ..Head::default()
        };
        let samples = vec![sample(0, 1 << 20, 4096), sample(1, 64 << 10, 8192)];
        let recording = Recording { head, samples };
        let recorded = Recorded::of(&recording, &Selection::default(), 1 << 20).unwrap();
        assert_eq!((recorded.regions.len(), recorded.small_bytes), (1, 8192));
        // Where heat is not known there is nothing to plan by.
        let mut whole = recording;
        whole.samples[0].bytes = 4 << 20;
        whole.head.sources = vec![Source { name: "refs".to_owned(), ..Source::default() }];
        let refused = Recorded::of(&whole, &Selection::default(), 1 << 20).unwrap_err();
        assert!(refused.contains("50% of the accesses") && refused.contains("--inject"), "{refused}");
    }
}
