//! Selection of accesses of a recording, and their heat.

use tiermem_base::{Heat, Op};

use super::{Level, Mode, Recording, Sample};

/// Accesses by where they were answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LevelChoice {
    /// All of them.
    #[default]
    All,
    /// Accesses of one level.
    Only(Level),
    /// Accesses that reached memory, local or remote: all but cached ones (and those with an unknown level).
    Memory,
}

/// Reads `all`, `memory`, `local`, `remote` or `cached`.
///
/// # Errors
/// What there is, for anything else.
pub fn parse_level(text: &str) -> Result<LevelChoice, String> {
    match text {
        "all" => Ok(LevelChoice::All),
        "memory" => Ok(LevelChoice::Memory),
        "local" => Ok(LevelChoice::Only(Level::Local)),
        "remote" => Ok(LevelChoice::Only(Level::Remote)),
        "cached" => Ok(LevelChoice::Only(Level::Cache)),
        _ => {
            Err(format!("there is no access type `{text}`; the types are all, memory, local, remote, cached"))
        }
    }
}

/// A selection of accesses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Of one source, an index in the recording's sources. `None`: of the first one, since counts of different units are
    /// not to be added.
    pub source: Option<u8>,
    /// Loads or stores alone.
    pub op: Option<Op>,
    /// By where they were answered.
    pub level: LevelChoice,
    /// The program's or the kernel's alone.
    pub mode: Option<Mode>,
}

impl Selection {
    /// Whether a sample is one of them.
    pub fn takes(&self, sample: &Sample) -> bool {
        let level = match self.level {
            LevelChoice::All => true,
            LevelChoice::Only(level) => sample.level == level,
            LevelChoice::Memory => matches!(sample.level, Level::Local | Level::Remote),
        };
        level
            && sample.source == self.source.unwrap_or(0)
            && self.op.is_none_or(|op| sample.op == op)
            && self.mode.is_none_or(|mode| sample.mode == mode)
    }
}

/// The heat of one region.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionHeat {
    /// Its index in the recording's regions.
    pub region: usize,
    /// Its accesses.
    pub heat: Heat,
}

impl Recording {
    /// The heat of every region that has selected accesses, in the order of regions. `granule_bytes` is at least 1; a granule
    /// finer than the recording's own spreads its samples evenly over what they stand for.
    pub fn heat(&self, selection: &Selection, granule_bytes: u64) -> Vec<RegionHeat> {
        let slices = self.head.slices.len();
        let mut heats: Vec<Option<Heat>> = vec![None; self.head.regions.len()];
        for sample in self.samples.iter().filter(|sample| selection.takes(sample)) {
            let bytes = self.head.regions[sample.region as usize].bytes;
            let granules = usize::try_from(bytes.div_ceil(granule_bytes).max(1)).unwrap_or(usize::MAX);
            let heat = heats[sample.region as usize]
                .get_or_insert_with(|| Heat::cold(granule_bytes, granules, slices));
            let row = heat.row_mut(sample.slice as usize);
            let (from, to) = (sample.offset, sample.offset + u64::from(sample.bytes.max(1)));
            let (first, last) = (from / granule_bytes, (to - 1) / granule_bytes);
            for granule in first..=last {
                let overlap = to.min((granule + 1) * granule_bytes) - from.max(granule * granule_bytes);
                let share = overlap as f32 / (to - from) as f32;
                if let Some(value) = row.get_mut(granule as usize) {
                    *value += sample.weight * share;
                }
            }
        }
        let of = |(region, heat): (usize, Option<Heat>)| Some(RegionHeat { region, heat: heat? });
        heats.into_iter().enumerate().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Head, Region, Slice};

    #[test]
    fn heat_is_of_what_was_selected_and_spread_over_what_it_stands_for() {
        let sample = |offset, bytes, weight, level| Sample {
            slice: 1,
            offset,
            bytes,
            resident: bytes,
            weight,
            op: Op::Load,
            level,
            mode: Mode::User,
            ..Sample::default()
        };
        let head = Head {
            slices: vec![Slice::default(); 2],
            regions: vec![Region { bytes: 16384, ..Region::default() }, Region::default()],
            ..Head::default()
        };
        let samples = vec![sample(0, 8192, 4.0, Level::Local), sample(12288, 4096, 1.0, Level::Cache)];
        let recording = Recording { head, samples };
        let all = recording.heat(&Selection::default(), 4096);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].heat.row(1), [2.0, 2.0, 0.0, 1.0]);
        let memory = Selection { level: LevelChoice::Memory, ..Selection::default() };
        assert_eq!(recording.heat(&memory, 8192)[0].heat.row(1), [4.0, 0.0]);
        let stores = Selection { op: Some(Op::Store), ..Selection::default() };
        assert!(recording.heat(&stores, 4096).is_empty());
    }
}
