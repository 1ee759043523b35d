//! Recording from a memory trace without regions: neighbouring addresses become a region.

use std::collections::BTreeMap;

use tiermem_base::{Access, Op};

use super::{Head, Recording, Region, RegionKind, Sample, Slice, Source, Unit};

/// Bytes without an access that end a region.
pub const GAP_BYTES: u64 = 64 << 20;
/// Slices that a recording may have; more are a mistake in their length.
const SLICES_MAX: u64 = 1 << 20;
/// Regions that a recording may have; more than these are no regions.
const REGIONS_MAX: usize = 1 << 16;

/// Why a trace makes no recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FromTraceError {
    /// It has no loads and stores.
    #[error("there are no loads and stores in it: it is not a memory trace")]
    NoMemory,
    /// It lasts too long for its slices.
    #[error("it lasts {seconds} s, which makes more than {SLICES_MAX} slices")]
    TooManySlices {
        /// How long it lasts.
        seconds: u64,
    },
    /// Its addresses lie all over the place.
    #[error("its addresses lie in more than {REGIONS_MAX} places that are {} MiB apart", GAP_BYTES >> 20)]
    TooManyRegions,
}

/// Gathers a recording from the loads and stores of a trace.
#[derive(Debug)]
pub struct FromTrace {
    slice_ns: u64,
    granule_bytes: u64,
    start_ns: Option<u64>,
    end_ns: u64,
    /// Accesses by slice, granule of the address space, and operation.
    counts: BTreeMap<(u64, u64, Op), u64>,
    /// The latest entry: neighbours in a trace are mostly neighbours in memory.
    latest: Option<((u64, u64, Op), u64)>,
    others: u64,
}

impl FromTrace {
    /// Slices of `slice_ns` and granules of `granule_bytes`, both at least 1.
    pub fn new(slice_ns: u64, granule_bytes: u64) -> Self {
        FromTrace {
            slice_ns: slice_ns.max(1),
            granule_bytes: granule_bytes.max(1),
            start_ns: None,
            end_ns: 0,
            counts: BTreeMap::new(),
            latest: None,
            others: 0,
        }
    }

    /// Takes one access; what is no access to memory is counted and left out.
    pub fn observe(&mut self, access: &Access) {
        if !matches!(access.op, Op::Load | Op::Store | Op::Unknown) {
            self.others += 1;
            return;
        }
        let start_ns = *self.start_ns.get_or_insert(access.time_ns);
        let since_ns = access.time_ns.saturating_sub(start_ns);
        self.end_ns = self.end_ns.max(since_ns);
        let place = (since_ns / self.slice_ns, access.key / self.granule_bytes, access.op);
        match &mut self.latest {
            Some((latest, count)) if *latest == place => *count += 1,
            latest => {
                if let Some((place, count)) = latest.replace((place, 1)) {
                    *self.counts.entry(place).or_default() += count;
                }
            }
        }
    }

    /// Accesses that were left out.
    pub fn others(&self) -> u64 {
        self.others
    }

    /// The recording.
    ///
    /// # Errors
    /// If there was no load and no store, or if slices or regions are too many.
    pub fn finish(mut self) -> Result<Recording, FromTraceError> {
        if let Some((place, count)) = self.latest.take() {
            *self.counts.entry(place).or_default() += count;
        }
        if self.counts.is_empty() {
            return Err(FromTraceError::NoMemory);
        }
        let slices = self.end_ns / self.slice_ns + 1;
        if slices > SLICES_MAX {
            return Err(FromTraceError::TooManySlices { seconds: self.end_ns / 1_000_000_000 });
        }
        let mut granules: Vec<u64> = self.counts.keys().map(|(_, granule, _)| *granule).collect();
        granules.sort_unstable();
        granules.dedup();
        let size = self.granule_bytes;
        let mut regions: Vec<Region> = Vec::new();
        for start in granules.iter().map(|granule| granule * size) {
            let end = start.saturating_add(size);
            match regions.last_mut() {
                Some(region) if start - (region.start + region.bytes) <= GAP_BYTES => {
                    region.bytes = end - region.start;
                }
                _ => regions.push(Region {
                    name: format!("{start:#x}"),
                    kind: RegionKind::Anonymous,
                    start,
                    bytes: end - start,
                    last_slice: (slices - 1) as u32,
                    ..Region::default()
                }),
            }
            if regions.len() > REGIONS_MAX {
                return Err(FromTraceError::TooManyRegions);
            }
        }
        let bytes = u32::try_from(size).unwrap_or(u32::MAX);
        let samples = self.counts.iter().map(|(&(slice, granule, op), &count)| {
            let address = granule * size;
            let region = regions.partition_point(|region| region.start <= address) - 1;
            Sample {
                slice: slice as u32,
                region: region as u32,
                offset: address - regions[region].start,
                bytes,
                resident: bytes,
                weight: count as f32,
                op,
                ..Sample::default()
            }
        });
        let samples = samples.collect();
        let slice = |at: u64| Slice { start_ns: at * self.slice_ns, end_ns: (at + 1) * self.slice_ns };
        let head = Head {
            version: Head::VERSION,
            granule_bytes: size,
            slices: (0..slices).map(slice).collect(),
            sources: vec![Source {
                name: "trace".to_owned(),
                unit: Unit::Accesses,
                tells_stores: self.counts.keys().all(|(.., op)| *op != Op::Unknown),
                tells_level: false,
            }],
            regions,
            ..Head::default()
        };
        Ok(Recording { head, samples })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_lie_together_are_a_region() {
        let mut gatherer = FromTrace::new(1_000, 4096);
        let far = 0x7fff_0000_0000;
        for (time_ns, key, op) in [
            (50, far, Op::Store),
            (60, far + 8, Op::Store),
            (1_049, 0x1000, Op::Load),
            (1_050, 0x9000, Op::Load),
            (1_051, 0x9000, Op::Get),
        ] {
            gatherer.observe(&Access { time_ns, key, op, ..Access::default() });
        }
        assert_eq!(gatherer.others(), 1);
        let recording = gatherer.finish().unwrap();
        let regions: Vec<_> = recording.head.regions.iter().map(|it| (it.start, it.bytes)).collect();
        assert_eq!(regions, [(0x1000, 0x9000), (far, 4096)]);
        assert_eq!(recording.head.slices.len(), 2);
        let places: Vec<_> =
            recording.samples.iter().map(|it| (it.slice, it.region, it.offset, it.weight)).collect();
        assert_eq!(places, [(0, 0, 0, 1.0), (0, 1, 0, 2.0), (1, 0, 0x8000, 1.0)]);
    }

    #[test]
    fn what_makes_no_recording_is_said() {
        assert_eq!(FromTrace::new(1, 1).finish(), Err(FromTraceError::NoMemory));
        let mut long = FromTrace::new(1, 4096);
        for time_ns in [0, 1 << 40] {
            long.observe(&Access { time_ns, key: u64::MAX, op: Op::Load, ..Access::default() });
        }
        assert!(matches!(long.finish(), Err(FromTraceError::TooManySlices { .. })));
        let mut wide = FromTrace::new(1, 4096);
        (0..1 << 17).for_each(|at: u64| {
            wide.observe(&Access { key: at << 30, op: Op::Load, ..Access::default() });
        });
        assert_eq!(wide.finish(), Err(FromTraceError::TooManyRegions));
    }
}
