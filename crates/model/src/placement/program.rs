//! A recorded program as placement sees it: granules of all its regions, numbered consecutively, and the accesses of each in each
//! slice.

use std::ops::Range;

use tiermem_base::Heat;

/// Granules that were mapped together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The granules.
    pub granules: Range<u32>,
    /// The slice in which they came.
    pub first_slice: u32,
    /// The last slice in which they were there.
    pub last_slice: u32,
}

/// A recorded program.
#[derive(Clone, Debug)]
pub struct Program<'a> {
    heats: &'a [&'a Heat],
    slices: &'a [(u64, u64)],
    granule_bytes: u64,
    firsts: Vec<u32>,
    granules: u32,
    /// The mappings with their times, in the order of granules.
    mapped: Vec<Mapped>,
}

impl<'a> Program<'a> {
    /// A program from the heat of its regions, all of one granule, and the slices' starts and ends in nanoseconds.
    ///
    /// # Errors
    /// If there is no region, if granules or numbers of slices differ, or if there are more granules than a plan can name.
    pub fn new(heats: &'a [&'a Heat], slices: &'a [(u64, u64)]) -> Result<Self, String> {
        let Some(first) = heats.first() else { return Err("nothing was accessed".to_owned()) };
        let granule_bytes = first.granule_bytes();
        let mut firsts = Vec::with_capacity(heats.len());
        let mut granules = 0_u32;
        for heat in heats {
            if heat.granule_bytes() != granule_bytes || heat.slices() != slices.len() {
                return Err("the regions' granules or slices are not of one kind".to_owned());
            }
            firsts.push(granules);
            let count = u32::try_from(heat.granules()).ok();
            granules =
                count.and_then(|count| granules.checked_add(count)).ok_or("there are too many granules")?;
        }
        let mut program = Program { heats, slices, granule_bytes, firsts, granules, mapped: Vec::new() };
        let whole = slices.len().saturating_sub(1) as u32;
        program.mapped = program.mapped_by_region(heats.iter().map(|_| (0, whole)));
        Ok(program)
    }

    /// This program with regions that are mapped from one slice to another, each.
    #[must_use]
    pub fn with_lifetimes(self, lifetimes: &[(u32, u32)]) -> Self {
        let mapped = self.mapped_by_region(lifetimes.iter().copied());
        self.with_mappings(mapped)
    }

    /// This program with mappings of its own: some come in parts, have holes, or come again.
    #[must_use]
    pub fn with_mappings(mut self, mut mapped: Vec<Mapped>) -> Self {
        mapped.sort_by_key(|it| (it.granules.start, it.first_slice));
        self.mapped = mapped;
        self
    }

    fn mapped_by_region(&self, lifetimes: impl Iterator<Item = (u32, u32)>) -> Vec<Mapped> {
        let ends = self.firsts.iter().skip(1).chain([&self.granules]);
        let regions = self.firsts.iter().zip(ends).zip(lifetimes);
        let mapped = regions.map(|((first, end), (first_slice, last_slice))| Mapped {
            granules: *first..*end,
            first_slice,
            last_slice,
        });
        mapped.collect()
    }

    /// The mappings with their times, in the order of granules.
    pub fn mapped(&self) -> &[Mapped] {
        &self.mapped
    }

    /// Bytes of a granule.
    pub fn granule_bytes(&self) -> u64 {
        self.granule_bytes
    }

    /// Granules of all regions.
    pub fn granules(&self) -> u32 {
        self.granules
    }

    /// Slices of time: start and end in nanoseconds.
    pub fn slices(&self) -> &[(u64, u64)] {
        self.slices
    }

    /// The heat of each region.
    pub fn heats(&self) -> &[&Heat] {
        self.heats
    }

    /// The number of a region's first granule.
    pub fn first_of(&self, region: usize) -> u32 {
        self.firsts[region]
    }

    /// The region of a granule, and the granule's number within it.
    pub fn region_of(&self, granule: u32) -> (usize, u32) {
        let region = self.firsts.partition_point(|first| *first <= granule).saturating_sub(1);
        (region, granule - self.firsts.get(region).copied().unwrap_or(0))
    }

    /// Puts the granules that were accessed in a slice into `accesses`, in the order of their numbers.
    pub fn accesses(&self, slice: usize, accesses: &mut Vec<(u32, f32)>) {
        accesses.clear();
        for (heat, first) in self.heats.iter().zip(&self.firsts) {
            let accessed = (*first..).zip(heat.row(slice)).filter(|(_, count)| **count > 0.0);
            accesses.extend(accessed.map(|(granule, count)| (granule, *count)));
        }
    }

    /// Accesses of each granule over all slices.
    pub fn totals(&self) -> Vec<f64> {
        self.heats.iter().flat_map(|heat| heat.totals()).collect()
    }

    /// The granules with the most accesses over all slices, at most `most`, the hottest first.
    pub fn hottest(&self, most: usize) -> Vec<u32> {
        let mut order = by_heat(&self.totals());
        order.truncate(most);
        order
    }
}

/// Granules by accesses, most first; those without any are left out.
pub(super) fn by_heat(totals: &[f64]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..totals.len() as u32).filter(|at| totals[*at as usize] > 0.0).collect();
    order.sort_by(|a, b| totals[*b as usize].total_cmp(&totals[*a as usize]).then(a.cmp(b)));
    order
}
