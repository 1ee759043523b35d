//! How hot the memory is that each site first touched.

use std::collections::BTreeMap;

use tiermem_base::Op;

use crate::recording::{Recording, RegionRange, Sample, Selection, touched};

/// Of a mapping that was looked at as a whole it is known whose accesses they are if so much of it is one site's.
const ONE_SITE_MIN: f64 = 0.99;

/// The memory that one site first touched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SiteHeat {
    /// Index in [`Sites::frames`](super::Sites::frames); `None` of all memory whose site is not known.
    pub site: Option<u32>,
    /// The stack by which most of it was touched: an index in [`Sites::stacks`](super::Sites::stacks).
    pub stack: Option<u32>,
    /// Accesses to it, in the unit of the source.
    pub accesses: f64,
    /// Those that are known to be loads.
    pub loads: f64,
    /// Those that are known to be stores.
    pub stores: f64,
    /// Bytes of it that were touched, as [`crate::recording::Touched`] counts them.
    pub touched_bytes: f64,
    /// Touched bytes by stack.
    by_stack: BTreeMap<u32, f64>,
}

impl Recording {
    /// The heat of each site within some stretches, each of another region: the hottest first, and what is of no known site last.
    pub fn heat_of_sites(
        &self,
        selection: &Selection,
        stretches: &[RegionRange],
        slices: &[usize],
    ) -> Vec<SiteHeat> {
        let mut heats: BTreeMap<Option<u32>, SiteHeat> = BTreeMap::new();
        let Some(sites) = &self.head.sites else { return Vec::new() };
        let shares = self.site_shares();
        let mut add = |stack: Option<u32>, amount: &dyn Fn(&mut SiteHeat)| {
            let site = stack.and_then(|stack| sites.site_of(stack));
            amount(heats.entry(site).or_insert_with(|| SiteHeat { site, ..SiteHeat::default() }));
        };
        let mut stretch_of: Vec<Option<&RegionRange>> = vec![None; self.head.regions.len()];
        let mut is_asked = vec![false; self.head.slices.len()];
        for stretch in stretches {
            stretch_of[stretch.region] = Some(stretch);
        }
        slices.iter().for_each(|slice| is_asked[*slice] = true);
        let is_meant = |it: &&Sample| selection.takes(it) && is_asked[it.slice as usize];
        for sample in self.samples.iter().filter(is_meant) {
            let Some(stretch) = stretch_of[sample.region as usize] else { continue };
            let end = sample.offset.saturating_add(u64::from(sample.bytes));
            let from = sample.offset.max(stretch.offset);
            let to = end.min(stretch.offset.saturating_add(stretch.bytes));
            if from >= to {
                continue;
            }
            let weight = f64::from(sample.weight) * (to - from) as f64 / f64::from(sample.bytes.max(1));
            let mut parts = Vec::new();
            shares[sample.region as usize].of_range(from, to, |stack, share| parts.push((stack, share)));
            if self.is_whole(sample, stretch.granule_bytes) && !is_of_one_site(sites, &parts) {
                parts.clear();
            }
            each_part(&parts, |stack, share| {
                add(stack, &|heat| {
                    heat.accesses += weight * share;
                    heat.loads += if sample.op == Op::Load { weight * share } else { 0.0 };
                    heat.stores += if sample.op == Op::Store { weight * share } else { 0.0 };
                });
            });
        }
        for (stretch, touched) in stretches.iter().zip(touched(self, selection, stretches, slices)) {
            let first = stretch.granules().0;
            for (granule, bytes) in (first..).zip(&touched.granules).filter(|(_, bytes)| **bytes > 0) {
                let from = granule.saturating_mul(stretch.granule_bytes);
                // The last granule is as long as the region, or less.
                let end = self.head.regions[stretch.region].bytes;
                let to = from.saturating_add(stretch.granule_bytes).min(end);
                let mut parts = Vec::new();
                shares[stretch.region].of_range(from, to, |stack, share| parts.push((stack, share)));
                each_part(&parts, |stack, share| {
                    let bytes = *bytes as f64 * share;
                    add(stack, &|heat| {
                        heat.touched_bytes += bytes;
                        if let Some(stack) = stack {
                            *heat.by_stack.entry(stack).or_default() += bytes;
                        }
                    });
                });
            }
        }
        let mut heats: Vec<SiteHeat> = heats.into_values().collect();
        for heat in &mut heats {
            let most = heat.by_stack.iter().max_by(|a, b| a.1.total_cmp(b.1));
            heat.stack = most.map(|(stack, _)| *stack);
        }
        heats.sort_by(|a, b| {
            (a.site.is_none().cmp(&b.site.is_none()))
                .then(b.accesses.total_cmp(&a.accesses))
                .then(b.touched_bytes.total_cmp(&a.touched_bytes))
        });
        heats
    }
}

/// Calls `each` for the parts, and for what is left of 1.
fn each_part(parts: &[(u32, f64)], mut each: impl FnMut(Option<u32>, f64)) {
    /// What adding up shares may miss.
    const NOTHING: f64 = 1e-9;
    let left = 1.0 - parts.iter().map(|(_, share)| share).sum::<f64>();
    parts.iter().for_each(|(stack, share)| each(Some(*stack), *share));
    if left > NOTHING {
        each(None, left);
    }
}

fn is_of_one_site(sites: &super::Sites, parts: &[(u32, f64)]) -> bool {
    let mut sums: BTreeMap<Option<u32>, f64> = BTreeMap::new();
    for (stack, share) in parts {
        *sums.entry(sites.site_of(*stack)).or_default() += share;
    }
    sums.values().any(|sum| *sum >= ONE_SITE_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{
        Head, Level, Mode, NODE_UNKNOWN, Region, SiteFrame, SiteStack, SiteTouches, Sites, Slice, Source,
    };

    const MIB: u64 = 1 << 20;

    fn sample(slice: u32, place: u64, bytes: u64, weight: f32, op: Op) -> Sample {
        Sample {
            slice,
            region: 0,
            offset: place * MIB,
            bytes: (bytes * MIB) as u32,
            resident: (bytes * MIB) as u32,
            weight,
            latency_cycles: 0.0,
            source: 0,
            op,
            level: Level::Unknown,
            mode: Mode::Unknown,
            node: NODE_UNKNOWN,
        }
    }

    /// 64 MiB: `a` has touched 0 to 16, by two ways, `b` 16 to 32, and of the last 24 nothing is known.
    fn recording() -> Recording {
        let frame = |name: &str| SiteFrame { function: Some(name.to_owned()), ..SiteFrame::default() };
        let touches = |start: u64, stack| SiteTouches {
            process: 0,
            start: start * MIB,
            bytes: 8 * MIB,
            stack,
            touches: 1,
            slice: 0,
        };
        let stack = |frames: &[u32]| SiteStack { frames: frames.to_vec(), site: 0 };
        let sites = Sites {
            frames: vec![frame("a"), frame("b")],
            stacks: vec![stack(&[0]), stack(&[0, 1]), stack(&[1])],
            touches: vec![touches(0, 0), touches(8, 1), touches(16, 2), touches(24, 2)],
            ..Sites::default()
        };
        let head = Head {
            granule_bytes: 4 * MIB,
            slices: (0..2).map(|at| Slice { start_ns: at, end_ns: at }).collect(),
            sources: vec![Source { name: "refs".to_owned(), ..Source::default() }],
            regions: vec![Region { bytes: 64 * MIB, last_slice: 1, ..Region::default() }],
            sites: Some(sites),
            ..Head::default()
        };
        let samples = vec![
            sample(0, 0, 4, 1.0, Op::Load),
            sample(0, 8, 4, 2.0, Op::Store),
            sample(0, 12, 4, 2.0, Op::Unknown),
            sample(1, 16, 4, 16.0, Op::Load),
            sample(1, 60, 4, 32.0, Op::Load),
        ];
        Recording { head, samples }
    }

    fn heats(recording: &Recording, slices: &[usize]) -> Vec<(Option<u32>, Option<u32>, [f64; 4])> {
        let all = RegionRange::whole(recording, 0, None);
        let heats = recording.heat_of_sites(&Selection::default(), &[all], slices);
        let numbers =
            |it: &SiteHeat| [it.accesses, it.loads, it.stores, (it.touched_bytes / MIB as f64).round()];
        heats.iter().map(|it| (it.site, it.stack, numbers(it))).collect()
    }

    #[test]
    fn accesses_and_touched_bytes_are_told_by_site_and_the_unknown_comes_last() {
        assert_eq!(
            heats(&recording(), &[0, 1]),
            [
                (Some(1), Some(2), [16.0, 16.0, 0.0, 4.0]),
                (Some(0), Some(1), [5.0, 1.0, 2.0, 12.0]),
                (None, None, [32.0, 32.0, 0.0, 4.0]),
            ]
        );
        assert_eq!(heats(&recording(), &[0]), [(Some(0), Some(1), [5.0, 1.0, 2.0, 12.0])]);
        // A part of a region.
        let part = RegionRange { region: 0, offset: 10 * MIB, bytes: 8 * MIB, granule_bytes: 4 * MIB };
        let told = recording().heat_of_sites(&Selection::default(), &[part], &[0, 1]);
        assert_eq!(told.iter().map(|it| it.accesses).collect::<Vec<_>>(), [8.0, 3.0]);
        let older = Recording { head: Head { sites: None, ..recording().head }, samples: Vec::new() };
        assert_eq!(heats(&older, &[0, 1]), []);
    }

    #[test]
    fn accesses_to_a_whole_are_of_a_site_only_if_it_is_that_sites() {
        let mut recording = recording();
        recording.samples = vec![sample(0, 0, 64, 64.0, Op::Unknown), sample(0, 0, 16, 8.0, Op::Unknown)];
        let told = heats(&recording, &[0]);
        let accesses: Vec<(Option<u32>, f64)> = told.iter().map(|it| (it.0, it.2[0])).collect();
        assert_eq!(accesses, [(Some(0), 8.0), (Some(1), 0.0), (None, 64.0)]);
        // Sources that see parts alone tell that they are alike.
        recording.head.sources[0].name = "damon".to_owned();
        let told = heats(&recording, &[0]);
        assert_eq!(told[0].2[0], 16.0 + 8.0);
        assert!(told[1].2[0] > 16.0 && told[2].2[0] < 32.0, "{told:?}");
    }
}
