//! Placement arguments: how a recording is read, and the assumed sizes and speeds of memory.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::anyhow;
use clap::Args;
use tiermem_base::{Bytes, Nanos, TierKind, TierSpec};
use tiermem_model::placement::Assumed;
use tiermem_place::migrate::move_speed;
use tiermem_place::plan::Recorded;
use tiermem_trace::recording::{self, LevelChoice, Recording, Selection, parse_level};

use crate::failure::Failure;
use crate::numa_nodes;
use crate::numbers::Numbers;
use crate::process_choice;
use crate::tiers;

/// What `tiermem plan` and `tiermem sim place` share.
#[derive(Debug, Args)]
pub struct HowArgs {
    /// Unit of moving, a multiple of 4KiB [default: the recording's granule].
    #[arg(long, value_name = "SIZE")]
    pub granule: Option<Bytes>,
    /// Only these slices count, such as 3..20 or 3.. to leave out how the program begins.
    #[arg(long, value_name = "A..B")]
    pub slices: Option<Numbers>,
    /// Source whose counts are used, if the recording has several [default: the first].
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// The process, where the recording has several [default: the first].
    #[arg(long, value_name = "NAME")]
    process: Option<String>,
    /// Only accesses answered there, if the source has levels: all, memory, local, remote, cached.
    #[arg(long, value_name = "TYPE", default_value = "all", value_parser = parse_level)]
    access: LevelChoice,
    /// File with [[tier]] tables, as `tiermem store serve` reads it: the first tier is fast memory, the second slow memory.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Latency of fast memory [default: the tier's, or 96ns, as of the curve local-dram].
    #[arg(long, value_name = "TIME")]
    fast_latency: Option<Nanos>,
    /// Latency of slow memory [default: the tier's, or 244ns, as of the curve a1000-cxl].
    #[arg(long, value_name = "TIME")]
    slow_latency: Option<Nanos>,
    /// Bytes per second that can be moved, both directions together; or `measured` between this machine's fast and slow nodes,
    /// or measured:FAST,SLOW with node numbers [default: 2GiB]. With --for pager: bytes per second that are read from flash, or
    /// `measured` [default: 1GiB].
    #[arg(long, value_name = "SIZE|measured")]
    move_bandwidth: Option<MoveBandwidth>,
}

/// What a plan assumes where nothing is said.
const MOVE_BANDWIDTH: MoveBandwidth = MoveBandwidth::Given(Bytes(2 << 30));

/// Bytes that can be moved in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MoveBandwidth {
    Given(Bytes),
    /// Between these nodes.
    Measured([Option<u32>; 2]),
}

impl FromStr for MoveBandwidth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("measured") else {
            return text
                .parse()
                .map(MoveBandwidth::Given)
                .map_err(|error| format!("{error}; or say `measured`"));
        };
        if rest.is_empty() {
            return Ok(MoveBandwidth::Measured([None; 2]));
        }
        let pair = rest.strip_prefix(':').and_then(|rest| rest.split_once(','));
        let numbers =
            pair.and_then(|(fast, slow)| Some([Some(fast.parse().ok()?), Some(slow.parse().ok()?)]));
        numbers.map(MoveBandwidth::Measured).ok_or_else(|| "two nodes are named like measured:0,1".to_owned())
    }
}

impl MoveBandwidth {
    /// Measures, if that is wanted.
    fn bytes_per_s(self) -> Result<f64, Failure> {
        let [fast, slow] = match self {
            MoveBandwidth::Given(bytes) => return Ok(bytes.0 as f64),
            MoveBandwidth::Measured(nodes) => nodes,
        };
        let Some(nodes) = numa_nodes::fast_and_slow(fast, slow)? else {
            return Err(Failure::failed(anyhow!(
                "this machine has one node with memory, so that no moves can be measured; say with --move-bandwidth SIZE how many bytes \
                 are moved in a second where the plan will run"
            )));
        };
        let measured = move_speed::measure(nodes).map_err(|error| {
            Failure::failed(anyhow!(
                "moving pages between nodes {} and {} cannot be measured: {error}; say with --move-bandwidth SIZE how fast it is",
                nodes[0],
                nodes[1]
            ))
        })?;
        let rate = Bytes(measured as u64);
        eprintln!("tiermem: pages move between nodes {} and {} at {rate}/s", nodes[0], nodes[1]);
        Ok(measured)
    }
}

impl HowArgs {
    /// The tiers of fast and slow memory: the file's first two, or DRAM and CXL memory of unknown size.
    pub fn tiers(&self) -> Result<[TierSpec; 2], Failure> {
        let Some(path) = &self.config else {
            return Ok([TierKind::Dram, TierKind::Emulated].map(TierSpec::unsized_of));
        };
        let tiers = tiers::read(path)?;
        let memory: Vec<TierSpec> = tiers.into_iter().filter(|tier| tier.kind.is_memory()).take(2).collect();
        memory.try_into().map_err(|found: Vec<TierSpec>| {
            Failure::usage(anyhow!(
                "the configuration {}: pages are placed in two tiers of memory, and it describes {}: describe a fast and a slow one",
                path.display(),
                found.len()
            ))
        })
    }

    /// The assumed memory.
    pub fn assumed(&self) -> Result<Assumed, Failure> {
        let [fast, slow] = self.tiers()?;
        let latency_ns = |given: Option<Nanos>, tier: &TierSpec| match given {
            Some(latency) => Ok(latency.0 as f64),
            None => {
                let curve = tier.curve().map_err(|error| tiers::unfit(self.config.as_deref(), error))?;
                Ok(curve.read.latency().0 as f64)
            }
        };
        Ok(Assumed {
            fast_latency_ns: latency_ns(self.fast_latency, &fast)?,
            slow_latency_ns: latency_ns(self.slow_latency, &slow)?,
            move_bytes_per_s: self.move_bandwidth.unwrap_or(MOVE_BANDWIDTH).bytes_per_s()?,
        })
    }

    /// Bytes a second that can be read from flash: as given, and whether they are to be measured.
    pub fn flash_bandwidth(&self) -> Result<(Option<f64>, bool), Failure> {
        match self.move_bandwidth {
            None => Ok((None, false)),
            Some(MoveBandwidth::Given(bytes)) => Ok((Some(bytes.0 as f64), false)),
            Some(MoveBandwidth::Measured([None, None])) => Ok((None, true)),
            Some(MoveBandwidth::Measured(_)) => Err(Failure::usage(anyhow!(
                "--move-bandwidth measured:FAST,SLOW is between nodes; with --for pager say `measured`, and --flash PATH"
            ))),
        }
    }

    /// The fast memory that there is: as it was given, or the capacity of the file's first tier.
    pub fn fast_bytes(&self, given: Option<Bytes>) -> Result<Option<u64>, Failure> {
        match (given, &self.config) {
            (Some(bytes), _) => Ok(Some(bytes.0)),
            (None, Some(path)) => {
                let bytes = self.tiers()?[0].bytes();
                bytes.map(Some).map_err(|error| tiers::unfit(Some(path), error))
            }
            (None, None) => Ok(None),
        }
    }

    /// Reads a recording, and takes what is wanted of it.
    pub fn read(&self, path: &Path, granule_bytes: Option<u64>) -> Result<(Recording, Recorded), Failure> {
        let all = recording::read(path).map_err(Failure::failed)?;
        let mut recording = process_choice::placed(all, self.process.as_deref())?;
        if let Some(why) = recording.emptiness() {
            return Err(Failure::failed(anyhow!("{}: {why}", path.display())));
        }
        if let Some(note) = recording.incompleteness() {
            eprintln!("tiermem: {note}");
        }
        if let Some(slices) = &self.slices {
            recording = of_slices(&recording, slices)?;
        }
        let sources = &recording.head.sources;
        let source = match &self.source {
            None => None,
            Some(name) => Some(sources.iter().position(|source| source.name == *name).ok_or_else(|| {
                let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
                Failure::usage(anyhow!("the recording has no source {name}; it has {}", names.join(", ")))
            })?),
        };
        let source = source.and_then(|at| u8::try_from(at).ok());
        let selection = Selection { source, level: self.access, ..Selection::default() };
        let granule_bytes = granule_bytes.or(self.granule.map(|granule| granule.0));
        let granule_bytes = granule_bytes.unwrap_or(recording.head.granule_bytes);
        let recorded = Recorded::of(&recording, &selection, granule_bytes)
            .map_err(|reason| Failure::failed(anyhow!("{}: {reason}", path.display())))?;
        Ok((recording, recorded))
    }
}

/// What was recorded in some slices.
fn of_slices(recording: &Recording, slices: &Numbers) -> Result<Recording, Failure> {
    let count = recording.head.slices.len();
    let chosen = slices.below(count).map_err(|beyond| {
        let last = count.saturating_sub(1);
        Failure::usage(anyhow!("there is no slice {beyond}; the recording has slices 0 to {last}"))
    })?;
    Ok(recording.of_slices(&chosen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bandwidth_is_given_or_measured_between_nodes() {
        assert_eq!("4GiB".parse(), Ok(MoveBandwidth::Given(Bytes(4 << 30))));
        assert_eq!("measured".parse(), Ok(MoveBandwidth::Measured([None, None])));
        assert_eq!("measured:0,2".parse(), Ok(MoveBandwidth::Measured([Some(0), Some(2)])));
        for wrong in ["fast", "measured:1", "measured:a,b", "measured2"] {
            assert!(wrong.parse::<MoveBandwidth>().is_err(), "{wrong}");
        }
    }
}
